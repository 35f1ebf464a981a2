"""Report in `/metrics` how full the address pools are."""

from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client import Gauge

from proreus.cloudprovider import Lister
from proreus.cloudprovider.metrics import REGISTRY
from proreus.kube.objects import KubeObject, Service
from proreus.providers.local.addresses import Pool, contains, parse, size
from proreus.providers.local.pools import taken_by

TOTAL: Final = Gauge(
    "proreus_local_pool_addresses",
    "Addresses of the pool.",
    ["pool"],
    registry=REGISTRY,
)
USED: Final = Gauge(
    "proreus_local_pool_addresses_used",
    "Addresses of the pool that the status of a Service shows; a shared one counts once.",
    ["pool"],
    registry=REGISTRY,
)


def watch_pools(pools: Sequence[Pool], services: Lister[KubeObject]) -> None:
    """Serve the figures of these pools, and of no others, from now on."""
    TOTAL.clear()
    USED.clear()
    for pool in pools:
        TOTAL.labels(pool.name).set(size(pool))
        USED.labels(pool.name).set_function(
            lambda pool=pool: used(pool, services.all())  # type: ignore[misc]
        )


def used(pool: Pool, objects: Iterable[KubeObject]) -> int:
    """Count the addresses of the pool that Services have. Pure."""
    shown = taken_by(one for one in objects if isinstance(one, Service))
    addresses = {parse(one.address) for one in shown}
    return sum(address is not None and contains(pool, address) for address in addresses)
