"""The controller `kubelet-serving-approving-controller`: kubelets' serving certificates."""
