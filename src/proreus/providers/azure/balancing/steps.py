"""Make the steps of a plan: call, effect and preview of each. Pure."""

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final

import msgspec

from proreus.cloudprovider.load_balancers import PartChange
from proreus.cloudprovider.steps import PlannedCall
from proreus.providers.azure.balancing.balancers import listed
from proreus.providers.azure.balancing.desired import Place
from proreus.providers.azure.balancing.memberships import model_interfaces, with_pools
from proreus.providers.azure.balancing.parts import Document, State
from proreus.providers.azure.ids import last
from proreus.providers.azure.machines import Resource, part, properties

UNKNOWN: Final = {"IPv4": "192.0.2.0", "IPv6": "2001:db8::"}
"""Stands for an address that Azure is to choose."""
_LISTS: Final = ("frontendIPConfigurations", "loadBalancingRules", "probes", "backendAddressPools")


class PutAddress(msgspec.Struct, frozen=True):
    """The call that makes or changes a public address."""

    id: str
    document: Document


class DeleteAddress(msgspec.Struct, frozen=True):
    """The call that deletes a public address."""

    id: str


class PutBalancer(msgspec.Struct, frozen=True):
    """The call that makes or changes a load balancer."""

    name: str
    document: Document


class DeleteBalancer(msgspec.Struct, frozen=True):
    """The call that deletes a load balancer."""

    name: str


class PutGroup(msgspec.Struct, frozen=True):
    """The call that changes the security group."""

    document: Document


class Join(msgspec.Struct, frozen=True):
    """The call that puts a machine's interface into pools, and takes it out of others."""

    machine: str
    add: Sequence[str] = ()
    drop: Sequence[str] = ()


class JoinSet(msgspec.Struct, frozen=True):
    """The call that puts a scale set's model into pools, so that new machines start in them."""

    set: str
    add: Sequence[str] = ()
    drop: Sequence[str] = ()


class PutLink(msgspec.Struct, frozen=True):
    """The call that makes or changes a private link service."""

    id: str
    document: Document


class DeleteLink(msgspec.Struct, frozen=True):
    """The calls that delete a private link service, after its connections, by their names."""

    id: str
    connections: Sequence[str] = ()


Call = (
    PutAddress | DeleteAddress | PutBalancer | DeleteBalancer | PutGroup | Join | JoinSet
    | PutLink | DeleteLink
)  # fmt: skip
Step = PlannedCall[Call, State]


def put_address(id_: str, document: Document, *, is_new: bool) -> Step:
    """Return the step to make or change a public address; Azure chooses that of a new one."""

    def after(now: State) -> State:
        family = str(part(document, "publicIPAddressVersion") or "IPv4")
        address = str(ip_address(UNKNOWN[family]) + len(now.addresses))
        filled = {"ipAddress": address, **properties(document)}
        made = {"id": id_, "name": last(id_), **document, "properties": filled}
        return now.having(addresses={**now.addresses, id_.lower(): made})

    line = PartChange("create" if is_new else "change", f"public IP {last(id_)}")
    return PlannedCall(PutAddress(id_, document), after, (line,))


def delete_address(id_: str) -> Step:
    """Return the step to delete a public address."""

    def after(now: State) -> State:
        left = {key: one for key, one in now.addresses.items() if key != id_.lower()}
        return now.having(addresses=left)

    line = PartChange("delete", f"public IP {last(id_)}")
    return PlannedCall(DeleteAddress(id_), after, (line,))


def put_balancer(name: str, observed: Resource | None, document: Document) -> Step:
    """Return the step to make or change a load balancer."""
    detail = _differences(observed, document)
    line = PartChange("create" if observed is None else "change", f"load balancer {name}", detail)
    return PlannedCall(
        PutBalancer(name, document),
        lambda now: now.having(balancers={**now.balancers, name: _numbered(document, name)}),
        (line,),
    )


def delete_balancer(name: str) -> Step:
    """Return the step to delete a load balancer that has no parts left."""
    line = PartChange("delete", f"load balancer {name}")
    return PlannedCall(
        DeleteBalancer(name),
        lambda now: now.having(balancers={**now.balancers, name: None}),
        (line,),
    )


