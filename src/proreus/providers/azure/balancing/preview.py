"""Describe the steps of a plan in words, and foresee their effects, for `proreus plan`. Pure."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final

import msgspec

from proreus.cloudprovider.load_balancers import PartChange
from proreus.providers.azure.balancing.balancers import listed
from proreus.providers.azure.balancing.memberships import with_pools
from proreus.providers.azure.balancing.parts import (
    DeleteAddress,
    DeleteBalancer,
    Document,
    Join,
    JoinSet,
    PutAddress,
    PutBalancer,
    PutGroup,
    Scene,
    State,
    Step,
)
from proreus.providers.azure.balancing.plan import model_interfaces
from proreus.providers.azure.ids import last
from proreus.providers.azure.machines import Resource, part, properties

UNKNOWN: Final = {"IPv4": "192.0.2.0", "IPv6": "2001:db8::"}
"""Stands for an address that Azure is to choose."""
_LISTS: Final = ("frontendIPConfigurations", "loadBalancingRules", "probes", "backendAddressPools")


def part_change(step: Step, state: State, scene: Scene) -> PartChange:  # noqa: PLR0911 - a table
    """Return a step as a line of a preview."""
    match step:
        case PutAddress():
            is_there = step.id.lower() in state.addresses
            action = "change" if is_there else "create"
            return PartChange(action, f"public IP {last(step.id)}")  # type: ignore[arg-type]
        case DeleteAddress():
            return PartChange("delete", f"public IP {last(step.id)}")
        case PutBalancer():
            name = scene.place.balancer_name(internal=step.internal)
            observed = state.balancers.get(step.internal)
            detail = _differences(observed, step.document)
            word = "change" if observed is not None else "create"
            return PartChange(word, f"load balancer {name}", detail)  # type: ignore[arg-type]
        case DeleteBalancer():
            name = scene.place.balancer_name(internal=step.internal)
            return PartChange("delete", f"load balancer {name}")
        case PutGroup():
            name = last(scene.place.group_id())
            return PartChange("change", f"security group {name}", _rules(state, step.document))
        case Join():
            return PartChange("change", f"machine {last(step.machine)}", _pools(step))
        case JoinSet():
            return PartChange("change", f"scale set {last(step.set)}", _pools(step))


def _differences(observed: Resource | None, document: Document) -> str:
    words = []
    for field in _LISTS:
        before = {str(one["name"]): properties(one) for one in listed(observed, field)}
        after = {str(one["name"]): properties(one) for one in listed(document, field)}
        words += [f"+{name}" for name in after if name not in before]
        words += [f"-{name}" for name in before if name not in after]
        words += [f"~{name}" for name in after if name in before and after[name] != before[name]]
    return " ".join(words)


def _rules(state: State, document: Document) -> str:
    before = {str(one["name"]) for one in part(state.group or {}, "securityRules") or ()}
    after = {str(one["name"]) for one in part(document, "securityRules") or ()}
    words = [*(f"+{name}" for name in sorted(after - before))]
    return " ".join([*words, *(f"-{name}" for name in sorted(before - after))])


def _pools(step: Join | JoinSet) -> str:
    joined = [f"+{last(pool)}" for pool in step.add]
    return " ".join([*joined, *(f"-{last(pool)}" for pool in step.drop)])


def pretend(state: State, step: Step, scene: Scene) -> State:  # noqa: PLR0911 - a table
    """Return the state after a step, as far as it can be known before it is taken."""
    match step:
        case PutAddress():
            document = {"id": step.id, "name": last(step.id), **step.document}
            family = str(part(document, "publicIPAddressVersion") or "IPv4")
            address = ip_address(UNKNOWN[family]) + len(state.addresses)
            filled = {"ipAddress": str(address), **properties(document)}
            document["properties"] = filled
            return _with(state, addresses={**state.addresses, step.id.lower(): document})
        case DeleteAddress():
            left = {key: one for key, one in state.addresses.items() if key != step.id.lower()}
            return _with(state, addresses=left)
        case PutBalancer():
            found = _numbered(step.document, scene, internal=step.internal)
            return _with(state, balancers={**state.balancers, step.internal: found})
        case DeleteBalancer():
            return _with(state, balancers={**state.balancers, step.internal: None})
        case PutGroup():
            return _with(state, group=step.document)
        case Join():
            members = dict(state.members)
            for pool in step.add:
                members[pool.lower()] = members.get(pool.lower(), frozenset()) | {step.machine}
            for pool in step.drop:
                members[pool.lower()] = members.get(pool.lower(), frozenset()) - {step.machine}
            return _with(state, members=members)
        case JoinSet():
            return _with(state, sets={**state.sets, step.set: _model(state, step)})


def _with(state: State, **fields: Any) -> State:
    return msgspec.structs.replace(state, **fields)


def _numbered(document: Document, scene: Scene, *, internal: bool) -> Document:
    """Return a load balancer with the private addresses that Azure would fill in."""
    name = scene.place.balancer_name(internal=internal)
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


def _model(state: State, step: JoinSet) -> Document:
    model = dict(state.sets[step.set])
    changed = [with_pools(one, step.add, step.drop) or one for one in model_interfaces(model)[:1]]
    profile = {"networkProfile": {"networkInterfaceConfigurations": changed}}
    return {**model, "properties": {**properties(model), "virtualMachineProfile": profile}}
