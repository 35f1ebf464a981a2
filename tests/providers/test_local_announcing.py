"""When the provider `local` announces addresses, which takes them from whoever has them."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proreus.app import readonly
from proreus.cloudprovider import CloudError
from proreus.providers.local import LocalCloud, announcer, load_balancers, nft
from proreus.providers.local.config import LocalConfig, PoolConfig
from proreus.providers.local.kernel import Observed
from proreus.providers.local.network import Interface, Ways
from proreus.providers.local.plan import Balancer, Check, Pool, State
from proreus.testing.waiting import until

from .local_site import CLUSTER, Objects, context

ADDRESS = ("192.0.2.1", "lan")
LAN = Interface("lan", (ipaddress.ip_interface("192.0.2.254/24"),))
CONFIG = LocalConfig(pools={"default": PoolConfig(addresses=("192.0.2.0/28",))})
STATE = State(
    {"uid": Balancer(CLUSTER.uid, "shop/web", {"IPv4": ADDRESS[0]}, (), {}, {"IPv4": "key"})},
    {"key": Pool("IPv4", Check())},
)


class Left:
    """A kernel that has a load balancer from before."""

    def __init__(self, _: Any) -> None:
        program = nft.program(STATE, nft.Settings())
        ways = {family: Ways() for family in ("IPv4", "IPv6")}
        self._observed = Observed(program, None, ways, (LAN,), {}, device=True)

    def show(self) -> Observed:
        return self._observed

    def __getattr__(self, name: str) -> Any:
        return lambda *_: {}


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(load_balancers, "Kernel", Left)
    monkeypatch.setattr(announcer, "announce", found.extend)
    monkeypatch.setattr(announcer, "_BETWEEN", 0.01)
    return found


@asynccontextmanager
async def started(**changes: Any) -> AsyncIterator[None]:
    cloud, given = LocalCloud(CONFIG), context()
    for name, value in changes.items():
        setattr(given, name, value)
    await cloud.start(given)
    try:
        yield
    finally:
        await cloud.close()


async def test_a_manager_that_starts_announces_what_the_kernel_has(
    announced: list[tuple[str, str]],
) -> None:
    async with started():
        await until("it is announced three times", lambda: announced == [ADDRESS] * 3)


async def test_a_command_that_only_reads_announces_nothing(
    announced: list[tuple[str, str]],
) -> None:
    listers = {"services": Objects(), "nodes": Objects()}
    async with readonly.started(LocalCloud(CONFIG), CLUSTER, listers, flags={}):
        await asyncio.sleep(0.2)
    assert announced == []


async def test_a_manager_without_its_lease_announces_nothing_more(
    announced: list[tuple[str, str]],
) -> None:
    def gate() -> None:
        if announced:
            raise CloudError("this replica holds no lease")

    async with started(gate=gate):
        await until("it is announced", lambda: announced)
        await asyncio.sleep(0.2)
    assert announced == [ADDRESS]
