package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

const (
	providerName = "simulated"
	prefix       = "simulated://"
	ownerTag     = "goccm-cluster"
)

// cloud is the provider: machines, load balancers and routes.
type cloud struct {
	*api
	nodes listers.NodeLister
}

func newCloud(configuration io.Reader) (cloudprovider.Interface, error) {
	made, err := newAPI(configuration)
	return &cloud{api: made}, err
}

// SetInformers gives the provider the framework's cache of nodes.
func (c *cloud) SetInformers(factory informers.SharedInformerFactory) {
	c.nodes = factory.Core().V1().Nodes().Lister()
}

func (c *cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (c *cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool)                  { return c, true }
func (c *cloud) Instances() (cloudprovider.Instances, bool)                        { return nil, false }
func (c *cloud) InstancesV2() (cloudprovider.InstancesV2, bool)                    { return c, true }
func (c *cloud) Zones() (cloudprovider.Zones, bool)                                { return nil, false }
func (c *cloud) Clusters() (cloudprovider.Clusters, bool)                          { return nil, false }
func (c *cloud) Routes() (cloudprovider.Routes, bool)                              { return c, true }
func (c *cloud) ProviderName() string                                              { return providerName }
func (c *cloud) HasClusterID() bool                                                { return true }

// find asks for one machine, by provider id if the node has one and else by name.
func (c *cloud) find(ctx context.Context, node *v1.Node) (*machine, error) {
	if id := strings.TrimPrefix(node.Spec.ProviderID, prefix+c.Region+"/"); id != "" {
		found := &machine{}
		err := c.call(ctx, "GET", "instances/"+id, nil, found)
		if isMissing(err) {
			return nil, cloudprovider.InstanceNotFound
		}
		return found, err
	}
	var answer struct {
		Instances []machine `json:"instances"`
	}
	asked := object{"names": []string{node.Name}}
	if err := c.call(ctx, "POST", "instances:batchGet", asked, &answer); err != nil {
		return nil, err
	}
	if len(answer.Instances) == 0 {
		return nil, cloudprovider.InstanceNotFound
	}
	return &answer.Instances[0], nil
}

func (c *cloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	found, err := c.find(ctx, node)
	if err == cloudprovider.InstanceNotFound {
		return false, nil
	}
	return err == nil && found.State != "terminated", err
}

func (c *cloud) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	found, err := c.find(ctx, node)
	return err == nil && found.State == "stopped", err
}

func (c *cloud) InstanceMetadata(
	ctx context.Context, node *v1.Node,
) (*cloudprovider.InstanceMetadata, error) {
	found, err := c.find(ctx, node)
	if err != nil {
		return nil, err
	}
	addresses := make([]v1.NodeAddress, 0, len(found.Addresses))
	for _, one := range found.Addresses {
		addresses = append(
			addresses, v1.NodeAddress{Type: v1.NodeAddressType(one.Type), Address: one.Address})
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID:    prefix + found.Region + "/" + found.ID,
		InstanceType:  found.Type,
		NodeAddresses: addresses,
		Zone:          found.Zone,
		Region:        found.Region,

		AdditionalLabels: found.Labels,
	}, nil
}

func (c *cloud) ListRoutes(ctx context.Context, cluster string) ([]*cloudprovider.Route, error) {
	parts, err := c.resources(
		ctx, url.Values{"kind": {"route"}, "tag": {ownerTag + "=" + cluster}})
	if err != nil {
		return nil, err
	}
	routes := make([]*cloudprovider.Route, 0, len(parts))
	for _, one := range parts {
		routes = append(routes, &cloudprovider.Route{
			Name:            one.ID,
			TargetNode:      types.NodeName(one.Tags["node"]),
			DestinationCIDR: one.CIDR,
			Blackhole:       one.State == "blackhole",
		})
	}
	return routes, nil
}

func (c *cloud) CreateRoute(
	ctx context.Context, cluster, hint string, route *cloudprovider.Route,
) error {
	node, err := c.nodes.Get(string(route.TargetNode))
	if err != nil {
		return err
	}
	return c.call(ctx, "POST", "routes", object{
		"name":        fmt.Sprintf("%s-%s-%s", cluster, hint, route.DestinationCIDR),
		"destination": route.DestinationCIDR,
		"instance_id": strings.TrimPrefix(node.Spec.ProviderID, prefix+c.Region+"/"),
		"tags":        object{ownerTag: cluster, "node": node.Name},
	}, nil)
}

func (c *cloud) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	return c.call(ctx, "DELETE", "routes/"+route.Name, nil, nil)
}
