"""Plans the steps that make a classic load balancer as desired. Pure.

`plan` answers the steps that can be taken now, side by side; what they change goes into `Actual`
and `plan` is asked again, until nothing is left to do.

    security group -> load balancer -> policies -> policies of listeners and hosts

Nothing is ever made twice: the name of the load balancer and that of its security group hold the
Service's UID, and policies have one name each, the official one.
"""

from collections.abc import Iterator, Mapping

import msgspec

from proreus.cloudprovider.errors import InvalidRequest
from proreus.providers.aws.annotations import INTERNAL, PREFIX
from proreus.providers.aws.classic.parts import Attributes, Balancer, Desired, Observed
from proreus.providers.aws.listeners import ClassicHealthCheck, Listener
from proreus.providers.aws.own_groups import GroupStep, group_steps

PROXY_POLICY = "k8s-proxyprotocol-enabled"
"""The policy that makes the load balancer speak the PROXY protocol."""
TLS_POLICY_PREFIX = "k8s-SSLNegotiationPolicy-"
"""Begins the name of a policy that stands for one of AWS' own security policies."""
TLS_POLICY_TYPE = "SSLNegotiationPolicyType"
"""Of the policies of this type a listener has one."""


class CreateBalancer(msgspec.Struct, frozen=True):
    """The step to make the load balancer with these security groups."""

    groups: tuple[str, ...]


class AttachSubnets(msgspec.Struct, frozen=True):
    """The step to add subnets to the load balancer."""

    subnets: tuple[str, ...]


class DetachSubnets(msgspec.Struct, frozen=True):
    """The step to take subnets from the load balancer."""

    subnets: tuple[str, ...]


class ApplyGroups(msgspec.Struct, frozen=True):
    """The step to set the load balancer's security groups."""

    groups: tuple[str, ...]


class CreateListeners(msgspec.Struct, frozen=True):
    """The step to make listeners."""

    listeners: tuple[Listener, ...]


class DeleteListeners(msgspec.Struct, frozen=True):
    """The step to delete the listeners at these ports."""

    ports: tuple[int, ...]


class ChangeCertificate(msgspec.Struct, frozen=True):
    """The step to give the listener at a port another certificate."""

    port: int
    certificate: str


class CreatePolicy(msgspec.Struct, frozen=True):
    """The step to make a policy with one attribute."""

    name: str
    type: str
    attribute: str
    value: str


class SetListenerPolicies(msgspec.Struct, frozen=True):
    """The step to set the policies of the listener at a port."""

    port: int
    policies: tuple[str, ...]


class SetBackendPolicies(msgspec.Struct, frozen=True):
    """The step to set the policies for a port of the instances."""

    port: int
    policies: tuple[str, ...]


class ConfigureHealthCheck(msgspec.Struct, frozen=True):
    """The step to change the health check of hosts."""

    health: ClassicHealthCheck


class ChangeAttributes(msgspec.Struct, frozen=True):
    """The step to set attributes of the load balancer."""

    attributes: Attributes


class AddTags(msgspec.Struct, frozen=True):
    """The step to add tags to the load balancer."""

    tags: Mapping[str, str]


class Register(msgspec.Struct, frozen=True):
    """The step to register instances."""

    instances: tuple[str, ...]


class Deregister(msgspec.Struct, frozen=True):
    """The step to deregister instances."""

    instances: tuple[str, ...]


Step = (
    CreateBalancer
    | AttachSubnets
    | DetachSubnets
    | ApplyGroups
    | CreateListeners
    | DeleteListeners
    | ChangeCertificate
    | CreatePolicy
    | SetListenerPolicies
    | SetBackendPolicies
    | ConfigureHealthCheck
    | ChangeAttributes
    | AddTags
    | Register
    | Deregister
    | GroupStep
)


def check(desired: Desired, observed: Observed) -> None:
    """Refuse what AWS cannot do, or cannot change any more.

    Raises:
        InvalidRequest: Names every such field.
    """
    problems = []
    if desired.health.timeout >= desired.health.interval:
        problems.append(
            f"annotations {PREFIX}healthcheck-timeout, {PREFIX}healthcheck-interval: the timeout, "
            f"{desired.health.timeout} s, must be shorter than the "
            f"interval, {desired.health.interval} s"
        )
    balancer = observed.balancer
    if balancer is not None and balancer.scheme != desired.scheme:
        kind = "internal" if balancer.scheme == INTERNAL else "public"
        problems.append(
            f"annotation {PREFIX}internal: the load balancer is {kind} for good: undo the "
            "change, or delete the Service and create it again"
        )
    if problems:
        raise InvalidRequest("; ".join(problems))


def groups_of(desired: Desired, observed: Observed) -> tuple[str, ...]:
    """Return the security groups that the load balancer should have; () until its own is made.

    The first is the one that is let in by its hosts.
    """
    if desired.own is None:
        return desired.groups
    return (observed.group.id, *desired.groups) if observed.group is not None else ()


