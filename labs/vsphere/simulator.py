"""Runs the simulator, and lets tests change what is in it as vSphere itself would."""

import asyncio
import json
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from labs.vsphere.program import program

USER: Final = "k8s@vsphere.local"
PASSWORD: Final = "planted-secret"  # noqa: S105 - of a simulator
FOLDER: Final = "/DC0/vm"
POOL: Final = "/DC0/host/DC0_C0/Resources"
HOST: Final = "/DC0/host/DC0_C0/DC0_C0_H0"
NETWORK: Final = "VM Network"
_LONGEST_LINE: Final = 1 << 22


class Simulator:
    """A vCenter without machines, for `async with`; it has datacenters DC0, DC1 and so on.

    Attributes:
        url: Where it serves, by plain HTTP.
        uuids: The BIOS UUIDs of machines by name.
    """

    def __init__(self, *, datacenters: int = 1, clusters: int = 1, hosts: int = 2) -> None:
        """Start nothing yet."""
        self._flags = (f"-datacenters={datacenters}", f"-clusters={clusters}", f"-hosts={hosts}")
        self.url = ""
        self.uuids: dict[str, str] = {}
        self._count = 0

    async def __aenter__(self) -> Self:
        """Start it."""
        self._process = await asyncio.create_subprocess_exec(
            str(await program()),
            *self._flags,
            f"-user={USER}",
            f"-password={PASSWORD}",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_LONGEST_LINE,
        )
        self._turn = asyncio.Lock()
        self.url = (await self._line()).strip()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def create(self, *names: str, **more: Any) -> None:
        """Make machines that run, with the names as host names and an address each.

        Args:
            names: Of the machines.
            more: What of their description is otherwise (`machine`).
        """
        machines = []
        for name in names:
            made = self.machine(name, **more)
            self.uuids[name] = made["uuid"]
            machines.append(made)
        await self.do("create", machines=machines)

    def machine(self, name: str, **more: Any) -> Mapping[str, Any]:
        """Return the description of a machine, as the program takes it."""
        self._count += 1
        address = f"10.0.{self._count // 250}.{self._count % 250 + 1}"
        return {
            "name": name,
            "uuid": str(uuid.uuid4()),
            "hostName": name,
            "address": address,
            "nics": [nic(address)],
            "power": "poweredOn",
            "guest": "ubuntu64Guest",
            "cpus": 4,
            "memory": 8192,
            "folder": FOLDER,
            "pool": POOL,
            "host": HOST,
        } | more

    async def change(self, name: str, **to: Any) -> None:
        """Change a machine: uuid, hostName, address, nics, power, connection or extra."""
        await self.do("change", machines=[{"name": name, **to}])

    async def destroy(self, name: str) -> None:
        """Delete a machine."""
        self.uuids.pop(name, None)
        await self.do("destroy", name=name)

    async def tag(self, category: str, tag: str, path: str) -> None:
        """Attach a tag to what is at a path of the inventory."""
        await self.do("tag", category=category, tag=tag, path=path)

    async def expire(self) -> None:
        """End all sessions of the SOAP API."""
        await self.do("expire")

    async def datastore(self, name: str, *hosts: str) -> None:
        """Let hosts, by their paths, mount a datastore that they share."""
        for host in hosts:
            await self.do("datastore", name=name, path=host)

    async def volume(self, datastore: str) -> str:
        """Make a volume of the CSI driver in a datastore, by its path; return its id."""
        return await self.do("volume", path=datastore)

    async def do(self, what: str, **fields: Any) -> str:
        """Give the program a command; return the id of what it made, if it tells one.

        Raises:
            RuntimeError: It cannot be done.
        """
        async with self._turn:
            if self._process.stdin is None:
                raise RuntimeError("vcsim has no input")
            self._process.stdin.write(json.dumps({"do": what, **fields}).encode() + b"\n")
            await self._process.stdin.drain()
            answer = json.loads(await self._line())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return str(answer.get("id", ""))

    async def _line(self) -> str:
        if self._process.stdout is None:
            raise RuntimeError("vcsim has no output")
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("vcsim has ended")
        return line.decode()


def nic(*addresses: str, network: str = NETWORK, device: int = 4000) -> Mapping[str, Any]:
    """Return the description of a network card."""
    return {"network": network, "addresses": _listed(addresses), "device": device}


def _listed(items: Sequence[str]) -> list[str]:
    return list(items)
