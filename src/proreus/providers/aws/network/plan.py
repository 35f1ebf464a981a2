"""Plan the steps that make a network load balancer as desired. Pure.

`plan` answers the steps that can be taken now, side by side; what they change goes into `Observed`
and `plan` is asked again, until nothing is left to do.

    make     security group -> load balancer, target groups -> listeners
    delete   listeners -> target groups, load balancer

Every part has a name that is the Service's alone, and its tags from its creation, so the process
may end between any two calls. A target group is never changed to another port or protocol: AWS
cannot do it. The listener is turned to a new one first, and the old one goes then, so that
connections to other ports live on.
"""

from collections.abc import Iterator, Mapping

import msgspec

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.names import NameForm, digest_of
from proreus.providers.aws.annotations import INTERNAL, PREFIX
from proreus.providers.aws.calls import missing
from proreus.providers.aws.listeners import PortMapping
from proreus.providers.aws.network import steps
from proreus.providers.aws.network.parts import (
    DUALSTACK,
    Balancer,
    Desired,
    Listener,
    Observed,
    TargetGroup,
)
from proreus.providers.aws.network.steps import Step
from proreus.providers.aws.own_groups import group_steps

_TRANSPORTS = {"TCP": "TCP", "TLS": "TCP", "UDP": "UDP", "TCP_UDP": "TCP_UDP"}
"""Listeners of equal transport can be changed into one another."""
_PART = NameForm(8, "A-Za-z0-9", filler="", edges="")
_CHUNK = 100
"""Targets in one call."""


def target_group_name(desired: Desired, mapping: PortMapping) -> str:
    """Return the name of a listener's target group: the official one, to find it again.

    It holds a digest of all that cannot be changed about a target group.
    """
    namespace, name = desired.service
    traits = (
        desired.cluster,
        namespace,
        name,
        str(mapping.port),
        str(mapping.target_port),
        mapping.target_protocol,
        "instance",
        mapping.health.protocol,
        str(mapping.health.interval),
        # Officially there is no other family.
        desired.target_type if desired.target_type != "ipv4" else "",
    )
    return f"{target_group_prefix(namespace, name)}{digest_of(traits, algorithm='sha1')}"


def target_group_prefix(namespace: str, name: str) -> str:
    """Return the beginning of the names of a Service's target groups; others' may be alike."""
    return f"k8s-{_PART.clean(namespace)}-{_PART.clean(name)}-"


def group_name(ref: LoadBalancerRef) -> str:
    """Return the official name of the security group made for a load balancer. Pure."""
    traits = (ref.cluster.name, ref.service_name, ref.namespace, ref.uid)
    return f"{target_group_prefix(ref.namespace, ref.service_name)}{digest_of(traits)}"


def check(desired: Desired, observed: Observed) -> None:
    """Refuse what AWS cannot change any more.

    Raises:
        InvalidRequest: A field asks for a change that AWS cannot make; names the field.
    """
    balancer = observed.balancer
    if balancer is not None and balancer.scheme != desired.scheme:
        kind = "internal" if balancer.scheme == INTERNAL else "public"
        raise InvalidRequest(
            f"annotation {PREFIX}internal: the load balancer is {kind} for good: undo the "
            "change, or delete the Service and create it again"
        )


def warning(desired: Desired, observed: Observed) -> str:
    """Return what is desired and not done, with the reason; "" if all is done.

    A warning is no reason to leave the rest undone: the official manager makes load balancers
    without the security groups that are given.
    """
    if not desired.groups or observed.balancer is None or observed.balancer.groups:
        return ""
    return (
        f"annotation {PREFIX}security-groups: the load balancer was made without security groups "
        "and can have none; remove the annotation, or delete the Service and create it again"
    )


def groups_of(desired: Desired, observed: Observed) -> tuple[str, ...] | None:
    """Return the security groups that the load balancer should have; None until its own is made."""
    if desired.own is None:
        return desired.groups
    return (observed.group.id,) if observed.group is not None else None


def plan(desired: Desired, observed: Observed) -> tuple[Step, ...]:
    """Return the steps to take now; none when all is as desired."""
    by_name = {target_group.name: target_group for target_group in observed.target_groups}
    needed = {target_group_name(desired, one): one for one in desired.mappings}
    taken: list[Step] = [
        steps.create_target_group(desired, name, mapping)
        for name, mapping in needed.items()
        if name not in by_name
    ]
    balancer, groups = observed.balancer, groups_of(desired, observed)
    # AWS gives no group to one that was made without.
    if balancer is None or balancer.groups:
        taken += group_steps(desired.own, desired.tags, observed.group)
    if balancer is None:
        new = (steps.create_balancer(desired, groups),) if groups is not None else ()
        return (*new, *taken)
    if balancer.groups and groups and set(balancer.groups) != set(groups):
        taken.append(steps.set_groups(balancer, groups))
    has_udp = any("UDP" in listener.protocol for listener in observed.listeners)
    blocked = has_udp and desired.address_type == DUALSTACK and not desired.source_nat
    taken += _balancer_steps(desired, balancer, blocked=blocked)
    for name, mapping in needed.items():
        if group := by_name.get(name):
            taken += _target_group_steps(desired, mapping, group, observed.refused)
    taken += _listener_steps(desired, observed, balancer, by_name)
    used = {listener.target_group for listener in observed.listeners}
    taken += (
        steps.delete(target_group)
        for target_group in observed.target_groups
        if target_group.name not in needed and target_group.arn not in used
    )
    return tuple(taken)


