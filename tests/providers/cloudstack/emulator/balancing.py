"""The commands of the emulated CloudStack about public addresses, rules and access lists."""

import ipaddress
from collections.abc import Callable, Mapping
from typing import Any, Final

from .accounts import check_access, check_same_owner, fields_of, owner_named, owner_of, shown_to
from .refusals import Refusal
from .world import Json, World, listed, map_of

Parameters = Mapping[str, str]
EVERYONE: Final = "0.0.0.0/0"


def _addresses(world: World, parameters: Parameters) -> list[Json]:
    is_shown = shown_to(world, parameters, "ips")
    found = [one for one in world.ips.values() if one["state"] == "Free" or is_shown(one)]
    wanted = {"id": "id", "ipaddress": "ipaddress", "associatednetworkid": "associatednetworkid"}
    wanted |= {"vpcid": "vpcid", "zoneid": "zoneid", "state": "state"}
    for name, field in wanted.items():
        if name in parameters:
            found = [one for one in found if one.get(field) == parameters[name]]
    if parameters.get("allocatedonly", "true") == "true":
        found = [one for one in found if one["state"] != "Free"]
    if tags := map_of(parameters, "tags"):
        tagged = [world.tags.get(("PublicIpAddress", one["id"]), {}) for one in found]
        pairs = zip(found, tagged, strict=True)
        found = [one for one, has in pairs if tags.items() & has.items()]
    return [world.shown("ips", one) for one in found]


def _associate(world: World, parameters: Parameters) -> Json:
    if not parameters.keys() & {"networkid", "vpcid"}:
        raise Refusal(431, "Unable to figure out zone to assign ip to")
    kind, name = ("vpcs", "vpcid") if "vpcid" in parameters else ("networks", "networkid")
    place = world.the(kind, parameters[name], name)
    owner = owner_of(world, kind, place)
    if "projectid" in parameters and owner_named(world, parameters) != owner:
        raise Refusal(531, "the network belongs to another account")
    here = (one for one in world.ips.values() if one["zoneid"] == place["zoneid"])
    free = [one for one in here if one["state"] == "Free"]
    if wanted := parameters.get("ipaddress"):
        free = [one for one in free if one["ipaddress"] == wanted]
        if not free:
            raise Refusal(431, f"IP address {wanted} is not available, it is already allocated")
    if not free:
        raise Refusal(533, "Insufficient address capacity")
    if kind == "networks" and place.get("vpcid"):
        raise Refusal(431, "the network belongs to a VPC: give vpcid")
    ip = free[0]
    ip |= {"state": "Allocating", "allocated": "2026-01-01T00:00:00+0000", "issourcenat": False}
    ip |= {"isstaticnat": False, **fields_of(world, owner)}
    ip["vpcid" if kind == "vpcs" else "associatednetworkid"] = place["id"]

    def effect() -> Json:
        ip["state"] = "Allocated"
        return {"ipaddress": dict(ip)}

    return world.work("associateIpAddress", effect, id=ip["id"])


def _disassociate(world: World, parameters: Parameters) -> Json:
    ip = world.the("ips", parameters["id"])
    if ip["state"] == "Free":
        raise Refusal(431, "Unable to find ip address by id: it is not allocated")
    if ip.get("issourcenat"):
        raise Refusal(
            431, "ip address is used for source nat purposes and can not be disassociated"
        )
    ip["state"] = "Releasing"

    return world.work("disassociateIpAddress", lambda: world.release(ip["id"]))


def _rules(world: World, parameters: Parameters) -> list[Json]:
    found = list(filter(shown_to(world, parameters, "rules"), world.rules.values()))
    for name in ("id", "name", "publicipid", "networkid"):
        if name in parameters:
            found = [one for one in found if one[name] == parameters[name]]
    if keyword := parameters.get("keyword", ""):
        found = [one for one in found if keyword in one["name"]]
    return [world.shown("rules", one) for one in found]


