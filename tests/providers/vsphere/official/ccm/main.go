// Program ccm is the official provider of vSphere under the controllers of the Go framework: the
// other side of the comparison. Load balancers and routes it has with a file that names NSX-T.
package main

import (
	"context"
	"flag"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/clientcmd"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider-vsphere/pkg/cloudprovider/vsphere/loadbalancer"
	"k8s.io/cloud-provider/controllers/node"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	"k8s.io/cloud-provider/controllers/route"
	"k8s.io/cloud-provider/controllers/service"
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
	routePeriod := flag.Duration("route-reconciliation-period", 10*time.Second, "how often routes are looked at")
	clusterName := flag.String("cluster-name", "kubernetes", "the cluster")
	clusterCIDR := flag.String("cluster-cidr", "10.244.0.0/16", "where pods are")
	klog.InitFlags(nil)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	// As the official program sets them: who is the owner of load balancers.
	loadbalancer.AppName = "vsphere-cloud-controller-manager"
	loadbalancer.ClusterName = *clusterName
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	must(err)
	config.QPS, config.Burst = 1000, 1000
	clients := clientbuilder.SimpleControllerClientBuilder{ClientConfig: config}
	cloud, err := cloudprovider.InitCloudProvider("vsphere", *cloudConfig)
	must(err)
	cloud.Initialize(clients, ctx.Done())
	factory := informers.NewSharedInformerFactory(clients.ClientOrDie("informers"), 12*time.Hour)
	nodes, services := factory.Core().V1().Nodes(), factory.Core().V1().Services()
	metrics := controllers.NewControllerManagerMetrics("ccm")

	nodeController, err := node.NewCloudNodeController(
		nodes, clients.ClientOrDie("node-controller"), cloud, *nodePeriod, workers, workers)
	must(err)
	lifecycle, err := nodelifecycle.NewCloudNodeLifecycleController(
		nodes, clients.ClientOrDie("node-lifecycle-controller"), cloud, *monitorPeriod)
	must(err)

	var started []func()
	if _, ok := cloud.LoadBalancer(); ok {
		one, err := service.New(cloud, clients.ClientOrDie("service-controller"),
			services, nodes, *clusterName, feature.DefaultFeatureGate)
		must(err)
		started = append(started, func() { one.Run(ctx, workers, metrics) })
	}
	if routes, ok := cloud.Routes(); ok {
		_, cidr, err := net.ParseCIDR(*clusterCIDR)
		must(err)
		one, err := route.New(
			routes, clients.ClientOrDie("route-controller"), nodes, *clusterName, []*net.IPNet{cidr})
		must(err)
		started = append(started, func() { one.Run(ctx, *routePeriod, metrics) })
	}

	factory.Start(ctx.Done())
	for _, run := range started {
		go run()
	}
	go nodeController.Run(ctx.Done(), metrics)
	go lifecycle.Run(ctx, metrics)
	<-ctx.Done()
}

func must(err error) {
	if err != nil {
		klog.Fatal(err)
	}
}
