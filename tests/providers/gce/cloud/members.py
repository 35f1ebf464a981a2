"""What is done to the members of target pools and instance groups, and to instances."""

import ipaddress
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from . import endpoints
from .errors import ApiError, invalid, not_found
from .kinds import MOST_AT_ONCE, MOST_IN_GROUP
from .world import PODS, SUBNET, Resource, World, check_fingerprint, fingerprint

Effect = Callable[[], None]


def pool_members(world: World, path: str, verb: str, body: Resource) -> Effect:
    """Add instances or health checks to a target pool, or take them away."""
    pool = world.get(path)
    field, inner = (
        ("instances", "instance")
        if verb.endswith("Instance")
        else (
            "healthChecks",
            "healthCheck",
        )
    )
    given = [world.path(one[inner]) for one in body.get(field, [])]
    if not given or len(given) > MOST_AT_ONCE:
        raise invalid(field, "", f"Give 1 to {MOST_AT_ONCE}.")
    if verb.startswith("add"):
        for one in given:
            if one not in world.objects:
                raise not_found(one)
        if field == "healthChecks" and len({*pool[field], *map(world.link, given)}) > 1:
            raise invalid(field, "", "A target pool has at most one.")

    def effect() -> None:
        now = world.get(path)
        links = [world.link(one) for one in given]
        rest = [one for one in now[field] if one not in links]
        now[field] = [*rest, *links] if verb.startswith("add") else rest

    return effect


def group_members(world: World, path: str, verb: str, body: Resource) -> Effect:
    """Add instances to an instance group, or take them away."""
    group = world.get(path)
    zone = "/".join(path.split("/")[:4])
    given = [world.path(one["instance"]) for one in body.get("instances", [])]
    if not given or len(given) > MOST_AT_ONCE:
        raise invalid("instances", "", f"Give 1 to {MOST_AT_ONCE}.")
    for one in given:
        link = world.link(one)
        if not one.startswith(f"{zone}/"):
            raise invalid("instances", one, "It is in another zone.")
        if one not in world.objects:
            raise not_found(one)
        if verb == "addInstances" and link in group["members"]:
            raise ApiError(400, "memberAlreadyExists", f"'{one}' is already a member of '{path}'.")
        if verb == "removeInstances" and link not in group["members"]:
            raise ApiError(400, "memberNotFound", f"'{one}' is not a member of '{path}'.")
    if verb == "addInstances":
        _check_subnetworks(world, [*map(world.path, group["members"]), *given])

    def effect() -> None:
        now = world.get(path)
        links = [world.link(one) for one in given]
        rest = [one for one in now["members"] if one not in links]
        now["members"] = [*rest, *links] if verb == "addInstances" else rest
        if len(now["members"]) > MOST_IN_GROUP:
            now["members"] = rest
            raise ApiError(400, "limitExceeded", f"A group has at most {MOST_IN_GROUP} instances.")
        now["size"] = len(now["members"])

    return effect


def _check_subnetworks(world: World, members: list[str]) -> None:
    """All instances of a group are in one subnetwork: that of the first."""
    there = [world.get(one)["networkInterfaces"][0]["subnetwork"] for one in members]
    for one, subnetwork in zip(members, there, strict=True):
        if subnetwork != there[0]:
            text = (
                f"Resource '{one}' is expected to be in the subnetwork '{world.path(there[0])}' but"
                f" is in the subnetwork '{world.path(subnetwork)}'."
            )
            raise ApiError(400, "wrongSubnetwork", text)


def network_interface(world: World, path: str, name: str, body: Resource) -> Effect:
    """Change a network interface, of which only the alias ranges can be given here."""
    instance = world.get(path)
    nic = next((one for one in instance["networkInterfaces"] if one["name"] == name), None)
    if nic is None:
        raise invalid("networkInterface", name)
    check_fingerprint(body.get("fingerprint"), nic, "fingerprint")
    ranges = deepcopy(body.get("aliasIpRanges", []))
    secondary = {
        one["rangeName"]: ipaddress.ip_network(one["ipCidrRange"])
        for one in world.get(SUBNET)["secondaryIpRanges"]
    }
    taken = [
        ipaddress.ip_network(one["ipCidrRange"])
        for other, described in world.of("instances")
        for interface in described["networkInterfaces"]
        for one in interface.get("aliasIpRanges", [])
        if other != path or interface["name"] != name
    ]
    for one in ranges:
        of = secondary.get(one.setdefault("subnetworkRangeName", PODS))
        network = ipaddress.ip_network(one["ipCidrRange"])
        if of is None or network[0] not in of or network[-1] not in of:
            raise invalid("aliasIpRanges", one["ipCidrRange"], "It is not in the secondary range.")
        if any(network.overlaps(other) for other in taken):
            raise invalid("aliasIpRanges", one["ipCidrRange"], "Alias IP CIDR range is in use.")
        taken.append(network)

    def effect() -> None:
        interface = next(one for one in world.get(path)["networkInterfaces"] if one["name"] == name)
        interface["aliasIpRanges"] = ranges
        interface["fingerprint"] = fingerprint((name, ranges))

    return effect


def project_metadata(world: World, path: str, body: Resource) -> Effect:
    """Change the metadata of all instances."""
    project = world.get(path)
    check_fingerprint(body.get("fingerprint"), project["commonInstanceMetadata"], "fingerprint")

    def effect() -> None:
        items = deepcopy(body.get("items", []))
        world.get(path)["commonInstanceMetadata"] = {
            "kind": "compute#metadata",
            "items": items,
            "fingerprint": fingerprint(items),
        }

    return effect


def instance(
    world: World, name: str, zone: str, *, number: int, tags: tuple[str, ...], **fields: Any
) -> Resource:
    """Start a machine, with an internal and an external address."""
    project = SUBNET.split("/")[1]
    nic: Resource = {
        "name": "nic0",
        "network": world.get(SUBNET)["network"],
        "subnetwork": world.link(SUBNET),
        "networkIP": str(ipaddress.ip_address("10.128.0.0") + 2 + number),
        "stackType": "IPV4_ONLY",
        "fingerprint": fingerprint((name, "nic0")),
        "accessConfigs": [
            {
                "name": "External NAT",
                "type": "ONE_TO_ONE_NAT",
                "natIP": str(ipaddress.ip_address("35.184.0.0") + 2 + number),
                "networkTier": "PREMIUM",
            }
        ],
    }
    described: Resource = {
        "name": name,
        "status": "RUNNING",
        "machineType": world.link(f"projects/{project}/zones/{zone}/machineTypes/e2-standard-4"),
        "tags": {"items": list(tags), "fingerprint": fingerprint(tags)},
        "networkInterfaces": [nic],
        "canIpForward": True,
        **fields,
    }
    return world.put(f"projects/{project}/zones/{zone}/instances/{name}", described)


def remove_instance(world: World, path: str) -> None:
    """Delete a machine: groups lose it, target pools keep its link."""
    world.drop(path)
    link = world.link(path)
    endpoints.forget(world, path)
    for _, group in world.of("instanceGroups"):
        if link in group["members"]:
            group["members"].remove(link)
            group["size"] -= 1
    for _, route in world.of("routes"):
        if route.get("nextHopInstance") == link:
            why = f"Next hop instance '{link}' not found."
            route["warnings"] = [{"code": "NEXT_HOP_INSTANCE_NOT_FOUND", "message": why}]
