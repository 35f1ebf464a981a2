// Program driver lets the provider of Photon Controller inside Kubernetes 1.14, and the SDK for Go that
// it is built with, answer questions: one a line, as JSON, and so are the answers.
//
// No client of that age speaks to an API server of today; so the provider is asked as its kubelets and
// controllers asked it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/vmware/photon-controller-go-sdk/photon"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	_ "k8s.io/kubernetes/pkg/cloudprovider/providers/photon"
)

type question struct {
	Verb      string
	Config    string
	Name      string
	Target    string
	Tenant    string
	Project   string
	Tokens    bool
	User      string
	Password  string
	Refreshed string
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked question
		answer := map[string]any{}
		err := json.Unmarshal(lines.Bytes(), &asked)
		if err == nil {
			answer["answer"], err = answerTo(asked)
		}
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		text, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(text))
	}
}

func answerTo(asked question) (any, error) {
	ctx, name := context.Background(), types.NodeName(asked.Name)
	switch asked.Verb {
	case "id", "addresses", "type", "zone":
		cloud, err := cloudprovider.InitCloudProvider("photon", asked.Config)
		if err != nil {
			return nil, err
		}
		instances, _ := cloud.Instances()
		zones, _ := cloud.Zones()
		switch asked.Verb {
		case "id":
			return cloudprovider.GetInstanceProviderID(ctx, cloud, name)
		case "addresses":
			return instances.NodeAddresses(ctx, name)
		case "type":
			return instances.InstanceType(ctx, name)
		}
		return zones.GetZone(ctx)
	}
	client, err := connected(asked)
	if err != nil {
		return nil, err
	}
	switch asked.Verb {
	case "tenants":
		return client.Tenants.GetAll()
	case "tenant":
		return client.Tenants.Get(asked.Name)
	case "projects":
		return client.Tenants.GetProjects(asked.Tenant, nil)
	case "project":
		return client.Projects.Get(asked.Project)
	case "vms":
		return client.Projects.GetVMs(asked.Project, &photon.VmGetOptions{Name: asked.Name})
	case "vm":
		return client.VMs.Get(asked.Name)
	case "networks":
		task, err := client.VMs.GetNetworks(asked.Name)
		if err != nil {
			return nil, err
		}
		return client.Tasks.Wait(task.ID)
	case "status":
		return client.Status.Get()
	}
	return nil, fmt.Errorf("no such verb: %s", asked.Verb)
}

// connected returns a client of the SDK, with tokens of Lightwave if they are asked for.
func connected(asked question) (*photon.Client, error) {
	options := &photon.ClientOptions{IgnoreCertificate: true}
	if asked.Tokens {
		tokens, err := photon.NewClient(asked.Target, options, nil).Auth.GetTokensByPassword(asked.User, asked.Password)
		if err != nil {
			return nil, err
		}
		if asked.Refreshed != "" {
			// A token that has expired, which the SDK renews by itself.
			tokens.AccessToken = asked.Refreshed
		}
		options.TokenOptions = tokens
	}
	return photon.NewClient(asked.Target, options, nil), nil
}
