"""A client of the simulated cloud's API that shows status and body of each answer."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import pytest

from proreus.testing.simulated import SimulatedCloudProcess

TOKEN = "token"


class Speak(Protocol):
    """Sends one request; answers status and body. `headers` of the last answer are kept."""

    headers: dict[str, str]

    async def __call__(
        self, method: str, path: str, body: dict[str, Any] | None = None, token: str = TOKEN
    ) -> tuple[int, dict[str, Any]]: ...


class CloudClient:
    def __init__(self, cloud: SimulatedCloudProcess, session: aiohttp.ClientSession) -> None:
        self.headers: dict[str, str] = {}
        self._cloud = cloud
        self._session = session

    async def __call__(
        self, method: str, path: str, body: dict[str, Any] | None = None, token: str = TOKEN
    ) -> tuple[int, dict[str, Any]]:
        async with self._session.request(
            method,
            f"{self._cloud.endpoint}/v1/{path}",
            json=body,
            headers={"Authorization": f"Bearer {token}"},
        ) as response:
            self.headers = dict(response.headers)
            return response.status, await response.json()


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[SimulatedCloudProcess]:
    async with SimulatedCloudProcess(tmp_path / "state.db") as process:
        yield process


@pytest.fixture
async def speak(cloud: SimulatedCloudProcess) -> AsyncIterator[Speak]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
        yield CloudClient(cloud, session)
