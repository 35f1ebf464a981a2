// Program ccm is the official provider of vSphere under the node controllers of the Go framework:
// the other side of the comparison. It has no load balancers here, and so no other controllers.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/clientcmd"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/controllers/node"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	"k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"

	_ "k8s.io/cloud-provider-vsphere/pkg/cloudprovider/vsphere"
	_ "k8s.io/controller-manager/pkg/features/register"
)

const workers = 4

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	cloudConfig := flag.String("cloud-config", "", "the file of the provider")
	nodePeriod := flag.Duration("node-status-update-frequency", 0, "how often nodes are looked at")
	monitorPeriod := flag.Duration("node-monitor-period", 0, "how often silent nodes are looked for")
	klog.InitFlags(nil)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	must(err)
	config.QPS, config.Burst = 1000, 1000
	clients := clientbuilder.SimpleControllerClientBuilder{ClientConfig: config}
	cloud, err := cloudprovider.InitCloudProvider("vsphere", *cloudConfig)
	must(err)
	cloud.Initialize(clients, ctx.Done())
	factory := informers.NewSharedInformerFactory(clients.ClientOrDie("informers"), 12*time.Hour)
	nodes := factory.Core().V1().Nodes()
	metrics := controllers.NewControllerManagerMetrics("ccm")

	nodeController, err := node.NewCloudNodeController(
		nodes, clients.ClientOrDie("node-controller"), cloud, *nodePeriod, workers, workers)
	must(err)
	lifecycle, err := nodelifecycle.NewCloudNodeLifecycleController(
		nodes, clients.ClientOrDie("node-lifecycle-controller"), cloud, *monitorPeriod)
	must(err)

	factory.Start(ctx.Done())
	go nodeController.Run(ctx.Done(), metrics)
	go lifecycle.Run(ctx, metrics)
	<-ctx.Done()
}

func must(err error) {
	if err != nil {
		klog.Fatal(err)
	}
}
