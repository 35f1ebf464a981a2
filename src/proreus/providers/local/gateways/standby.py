"""Keep this gateway ready to serve while another one's manager leads."""

from collections.abc import Callable, Sequence
from typing import Final

from proreus.cloudprovider.context import Context
from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.load_balancers import HostPolicy, LoadBalancer, LoadBalancerRef
from proreus.kube.objects import Node, Service
from proreus.providers.local.config import LocalConfig
from proreus.providers.local.gateways.room import Room
from proreus.providers.local.load_balancers import LocalLoadBalancers

_ANY_HOST: Final = HostPolicy()


class LocalStandby:
    """The capability `Standby` of `local`: keep in the kernel what the leader's kernel has."""

    def __init__(
        self, settings: LocalConfig, room: Room, owns: Callable[[Node], Ownership]
    ) -> None:
        """Keep the settings and the room, in which this gateway stays when it leads."""
        self._settings = settings
        self._room = room
        self._balancers: LocalLoadBalancers | None = None
        self.owns = owns

    async def begin(self, context: Context) -> None:
        """Read the state in the kernel, and begin to check nodes.

        Raises:
            CloudError: The state cannot be read.
        """
        self._room.meet(context.board)
        balancers = LocalLoadBalancers(context, self._settings, self._room)
        await balancers.start()
        self._balancers = balancers

    def host_policy(self, service: Service) -> HostPolicy:
        """Choose all nodes, in both families."""
        del service
        return _ANY_HOST

    async def mirror(
        self, desired: Sequence[LoadBalancer], refused: Sequence[LoadBalancerRef]
    ) -> None:
        """Make the kernel ready for these load balancers and no others, then meet the others.

        What the kernel has for `refused` ones stays.

        Raises:
            CloudError: The kernel refuses, its settings do not let traffic pass, or the gateway is
                another cluster's.
        """
        if self._balancers is not None:
            await self._balancers.mirror(desired, refused)

    async def end(self) -> None:
        """Stop checking nodes and changing the kernel."""
        if self._balancers is not None:
            await self._balancers.close()
            self._balancers = None
