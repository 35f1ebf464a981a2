"""Plan the steps that make a load balancer as desired. Pure.

`plan` answers the steps that can be taken now, side by side; their answers go into `Observed` and
`plan` is asked again, until there is nothing left to do. The order is such that the process may
end between any two calls: every part carries the Service's marks and name from its creation, and
what others refer to is made first and deleted last.

    make     address -> balancer -> firewall, listeners, targets
    delete   listeners, firewalls -> balancers -> addresses
"""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.identity import (
    MARK_CLUSTER,
    MARK_CLUSTER_UID,
    MARK_SERVICE,
    MARK_SERVICE_UID,
)
from proreus.cloudprovider.load_balancers import Frontend, LoadBalancer, LoadBalancerRef
from proreus.cloudprovider.mark_forms import owner_of
from proreus.cloudprovider.ownership import Owner, Verdict, verdict
from proreus.providers.simulated.ids import OFFICIAL_CLUSTER, OFFICIAL_SERVICE, instance_id
from proreus.providers.simulated.parts import (
    Address,
    Balancer,
    Firewall,
    HealthCheck,
    Listener,
    Observed,
    Part,
    Target,
    age,
)
from proreus.providers.simulated.steps import (
    Step,
    add_targets,
    changed,
    create,
    delete,
    remove_targets,
)

FAMILY = "IPv4"
_PROTOCOLS = ("TCP", "UDP")
_MARKS = frozenset({MARK_CLUSTER, MARK_CLUSTER_UID, MARK_SERVICE, MARK_SERVICE_UID})


def owned(ref: LoadBalancerRef, parts: Iterable[Part]) -> Observed:
    """Return those of `parts` that are proven to be this Service's (`verdict`)."""
    parts = tuple(parts)
    verdicts = {part.id: _verdict(ref, part) for part in parts}
    found = {part.id: part for part in parts if verdicts[part.id].is_ours}
    # Only addresses show what the status says; the other parts belong to what they refer to.
    unproven = [part for part in parts if verdicts[part.id] is Verdict.UNPROVEN]
    found |= {p.id: p for p in unproven if isinstance(p, Balancer) and p.address_id in found}
    found |= {
        p.id: p
        for p in unproven
        if isinstance(p, Listener | Firewall) and p.load_balancer_id in found
    }
    return Observed(found)


def _verdict(ref: LoadBalancerRef, part: Part) -> Verdict:
    theirs = {f"{OFFICIAL_CLUSTER}{ref.cluster.name}": "owned", OFFICIAL_SERVICE: ref.key}
    official = Owner("", ref.cluster.name, ref.namespace, ref.service_name)
    return verdict(
        ref,
        owners=filter(None, (owner_of(part.tags),)),
        official=(official,) if theirs.items() <= part.tags.items() else (),
        addresses=(part.address,) if isinstance(part, Address) else (),
    )


def check(desired: LoadBalancer) -> None:
    """Refuse what this cloud cannot do.

    Raises:
        InvalidRequest: The Service asks for something impossible; names every field that does.
    """
    problems = []
    for frontend in _frontends(desired):
        place = f"spec.ports {frontend.port}/{frontend.protocol}"
        if frontend.protocol not in _PROTOCOLS:
            problems.append(f"{place}: the simulated cloud forwards only TCP and UDP")
        elif not frontend.node_port:
            problems.append(
                f"{place}: it has no node port: set spec.allocateLoadBalancerNodePorts to true"
            )
    if problems:
        raise InvalidRequest("; ".join(problems))


def plan(desired: LoadBalancer, observed: Observed, region: str) -> tuple[Step, ...]:
    """Return the steps to take now; none when the load balancer is as desired."""
    address = _fitting_address(desired, observed)
    balancer = next(
        (b for b in observed.balancers if address is not None and b.address_id == address.id), None
    )
    if address is None:
        # Before what is there is taken down: the address asked for may be refused.
        fields = {"address": desired.requested_address}
        return (create(desired, Address, desired.requested_address, fields),)
    obsolete = _obsolete(observed, address, balancer)
    if obsolete:
        return delete_steps(Observed({part.id: part for part in obsolete}))
    if balancer is None:
        return (create(desired, Balancer, "", {"address_id": address.id, **_traits(desired)}),)
    return (
        *changed(desired, address, {}),
        *changed(desired, balancer, _traits(desired)),
        *_firewall_steps(desired, observed, balancer),
        *_listener_steps(desired, observed, balancer),
        *_target_steps(desired, observed, balancer, region),
    )


def delete_steps(observed: Observed) -> tuple[Step, ...]:
    """Plan which parts to delete now: those that no other refers to."""
    leaves: list[Part] = [*observed.listeners, *observed.firewalls]
    first = leaves or observed.balancers or observed.addresses
    return tuple(delete(part) for part in first)


def unlisted(observed: Observed) -> set[str]:
    """Return ids that parts refer to and the listing lacks: it is not complete then."""
    referred = {listener.load_balancer_id for listener in observed.listeners}
    referred |= {firewall.load_balancer_id for firewall in observed.firewalls}
    referred |= {balancer.address_id for balancer in observed.balancers}
    return referred - observed.parts.keys()


