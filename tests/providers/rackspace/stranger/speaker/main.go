// Program speaker speaks to Rackspace by gophercloud, the SDK of the provider inside Kubernetes: it
// gets a token by an API key, looks servers up as that provider did, and lists volumes. It prints what
// it was answered, a line of JSON for each act. The release that is to be had knows no load balancers.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/racker/perigee"
	"github.com/rackspace/gophercloud"
	osservers "github.com/rackspace/gophercloud/openstack/compute/v2/servers"
	"github.com/rackspace/gophercloud/pagination"
	"github.com/rackspace/gophercloud/rackspace"
	"github.com/rackspace/gophercloud/rackspace/blockstorage/v1/volumes"
	"github.com/rackspace/gophercloud/rackspace/compute/v2/servers"
)

func main() {
	options := gophercloud.AuthOptions{AllowReauth: true}
	flag.StringVar(&options.IdentityEndpoint, "auth-url", "", "Rackspace's identity")
	flag.StringVar(&options.Username, "username", "", "the user")
	flag.StringVar(&options.APIKey, "api-key", "", "its API key")
	region := flag.String("region", "", "the region")
	name := flag.String("server", "", "the name of a server")
	flag.Parse()
	provider, err := rackspace.AuthenticatedClient(options)
	must(err)
	where := gophercloud.EndpointOpts{Region: *region}
	compute, err := rackspace.NewComputeV2(provider, where)
	must(err)
	lookUp(compute, *name)
	storage, err := rackspace.NewBlockStorageV1(provider, where)
	must(err)
	listVolumes(storage)
}

// lookUp finds a server as the provider inside Kubernetes did.
func lookUp(compute *gophercloud.ServiceClient, name string) {
	found := []osservers.Server{}
	options := osservers.ListOpts{Name: fmt.Sprintf("^%s$", name), Status: "ACTIVE"}
	must(servers.List(compute, options).EachPage(func(page pagination.Page) (bool, error) {
		some, err := servers.ExtractServers(page)
		found = append(found, some...)
		return true, err
	}))
	tell("by name", ids(found))
	all := []osservers.Server{}
	must(servers.List(compute, nil).EachPage(func(page pagination.Page) (bool, error) {
		some, err := servers.ExtractServers(page)
		all = append(all, some...)
		return true, err
	}))
	tell("all", len(all))
	server, err := servers.Get(compute, found[0].ID).Extract()
	must(err)
	tell("server", map[string]any{"name": server.Name, "addresses": server.Addresses,
		"status": server.Status, "accessIPv4": server.AccessIPv4, "flavor": server.Flavor["id"]})
	_, err = servers.Get(compute, "2e8c1f0a-0000-4000-8000-000000000000").Extract()
	tell("absent", status(err))
}

func listVolumes(storage *gophercloud.ServiceClient) {
	found := []string{}
	must(volumes.List(storage).EachPage(func(page pagination.Page) (bool, error) {
		some, err := volumes.ExtractVolumes(page)
		for _, volume := range some {
			found = append(found, volume.Name)
		}
		return true, err
	}))
	tell("volumes", found)
}

func ids(found []osservers.Server) []string {
	all := []string{}
	for _, one := range found {
		all = append(all, one.ID)
	}
	return all
}

func status(err error) int {
	if wrong, ok := err.(*perigee.UnexpectedResponseCodeError); ok {
		return wrong.Actual
	}
	return 0
}

func tell(what string, value any) {
	must(json.NewEncoder(os.Stdout).Encode(map[string]any{"what": what, "value": value}))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
