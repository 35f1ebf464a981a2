"""What the commands of the emulated CloudStack do."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from .accounts import shown_to
from .balancing import BALANCING
from .refusals import Refusal
from .stickiness import STICKINESS
from .world import TAGGED, Json, World, listed, map_of

Parameters = Mapping[str, str]
Command = Callable[[World, Parameters], Any]


def run(world: World, command: str, parameters: Parameters) -> tuple[str, Any]:
    """Run a command: the name of the list that it answers, or "", and its answer."""
    return LISTS.get(command, ""), _COMMANDS[command](world, parameters)


def _capabilities(world: World, _: Parameters) -> Json:
    return {"capability": {"cloudstackversion": world.version, "apilimitmax": 25}}


def _servers(world: World, _: Parameters) -> list[Json]:
    return [{"id": "1", "name": "ms", "state": "Up", "version": world.version}]


def _machines(world: World, parameters: Parameters) -> list[Json]:
    is_shown = shown_to(world, parameters, "machines")
    hides_destroyed = not (world.is_admin or world.shows_destroyed)
    there = [
        one
        for one in world.machines.values()
        if is_shown(one) and not (hides_destroyed and one["state"] in {"Destroyed", "Expunging"})
    ]
    return list(_selected(there, parameters))


def _selected(machines: Any, parameters: Parameters) -> Iterator[Json]:
    ids = listed(parameters.get("ids", ""))
    details = set(listed(parameters.get("details", "")))
    for one in machines:
        if ids and one["id"] not in ids:
            continue
        if parameters.get("id", one["id"]) != one["id"]:
            continue
        if parameters.get("name", "").lower() not in one["name"].lower():
            continue
        if details and "all" not in details:
            # Parts that nobody asked for are not shown.
            hidden = {"nic"} if "nics" not in details else set[str]()
            hidden |= {"serviceofferingname"} if "servoff" not in details else set()
            yield {key: value for key, value in one.items() if key not in hidden}
        else:
            yield one


def _volumes(world: World, parameters: Parameters) -> list[Json]:
    is_shown = shown_to(world, parameters, "volumes")
    found = (one for one in world.volumes.values() if is_shown(one))
    return [one for one in found if one["id"] == parameters["id"]]


def _job(world: World, parameters: Parameters) -> Json:
    if parameters["jobid"] not in world.jobs:
        raise Refusal(431, "there is no such job")
    return dict(world.jobs[parameters["jobid"]])


def _create_tags(world: World, parameters: Parameters) -> Json:
    type_, ids = parameters["resourcetype"], listed(parameters["resourceids"])
    tags = map_of(parameters, "tags")

    def effect() -> None:
        if type_ not in TAGGED:
            raise Refusal(431, f"Invalid resource type {type_}")
        for id_ in ids:
            world.the(TAGGED[type_], id_, "resourceids")
            for key, value in tags.items():
                if not value:
                    raise Refusal(431, f"Value for the key {key} is either null or empty")
                if key in world.tags[type_, id_]:
                    raise Refusal(530, f"tag {key} already on {type_} with id {id_}")
        for id_ in ids:
            world.tags[type_, id_] |= tags

    return world.work("createTags", effect)


def _delete_tags(world: World, parameters: Parameters) -> Json:
    type_, ids = parameters["resourcetype"], listed(parameters["resourceids"])
    tags = map_of(parameters, "tags")

    def effect() -> Json:
        for id_ in ids:
            world.the(TAGGED[type_], id_, "resourceids")
        before = {id_: dict(world.tags[type_, id_]) for id_ in ids}
        for id_, there in before.items():
            world.tags[type_, id_] = {
                key: value
                for key, value in there.items()
                if key not in tags or tags[key].lower() not in {"", value.lower()}
            }
        changed = any(world.tags[type_, id_] != there for id_, there in before.items())
        return {"success": changed}

    return world.work("deleteTags", effect)


def _tags(world: World, parameters: Parameters) -> list[Json]:
    shown = {type_: shown_to(world, parameters, kind) for type_, kind in TAGGED.items()}
    return [
        {"resourcetype": type_, "resourceid": id_, "key": key, "value": value}
        for (type_, id_), tags in world.tags.items()
        for key, value in tags.items()
        if parameters.get("resourceid", id_) == id_ and parameters.get("key", key) == key
        if shown[type_](getattr(world, TAGGED[type_])[id_])
    ]


def _routes(world: World, parameters: Parameters) -> list[Json]:
    vpc, is_shown = parameters.get("vpcid", ""), shown_to(world, parameters, "routes")
    found = [one for one in world.routes.values() if vpc in {"", one["vpcid"]}]
    return [world.shown("routes", one) for one in found if is_shown(one)]


def _create_route(world: World, parameters: Parameters) -> Json:
    if "gatewayid" not in parameters and not {"vpcid", "nexthop"} <= parameters.keys():
        raise Refusal(431, "Please specify gatewayid, or vpcid and nexthop")
    vpc, cidr = parameters["vpcid"], parameters["cidr"]
    world.the("vpcs", vpc, "vpcid")
    if any((one["vpcid"], one["cidr"]) == (vpc, cidr) for one in world.routes.values()):
        raise Refusal(431, f"New static route cidr conflicts with existing one {cidr}")
    id_ = world.new_id()
    fields = {"vpcid": vpc, "cidr": cidr, "nexthop": parameters["nexthop"]}
    world.routes[id_] = {"id": id_, **fields, "state": "Add"}

    def effect() -> Json:
        world.routes[id_]["state"] = "Active"
        return {"staticroute": world.routes[id_]}

    return world.work("createStaticRoute", effect, id=id_)


def _delete_route(world: World, parameters: Parameters) -> Json:
    world.the("routes", parameters["id"])
    return world.work("deleteStaticRoute", lambda: world.remove("routes", parameters["id"]))


_COMMANDS: Final[Mapping[str, Command]] = {
    "createStaticRoute": _create_route,
    "createTags": _create_tags,
    "deleteStaticRoute": _delete_route,
    "deleteTags": _delete_tags,
    "listCapabilities": _capabilities,
    "listManagementServersMetrics": _servers,
    "listStaticRoutes": _routes,
    "listTags": _tags,
    "listVirtualMachines": _machines,
    "listVolumes": _volumes,
    "queryAsyncJobResult": _job,
    **BALANCING,
    **STICKINESS,
}

LISTS: Final[Mapping[str, str]] = {
    "listFirewallRules": "firewallrule",
    "listLBStickinessPolicies": "stickinesspolicies",
    "listLoadBalancerRuleInstances": "loadbalancerruleinstance",
    "listLoadBalancerRules": "loadbalancerrule",
    "listManagementServersMetrics": "managementserver",
    "listNetworkACLLists": "networkacllist",
    "listNetworkACLs": "networkacl",
    "listNetworks": "network",
    "listPublicIpAddresses": "publicipaddress",
    "listStaticRoutes": "staticroute",
    "listTags": "tag",
    "listVirtualMachines": "virtualmachine",
    "listVolumes": "volume",
}
"""Commands that list, with the name of the list in their answers."""
