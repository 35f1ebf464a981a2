"""A gateway of the provider `local` as a process of its own: `gateway_program.py NAME BOARD VIP…`.

It is in the network namespace that it was started in, stands by until a line says "lead", and
serves two nodes at the addresses. Its board is a directory. It ends with its input. With the board
"-" it only looks, as `proreus plan` does, for some seconds.
"""

import asyncio
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from proreus.app import readonly
from proreus.cloudprovider import ClusterIdentity, Context
from proreus.cloudprovider.board import Notice
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.kube.objects import LoadBalancerIngress, ServicePort
from proreus.providers.local import LocalCloud
from proreus.providers.local.config import Gateway, HealthChecks, LocalConfig, PoolConfig, Vrrp
from proreus.testing import objects

CLUSTER = ClusterIdentity("one", "uid-of-one")
NODES = {"one": "10.9.0.11", "two": "10.9.0.12"}
LOOKS = 7.0
"""Seconds: more than VRRP's first election takes."""
PORTS = (ServicePort(80, "web", "TCP"),)


class Directory:
    """A board of files, which are looked at several times a second."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._known: dict[str, tuple[str, float]] = {}

    async def post(self, name: str, text: str) -> None:
        fresh = self._place / f".{name}"
        fresh.write_text(text)
        fresh.rename(self._place / name)

    def notices(self) -> Mapping[str, Notice]:
        now = time.monotonic()
        return {name: Notice(text, now - since) for name, (text, since) in self._known.items()}

    async def changed(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            found = {
                one.name: one.read_text()
                for one in self._place.iterdir()
                if not one.name.startswith(".")
            }
            if found != {name: text for name, (text, _) in self._known.items()}:
                now = time.monotonic()
                self._known = {
                    name: self._known[name]
                    if self._known.get(name, ("",))[0] == text
                    else (text, now)
                    for name, text in found.items()
                }
                return


class Cache:
    """A cache that holds nothing."""

    def get(self, key: str) -> None: ...

    def all(self) -> tuple[()]:
        return ()

    def by(self, index: str, value: str) -> tuple[()]:
        return ()

    def event(self, *what: object) -> None: ...


def made(name: str, addresses: list[str]) -> LocalCloud:
    return LocalCloud(
        LocalConfig(
            pools={"default": PoolConfig(addresses=tuple(addresses))},
            health_checks=HealthChecks(interval=timedelta(seconds=0.2)),
            gateway=Gateway(
                interfaces=("eth0",), vrrp=Vrrp(enabled=True, name=name, gateways=("a", "b"))
            ),
        )
    )


async def look(name: str, addresses: list[str]) -> None:
    listers = {"services": Cache(), "nodes": Cache()}
    async with readonly.started(made(name, addresses), CLUSTER, listers, flags={}):
        await asyncio.sleep(LOOKS)


async def main(name: str, board: str, *addresses: str) -> None:
    if board == "-":
        await look(name, [*addresses])
        return
    provider = made(name, [*addresses])
    context = Context(
        CLUSTER,
        now=lambda: datetime.now(UTC),
        events=Cache(),
        listers={"services": Cache(), "nodes": Cache()},
        board=Directory(Path(board)),
    )
    assert provider.standby is not None
    await provider.standby.begin(context)
    nodes = [objects.node(one, f"local://{one}", addresses=(at,)) for one, at in NODES.items()]
    desired = [
        desired_load_balancer(
            objects.service(
                f"web-{number}",
                uid=f"uid-of-web-{number}",
                ports=PORTS,
                ip_families=("IPv6" if ":" in address else "IPv4",),
                ingress=[LoadBalancerIngress(ip=address, ip_mode="VIP")],
            ),
            nodes,
            provider.standby.host_policy(objects.service("web")),
            CLUSTER,
        )
        for number, address in enumerate(addresses)
    ]
    await provider.standby.mirror(desired, ())
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        if line.strip() == "lead":
            await provider.standby.end()
            await provider.start(context)
            print("leads", flush=True)
    await provider.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
