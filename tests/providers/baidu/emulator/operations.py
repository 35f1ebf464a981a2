"""What each operation does in the emulated region, and what it refuses.

The answers are of the types of the vendor's SDK for Go; limits are those of the documents.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from .world import (
    BLB_QUOTA,
    EIP_QUOTA,
    LISTENER_QUOTA,
    SERVER_QUOTA,
    Json,
    Refusal,
    World,
    absent,
    chosen,
    invalid,
    listed,
)

Query = Mapping[str, str]
Do = Callable[..., Any]

DO: Final[dict[str, Do]] = {}
"""Functions by operation: of the world, the ids of the path, the query and the body."""
PAGED: Final = {
    "listInstances": ("instances", "bcc.ListInstanceResult", "id"),
    "listBareMetals": ("instances", "bbc.ListInstancesResult", "id"),
    "listLoadBalancers": ("blbList", "blb.DescribeLoadBalancersResult", "blbId"),
    "listListeners": ("listenerList", "blb.DescribeAllListenersResult", "listenerPort"),
    "listTCPListeners": ("listenerList", "blb.DescribeTCPListenersResult", "listenerPort"),
    "listUDPListeners": ("listenerList", "blb.DescribeUDPListenersResult", "listenerPort"),
    "listBackendServers": ("backendServerList", "blb.DescribeBackendServersResult", "instanceId"),
    "listEips": ("eipList", "eip.ListEipResult", "eip"),
    "listSubnets": ("subnets", "vpc.ListSubnetResult", "subnetId"),
    "listRouteRules": ("routeRules", "vpc.GetRouteRuleResult", "routeRuleId"),
}
"""Lists: their field, their type, and what markers are."""
QUERIES: Final = {
    "listInstances": "instanceIds privateIps vpcId internalIp zoneName",
    "getInstance": "isDeploySet",
    "listBareMetals": "internalIp vpcId",
    "getBareMetal": "isDeploySet",
    "listLoadBalancers": "address name blbId bccId exactlyMatch type",
    "listListeners": "listenerPort",
    "listTCPListeners": "listenerPort",
    "listUDPListeners": "listenerPort",
    "updateTCPListener": "listenerPort",
    "updateUDPListener": "listenerPort",
    "updateHTTPListener": "listenerPort",
    "listEips": "eip instanceType instanceId status",
    "listSubnets": "vpcId zoneName subnetType",
    "listRouteRules": "vpcId routeTableId",
    "getRouteTable": "vpcId routeTableId",
}
"""Parameters besides those of pages and tokens, as both SDKs send them."""
BODIES: Final = {
    "createLoadBalancer": "blb.CreateLoadBalancerArgs",
    "updateLoadBalancer": "blb.UpdateLoadBalancerArgs",
    "createTCPListener": "blb.CreateTCPListenerArgs",
    "createUDPListener": "blb.CreateUDPListenerArgs",
    "createHTTPListener": "blb.CreateHTTPListenerArgs",
    "updateTCPListener": "blb.UpdateTCPListenerArgs",
    "updateUDPListener": "blb.UpdateUDPListenerArgs",
    "updateHTTPListener": "blb.UpdateHTTPListenerArgs",
    "deleteListeners": "blb.DeleteListenersArgs",
    "addBackendServers": "blb.AddBackendServersArgs",
    "removeBackendServers": "blb.RemoveBackendServersArgs",
    "createEip": "eip.CreateEipArgs",
    "resizeEip": "eip.ResizeEipArgs",
    "bindEip": "eip.BindEipArgs",
    "createRouteRule": "vpc.CreateRouteRuleArgs",
}
ANSWERS: Final = {
    "getInstance": "bcc.GetInstanceDetailResult",
    "getBareMetal": "bbc.InstanceModel",
    "getVolume": "bcc.GetVolumeDetailResult",
    "createLoadBalancer": "blb.CreateLoadBalancerResult",
    "createEip": "eip.CreateEipResult",
    "createRouteRule": "vpc.CreateRouteRuleResult",
    "getRouteTable": "vpc.GetRouteTableResult",
}

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_/.-]{0,64}")
_TAG = re.compile(r"[A-Za-z0-9\u4e00-\u9fff_ /.-]{0,65}")
_HEALTH: Final = {
    "healthCheckTimeoutInSecond": (1, 60, 3),
    "healthCheckInterval": (1, 10, 3),
    "unhealthyThreshold": (2, 5, 3),
    "healthyThreshold": (2, 5, 3),
}
_SCHEDULERS: Final = {"RoundRobin", "LeastConnection", "WeightLeastConn", "Hash"}
_LONGEST_DESC: Final = 450
_WIDEST: Final = {"ByTraffic": 1000, "ByBandwidth": 200}


def does(operation: str) -> Callable[[Do], Do]:
    def kept(function: Do) -> Do:
        DO[operation] = function
        return function

    return kept


@does("listInstances")
def _instances(world: World, _: list[str], query: Query, __: Json) -> list[Json]:
    if query.get("vpcId") and not query.get("privateIps"):
        raise Refusal(400, "InvalidParameter", "vpcId can be used with privateIps only")
    found = chosen(world.instances, vpcId=query.get("vpcId", ""))
    for parameter, field in (("instanceIds", "id"), ("privateIps", "internalIp")):
        if parameter in query:
            wanted = listed(query[parameter])
            found = [one for one in found if one[field] in wanted]
    return found


@does("getInstance")
def _instance(world: World, ids: list[str], _: Query, __: Json) -> Json:
    if ids[0] not in world.instances:
        raise absent(ids[0])
    return {"instance": world.instances[ids[0]]}


@does("listBareMetals")
def _bare_metals(world: World, _: list[str], query: Query, __: Json) -> list[Json]:
    found = chosen(world.bare_metals, internalIp=query.get("internalIp", ""))
    vpc = query.get("vpcId", "")
    return [one for one in found if not vpc or world.bare_vpcs[one["id"]] == vpc]


@does("getBareMetal")
def _bare_metal(world: World, ids: list[str], _: Query, __: Json) -> Json:
    if ids[0] not in world.bare_metals:
        raise absent(ids[0])
    return world.bare_metals[ids[0]]


@does("getVolume")
def _volume(world: World, ids: list[str], _: Query, __: Json) -> Json:
    if ids[0] not in world.volumes:
        raise absent(ids[0])
    return {"volume": world.volumes[ids[0]]}


@does("listSubnets")
def _subnets(world: World, _: list[str], query: Query, __: Json) -> list[Json]:
    return chosen(
        world.subnets, vpcId=query.get("vpcId", ""), subnetType=query.get("subnetType", "")
    )


@does("listRouteRules")
def _rules(world: World, _: list[str], query: Query, __: Json) -> list[Json]:
    table = _table(world, query)
    return chosen(world.rules, routeTableId=table)


@does("getRouteTable")
def _route_table(world: World, _: list[str], query: Query, __: Json) -> Json:
    table = _table(world, query)
    vpc = next(id_ for id_, one in world.vpcs.items() if one["routeTableId"] == table)
    rules = chosen(world.rules, routeTableId=table)
    return {"routeTableId": table, "vpcId": vpc, "routeRules": rules}


def _table(world: World, query: Query) -> str:
    for id_, one in world.vpcs.items():
        if query.get("vpcId") == id_ or query.get("routeTableId") == one["routeTableId"]:
            return str(one["routeTableId"])
    raise absent(str(dict(query)))


@does("createRouteRule")
def _create_rule(world: World, _: list[str], __: Query, body: Json) -> Json:
    table = body["routeTableId"]
    vpc = next((one for one in world.vpcs.values() if one["routeTableId"] == table), None)
    if vpc is None:
        raise absent(table)
    destination = ipaddress.ip_network(body["destinationAddress"])
    if body["destinationAddress"] != "0.0.0.0/0" and destination.overlaps(
        ipaddress.ip_network(vpc["cidr"])
    ):
        raise Refusal(400, "InvalidParameter", "the destination overlaps with the VPC")
    pair = (body["sourceAddress"], body["destinationAddress"])
    for one in chosen(world.rules, routeTableId=table):
        if (one["sourceAddress"], one["destinationAddress"]) == pair:
            raise Refusal(409, "RouteRuleRepeated", f"the rule {one['routeRuleId']} is the same")
    if body["nexthopType"] == "custom" and body["nexthopId"] not in world.instances:
        raise absent(body["nexthopId"])
    id_ = world.new_id("rr")
    world.rules[id_] = {"routeRuleId": id_, "pathType": "", "description": "", **body}
    return {"routeRuleId": id_}


@does("deleteRouteRule")
def _delete_rule(world: World, ids: list[str], _: Query, __: Json) -> None:
    if world.rules.pop(ids[0], None) is None:
        raise absent(ids[0])


@does("listLoadBalancers")
def _balancers(world: World, _: list[str], query: Query, __: Json) -> list[Json]:
    found = chosen(world.balancers, blbId=query.get("blbId", ""), address=query.get("address", ""))
    name = query.get("name", "")
    exactly = query.get("exactlyMatch") == "true"
    return [
        one for one in found if (name == one["name"] if exactly and name else name in one["name"])
    ]


@does("createLoadBalancer")
def _create_balancer(world: World, _: list[str], __: Query, body: Json) -> Json:
    subnet = world.subnets.get(body["subnetId"])
    if subnet is None or subnet["vpcId"] != body["vpcId"]:
        raise absent(body["subnetId"])
    if subnet["subnetType"] != "BCC":
        raise invalid("the subnet has another type than BCC")
    _check_names(body)
    if len(world.balancers) >= BLB_QUOTA:
        raise Refusal(403, "ExceedLimit", "the account has as many load balancers as it may have")
    id_ = world.add_balancer(
        body["subnetId"], body.get("name", "lb"), body.get("desc", ""), status="creating"
    )
    made = world.balancers[id_]
    world.later(lambda: made.update(status="available"))
    return {"blbId": id_, "name": made["name"], "desc": made["desc"], "address": made["address"]}


@does("updateLoadBalancer")
def _update_balancer(world: World, ids: list[str], _: Query, body: Json) -> None:
    found = _ready(world, ids[0])
    _check_names(body)
    found |= {key: body[key] for key in ("name", "desc") if key in body}


@does("deleteLoadBalancer")
def _delete_balancer(world: World, ids: list[str], _: Query, __: Json) -> None:
    found = world.balancer(ids[0])
    if found["publicIp"]:
        raise Refusal(409, "BlbBoundEip", "unbind the public address first")
    world.drop_balancer(ids[0])


def _check_names(body: Json) -> None:
    if "name" in body and not _NAME.fullmatch(body["name"]):
        raise invalid(f"name: {body['name']!r} is none")
    if len(body.get("desc", "").encode()) > _LONGEST_DESC:
        raise invalid("desc: is longer than 450 bytes")


def _ready(world: World, id_: str) -> Json:
    found = world.balancer(id_)
    if found["status"] != "available":
        raise Refusal(409, "BlbStatusInvalid", f"{id_} is {found['status']}")
    world.occupy(found)
    return found


@does("listListeners")
def _all_listeners(world: World, ids: list[str], query: Query, _: Json) -> list[Json]:
    world.balancer(ids[0])
    port = query.get("listenerPort", "")
    found = world.listeners[ids[0]].values()
    return [one for one in found if not port or str(one["listenerPort"]) == port]


def _listeners_of(protocol: str) -> None:
    @does(f"list{protocol}Listeners")
    def _(world: World, ids: list[str], query: Query, body: Json) -> list[Json]:
        found = _all_listeners(world, ids, query, body)
        return [
            {key: value for key, value in one.items() if key != "listenerType"}
            for one in found
            if one["listenerType"] == protocol
        ]

    @does(f"create{protocol}Listener")
    def _create(world: World, ids: list[str], _: Query, body: Json) -> None:
        _ready(world, ids[0])
        there = world.listeners[ids[0]]
        key = ("UDP" if protocol == "UDP" else "TCP", body["listenerPort"])
        if key in there:
            raise Refusal(409, "ListenerExisted", f"port {body['listenerPort']} has a listener")
        if len(there) >= LISTENER_QUOTA:
            raise Refusal(403, "ExceedLimit", "the load balancer has 50 listeners")
        health = {name: default for name, (_, _, default) in _HEALTH.items()}
        _check_listener(protocol, body)
        there[key] = {"listenerType": protocol, **health, **body}

    @does(f"update{protocol}Listener")
    def _update(world: World, ids: list[str], query: Query, body: Json) -> None:
        _ready(world, ids[0])
        key = ("UDP" if protocol == "UDP" else "TCP", int(query["listenerPort"]))
        found = world.listeners[ids[0]].get(key)
        if found is None or found["listenerType"] != protocol:
            raise absent(f"listener {key}")
        _check_listener(protocol, {**found, **body})
        found |= body


for _protocol in ("TCP", "UDP", "HTTP"):
    _listeners_of(_protocol)


def _check_listener(protocol: str, body: Json) -> None:
    for field in ("listenerPort", "backendPort"):
        if not 1 <= body[field] <= 65535:
            raise invalid(f"{field}: {body[field]}")
    allowed = _SCHEDULERS - ({"Hash"} if protocol == "HTTP" else set())
    if body["scheduler"] not in allowed:
        raise invalid(f"scheduler: {body['scheduler']}")
    if protocol == "UDP" and not body.get("healthCheckString"):
        raise invalid("healthCheckString: is required")
    for field, (low, high, default) in _HEALTH.items():
        if not low <= body.get(field, default) <= high:
            raise invalid(f"{field}: must be from {low} to {high}")


@does("deleteListeners")
def _delete_listeners(world: World, ids: list[str], _: Query, body: Json) -> None:
    _ready(world, ids[0])
    there = world.listeners[ids[0]]
    keys = [
        ("UDP" if one["type"] == "UDP" else "TCP", one["port"])
        for one in body.get("portTypeList") or ()
    ]
    keys += [key for key in there if key[1] in (body.get("portList") or ())]
    if not keys:
        raise invalid("portList: is empty")
    for key in keys:
        if key not in there:
            raise absent(f"listener {key}")
        del there[key]


@does("listBackendServers")
def _servers(world: World, ids: list[str], _: Query, __: Json) -> list[Json]:
    world.balancer(ids[0])
    return [
        {"instanceId": id_, "weight": weight, "privateIp": world.address_of(id_)}
        for id_, weight in world.servers[ids[0]].items()
    ]


@does("addBackendServers")
def _add_servers(world: World, ids: list[str], _: Query, body: Json) -> None:
    found = _ready(world, ids[0])
    there, new = world.servers[ids[0]], body["backendServerList"]
    for one in new:
        machine = world.instances.get(one["instanceId"])
        is_bare = one["instanceId"] in world.bare_metals
        if is_bare and world.bare_vpcs[one["instanceId"]] not in {"", found["vpcId"]}:
            raise absent(one["instanceId"])
        if not is_bare and (machine is None or machine["vpcId"] != found["vpcId"]):
            raise absent(one["instanceId"])
        if one["instanceId"] in there:
            raise Refusal(409, "BackendServerExisted", f"{one['instanceId']} is there already")
        if not 0 <= one["weight"] <= 100:
            raise invalid(f"weight: {one['weight']}")
    if len(there) + len(new) > SERVER_QUOTA:
        raise Refusal(403, "ExceedLimit", "a load balancer has at most 50 back ends")
    there |= {one["instanceId"]: one["weight"] for one in new}


@does("removeBackendServers")
def _remove_servers(world: World, ids: list[str], _: Query, body: Json) -> None:
    _ready(world, ids[0])
    there = world.servers[ids[0]]
    if gone := [id_ for id_ in body["backendServerList"] if id_ not in there]:
        raise absent(", ".join(gone))
    for id_ in body["backendServerList"]:
        del there[id_]


@does("listEips")
def _eips(world: World, _: list[str], query: Query, __: Json) -> list[Json]:
    fields = {name: query.get(name, "") for name in ("eip", "instanceType", "instanceId", "status")}
    return chosen(world.eips, **fields)


@does("createEip")
def _create_eip(world: World, _: list[str], __: Query, body: Json) -> Json:
    billing = body["billing"]
    payment, method = billing.get("paymentTiming"), billing.get("billingMethod")
    if payment == "Prepaid":
        if method or not billing.get("reservation", {}).get("reservationLength"):
            raise invalid("billing: a prepaid address has a reservation and no method")
        method = "ByBandwidth"
    if payment not in {"Prepaid", "Postpaid"} or method not in _WIDEST:
        raise invalid(f"billing: {billing}")
    if not 1 <= body["bandwidthInMbps"] <= _WIDEST[method]:
        raise invalid(f"bandwidthInMbps: {body['bandwidthInMbps']}")
    _check_names(body)
    tags = body.get("tags") or []
    if not all(_TAG.fullmatch(one[part]) for one in tags for part in ("tagKey", "tagValue")):
        raise invalid(f"tags: {tags}")
    if len(world.eips) >= EIP_QUOTA:
        raise Refusal(403, "EipQuotaExceeded", "the account has as many addresses as it may have")
    ip = world.add_eip(
        body.get("name", ""), bandwidthInMbps=body["bandwidthInMbps"], paymentTiming=payment,
        billingMethod=method if payment == "Postpaid" else "", tags=tags, status="creating",
    )  # fmt: skip
    made = world.eips[ip]
    world.later(lambda: made.update(status="available"))
    return {"eip": ip}


@does("bindEip")
def _bind_eip(world: World, ids: list[str], _: Query, body: Json) -> None:
    found, holder = world.eip(ids[0]), body["instanceId"]
    if body["instanceType"] != "BLB" or holder not in world.balancers:
        raise absent(holder)
    if found["status"] != "available":
        raise Refusal(409, "EipStatusInvalid", f"{ids[0]} is {found['status']}")
    if world.balancers[holder]["status"] != "available" or any(
        one["instanceId"] == holder for one in world.eips.values()
    ):
        raise Refusal(409, "EipInUse", f"{holder} has a public address, or is not available")
    found |= {"status": "binding", "instanceType": "BLB", "instanceId": holder}
    world.later(lambda: world.hold(ids[0], holder))


@does("unbindEip")
def _unbind_eip(world: World, ids: list[str], _: Query, __: Json) -> None:
    found = world.eip(ids[0])
    if found["status"] != "binded":
        raise Refusal(409, "EipStatusInvalid", f"{ids[0]} is {found['status']}")
    found["status"] = "unbinding"
    world.later(lambda: world.let_go(ids[0]))


@does("resizeEip")
def _resize_eip(world: World, ids: list[str], _: Query, body: Json) -> None:
    found = world.eip(ids[0])
    width = body["newBandwidthInMbps"]
    if not 1 <= width <= _WIDEST.get(found["billingMethod"], 200):
        raise invalid(f"newBandwidthInMbps: {width}")
    before = found["status"]
    found["status"] = "updating"
    world.later(lambda: found.update(status=before, bandwidthInMbps=width))


@does("releaseEip")
def _release_eip(world: World, ids: list[str], _: Query, __: Json) -> None:
    found = world.eip(ids[0])
    if found["instanceId"] or found["paymentTiming"] == "Prepaid":
        raise Refusal(409, "EipStatusInvalid", f"{ids[0]} is bound, or prepaid")
    del world.eips[ids[0]]
