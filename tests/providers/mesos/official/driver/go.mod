// The provider of Mesos that was inside Kubernetes, to compare with; see main.go.
module proreus.invalid/driver

go 1.26.0

require k8s.io/kubernetes v1.5.8

require (
	github.com/PuerkitoBio/urlesc v0.0.0-20170810143723-de5bf2ad4578 // indirect
	github.com/google/uuid v1.0.0 // indirect
	github.com/stretchr/objx v0.5.3 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/text v0.23.0 // indirect
	gopkg.in/warnings.v0 v0.1.2 // indirect
)

// Kubernetes 1.5 has no module file of its own: these are the commits that it was built with
// (Godeps.json), or the nearest that can be had.
require (
	github.com/PuerkitoBio/purell v1.0.0
	github.com/davecgh/go-spew v1.1.1
	github.com/emicklei/go-restful v1.1.3
	github.com/ghodss/yaml v1.0.0
	github.com/go-openapi/jsonpointer v0.0.0-20160704185906-46af16f9f7b1
	github.com/go-openapi/jsonreference v0.0.0-20160704190145-13c6e3589ad9
	github.com/go-openapi/spec v0.0.0-20160808142527-6aced65f8501
	github.com/go-openapi/swag v0.0.0-20160704191624-1d0bd113de87
	github.com/gogo/protobuf v1.0.0
	github.com/golang/glog v0.0.0-20160126235308-23def4e6c14b
	github.com/google/gofuzz v1.0.0
	github.com/mailru/easyjson v0.0.0-20160728113105-d5b7844b561a
	github.com/mesos/mesos-go v0.0.2
	github.com/pborman/uuid v1.2.0
	github.com/samuel/go-zookeeper v0.0.0-20161028232340-1d7be4effb13
	github.com/spf13/pflag v1.0.5
	github.com/ugorji/go v0.0.0-20170107133203-ded73eae5db7
	golang.org/x/net v0.38.0
	gopkg.in/gcfg.v1 v1.2.0
	gopkg.in/inf.v0 v0.9.1
	gopkg.in/yaml.v2 v2.2.8
)

require (
	github.com/PuerkitoBio/urlesc v0.0.0-20170810143723-de5bf2ad4578 // indirect
	github.com/google/uuid v1.0.0 // indirect
	golang.org/x/text v0.23.0 // indirect
	gopkg.in/warnings.v0 v0.1.2 // indirect
)
