"""A Node that the kubelet of another machine goes on with, once the instance of its id is gone."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from proreus.cloudprovider import NotFound
from proreus.cloudprovider.instances import InstanceAnswer, InstanceState
from proreus.kube.objects import TAINT_OUT_OF_SERVICE, Node, has_taint
from proreus.testing.clock import virtual_time

from .test_hints import HOUR, LIFECYCLE, NODE, Cloud
from .test_lifecycle_alone import OneScope, one_scope

FORMER = "2e8c1f0a-1234-4abc-9234-0123456789ab"
NEW = "3e8c1f0a-1234-4abc-9234-0123456789ab"


@pytest.mark.parametrize("is_shown", [True, False], ids=["tombstone", "absent"])
@pytest.mark.parametrize(("uuid", "lives"), [(NEW, True), (FORMER, False)])
def test_a_node_goes_with_its_instance_unless_another_machine_reports_for_it(
    uuid: str, *, lives: bool, is_shown: bool
) -> None:
    """It reports for seconds, and falls silent when it begins its work."""

    @virtual_time
    async def play() -> bool:
        async with one_scope("a", "b", "c", "d") as (made, lead):
            await made.started_on("c", FORMER)
            async with lead(NODE, LIFECYCLE):
                await asyncio.sleep(HOUR)
                made.machines.machines["c"] = NotFound(tombstone=is_shown)
                await asyncio.sleep(20)
                await made.started_on("c", uuid)
                await asyncio.sleep(10)
                await made.silence("c")
                await asyncio.sleep(HOUR)
                return "c" in await made.nodes()

    assert play() is lives


@pytest.mark.parametrize("is_shown", [True, False], ids=["tombstone", "absent"])
@pytest.mark.parametrize("state", list(InstanceState))
def test_a_node_does_not_go_with_a_former_machine_that_was_kept_for_some_time(
    state: InstanceState, *, is_shown: bool
) -> None:
    """One that has run since has got another UUID itself, as one that was restored."""

    @virtual_time
    async def play() -> bool:
        async with one_scope("a", "b", "c", "d") as (made, lead):
            await made.started_on("c", FORMER)
            async with lead(NODE, LIFECYCLE):
                await asyncio.sleep(HOUR)
                made.machines.change("c", state=state)
                await made.started_on("c", NEW)
                await asyncio.sleep(HOUR)
                made.machines.machines["c"] = NotFound(tombstone=is_shown)
                await asyncio.sleep(60)
                await made.silence("c")
                await asyncio.sleep(HOUR)
                return "c" in await made.nodes()

    assert play() is (state is not InstanceState.RUNNING)


@pytest.mark.parametrize("is_shown", [True, False], ids=["tombstone", "absent"])
@pytest.mark.parametrize("state", list(InstanceState))
def test_nor_does_it_where_the_manager_was_restarted_before_that_machine_was_deleted(
    state: InstanceState, *, is_shown: bool
) -> None:
    """The later manager does not see that the kubelet reports another UUID."""

    @virtual_time
    async def play() -> bool:
        async with one_scope("a", "b", "c", "d") as (made, lead):
            await made.started_on("c", FORMER)
            async with lead(NODE, LIFECYCLE):
                await asyncio.sleep(HOUR)
                made.machines.change("c", state=state)
                await made.started_on("c", NEW)
                await asyncio.sleep(HOUR)
            async with lead(NODE, LIFECYCLE):
                await asyncio.sleep(HOUR)
                made.machines.machines["c"] = NotFound(tombstone=is_shown)
                await asyncio.sleep(60)
                await made.silence("c")
                await asyncio.sleep(HOUR)
                return "c" in await made.nodes()

    assert play() is (state is not InstanceState.RUNNING)


class Hanging(OneScope):
    """A cloud that does not answer for some time."""

    answers = True

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        while not self.answers:
            await asyncio.sleep(1)
        return await super().describe(nodes)


@pytest.mark.parametrize("is_shown", [True, False], ids=["tombstone", "absent"])
def test_nor_does_it_where_the_manager_was_restarted_while_the_cloud_did_not_answer(
    *, is_shown: bool
) -> None:
    """The cloud is asked about it, as it is silent, and the other machine comes meanwhile."""

    @virtual_time
    async def play() -> bool:
        cloud = Hanging()
        async with one_scope("a", "b", "c", "d", machines=cloud) as (made, lead):
            await made.started_on("c", FORMER)
            async with lead(NODE, LIFECYCLE):
                await asyncio.sleep(HOUR)
                cloud.change("c", state=InstanceState.STOPPED)
                await made.silence("c")
                cloud.answers = False
                await asyncio.sleep(10)
                await made.started_on("c", NEW)
                await made.report("c")
                await asyncio.sleep(2)
            cloud.answers = True
            async with lead(NODE, LIFECYCLE):
                await asyncio.sleep(HOUR)
                cloud.machines["c"] = NotFound(tombstone=is_shown)
                await asyncio.sleep(60)
                await made.silence("c")
                await asyncio.sleep(HOUR)
                return "c" in await made.nodes()

    assert play()


@pytest.mark.parametrize("is_shown", [True, False], ids=["tombstone", "absent"])
@pytest.mark.parametrize(("uuid", "lives"), [(NEW, True), (FORMER, False)])
def test_nor_does_it_where_the_cloud_config_changes_as_that_machine_comes(
    uuid: str, *, lives: bool, is_shown: bool
) -> None:
    """One controller has ended, and the next one waits until others have, too."""

    @virtual_time
    async def play() -> bool:
        cloud = Hanging()
        async with one_scope("a", "b", "c", "d", machines=cloud) as (made, lead):
            await made.started_on("c", FORMER)
            async with lead(NODE, LIFECYCLE) as leader:
                await asyncio.sleep(HOUR)
                cloud.change("c", state=InstanceState.STOPPED)
                cloud.answers = False
                await made.add("new")  # about which the cloud is asked
                await asyncio.sleep(2)
                changing = asyncio.create_task(leader.replace_cloud(Cloud(cloud)))
                await asyncio.sleep(68)  # the other provider is tried first
                await made.started_on("c", uuid)
                await changing
                cloud.answers = True
                await asyncio.sleep(HOUR)
                cloud.machines["c"] = NotFound(tombstone=is_shown)
                await asyncio.sleep(60)
                await made.silence("c")
                await asyncio.sleep(HOUR)
                return "c" in await made.nodes()

    assert play() is lives


@pytest.mark.parametrize("is_restarted", [True, False])
@pytest.mark.parametrize(("uuid", "lives"), [(NEW, True), (FORMER, False)])
def test_a_node_does_not_go_out_of_service_with_a_former_machine_that_is_switched_off_later(
    uuid: str, *, lives: bool, is_restarted: bool
) -> None:
    """The cloud was not asked between the two, which would have shown it running."""

    @virtual_time
    async def play() -> bool:
        async with one_scope("a", "b", "c", "d") as (made, lead):
            await made.started_on("c", FORMER)
            async with lead(NODE, LIFECYCLE, node_out_of_service_taint=True):
                await asyncio.sleep(HOUR + 20)
                await made.started_on("c", uuid)
                await asyncio.sleep(10)
                made.machines.change("c", state=InstanceState.STOPPED, powered_off=True)
                await asyncio.sleep(0 if is_restarted else 60)
                if not is_restarted:
                    await made.silence("c")
                    await asyncio.sleep(HOUR)
            if is_restarted:
                async with lead(NODE, LIFECYCLE, node_out_of_service_taint=True):
                    await asyncio.sleep(60)
                    await made.silence("c")
                    await asyncio.sleep(HOUR)
            return has_taint((await made.nodes())["c"], TAINT_OUT_OF_SERVICE)

    assert play() is not lives
