"""Make the capabilities that a cloud-config with sections of NSX-T asks for."""

from typing import TYPE_CHECKING

from proreus.cloudprovider.adapters import from_verbs
from proreus.cloudprovider.load_balancers import LoadBalancers
from proreus.cloudprovider.routes import Routes
from proreus.providers.vsphere.nsxt.api import Api
from proreus.providers.vsphere.nsxt.balancing.load_balancers import NsxtLoadBalancers
from proreus.providers.vsphere.nsxt.routes import NsxtRoutes

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context
    from proreus.providers.vsphere.config import VSphereConfig


class Network:
    """A manager of NSX-T. Nothing is asked of it here: nodes do not depend on it.

    Attributes:
        load_balancers: The capability, if the cloud-config asks for it.
        routes: The capability, if the cloud-config asks for it.
    """

    def __init__(self, config: "VSphereConfig", context: "Context", *, confirm: float) -> None:
        """Make a client, and the capabilities; `confirm` is the provider's.

        Raises:
            ConfigError: A file that the cloud-config names cannot be used.
        """
        timeout = config.client.timeout.total_seconds()
        self._api = Api(config.nsxt, context, timeout=timeout)
        self.load_balancers: LoadBalancers | None = None
        self.routes: Routes | None = None
        if config.balances:
            own = config.load_balancer_class
            services = context.listers["services"]
            balancing = NsxtLoadBalancers(
                self._api, config.load_balancer, own, services, confirm=confirm
            )
            self.load_balancers = from_verbs(balancing)
        if config.route.router_path:
            self.routes = NsxtRoutes(self._api, config.route.router_path)

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()
