"""List what carries the marks of a cluster, to find what belongs to no Service."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from proreus.cloudprovider.identity import MARK_CLUSTER_UID, ClusterIdentity, OwnedObject
from proreus.cloudprovider.mark_forms import owned_object
from proreus.providers.aws.classic.observe import tags_by_name
from proreus.providers.aws.identity import tags_of
from proreus.providers.aws.network.observe import tags_by_arn
from proreus.providers.aws.network.steps import NETWORK

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api


async def list_owned(api: "Api", cluster: ClusterIdentity) -> Sequence[OwnedObject]:
    """List load balancers, target groups and security groups with the cluster's mark.

    Raises:
        CloudError: AWS does not answer, or something went away meanwhile.
    """
    classic, network, targets, groups = await asyncio.gather(
        api.pages("elb", "DescribeLoadBalancers", "LoadBalancerDescriptions"),
        api.pages("elbv2", "DescribeLoadBalancers", "LoadBalancers"),
        api.pages("elbv2", "DescribeTargetGroups", "TargetGroups"),
        api.pages(
            "ec2",
            "DescribeSecurityGroups",
            "SecurityGroups",
            Filters=[{"Name": f"tag:{MARK_CLUSTER_UID}", "Values": [cluster.uid]}],
        ),
    )
    names = [one["LoadBalancerName"] for one in classic]
    arns = [one["LoadBalancerArn"] for one in network if one["Type"] == NETWORK]
    target_arns = [target["TargetGroupArn"] for target in targets]
    by_name, by_arn = await asyncio.gather(
        tags_by_name(api, names), tags_by_arn(api, [*arns, *target_arns])
    )
    parts = [
        *(("load balancer", name, by_name.get(name, {})) for name in names),
        *(("load balancer", arn, by_arn.get(arn, {})) for arn in arns),
        *(("target group", arn, by_arn.get(arn, {})) for arn in target_arns),
        *(("security group", group["GroupId"], tags_of(group)) for group in groups),
    ]
    return [
        owned_object(kind, id_, tags)
        for kind, id_, tags in parts
        if tags.get(MARK_CLUSTER_UID) == cluster.uid
    ]
