"""What is special about each kind of resource: what it refers to, what it gets, what can be done."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Final

from . import endpoints
from .errors import ApiError, exists, in_use, invalid, not_found
from .rules import address_of, backend_service, forwarding_rule, free, is_v6, rules_with
from .world import Resource, World, check_fingerprint, fingerprint

MOST_AT_CREATION: Final = 200
MOST_AT_ONCE: Final = 1000
MOST_IN_GROUP: Final = 1000
MOST_ADDRESSES: Final = 100

_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL: Final = re.compile(r"[\w-]{0,63}")


def insert(world: World, collection: str, body: Resource) -> tuple[str, Callable[[], None]]:
    """Check a new resource; its path, and what makes it."""
    name = body.get("name", "")
    if not _NAME.fullmatch(name):
        raise invalid("resource.name", name, f"Must be a match of regex '{_NAME.pattern}'")
    if body.get("labels"):
        raise invalid("resource.labels", body["labels"], "Labels are set with setLabels.")
    kind = collection.rsplit("/", maxsplit=1)[-1]
    path = f"{collection}/{name}"
    if path in world.objects:
        raise exists(path)
    whole = _COMPLETE[kind](world, path, deepcopy(body))

    def effect() -> None:
        if kind in _FINAL:
            _FINAL[kind](world, path, whole)
        world.put(path, whole)

    return path, effect


def delete(world: World, path: str) -> Callable[[], None]:
    """Check that nothing uses a resource; what deletes it."""
    world.get(path)
    for user, one in world.objects.items():
        if path in _references(world, user, one):
            raise in_use(path, user)
    return lambda: world.drop(path)


def _references(world: World, path: str, resource: Resource) -> set[str]:
    """What a resource keeps from being deleted."""
    kind = path.split("/")[-2]
    if kind == "forwardingRules":
        links = [resource.get("target"), resource.get("backendService")]
    elif kind == "targetPools":
        links = resource.get("healthChecks", [])
    elif kind == "backendServices":
        groups = [one["group"] for one in resource.get("backends", [])]
        links = [*resource.get("healthChecks", []), *groups]
    else:
        return set()
    return {world.path(one) for one in links if one}


# What each kind needs, and what it gets


def _address(world: World, path: str, body: Resource) -> Resource:
    body.setdefault("addressType", "EXTERNAL")
    _labelled(body)
    given = body.get("address", "")
    if body.get("prefixLength", 96) != 96:
        raise invalid("resource.prefixLength", body["prefixLength"])
    if given and is_v6(given) != ("prefixLength" in body):
        raise invalid("resource.prefixLength", body.get("prefixLength", ""))
    if body["addressType"] == "EXTERNAL":
        body.setdefault("networkTier", "PREMIUM")
        users = rules_with(world, given, body) if given else []
        if given and not users:
            raise invalid("resource.address", given, "The address is not in use in this region.")
        if any(one.get("networkTier") != body["networkTier"] for one in users):
            raise invalid("resource.networkTier", body["networkTier"])
        if given and address_of(world, given, body):
            raise invalid("resource.address", given, "It is reserved already.")
    else:
        body["subnetwork"] = world.link(world.require(body.get("subnetwork", ""), "subnetwork"))
        if given and address_of(world, given, body):
            raise ApiError(409, "alreadyExists", f"IP '{given}' is already being used")
    count = sum(1 for _ in world.of("addresses"))
    if count >= MOST_ADDRESSES:
        raise ApiError(403, "quotaExceeded", "Quota 'STATIC_ADDRESSES' exceeded. Limit: 100.0")
    return body


def _address_final(world: World, path: str, body: Resource) -> None:
    body["address"] = body.get("address") or free(world, body)
    body["status"] = "IN_USE" if rules_with(world, body["address"], body) else "RESERVED"


def _forwarding_rule(world: World, path: str, body: Resource) -> Resource:
    _labelled(body)
    return forwarding_rule(world, body)


def _forwarding_rule_final(world: World, path: str, body: Resource) -> None:
    body["IPAddress"] = body.get("IPAddress") or free(world, body)
    if is_v6(body["IPAddress"]):
        body["IPAddress"] = f"{body['IPAddress'].partition('/')[0]}/96"
    reserved = address_of(world, body["IPAddress"], body)
    if reserved is not None:
        reserved["status"] = "IN_USE"


def _target_pool(world: World, path: str, body: Resource) -> Resource:
    body.setdefault("sessionAffinity", "NONE")
    if len(body.get("instances", [])) > MOST_AT_CREATION:
        raise invalid("resource.instances", "", f"At most {MOST_AT_CREATION} can be given.")
    body["instances"] = [
        world.link(world.require(one, f"instances[{n}]"))
        for n, one in enumerate(body.get("instances", []))
    ]
    body["healthChecks"] = [
        world.link(world.require(one, "healthChecks")) for one in body.get("healthChecks", [])
    ]
    if len(body["healthChecks"]) > 1:
        raise invalid("resource.healthChecks", "", "A target pool has at most one.")
    return body


def _health_check(world: World, path: str, body: Resource) -> Resource:
    for field, usual in (("checkIntervalSec", 5), ("timeoutSec", 5)):
        body.setdefault(field, usual)
    body.setdefault("healthyThreshold", 2)
    body.setdefault("unhealthyThreshold", 2)
    if body["timeoutSec"] > body["checkIntervalSec"]:
        raise invalid("resource.timeoutSec", body["timeoutSec"], "It is longer than the interval.")
    if path.split("/")[-2] == "healthChecks" and body.get("type") not in {"HTTP", "TCP", "HTTPS"}:
        raise invalid("resource.type", body.get("type", ""))
    return body


def firewall(world: World, path: str, body: Resource) -> Resource:
    """A firewall rule with what Google adds."""
    body["network"] = world.link(
        world.require(body.get("network", ""), "network", path.split("/")[1])
    )
    body.setdefault("direction", "INGRESS")
    body.setdefault("priority", 1000)
    body.setdefault("disabled", False)
    if not body.get("allowed") and not body.get("denied"):
        raise invalid("resource.allowed", "", "Give allowed or denied.")
    for one in body.get("allowed", []):
        if len(one.get("ports", [])) > 100:
            raise invalid("resource.allowed", "", "At most 100 ports.")
    if not body.get("sourceRanges") and not body.get("sourceTags"):
        body["sourceRanges"] = ["0.0.0.0/0"]
    for field in ("sourceRanges", "destinationRanges"):
        for text in body.get(field, []):
            try:
                ipaddress.ip_network(text)
            except ValueError:
                raise invalid(f"resource.{field}", text, "Must be a CIDR address range.") from None
        if not body.get(field):
            body.pop(field, None)
    return body


def _instance_group(world: World, path: str, body: Resource) -> Resource:
    body.update(size=0, fingerprint=fingerprint(body["name"]), members=[])
    body.setdefault("network", "")
    return body


def _route(world: World, path: str, body: Resource) -> Resource:
    body["network"] = world.link(
        world.require(body.get("network", ""), "network", path.split("/")[1])
    )
    ipaddress.ip_network(body["destRange"])
    hop = world.path(body.get("nextHopInstance", ""))
    if hop not in world.objects:
        raise not_found(hop)
    body["nextHopInstance"] = world.link(hop)
    body.setdefault("priority", 1000)
    return body


def _labelled(body: Resource) -> None:
    body["labels"] = {}
    body["labelFingerprint"] = fingerprint({})


_Complete = Callable[[World, str, Resource], Resource]
_COMPLETE: Final[Mapping[str, _Complete]] = {
    "addresses": _address,
    "backendServices": backend_service,
    "firewalls": firewall,
    "forwardingRules": _forwarding_rule,
    "healthChecks": _health_check,
    "httpHealthChecks": _health_check,
    "instanceGroups": _instance_group,
    "networkEndpointGroups": endpoints.group,
    "routes": _route,
    "targetPools": _target_pool,
}
_FINAL: Final[Mapping[str, Callable[[World, str, Resource], None]]] = {
    "addresses": _address_final,
    "forwardingRules": _forwarding_rule_final,
}


def replaced(world: World, path: str, body: Resource, *, merges: bool) -> Callable[[], None]:
    """Check a resource that is to stand in the place of another; what puts it there."""
    before, kind = world.get(path), path.split("/")[-2]
    if kind == "backendServices":
        check_fingerprint(body.get("fingerprint"), before, "fingerprint")
    whole = {**deepcopy(before), **body} if merges else deepcopy(body)
    whole = {key: one for key, one in whole.items() if one is not None}
    whole["name"] = before["name"]
    for kept in ("labels", "labelFingerprint"):
        if kept in before:
            whole[kept] = before[kept]
    complete = _COMPLETE[kind](world, path, whole)

    def effect() -> None:
        world.get(path)
        world.put(path, complete)

    return effect


def set_labels(world: World, path: str, body: Resource) -> Callable[[], None]:
    """Check labels; what puts them in the place of the former."""
    resource = world.get(path)
    check_fingerprint(body.get("labelFingerprint"), resource, "labelFingerprint")
    labels = body.get("labels") or {}
    for key, value in labels.items():
        is_fit = re.fullmatch(r"[a-z][\w-]{0,62}", key) and _LABEL.fullmatch(value)
        if not is_fit or value != value.lower():
            raise invalid("resource.labels", f"{key}={value}")

    def effect() -> None:
        found = world.get(path)
        found["labels"] = dict(labels)
        found["labelFingerprint"] = fingerprint(labels)

    return effect
