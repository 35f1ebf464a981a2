// The provider inside Kubernetes 1.14, to compare with; see main.go.
module proreus.invalid/driver

go 1.26.0

require (
	github.com/vmware/photon-controller-go-sdk v0.0.0-20170310013346-4a435daef6cc
	k8s.io/apimachinery v0.15.12
	k8s.io/cloud-provider v0.15.12
	k8s.io/kubernetes v1.14.10
)

replace (
	k8s.io/api => k8s.io/api v0.15.12
	k8s.io/apimachinery => k8s.io/apimachinery v0.15.12
	k8s.io/apiserver => k8s.io/apiserver v0.15.12
	k8s.io/client-go => k8s.io/client-go v0.15.12
	k8s.io/cloud-provider => k8s.io/cloud-provider v0.15.12
)