def delete_steps(observed: Observed) -> tuple[Step, ...]:
    """Plan which parts to delete now: those that no other needs."""
    if observed.listeners:
        return tuple(map(steps.delete, observed.listeners))
    balancer = (observed.balancer,) if observed.balancer is not None else ()
    return tuple(map(steps.delete, (*balancer, *observed.target_groups)))


def _balancer_steps(desired: Desired, balancer: Balancer, *, blocked: bool) -> Iterator[Step]:
    """Plan changes of the load balancer; `blocked`: its address type waits for listeners."""
    yield from _attribute_steps(balancer, desired.attributes, desired.tags)
    # A zone is added when a subnet appears in it; none is left, for connections are in it.
    new = () if _has_addresses(desired) else _new_subnets(desired, balancer)
    subnets = tuple(sorted((*balancer.zones.values(), *new)))
    if new:
        yield steps.set_subnets(desired, balancer, subnets, source_nat=balancer.source_nat)
    elif _waits_for_prefixes(desired, balancer):
        yield steps.set_subnets(desired, balancer, subnets, source_nat=True)
    elif balancer.address_type != desired.address_type and not blocked:
        yield steps.set_address_type(balancer, desired.address_type)


def _new_subnets(desired: Desired, balancer: Balancer) -> tuple[str, ...]:
    return tuple(one.subnet for one in desired.placed if one.zone not in balancer.zones)


def _has_addresses(desired: Desired) -> bool:
    """Tell whether the addresses are given: that is possible at creation only."""
    return any(one.allocation or one.private_address for one in desired.placed)


def _waits_for_prefixes(desired: Desired, balancer: Balancer) -> bool:
    """Tell whether the load balancer will take listeners of UDP, but not yet."""
    return desired.source_nat and not balancer.source_nat and not _has_addresses(desired)


def _attribute_steps(
    part: Balancer | TargetGroup, attributes: Mapping[str, str], tags: Mapping[str, str]
) -> Iterator[Step]:
    if differing := missing(attributes, part.attributes):
        yield steps.modify_attributes(part, differing)
    if lacking := missing(tags, part.tags):
        yield steps.add_tags(part, lacking)


def _target_group_steps(
    desired: Desired, mapping: PortMapping, group: TargetGroup, refused: Mapping[str, str]
) -> Iterator[Step]:
    current, needed = group.health, mapping.health
    if current != (
        needed if needed.timeout else msgspec.structs.replace(needed, timeout=current.timeout)
    ):
        yield steps.modify_health_check(group, mapping.health)
    yield from _attribute_steps(group, desired.target_attributes, desired.tags)
    for chunk in _chunks(desired.targets - group.targets - refused.keys()):
        yield steps.register(group, chunk)
    for chunk in _chunks(group.targets - desired.targets):
        yield steps.deregister(group, chunk)


def _chunks(instances: frozenset[str]) -> Iterator[tuple[str, ...]]:
    ordered = sorted(instances)
    for first in range(0, len(ordered), _CHUNK):
        yield tuple(ordered[first : first + _CHUNK])


def _listener_steps(
    desired: Desired, observed: Observed, balancer: Balancer, by_name: Mapping[str, TargetGroup]
) -> Iterator[Step]:
    mappings = {one.port: one for one in desired.mappings}
    kept = set()
    for listener in observed.listeners:
        mapping = mappings.get(listener.port)
        if mapping is None or _transport(mapping.protocol) != _transport(listener.protocol):
            # A port is free for another protocol only when its listener is gone.
            yield steps.delete(listener)
            kept.add(listener.port)
            continue
        kept.add(listener.port)
        group = by_name.get(target_group_name(desired, mapping))
        if group is not None and not _forwards(listener, mapping, group):
            yield steps.modify_listener(listener.arn, mapping, group.arn)
    late = _waits_for_prefixes(desired, balancer)
    for port, mapping in mappings.items():
        group = by_name.get(target_group_name(desired, mapping))
        if port not in kept and group is not None and not (late and "UDP" in mapping.protocol):
            yield steps.create_listener(desired, balancer.arn, mapping, group.arn)


def _transport(protocol: str) -> str:
    return _TRANSPORTS.get(protocol, protocol)


def _forwards(listener: Listener, mapping: PortMapping, group: TargetGroup) -> bool:
    """Tell whether a listener is as desired; AWS chooses a policy where none is desired."""
    return (
        listener.protocol == mapping.protocol
        and listener.target_group == group.arn
        and listener.certificate == mapping.certificate
        and (not mapping.policy or listener.policy == mapping.policy)
    )
