"""Keep ports apart at addresses that Services share, or had before. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.ownership import Tenants, refusal
from proreus.kube.objects import IP_MODE_PROXY, LoadBalancerIngress, vip_addresses
from proreus.providers.azure.balancing import guard, marks
from proreus.providers.azure.balancing.additional import (
    by_hand_at,
    leads_away,
    named_before,
    port_in,
    port_led_away,
)
from proreus.providers.azure.balancing.addresses import owners_of, user_elsewhere
from proreus.providers.azure.balancing.claims import DENIES, Port, asked_ports, is_open_with
from proreus.providers.azure.balancing.desired import each_port
from proreus.providers.azure.balancing.index import Index, Opened
from proreus.providers.azure.balancing.parts import Claim, Had, Job, Scene, State
from proreus.providers.azure.machines import Resource, part


def check_shared(
    jobs: Sequence[Job],
    state: State,
    scene: Scene,
    known: Index,
    given: Mapping[str, Collection[str]],
) -> None:
    """Refuse ports that others have, by their rules, at an address that the Service shows.

    Azure refuses them, too, but for those without a rule, which stay whose they were. But
    kube-proxy goes by ports and status alone, and would lead the clients of another Service to this
    one, or those of a rule by hand, such as the API server's: so it shows no address meanwhile.
    Nor does it get those at an address that is new to it, where it has no rule of its own: the
    security group would let in clients past the sources that the other rule is for. Nor may it deny
    the clients of others there.

    Args:
        jobs: The Services of the pass.
        state: The observed state.
        scene: The facts that do not change within the pass.
        known: The index of the observed state.
        given: The addresses that Services are to have, by their UIDs.

    Raises:
        InvalidRequest: Another Service has a port, and still asks for it, or a rule by hand has it;
            names the port. Or the Service may not deny others; names the annotation.
    """
    for job in jobs:
        _check_denial(job, given.get(job.ref.uid, ()), state, scene, known)
        asked, shown = asked_ports(job), _shown(job)
        for address in sorted(shown.union(given.get(job.ref.uid, ()))) if asked else ():
            by_hand = by_hand_at(address, known, scene)
            theirs = set(_of_others(job, address, scene, known, is_shown=address in shown))
            if address in shown.intersection(given.get(job.ref.uid, ())):
                # What it has without a rule is not another's by a rule that a refused one has left.
                theirs -= _had_alone(job, address, scene)
            for one in asked:
                whose = "another Service" if one in theirs else "a rule that is no Service's"
                if one in theirs or any(rule.has(*one) for rule in by_hand):
                    error = InvalidRequest(
                        f"spec.ports: port {one[1]} of {address} is that of {whose}: give another"
                        " port or address"
                    )
                    error.disowns = address in shown
                    raise error


def _check_denial(
    job: Job, addresses: Collection[str], state: State, scene: Scene, known: Index
) -> None:
    """Refuse to deny clients inside of what others have at an address, unless they are already.

    Only Azure's own rule AllowVnetInBound, which comes last, need let them in. Without floating IP
    they come to the address of a node, which is not denied.

    Raises:
        InvalidRequest: A rule by hand, or another namespace's Service, is reached at the address.
    """
    if job.lb is None or not (job.options.internal and job.options.denies) or state.group is None:
        return
    granted = guard.grants(job.lb, job.options, addresses)
    asked = {one for found in granted if not found.rule.sources for one in found.targets}
    for address in sorted(asked - guard.denied(state.group)):
        by_hand = {one.base for one in by_hand_at(address, known, scene)}
        for one in known.ports.get(address, ()):
            namespace = scene.services.get(one.base, job.ref.namespace)
            if one.base in by_hand or namespace != job.ref.namespace:
                theirs = "no Service" if one.base in by_hand else f"the namespace {namespace}"
                raise InvalidRequest(
                    f"annotation {DENIES}: {address} has a rule of {theirs} for port {one.port},"
                    " whose clients it would deny: leave it out, or name another address"
                )


def _of_others(job: Job, address: str, scene: Scene, known: Index, *, is_shown: bool) -> list[Port]:
    """Return those ports that a Service asks for which others have at an address.

    Where it is new to the Service, they are those of rules, also of one that has failed since its
    rule was made, and shows nothing. At one that the Service shows, statuses tell who has them, and
    what was had before: what a Service names in its spec its tenant writes.
    """
    every = known.asked.get(address, ())
    here = [one for one in scene.claims.get(address, ()) if one.is_opened]
    own = {(one.protocol, one.port) for one in every if one.base == job.ref.name}
    opened = [one for one in every if one.base != job.ref.name]
    led = [one for found in scene.claims.values() for one in found] if opened else []

    def had(but: str = "") -> set[Port]:
        shown, found = ([one for one in of if one.namespace != but] for of in (here, led))
        ports = _asked_for(opened, shown if is_shown else found)
        new = _kept(job, shown, scene) | _new(job, _asked_for(opened, found), scene)
        return (ports | new if is_shown else ports) - own

    theirs, outside = had(), had(but=job.ref.namespace)
    return [one for one in asked_ports(job) if one in theirs or is_open_with(one, outside)]


def points(
    job: Job, found: Sequence[str], state: State, known: Index, scene: Scene
) -> tuple[LoadBalancerIngress, ...]:
    """Return what a Service shows: its load balancer's addresses, and those that it names beside.

    What rules by hand have at an address nodes must not lead to pods; at one that somebody else
    leads to the nodes, only rules count that lead elsewhere.
    """
    proxies = {ip for ip in found if by_hand_at(ip, known, scene)}
    for ip in job.options.additional:
        if any(leads_away(one, state, scene) for one in by_hand_at(ip, known, scene)):
            proxies.add(ip)
    return tuple(
        LoadBalancerIngress(ip=ip, ip_mode=IP_MODE_PROXY if ip in proxies else None)
        for ip in (*found, *job.options.additional)
    )


def left_by(
    job: Job, state: State, known: Index, scene: Scene, had: frozenset[str], *, is_taken: bool
) -> frozenset[str]:
    """Return the addresses that a Service shows, and that its load balancer has no more.

    Azure gives them to whoever comes next, also to machines; what is to follow may fail for as long
    as the Service likes. Public IPs that are there keep their addresses, if nothing else has them,
    and an internal one that the Service names nobody else may name as long as its status shows it.
    With them go those at which a rule by hand has a port that the Service asks for, whatever this
    is refused for: nodes would lead what comes for the API server, for one, to the Service.

    Args:
        job: The Service.
        state: The observed state.
        known: The index of it.
        scene: The facts that do not change within the pass.
        had: The addresses that the Service was seen to have. What shows none of its frontends may
            be another load balancer, of which a new cloud-config has the name.
        is_taken: Whether Azure has refused the address that the Service names, as somebody else's.
    """
    has, by_hand = known.reached(job.ref.name), _by_hand(job, state, known, scene)
    if "" in has:
        return by_hand
    names = {one.lower() for one in job.options.names.values()}
    kept = {
        str(part(one, "ipAddress") or "")
        for one in state.addresses.values()
        if (not has or str(one["name"]).lower() in names) and not _is_others(one, job, scene)
    }
    if job.options.internal and not is_taken:
        named = set(job.options.addresses.values()) - state.taken
        kept |= {one for one in named if not _is_shown_beside(one, job, scene)}
    shown = _shown(job)
    return by_hand.union((shown if has else shown & had) - has - kept)


def _by_hand(job: Job, state: State, known: Index, scene: Scene) -> frozenset[str]:
    """Return the addresses nodes go by at which a rule by hand has a port that a Service asks for.

    At those that it names beside its own only rules count that lead elsewhere.
    """
    own = _shown(job)
    return frozenset(
        ip
        for ip in vip_addresses(job.ref.last_ingress)
        if (ip in own and port_in(by_hand_at(ip, known, scene), job))
        or (ip not in own and port_led_away(job, ip, state, scene, known))
    )


def _is_others(address: Resource, job: Job, scene: Scene) -> bool:
    """Tell whether a public IP is something else's by now, or another namespace's Service's."""
    is_foreign = refusal(owners_of(address), job.ref, Tenants(), ())
    is_user = job.ref.key in marks.users(address)
    return bool(user_elsewhere(address, scene.place) or (is_foreign and not is_user))


