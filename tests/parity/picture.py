"""What a script leaves behind, in words that are the same in every run. Pure.

A picture is flat: a field such as `node a/taint x:NoSchedule` and its value. It holds what differs
from the objects as the script wrote them, so that what nobody touched takes no room. Names lose
the script's prefix; ids, uids, addresses and ports are replaced by what they are; times and
versions are left out. Nothing else is.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from proreus.cloudprovider.names import default_load_balancer_name

Picture = Mapping[str, str]
REMOVED: Final = "(removed)"
STAGE: Final = "stage-"
"""Prefix of the machines that are no script's."""
CONTROLLERS: Final = frozenset(
    {
        "cloud-node-controller",
        "cloud-node-lifecycle-controller",
        "service-controller",
        "route_controller",
    }
)
"""Who records the events that count; the API server records some of its own."""


class Cast(msgspec.Struct):
    """The objects of a script, as far as it knows them.

    Attributes:
        name: The script's; the prefix of all names.
        machines: What a machine is called here, by id.
        written: The objects as they were created, by kind and name here.
        uids: Kind, name here and number (1 is the first of that name) of each object, by uid.
        cidrs: What pod CIDRs are called here.
        words: What else is called otherwise here.
    """

    name: str
    machines: dict[str, str] = {}
    written: dict[tuple[str, str], Mapping[str, Any]] = {}
    uids: dict[str, tuple[str, str, int]] = {}
    cidrs: dict[str, str] = {}
    words: dict[str, str] = {}

    def name_here(self, name: str) -> str | None:
        """An object's name without the prefix; None if it is of another script."""
        prefix = f"{self.name}-"
        return name.removeprefix(prefix) if name.startswith(prefix) else None


class Seen(msgspec.Struct, frozen=True):
    """All there is, as the API server and the cloud show it."""

    nodes: tuple[Mapping[str, Any], ...]
    services: tuple[Mapping[str, Any], ...]
    events: tuple[Mapping[str, Any], ...]
    machines: tuple[Mapping[str, Any], ...]
    parts: tuple[Mapping[str, Any], ...]


def picture(cast: Cast, seen: Seen) -> Picture:
    """The picture of one script."""
    words = _Words(_named(cast, seen))
    fields = {
        **dict(_objects(cast, "node", seen.nodes, _of_node)),
        **dict(_objects(cast, "service", seen.services, _of_service)),
        **dict(_events(cast, seen.events)),
        **dict(_load_balancers(cast, seen)),
        **dict(_routes(cast, seen)),
    }
    return {words.plain(key): words.plain(value) for key, value in sorted(fields.items())}


class _Words:
    """Replaces what differs from run to run."""

    def __init__(self, named: Mapping[str, str]) -> None:
        self._named = named
        longest_first = sorted(named, key=len, reverse=True)
        self._any = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, longest_first))})(?![\w])")

    def plain(self, text: str) -> str:
        return self._any.sub(lambda found: self._named[found[0]], text) if self._named else text


def _named(cast: Cast, seen: Seen) -> dict[str, str]:
    """What each id, uid, address and name is called."""
    named: dict[str, str] = {}
    for machine in seen.machines:
        if machine["name"].startswith(STAGE):
            named |= {
                one["address"]: f"<{one['type']} of {machine['name']}>"
                for one in machine["addresses"]
            }
    for obj in (*seen.nodes, *seen.services):
        here = cast.name_here(obj["metadata"]["name"])
        if here is not None:
            named[obj["metadata"]["name"]] = here
    for _, here in cast.written:
        named[f"{cast.name}-{here}"] = here
    named |= {id_: f"<{here}>" for id_, here in cast.machines.items()}
    for uid, (_, here, number) in cast.uids.items():
        named[uid] = f"<uid {number} of {here}>"
        for part in seen.parts:
            if part["kind"] == "address" and _is_of(part, uid):
                named[part["address"]] = f"<address {number} of {here}>"
    return {**named, **cast.words, **cast.cidrs}


def _is_of(part: Mapping[str, Any], uid: str) -> bool:
    return bool(part["name"].startswith(default_load_balancer_name(uid)))


def _objects(
    cast: Cast, kind: str, present: Iterable[Mapping[str, Any]], read: Any
) -> Iterator[tuple[str, str]]:
    """How the objects of a kind differ from what was written."""
    by_name = {cast.name_here(one["metadata"]["name"]): one for one in present}
    for _, here in [key for key in cast.written if key[0] == kind]:
        now = by_name.get(here)
        if now is None:
            yield f"{kind} {here}", "gone"
            continue
        yield (
            f"{kind} {here}",
            ("being deleted" if now["metadata"].get("deletionTimestamp") else "there"),
        )
        before, after = dict(read(cast.written[kind, here])), dict(read(now))
        for key in before.keys() | after.keys():
            if before.get(key) != after.get(key):
                yield f"{kind} {here}/{key}", after.get(key, REMOVED)