def put_group(place: Place, observed: Resource, document: Document) -> Step:
    """Return the step to change the security group."""
    name = f"security group {last(place.group_id())}"
    line = PartChange("change", name, _rules(observed, document))
    return PlannedCall(PutGroup(document), lambda now: now.having(group=document), (line,))


def join(machine: str, add: Sequence[str] = (), drop: Sequence[str] = ()) -> Step:
    """Return the step to put a machine's interface into pools, and out of others."""

    def after(now: State) -> State:
        members = dict(now.members)
        for pool in map(str.lower, add):
            members[pool] = members.get(pool, frozenset()) | {machine}
        for pool in map(str.lower, drop):
            members[pool] = members.get(pool, frozenset()) - {machine}
        return now.having(members=members)

    line = PartChange("change", f"machine {last(machine)}", _pools(add, drop))
    return PlannedCall(Join(machine, add, drop), after, (line,))


def join_set(set_: str, add: Sequence[str] = (), drop: Sequence[str] = ()) -> Step:
    """Return the step to put a scale set's model of interfaces into pools, and out of others."""

    def after(now: State) -> State:
        model = dict(now.sets[set_])
        changed = [with_pools(one, add, drop) or one for one in model_interfaces(model)[:1]]
        profile = {"networkProfile": {"networkInterfaceConfigurations": changed}}
        model["properties"] = {**properties(model), "virtualMachineProfile": profile}
        return now.having(sets={**now.sets, set_: model})

    line = PartChange("change", f"scale set {last(set_)}", _pools(add, drop))
    return PlannedCall(JoinSet(set_, add, drop), after, (line,))


def put_link(id_: str, document: Document, *, is_new: bool) -> Step:
    """Return the step to make or change a private link service."""
    made = {"id": id_, "name": last(id_), **document}
    line = PartChange("create" if is_new else "change", f"private link service {last(id_)}")
    return PlannedCall(
        PutLink(id_, document),
        lambda now: now.having(links={**now.links, id_.lower(): made}),
        (line,),
    )


def delete_link(id_: str, connections: Sequence[str] = ()) -> Step:
    """Return the step to delete a private link service and its connections."""

    def after(now: State) -> State:
        left = {key: one for key, one in now.links.items() if key != id_.lower()}
        return now.having(links=left)

    line = PartChange("delete", f"private link service {last(id_)}")
    return PlannedCall(DeleteLink(id_, connections), after, (line,))


def _differences(observed: Resource | None, document: Document) -> str:
    words = []
    for field in _LISTS:
        before = {str(one["name"]): properties(one) for one in listed(observed, field)}
        after = {str(one["name"]): properties(one) for one in listed(document, field)}
        words += [f"+{name}" for name in after if name not in before]
        words += [f"-{name}" for name in before if name not in after]
        words += [f"~{name}" for name in after if name in before and after[name] != before[name]]
    return " ".join(words)


def _rules(observed: Resource, document: Document) -> str:
    before = {str(one["name"]) for one in part(observed, "securityRules") or ()}
    after = {str(one["name"]) for one in part(document, "securityRules") or ()}
    words = [*(f"+{name}" for name in sorted(after - before))]
    return " ".join([*words, *(f"-{name}" for name in sorted(before - after))])


def _pools(add: Sequence[str], drop: Sequence[str]) -> str:
    return " ".join([*(f"+{last(pool)}" for pool in add), *(f"-{last(pool)}" for pool in drop)])


def _numbered(document: Document, name: str) -> Document:
    """Return a load balancer with the private addresses that Azure would fill in."""
    content = dict(properties(document))
    frontends = []
    for one in content.get("frontendIPConfigurations") or ():
        found: Mapping[str, Any] = properties(one)
        family = str(found.get("privateIPAddressVersion") or "IPv4")
        if found.get("subnet") and not found.get("privateIPAddress"):
            found = {**found, "privateIPAddress": UNKNOWN[family]}
        frontends.append({**one, "properties": found})
    content["frontendIPConfigurations"] = frontends
    return {"name": name, **document, "properties": content}
