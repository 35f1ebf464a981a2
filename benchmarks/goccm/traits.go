package main

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/cloud-provider/service/helpers"
)

// checkup is where the load balancer asks whether a target is well.
type checkup struct {
	Port int32  `json:"port"`
	Path string `json:"path"`
}

// traits are the fields of a load balancer that the Service asks for.
func traits(service *v1.Service) (*int32, checkup) {
	check := checkup{10256, "/healthz"}
	if helpers.NeedsHealthCheck(service) {
		path, port := helpers.GetServiceHealthCheckPathPort(service)
		check = checkup{port, path}
	}
	if service.Spec.SessionAffinity != v1.ServiceAffinityClientIP {
		return nil, check
	}
	return service.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds, check
}

func sources(service *v1.Service) ([]string, error) {
	found, err := helpers.GetLoadBalancerSourceRanges(service)
	if err != nil {
		return nil, err
	}
	ranges := found.StringSlice()
	slices.Sort(ranges)
	return ranges, nil
}

// adjust changes what has another trait than the Service asks for.
func (c *cloud) adjust(
	ctx context.Context, service *v1.Service, balancer part, firewalls []part,
) error {
	affinity, check := traits(service)
	same := (affinity == nil) == (balancer.Affinity == nil) &&
		(affinity == nil || *affinity == *balancer.Affinity)
	if !same || balancer.Check != check {
		err := c.call(ctx, "PATCH", "load_balancers/"+balancer.ID, object{
			"version": balancer.Version, "affinity_seconds": affinity, "health_check": check,
		}, nil)
		if err != nil {
			return err
		}
	}
	ranges, err := sources(service)
	if err != nil {
		return err
	}
	for _, one := range firewalls {
		slices.Sort(one.Sources)
		if slices.Equal(one.Sources, ranges) {
			continue
		}
		err := c.call(ctx, "PATCH", "firewalls/"+one.ID, object{
			"version": one.Version, "source_ranges": ranges,
		}, nil)
		if err != nil {
			return err
		}
	}
	return nil
}
