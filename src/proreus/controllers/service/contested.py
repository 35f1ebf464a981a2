"""Tell which Services show an address of which another one has their port.

kube-proxy goes by ports and statuses alone, and knows nothing of a refusal: while both show the
address, it leads the other one's clients to the Service. Clouds say so where they see it
(`CloudError.disowns`); but a Service can be refused before, such as for a wrong annotation, and an
address that it has left may be given to another one.
"""

from collections import ChainMap
from collections.abc import Callable, Iterable

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.load_balancers import EnsureAnswer, Ensured, Pending
from proreus.cloudprovider.ports import Key, ports_of
from proreus.controllers.service.conditions import ELSEWHERE
from proreus.controllers.service.intake import TYPE_LOAD_BALANCER, UNDECIDED, cloud_in_status
from proreus.controllers.service.plan import Memory, doubted, with_ip_mode, withdrawn
from proreus.kube.objects import Node, Service, key, vip_addresses

BY_ADDRESS = "address"
"""The index of Services by the addresses that kube-proxy goes by."""

Showing = Callable[[str, str], Iterable[Service]]
"""Returns the Services with a value in an index, such as those that show an address."""

Known = Callable[[Service], Memory | None]
"""Returns what is remembered of a Service's load balancer, or of a former one's of its name."""

Contested = Callable[[Service], bool | None]
"""Tells whether a Service that fails shows an address of which another one has its port, or that it
has left."""


def uncontested(_: Service) -> bool | None:
    """Return False: nobody else has the Service's ports."""
    return False


def addresses(service: Service) -> tuple[str, ...]:
    """Return the addresses for which nodes lead a Service's ports to its pods."""
    return vip_addresses(service.status.load_balancer.ingress)


def is_contested(service: Service, showing: Showing, known: Known) -> bool | None:
    """Tell whether a Service shows an address of another one, and asks for a port of that one.

    Who had the port when it was ensured last keeps it, and who only asks for it, too, takes nothing
    away. Return None if nobody knows yet who had it, since the manager has just started.

    Args:
        service: The Service that is not given what it asks for.
        showing: Finds Services by an index.
        known: Tells what is remembered of load balancers.
    """
    had = _had(service, known)
    wanted = ports_of(service) - (had or frozenset())
    every = _others(service.metadata.uid, addresses(service), showing)
    others = [
        one
        for one in every
        if one.metadata.deletion_timestamp is None and not ports_of(one).isdisjoint(wanted)
    ]
    theirs = [_had(one, known) for one in others]
    if any(not wanted.isdisjoint(one) for one in theirs if one is not None):
        return True
    if None not in theirs:
        return False
    return True if had is not None else None


def _others(uid: str, shown: Iterable[str], showing: Showing) -> list[Service]:
    """Return the Services but one that show one of some addresses."""
    every = {one.metadata.uid: one for ip in shown for one in showing(BY_ADDRESS, ip)}
    return [
        one
        for one in every.values()
        if one.metadata.uid != uid and one.spec.type == TYPE_LOAD_BALANCER
    ]


def _had(service: Service, known: Known) -> frozenset[Key] | None:
    """Return the ports that a Service had when it was ensured last; None if nobody knows."""
    found = known(service)
    return found.ports if found is not None and found.ref.uid == service.metadata.uid else None


def _has_left(service: Service, memory: Memory | None) -> bool:
    """Tell whether the status shows an address that the load balancer has left.

    What another controller shows is that one's.
    """
    if memory is None or memory.ref.uid != service.metadata.uid or memory.condition == ELSEWHERE:
        return False
    held = {point.ip for point in memory.ref.last_ingress}
    return memory.withdrawn and not held.issuperset(addresses(service))


