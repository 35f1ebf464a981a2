"""An emulated cluster of Mesos for each test anew, and a real ZooKeeper where one is asked for."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from labs.zookeeper import NoZooKeeper, ZooKeeperServer

from .electorate import Electorate
from .emulator import Cluster, served


@pytest.fixture
async def mesos() -> AsyncIterator[Cluster]:
    async with served(3) as running:
        yield running


@pytest.fixture
async def zookeeper(tmp_path: Path) -> AsyncIterator[ZooKeeperServer]:
    directory = tmp_path / "zookeeper"
    directory.mkdir()
    try:
        async with ZooKeeperServer(directory) as running:
            yield running
    except NoZooKeeper as error:
        pytest.skip(str(error))


@pytest.fixture
async def electorate(zookeeper: ZooKeeperServer, mesos: Cluster) -> AsyncIterator[Electorate]:
    made = Electorate(zookeeper, mesos)
    try:
        yield made
    finally:
        await made.close()
