"""A manager's Services on NSX-T beside those of another cluster that has no other name."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proreus.cloudprovider import CloudProvider
from proreus.kube.requests import SERVICES
from proreus.providers.vsphere.nsxt.balancing.desired import ANNOTATION
from proreus.testing.memory import MemoryApiServer, Store
from proreus.testing.waiting import until

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
        self.spec = {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": ports}
        self.create("web")

    def create(self, name: str, **asks: str) -> None:
        spec = {**self.spec, **asks}
        self.store.create(SERVICES, "shop", {"metadata": {"name": name}, "spec": spec})

    def edit(self, **annotations: str) -> None:
        found = self.store.get(SERVICES, "shop", "web")
        meta = {**found.metadata, "annotations": annotations}
        self.store.update(SERVICES, found, {**found.body, "metadata": meta})

    def delete(self, name: str) -> None:
        self.store.delete(SERVICES, self.store.get(SERVICES, "shop", name), {})

    def shown(self, name: str = "web") -> list[str]:
        status = self.store.get(SERVICES, "shop", name).body.get("status", {})
        return [one["ip"] for one in status.get("loadBalancer", {}).get("ingress", ())]


@asynccontextmanager
async def managed(shop: Shop, provider: CloudProvider) -> AsyncIterator[None]:
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
        yield


async def test_an_address_that_was_withdrawn_proves_nothing_when_the_service_is_deleted(
    nsxt: Emulator,
) -> None:
    """The official manager of a namesake has got it meanwhile, for a Service of that name."""
    shop, provider = Shop(), cloud(MANAGED + nsxt.config())
    provider.confirm = 1.0
    site = LBSite(nsxt, provider)
    async with managed(shop, provider):
        await until("the Service has an address", shop.shown)
        (address,) = shop.shown()
        for path in site.paths():
            nsxt.remove(path)
        nsxt.fail(Fault("PUT *", status=500, times=1000))
        shop.edit(a="b")
        await until("its address is withdrawn", lambda: not shop.shown())
        theirs = site.official(address)
        nsxt.mend()
        shop.delete("web")
        await until("the Service is gone", lambda: not shop.store.count(SERVICES))
    assert theirs <= site.paths()


async def test_an_address_that_another_service_had_meanwhile_proves_nothing_either(
    nsxt: Emulator,
) -> None:
    """It left the status for that one, and then the namesake has got it."""
    shop, provider = Shop(), cloud(MANAGED + nsxt.config())
    provider.confirm = 1.0
    site = LBSite(nsxt, provider)
    nsxt.store.objects["/infra/ip-pools/vips"]["ip_release_delay"] = 0
    async with managed(shop, provider):
        await until("the Service has an address", shop.shown)
        (address,) = shop.shown()
        for path in site.paths():
            nsxt.remove(path)
        shop.edit(**{ANNOTATION: "that-is-none"})
        shop.create("api", loadBalancerIP=address)
        await until(
            "the other Service has it", lambda: shop.shown("api") == [address] and not shop.shown()
        )
        shop.delete("api")
        await until("the other Service is gone", lambda: shop.store.count(SERVICES) == 1)
        theirs = site.official(address)
        shop.delete("web")
        await until("the Service is gone", lambda: not shop.store.count(SERVICES))
    assert theirs <= site.paths()
