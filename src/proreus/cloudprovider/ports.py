"""Remember which Services have which ports of what several share: an address, a load balancer.

Where a cloud cannot change the part that serves a port, that is deleted before the next one is
made. In between nothing shows whose the port is, and another Service may wait for it.
"""

from collections.abc import Callable, Iterable

from proreus.cloudprovider.listers import Lister
from proreus.kube.objects import KubeObject, Service

Key = tuple[str, int]
"""A protocol, as a Service's ports have it, and a port."""


def ports_of(service: Service) -> frozenset[Key]:
    """Return the ports that a Service asks for."""
    return frozenset((one.protocol, one.port) for one in service.spec.ports)


class Ports:
    """The Services by the ports that they were seen to have."""

    def __init__(self, services: Lister[KubeObject]) -> None:
        """Know of no port yet; keep all Services."""
        self._services = services
        self._holders: dict[tuple[str, Key], str] = {}

    def note(self, uid: str, ports: Iterable[tuple[str, Key]]) -> None:
        """Note the ports that a Service has, each with the id of what it is of."""
        self._holders.update((port, uid) for port in ports)

    def forget(self, uid: str) -> None:
        """Forget a Service that has no ports any more."""
        self._holders = {port: one for port, one in self._holders.items() if one != uid}

    def holder(
        self, uid: str, place: str, key: Key, asks: Callable[[Service], bool]
    ) -> Service | None:
        """Return the other Service that had a port, if it still asks for it.

        Args:
            uid: The UID of the Service that wants the port.
            place: The id of what the port is of.
            key: The port.
            asks: Tells whether a Service asks for that place.
        """
        other = self._holders.get((place, key), uid)
        if other == uid:
            return None
        return next(
            (
                one
                for one in self._services.all()
                if isinstance(one, Service)
                and one.metadata.uid == other
                and one.spec.type == "LoadBalancer"
                and one.metadata.deletion_timestamp is None
                and key in ports_of(one)
                and asks(one)
            ),
            None,
        )
