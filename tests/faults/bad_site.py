"""A cluster whose manager, a real process, has the bad provider as an installed plugin."""

import json
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proreus.kube.objects import TAINT_UNINITIALIZED, Service, condition
from proreus.kube.requests import NODES, SERVICES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess
from proreus.testing.ports import free_port
from proreus.testing.waiting import until

from ..apiserver.rights import MANAGERS  # noqa: TID252 - pytest imports tests by path
from ..apiserver.site import Site, set_up  # noqa: TID252 - pytest imports tests by path

LOG_TAIL = 8000
HERE = Path(__file__).parent


class BadSite:
    """A site with a bad provider."""

    def __init__(self, base: Site, manager: ManagerProcess, port: int) -> None:
        self.base = base
        self.client = base.client
        self.manager = manager
        self._url = f"http://127.0.0.1:{port}"

    async def add_nodes(self, *names: str) -> None:
        """Create Nodes as kubelets with an external cloud provider do."""
        taint = {"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
        for name in names:
            await self.client.create(
                NODES, {"metadata": {"name": name}, "spec": {"taints": [taint]}}
            )

    async def add_services(self, *names: str) -> None:
        """Create Services of type LoadBalancer."""
        for name in names:
            await self.base.create_service(name)

    async def said(self, name: str, *reasons: str, part: str = "") -> Service:
        """Wait until the Service's condition has one of the reasons, with `part` in its text."""

        async def says() -> Service | None:
            found = await self.base.service(name)
            state = condition(found.status.conditions, "LoadBalancerReady")
            fits = state is not None and state.reason in reasons and part in state.message
            return found if fits else None

        return await until(f"{name} says {reasons} {part}", says)

    async def delete_service(self, name: str) -> None:
        """Delete a Service; it goes when its finalizer does."""
        await self.client.delete(SERVICES, name, "default")

    async def gone(self, name: str) -> None:
        """Wait until the Service is gone."""

        async def is_gone() -> bool:
            found = (await self.client.list(SERVICES, "default")).items
            return name not in {one.metadata.name for one in found}

        await until(f"{name} is gone", is_gone)

    async def counted(self, verb: str, kind: str) -> None:
        """Wait until a fault of that verb and kind is in the metrics."""
        line = f'proreus_provider_faults_total{{kind="{kind}",provider="bad",verb="{verb}"}}'

        async def shown() -> bool:
            return line in await self.get("/metrics")

        await until(line, shown)

    async def logged(self, text: str) -> None:
        """Wait until the manager has written the text."""

        async def written() -> bool:
            return text in self.manager.output()

        await until(f"the log has {text!r}", written)

    async def get(self, path: str) -> str:
        """A page of the manager."""
        async with aiohttp.ClientSession() as session, session.get(self._url + path) as answer:
            return await answer.text()


def install(directory: Path) -> Path:
    """A folder for PYTHONPATH, with the provider and the entry point that announces it."""
    shutil.copy(HERE / "bad_provider.py", directory)
    info = directory / "bad_ccm-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-ccm\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[proreus.cloudproviders]\nbad = bad_provider:BadProvider\n"
    )
    return directory


@asynccontextmanager
async def bad_site(
    plane: ControlPlane,
    directory: Path,
    environment: pytest.MonkeyPatch,
    deeds: Iterable[str],
    *flags: str,
    **config: Any,
) -> AsyncIterator[BadSite]:
    """A site whose manager runs, with a provider that does these deeds."""
    plugins = directory / "plugins"
    plugins.mkdir()
    environment.setenv("PYTHONPATH", str(install(plugins)))
    file = directory / "bad.json"
    file.write_text(json.dumps({"deeds": list(deeds), **config}))
    port = free_port()
    async with set_up(plane, directory) as base:
        manager = ManagerProcess(
            "--cloud-provider=bad",
            f"--cloud-config={file}",
            f"--kubeconfig={plane.kubeconfig_for('manager', [MANAGERS])}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--metrics-bind-address=127.0.0.1:{port}",
            "-v=2",
            *flags,
            log=directory / "manager.log",
        )
        async with manager:
            try:
                yield BadSite(base, manager, port)
            finally:
                print(manager.output()[-LOG_TAIL:])
