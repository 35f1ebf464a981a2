"""Read CloudStack's descriptions of rules, addresses and networks. Pure."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.names import digest_of
from proreus.providers.cloudstack.balancing import owners
from proreus.providers.cloudstack.balancing.annotations import EVERYONE
from proreus.providers.cloudstack.balancing.parts import (
    Network,
    Opening,
    Policy,
    Rule,
    transport_of,
)

Described = Mapping[str, Any]

FIXED_LISTS: Final = frozenset({"default_allow", "default_deny"})
"""Access lists of CloudStack itself, which nobody can change."""
FREE: Final = "Free"
"""The state of a public address that nobody has acquired."""
ALLOCATING: Final = "Allocating"
"""The state of one that somebody is acquiring; it need not belong to a network yet."""
BY_SOURCE: Final = "SourceBased"
"""The stickiness method that goes by clients' addresses, for any protocol."""
EXPIRE: Final = "expire"
"""Its parameter of virtual routers: after which time without a connection an entry ends."""

_SECONDS = re.compile(r"(\d{1,9})s")


class _Parameter(msgspec.Struct):
    paramname: str = ""


class _Method(msgspec.Struct):
    methodname: str = ""
    paramlist: list[_Parameter] = []


def rule(described: Described, ref: LoadBalancerRef, members: Iterable[str]) -> Rule:
    """Read a rule, with the ids of its machines."""
    return Rule(
        name=str(described.get("name", "")),
        protocol=str(described.get("protocol") or "tcp").lower(),
        port=int(described["publicport"]),
        node_port=int(described["privateport"]),
        algorithm=str(described.get("algorithm", "")),
        cidrs=cidrs_of(described) or EVERYONE,
        network=str(described.get("networkid", "")),
        address=str(described.get("publicipid", "")),
        members=frozenset(members),
        id=str(described["id"]),
        state=str(described.get("state", "")),
        is_marked=owners.is_marked(described, ref),
    )


def cidrs_of(described: Described) -> frozenset[str]:
    """Return the sources of a rule; releases separate them by commas or by spaces."""
    return frozenset(str(described.get("cidrlist") or "").replace(",", " ").split())


def network(described: Described) -> Network:
    """Read a network."""
    services = {str(one.get("name")): one for one in described.get("service") or ()}
    acl = str(described.get("aclid") or "")
    is_fixed = described.get("aclname") in FIXED_LISTS
    return Network(
        id=str(described["id"]),
        vpc=str(described.get("vpcid") or ""),
        acl="" if is_fixed or "NetworkACL" not in services else acl,
        has_firewall="Firewall" in services and not described.get("vpcid"),
        has_balancing=not services or _is_balanced(services.get("Lb")),
        has_stickiness=_is_sticky(services.get("Lb")),
        zone=str(described.get("zoneid") or ""),
        claims=owners.claims_of(owners.tags_of(described)),
    )


def _is_balanced(lb: Described | None) -> bool:
    """Tell whether a network's service Lb, if there is one, takes public addresses."""
    return lb is not None and "public" in _capability(lb, "LbSchemes", "public").lower()


def _is_sticky(lb: Described | None) -> bool:
    """Tell whether a network's service Lb has the method for any protocol, with its time-out.

    Other devices than virtual routers count that time in other units, by other names.
    """
    if lb is None:
        return False
    try:
        methods = msgspec.json.decode(
            _capability(lb, "SupportedStickinessMethods", "[]"), type=list[_Method]
        )
    except msgspec.DecodeError:
        return False
    return any(
        one.methodname == BY_SOURCE and EXPIRE in {of.paramname for of in one.paramlist}
        for one in methods
    )


def policies(described: Iterable[Described], ref: LoadBalancerRef) -> Iterator[Policy]:
    """Read the stickiness policies of a rule, each of them in a list of its own kind."""
    for listed in described:
        for one in listed.get("stickinesspolicy") or ():
            is_by_source = str(one.get("methodname")).lower() == BY_SOURCE.lower()
            time = _SECONDS.fullmatch(str((one.get("params") or {}).get(EXPIRE) or ""))
            seconds = int(time[1]) if time and is_by_source else 0
            yield Policy(str(one["id"]), seconds, is_ours=owners.is_marked(one, ref))


def _capability(service: Described, name: str, default: str) -> str:
    """Return what a network's service says of one of its capabilities."""
    found = {str(one.get("name")): one.get("value") for one in service.get("capability") or ()}
    return str(found.get(name) or default)


def openings(firewall: Iterable[Described]) -> Iterator[Opening]:
    """Read the firewall rules of an address that are for one port; others are passed over."""
    for one in firewall:
        if one.get("startport") and str(one["startport"]) == str(one.get("endport")):
            key = transport_of(str(one.get("protocol", "")).lower()), int(one["startport"])
            if str(one.get("protocol", "")).lower() in {"tcp", "udp"}:
                yield Opening(key, cidrs_of(one), str(one["id"]))


def items(acl: Iterable[Described], ref: LoadBalancerRef) -> Iterator[Opening]:
    """Read the items of an access list that let clients reach one port.

    Items of other Services are passed over: they are deleted with these.
    """
    for one in acl:
        protocol = str(one.get("protocol", "")).lower()
        is_open = str(one.get("action")).lower() == "allow"
        is_in = str(one.get("traffictype")).lower() == "ingress"
        is_one = one.get("startport") and str(one["startport"]) == str(one.get("endport"))
        if is_open and is_in and is_one and protocol in {"tcp", "udp"}:
            ours = owners.is_marked(one, ref)
            key = protocol, int(one["startport"])
            if ours or not owners.owners_of(one):
                yield Opening(key, cidrs_of(one), str(one["id"]), is_ours=ours)


def is_in_zone(described: Described, zone: str) -> bool:
    """Tell whether an object is in a zone; "" stands for one that CloudStack has not told."""
    return not zone or described.get("zoneid") == zone


def is_usable_in(address: Described, network: Network) -> bool:
    """Tell whether rules of a network can be on an address that is acquired. Pure."""
    there = str(address.get("associatednetworkid") or "")
    is_here = not there or there == network.id or bool(network.vpc)
    return str(address.get("vpcid") or "") == network.vpc and is_here


def free(addresses: Iterable[Described], taken: Collection[str]) -> list[str]:
    """Return the addresses that nobody has acquired, nor is about to."""
    found = (str(one["ipaddress"]) for one in addresses if one.get("state") == FREE)
    return sorted(one for one in found if one not in taken)


def is_kept(address: Described) -> bool:
    """Tell whether an address is a network's way out, or one machine's by static NAT."""
    return bool(address.get("issourcenat") or address.get("isstaticnat"))


def is_bare(address: Described, network: Network) -> bool:
    """Tell whether an address was acquired for a network, and shows no tags or rules."""
    if address.get("state") == FREE or address.get("hasrules") or address.get("tags"):
        return False
    if is_kept(address):
        return False
    there = address.get("associatednetworkid")
    is_here = there == network.id if there else bool(address.get("vpcid"))
    return is_here and (not network.vpc or address.get("vpcid") == network.vpc)


def visible(rules: Iterable[Rule]) -> str:
    """Return a digest of what a listing shows of a Service's rules."""
    return digest_of(
        sorted(
            repr((one.id, one.name, one.address, one.key, one.node_port, one.protocol))
            + repr((one.algorithm, sorted(one.cidrs)))
            for one in rules
        )
    )
