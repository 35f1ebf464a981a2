"""Forwarding rules and backend services, and the addresses of rules, as Google's pages say.

https://cloud.google.com/load-balancing/docs/internal,
https://cloud.google.com/load-balancing/docs/network/networklb-backend-service and
https://cloud.google.com/load-balancing/docs/backend-service.
"""

import ipaddress
from itertools import islice
from typing import Final

from .endpoints import check_backends
from .errors import ApiError, invalid
from .world import Resource, World, fingerprint

MOST_PORTS: Final = 5
SHARED: Final = "SHARED_LOADBALANCER_VIP"


def is_v6(address: str) -> bool:
    """Whether an address, or a range, is of IPv6; a URL is not."""
    try:
        return ipaddress.ip_interface(address).version == 6
    except ValueError:
        return False


def free(world: World, body: Resource) -> str:
    """An address that nothing has, for a rule or for a reservation."""
    taken = {one.get("address") or one.get("IPAddress") for one in world.objects.values()}
    taken |= {
        nic.get("networkIP")
        for _, one in world.of("instances")
        for nic in one.get("networkInterfaces", [])
    }
    bare = {one.partition("/")[0] for one in taken if one}
    if body.get("ipVersion") == "IPV6":
        range_ = ipaddress.IPv6Network(_subnetwork_of_v6(world, body)["ipv6CidrRange"])
        subnets = islice(range_.subnets(new_prefix=96), 1, None)
        return next(str(one[0]) for one in subnets if str(one[0]) not in bare)
    if body.get("subnetwork"):
        network = world.get(world.path(body["subnetwork"]))["ipCidrRange"]
        pool = ipaddress.ip_network(network)
        return next(str(one) for one in list(pool.hosts())[1000:] if str(one) not in bare)
    tier = {"STANDARD": "35.206.0.0/16"}.get(body.get("networkTier", ""), "34.10.0.0/16")
    return next(str(one) for one in ipaddress.ip_network(tier).hosts() if str(one) not in bare)


def _subnetwork_of_v6(world: World, body: Resource) -> Resource:
    """The subnetwork of a rule of IPv6, which must be dual-stack and of the rule's type."""
    scheme = body.get("loadBalancingScheme", body.get("addressType", "EXTERNAL"))
    if not body.get("subnetwork"):
        raise invalid("resource.subnetwork", "", "A rule of IPv6 needs a subnetwork.")
    found = world.get(world.require(body["subnetwork"], "subnetwork"))
    if found.get("stackType") != "IPV4_IPV6" or found.get("ipv6AccessType") != scheme:
        raise invalid("resource.subnetwork", body["subnetwork"], f"It has no IPv6 of {scheme}.")
    return found


def _network(world: World, one: Resource) -> str:
    """The network in which an internal address means something; "" for an external one."""
    if "INTERNAL" not in {one.get("addressType"), one.get("loadBalancingScheme")}:
        return ""
    found: str = world.get(world.path(one["subnetwork"]))["network"]
    return found


def address_of(world: World, address: str, body: Resource) -> Resource | None:
    """The reserved address with this value, in the network of a rule or an address."""
    bare, network = address.partition("/")[0], _network(world, body)
    of_value = (one for _, one in world.of("addresses") if one["address"] == bare)
    return next((one for one in of_value if _network(world, one) == network), None)


def rules_with(world: World, address: str, body: Resource) -> list[Resource]:
    """The forwarding rules with this address, in the network of a rule or an address."""
    bare, network = address.partition("/")[0], _network(world, body)
    rules = (one for _, one in world.of("forwardingRules"))
    of_value = (one for one in rules if one["IPAddress"].partition("/")[0] == bare)
    return [one for one in of_value if _network(world, one) == network]


def forwarding_rule(world: World, body: Resource) -> Resource:
    """A forwarding rule, checked and completed."""
    scheme = body.setdefault("loadBalancingScheme", "EXTERNAL")
    protocol = body.get("IPProtocol")
    if protocol not in {"TCP", "UDP", "SCTP", "ESP", "AH", "ICMP", "L3_DEFAULT"}:
        raise invalid("resource.IPProtocol", protocol)
    body["fingerprint"] = fingerprint(body)
    if body.get("ipVersion") == "IPV6":
        _subnetwork_of_v6(world, body)
    if protocol == "L3_DEFAULT" and not body.get("allPorts"):
        raise invalid("resource.allPorts", "false", "L3_DEFAULT needs all ports.")
    if sum(bool(body.get(field)) for field in ("ports", "portRange", "allPorts")) != 1:
        raise invalid("resource.ports", "", "Give one of ports, portRange and allPorts.")
    if len(body.get("ports") or ()) > MOST_PORTS:
        raise invalid("resource.ports", body["ports"], "Give one to five ports, or allPorts.")
    if scheme == "INTERNAL":
        return _internal(world, body)
    if bool(body.get("target")) == bool(body.get("backendService")):
        raise invalid(
            "resource.target", body.get("target", ""), "Give a target or a backendService."
        )
    if body.get("target"):
        _of_pool(world, body)
    else:
        _of_backend_service(world, body)
    body.setdefault("networkTier", "PREMIUM")
    if body.get("ipVersion") == "IPV6" and body["networkTier"] != "PREMIUM":
        raise invalid("resource.networkTier", body["networkTier"], "IPv6 has Premium only.")
    _check_address(world, body)
    return body


