"""The conformance suite on the provider `local`: machines of an inventory, a kernel of its own."""

import asyncio
import shutil
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

from proreus.cloudprovider import CloudProvider
from proreus.providers.local import LocalCloud
from proreus.providers.local.bgp.config import BGP, Peer
from proreus.providers.local.config import (
    Gateway,
    HealthChecks,
    InstancesConfig,
    LocalConfig,
    PoolConfig,
)
from proreus.testing.conformance import CloudFixture, Conformance

from .local_namespace import own_namespace

if not all(shutil.which(program) for program in ("nft", "ip")):
    pytest.skip("nft or ip is missing", allow_module_level=True)


def quick(config: LocalConfig) -> LocalCloud:
    """Return a provider that is sure at once that nobody writes the inventory."""
    provider = LocalCloud(config)
    provider.settled = 0.0
    return provider


class Machines(CloudFixture):
    """A namespace whose network all machines are in, and an inventory, one file a machine."""

    lacks: Collection[str] = ("endpoint", "groups")
    own_data_path = (
        True  # connections are led to nodes as they are: tests/providers/test_local_traffic.py
    )

    async def __aenter__(self) -> Self:
        self._namespace = own_namespace()
        self._namespace.__enter__()
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        self._directory = TemporaryDirectory()
        self._machines: dict[str, dict[str, Any]] = {}
        await self.create_machines(["stays"])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._directory.cleanup()
        self._namespace.__exit__(None, None, None)

    def provider(self, endpoint: str) -> CloudProvider:
        inventory = InstancesConfig(inventory=self._directory.name)
        return quick(
            LocalConfig(
                instances=inventory,
                pools={"default": PoolConfig(addresses=("10.9.255.0/24",))},
                # Nobody answers in this network; what is told of it must not come in between.
                health_checks=HealthChecks(interval=timedelta(hours=1)),
            )
        )

    async def create_machines(self, names: Sequence[str]) -> None:
        for name in names:
            number = len(self._machines) + 1
            address = f"10.9.{1 + number // 250}.{1 + number % 250}"
            self._machines[name] = {
                "name": name, "id": str(uuid.uuid4()), "addresses": [address],
            }  # fmt: skip
            self._write(self._machines[name])

    async def remove_object(self, id_: str) -> None:
        """Everything is in one table, so this is more than one load balancer."""
        command = ("nft", "delete", "table", "inet", "proreus")
        assert await (await asyncio.create_subprocess_exec(*command)).wait() == 0

    async def remove_machine(self, name: str) -> None:
        self._file(name).unlink()

    async def stop_machine(self, name: str) -> None:
        self._write(self._machines[name] | {"state": "stopped"})

    def _write(self, machine: Mapping[str, Any]) -> None:
        self._file(machine["name"]).write_text(yaml.safe_dump({"machines": [dict(machine)]}))

    def _file(self, name: str) -> Path:
        return Path(self._directory.name, f"{name}.yaml")


class TestLocal(Conformance):
    fixture = Machines


class Announcing(Machines):
    """The same machines, whose load balancers are no more than addresses of Services."""

    lacks = ("endpoint", "groups", "list_owned", "fingerprint")

    def provider(self, endpoint: str) -> CloudProvider:
        inventory = InstancesConfig(inventory=self._directory.name)
        return quick(
            LocalConfig(
                instances=inventory,
                pools={"default": PoolConfig(addresses=("10.9.255.0/24",))},
                gateway=Gateway(enabled=False),
                bgp=BGP(as_=64512, peers={"tor": Peer(address="10.9.0.1", as_=64513)}),
            )
        )


class TestAnnounced(Conformance):
    fixture = Announcing
    test_throttled = None  # to assign an address nothing is called that could refuse
