// Program strangers speaks to an engine as two others do: the provider inside old Kubernetes
// (1.14.10), and go-ovirt, the SDK. It reads a verb with its arguments from each line, and answers
// with a line of JSON.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	ovirtsdk "github.com/ovirt/go-ovirt"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	_ "k8s.io/kubernetes/pkg/cloudprovider/providers/ovirt"
)

type answer map[string]interface{}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		said, err := do(words[0], words[1:])
		if err != nil {
			said = answer{"error": err.Error()}
		}
		line, _ := json.Marshal(said)
		fmt.Println(string(line))
	}
}

func do(verb string, arguments []string) (answer, error) {
	switch verb {
	case "node":
		return node(arguments[0], types.NodeName(arguments[1]))
	case "list":
		return list(arguments[0], arguments[1], arguments[2], arguments[3])
	}
	return nil, fmt.Errorf("%s is no verb", verb)
}

// node asks the provider of a cloud-config what it knows of a Node.
func node(config string, name types.NodeName) (answer, error) {
	cloud, err := cloudprovider.InitCloudProvider("ovirt", config)
	if err != nil {
		return nil, err
	}
	instances, _ := cloud.Instances()
	id, err := cloudprovider.GetInstanceProviderID(context.Background(), cloud, name)
	if err != nil {
		return nil, err
	}
	found, err := instances.NodeAddresses(context.Background(), name)
	if err != nil {
		return nil, err
	}
	addresses := []string{}
	for _, one := range found {
		addresses = append(addresses, string(one.Type)+" "+one.Address)
	}
	return answer{"id": id, "addresses": addresses}, nil
}

// list searches for machines with the SDK, and ends its session.
func list(url, username, password, search string) (answer, error) {
	connection, err := ovirtsdk.NewConnectionBuilder().URL(url).Username(username).
		Password(password).Timeout(20 * time.Second).Build()
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	service := connection.SystemService().VmsService()
	request := service.List().Search(search).Max(100).Follow("nics,reported_devices")
	response, err := request.Send()
	if err != nil {
		return nil, err
	}
	machines := []answer{}
	for _, vm := range response.MustVms().Slice() {
		one := answer{"id": vm.MustId(), "name": vm.MustName(), "status": string(vm.MustStatus()),
			"cluster": vm.MustCluster().MustId()}
		if fqdn, ok := vm.Fqdn(); ok {
			one["fqdn"] = fqdn
		}
		macs, ips := []string{}, []string{}
		for _, nic := range vm.MustNics().Slice() {
			macs = append(macs, nic.MustMac().MustAddress())
		}
		for _, device := range vm.MustReportedDevices().Slice() {
			if found, ok := device.Ips(); ok {
				for _, ip := range found.Slice() {
					ips = append(ips, ip.MustAddress())
				}
			}
		}
		one["macs"], one["ips"] = macs, ips
		machines = append(machines, one)
	}
	return answer{"machines": machines}, nil
}