def _of_node(node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _metadata(node)
    spec, status = node["spec"], node["status"]
    for taint in spec.get("taints", ()):
        yield f"taint {taint['key']}:{taint['effect']}", taint.get("value", "")
    yield "provider id", spec.get("providerID", "")
    yield "pod CIDRs", ", ".join(spec.get("podCIDRs", ()))
    yield "unschedulable", str(spec.get("unschedulable", False))
    yield (
        "addresses",
        ", ".join(f"{one['type']} {one['address']}" for one in status.get("addresses", ())),
    )
    yield from _conditions(status)


def _of_service(service: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _metadata(service)
    status = service.get("status", {})
    yield from _conditions(status)
    yield (
        "ingress",
        "; ".join(
            " ".join(f"{key}={value}" for key, value in sorted(point.items()))
            for point in status.get("loadBalancer", {}).get("ingress", ())
        ),
    )


def _metadata(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    meta = obj["metadata"]
    for kind in ("label", "annotation"):
        for key, value in meta.get(f"{kind}s", {}).items():
            yield f"{kind} {key}", value
    yield "finalizers", ", ".join(meta.get("finalizers", ()))


def _conditions(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for one in status.get("conditions", ()):
        text = f"{one['status']} {one.get('reason', '')}: {one.get('message', '')}"
        yield f"condition {one['type']}", text


def _events(cast: Cast, events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for event in events:
        about, component = event["involvedObject"], event["source"].get("component", "")
        here = cast.name_here(about["name"])
        if here is None or component not in CONTROLLERS:
            continue
        if about["uid"] not in cast.uids and about["uid"] != about["name"]:
            continue  # of a warm-up, or of an object that somebody else made
        key = f"event about {about['kind'].lower()} {here}/{event['type']} {event['reason']}"
        place = about.get("namespace", "no namespace")
        text = f"from {component}: {about.get('apiVersion', '')} {place} {about['uid']}"
        yield f"{key} <{_number(cast, about['uid'])}>", text


def _number(cast: Cast, uid: str) -> int:
    return cast.uids[uid][2] if uid in cast.uids else 0


def _load_balancers(cast: Cast, seen: Seen) -> Iterator[tuple[str, str]]:
    """The parts of the script's Services, also of those that are gone."""
    services = {one["metadata"]["uid"]: one["spec"] for one in seen.services}
    for uid, (kind, here, number) in cast.uids.items():
        if kind != "service":
            continue
        mine = [one for one in seen.parts if _is_of(one, uid)]
        kinds = [one["kind"] for one in mine]
        for part in mine:
            more = (
                "" if kinds.count(part["kind"]) == 1 or part["kind"] == "listener" else part["id"]
            )
            title = f"cloud {here} <{number}>/{part['kind']}{more}"
            if part["kind"] == "address":
                yield title, part["address"]
            elif part["kind"] == "firewall":
                yield title, ", ".join(sorted(part["source_ranges"]))
            elif part["kind"] == "listener":
                to = _port(services.get(uid, {}), part["target_port"])
                yield f"{title} {part['protocol']} {part['port']}", f"{to}, {part['state']}"
            else:
                yield title, _balancer(part, services.get(uid, {}))
                yield from _hosts(cast, seen, f"cloud {here} <{number}>/host", part)


def _balancer(part: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    check = part["health_check"]
    return (
        f"internal {part['internal']}, affinity {part['affinity_seconds']},"
        f" health {_port(spec, check['port'])}{check['path']}, {part['state']}"
    )


def _port(spec: Mapping[str, Any], number: int) -> str:
    """What the Service's spec calls a port of the nodes."""
    if number and number == spec.get("healthCheckNodePort"):
        return "health check node port"
    for one in spec.get("ports", ()):
        if number and number == one.get("nodePort"):
            return f"node port of {one['protocol']} {one['port']}"
    return str(number)


def _hosts(
    cast: Cast, seen: Seen, title: str, balancer: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """The targets that are this script's, or the stage's."""
    names = {one["id"]: one["name"] for one in seen.machines} | cast.machines
    for target in balancer["targets"]:
        name = names.get(target["instance_id"], "")
        if target["instance_id"] in cast.machines or name.startswith(STAGE) or not name:
            yield f"{title} {name or target['instance_id']}", target["address"]


def _routes(cast: Cast, seen: Seen) -> Iterator[tuple[str, str]]:
    for part in seen.parts:
        if part["kind"] == "route" and part["destination"] in cast.cidrs:
            to = cast.machines.get(part["instance_id"], part["instance_id"])
            yield f"route {part['destination']}", f"to {to}, {part['state']}"
