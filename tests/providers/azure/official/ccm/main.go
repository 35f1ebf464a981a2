// Package main runs the official cloud-controller-manager of Azure as it is, to compare with.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	"sigs.k8s.io/cloud-provider-azure/cmd/cloud-controller-manager/app"
)

func main() {
	os.Exit(cli.Run(app.NewCloudControllerManagerCommand()))
}
