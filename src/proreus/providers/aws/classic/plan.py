"""Plan the steps that make a classic load balancer as desired. Pure.

`plan` answers the steps that can be taken now, side by side; what they change goes into
`Observed` and `plan` is asked again, until nothing is left to do.

    security group -> load balancer -> policies -> policies of listeners and hosts

Nothing is ever made twice: the name of the load balancer and that of its security group hold the
Service's UID, and policies have one name each, the official one.
"""

from collections.abc import Iterator

import msgspec

from proreus.cloudprovider.errors import InvalidRequest
from proreus.providers.aws.annotations import INTERNAL, PREFIX
from proreus.providers.aws.calls import missing
from proreus.providers.aws.classic import steps
from proreus.providers.aws.classic.parts import Attributes, Balancer, Desired, Observed
from proreus.providers.aws.classic.steps import Step
from proreus.providers.aws.listeners import Listener
from proreus.providers.aws.own_groups import group_steps

PROXY_POLICY = "k8s-proxyprotocol-enabled"
"""The policy that makes the load balancer speak the PROXY protocol."""
TLS_POLICY_PREFIX = "k8s-SSLNegotiationPolicy-"
"""The prefix of the name of a policy that stands for one of AWS' own security policies."""
TLS_POLICY_TYPE = "SSLNegotiationPolicyType"
"""The type of policies of which a listener has one."""


def group_name(name: str) -> str:
    """Return the name of the security group of a load balancer: the official one."""
    return f"k8s-elb-{name}"


def check(desired: Desired, observed: Observed) -> None:
    """Refuse what AWS cannot do, or cannot change any more.

    Raises:
        InvalidRequest: The Service asks for something impossible; names every field that does.
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

    The first group is the one that hosts let in.
    """
    if desired.own is None:
        return desired.groups
    return (observed.group.id, *desired.groups) if observed.group is not None else ()


def plan(desired: Desired, observed: Observed) -> tuple[Step, ...]:
    """Return the steps to take now; none when all is as desired."""
    taken: list[Step] = list(group_steps(desired.own, desired.tags, observed.group))
    groups, balancer, name = groups_of(desired, observed), observed.balancer, desired.name
    if balancer is None:
        return (*taken, steps.create(desired, groups)) if groups else tuple(taken)
    if groups and set(groups) != set(balancer.groups):
        taken.append(steps.apply_groups(name, groups))
    taken += _subnet_steps(desired, balancer)
    taken += _listener_steps(desired, balancer)
    taken += _policy_steps(desired, balancer)
    if balancer.health != desired.health:
        taken.append(steps.configure_health_check(name, desired.health))
    if attributes := _differing(desired.attributes, balancer.attributes):
        taken.append(steps.modify_attributes(name, attributes))
    if tags := missing(desired.tags, balancer.tags):
        taken.append(steps.add_tags(name, tags))
    if new := sorted(desired.targets - balancer.targets - observed.refused.keys()):
        taken.append(steps.register(name, new))
    if gone := sorted(balancer.targets - desired.targets):
        taken.append(steps.deregister(name, gone))
    return tuple(taken)


def _subnet_steps(desired: Desired, balancer: Balancer) -> Iterator[Step]:
    """Plan subnets: one in a zone, so a new one waits until the old one is detached."""
    new = desired.subnets.keys() - balancer.subnets
    gone = sorted(balancer.subnets - desired.subnets.keys())
    if free := sorted(id_ for id_ in new if desired.subnets[id_] not in balancer.zones):
        yield steps.attach_subnets(desired, free)
    elif gone:
        # While another can be kept, it stands somewhere at every time.
        is_all = len(gone) == len(balancer.subnets) > 1
        yield steps.detach_subnets(desired, gone[1:] if is_all else gone)


def _listener_steps(desired: Desired, balancer: Balancer) -> Iterator[Step]:
    current = {listener.port: listener for listener in balancer.listeners}
    needed = {listener.port: listener for listener in desired.listeners}
    # A port is free for another listener only when the one that has it is gone.
    gone = sorted(
        port for port in current if port not in needed or not _is_like(current[port], needed[port])
    )
    if gone:
        yield steps.delete_listeners(desired.name, gone)
    for port in sorted(needed.keys() & current.keys() - set(gone)):
        if current[port] != needed[port]:
            yield steps.set_certificate(desired.name, needed[port])
    if new := sorted(listener for port, listener in needed.items() if port not in current):
        yield steps.create_listeners(desired.name, new)


def _is_like(observed: Listener, desired: Listener) -> bool:
    """Tell whether two listeners differ in nothing but the certificate."""
    return bool(observed.certificate) == bool(desired.certificate) and (
        msgspec.structs.replace(observed, certificate="")
        == msgspec.structs.replace(desired, certificate="")
    )


def _policy_steps(desired: Desired, balancer: Balancer) -> Iterator[Step]:
    tls = f"{TLS_POLICY_PREFIX}{desired.tls_policy}" if desired.tls_policy else ""
    if desired.proxy_protocol and PROXY_POLICY not in balancer.policies:
        yield steps.create_policy(
            desired.name, PROXY_POLICY, "ProxyProtocolPolicyType", "ProxyProtocol", "true"
        )
    if tls and tls not in balancer.policies:
        yield steps.create_policy(
            desired.name, tls, TLS_POLICY_TYPE, "Reference-Security-Policy", desired.tls_policy
        )
    yield from _backend_steps(desired, balancer)
    for listener in sorted(balancer.listeners if tls in balancer.policies else ()):
        current = balancer.listener_policies.get(listener.port, ())
        if listener.certificate and tls not in current:
            kept = (
                name
                for name in current
                if balancer.policies.get(name, TLS_POLICY_TYPE) != TLS_POLICY_TYPE
            )
            yield steps.set_listener_policies(desired.name, listener.port, (*kept, tls))


def _backend_steps(desired: Desired, balancer: Balancer) -> Iterator[Step]:
    """Plan the PROXY protocol for the ports of listeners, and for no others."""
    desired_ports = (
        {listener.instance_port for listener in desired.listeners}
        if desired.proxy_protocol
        else set()
    )
    present = {listener.instance_port for listener in balancer.listeners}
    can = desired_ports & present if PROXY_POLICY in balancer.policies else set()
    for port in sorted(present | balancer.backend_policies.keys()):
        current = balancer.backend_policies.get(port, ())
        if port in can and PROXY_POLICY not in current:
            yield steps.set_backend_policies(desired.name, port, (*current, PROXY_POLICY))
        elif port not in desired_ports and PROXY_POLICY in current:
            kept = (name for name in current if name != PROXY_POLICY)
            yield steps.set_backend_policies(desired.name, port, tuple(kept))


def _differing(desired: Attributes, observed: Attributes) -> Attributes:
    """Return the sections of attributes that are not as desired."""
    return {
        section: values
        for section, values in desired.items()
        if not values.items() <= observed.get(section, {}).items()
    }
