"""Answers requests to the Compute API from the state of a project."""

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from . import endpoints, kinds, members, rules
from .errors import ApiError, invalid, not_found
from .filters import selects
from .spec import Method
from .world import NUMBER, PROJECT, Resource, World

Parameters = Mapping[str, str]

_SINGULAR = {
    "addresses": "address",
    "backendServices": "backendService",
    "disks": "disk",
    "firewalls": "firewall",
    "forwardingRules": "forwardingRule",
    "healthChecks": "healthCheck",
    "httpHealthChecks": "httpHealthCheck",
    "instanceGroups": "instanceGroup",
    "instances": "instance",
    "networkEndpointGroups": "networkEndpointGroup",
    "networks": "network",
    "routes": "route",
    "subnetworks": "subnetwork",
    "targetPools": "targetPool",
}


def answer(
    world: World, method: Method, path: Parameters, query: Parameters, body: Any
) -> Resource:
    """Do what a well-formed request asks; raises what Google refuses."""
    path = {**path, "project": PROJECT if path["project"] == NUMBER else path["project"]}
    if f"projects/{path['project']}" not in world.objects:
        raise not_found(f"projects/{path['project']}")
    if method.collection.endswith("Operations"):
        world.tick()
        return world.operation(operation_path(method, path))
    place = _place(method, path)
    if (
        zone := path.get("zone")
    ) and f"projects/{path['project']}/zones/{zone}" not in world.objects:
        raise invalid("zone", zone, "Unknown zone.")
    world.tick()
    kind = place.split("/")[-1] if place else ""
    name = next((path[key] for key in (_SINGULAR.get(kind, ""), "resource") if key in path), "")
    target = f"{place}/{name}" if name else place
    reader = _READS.get(method.verb)
    if reader is not None:
        return reader(world, method, target, query)
    if method.verb == "listInstances":
        return _members(world, target, query)
    if method.verb == "listNetworkEndpoints":
        return _endpoints(world, target, query)
    return _change(world, method, (place, target), query, body or {})


def _place(method: Method, path: Parameters) -> str:
    """The path of the collection, or of the project itself."""
    if method.collection == "projects":
        return f"projects/{path['project']}"
    filled = method.path.format(**path)
    parts = filled.split("/")
    if method.verb == "aggregatedList":
        return f"projects/{path['project']}/aggregated/{parts[-1]}"
    size = 4 if parts[2] == "global" else 5
    return "/".join(parts[:size]) if parts[2] in {"global", "zones", "regions"} else filled


def _change(
    world: World,
    method: Method,
    where: tuple[str, str],
    query: Parameters,
    body: Resource,
) -> Resource:
    verb, (place, target) = method.verb, where
    claims = verb in {"insert", "delete"}
    effect: Callable[[], None]
    if verb == "insert":
        target, effect = kinds.insert(world, place, body)
    elif verb == "delete":
        effect = kinds.delete(world, target)
    elif verb in {"patch", "update"}:
        merges = verb == "patch"
        effect = kinds.replaced(world, target, body, merges=merges)
    elif verb == "setLabels":
        effect = kinds.set_labels(world, target, body)
    elif verb in {"addInstance", "removeInstance", "addHealthCheck", "removeHealthCheck"}:
        effect = members.pool_members(world, target, verb, body)
    elif verb in {"addInstances", "removeInstances"}:
        effect = members.group_members(world, target, verb, body)
    elif verb in {"attachNetworkEndpoints", "detachNetworkEndpoints"}:
        effect = endpoints.change(world, target, verb, body)
    elif verb == "updateNetworkInterface":
        nic = query["networkInterface"]
        effect = members.network_interface(world, target, nic, body)
    elif verb == "setCommonInstanceMetadata":
        effect = members.project_metadata(world, target, body)
    else:
        raise AssertionError(method.id)
    return world.operate(verb, target, effect, claims=claims)


def _get(world: World, method: Method, target: str, query: Parameters) -> Resource:
    found = deepcopy(world.get(target))
    _hide(found)
    if target.split("/")[-2] == "addresses":
        users = rules.rules_with(world, found["address"], found)
        found["users"] = [one["selfLink"] for one in users]
        found["status"] = "IN_USE" if users else "RESERVED"
    return found