def _of_pool(world: World, body: Resource) -> None:
    if body.get("ipVersion") == "IPV6":
        raise invalid("resource.ipVersion", "IPV6", "Target pools have IPv4 only.")
    body["target"] = world.link(world.require(body["target"], "target"))
    first, _, last = body.get("portRange", "").partition("-")
    if not first.isdigit():
        raise invalid("resource.portRange", body.get("portRange", ""))
    body["portRange"] = f"{int(first)}-{int(last or first)}"


def _of_backend_service(world: World, body: Resource) -> None:
    """The backend service of an external rule: of the same protocol, or UNSPECIFIED."""
    service = world.require(body["backendService"], "backendService")
    if world.get(service)["loadBalancingScheme"] != "EXTERNAL":
        raise invalid("resource.backendService", service)
    if world.get(service)["protocol"] not in {"UNSPECIFIED", body["IPProtocol"]}:
        raise invalid("resource.IPProtocol", body["IPProtocol"], "The backend service has another.")
    body["backendService"] = world.link(service)


def _internal(world: World, body: Resource) -> Resource:
    if body.get("networkTier"):
        raise invalid("resource.networkTier", body["networkTier"])
    if body.get("portRange"):
        raise invalid("resource.portRange", body["portRange"])
    service = world.require(body.get("backendService", ""), "backendService")
    protocol = body["IPProtocol"]
    if world.get(service)["protocol"] != {"L3_DEFAULT": "UNSPECIFIED"}.get(protocol, protocol):
        raise invalid("resource.IPProtocol", protocol, "The backend service has another.")
    if world.get(service)["loadBalancingScheme"] != "INTERNAL":
        raise invalid("resource.backendService", service)
    body["backendService"] = world.link(service)
    subnet = world.require(body.get("subnetwork", ""), "subnetwork")
    body["subnetwork"] = world.link(subnet)
    body["network"] = world.get(subnet)["network"]
    body.setdefault("allowGlobalAccess", False)
    _check_address(world, body)
    return body


def _check_address(world: World, body: Resource) -> None:
    address = body.get("IPAddress", "")
    if not address:
        return
    if "/" in address and not is_v6(address):
        address = body["IPAddress"] = world.get(world.path(address))["address"]
    if is_v6(address) != (body.get("ipVersion") == "IPV6"):
        raise invalid("resource.IPAddress", address, "It is of another version of IP.")
    reserved = address_of(world, address, body)
    is_internal = body["loadBalancingScheme"] == "INTERNAL"
    if reserved is None and not is_internal:
        raise invalid("resource.IPAddress", address, "Specified IP address is not reserved.")
    if reserved is not None and reserved.get("networkTier") != body.get("networkTier"):
        raise invalid("resource.networkTier", body.get("networkTier"), "The address has another.")
    if reserved is not None and reserved["addressType"] != body["loadBalancingScheme"]:
        raise invalid("resource.IPAddress", address, "The address is of another type.")
    if is_internal:
        subnet = world.get(world.path(body["subnetwork"]))
        range_ = subnet["ipv6CidrRange" if is_v6(address) else "ipCidrRange"]
        if ipaddress.ip_address(address.partition("/")[0]) not in ipaddress.ip_network(range_):
            raise invalid("resource.IPAddress", address, "It is outside of the subnetwork.")
    if is_internal and any(_has(one, address, body) for _, one in world.of("instances")):
        why = f"IP '{address}' is already being used by another resource."
        raise ApiError(409, "IP_IN_USE_BY_ANOTHER_RESOURCE", why)
    shares = not is_internal or (reserved is not None and reserved.get("purpose") == SHARED)
    for other in rules_with(world, address, body):
        if not shares or other["IPProtocol"] == body["IPProtocol"]:
            why = f"IP '{address}' is already being used by another resource."
            raise ApiError(409, "IP_IN_USE_BY_ANOTHER_RESOURCE", why)


def _has(instance: Resource, address: str, body: Resource) -> bool:
    """Whether an instance has an address in the subnetwork of a rule."""
    return any(
        nic.get("networkIP") == address and nic["subnetwork"] == body["subnetwork"]
        for nic in instance.get("networkInterfaces", [])
    )


def backend_service(world: World, path: str, body: Resource) -> Resource:
    """A backend service, checked and completed; external ones have regional health checks."""
    body.setdefault("sessionAffinity", "NONE")
    checks = [
        world.link(world.require(one, "healthChecks")) for one in body.get("healthChecks", [])
    ]
    if len(checks) != 1:
        raise invalid("resource.healthChecks", checks, "Give exactly one.")
    if body.get("loadBalancingScheme") == "EXTERNAL" and "/regions/" not in checks[0]:
        raise invalid("resource.healthChecks", checks, "It must be of the region.")
    body["healthChecks"] = checks
    body["backends"] = [
        {
            "balancingMode": "CONNECTION",
            **one,
            "group": world.link(world.require(one["group"], "backends")),
        }
        for one in body.get("backends", [])
    ]
    check_backends(world, [one["group"] for one in body["backends"]])
    draining = body.get("connectionDraining") or {}
    if draining.get("drainingTimeoutSec") and body.get("protocol") != "TCP":
        raise invalid("resource.connectionDraining", draining, "It is for TCP.")
    body["fingerprint"] = fingerprint({**body, "fingerprint": ""})
    return body
