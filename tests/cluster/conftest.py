"""Clusters for tests: skipped where none can run, removed whatever happens."""

import asyncio
import os
from collections.abc import Callable, Iterator

import pytest

from labs.cluster import (
    Cluster,
    Settings,
    ensure_programs,
    remove,
    start_manager,
    why_not,
)
from labs.cluster.programs import Programs
from proreus.testing.controlplane import ControlPlaneError
from proreus.testing.controlplane.progress import to_stderr

Make = Callable[..., Cluster]


@pytest.fixture(scope="session")
def programs() -> Programs:
    if reasons := why_not():
        pytest.skip("; ".join(reasons))
    try:
        return asyncio.run(ensure_programs())
    except ControlPlaneError as error:
        pytest.skip(str(error))


@pytest.fixture
def make(programs: Programs) -> Iterator[Make]:
    """Makes clusters that are not started; they are removed at the end."""
    made: list[str] = []

    def one(**settings: object) -> Cluster:
        name = f"test-{os.getpid()}-{len(made)}"
        made.append(name)
        return Cluster(Settings(name=name, **settings), programs, to_stderr)  # type: ignore[arg-type]

    yield one
    for name in made:
        remove(name)


@pytest.fixture(scope="session")
def cluster(programs: Programs) -> Iterator[Cluster]:
    """Two nodes of both families, and the manager as a process of the gateway."""
    name = f"test-{os.getpid()}"
    cluster = Cluster(Settings(name=name, dual_stack=True), programs, to_stderr)
    try:
        cluster.start(start_manager)
        yield cluster
    finally:
        remove(name)
