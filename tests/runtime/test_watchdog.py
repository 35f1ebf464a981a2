"""The watchdog, on a loop that is really blocked: waits are bounded, none is measured."""

import asyncio
import logging
import threading
import time

import pytest

from proreus.runtime import metrics, watchdog

PATIENCE = 0.25
ENOUGH = 30.0


def seconds_blocked() -> float:
    return metrics.REGISTRY.get_sample_value("proreus_event_loop_blocked_seconds_total") or 0.0


def wait_for_text(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Block until it is logged."""
    deadline = time.monotonic() + ENOUGH
    while not any(text in record.getMessage() for record in caplog.records):
        assert time.monotonic() < deadline, f"nobody said {text!r}"
        time.sleep(0.01)


def compute_without_await(caplog: pytest.LogCaptureFixture) -> None:
    wait_for_text(caplog, "is blocked")


def named(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [
        record.klog_fields["by"]  # type: ignore[attr-defined]  # set by klog
        for record in caplog.records
        if text in record.getMessage()
    ]


async def test_what_blocks_the_loop_is_named_once_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = seconds_blocked()
    with caplog.at_level(logging.WARNING):
        async with watchdog.watched(PATIENCE):
            compute_without_await(caplog)
            time.sleep(3 * PATIENCE)  # noqa: ASYNC251 - that is the test
            while not named(caplog, "was blocked"):
                await asyncio.sleep(0.01)
    (by,) = named(caplog, "is blocked")
    assert "compute_without_await (test_watchdog.py:" in by
    assert seconds_blocked() >= before + 3 * PATIENCE


async def test_a_loop_that_waits_is_not_blocked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with watchdog.watched(PATIENCE):
            await asyncio.sleep(4 * PATIENCE)
    assert not named(caplog, "blocked")


async def test_the_watchdog_ends_with_its_body() -> None:
    async with watchdog.watched(PATIENCE):
        assert "proreus-watchdog" in {thread.name for thread in threading.enumerate()}
    async with asyncio.timeout(ENOUGH):
        while "proreus-watchdog" in {thread.name for thread in threading.enumerate()}:
            await asyncio.sleep(0.01)
