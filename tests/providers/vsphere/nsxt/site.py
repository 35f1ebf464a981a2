"""Providers of the network alone, on an emulated NSX-T: no vCenter has to run for them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import msgspec

from proreus.cloudprovider import CloudProvider
from proreus.cloudprovider.config import read
from proreus.cloudprovider.context import Context
from proreus.providers.vsphere.config import VSphereConfig
from proreus.providers.vsphere.nsxt.network import Network

from ..site import context  # noqa: TID252 - pytest imports tests by path
from .emulator.server import Emulator
from .emulator.world import GATEWAY

NETWORK = f"""
[Route]
router-path = {GATEWAY}
[LoadBalancer]
size = SMALL
ip-pool-name = "VIP pool"
tier1-gateway-path = {GATEWAY}
tcp-app-profile-name = default-tcp-lb-app-profile
udp-app-profile-name = default-udp-lb-app-profile
tags = "{{\\"site\\": \\"a\\"}}"
"""
"""Sections as of the official manager, which makes the load balancer service itself."""
MANAGED = f"""
[Global]
server = vcenter.example
user = u
password = p
{NETWORK}"""
"""A cloud-config with them, and a vCenter that nobody asks."""


class NsxtCloud(CloudProvider):
    """NSX-T without the vCenter of the provider `vsphere`."""

    name: ClassVar[str] = "vsphere"
    needs: frozenset[str] = frozenset({"services"})
    config_type: ClassVar[type[msgspec.Struct] | None] = VSphereConfig

    async def start(self, context: Context) -> None:
        network = self.closing(
            Network(self.config_as(VSphereConfig), context, confirm=self.confirm)
        )
        self.load_balancers, self.routes = network.load_balancers, network.routes


def cloud(text: str) -> NsxtCloud:
    return NsxtCloud(read(text, VSphereConfig, source="vsphere.conf"))


@asynccontextmanager
async def started(
    nsxt: Emulator, text: str = MANAGED, with_: Context | None = None, **changed: Any
) -> AsyncIterator[NsxtCloud]:
    """A provider on the emulator; `changed` is about the section [NSXT]."""
    provider = cloud(text + nsxt.config(**changed))
    provider.confirm = 1.0
    try:
        await provider.start(with_ or context())
        yield provider
    finally:
        await provider.close()
