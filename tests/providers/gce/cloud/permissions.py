"""Which permissions of IAM a method needs, by Google's reference of the methods."""

from typing import Any, Final

from .errors import ApiError
from .spec import Method

_VERBS: Final = {
    "aggregatedList": "list",
    "insert": "create",
    "patch": "update",
    "listInstances": "list",
    "listNetworkEndpoints": "list",
    "wait": "get",
}
_COLLECTIONS: Final = {"regionBackendServices": "regionBackendServices", "regionDisks": "disks"}
_MORE: Final = {
    "compute.firewalls.insert": ("compute.networks.updatePolicy",),
    "compute.firewalls.delete": ("compute.networks.updatePolicy",),
    "compute.firewalls.patch": ("compute.networks.updatePolicy",),
    "compute.firewalls.update": ("compute.networks.updatePolicy",),
    "compute.routes.insert": ("compute.networks.updatePolicy", "compute.instances.use"),
    "compute.routes.delete": ("compute.networks.updatePolicy",),
    "compute.targetPools.addInstance": ("compute.instances.use",),
    "compute.targetPools.removeInstance": ("compute.instances.use",),
    "compute.targetPools.addHealthCheck": ("compute.httpHealthChecks.useReadOnly",),
    "compute.targetPools.removeHealthCheck": ("compute.httpHealthChecks.useReadOnly",),
    "compute.instanceGroups.addInstances": ("compute.instances.use",),
    "compute.instances.updateNetworkInterface": ("compute.subnetworks.use",),
    "compute.networkEndpointGroups.attachNetworkEndpoints": ("compute.instances.use",),
    "compute.networkEndpointGroups.detachNetworkEndpoints": ("compute.instances.use",),
    "compute.networkEndpointGroups.listNetworkEndpoints": ("compute.networkEndpointGroups.get",),
}
_EXACT: Final = {
    "compute.targetPools.addHealthCheck": "compute.targetPools.update",
    "compute.targetPools.removeHealthCheck": "compute.targetPools.update",
    "compute.instanceGroups.addInstances": "compute.instanceGroups.update",
    "compute.instanceGroups.removeInstances": "compute.instanceGroups.update",
    "compute.instanceGroups.listInstances": "compute.instanceGroups.list",
}
_ENDPOINTS: Final = "/networkEndpointGroups/"
_REFERENCES: Final = {
    ("forwardingRules", "target"): "compute.targetPools.use",
    ("forwardingRules", "backendService"): "compute.regionBackendServices.use",
    ("forwardingRules", "subnetwork"): "compute.subnetworks.use",
    ("forwardingRules", "IPAddress"): "compute.addresses.use",
    ("addresses", "subnetwork"): "compute.subnetworks.use",
    ("networkEndpointGroups", "network"): "compute.networks.use",
    ("networkEndpointGroups", "subnetwork"): "compute.subnetworks.use",
    ("addresses", "address"): "",
    ("targetPools", "instances"): "compute.instances.use",
    ("targetPools", "healthChecks"): "compute.httpHealthChecks.useReadOnly",
    ("regionBackendServices", "healthChecks"): "compute.healthChecks.useReadOnly",
    ("regionBackendServices", "backends"): "compute.instanceGroups.use",
}


def permissions(method: Method, body: Any) -> set[str]:
    """Those that a request needs."""
    collection = _COLLECTIONS.get(method.collection, method.collection)
    verb = _VERBS.get(method.verb, method.verb)
    needed = {_EXACT.get(method.id, f"compute.{collection}.{verb}"), *_MORE.get(method.id, ())}
    for field in body or {} if isinstance(body, dict) else {}:
        if field == "healthChecks" and any("/regions/" in one for one in body[field]):
            needed.add("compute.regionHealthChecks.useReadOnly")
        elif field == "backends" and any(_ENDPOINTS in one["group"] for one in body[field]):
            needed.add("compute.networkEndpointGroups.use")
        elif body[field] and method.verb in {"insert", "update", "patch"}:
            needed.add(_REFERENCES.get((method.collection, field), ""))
    return needed - {""}


def check_permission(granted: frozenset[str] | None, method: Method, body: Any) -> None:
    """Refuse what the account may not do."""
    for one in sorted(permissions(method, body)):
        if granted is not None and one not in granted:
            why = f"Required '{one}' permission for '{method.path}'"
            raise ApiError(403, "forbidden", why)
