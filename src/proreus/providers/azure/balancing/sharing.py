"""Keep ports apart at addresses that Services share, or had before. Pure."""

from collections.abc import Iterable, Sequence

from proreus.cloudprovider.errors import InvalidRequest
from proreus.providers.azure.balancing.claims import asked_ports
from proreus.providers.azure.balancing.index import Index, Opened
from proreus.providers.azure.balancing.parts import Claim, Job, Scene


def check_shared(jobs: Sequence[Job], scene: Scene, known: Index) -> None:
    """Refuse ports that another Service has, by its rules, at an address that both show.

    Azure refuses them, too. But kube-proxy goes by ports and status alone, and would lead that
    one's clients to the Service: so it is to show no address meanwhile.

    Raises:
        InvalidRequest: Another one has a port, and still asks for it; names the port.
    """
    for job in jobs:
        shown = {point.ip for point in job.ref.last_ingress} - {"", *job.options.additional}
        asked = asked_ports(job)
        for address in shown if asked else ():
            opened = known.ports.get(address, ())
            own = {(one.protocol, one.port) for one in opened if one.base == job.ref.name}
            theirs = _asked_for(opened, scene.claims.get(address, ()), job.ref.name) - own
            if taken := [one for one in asked if one in theirs]:
                error = InvalidRequest(
                    f"spec.ports: port {taken[0][1]} of {address} is that of another Service: give"
                    " another port or address"
                )
                error.disowns = True
                raise error


def left_by(job: Job, known: Index) -> frozenset[str]:
    """Return the addresses that a Service shows, and that it has left for others.

    Azure has taken the new frontend, and gives the former address to whoever comes next; what is
    done after that may fail for as long as the Service likes.
    """
    frontends = {address for _, _, address in known.frontends.get(job.ref.name, ())}
    has = frontends | known.used.get(job.ref.name, set())
    shown = {point.ip for point in job.ref.last_ingress} - {"", *job.options.additional}
    return frozenset(shown - has) if has and "" not in has else frozenset()


def _asked_for(opened: Iterable[Opened], claims: Iterable[Claim], but: str) -> set[tuple[str, int]]:
    """Return the ports that rules lead to of other Services that still ask for them."""
    ports = {one.base: one.ports for one in claims if one.base != but}
    return {
        (one.protocol, one.port)
        for one in opened
        if one.port in ports.get(one.base, {}).get(one.protocol, ())
    }
