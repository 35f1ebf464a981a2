"""A real API server, a cluster of Mesos, and the Nodes of its agents."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from proreus.kube.objects import Node
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Instance

from ...apiserver.site import Site, all_of, is_initialised  # noqa: TID252 - pytest imports tests by path
from .emulator import Cluster

PACE = ("--node-status-update-frequency=2s", "--node-monitor-period=1s")
"""What a manager does every few minutes it does every few seconds."""


class Stage:
    """Everything but the managers."""

    def __init__(self, site: Site, mesos: Cluster, directory: Path) -> None:
        self.site, self.mesos, self.directory = site, mesos, directory
        self.file = directory / "mesos.conf"
        self.file.write_text(mesos.config())

    async def join(self, *names: str, **more: Any) -> None:
        """Start agents, and let the kubelets on their hosts register Nodes."""
        for name in names:
            self.mesos.world.add(name, **more)
        await self.register(*names)

    async def register(self, *names: str) -> None:
        """Let the kubelets on hosts register Nodes."""
        register = partial(self.site.register_node, ready=True)
        await all_of(register(Instance(name=name, id="")) for name in names)

    def manager(self, *flags: str) -> ManagerProcess:
        """This manager, with the rights of the generated roles."""
        return self.site.lone_manager(
            "--cloud-provider=mesos", f"--cloud-config={self.file}", *PACE, *flags
        )

    async def initialised(self, names: Sequence[str]) -> dict[str, Node] | None:
        """The nodes, once exactly these are there and have all that their agents tell."""
        nodes = await self.site.nodes()
        are_done = nodes.keys() == set(names) and all(
            one.spec.provider_id == f"mesos://{self.mesos.world.on(name).id}"
            and is_initialised(one)
            and any(at.type == "InternalIP" for at in one.status.addresses)
            for name, one in nodes.items()
        )
        return nodes if are_done else None
