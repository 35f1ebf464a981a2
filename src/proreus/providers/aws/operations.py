"""The table of all operations of AWS that the provider may call; others are not sent.

The IAM policy in `deploy/aws` is made from it (`tools/aws_policy.py`).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Use(StrEnum):
    """The purpose of operations; a statement of the IAM policy each, except `ROLE`."""

    LOOK = "Look"
    """Read what there is."""
    MAKE = "MakeLoadBalancers"
    """Make parts of load balancers that have tags from the start."""
    CHANGE = "ChangeLoadBalancers"
    """Change or delete parts that have the tag of a Service."""
    LISTEN = "Listeners"
    """Listeners of network load balancers; older official ones have no tags."""
    GROUPS = "SecurityGroups"
    """Rules in the groups of nodes, and the groups that load balancers have."""
    NEW_GROUP = "NewSecurityGroups"
    """The same groups, for which the network has to be named."""
    ROUTES = "Routes"
    """Routes to nodes, and the check in their interfaces that would stop what is routed."""
    MACHINE_TAGS = "TagMachines"
    """Tag machines and volumes, as [Tagging] in the cloud-config asks."""
    ROLE = "Role"
    """Before anything else, as another identity: RoleARN in the cloud-config."""


OPERATIONS: Final[Mapping[Use, frozenset[str]]] = {
    use: frozenset(names.split())
    for use, names in {
        Use.LOOK: """
            ec2.DescribeAddresses ec2.DescribeAvailabilityZones ec2.DescribeInstanceTopology
            ec2.DescribeInstances ec2.DescribeNetworkInterfaces ec2.DescribeRouteTables
            ec2.DescribeSecurityGroups ec2.DescribeSubnets ec2.DescribeVolumes
            elb.DescribeLoadBalancerAttributes elb.DescribeLoadBalancerPolicies
            elb.DescribeLoadBalancers elb.DescribeTags
            elbv2.DescribeListeners elbv2.DescribeLoadBalancerAttributes
            elbv2.DescribeLoadBalancers elbv2.DescribeTags elbv2.DescribeTargetGroupAttributes
            elbv2.DescribeTargetGroups elbv2.DescribeTargetHealth
        """,
        Use.MAKE: "elb.CreateLoadBalancer elbv2.CreateLoadBalancer elbv2.CreateTargetGroup",
        Use.CHANGE: """
            elb.AddTags elb.ApplySecurityGroupsToLoadBalancer elb.AttachLoadBalancerToSubnets
            elb.ConfigureHealthCheck elb.CreateLoadBalancerListeners elb.CreateLoadBalancerPolicy
            elb.DeleteLoadBalancer elb.DeleteLoadBalancerListeners
            elb.DeregisterInstancesFromLoadBalancer elb.DetachLoadBalancerFromSubnets
            elb.ModifyLoadBalancerAttributes elb.RegisterInstancesWithLoadBalancer
            elb.SetLoadBalancerListenerSSLCertificate elb.SetLoadBalancerPoliciesForBackendServer
            elb.SetLoadBalancerPoliciesOfListener
            elbv2.AddTags elbv2.DeleteLoadBalancer elbv2.DeleteTargetGroup elbv2.DeregisterTargets
            elbv2.ModifyLoadBalancerAttributes elbv2.ModifyTargetGroup
            elbv2.ModifyTargetGroupAttributes elbv2.RegisterTargets elbv2.SetIpAddressType
            elbv2.SetSecurityGroups elbv2.SetSubnets
        """,
        Use.LISTEN: "elbv2.CreateListener elbv2.DeleteListener elbv2.ModifyListener",
        Use.GROUPS: """
            ec2.AuthorizeSecurityGroupIngress ec2.CreateTags ec2.DeleteSecurityGroup
            ec2.RevokeSecurityGroupIngress ec2.UpdateSecurityGroupRuleDescriptionsIngress
        """,
        Use.NEW_GROUP: "ec2.CreateSecurityGroup",
        Use.ROUTES: """
            ec2.CreateRoute ec2.DeleteRoute ec2.ModifyInstanceAttribute
            ec2.ModifyNetworkInterfaceAttribute ec2.ReplaceRoute
        """,
        Use.MACHINE_TAGS: "ec2.CreateTags ec2.DeleteTags",
        Use.ROLE: "sts.AssumeRole",
    }.items()
}
"""Operations by what they are for."""

ALL: Final = frozenset[str]().union(*OPERATIONS.values())
"""All operations that may be called."""