def _hide(resource: Resource) -> None:
    """Take out what only lists of members show."""
    for field in ("members", "endpoints"):
        resource.pop(field, None)


def _list(world: World, method: Method, target: str, query: Parameters) -> Resource:
    found = [_get(world, method, world.path(one["selfLink"]), {}) for one in world.listed(target)]
    chosen = [one for one in found if selects(query.get("filter", ""), one)]
    items, token = _page(world, chosen, query)
    return {"kind": f"compute#{method.collection}List", "items": items, **token}


def _page(world: World, items: list[Any], query: Parameters) -> tuple[list[Any], dict[str, str]]:
    size = min(int(query.get("maxResults", "500")) or 500, world.page)
    try:
        first = int(query.get("pageToken", "0"))
    except ValueError:
        raise invalid("pageToken", query["pageToken"]) from None
    rest = len(items) > first + size
    return items[first : first + size], {"nextPageToken": str(first + size)} if rest else {}


def _aggregated(world: World, method: Method, target: str, query: Parameters) -> Resource:
    """All zones, those without anything with a warning, those that are down as unreachable."""
    project, kind = target.split("/")[1], target.rsplit("/", maxsplit=1)[-1]
    zones = sorted(path.split("/")[-1] for path, _ in world.of("zones"))
    every: list[tuple[str, Resource]] = []
    for zone in zones:
        if zone not in world.down:
            listed = world.listed(f"projects/{project}/zones/{zone}/{kind}")
            every += [(zone, one) for one in listed if selects(query.get("filter", ""), one)]
    is_partial = query.get("returnPartialSuccess") == "true"
    if world.down and not is_partial and not world.warns:
        down = ", ".join(sorted(world.down))
        raise ApiError(502, "backendError", f"The zones {down} are unreachable.")
    chosen, token = _page(world, every, query)
    items: dict[str, Any] = {}
    for zone in zones:
        found = [one for of, one in chosen if of == zone]
        for one in found:
            _hide(one)
        code, why = "NO_RESULTS_ON_PAGE", f"There are no results for scope 'zones/{zone}'."
        if zone in world.down and world.warns:
            code, why = "UNREACHABLE", f"The zone '{zone}' is unreachable."
        empty = {"warning": {"code": code, "message": why}}
        items[f"zones/{zone}"] = {kind: found} if found else empty
    unreachable = [f"projects/{project}/zones/{zone}" for zone in sorted(world.down)]
    shown = {"unreachables": unreachable} if unreachable and is_partial else {}
    return {"kind": f"compute#{kind}AggregatedList", "items": items, **token, **shown}


def _members(world: World, target: str, query: Parameters) -> Resource:
    links = world.get(target)["members"]
    items = [{"instance": link, "status": world.get(world.path(link))["status"]} for link in links]
    shown, token = _page(world, items, query)
    return {"kind": "compute#instanceGroupsListInstances", "items": shown, **token}


def _endpoints(world: World, target: str, query: Parameters) -> Resource:
    items = [{"networkEndpoint": one} for one in deepcopy(world.get(target)["endpoints"])]
    shown, token = _page(world, items, query)
    return {"kind": "compute#networkEndpointGroupsListNetworkEndpoints", "items": shown, **token}


def _project(world: World, method: Method, target: str, query: Parameters) -> Resource:
    return deepcopy(world.get(target))


def _read(world: World, method: Method, target: str, query: Parameters) -> Resource:
    if method.collection == "projects":
        return _project(world, method, target, query)
    return _get(world, method, target, query)


_READS: Mapping[str, Callable[[World, Method, str, Parameters], Resource]] = {
    "aggregatedList": _aggregated,
    "get": _read,
    "list": _list,
}


def operation_path(method: Method, path: Parameters) -> str:
    """The path of the operation that a request is about."""
    return method.path.removesuffix("/wait").format(**path)


def text(resource: Resource) -> bytes:
    """A resource as it is sent."""
    return json.dumps(resource).encode()
