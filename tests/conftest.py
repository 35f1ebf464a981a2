"""Fixtures for all tests."""

import asyncio
import gc
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from labs import forks
from proreus.testing.controlplane import ControlPlane

from . import order
from .faults.table import lines, table

# How long an example takes is the machine's affair.
settings.register_profile(
    "patient", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option by which the order of files is recorded."""
    parser.addoption(
        "--record-durations",
        action="store_true",
        help=f"write how long each file of tests takes to tests/{order.RECORDED.name}",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the workers begin with the files that take longest."""
    if hasattr(config, "workerinput"):
        order.sort(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> order.Scheduling | None:
    """Let one worker of the inner ring take what shares a costly process; long tests need all."""
    is_by_file = config.getvalue("dist") == "loadfile"
    is_inner = config.getoption("markexpr") == "not long"
    return order.Scheduling(config, log) if is_by_file and is_inner else None


def pytest_collection_finish() -> None:
    """Keep the collector from what lives as long as the tests: it would take a tenth of the time."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what faults were tried, and survived; record durations if asked to."""
    reports = [
        report
        for group in terminalreporter.stats.values()
        for report in group
        if isinstance(report, pytest.TestReport)
    ]
    if terminalreporter.config.getoption("record_durations"):
        order.record(reports)
    called = [one for one in reports if one.when == "call" and one.outcome != "skipped"]
    shown = table(lines(called))
    if shown:
        terminalreporter.section("faults")
        for line in shown:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def programs_are_forked() -> Iterator[None]:
    """Managers and clouds are forks of one process, which imports once for all of them."""
    with forks.forked():
        yield


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One real control plane for the session (with xdist: for the worker).

    It is shared: a test deletes the objects that it made, and leaves the API server running.
    """
    plane = ControlPlane(log_dir=tmp_path_factory.mktemp("control-plane"))
    _run(plane.start())
    try:
        yield plane
    finally:
        _run(plane.stop())


def _run(work: Coroutine[Any, Any, None]) -> None:
    # With a loop factory the runner leaves pytest-asyncio's current event loop alone.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(work)
