"""The table of all commands of CloudStack that the provider may call; others are not sent.

The rules of a role in `deploy/cloudstack` are made from it (`tools/cloudstack_role.py`).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Use(StrEnum):
    """The purpose of commands: what a role lacks without them."""

    MACHINES = "machines of Nodes, and jobs"
    BALANCERS = "load balancers of Services"
    ROUTES = "routes to pods ([Route] in the cloud-config)"
    VOLUMES = "labels of volumes"


COMMANDS: Final[Mapping[Use, frozenset[str]]] = {
    use: frozenset(names.split())
    for use, names in {
        Use.MACHINES: "listCapabilities listVirtualMachines queryAsyncJobResult",
        Use.BALANCERS: """
            listFirewallRules listLBStickinessPolicies listLoadBalancerRuleInstances
            listLoadBalancerRules listNetworkACLs listNetworks listPublicIpAddresses listTags
            assignToLoadBalancerRule associateIpAddress createFirewallRule createLoadBalancerRule
            createLBStickinessPolicy createNetworkACL createTags deleteFirewallRule
            deleteLBStickinessPolicy deleteLoadBalancerRule deleteNetworkACL deleteTags
            disassociateIpAddress removeFromLoadBalancerRule updateLoadBalancerRule
        """,
        Use.ROUTES: "createStaticRoute deleteStaticRoute listStaticRoutes",
        Use.VOLUMES: "listVolumes",
    }.items()
}
"""Commands by what they are for."""

ALL: Final = frozenset[str]().union(*COMMANDS.values())
"""All of them."""
