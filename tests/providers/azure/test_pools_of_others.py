"""Pools that somebody else has put into a load balancer of the cluster, and what is in ours."""

import pytest

from proreus.cloudprovider import CloudError

from .balancing import delete, ensure, everything, machines, parts, service
from .emulator import seed
from .emulator.server import Emulator
from .emulator.store import network
from .site import started
from .test_strangers_beside import put_parts

FILLED = {
    "virtualNetwork": {"id": seed.VNET},
    "loadBalancerBackendAddresses": [{"name": "db", "properties": {"ipAddress": "10.0.9.9"}}],
}


async def test_a_pool_that_somebody_else_has_filled_keeps_its_load_balancer(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    async with started(azure) as provider:
        await ensure(provider, nodes, service())
        put_parts(azure, "backendAddressPools", {"name": "db", "properties": FILLED})
        before = everything(azure)
        with pytest.raises(CloudError, match="the pool db"):
            await delete(provider, service())
        assert everything(azure) == before
        stored = azure.store.of[network("loadBalancers", "kubernetes").lower()]
        (mine,) = (
            one for one in stored["properties"]["backendAddressPools"] if one["name"] != "db"
        )
        stored["properties"]["backendAddressPools"] = [mine]
        await delete(provider, service())
    assert not parts(azure, "backendAddressPools")
