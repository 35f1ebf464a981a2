package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

var collections = map[string]string{
	"listener": "listeners", "firewall": "firewalls",
	"load_balancer": "load_balancers", "address": "addresses",
}

// together runs steps side by side; the answer is the first error there was.
func together(steps ...func() error) error {
	var group sync.WaitGroup
	failures := make(chan error, len(steps))
	for _, step := range steps {
		group.Go(func() { failures <- step() })
	}
	group.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *cloud) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

// owned lists the parts of a Service by kind, with one call.
func (c *cloud) owned(ctx context.Context, service *v1.Service) (map[string][]part, error) {
	found, err := c.resources(
		ctx, url.Values{"name_prefix": {cloudprovider.DefaultLoadBalancerName(service)}})
	if err != nil {
		return nil, err
	}
	kinds := map[string][]part{}
	for _, one := range found {
		kinds[one.Kind] = append(kinds[one.Kind], one)
	}
	return kinds, nil
}

func status(address string) *v1.LoadBalancerStatus {
	mode := v1.LoadBalancerIPModeProxy
	ingress := v1.LoadBalancerIngress{IP: address, IPMode: &mode}
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{ingress}}
}

func (c *cloud) GetLoadBalancer(
	ctx context.Context, _ string, service *v1.Service,
) (*v1.LoadBalancerStatus, bool, error) {
	kinds, err := c.owned(ctx, service)
	if err != nil || len(kinds["address"]) == 0 {
		return nil, false, err
	}
	return status(kinds["address"][0].Address), true, nil
}

// marks are the tags of everything that is made for a Service.
func marks(cluster string, service *v1.Service) object {
	return object{
		"kubernetes.io/cluster/" + cluster: "owned",
		"kubernetes.io/service-name":       service.Namespace + "/" + service.Name,
	}
}

func (c *cloud) EnsureLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (*v1.LoadBalancerStatus, error) {
	kinds, err := c.owned(ctx, service)
	if err != nil {
		return nil, err
	}
	name := cloudprovider.DefaultLoadBalancerName(service)
	one := func(kind string, fields object) (part, error) {
		if has := kinds[kind]; len(has) > 0 {
			return has[0], nil
		}
		made := part{}
		fields["name"], fields["tags"] = name, marks(cluster, service)
		return made, c.call(ctx, "POST", collections[kind], fields, &made)
	}
	address, err := one("address", object{"address": service.Spec.LoadBalancerIP})
	if err != nil {
		return nil, err
	}
	affinity, check := traits(service)
	balancer, err := one("load_balancer", object{
		"address_id": address.ID, "health_check": check, "affinity_seconds": affinity})
	if err != nil {
		return nil, err
	}
	open, err := sources(service)
	if err != nil {
		return nil, err
	}
	tags := marks(cluster, service)
	steps := append(c.listenerSteps(ctx, name, tags, service, balancer, kinds["listener"]),
		func() error {
			_, err := one("firewall", object{"load_balancer_id": balancer.ID, "source_ranges": open})
			return err
		},
		func() error { return c.adjust(ctx, service, balancer, kinds["firewall"]) },
		func() error { return c.retarget(ctx, balancer, nodes) })
	return status(address.Address), together(steps...)
}

// listenerSteps makes the listeners of a Service as its ports are, one call for each difference.
func (c *cloud) listenerSteps(
	ctx context.Context, name string, tags object, service *v1.Service, balancer part, has []part,
) []func() error {
	type end struct {
		protocol string
		port, to int32
	}
	have := map[end]part{}
	for _, one := range has {
		have[end{one.Protocol, one.Port, one.To}] = one
	}
	var made, gone []func() error
	for _, port := range service.Spec.Ports {
		wanted := end{string(port.Protocol), port.Port, port.NodePort}
		if _, found := have[wanted]; found {
			delete(have, wanted)
			continue
		}
		made = append(made, func() error {
			return c.call(ctx, "POST", "listeners", object{
				"name": name + "-" + port.Name, "load_balancer_id": balancer.ID, "tags": tags,
				"protocol": wanted.protocol, "port": wanted.port, "target_port": wanted.to,
			}, nil)
		})
	}
	for _, one := range have {
		gone = append(gone, func() error {
			return c.call(ctx, "DELETE", "listeners/"+one.ID, nil, nil)
		})
	}
	if len(gone) == 0 {
		return made
	}
	// First away with the old ones, whose names are taken.
	return []func() error{func() error {
		if err := together(gone...); err != nil {
			return err
		}
		return together(made...)
	}}
}

// internal is the node's internal address. The framework takes the taint off before it writes the
// addresses, and does not update load balancers when they come, so the cloud may have to be asked.
func (c *cloud) internal(ctx context.Context, node *v1.Node) (string, error) {
	for _, address := range node.Status.Addresses {
		if address.Type == v1.NodeInternalIP {
			return address.Address, nil
		}
	}
	found, err := c.find(ctx, node)
	if err != nil {
		return "", err
	}
	for _, address := range found.Addresses {
		if address.Type == string(v1.NodeInternalIP) {
			return address.Address, nil
		}
	}
	return "", fmt.Errorf("instance %s has no internal address", found.ID)
}

// retarget makes the targets those that the nodes are.
func (c *cloud) retarget(ctx context.Context, balancer part, nodes []*v1.Node) error {
	have := map[string]bool{}
	for _, one := range balancer.Targets {
		have[one.Instance] = true
	}
	var add []target
	for _, node := range nodes {
		id, known := strings.CutPrefix(node.Spec.ProviderID, prefix+c.Region+"/")
		if !known {
			continue // it is not initialised yet; another update comes when it is
		}
		if have[id] {
			delete(have, id)
			continue
		}
		address, err := c.internal(ctx, node)
		if err != nil {
			return err
		}
		add = append(add, target{id, address})
	}
	path := "load_balancers/" + balancer.ID + "/targets:"
	var steps []func() error
	if len(add) > 0 {
		steps = append(steps, func() error {
			return c.call(ctx, "POST", path+"add", object{"targets": add}, nil)
		})
	}
	if len(have) > 0 {
		var remove []string
		for id := range have {
			remove = append(remove, id)
		}
		steps = append(steps, func() error {
			return c.call(ctx, "POST", path+"remove", object{"instance_ids": remove}, nil)
		})
	}
	return together(steps...)
}

func (c *cloud) UpdateLoadBalancer(
	ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node,
) error {
	kinds, err := c.owned(ctx, service)
	if err != nil || len(kinds["load_balancer"]) == 0 {
		return err
	}
	return c.retarget(ctx, kinds["load_balancer"][0], nodes)
}

func (c *cloud) EnsureLoadBalancerDeleted(
	ctx context.Context, _ string, service *v1.Service,
) error {
	kinds, err := c.owned(ctx, service)
	if err != nil {
		return err
	}
	remove := func(parts []part) error {
		var steps []func() error
		for _, one := range parts {
			steps = append(steps, func() error {
				err := c.call(ctx, "DELETE", collections[one.Kind]+"/"+one.ID, nil, nil)
				if isMissing(err) {
					return nil
				}
				return err
			})
		}
		return together(steps...)
	}
	for _, parts := range [][]part{
		append(kinds["listener"], kinds["firewall"]...), kinds["load_balancer"], kinds["address"],
	} {
		if err := remove(parts); err != nil {
			return err
		}
	}
	return nil
}
