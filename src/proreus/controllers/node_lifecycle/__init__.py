"""The node-lifecycle-controller: silent nodes get conditions and taints, and lose their pods."""
