"""Foresees what a step does to a classic load balancer, and describes it. Pure."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from proreus.cloudprovider.load_balancers import PartChange
from proreus.providers.aws.classic.parts import Balancer, Desired, Observed
from proreus.providers.aws.classic.plan import (
    AddTags,
    ApplyGroups,
    AttachSubnets,
    ChangeAttributes,
    ChangeCertificate,
    ConfigureHealthCheck,
    CreateBalancer,
    CreateListeners,
    CreatePolicy,
    DeleteListeners,
    Deregister,
    DetachSubnets,
    Register,
    SetBackendPolicies,
    SetListenerPolicies,
    Step,
)
from proreus.providers.aws.listeners import Listener
from proreus.providers.aws.own_groups import (
    ChangeRules,
    CreateGroup,
    TagGroup,
    group_part_changes,
    pretend_group,
)


def pretend(observed: Observed, step: Step, desired: Desired) -> Observed:
    """Return what AWS would have after a step, if it refuses nothing.

    A new load balancer has no host name yet. The zone of a subnet that is not desired is not known:
    where one is left, it counts as a zone of its own.
    """
    match step:
        case CreateGroup() | ChangeRules() | TagGroup():
            group = pretend_group(observed.group, step, desired.own, desired.tags)
            return msgspec.structs.replace(observed, group=group)
        case CreateBalancer(groups):
            return msgspec.structs.replace(observed, balancer=made(desired, groups))
    if observed.balancer is None:
        raise AssertionError(step)
    fields = _changed(observed.balancer, step, desired)
    return msgspec.structs.replace(
        observed, balancer=msgspec.structs.replace(observed.balancer, **fields)
    )


def _changed(have: Balancer, step: Step, desired: Desired) -> Mapping[str, Any]:
    """Return the fields of the load balancer that differ after a step."""
    found: dict[str, Any] = {}
    match step:
        case AttachSubnets() | DetachSubnets():
            found = _placed(have, step, desired)
        case CreateListeners() | DeleteListeners() | ChangeCertificate():
            found = _listening(have, step, desired)
        case CreatePolicy() | SetListenerPolicies() | SetBackendPolicies():
            found = _under_policies(have, step)
        case ApplyGroups(groups):
            found = {"groups": groups}
        case ConfigureHealthCheck(health):
            found = {"health": health}
        case ChangeAttributes(attributes):
            found = {"attributes": {**have.attributes, **attributes}}
        case AddTags(tags):
            found = {"tags": {**have.tags, **tags}}
        case Register(new):
            found = {"targets": have.targets | set(new)}
        case Deregister(gone):
            found = {"targets": have.targets - set(gone)}
    return found


def _placed(
    have: Balancer, step: AttachSubnets | DetachSubnets, desired: Desired
) -> dict[str, Any]:
    given = set(step.subnets)
    is_more = isinstance(step, AttachSubnets)
    subnets = have.subnets | given if is_more else have.subnets - given
    zones = frozenset(desired.subnets.get(one, f"zone of {one}") for one in subnets)
    return {"subnets": subnets, "zones": zones}


def _listening(
    have: Balancer, step: CreateListeners | DeleteListeners | ChangeCertificate, desired: Desired
) -> dict[str, Any]:
    """Return the fields that change with a listener, its policies among them."""
    match step:
        case CreateListeners(new):
            return {"listeners": have.listeners | set(new)}
        case DeleteListeners(gone):
            policies = have.listener_policies.items()
            kept = {port: one for port, one in policies if port not in gone}
            left = frozenset(one for one in have.listeners if one.port not in gone)
            return {"listeners": left, "listener_policies": kept}
        case ChangeCertificate(port):
            others = {one for one in have.listeners if one.port != port}
            changed = {one for one in desired.listeners if one.port == port}
            return {"listeners": frozenset(others | changed)}


def _under_policies(
    have: Balancer, step: CreatePolicy | SetListenerPolicies | SetBackendPolicies
) -> dict[str, Any]:
    match step:
        case CreatePolicy(name, type_):
            return {"policies": {**have.policies, name: type_}}
        case SetListenerPolicies(port, policies):
            return {"listener_policies": {**have.listener_policies, port: policies}}
        case SetBackendPolicies(port, policies):
            return {"backend_policies": {**have.backend_policies, port: policies}}


def made(desired: Desired, groups: tuple[str, ...], dns_name: str = "") -> Balancer:
    """Return a load balancer as it is when it has just been made."""
    return Balancer(
        name=desired.name,
        dns_name=dns_name,
        scheme=desired.scheme,
        subnets=frozenset(desired.subnets),
        zones=frozenset(desired.subnets.values()),
        groups=groups,
        listeners=desired.listeners,
        tags=desired.tags,
    )


def part_changes(step: Step, desired: Desired) -> Iterator[PartChange]:
    """Return the lines of `proreus plan` about a step."""
    name = f"load balancer {desired.name}"
    match step:
        case CreateGroup() | ChangeRules() | TagGroup():
            yield from group_part_changes(step, desired.own)
        case CreateBalancer():
            subnets = " ".join(sorted(desired.subnets))
            yield PartChange("create", name, f"{desired.scheme}, subnets {subnets}")
            yield from _changes_of_listeners(desired.listeners)
        case CreateListeners(listeners):
            yield from _changes_of_listeners(listeners)
        case ApplyGroups(groups):
            yield PartChange("change", name, f"security groups {' '.join(groups)}")
        case AddTags(tags):
            yield PartChange("change", name, f"tags {' '.join(sorted(tags))}")
        case ConfigureHealthCheck(health):
            times = f"every {health.interval} s within {health.timeout} s"
            yield PartChange("change", "health check", f"{health.target} {times}")
        case ChangeAttributes(attributes):
            for section, values in attributes.items():
                detail = ", ".join(f"{key}={one}" for key, one in values.items())
                yield PartChange("change", f"attribute {section}", detail)
        case _:
            yield from _changes_of_parts(step)


def _changes_of_parts(step: Step) -> Iterator[PartChange]:
    match step:
        case AttachSubnets(ids):
            yield from (PartChange("create", f"subnet {one}") for one in ids)
        case DetachSubnets(ids):
            yield from (PartChange("delete", f"subnet {one}") for one in ids)
        case Register(ids):
            yield from (PartChange("create", f"target {one}") for one in ids)
        case Deregister(ids):
            yield from (PartChange("delete", f"target {one}") for one in ids)
        case DeleteListeners(ports):
            yield from (PartChange("delete", f"listener {port}") for port in ports)
        case ChangeCertificate(port, certificate):
            yield PartChange("change", f"listener {port}", f"certificate {certificate}")
        case CreatePolicy(policy):
            yield PartChange("create", f"policy {policy}")
        case SetListenerPolicies(port, policies):
            yield PartChange("change", f"listener {port}", f"policies {' '.join(policies)}")
        case SetBackendPolicies(port, policies):
            text = " ".join(policies) or "none"
            yield PartChange("change", f"instance port {port}", f"policies {text}")


def _changes_of_listeners(listeners: Collection[Listener]) -> Iterator[PartChange]:
    for one in sorted(listeners):
        tls = f", certificate {one.certificate}" if one.certificate else ""
        yield PartChange(
            "create",
            f"listener {one.port}",
            f"{one.protocol} to {one.instance_protocol} {one.instance_port}{tls}",
        )
