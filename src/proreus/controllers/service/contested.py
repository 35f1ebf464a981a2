"""Tell whether a Service that fails shows an address of which another one has its port. Pure.

kube-proxy goes by ports and statuses alone, and knows nothing of a refusal: while both show the
address, it leads the other one's clients to the Service. Clouds say so where they see it
(`CloudError.disowns`); but a Service can be refused before, such as for a wrong annotation.
"""

from collections.abc import Iterable, Mapping

from proreus.controllers.service.intake import TYPE_LOAD_BALANCER
from proreus.controllers.service.plan import Memory, Port, ports_of
from proreus.kube.objects import Service, key

_PROXY = "Proxy"


def is_contested(
    service: Service, services: Iterable[Service], memory: Mapping[str, Memory]
) -> bool | None:
    """Tell whether a Service shows an address of another one, and asks for a port of that one.

    Who had the port when it was ensured last keeps it, and who only asks for it, too, takes nothing
    away. Return None if nobody knows yet who had it, since the manager has just started.

    Args:
        service: The Service that is not given what it asks for.
        services: All Services.
        memory: What is remembered of load balancers, by the keys of their Services.
    """
    points = service.status.load_balancer.ingress
    shown = {point.ip for point in points if point.ip and point.ip_mode != _PROXY}
    had = _had(service, memory)
    wanted = ports_of(service) - (had or frozenset())
    if not (shown and wanted):
        return False
    others = [
        one
        for one in services
        if any(point.ip in shown for point in one.status.load_balancer.ingress)
        and one.metadata.uid != service.metadata.uid
        and one.metadata.deletion_timestamp is None
        and one.spec.type == TYPE_LOAD_BALANCER
        and not wanted.isdisjoint(ports_of(one))
    ]
    theirs = [_had(one, memory) for one in others]
    if any(not wanted.isdisjoint(one) for one in theirs if one is not None):
        return True
    if None not in theirs:
        return False
    return True if had is not None else None


def _had(service: Service, memory: Mapping[str, Memory]) -> frozenset[Port] | None:
    """Return the ports that a Service had when it was ensured last; None if nobody knows."""
    found = memory.get(key(service))
    return found.ports if found is not None and found.ref.uid == service.metadata.uid else None
