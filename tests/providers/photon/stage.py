"""A real API server, a Photon Controller, and the Nodes of its machines."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from proreus.kube.objects import TAINT_SHUTDOWN, Node, has_taint
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ...apiserver.site import Site, all_of, is_initialised  # noqa: TID252 - pytest imports tests by path
from .emulator.server import Emulator, write_login
from .emulator.world import Nic
from .site import config

T = TypeVar("T")

PACE: Final = (
    "--node-status-update-frequency=2s",
    "--node-monitor-period=1s",
    "--node-deletion-interval=2s",
    "--node-startup-grace=0s",
)
"""What a manager does every few minutes it does every few seconds."""


class Stage:
    """Everything but the managers."""

    def __init__(
        self, site: Site, emulator: Emulator, directory: Path, patience: float = 120.0
    ) -> None:
        self.site, self.emulator = site, emulator
        self.file = directory / "photon.conf"
        self.ids: dict[str, str] = {}
        self._login = directory / "login"
        self._authority = directory / "ca.pem"
        self._patience = patience
        self.configure(emulator)

    def configure(self, emulator: Emulator, **keys: object) -> None:
        """Write the cloud-config, the login file and the authorities."""
        client = ""
        if emulator.authentication:
            self._authority.write_bytes(emulator.authority.certificate)
            write_login(emulator, self._login)
            client = f"login-file = {self._login}\nca-file = {self._authority}"
            keys["authentication"] = "true"
        self.file.write_text(config(emulator, client, **keys))

    def manager(self) -> ManagerProcess:
        """This manager, with the rights of the generated roles."""
        return self.site.lone_manager(
            "--cloud-provider=photon", f"--cloud-config={self.file}", *PACE
        )

    async def join(self, *names: str, nics: Sequence[Nic] | None = None) -> None:
        """Start machines; their kubelets register ready Nodes."""
        for name in names:
            self.ids[name] = self.emulator.world.add_vm(name, nics)
        await all_of(
            self.site.register_node(Instance(name=name, id=self.ids[name]), ready=True)
            for name in names
        )

    async def leave(self, *names: str) -> None:
        """Let machines be deleted, and their kubelets with them."""
        for name in names:
            self.emulator.world.remove_vm(self.ids[name])
        await self.site.silence(*names)

    async def until(self, what: str, attempt: Callable[[], Awaitable[T | None]]) -> T:
        return await until(what, attempt, self._patience)

    async def initialised(self, names: Iterable[str]) -> dict[str, Node]:
        """Wait until exactly these nodes are there, with what their machines tell."""
        wanted = set(names)

        async def are_done() -> dict[str, Node] | None:
            nodes = await self.site.nodes()
            done = nodes.keys() == wanted and all(
                one.spec.provider_id == f"photon://{self.ids[name]}"
                and is_initialised(one)
                and any(at.type != "Hostname" for at in one.status.addresses)
                for name, one in nodes.items()
            )
            return nodes if done else None

        return await self.until(f"{len(wanted)} nodes are initialised", are_done)

    async def tainted(self, *names: str) -> None:
        """Wait until these nodes, and no others, have the taint of machines that are off."""

        async def are_tainted() -> bool:
            nodes = await self.site.nodes()
            tainted = {name for name, one in nodes.items() if has_taint(one, TAINT_SHUTDOWN)}
            return tainted == set(names)

        await self.until(f"{len(names)} nodes are tainted", are_tainted)

    async def further(self, operation: str, count: int, emulator: Emulator | None = None) -> None:
        """Wait until the manager has asked that many times more."""
        calls = (emulator or self.emulator).calls
        before = calls[operation]

        async def are_enough() -> bool:
            return calls[operation] >= before + count

        await self.until(f"{count} more of {operation}", are_enough)
