"""Build Nodes and Services for tests: as objects of the manager, and as JSON of the API server.

Fields are given by name, whichever part of the object they are in:

    node("n1", "sim://n1", addresses=["10.0.0.1"], labels={"zone": "a"}, unschedulable=True)
    service(external_traffic_policy="Local", annotations={"a": "b"}, ingress=["192.0.2.1"])
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from proreus.kube.objects import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    Node,
    NodeAddress,
    NodeSystemInfo,
    Service,
    ServicePort,
)

_Object = TypeVar("_Object", Node, Service)
_PARTS: Final = ("metadata", "spec", "status")


def node(
    name: str = "node-1",
    provider_id: str = "",
    *,
    addresses: Iterable[str | NodeAddress] = (),
    system_uuid: str = "",
    **fields: Any,
) -> Node:
    """Build a Node; it has a uid, but no labels, conditions, taints or CIDRs unless they are given.

    Args:
        name: Its name; the uid is `uid-NAME` unless the fields have another.
        provider_id: Its provider id; by default the cloud has not been asked about it.
        addresses: The addresses; a plain text is an InternalIP.
        system_uuid: The field `status.nodeInfo.systemUUID`.
        fields: Fields of `ObjectMeta`, `NodeSpec` and `NodeStatus`. `pod_cidr` is the first of
            `pod_cidrs` unless it is given.

    Raises:
        TypeError: A field is given that objects of this kind do not have.
    """
    cidrs = tuple(fields.get("pod_cidrs", ()))
    given = {
        "uid": f"uid-{name}",
        "addresses": tuple(
            address if isinstance(address, NodeAddress) else NodeAddress("InternalIP", address)
            for address in addresses
        ),
        "node_info": NodeSystemInfo(system_uuid),
        "pod_cidr": cidrs[0] if cidrs else "",
        **fields,
    }
    return changed(Node(), name=name, provider_id=provider_id, **given)


def service(
    name: str = "web", *, ingress: Iterable[str | LoadBalancerIngress] = (), **fields: Any
) -> Service:
    """Build a Service of type LoadBalancer in the namespace `default`, with port 80.

    Args:
        name: Its name; the uid is `uid-NAME` unless the fields have another.
        ingress: Its load balancer's addresses; a plain text is an IP address.
        fields: Fields of `ObjectMeta`, `ServiceSpec` and `ServiceStatus`.

    Raises:
        TypeError: A field is given that objects of this kind do not have.
    """
    points = tuple(
        one if isinstance(one, LoadBalancerIngress) else LoadBalancerIngress(ip=one)
        for one in ingress
    )
    given = {
        "namespace": "default",
        "uid": f"uid-{name}",
        "type": "LoadBalancer",
        "ports": (ServicePort(80, node_port=30080),),
        "load_balancer": LoadBalancerStatus(points),
        **fields,
    }
    return changed(Service(), name=name, **given)


def service_body(
    name: str = "web", *, metadata: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """Build a Service of type LoadBalancer on port 80, as JSON to create it with.

    Args:
        name: Its name.
        metadata: Further fields of `metadata`.
        spec: Fields of `spec` as the Kubernetes API calls them, which replace or extend the default
            ones.
    """
    given = {"type": "LoadBalancer", "ports": [{"name": "http", "port": 80}], **spec}
    return {"metadata": {"name": name, **(metadata or {})}, "spec": given}


def changed(one: _Object, **fields: Any) -> _Object:
    """Copy an object with other values of these fields, whichever part of it they are in.

    Raises:
        TypeError: A field is given that objects of this kind do not have.
    """
    parts = {name: getattr(one, name) for name in _PARTS}
    known = {field: name for name, part in parts.items() for field in part.__struct_fields__}
    if unknown := fields.keys() - known.keys():
        raise TypeError(f"{type(one).__name__} has no field {', '.join(sorted(unknown))}")
    for name, part in parts.items():
        own = {field: value for field, value in fields.items() if known[field] == name}
        parts[name] = replace(part, **own)
    return replace(one, **parts)
