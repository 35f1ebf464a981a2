"""What must hold at every moment of a history, and what must hold once all is at rest.

Written from what the API server and the cloud hold, and from nothing that the manager knows.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from proreus.cloudprovider.identity import MARK_CLUSTER_UID, MARK_SERVICE_UID
from proreus.kube.objects import (
    FINALIZER_LOAD_BALANCER,
    LABEL_EXCLUDE_LB,
    LABEL_REGION,
    LABEL_ZONE,
    TAINT_AUTOSCALER,
    TAINT_UNINITIALIZED,
)
from proreus.kube.requests import NAMESPACES, NODES, SERVICES, Resource
from proreus.testing.memory import Store
from proreus.testing.memory.store import Change
from proreus.testing.simulated.cloud import Cloud
from proreus.testing.simulated.model import (
    AddressPart,
    AnyPart,
    Firewall,
    Instance,
    Listener,
    LoadBalancer,
    Route,
)

Object = Mapping[str, Any]
PREFIX: Final = "simulated://sim-1/"
THEIRS: Final = "example.com/"


class Unkept(msgspec.Struct, frozen=True):
    """Something that is not as it should be, and the objects that show it."""

    text: str
    objects: tuple[object, ...] = ()


def report(unkept: Iterable[Unkept]) -> str:
    """What is not as it should be, and below it each object as JSON."""
    lines: list[str] = []
    for one in unkept:
        shown = (msgspec.json.encode(thing).decode() for thing in one.objects)
        lines += [one.text, *(f"    {text}" for text in shown)]
    return "\n".join(dict.fromkeys(lines))


class Promises:
    """Watches a store and a cloud; `broken` are the promises that were broken."""

    def __init__(self, store: Store, cloud: Cloud) -> None:
        self.broken: list[str] = []
        self.deleted_nodes = 0
        self._store = store
        self._cloud = cloud
        self._seen = {"nodes": 0, "services": 0}
        self._others = False
        self._cluster = store.get(NAMESPACES, "", "kube-system").body["metadata"]["uid"]
        self._theirs: list[AnyPart] = []

    def begin(self) -> None:
        """Watch from now on; what is in the cloud is somebody else's."""
        self._theirs = list(self._cloud.parts.all())
        self._seen = dict.fromkeys(self._seen, self._store.version)
        self._store.subscribe("nodes", lambda: self._follow(NODES))
        self._store.subscribe("services", lambda: self._follow(SERVICES))

    def forget(self) -> None:
        """Let the store forget all history: what it holds has been judged."""
        self._store.forget()
        self._seen = dict.fromkeys(self._seen, self._store.version)

    @contextlib.contextmanager
    def by_others(self) -> Iterator[None]:
        """What is written to the store within is not the manager's doing.

        The manager does not come to its turn within, but for the time of calls to the cloud's
        admin API, in which it could only be taken for another.
        """
        self._others = True
        try:
            yield
        finally:
            self._others = False

    def is_ours(self, part: AnyPart) -> bool:
        """Whether it carries this cluster's mark."""
        return bool(part.tags.get(MARK_CLUSTER_UID) == self._cluster)

    # At every moment

    def check(self) -> None:
        """Look at the cloud."""
        parts = self._cloud.parts.all()
        have = [one for one in parts if not self.is_ours(one)]
        if have != self._theirs:
            self.broken.append(f"parts of others were touched: {have}")
        balancers = Counter(
            one.tags.get(MARK_SERVICE_UID) for one in parts if isinstance(one, LoadBalancer)
        )
        self.broken += [f"{n} load balancers of {uid}" for uid, n in balancers.items() if n > 1]

    def _follow(self, resource: Resource[Any]) -> None:
        try:
            changes = self._store.changes(resource, self._seen[resource.plural])
        finally:
            self._seen[resource.plural] = self._store.version
        for change in changes:
            judge = self._judge_node if resource is NODES else self._judge_service
            self.broken += [f"{_name(change.last.body)}: {text}" for text in judge(change)]

    def _judge_node(self, change: Change) -> Iterator[str]:
        old = change.old.body if change.old else None
        new = change.new.body if change.new else None
        if new is not None:
            yield from self._judge_cidrs(new)
        if self._others or old is None:
            return
        if new is None:
            self.deleted_nodes += 1
            yield from self._judge_deletion(old)
            return
        for what in ("labels", "annotations"):
            if _of_others(old["metadata"].get(what, {})) != _of_others(
                new["metadata"].get(what, {})
            ):
                yield f"the {what} of others were changed"
        if [one for one in _taints(old) if one in _untouchable(old)] != [
            one for one in _taints(new) if one in _untouchable(old)
        ]:
            yield "a taint of others was changed"
        if _ready(old) != _ready(new):
            yield "its Ready condition was changed"
        if TAINT_UNINITIALIZED in _taints(old) and TAINT_UNINITIALIZED not in _taints(new):
            yield from self._judge_initialised(new)

    def _judge_deletion(self, node: Object) -> Iterator[str]:
        if _ready(node) == "True":
            yield "was deleted while it is Ready"
        machine = self._machine(node)
        if machine is not None and machine.state != "terminated":
            yield f"was deleted although its machine is {machine.state}"
        if not _provider_id(node).startswith(PREFIX):
            yield f"was deleted although it is not ours: {_provider_id(node)!r}"

    def _judge_initialised(self, node: Object) -> Iterator[str]:
        machine = self._machine(node)
        labels = node["metadata"].get("labels", {})
        if not _provider_id(node):
            yield "was initialised without a provider id"
        elif machine is not None:
            if machine.name != _name(node):
                yield f"has the provider id of {machine.name}"
            if (labels.get(LABEL_ZONE), labels.get(LABEL_REGION)) != (machine.zone, "sim-1"):
                yield f"was initialised with the labels {labels}"

    def _judge_cidrs(self, node: Object) -> Iterator[str]:
        mine = set(node["spec"].get("podCIDRs", ()))
        for other in self._all(NODES):
            if _name(other) != _name(node) and mine & set(other["spec"].get("podCIDRs", ())):
                yield f"has a pod CIDR of {_name(other)}"

    def _judge_service(self, change: Change) -> Iterator[str]:
        old = change.old.body if change.old else None
        new = change.new.body if change.new else change.last.body
        if self._others or old is None:
            return
        if old["spec"] != new["spec"]:
            yield "its spec was changed"
        before, after = (set(one["metadata"].get("finalizers", ())) for one in (old, new))
        gone, ours = before - after, {FINALIZER_LOAD_BALANCER}
        if gone - ours:
            yield f"the finalizers {gone - ours} of others were removed"
        if gone & ours and (left := self._parts_of(old)):
            yield f"its finalizer was removed, but there is {left}"

    # At rest

    def unkept(self) -> list[Unkept]:
        """What is not yet as it should be."""
        nodes, services = self._all(NODES), self._all(SERVICES)
        found: list[Unkept] = []
        for machine in self._cloud.machines.all():
            if machine.state == "running" and machine.name != "theirs":
                its = tuple(one for one in nodes if _name(one) == machine.name)
                found += [Unkept(text, (machine, *its)) for text in self._node_of(machine, its)]
        for node in nodes:
            if _provider_id(node).startswith(PREFIX) and self._machine(node) is None:
                found.append(Unkept(f"node {_name(node)} has no machine any more", (node,)))
        for service in services:
            parts = map(self._cloud.view, self._parts_of(service))
            about = (service, *parts)
            for text in self._service(service):
                found.append(Unkept(f"service {_name(service)}: {text}", about))
        uids = {service["metadata"]["uid"] for service in services}
        for part in self._cloud.parts.all():
            is_route = isinstance(part, Route)
            if self.is_ours(part) and not is_route and part.tags[MARK_SERVICE_UID] not in uids:
                view = self._cloud.view(part)
                found.append(Unkept(f"{part.id} is left of a Service that is gone", (view,)))
        routes = [one for one in self._cloud.parts.all() if isinstance(one, Route)]
        return found + [Unkept(text, (*nodes, *routes)) for text in self._routes()]

    def _node_of(self, machine: Instance, nodes: Iterable[Object]) -> Iterator[str]:
        if not nodes:
            yield f"{machine.name} has no Node"
        for node in nodes:
            conditions = {one["type"]: one["status"] for one in node["status"]["conditions"]}
            addresses = [(one["type"], one["address"]) for one in node["status"]["addresses"]]
            wishes = {
                "provider id": (_provider_id(node), PREFIX + machine.id),
                "initialised": (TAINT_UNINITIALIZED in _taints(node), False),
                "condition": (conditions.get("CloudInitialized"), "True"),
                "network": (conditions.get("NetworkUnavailable"), "False"),
                "addresses": (
                    sorted(addresses),
                    sorted((one.type, one.address) for one in machine.addresses),
                ),
                "type": (
                    node["metadata"]["labels"].get("node.kubernetes.io/instance-type"),
                    "sim.large",
                ),
                "pod CIDRs": (len(node["spec"].get("podCIDRs", ())), 1),
            }
            for what, (has, wanted) in wishes.items():
                if has != wanted:
                    yield f"node {machine.name}: {what} is {has}, not {wanted}"

    def _service(self, service: Object) -> Iterator[str]:
        spec, meta = service["spec"], service["metadata"]
        parts = self._parts_of(service)
        is_wanted = spec["type"] == "LoadBalancer" and "loadBalancerClass" not in spec
        if not is_wanted or "deletionTimestamp" in meta:
            if parts:
                yield f"there is {[one.id for one in parts]}, but nothing is wanted"
            if FINALIZER_LOAD_BALANCER in meta.get("finalizers", ()):
                yield "it still has the finalizer"
            if service["status"]["loadBalancer"].get("ingress") and "deletionTimestamp" not in meta:
                yield "it still has an address"
        elif "not a network" in spec.get("loadBalancerSourceRanges", ()):
            said = [one["reason"] for one in service["status"].get("conditions", ())]
            if said != ["InvalidRequest"]:
                yield f"asks for something impossible, and is told {said}"
        else:
            if FINALIZER_LOAD_BALANCER not in meta.get("finalizers", ()):
                yield "it has no finalizer"
            yield from self._balancer(service, parts)

    def _balancer(self, service: Object, parts: Iterable[AnyPart]) -> Iterator[str]:
        kinds = Counter(type(one).__name__ for one in parts)
        spec = service["spec"]
        wanted = {
            "AddressPart": 1,
            "LoadBalancer": 1,
            "Firewall": 1,
            "Listener": len(spec["ports"]),
        }
        if kinds != wanted:
            yield f"has {dict(kinds)}"
            return
        health = {"port": spec.get("healthCheckNodePort", 10256), "path": "/healthz"}
        ports = {(one["protocol"], one["port"], one["nodePort"]) for one in spec["ports"]}
        listeners = set()
        for part in parts:
            if isinstance(part, Listener):
                listeners.add((part.protocol, part.port, part.target_port))
            elif isinstance(part, AddressPart):
                shown = [
                    one.get("ip") for one in service["status"]["loadBalancer"].get("ingress", ())
                ]
                if shown != [part.address]:
                    yield f"shows {shown}, not {part.address}"
            elif isinstance(part, Firewall):
                ranges = spec.get("loadBalancerSourceRanges", ["0.0.0.0/0"])
                if sorted(part.source_ranges) != sorted(ranges):
                    yield f"lets in {part.source_ranges}, not {ranges}"
            elif isinstance(part, LoadBalancer):
                if msgspec.to_builtins(part.health_check) != health:
                    yield f"has the health check {part.health_check}, not {health}"
                if (part.affinity_seconds is None) != (spec["sessionAffinity"] == "None"):
                    yield f"has affinity {part.affinity_seconds}"
                targets, hosts = {one.instance_id for one in part.targets}, self._hosts()
                if targets != hosts:
                    yield f"has the targets {targets}, not {hosts}"
        if listeners != ports:
            yield f"listens on {listeners}, not {ports}"

    def _hosts(self) -> set[str]:
        return {
            _provider_id(node).removeprefix(PREFIX)
            for node in self._all(NODES)
            if _provider_id(node).startswith(PREFIX)
            and TAINT_AUTOSCALER not in _taints(node)
            and LABEL_EXCLUDE_LB not in node["metadata"].get("labels", {})
        }

    def _routes(self) -> Iterator[str]:
        """The table, but for what stays because too little is known.

        That is routes to blocks of nodes that have no provider id yet, and all without any node.
        """
        if not self._all(NODES):
            return
        undecided = {
            cidr
            for node in self._all(NODES)
            if not _provider_id(node)
            for cidr in node["spec"].get("podCIDRs", ())
        }
        wanted = {
            (cidr, _provider_id(node).removeprefix(PREFIX))
            for node in self._all(NODES)
            if _provider_id(node).startswith(PREFIX)
            for cidr in node["spec"].get("podCIDRs", ())
        }
        have = Counter(
            (one.destination, one.instance_id)
            for one in self._cloud.parts.all()
            if isinstance(one, Route) and self.is_ours(one) and one.destination not in undecided
        )
        if have != Counter(wanted):
            yield f"routes: {dict(have)}, not {wanted}"

    # Within

    def _all(self, resource: Resource[Any]) -> list[Object]:
        page = self._store.first_page(resource, "", lambda _: True, 0)
        return [stored.body for stored in page.items]

    def _parts_of(self, service: Object) -> list[AnyPart]:
        uid = service["metadata"]["uid"]
        return [one for one in self._cloud.parts.all() if one.tags.get(MARK_SERVICE_UID) == uid]

    def _machine(self, node: Object) -> Instance | None:
        return self._cloud.machines.find(_provider_id(node).removeprefix(PREFIX))


def _name(body: Object) -> str:
    return str(body["metadata"]["name"])


def _provider_id(node: Object) -> str:
    return str(node["spec"].get("providerID", ""))


def _taints(node: Object) -> list[str]:
    return [one["key"] for one in node["spec"].get("taints", ())]


def _untouchable(node: Object) -> set[str]:
    return {key for key in _taints(node) if "cloudprovider.kubernetes.io" not in key}


def _ready(node: Object) -> str:
    found = (one["status"] for one in node["status"]["conditions"] if one["type"] == "Ready")
    return next(found, "")


def _of_others(found: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in found.items() if key.startswith(THEIRS)}
