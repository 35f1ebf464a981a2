"""Tell on each Service which gateway answers for its addresses, where several share them."""

from typing import Final

from proreus.cloudprovider.context import Context
from proreus.kube.objects import KubeObject
from proreus.providers.local.gateways import plan
from proreus.providers.local.gateways.room import Room
from proreus.providers.local.plan import State

REASON: Final = "AnsweredByGateway"
"""The reason of the events."""


class Teller:
    """A teller of events about Services; only the leader has one that is heard."""

    def __init__(self, context: Context, room: Room) -> None:
        """Begin without having told anything."""
        self._context = context
        self._room = room
        self._told: dict[str, str] = {}

    def tell(self, state: State) -> None:
        """Record an event on each Service with an address that another gateway answers for."""
        services = {
            address: one.service
            for one in state.balancers.values()
            for address in one.addresses.values()
        }
        found = plan.owners(services, self._room.notes(), self._room.name)
        for address, owner in found.items():
            service: KubeObject | None = self._context.listers["services"].get(services[address])
            if service is None or self._told.get(address) == owner:
                continue
            before = self._told.get(address, "")
            moved = f", before it was {before}" if before else ""
            message = f"the gateway {owner} answers for {address}{moved}"
            self._context.events.event(service, "Normal", REASON, message)
            self._told[address] = owner
        self._told = {one: owner for one, owner in self._told.items() if one in services}
