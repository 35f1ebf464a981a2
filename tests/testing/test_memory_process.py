"""The API server in memory as a process of its own."""

import asyncio
import sys
from pathlib import Path

from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.requests import NODES
from proreus.testing.controlplane.child import tied_to_this_process


async def test_it_serves_whoever_reads_its_kubeconfig_until_it_is_stopped(
    tmp_path: Path,
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    process = await asyncio.create_subprocess_exec(
        *tied_to_this_process(),
        *(sys.executable, "-m", "proreus.testing.memory"),
        f"--kubeconfig={kubeconfig}",
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            assert process.stdout is not None
            url = (await process.stdout.readline()).decode().strip()
        loaded = config.load(str(kubeconfig), env={})
        assert loaded.server == url
        async with Client(loaded) as client:
            await client.create(NODES, {"metadata": {"name": "a"}})
            assert (await client.get(NODES, "a")).metadata.name == "a"
        process.terminate()
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
