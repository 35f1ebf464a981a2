"""A manager's Services on NSX-T beside those of another cluster that has no other name."""

import asyncio
from collections.abc import Callable

from proreus.kube.requests import SERVICES
from proreus.testing.memory import MemoryApiServer, Store

from ....controllers.leading import leading  # noqa: TID252 - pytest imports tests by path
from ..site import CLUSTER  # noqa: TID252
from .emulator.server import Emulator, Fault
from .lb_site import LBSite
from .site import MANAGED, cloud


class Shop:
    """The Service shop/web."""

    def __init__(self) -> None:
        self.store = Store()
        ports = [{"port": 80, "nodePort": 30080}]
        spec = {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": ports}
        self.store.create(SERVICES, "shop", {"metadata": {"name": "web"}, "spec": spec})

    def shown(self) -> list[str]:
        status = self.store.get(SERVICES, "shop", "web").body.get("status", {})
        return [one["ip"] for one in status.get("loadBalancer", {}).get("ingress", ())]


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.1)


async def test_an_address_that_was_withdrawn_proves_nothing_when_the_service_is_deleted(
    nsxt: Emulator,
) -> None:
    """The official manager of a namesake has got it meanwhile, for a Service of that name."""
    shop, provider = Shop(), cloud(MANAGED + nsxt.config())
    provider.confirm = 1.0
    site = LBSite(nsxt, provider)
    async with (
        MemoryApiServer(shop.store) as server,
        leading(
            server.url,
            provider,
            "service-lb-controller",
            cloud_provider="vsphere",
            cluster_name=CLUSTER.name,
        ),
    ):
        await until(lambda: bool(shop.shown()))
        (address,) = shop.shown()
        for path in site.paths():
            nsxt.remove(path)
        nsxt.fail(Fault("PUT *", status=500, times=1000))
        found = shop.store.get(SERVICES, "shop", "web")
        meta = {**found.metadata, "annotations": {"a": "b"}}
        shop.store.update(SERVICES, found, {**found.body, "metadata": meta})
        await until(lambda: not shop.shown())
        theirs = site.official(address)
        nsxt.mend()
        shop.store.delete(SERVICES, shop.store.get(SERVICES, "shop", "web"), {})
        await until(lambda: not shop.store.count(SERVICES))
    assert theirs <= site.paths()
