"""The conformance suite on the provider `local`: machines of an inventory, routes in a kernel.

The load balancers have a test of their own.
"""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import yaml

from proreus.cloudprovider import CloudProvider
from proreus.providers.local import LocalCloud
from proreus.providers.local.config import Gateway, InstancesConfig, LocalConfig
from proreus.testing.conformance import CloudFixture, Conformance

from .local_namespace import own_namespace


class Machines(CloudFixture):
    """A namespace whose network all machines are in, and an inventory, one file a machine."""

    async def __aenter__(self) -> Self:
        self._namespace = own_namespace()
        self._namespace.__enter__()
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
        return LocalCloud(LocalConfig(instances=inventory, gateway=Gateway(enabled=False)))

    async def create_machines(self, names: Sequence[str]) -> None:
        for name in names:
            number = len(self._machines) + 1
            address = f"10.9.{1 + number // 250}.{1 + number % 250}"
            self._machines[name] = {
                "name": name, "id": str(uuid.uuid4()), "addresses": [address],
            }  # fmt: skip
            self._write(self._machines[name])

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
