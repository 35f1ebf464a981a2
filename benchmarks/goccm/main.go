// Program goccm is a cloud-controller-manager of the Go framework for the simulated cloud: the
// other side of the benchmarks. It makes the same calls as the Python provider "simulated", but
// for machines, which the Go interface asks about one at a time.
package main

import (
	"os"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
)

func main() {
	cloudprovider.RegisterCloudProvider(providerName, newCloud)
	opts, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatalf("options: %v", err)
	}
	command := app.NewCloudControllerManagerCommand(
		opts, open, app.DefaultInitFuncConstructors, names.CCMControllerAliases(),
		flag.NamedFlagSets{}, wait.NeverStop)
	os.Exit(cli.Run(command))
}

func open(completed *config.CompletedConfig) cloudprovider.Interface {
	provider := completed.ComponentConfig.KubeCloudShared.CloudProvider
	cloud, err := cloudprovider.InitCloudProvider(provider.Name, provider.CloudConfigFile)
	if err != nil || cloud == nil {
		klog.Fatalf("cloud provider %q: %v", provider.Name, err)
	}
	return cloud
}
