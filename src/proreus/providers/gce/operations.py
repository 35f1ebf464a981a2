"""The operations of the Compute API that the provider calls, and the permissions that each needs.

What is not in this table cannot be called, so the role of the account follows from it
(`tools/gce_role.py`). Permissions are as Google's reference of the methods has them; those for what
a request refers to are with the method that refers.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

_NETWORK: Final = "networks.updatePolicy"
_INSTANCE: Final = "instances.use"


class Operation(msgspec.Struct, frozen=True):
    """A method of the API.

    Attributes:
        method: The HTTP method.
        permissions: The permissions of IAM, without `compute.` in front.
        quota: The group of calls that the quota counts together.
    """

    method: str
    permissions: tuple[str, ...]
    quota: str = "queries"


OPERATIONS: Final = {
    "addresses.delete": Operation("DELETE", ("addresses.delete",)),
    "addresses.get": Operation("GET", ("addresses.get",)),
    "addresses.insert": Operation("POST", ("addresses.create", "subnetworks.use")),
    "addresses.list": Operation("GET", ("addresses.list",), "lists"),
    "disks.get": Operation("GET", ("disks.get",)),
    "firewalls.delete": Operation("DELETE", ("firewalls.delete", _NETWORK)),
    "firewalls.get": Operation("GET", ("firewalls.get",)),
    "firewalls.insert": Operation("POST", ("firewalls.create", _NETWORK)),
    "firewalls.patch": Operation("PATCH", ("firewalls.update", _NETWORK)),
    "forwardingRules.delete": Operation("DELETE", ("forwardingRules.delete",)),
    "forwardingRules.get": Operation("GET", ("forwardingRules.get",)),
    "forwardingRules.insert": Operation(
        "POST",
        (
            *("forwardingRules.create", "addresses.use", "regionBackendServices.use"),
            *("subnetworks.use", "targetPools.use"),
        ),
    ),
    "forwardingRules.list": Operation("GET", ("forwardingRules.list",), "lists"),
    "forwardingRules.setLabels": Operation("POST", ("forwardingRules.setLabels",)),
    "globalOperations.wait": Operation("POST", ("globalOperations.get",), "operations"),
    "healthChecks.delete": Operation("DELETE", ("healthChecks.delete",)),
    "healthChecks.get": Operation("GET", ("healthChecks.get",)),
    "healthChecks.insert": Operation("POST", ("healthChecks.create",)),
    "healthChecks.update": Operation("PUT", ("healthChecks.update",)),
    "httpHealthChecks.delete": Operation("DELETE", ("httpHealthChecks.delete",)),
    "httpHealthChecks.get": Operation("GET", ("httpHealthChecks.get",)),
    "httpHealthChecks.insert": Operation("POST", ("httpHealthChecks.create",)),
    "httpHealthChecks.update": Operation("PUT", ("httpHealthChecks.update",)),
    "instanceGroups.addInstances": Operation("POST", ("instanceGroups.update", _INSTANCE)),
    "instanceGroups.aggregatedList": Operation("GET", ("instanceGroups.list",), "lists"),
    "instanceGroups.delete": Operation("DELETE", ("instanceGroups.delete",)),
    "instanceGroups.insert": Operation("POST", ("instanceGroups.create",)),
    "instanceGroups.listInstances": Operation("POST", ("instanceGroups.list",), "lists"),
    "instanceGroups.removeInstances": Operation("POST", ("instanceGroups.update",)),
    "instances.aggregatedList": Operation("GET", ("instances.list",), "lists"),
    "instances.get": Operation("GET", ("instances.get",)),
    "instances.updateNetworkInterface": Operation(
        "PATCH", ("instances.updateNetworkInterface", "subnetworks.use")
    ),
    "networkEndpointGroups.aggregatedList": Operation(
        "GET", ("networkEndpointGroups.list",), "lists"
    ),
    "networkEndpointGroups.attachNetworkEndpoints": Operation(
        "POST", ("networkEndpointGroups.attachNetworkEndpoints", _INSTANCE)
    ),
    "networkEndpointGroups.delete": Operation("DELETE", ("networkEndpointGroups.delete",)),
    "networkEndpointGroups.detachNetworkEndpoints": Operation(
        "POST", ("networkEndpointGroups.detachNetworkEndpoints", _INSTANCE)
    ),
    "networkEndpointGroups.insert": Operation(
        "POST", ("networkEndpointGroups.create", "networks.use", "subnetworks.use")
    ),
    "networkEndpointGroups.listNetworkEndpoints": Operation(
        "POST", ("networkEndpointGroups.get", "networkEndpointGroups.list"), "lists"
    ),
    "networks.get": Operation("GET", ("networks.get",)),
    "projects.get": Operation("GET", ("projects.get",)),
    "projects.setCommonInstanceMetadata": Operation(
        "POST", ("projects.setCommonInstanceMetadata",)
    ),
    "regionBackendServices.delete": Operation("DELETE", ("regionBackendServices.delete",)),
    "regionBackendServices.get": Operation("GET", ("regionBackendServices.get",)),
    "regionBackendServices.insert": Operation(
        "POST",
        (
            *("regionBackendServices.create", "healthChecks.useReadOnly"),
            *("instanceGroups.use", "networkEndpointGroups.use"),
            "regionHealthChecks.useReadOnly",
        ),
    ),
    "regionBackendServices.update": Operation(
        "PUT",
        (
            *("regionBackendServices.update", "healthChecks.useReadOnly"),
            *("instanceGroups.use", "networkEndpointGroups.use"),
            "regionHealthChecks.useReadOnly",
        ),
    ),
    "regionDisks.get": Operation("GET", ("disks.get",)),
    "regionHealthChecks.delete": Operation("DELETE", ("regionHealthChecks.delete",)),
    "regionHealthChecks.get": Operation("GET", ("regionHealthChecks.get",)),
    "regionHealthChecks.insert": Operation("POST", ("regionHealthChecks.create",)),
    "regionHealthChecks.update": Operation("PUT", ("regionHealthChecks.update",)),
    "regionOperations.wait": Operation("POST", ("regionOperations.get",), "operations"),
    "routes.get": Operation("GET", ("routes.get",)),
    "routes.delete": Operation("DELETE", ("routes.delete", _NETWORK)),
    "routes.insert": Operation("POST", ("routes.create", _NETWORK, _INSTANCE)),
    "routes.list": Operation("GET", ("routes.list",), "lists"),
    "subnetworks.list": Operation("GET", ("subnetworks.list",), "lists"),
    "targetPools.addHealthCheck": Operation(
        "POST", ("targetPools.update", "httpHealthChecks.useReadOnly")
    ),
    "targetPools.addInstance": Operation("POST", ("targetPools.addInstance", _INSTANCE)),
    "targetPools.delete": Operation("DELETE", ("targetPools.delete",)),
    "targetPools.get": Operation("GET", ("targetPools.get",)),
    "targetPools.insert": Operation(
        "POST", ("targetPools.create", "httpHealthChecks.useReadOnly", _INSTANCE)
    ),
    "targetPools.removeHealthCheck": Operation(
        "POST", ("targetPools.update", "httpHealthChecks.useReadOnly")
    ),
    "targetPools.removeInstance": Operation("POST", ("targetPools.removeInstance", _INSTANCE)),
    "zoneOperations.wait": Operation("POST", ("zoneOperations.get",), "operations"),
    "zones.list": Operation("GET", ("zones.list",), "lists"),
}
"""The methods by their names; a name that is not here is not called."""

READS: Final = frozenset(
    {"instanceGroups.listInstances", "networkEndpointGroups.listNetworkEndpoints"}
)
"""Methods that change nothing although they are sent with POST."""


def permissions(operations: Iterable[str] = OPERATIONS) -> tuple[str, ...]:
    """Return the permissions of IAM that these methods need, in their order."""
    found = {one for name in operations for one in OPERATIONS[name].permissions}
    return tuple(f"compute.{one}" for one in sorted(found))
