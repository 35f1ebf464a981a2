"""How the provider `local` notices that a node is dead, by pings and one more health check."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from proreus.providers.local.config import HealthChecks
from proreus.providers.local.health import Checker
from proreus.providers.local.pings import Echo, weighed
from proreus.providers.local.plan import Check, Condition, Target
from proreus.testing.waiting import until

from .traffic import NODES, Lab

ADDRESS = "192.0.2.1"
CHECK = Check(10256, "/healthz")


@pytest.mark.parametrize(
    ("rounds", "is_doubtful"),
    [
        ("", False),
        ("yes", False),
        ("no", False),
        ("no no no no", False),
        ("yes no", False),
        ("yes no no", True),
        ("yes no no no", True),
        ("yes no yes no", False),
        ("yes no no yes", False),
        ("no no yes no no", True),
    ],
)
def test_a_machine_is_doubtful_that_answered_and_missed_two(
    rounds: str, *, is_doubtful: bool
) -> None:
    echoes = {ADDRESS: Echo(), "192.0.2.2": Echo()}
    for word in rounds.split():
        echoes = weighed(echoes, {ADDRESS} if word == "yes" else set())
    assert echoes[ADDRESS].is_doubtful is is_doubtful
    assert not echoes["192.0.2.2"].is_doubtful


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with ExitStack() as stack:
        yield Lab(stack)


class Told:
    """What the checker has said, the last of it by address."""

    def __init__(self) -> None:
        self.verdicts: dict[str, Condition] = {}
        self.times = 0

    def __call__(self, target: Target, condition: Condition) -> None:
        self.verdicts[target.address] = condition
        self.times += 1


@pytest.fixture
async def told(lab: Lab) -> AsyncIterator[Told]:
    """By its interval alone this checker would take an hour to say that a node is dead."""
    told = Told()
    settings = HealthChecks(
        interval=timedelta(minutes=12), threshold=5, ping=timedelta(milliseconds=100)
    )
    checker = Checker(settings, told)
    every = [address for node in NODES.values() for address in node]
    checker.watch([Target(address, CHECK) for address in every])
    try:
        await until(
            "all serve", lambda: told.verdicts == dict.fromkeys(every, Condition.SERVING)
        )  # fmt: skip
        await asyncio.sleep(0.5)  # until every node has answered a ping
        yield told
    finally:
        await checker.close()
        for name in NODES:
            lab.plug(name)


async def test_a_dead_node_is_noticed_long_before_its_next_check(lab: Lab, told: Told) -> None:
    lab.unplug("one")
    dead = dict.fromkeys(NODES["one"], Condition.SILENT)
    alive = dict.fromkeys(NODES["two"], Condition.SERVING)
    await until("one is silent", lambda: told.verdicts == {**alive, **dead})
    lab.plug("one")
    await until("all serve", lambda: set(told.verdicts.values()) == {Condition.SERVING})


async def test_a_node_that_serves_and_swallows_pings_goes_on_serving(lab: Lab, told: Told) -> None:
    def swallow(one: str) -> Any:
        return lab.nodes["one"].run(*one.split())

    swallow("nft add table inet swallow")
    swallow("nft add chain inet swallow in {type filter hook input priority 0;}")
    swallow("nft add rule inet swallow in icmp type echo-request drop")
    swallow("nft add rule inet swallow in icmpv6 type echo-request drop")
    try:
        before = told.times
        await asyncio.sleep(1.0)
    finally:
        swallow("nft delete table inet swallow")
    assert told.times == before
