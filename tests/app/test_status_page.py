"""The status page in a real browser."""

import asyncio
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from proreus.app.status import routes
from proreus.app.status.page import WELL
from proreus.app.status.source import Source
from proreus.cloudprovider import OwnedObject
from proreus.controllers.service.leaks import Leak
from proreus.kube.objects import (
    TAINT_UNINITIALIZED,
    Condition,
    Taint,
)
from proreus.serving.servers import serve
from proreus.testing.objects import node, service

NODES = 5000
ATTACK = "<img src=x onerror=document.title='broken'>"
READY = Condition("Ready", "True")


class Cache:
    """Stands for an informer."""

    def __init__(self, *objects: object) -> None:
        self._objects = objects

    def all(self) -> tuple[object, ...]:
        return self._objects


def source() -> Source:
    """5,000 nodes, one of which waits, and a Service whose name is an attack."""
    waits = node(
        "the-one-that-waits",
        taints=(Taint(TAINT_UNINITIALIZED, "NoSchedule"),),
        conditions=(Condition("CloudInitialized", "False", "InstanceNotFound", ATTACK),),
    )
    ready = [node(f"node-{i:04}", conditions=(READY,)) for i in range(NODES - 1)]
    result = Source("big")
    result.nodes = Cache(*ready, waits)
    result.services = Cache(service("web", namespace="shop"))
    left = OwnedObject("listener", "l-42", "shop/old", "uid")
    result.leaks = lambda: [Leak(left, datetime(2026, 5, 4, tzinfo=UTC), 0.0)]
    return result


def browser() -> str:
    found = shutil.which("chromium")
    if found is None:
        assert "CI" not in os.environ, ".ci/run installs chromium"
        pytest.skip("there is no chromium here; Debian's package has that name")
    return found


async def dom(url: str, profile: Path) -> str:
    """The page as the browser has it after some seconds of its time."""
    process = await asyncio.create_subprocess_exec(
        browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        f"--user-data-dir={profile}", "--virtual-time-budget=8000", "--dump-dom", url,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(180):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return out.decode()


async def test_a_browser_shows_what_is_not_well_among_five_thousand_nodes(tmp_path: Path) -> None:
    app = web.Application()
    routes.add(app, source())
    async with serve(app, "127.0.0.1", 0, flag="--secure-port", any_port=True) as port:
        shown = await dom(f"http://127.0.0.1:{port}/status", tmp_path / "profile")

    assert "Nodes: 5000 (1 waiting, 4999 ready)" in shown
    first, second = shown.index("the-one-that-waits"), shown.index("node-0000")
    assert first < second
    assert f"and {NODES - WELL - 1} more" in shown
    assert "node-4000" not in shown
    assert "shop/web" in shown
    assert "l-42" in shown
    assert "&lt;img src=x" in shown
    assert "<title>Proreus</title>" in shown


async def test_the_page_allows_no_code_but_its_own() -> None:
    app = web.Application()
    routes.add(app, source())
    async with (
        serve(app, "127.0.0.1", 0, flag="--secure-port", any_port=True) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/status") as page,
    ):
        policy = page.headers["Content-Security-Policy"]
        text = await page.text()
    nonce = policy.partition("nonce-")[2].partition("'")[0]
    assert policy.startswith("default-src 'none'; ")
    assert f'<script nonce="{nonce}">' in text
    assert "@" not in text
    assert "http:" not in text