class Holders:
    """The knowledge of who has which ports, of the controllers of all clouds together.

    Whoever may edit a Service can have it refused by another cloud than the one that has its ports.
    """

    def __init__(self, showing: Showing) -> None:
        """Begin without a controller; `showing` finds the Services of all clouds."""
        self._showing = showing
        self._members: dict[str, tuple[dict[str, Memory], Callable[[str], None]]] = {}

    def join(
        self, cloud: str, memory: dict[str, Memory], again: Callable[[str], None]
    ) -> Contested:
        """Add a cloud's controller, in the place of its predecessor.

        Args:
            cloud: The name of the cloud.
            memory: What it remembers of load balancers, by the keys of their Services.
            again: Has it look at a Service again, if that is its own.

        Returns:
            `gives_up` for its Services; true also of one that shows what its load balancer has
            left, since that could not be written, or what another of the clouds gave it before.
        """
        self._members[cloud] = memory, again

        def tells(one: Service) -> bool | None:
            has_left = self.is_moved(one, cloud) or _has_left(one, memory.get(key(one)))
            return has_left or self.gives_up(one)

        return tells

    def is_moved(self, service: Service, cloud: str) -> bool:
        """Tell whether a Service of this cloud shows what another of the clouds gave it before.

        What no cloud can be chosen for is left to the one that has it.
        """
        return cloud != UNDECIDED and cloud_in_status(service) in self._members.keys() - {cloud}

    def is_contested(self, service: Service) -> bool | None:
        """Tell what the function `is_contested` does, by the memory of all clouds."""
        return is_contested(service, self._showing, self._known)

    def _known(self, service: Service) -> Memory | None:
        """Return what the cloud knows that the Service's status names; else any cloud.

        Another one may still have what it had before, with other ports.
        """
        member = self._members.get(cloud_in_status(service))
        members = self._members.values() if member is None else (member,)
        return ChainMap(*(memory for memory, _ in members)).get(key(service))

    def gives_up(self, service: Service) -> bool | None:
        """Tell the same where the address leaves the status if so.

        It is another one's then, and proves no more what is to be deleted with the Service.
        """
        found = self.is_contested(service)
        for memory, _ in self._members.values() if found else ():
            known = memory.get(key(service))
            if known is not None and known.ref.uid == service.metadata.uid:
                memory[key(service)] = doubted(withdrawn(known))
        return found

    def admitted(
        self,
        service: Service,
        cloud: str,
        before: Memory,
        answer: EnsureAnswer,
        beside: Iterable[Node],
    ) -> EnsureAnswer:
        """Return the answer, or an error if it gives what is another of the clouds'.

        Clouds may have the same addresses, and none knows which ports another one has given there,
        nor its machines. What the Service had already it goes on having.

        Args:
            service: The Service that was ensured.
            cloud: The name of the cloud that was asked.
            before: What was remembered of the Service before.
            answer: What the cloud has answered.
            beside: The nodes that are not the cloud's.
        """
        if not cloud or not isinstance(answer, Ensured | Pending):
            return answer
        shown, ports = vip_addresses(with_ip_mode(answer.ingress)), ports_of(service)
        new = set(shown).difference(vip_addresses(before.ref.last_ingress))
        if not new:
            ports -= ports if before.ports is None else before.ports
        for node in beside if new else ():
            if not new.isdisjoint(one.address for one in node.status.addresses):
                return CloudError(
                    f"the cloud {cloud} gives {', '.join(shown)}, an address of the node"
                    f" {node.metadata.name} elsewhere: ask for another address"
                ).disowning()
        for one in _others(service.metadata.uid, shown, self._showing):
            is_near = one.metadata.namespace == service.metadata.namespace
            theirs = cloud_in_status(one)
            if theirs not in {"", cloud} and not is_near and not ports.isdisjoint(ports_of(one)):
                return CloudError(
                    f"the cloud {cloud} gives {', '.join(shown)}, of which {key(one)} has the port"
                    f" in the cloud {theirs}: ask for another address or other ports"
                ).disowning()
        return answer

    def given(self, before: Memory, given: Memory) -> None:
        """Note that a Service was just ensured, and have those looked at that ask for its ports.

        A cloud gives a port of an address once. Those that had one have it no more, though they
        show the address, and even if they ask for others at present: they are ensured. Those that
        were refused before anybody had it are looked at again, too.

        Args:
            before: What was remembered of the Service before.
            given: What is remembered of it now.
        """
        ports, new = given.ports or frozenset(), _new_ports(before, given)
        for one in _others(given.ref.uid, vip_addresses(given.ref.last_ingress), self._showing):
            is_asking = not ports_of(one).isdisjoint(ports)
            for memory, again in self._members.values():
                known = memory.get(key(one))
                if known is not None and known.ref.uid == one.metadata.uid:
                    memory[key(one)] = _without(known, ports, new, is_asking=is_asking)
                if is_asking:
                    again(key(one))


def _new_ports(before: Memory, given: Memory) -> frozenset[Key]:
    """Return the ports that a Service was given, without those that it had, or lost, there before.

    So two Services to which a cloud gives one port are not ensured in turns for ever.
    """
    ports = given.ports or frozenset()
    shown, former = (vip_addresses(one.ref.last_ingress) for one in (given, before))
    if not set(shown).issubset(former):
        return ports
    return frozenset() if before.ports is None else ports - before.ports - before.lost


def _without(
    known: Memory, ports: frozenset[Key], new: frozenset[Key], *, is_asking: bool
) -> Memory:
    """Return the memory of a Service that has these ports no more; the new ones bring it up."""
    had = known.ports or frozenset()
    # Nobody looks again at one that is left to another controller, unless in doubt.
    is_doubted = not had.isdisjoint(new) or (is_asking and known.condition == ELSEWHERE)
    known = doubted(known) if is_doubted else known
    left = None if known.ports is None else had - ports
    return msgspec.structs.replace(known, ports=left, lost=known.lost | (had & ports))
