"""Foresees what a step does to a network load balancer, and describes it. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from proreus.cloudprovider.load_balancers import PartChange
from proreus.providers.aws.listeners import PortMapping
from proreus.providers.aws.network.parts import (
    DUALSTACK,
    Balancer,
    Desired,
    Listener,
    Observed,
    TargetGroup,
)
from proreus.providers.aws.network.plan import (
    AddTags,
    ChangeAddressType,
    ChangeAttributes,
    ChangeGroups,
    ChangeHealthCheck,
    ChangeListener,
    ChangeSubnets,
    CreateBalancer,
    CreateListener,
    CreateTargetGroup,
    Delete,
    Deregister,
    Register,
    Step,
)
from proreus.providers.aws.own_groups import (
    ChangeRules,
    CreateGroup,
    TagGroup,
    group_part_changes,
    pretend_group,
)

_NEW = "new "
"""Begins the ARN of what AWS has not named yet."""


def pretend(observed: Observed, step: Step, desired: Desired) -> Observed:
    """Return what AWS would have after a step; what is new has no ARN yet."""
    match step:
        case CreateGroup() | ChangeRules() | TagGroup():
            group = pretend_group(observed.group, step, desired.own, desired.tags)
            return msgspec.structs.replace(observed, group=group)
        case CreateBalancer() | CreateTargetGroup() | CreateListener() | ChangeListener():
            return _made(observed, step, desired)
        case ChangeSubnets(subnets) if observed.balancer is not None:
            known = {subnet: zone for zone, subnet in observed.balancer.zones.items()}
            known |= {one.subnet: one.zone for one in desired.placed}
            return in_zones(changed(observed, step), {known[one]: one for one in subnets})
        case _:
            return changed(observed, step)


def in_zones(observed: Observed, zones: Mapping[str, str]) -> Observed:
    """Return what is observed with the load balancer in these subnets, by zone."""
    balancer = observed.balancer and msgspec.structs.replace(observed.balancer, zones=zones)
    return msgspec.structs.replace(observed, balancer=balancer)


def changed(observed: Observed, step: Step) -> Observed:
    """Return what is observed after a step that makes nothing; for zones see `in_zones`."""
    match step:
        case Delete(part):
            return _without(observed, part)
        case Register() | Deregister() | ChangeHealthCheck():
            return _with_group(observed, step)
        case ChangeAttributes(arn, attributes):
            return _updated(observed, arn, "attributes", attributes)
        case AddTags(arn, tags):
            return _updated(observed, arn, "tags", tags)
        case ChangeAddressType() | ChangeGroups() | ChangeSubnets():
            return _with_balancer(observed, step)
    raise AssertionError(step)


def with_listener(observed: Observed, listener: Listener) -> Observed:
    """Return what is observed with a listener added, or replaced by its ARN."""
    others = (one for one in observed.listeners if one.arn != listener.arn)
    return msgspec.structs.replace(observed, listeners=(*others, listener))


def _made(
    observed: Observed,
    step: CreateBalancer | CreateTargetGroup | CreateListener | ChangeListener,
    desired: Desired,
) -> Observed:
    match step:
        case CreateBalancer(groups):
            balancer = Balancer(
                arn=f"{_NEW}{desired.name}",
                name=desired.name,
                dns_name="",
                scheme=desired.scheme,
                state="provisioning",
                address_type=desired.address_type,
                zones={one.zone: one.subnet for one in desired.placed},
                source_nat=desired.source_nat,
                groups=groups,
                tags=desired.tags,
            )
            return msgspec.structs.replace(observed, balancer=balancer)
        case CreateTargetGroup(name, mapping):
            group = TargetGroup(f"{_NEW}{name}", name, mapping.health, tags=desired.tags)
            return msgspec.structs.replace(observed, target_groups=(*observed.target_groups, group))
        case CreateListener(mapping, target_group):
            return with_listener(
                observed, _listener(f"{_NEW}{mapping.port}", mapping, target_group)
            )
        case ChangeListener(arn, mapping, target_group):
            return with_listener(observed, _listener(arn, mapping, target_group))


def _listener(arn: str, mapping: PortMapping, target_group: str) -> Listener:
    return Listener(
        arn, mapping.port, mapping.protocol, target_group, mapping.certificate, mapping.policy
    )


def _with_balancer(
    observed: Observed, step: ChangeAddressType | ChangeGroups | ChangeSubnets
) -> Observed:
    fields: dict[str, Any] = {}
    match step:
        case ChangeAddressType(address_type):
            fields = {"address_type": address_type}
        case ChangeGroups(groups):
            fields = {"groups": groups}
        case ChangeSubnets(_, source_nat):
            fields = {"address_type": DUALSTACK, "source_nat": True} if source_nat else {}
    balancer = observed.balancer and msgspec.structs.replace(observed.balancer, **fields)
    return msgspec.structs.replace(observed, balancer=balancer)


def _with_group(observed: Observed, step: Register | Deregister | ChangeHealthCheck) -> Observed:
    groups = []
    for one in observed.target_groups:
        if one.arn != step.arn:
            groups.append(one)
            continue
        match step:
            case Register(_, new):
                groups.append(msgspec.structs.replace(one, targets=one.targets | set(new)))
            case Deregister(_, gone):
                groups.append(msgspec.structs.replace(one, targets=one.targets - set(gone)))
            case ChangeHealthCheck(_, health):
                groups.append(msgspec.structs.replace(one, health=health))
    return msgspec.structs.replace(observed, target_groups=tuple(groups))


def _updated(observed: Observed, arn: str, field: str, more: Mapping[str, str]) -> Observed:
    """Return what is observed after tags or attributes were added to the part with that ARN."""

    def update(part: Any) -> Any:
        if part is None or part.arn != arn:
            return part
        return msgspec.structs.replace(part, **{field: {**getattr(part, field), **more}})

    groups = tuple(map(update, observed.target_groups))
    return msgspec.structs.replace(
        observed, balancer=update(observed.balancer), target_groups=groups
    )


def _without(observed: Observed, part: Balancer | Listener | TargetGroup) -> Observed:
    if isinstance(part, Balancer):
        # Its listeners go with it.
        return msgspec.structs.replace(observed, balancer=None, listeners=())
    return msgspec.structs.replace(
        observed,
        listeners=tuple(one for one in observed.listeners if one.arn != part.arn),
        target_groups=tuple(one for one in observed.target_groups if one.arn != part.arn),
    )


def part_changes(step: Step, desired: Desired, observed: Observed) -> Iterator[PartChange]:
    """Return the lines of `proreus plan` about a step."""
    balancer = f"load balancer {desired.name}"
    match step:
        case CreateGroup() | ChangeRules() | TagGroup():
            yield from group_part_changes(step, desired.own)
        case CreateBalancer():
            subnets = " ".join(one.subnet for one in desired.placed)
            detail = f"{desired.scheme}, {desired.address_type}, subnets {subnets}"
            yield PartChange("create", balancer, detail)
        case ChangeGroups(groups):
            yield PartChange("change", balancer, f"security groups {' '.join(groups)}")
        case ChangeAddressType(address_type):
            yield PartChange("change", balancer, f"address type {address_type}")
        case ChangeSubnets(subnets, source_nat):
            more = f", {DUALSTACK}, source NAT" if source_nat else ""
            yield PartChange("change", balancer, f"subnets {' '.join(subnets)}{more}")
        case ChangeAttributes(arn, attributes):
            detail = ", ".join(f"{key}={value}" for key, value in attributes.items())
            yield PartChange("change", _named(arn, balancer, observed), detail)
        case AddTags(arn, tags):
            yield PartChange(
                "change", _named(arn, balancer, observed), f"tags {' '.join(sorted(tags))}"
            )
        case _:
            yield from _changes_of_parts(step, observed)


def _changes_of_parts(step: Step, observed: Observed) -> Iterator[PartChange]:
    match step:
        case CreateTargetGroup(name, mapping):
            detail = f"{mapping.target_protocol} {mapping.target_port}"
            yield PartChange("create", f"target group {name}", detail)
        case CreateListener(mapping) | ChangeListener(_, mapping):
            is_new = isinstance(step, CreateListener)
            tls = f", certificate {mapping.certificate}" if mapping.certificate else ""
            detail = f"{mapping.protocol} to {mapping.target_port}{tls}"
            yield PartChange("create" if is_new else "change", f"listener {mapping.port}", detail)
        case ChangeHealthCheck(arn, health):
            detail = f"{health.protocol} {health.port}{health.path} every {health.interval} s"
            yield PartChange("change", f"health check of {_named(arn, '', observed)}", detail)
        case Register(arn, ids):
            group = _named(arn, "", observed)
            yield from (PartChange("create", f"target {one}", group) for one in ids)
        case Deregister(arn, ids):
            group = _named(arn, "", observed)
            yield from (PartChange("delete", f"target {one}", group) for one in ids)
        case Delete(Listener() as listener):
            yield PartChange("delete", f"listener {listener.port}")
        case Delete(TargetGroup() as target_group):
            yield PartChange("delete", f"target group {target_group.name}")


def _named(arn: str, balancer: str, observed: Observed) -> str:
    """Name the part that has an ARN: a target group, or else the load balancer."""
    names = {one.arn: f"target group {one.name}" for one in observed.target_groups}
    return names.get(arn, balancer)
