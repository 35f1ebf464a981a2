"""The guide has exactly the keys, rights and calls that the code knows."""

import pytest

from proreus.providers.mesos import config, operations
from proreus.providers.mesos.masters import FILE, parsed

from ..guides import Guide, keys  # noqa: TID252 - pytest imports tests by path
from .emulator import Cluster
from .site import describe, node, started
from .world import Status

GUIDE = Guide("mesos")


@pytest.mark.parametrize(
    ("header", "known"),
    [
        ("key in `[mesos-cloud]`", keys(config.MesosCloudSection)),
        ("key in `[Client]`, of ours", keys(config.Client)),
        ("key in `[Nodes]`, of ours", keys(config.Nodes)),
    ],
)
def test_the_tables_of_keys_have_those_that_are_read(header: str, known: list[str]) -> None:
    assert [row[0] for row in GUIDE.rows(header)] == known


def test_the_table_of_requests_has_every_one() -> None:
    described = {row[0]: row[1] for row in GUIDE.rows("request")}
    actions = {name: f"`{action}`" for name, action in operations.CALLS.items() if action}
    needed = operations.CALLS.keys() | {operations.GET_REGISTRY}
    assert described == {name: actions.get(name, "none").strip("`") for name in needed}


def test_the_places_of_masters_can_be_read() -> None:
    for place in GUIDE.names("`mesos-master`"):
        assert place.startswith(FILE) or parsed(place)


async def test_questions_cost_the_calls_that_the_guide_says(mesos: Cluster) -> None:
    agents = [mesos.world.add(f"n{number}") for number in range(3)]
    async with started(mesos.config()) as provider:
        assert mesos.calls.total() == 2
        nodes = [node(agent.hostname, agent) for agent in agents]
        mesos.forget_calls()
        await describe(provider, *nodes)
        assert mesos.calls.total() == 1
        for agent in agents[1:]:
            agent.status = Status.REMOVED
        mesos.forget_calls()
        await describe(provider, *nodes)
        assert mesos.calls.total() == 1 + 3
