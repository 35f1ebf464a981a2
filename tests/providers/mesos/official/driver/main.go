// Program driver calls the provider that was inside Kubernetes 1.5, as its controllers did: the
// other side of the comparison. It takes verbs from standard input, a line each, and answers each
// with a line of JSON. No API server of today takes a client of that age.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"os"
	"strings"

	"github.com/golang/glog"
	"k8s.io/kubernetes/pkg/cloudprovider"
	"k8s.io/kubernetes/pkg/cloudprovider/providers/mesos"
	"k8s.io/kubernetes/pkg/types"
)

type answer struct {
	Value interface{} `json:"value"`
	Error string      `json:"error"`
	Gone  bool        `json:"gone"`
}

func main() {
	config := flag.String("cloud-config", "", "the file of the provider; none for its defaults")
	flag.Parse()
	cloud, err := cloudprovider.InitCloudProvider("mesos", *config)
	if err != nil {
		glog.Exit(err)
	}
	instances, _ := cloud.Instances()
	clusters, _ := cloud.Clusters()
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		verb, name := words[0], words[1]
		var value interface{}
		var err error
		switch verb {
		case "addresses":
			value, err = instances.NodeAddresses(types.NodeName(name))
		case "external":
			value, err = instances.ExternalID(types.NodeName(name))
		case "provider":
			value, err = cloudprovider.GetInstanceProviderID(cloud, types.NodeName(name))
		case "list":
			value, err = instances.List(name)
		case "idle":
			value, err = cloud.(*mesos.MesosCloud).ListWithoutKubelet()
		case "clusters":
			value, err = clusters.ListClusters()
		case "master":
			value, err = clusters.Master(name)
		default:
			glog.Exitf("no verb: %s", verb)
		}
		said := answer{Value: value, Gone: err == cloudprovider.InstanceNotFound}
		if err != nil {
			said.Error = err.Error()
		}
		if err := out.Encode(said); err != nil {
			glog.Exit(err)
		}
	}
}