def plan(desired: Desired, observed: Observed) -> tuple[Step, ...]:
    """Return the steps to take now; none when all is as desired."""
    steps: list[Step] = list(group_steps(desired.own, desired.tags, observed.group))
    groups, balancer = groups_of(desired, observed), observed.balancer
    if balancer is None:
        return (*steps, CreateBalancer(groups)) if groups else tuple(steps)
    if groups and set(groups) != set(balancer.groups):
        steps.append(ApplyGroups(groups))
    steps += _subnet_steps(desired, balancer)
    steps += _listener_steps(desired, balancer)
    steps += _policy_steps(desired, balancer)
    if balancer.health != desired.health:
        steps.append(ConfigureHealthCheck(desired.health))
    if attributes := _differing(desired.attributes, balancer.attributes):
        steps.append(ChangeAttributes(attributes))
    if tags := {key: one for key, one in desired.tags.items() if balancer.tags.get(key) != one}:
        steps.append(AddTags(tags))
    if new := desired.targets - balancer.targets - observed.refused.keys():
        steps.append(Register(tuple(sorted(new))))
    if gone := balancer.targets - desired.targets:
        steps.append(Deregister(tuple(sorted(gone))))
    return tuple(steps)


def _subnet_steps(desired: Desired, balancer: Balancer) -> Iterator[Step]:
    """Plan subnets: one in a zone, so a new one waits until the old one is detached."""
    new = desired.subnets.keys() - balancer.subnets
    gone = sorted(balancer.subnets - desired.subnets.keys())
    if free := sorted(one for one in new if desired.subnets[one] not in balancer.zones):
        yield AttachSubnets(tuple(free))
    elif gone:
        # While another can be kept, it stands somewhere at every time.
        is_all = len(gone) == len(balancer.subnets) > 1
        yield DetachSubnets(tuple(gone[1:] if is_all else gone))


def _listener_steps(desired: Desired, balancer: Balancer) -> Iterator[Step]:
    have = {one.port: one for one in balancer.listeners}
    want = {one.port: one for one in desired.listeners}
    # A port is free for another listener only when the one that has it is gone.
    gone = (port for port in have if port not in want or not _is_like(have[port], want[port]))
    if ports := tuple(sorted(gone)):
        yield DeleteListeners(ports)
    for port in sorted(want.keys() & have.keys() - set(ports)):
        if have[port] != want[port]:
            yield ChangeCertificate(port, want[port].certificate)
    if new := tuple(sorted(one for port, one in want.items() if port not in have)):
        yield CreateListeners(new)


def _is_like(have: Listener, want: Listener) -> bool:
    """Tell whether two listeners differ in nothing but the certificate."""
    return bool(have.certificate) == bool(want.certificate) and (
        msgspec.structs.replace(have, certificate="")
        == msgspec.structs.replace(want, certificate="")
    )


def _policy_steps(desired: Desired, balancer: Balancer) -> Iterator[Step]:
    tls = f"{TLS_POLICY_PREFIX}{desired.tls_policy}" if desired.tls_policy else ""
    if desired.proxy_protocol and PROXY_POLICY not in balancer.policies:
        yield CreatePolicy(PROXY_POLICY, "ProxyProtocolPolicyType", "ProxyProtocol", "true")
    if tls and tls not in balancer.policies:
        yield CreatePolicy(tls, TLS_POLICY_TYPE, "Reference-Security-Policy", desired.tls_policy)
    yield from _backend_steps(desired, balancer)
    for listener in sorted(balancer.listeners if tls in balancer.policies else ()):
        have = balancer.listener_policies.get(listener.port, ())
        if listener.certificate and tls not in have:
            kept = (
                one
                for one in have
                if balancer.policies.get(one, TLS_POLICY_TYPE) != TLS_POLICY_TYPE
            )
            yield SetListenerPolicies(listener.port, (*kept, tls))


def _backend_steps(desired: Desired, balancer: Balancer) -> Iterator[Step]:
    """Plan the PROXY protocol for the ports of listeners, and for no others."""
    desired_ports = (
        {one.instance_port for one in desired.listeners} if desired.proxy_protocol else set()
    )
    present = {one.instance_port for one in balancer.listeners}
    can = desired_ports & present if PROXY_POLICY in balancer.policies else set()
    for port in sorted(present | balancer.backend_policies.keys()):
        have = balancer.backend_policies.get(port, ())
        if port in can and PROXY_POLICY not in have:
            yield SetBackendPolicies(port, (*have, PROXY_POLICY))
        elif port not in desired_ports and PROXY_POLICY in have:
            yield SetBackendPolicies(port, tuple(one for one in have if one != PROXY_POLICY))


def _differing(want: Attributes, have: Attributes) -> Attributes:
    """Return the sections of attributes that are not as desired."""
    return {
        section: values
        for section, values in want.items()
        if not values.items() <= have.get(section, {}).items()
    }