def _create_rule(world: World, parameters: Parameters) -> Json:
    ip = world.the("ips", parameters.get("publicipid", ""), "publicipid")
    if ip["state"] not in {"Allocated", "Allocating"} or ip.get("isstaticnat"):
        raise Refusal(431, "Unable to create load balancer rule; invalid state of the ip address")
    network = world.the("networks", parameters.get("networkid", ""), "networkid")
    check_same_owner(world, ("ips", ip), ("networks", network))
    here = ip.get("associatednetworkid")
    if (here and here != network["id"]) or ip.get("vpcid") != network.get("vpcid"):
        raise Refusal(431, "the ip address is not associated with the network")
    if parameters["algorithm"] not in {"source", "roundrobin", "leastconn"}:
        raise Refusal(431, f"Invalid algorithm: {parameters['algorithm']}")
    lb_protocol = _protocol(parameters.get("protocol", "tcp"))
    port = _port(parameters["publicport"])
    for one in world.rules.values():
        if one["state"] == "Revoke":  # CloudStack's `detectRulesConflict` passes over these
            continue
        taken = one["publicipid"], _transport(one["protocol"]), one["publicport"]
        if taken == (ip["id"], _transport(lb_protocol), str(port)):
            raise Refusal(
                537, f"The range specified, {port}-{port}, conflicts with rule {one['id']}"
            )
    id_ = world.new_id()
    world.rules[id_] = {
        "id": id_, "name": parameters["name"], "description": parameters.get("description", ""),
        "publicipid": ip["id"], "publicip": ip["ipaddress"], "publicport": str(port),
        "privateport": str(_port(parameters["privateport"])), "protocol": lb_protocol,
        "algorithm": parameters["algorithm"], "networkid": network["id"], "state": "Add",
        "cidrlist": _cidrs(parameters.get("cidrlist", "")), "zoneid": network["zoneid"],
    }  # fmt: skip
    if network.get("vpcid"):
        ip["associatednetworkid"] = network["id"]
    if parameters.get("openfirewall", "true") == "true" and not network.get("vpcid"):
        _open(world, ip, lb_protocol, port, [EVERYONE])

    def effect() -> Json:
        if id_ not in world.rules:
            raise Refusal(530, "Failed to create load balancer rule")
        world.rules[id_]["state"] = "Active"
        return {"loadbalancer": world.rules[id_]}

    return world.work("createLoadBalancerRule", effect, id=id_)


def _update_rule(world: World, parameters: Parameters) -> Json:
    rule = world.the("rules", parameters["id"])
    changes = {name: parameters[name] for name in ("name", "description") if name in parameters}
    if "algorithm" in parameters:
        if parameters["algorithm"] not in {"source", "roundrobin", "leastconn"}:
            raise Refusal(431, "Invalid algorithm")
        changes["algorithm"] = parameters["algorithm"]
    if "protocol" in parameters:
        changes["protocol"] = _protocol(parameters["protocol"])
    if "cidrlist" in parameters:
        changes["cidrlist"] = _cidrs(parameters["cidrlist"])

    def effect() -> Json:
        rule.update(changes)
        return {"loadbalancer": dict(rule)}

    return world.work("updateLoadBalancerRule", effect)


def _delete_rule(world: World, parameters: Parameters) -> Json:
    rule = world.the("rules", parameters["id"])
    rule["state"] = "Revoke"

    def effect() -> None:
        world.remove("rules", rule["id"])
        world.members.pop(rule["id"], None)
        ip = world.ips[rule["publicipid"]]
        if ip.get("vpcid") and not any(
            one["publicipid"] == ip["id"] for one in world.rules.values()
        ):
            ip.pop("associatednetworkid", None)

    return world.work("deleteLoadBalancerRule", effect)


def _instances(world: World, parameters: Parameters) -> list[Json]:
    world.the("rules", parameters["id"])
    members = world.members.get(parameters["id"], [])
    return [{"id": one} for one in members if one in world.machines]