def targets(desired: LoadBalancer, region: str) -> tuple[dict[str, Target], dict[str, str]]:
    """Return the targets by node name, and why some hosts cannot be one, also by node name."""
    found: dict[str, Target] = {}
    rejected: dict[str, str] = {}
    for host in desired.hosts:
        id_ = instance_id(region, host.provider_id)
        addresses = host.addresses.get(FAMILY, ())
        if id_ is None:
            rejected[host.node] = f"{host.provider_id} is not an instance of region {region}"
        elif not addresses:
            rejected[host.node] = f"it has no {FAMILY} address"
        else:
            found[host.node] = Target(id_, addresses[0])
    return found, rejected


def desired_fingerprint(desired: LoadBalancer, region: str) -> str:
    """Digest the desired load balancer; equal to `fingerprint` of what `plan` has no steps for."""
    listeners = [[f.protocol, f.port, f.node_port, False] for f in _frontends(desired)]
    ranges = sorted(desired.source_ranges.get(FAMILY, ()))
    found = sorted(targets(desired, region)[0].values())
    tags = [sorted(desired.marks.items())]
    return _digest([_traits(desired), sorted(listeners), ranges, found, tags])


def fingerprint(observed: Observed) -> str:
    """Digest an observed load balancer with its listeners, ranges, targets and marks.

    Return "" without a load balancer, or if its address is gone: nothing desired looks like that.
    """
    if not observed.balancers:
        return ""
    balancer = observed.balancers[0]
    if balancer.address_id not in {address.id for address in observed.addresses}:
        return ""
    listeners = [
        [listener.protocol, listener.port, listener.target_port, listener.proxy_protocol]
        for listener in observed.listeners
    ]
    ranges = sorted(cidr for firewall in observed.firewalls for cidr in firewall.source_ranges)
    traits = {
        "internal": balancer.internal,
        "affinity_seconds": balancer.affinity_seconds,
        "health_check": balancer.health_check,
    }
    tags = {_marks(part) for part in observed.parts.values()}
    return _digest([traits, sorted(listeners), ranges, sorted(balancer.targets), sorted(tags)])


def _marks(part: Part) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value) for key, value in part.tags.items() if key in _MARKS))


def _traits(desired: LoadBalancer) -> dict[str, object]:
    return {
        "internal": False,
        "affinity_seconds": desired.affinity_seconds,
        "health_check": HealthCheck(desired.health_check.port, desired.health_check.path),
    }


def _digest(of: object) -> str:
    return hashlib.sha256(msgspec.json.encode(of, order="sorted")).hexdigest()[:16]


def _frontends(desired: LoadBalancer) -> list[Frontend]:
    return [frontend for frontend in desired.frontends if frontend.family == FAMILY]


def _fitting_address(desired: LoadBalancer, observed: Observed) -> Address | None:
    """Return the address to use, the one in use before others; None if a new one is needed."""
    address = desired.requested_address
    used = {balancer.address_id for balancer in observed.balancers}
    fitting = [a for a in observed.addresses if not address or a.address == address]
    return min(fitting, key=lambda a: (a.id not in used, *age(a)), default=None)


def _obsolete(observed: Observed, address: Address, balancer: Balancer | None) -> list[Part]:
    """Return parts that have the wrong address or load balancer, or are one too many."""
    keep = balancer.id if balancer is not None else ""
    gone: list[Part] = [one for one in observed.addresses if one.id != address.id]
    gone += [one for one in observed.balancers if one.id != keep]
    gone += [listener for listener in observed.listeners if listener.load_balancer_id != keep]
    gone += [firewall for firewall in observed.firewalls if firewall.load_balancer_id != keep]
    return gone


def _firewall_steps(desired: LoadBalancer, observed: Observed, balancer: Balancer) -> list[Step]:
    ranges = tuple(desired.source_ranges.get(FAMILY, ()))
    if not observed.firewalls:
        fields = {"load_balancer_id": balancer.id, "source_ranges": ranges}
        return [create(desired, Firewall, "", fields)]
    first, *rest = observed.firewalls
    return [*changed(desired, first, {"source_ranges": ranges}), *(delete(one) for one in rest)]


def _listener_steps(desired: LoadBalancer, observed: Observed, balancer: Balancer) -> list[Step]:
    missing = {(f.protocol, f.port): f for f in _frontends(desired)}
    steps: list[Step] = []
    for listener in observed.listeners:
        frontend = missing.pop((listener.protocol, listener.port), None)
        broken = listener.state == "error" and listener.id not in observed.made
        if frontend is None or broken:
            # A port that could not be bound may be free now: only a new listener tries again.
            steps.append(delete(listener))
        else:
            changes = {"target_port": frontend.node_port, "proxy_protocol": False}
            steps += changed(desired, listener, changes)
    for frontend in missing.values():
        fields: dict[str, object] = {
            "load_balancer_id": balancer.id,
            "protocol": frontend.protocol,
            "port": frontend.port,
            "target_port": frontend.node_port,
            "proxy_protocol": False,
        }
        suffix = f"{frontend.protocol.lower()}-{frontend.port}"
        steps.append(create(desired, Listener, suffix, fields))
    return steps


def _target_steps(
    desired: LoadBalancer, observed: Observed, balancer: Balancer, region: str
) -> Iterator[Step]:
    needed = {target.instance_id: target for target in targets(desired, region)[0].values()}
    current = {target.instance_id: target for target in balancer.targets}
    if add := tuple(
        target
        for id_, target in needed.items()
        if current.get(id_) != target and id_ not in observed.refused
    ):
        yield add_targets(balancer, add)
    if remove := tuple(id_ for id_ in current if id_ not in needed):
        yield remove_targets(balancer, remove)