def _shown(job: Job) -> set[str]:
    """Return the addresses that a Service shows, without those of others that it names.

    The first one of each of its families is none of these, though the Service names it: it is, or
    was, that of its load balancer.
    """
    others = named_before(job.ref, job.lb.families if job.lb is not None else ())
    named = others.intersection(job.options.additional)
    return {point.ip for point in job.ref.last_ingress} - {"", *named}


def _is_shown_beside(address: str, job: Job, scene: Scene) -> bool:
    """Tell whether the status of another Service shows an address."""
    claims = scene.claims.get(address, ())
    return any(one.is_opened and one.base != job.ref.name for one in claims)


def gained(had: Mapping[str, Had], job: Job, addresses: Iterable[str]) -> dict[str, Had]:
    """Return what Services had, by their UIDs, once one is ensured: others lose what is new to it.

    Args:
        had: What they had before.
        job: The Service.
        addresses: The addresses of its frontends.
    """
    now = Had(frozenset(addresses), frozenset(asked_ports(job)))
    is_new = now.addresses.isdisjoint(point.ip for point in job.ref.last_ingress)
    before = had.get(job.ref.uid, Had() if is_new else now)
    new = now.ports - before.ports if now.addresses <= before.addresses else now.ports
    left = {
        uid: msgspec.structs.replace(one, ports=one.ports - new)
        for uid, one in (had.items() if new else ())
        if one.addresses & now.addresses
    }
    return {**had, **left, job.ref.uid: now}


def _kept(job: Job, claims: Iterable[Claim], scene: Scene) -> set[Port]:
    """Return the ports new to a Service that others had at its address, and still ask for."""
    others = (one for one in claims if one.base != job.ref.name)
    asked = {one.base: {*each_port(one.asked)} for one in others}
    theirs = (found & _had(base, scene) for base, found in asked.items())
    return _new(job, set[Port]().union(*theirs), scene)


def _new(job: Job, ports: set[Port], scene: Scene) -> set[Port]:
    """Return those ports that a Service did not have when it was ensured last.

    None while nobody knows what it had, since the manager has just started.
    """
    return ports - _had(job.ref.name, scene) if job.ref.name in scene.had else set()


def _had(base: str, scene: Scene) -> frozenset[Port]:
    """Return the ports that a Service had when it was ensured last, as far as that is known."""
    return scene.had.get(base, Had()).ports


def _had_alone(job: Job, address: str, scene: Scene) -> set[Port]:
    """Return the ports that a Service had when it was ensured last, and no other one there."""
    others = {one.base for one in scene.claims.get(address, ())} - {job.ref.name}
    there = (base for base in others if address in scene.had.get(base, Had()).addresses)
    return {*_had(job.ref.name, scene)}.difference(*(_had(base, scene) for base in there))


def _asked_for(opened: Iterable[Opened], claims: Iterable[Claim]) -> set[Port]:
    """Return the ports that rules lead to of Services that still ask for them."""
    ports = {one.base: one.asked for one in claims}
    return {
        (one.protocol, one.port)
        for one in opened
        if one.port in ports.get(one.base, {}).get(one.protocol, ())
    }
