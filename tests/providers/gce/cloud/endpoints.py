"""Zonal groups of network endpoints of the type GCE_VM_IP: what they demand, and their members.

As https://cloud.google.com/load-balancing/docs/negs/zonal-neg-concepts and the description of the API
say: an endpoint is a network interface of an instance in the group's zone and subnetwork; it has no
port, and its address, if it is given, is the interface's primary one.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

from .errors import invalid, not_found
from .world import NETWORK, SUBNET, Resource, World

MOST_AT_ONCE: Final = 500
KIND: Final = "networkEndpointGroups"
_TYPE: Final = "GCE_VM_IP"


def group(world: World, path: str, body: Resource) -> Resource:
    """A group, checked and completed; it begins without endpoints."""
    if body.get("networkEndpointType") != _TYPE:
        raise invalid("resource.networkEndpointType", body.get("networkEndpointType", ""))
    if "defaultPort" in body:
        raise invalid("resource.defaultPort", body["defaultPort"], f"{_TYPE} has no port.")
    network = world.require(body.get("network") or NETWORK, "network")
    subnetwork = world.require(body.get("subnetwork") or SUBNET, "subnetwork")
    if world.path(world.get(subnetwork)["network"]) != network:
        raise invalid("resource.subnetwork", subnetwork, "It is of another network.")
    body.update(network=world.link(network), subnetwork=world.link(subnetwork))
    body.update(kind="compute#networkEndpointGroup", size=0, endpoints=[])
    return body


def change(world: World, path: str, verb: str, body: Resource) -> Callable[[], None]:
    """Attach endpoints, or detach them."""
    before = world.get(path)
    given = body.get("networkEndpoints") or []
    if not given or len(given) > MOST_AT_ONCE:
        raise invalid("networkEndpoints", len(given), f"Give 1 to {MOST_AT_ONCE}.")
    adds = verb == "attachNetworkEndpoints"
    known = {one["instance"]: one for one in before["endpoints"]}
    chosen: list[dict[str, Any]] = []
    for one in given:
        name = _instance(world, path, one, must_exist=adds)
        if adds:
            endpoint = _endpoint(world, path, name, one)
            if name in known or endpoint in chosen:
                raise invalid("networkEndpoints", name, "It is in the group already.")
        elif (
            name not in known
            or one.get("ipAddress", known[name]["ipAddress"]) != (known[name]["ipAddress"])
        ):
            raise invalid("networkEndpoints", name, "It is not in the group.")
        else:
            endpoint = known[name]
        chosen.append(endpoint)

    def effect() -> None:
        now = world.get(path)
        rest = [one for one in now["endpoints"] if one not in chosen]
        now["endpoints"] = [*rest, *deepcopy(chosen)] if adds else rest
        now["size"] = len(now["endpoints"])

    return effect


def _instance(world: World, path: str, endpoint: Resource, *, must_exist: bool) -> str:
    """The name of an endpoint's instance, which is in the zone."""
    zone = "/".join(path.split("/")[:4])
    named: str = endpoint.get("instance", "")
    if not named:
        raise invalid("networkEndpoints.instance", "", f"{_TYPE} needs one.")
    if "/" in named and not world.path(named).startswith(f"{zone}/"):
        raise invalid("networkEndpoints.instance", named, "It is in another zone.")
    name = named.rsplit("/", maxsplit=1)[-1]
    if must_exist and f"{zone}/instances/{name}" not in world.objects:
        raise not_found(f"{zone}/instances/{name}")
    return name


def _endpoint(world: World, path: str, name: str, given: Resource) -> dict[str, Any]:
    """The endpoint of an instance that is in the group's subnetwork."""
    if "port" in given:
        raise invalid("networkEndpoints.port", given["port"], f"{_TYPE} has no port.")
    zone = "/".join(path.split("/")[:4])
    subnetwork = world.get(path)["subnetwork"]
    nics = world.get(f"{zone}/instances/{name}")["networkInterfaces"]
    address = next((one["networkIP"] for one in nics if one["subnetwork"] == subnetwork), None)
    if address is None:
        raise invalid("networkEndpoints.instance", name, f"It is not in {subnetwork}.")
    if given.get("ipAddress", address) != address:
        raise invalid("networkEndpoints.ipAddress", given["ipAddress"], "It is not the primary.")
    return {"instance": name, "ipAddress": address}


def forget(world: World, instance: str) -> None:
    """Take a deleted instance out of all groups, as Google does."""
    zone, name = "/".join(instance.split("/")[:4]), instance.rsplit("/", maxsplit=1)[-1]
    for path, one in world.of(KIND):
        if path.startswith(f"{zone}/"):
            one["endpoints"] = [each for each in one["endpoints"] if each["instance"] != name]
            one["size"] = len(one["endpoints"])


def check_backends(world: World, groups: list[str]) -> None:
    """Refuse backends of both kinds in one backend service."""
    kinds = {world.path(one).split("/")[-2] for one in groups}
    if len(kinds) > 1:
        raise invalid("resource.backends", sorted(kinds), "Give groups of one kind.")
