"""Do what the API server does to objects: defaults, validation, limits of subresources."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from proreus.kube.requests import (
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUMES,
    PODS,
    SECRETS,
    SERVICES,
    Resource,
)

Object = dict[str, Any]

RESOURCES: Final[Mapping[tuple[str, str, str], Resource[Any]]] = {
    (one.group, one.version, one.plural): one
    for one in (
        NODES,
        SERVICES,
        ENDPOINT_SLICES,
        SECRETS,
        CONFIG_MAPS,
        NAMESPACES,
        EVENTS,
        LEASES,
        PERSISTENT_VOLUMES,
        PODS,
    )
}
WITH_STATUS: Final = frozenset({"nodes", "services", "namespaces", "pods"})
FIRST_NODE_PORT: Final = 30000
NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}

_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


class Fault(msgspec.Struct, frozen=True):
    """A mistake in an object; `reason` is the API's CauseType."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class Ports:
    """A store of node ports and cluster addresses that gives each out once."""

    def __init__(self) -> None:
        """Begin with nothing taken."""
        self._ports: Iterator[int] = itertools.count(FIRST_NODE_PORT)
        self._addresses: Iterator[int] = itertools.count(1)

    def node_port(self) -> int:
        """Return a free node port."""
        return next(self._ports)

    def address(self) -> str:
        """Return a free cluster IP."""
        number = next(self._addresses)
        return f"10.{96 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def on_create(resource: Resource[Any], body: Object, ports: Ports) -> Object:
    """Return a new object with its defaults, and as admission leaves it."""
    body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    if resource is NODES:
        spec = dict(body.get("spec") or {})
        spec["taints"] = [*(spec.get("taints") or ()), NOT_READY]
        body["spec"] = spec
        body.setdefault("status", {})
    if resource is SERVICES:
        body["status"] = {"loadBalancer": {}}
        body["spec"] = _service_spec(dict(body.get("spec") or {}), {}, ports)
    return body


def on_update(
    resource: Resource[Any], old: Object, new: Object, ports: Ports, *, status: bool
) -> Object:
    """Return an object after an update by the main resource, or by `status`."""
    if resource.plural in WITH_STATUS:
        kept = "spec" if status else "status"
        new = {**new, kept: old[kept]} if kept in old else _without(new, kept)
    if resource is SERVICES:
        new["spec"] = _service_spec(dict(new.get("spec") or {}), old["spec"], ports)
        _default_ip_mode(new)
    meta = dict(new["metadata"])
    for name in ("creationTimestamp", "deletionTimestamp", "namespace", "name"):
        meta.pop(name, None)
        if name in old["metadata"]:
            meta[name] = old["metadata"][name]
    for name in ("labels", "annotations", "finalizers"):
        if name in meta and not meta[name]:
            del meta[name]
    new["metadata"] = meta
    if resource is NODES and not (new.get("spec") or {}).get("taints", True):
        new["spec"] = _without(new["spec"], "taints")
    return new


def _without(value: Object, key: str) -> Object:
    return {name: one for name, one in value.items() if name != key}


def _service_spec(spec: Object, old: Object, ports: Ports) -> Object:
    """Return the spec of a Service with what the API server fills in."""
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    families = ["IPv4"] if spec["ipFamilyPolicy"] == "SingleStack" else ["IPv4", "IPv6"]
    spec.setdefault("ipFamilies", families)
    spec.setdefault("clusterIP", old.get("clusterIP") or ports.address())
    outside = spec["type"] in {"LoadBalancer", "NodePort"}
    by_name = {one.get("name", ""): one for one in old.get("ports") or ()}
    filled = []
    for port in spec.get("ports") or ():
        port = {"protocol": "TCP", "targetPort": port.get("port"), **port}
        if outside and spec.get("allocateLoadBalancerNodePorts", True) and not port.get("nodePort"):
            known = by_name.get(port.get("name", ""), {}).get("nodePort")
            port["nodePort"] = known or ports.node_port()
        filled.append(port if outside else _without(port, "nodePort"))
    spec["ports"] = filled
    if outside:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    local = spec["type"] == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"
    if local and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = old.get("healthCheckNodePort") or ports.node_port()
    return spec if local else _without(spec, "healthCheckNodePort")


def _default_ip_mode(service: Object) -> None:
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    for point in balancer.get("ingress") or ():
        if point.get("ip"):
            point.setdefault("ipMode", "VIP")


def faults(resource: Resource[Any], old: Object | None, new: Object) -> list[Fault]:
    """Return the mistakes in an object that is to be written."""
    found = list(_meta_faults(old, new))
    check = _CHECKS.get(resource.plural)
    return found + (list(check(old, new)) if check is not None else [])


def _meta_faults(old: Object | None, new: Object) -> Iterator[Fault]:
    meta = new["metadata"]
    if not _NAME.fullmatch(meta.get("name", "")):
        yield Fault("metadata.name", "must be a DNS subdomain")
    if old is not None and meta.get("uid") != old["metadata"]["uid"]:
        yield Fault("metadata.uid", "field is immutable")
    for key, value in (meta.get("labels") or {}).items():
        if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
            yield Fault("metadata.labels", f"{key}: {value!r} is no valid label value")


def _node_faults(old: Object | None, new: Object) -> Iterator[Fault]:
    spec = new.get("spec") or {}
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(spec.get("taints") or ()):
        identity = (taint.get("key", ""), taint.get("effect", ""))
        if identity in seen:
            where = f"metadata.taints[{index}]"
            yield Fault(where, "taints must be unique by key and effect", "FieldValueDuplicate")
        seen.add(identity)
    before = (old or {}).get("spec") or {}
    for name in ("providerID", "podCIDRs"):
        if before.get(name) and spec.get(name) != before[name]:
            yield Fault(f"spec.{name}", "may not be changed once it is set", "FieldValueForbidden")


_CHECKS: Final[Mapping[str, Callable[[Object | None, Object], Iterator[Fault]]]] = {
    "nodes": _node_faults
}