def _assign(world: World, parameters: Parameters) -> Json:
    rule, ids = world.the("rules", parameters["id"]), listed(parameters["virtualmachineids"])
    for id_ in ids:
        machine = world.machines.get(id_)
        if machine is None or machine["state"] in {"Destroyed", "Expunging"}:
            raise Refusal(431, f"Invalid instance id: {id_}")
        check_access(world, "machines", machine)
        check_same_owner(world, ("rules", rule), ("machines", machine))
        if id_ in world.members[rule["id"]]:
            raise Refusal(431, f"VM {id_} is already mapped to load balancer.")
        if rule["networkid"] not in {nic["networkid"] for nic in machine["nic"]}:
            raise Refusal(431, f"Instance {id_} cannot be added: it has no nic in the network")

    def effect() -> None:
        there = world.members[rule["id"]]
        there += [id_ for id_ in ids if id_ not in there and id_ in world.machines]

    return world.work("assignToLoadBalancerRule", effect)


def _unassign(world: World, parameters: Parameters) -> Json:
    rule, ids = world.the("rules", parameters["id"]), listed(parameters["virtualmachineids"])

    def effect() -> None:
        there = world.members[rule["id"]]
        world.members[rule["id"]] = [one for one in there if one not in ids]

    return world.work("removeFromLoadBalancerRule", effect)


def _networks(world: World, parameters: Parameters) -> list[Json]:
    found = filter(shown_to(world, parameters, "networks"), world.networks.values())
    wanted = {key: parameters[key] for key in ("id", "vpcid") if key in parameters}
    return [world.shown("networks", one) for one in found if wanted.items() <= one.items()]


def _firewall(world: World, parameters: Parameters) -> list[Json]:
    ip = parameters.get("ipaddressid", "")
    if ip:
        world.the("ips", ip, "ipaddressid")
    return [
        world.shown("firewall", one)
        for one in filter(shown_to(world, parameters, "firewall"), world.firewall.values())
        if ip in {"", one["ipaddressid"]}
    ]


def _create_firewall(world: World, parameters: Parameters) -> Json:
    ip = world.the("ips", parameters["ipaddressid"], "ipaddressid")
    network = world.networks.get(ip.get("associatednetworkid", ""))
    if network is None or network.get("vpcid"):
        raise Refusal(431, "Unable to create firewall rule for the ip id: it is not in a network")
    first, last = _port(parameters["startport"]), _port(parameters["endport"])
    if parameters["protocol"] not in {"tcp", "udp"} or first > last:
        raise Refusal(431, "Invalid protocol or ports")
    cidrs = listed(parameters.get("cidrlist", "")) or [EVERYONE]
    for one in world.firewall.values():
        overlaps = one["startport"] <= last and first <= one["endport"]
        same = (one["ipaddressid"], one["protocol"]) == (ip["id"], parameters["protocol"])
        if same and overlaps and set(cidrs) & set(one["cidrlist"].split(",")):
            raise Refusal(537, f"The range specified conflicts with rule {one['id']}")
    id_ = _open(world, ip, parameters["protocol"], first, cidrs)

    def effect() -> Json:
        if id_ in world.firewall:
            world.firewall[id_]["state"] = "Active"
        return {"firewallrule": world.firewall.get(id_, {})}

    return world.work("createFirewallRule", effect, id=id_)


def _open(world: World, ip: Json, protocol: str, port: int, cidrs: list[str]) -> str:
    id_ = world.new_id()
    world.firewall[id_] = {
        "id": id_, "ipaddressid": ip["id"], "ipaddress": ip["ipaddress"], "state": "Add",
        "protocol": _transport(protocol), "startport": port, "endport": port,
        "cidrlist": ",".join(map(_checked, cidrs)), "networkid": ip.get("associatednetworkid"),
    }  # fmt: skip
    return id_


def _delete_firewall(world: World, parameters: Parameters) -> Json:
    world.the("firewall", parameters["id"])
    return world.work("deleteFirewallRule", lambda: world.remove("firewall", parameters["id"]))


