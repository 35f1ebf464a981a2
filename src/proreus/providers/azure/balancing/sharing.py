"""Keep ports apart at addresses that Services share, or had before. Pure."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proreus.cloudprovider.addresses import family_of
from proreus.cloudprovider.errors import InvalidRequest
from proreus.providers.azure.balancing.additional import named_before
from proreus.providers.azure.balancing.claims import asked_ports
from proreus.providers.azure.balancing.desired import each_port
from proreus.providers.azure.balancing.index import Index, Opened
from proreus.providers.azure.balancing.parts import Claim, Had, Job, Scene, State
from proreus.providers.azure.machines import part


def check_shared(jobs: Sequence[Job], scene: Scene, known: Index) -> None:
    """Refuse ports that others have, by their rules, at an address that the Service shows.

    Azure refuses them, too, but for those without a rule, which stay whose they were. But
    kube-proxy goes by ports and status alone, and would lead the clients of another Service to this
    one, or those of a rule by hand, such as the API server's: so it shows no address meanwhile.

    Raises:
        InvalidRequest: Another Service has a port, and still asks for it, or a rule by hand has it;
            names the port.
    """
    for job in jobs:
        asked = asked_ports(job)
        for address in _shown(job) if asked else ():
            opened = known.asked.get(address, ())
            own = {(one.protocol, one.port) for one in opened if one.base == job.ref.name}
            theirs = _asked_for(opened, scene.claims.get(address, ()), job.ref.name) - own
            theirs |= _kept(job, address, scene) - own
            by_hand = {(one.protocol, one.port) for one in by_hand_at(address, known, scene)}
            if taken := [one for one in asked if one in theirs | by_hand]:
                whose = "another Service" if taken[0] in theirs else "a rule that is no Service's"
                error = InvalidRequest(
                    f"spec.ports: port {taken[0][1]} of {address} is that of {whose}: give another"
                    " port or address"
                )
                error.disowns = True
                raise error


def by_hand_at(address: str, known: Index, scene: Scene) -> list[Opened]:
    """Return the ports that rules by hand have at an address, such as the API server's."""
    return [one for one in known.by_hand.get(address, ()) if one.base not in scene.services]


def left_by(
    job: Job, state: State, known: Index, scene: Scene, had: frozenset[str], *, is_taken: bool
) -> frozenset[str]:
    """Return the addresses that a Service shows, and that its load balancer has no more.

    Azure gives them to whoever comes next, also to machines; what is to follow may fail for as long
    as the Service likes. Public IPs that are there keep their addresses, and an internal one that
    the Service names nobody else may name as long as its status shows it.

    Args:
        job: The Service.
        state: The observed state.
        known: The index of it.
        scene: The facts that do not change within the pass.
        had: The addresses that the Service was seen to have. What shows none of its frontends may
            be another load balancer, of which a new cloud-config has the name.
        is_taken: Whether Azure says that somebody else has the address that the Service names.
    """
    frontends = {address for _, _, address in known.frontends.get(job.ref.name, ())}
    has = frontends | known.used.get(job.ref.name, set())
    if "" in has:
        return frozenset()
    names = {one.lower() for one in job.options.names.values()}
    kept = {
        str(part(one, "ipAddress") or "")
        for one in state.addresses.values()
        if not has or str(one["name"]).lower() in names
    }
    if job.options.internal and not is_taken:
        kept |= {
            one for one in job.options.addresses.values() if not _is_shown_beside(one, job, scene)
        }
    shown = _shown(job)
    return frozenset((shown if has else shown & had) - has - kept)


def _shown(job: Job) -> set[str]:
    """Return the addresses that a Service shows, without those of others that it names.

    The first one of each of its families is none of these, though the Service names it: it is, or
    was, that of its load balancer.
    """
    families = job.lb.families if job.lb is not None else ()
    others = named_before(job.ref)
    named = {
        one for one in job.options.additional if one in others or family_of(one) not in families
    }
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
    before = had.get(job.ref.uid, now)
    new = now.ports - before.ports if now.addresses <= before.addresses else now.ports
    left = {
        uid: msgspec.structs.replace(one, ports=one.ports - new)
        for uid, one in (had.items() if new else ())
        if one.addresses & now.addresses
    }
    return {**had, **left, job.ref.uid: now}


def _kept(job: Job, address: str, scene: Scene) -> set[tuple[str, int]]:
    """Return the ports new to a Service that others had at an address, and still ask for.

    None while nobody knows what it had, since the manager has just started.
    """
    had = scene.had.get(job.ref.name)
    others = (one for one in scene.claims.get(address, ()) if one.base != job.ref.name)
    return {
        port
        for one in others
        if had is not None and one.is_opened
        for port in each_port(one.asked)
        if port not in had and port in scene.had.get(one.base, ())
    }


def _asked_for(opened: Iterable[Opened], claims: Iterable[Claim], but: str) -> set[tuple[str, int]]:
    """Return the ports that rules lead to of other Services that still ask for them."""
    ports = {one.base: one.asked for one in claims if one.base != but}
    return {
        (one.protocol, one.port)
        for one in opened
        if one.port in ports.get(one.base, {}).get(one.protocol, ())
    }
