"""The capability to work in replicas that do not lead, on the machines of the managers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.load_balancers import HostPolicy, LoadBalancer, LoadBalancerRef
from proreus.kube.objects import Node, Service

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context


class Standby(Protocol):
    """What a provider does on its own machine while another replica leads.

    The leader decides, which addresses Services have above all; a standby makes its machine ready
    to serve them. It changes nothing that is seen from elsewhere, but for what the provider itself
    agrees on with the other replicas, as on `Context.board`.
    """

    async def begin(self, context: "Context") -> None:
        """Prepare to work, with listers of Nodes and Services.

        Raises:
            CloudError: The work cannot begin now; it is tried again.
            ConfigError: The config is wrong.
        """

    def owns(self, node: Node) -> Ownership:
        """Tell whether a node is of this cloud, as `Instances.owns` does."""

    def host_policy(self, service: Service) -> HostPolicy:
        """Choose the nodes that may receive traffic, as `LoadBalancers.host_policy` does."""

    async def mirror(
        self, desired: Sequence[LoadBalancer], refused: Sequence[LoadBalancerRef]
    ) -> None:
        """Make this machine ready for these load balancers, and no others.

        Called again when any has changed.

        Args:
            desired: Load balancers with their addresses in the status of their Service.
            refused: Those of Services that ask for something impossible: the leader leaves them as
                they are, so what this machine has for them stays.

        Raises:
            CloudError: A part of the work is left to do; it is tried again.
        """

    async def end(self) -> None:
        """Stop: this replica leads from now on, or ends. What serves traffic goes on."""