def _acl_lists(world: World, parameters: Parameters) -> list[Json]:
    return [one for one in world.acl_lists.values() if parameters.get("id") == one["id"]]


def _acl_items(world: World, parameters: Parameters) -> list[Json]:
    list_ = parameters.get("aclid", "")
    if not list_ and "networkid" in parameters:
        list_ = world.networks[parameters["networkid"]].get("aclid", "none")
    if list_ in world.acl_lists:
        # One list is shown to whom its VPC is accessible, whatever the project.
        world.the("acl_lists", list_, "aclid")
        there = [*world.acl_items.values()]
    else:
        is_shown = shown_to(world, parameters, "acl_items")
        there = [*filter(is_shown, world.acl_items.values())]
    return [world.shown("acl_items", one) for one in there if list_ in {"", one["aclid"]}]


def _create_acl_item(world: World, parameters: Parameters) -> Json:
    list_ = world.the("acl_lists", parameters["aclid"], "aclid")
    if list_["name"] in {"default_allow", "default_deny"}:
        raise Refusal(431, "Default ACL cannot be modified")
    if parameters["protocol"] not in {"tcp", "udp", "all", "icmp"}:
        raise Refusal(431, f"Invalid protocol {parameters['protocol']}")
    id_, taken = world.new_id(), [one["number"] for one in world.acl_items.values()]
    world.acl_items[id_] = {
        "id": id_, "aclid": list_["id"], "aclname": list_["name"], "number": max(taken, default=0) + 1,
        "protocol": parameters["protocol"], "action": parameters.get("action", "Allow"),
        "traffictype": parameters.get("traffictype", "Ingress"), "state": "Add",
        "startport": str(_port(parameters["startport"])),
        "endport": str(_port(parameters["endport"])), "reason": parameters.get("reason", ""),
        "cidrlist": ",".join(map(_checked, listed(parameters.get("cidrlist", EVERYONE)))),
    }  # fmt: skip

    def effect() -> Json:
        world.acl_items[id_]["state"] = "Active"
        return {"networkacl": world.acl_items[id_]}

    return world.work("createNetworkACL", effect, id=id_)


def _delete_acl_item(world: World, parameters: Parameters) -> Json:
    world.the("acl_items", parameters["id"])
    return world.work("deleteNetworkACL", lambda: world.remove("acl_items", parameters["id"]))


def _protocol(text: str) -> str:
    if text.lower() not in {"tcp", "udp", "tcp-proxy"}:
        raise Refusal(431, f"Invalid protocol {text}")
    return text.lower()


def _transport(protocol: str) -> str:
    return "udp" if protocol == "udp" else "tcp"


def _port(text: str) -> int:
    if not 1 <= int(text) <= 65535:
        raise Refusal(431, f"Invalid port {text}")
    return int(text)


def _checked(cidr: str) -> str:
    try:
        ipaddress.ip_network(cidr)
    except ValueError:
        raise Refusal(431, f"Source cidrs formatting error {cidr}") from None
    return cidr


def _cidrs(text: str) -> str:
    return " ".join(map(_checked, listed(text)))


BALANCING: Final[Mapping[str, Callable[[World, Parameters], Any]]] = {
    "assignToLoadBalancerRule": _assign,
    "associateIpAddress": _associate,
    "createFirewallRule": _create_firewall,
    "createLoadBalancerRule": _create_rule,
    "createNetworkACL": _create_acl_item,
    "deleteFirewallRule": _delete_firewall,
    "deleteLoadBalancerRule": _delete_rule,
    "deleteNetworkACL": _delete_acl_item,
    "disassociateIpAddress": _disassociate,
    "listFirewallRules": _firewall,
    "listLoadBalancerRuleInstances": _instances,
    "listLoadBalancerRules": _rules,
    "listNetworkACLLists": _acl_lists,
    "listNetworkACLs": _acl_items,
    "listNetworks": _networks,
    "listPublicIpAddresses": _addresses,
    "removeFromLoadBalancerRule": _unassign,
    "updateLoadBalancerRule": _update_rule,
}
