"""A Node that the kubelet of another machine goes on with, once the instance of its id is gone."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from proreus.cloudprovider import CloudError, Context, NotFound
from proreus.cloudprovider.instances import InstanceAnswer, InstanceState
from proreus.kube.objects import TAINT_OUT_OF_SERVICE, Node, has_taint
from proreus.kube.requests import NODES
from proreus.testing.clock import virtual_time
from proreus.testing.memory import Fault, FaultMode, MemoryApiServer

from .leading import leading
from .test_hints import HOUR, LIFECYCLE, NODE, Cloud, Cluster
from .test_lifecycle_alone import OneScope, one_scope

STATES = (
    InstanceState.RUNNING,
    *(
        pytest.param(one, marks=pytest.mark.long)
        for one in InstanceState
        if one is not InstanceState.RUNNING
    ),
)
FORMER = "2e8c1f0a-1234-4abc-9234-0123456789ab"
NEW = "3e8c1f0a-1234-4abc-9234-0123456789ab"
NEWEST = "4e8c1f0a-1234-4abc-9234-0123456789ab"


async def outlives(made: Cluster, *, is_shown: bool = False) -> bool:
    """Let the former instance go in an hour, and the kubelet fall silent; whether the Node stays."""
    await asyncio.sleep(HOUR)
    made.machines.machines["c"] = NotFound(tombstone=is_shown)
    await asyncio.sleep(60)
    await made.silence("c")
    await asyncio.sleep(HOUR)
    return "c" in await made.nodes()


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
@pytest.mark.parametrize("state", STATES)
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
                return await outlives(made, is_shown=is_shown)

    assert play() is (state is not InstanceState.RUNNING)


@pytest.mark.parametrize("is_shown", [True, False], ids=["tombstone", "absent"])
@pytest.mark.parametrize("state", STATES)
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
                return await outlives(made, is_shown=is_shown)

    assert play() is (state is not InstanceState.RUNNING)


@pytest.mark.parametrize(("uuid", "lives"), [(NEW, True), (FORMER, False)])
def test_an_operators_word_about_a_machine_is_none_about_the_one_that_comes_after_it(
    uuid: str, *, lives: bool
) -> None:
    """The kubelet of that one reports, and is not well yet."""

    @virtual_time
    async def play() -> tuple[bool, bool]:
        async with one_scope("a", "b", "c", "d") as (made, lead):
            await made.started_on("c", FORMER)
            async with lead(NODE, LIFECYCLE):
                await asyncio.sleep(HOUR)
                made.machines.machines["c"] = NotFound()
                await made.silence("c")
                await made.declare_gone("c")
                await asyncio.sleep(20)
                await made.started_on("c", uuid)
                await made.fail("c")
                await asyncio.sleep(HOUR)
                is_there = "c" in await made.nodes()
                if is_there:
                    await made.silence("c")
                    await made.declare_gone("c")
                    await asyncio.sleep(HOUR)
                return is_there, "c" in await made.nodes()

    assert play() == (lives, False)


@pytest.mark.parametrize("is_restarted", [True, False])
@pytest.mark.parametrize(("uuid", "lives"), [(NEWEST, True), (NEW, False)])
def test_nor_is_it_one_about_a_third_machine(uuid: str, *, lives: bool, is_restarted: bool) -> None:
    """The first instance is kept until that one comes; so the word about the second waits."""

    @virtual_time
    async def play() -> tuple[bool, bool]:
        async with one_scope("a", "b", "c", "d") as (made, lead):
            await made.started_on("c", FORMER)
            async with lead(NODE, LIFECYCLE):
                await asyncio.sleep(HOUR)
                made.machines.change("c", state=InstanceState.STOPPED)
                await made.started_on("c", NEW)
                await asyncio.sleep(HOUR)
                await made.silence("c")
                await made.declare_gone("c")
                await asyncio.sleep(HOUR)
                if not is_restarted:
                    await made.started_on("c", uuid)
                    await made.fail("c")
                    await asyncio.sleep(20)
            if is_restarted:
                await made.started_on("c", uuid)
                await made.fail("c")
            made.machines.machines["c"] = NotFound()
            async with lead(NODE, LIFECYCLE):
                await asyncio.sleep(HOUR)
                is_there = "c" in await made.nodes()
                if is_there:
                    await made.silence("c")
                    await made.declare_gone("c")
                    await asyncio.sleep(HOUR)
                return is_there, "c" in await made.nodes()

    assert play() == (lives, False)


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
                return await outlives(made, is_shown=is_shown)

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
                return await outlives(made, is_shown=is_shown)

    assert play() is lives


@pytest.mark.parametrize(("uuid", "lives"), [(NEW, True), (FORMER, False)])
def test_nor_does_it_where_the_cloud_config_changes_before_that_is_written(
    uuid: str, *, lives: bool
) -> None:
    """The API server refuses the annotation for some time."""

    @virtual_time
    async def play() -> bool:
        cloud, server = OneScope(), MemoryApiServer()
        async with one_scope("a", "b", "c", "d", machines=cloud, server=server) as (made, lead):
            await made.started_on("c", FORMER)
            async with lead(NODE, LIFECYCLE) as leader:
                await asyncio.sleep(HOUR)
                cloud.change("c", state=InstanceState.STOPPED)
                server.inject(Fault(FaultMode.ERROR, "patch", "nodes", count=0))
                present = server.store.get(NODES, "", "c")
                status = {**present.body["status"], "nodeInfo": {"systemUUID": uuid}}
                server.store.update(NODES, present, {**present.body, "status": status}, status=True)
                await asyncio.sleep(2)
                await leader.replace_cloud(Cloud(cloud))
                server.clear_faults()
                return await outlives(made)

    assert play() is lives


class Starting(Cloud):
    """A cloud that does not start before its machines answer."""

    def __init__(self, machines: Hanging) -> None:
        super().__init__(machines)
        self._hanging = machines

    async def start(self, context: Context) -> None:
        if not self._hanging.answers:
            raise CloudError("the cloud does not answer")
        await super().start(context)


@pytest.mark.parametrize(("uuid", "lives"), [(NEW, True), (FORMER, False)])
def test_nor_does_it_where_that_machine_comes_before_the_cloud_has_started(
    uuid: str, *, lives: bool
) -> None:
    """The manager was restarted while the cloud did not answer."""

    @virtual_time
    async def play() -> bool:
        cloud, server = Hanging(), MemoryApiServer()
        async with one_scope("a", "b", "c", "d", machines=cloud, server=server) as (made, _):
            await made.started_on("c", FORMER)
            cloud.change("c", state=InstanceState.STOPPED)
            cloud.answers = False
            async with leading(server.url, Starting(cloud), NODE, LIFECYCLE):
                await asyncio.sleep(60)
                await made.started_on("c", uuid)
                await asyncio.sleep(60)
                cloud.answers = True
                return await outlives(made)

    assert play() is lives


def test_nor_does_it_where_that_machine_reported_no_uuid_at_first() -> None:
    @virtual_time
    async def play() -> bool:
        async with one_scope("a", "b", "c", "d") as (made, lead):
            await made.started_on("c", FORMER)
            async with lead(NODE, LIFECYCLE):
                await asyncio.sleep(HOUR)
                made.machines.change("c", state=InstanceState.STOPPED)
                await made.started_on("c", "")
                await asyncio.sleep(60)
                await made.started_on("c", NEW)
                return await outlives(made)

    assert play()


def test_a_node_goes_with_its_restored_machine_though_the_cloud_config_changes_later() -> None:
    """The machine has another UUID since, and the cloud has shown it as running."""

    @virtual_time
    async def play() -> bool:
        cloud = OneScope()
        async with one_scope("a", "b", "c", "d", machines=cloud) as (made, lead):
            await made.started_on("c", FORMER)
            async with lead(NODE, LIFECYCLE) as leader:
                await asyncio.sleep(HOUR)
                await made.started_on("c", NEW)
                await asyncio.sleep(HOUR)
                cloud.machines["c"] = NotFound()
                await made.silence("c")
                await leader.replace_cloud(Cloud(cloud))
                await asyncio.sleep(HOUR)
                return "c" in await made.nodes()

    assert not play()


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


@pytest.mark.parametrize(("uuid", "returns"), [(NEW, True), (FORMER, False)])
def test_a_node_out_of_service_returns_with_another_machine_than_the_one_without_power(
    uuid: str, *, returns: bool
) -> None:
    """The former machine is kept, or deleted later: the cloud never shows it as running again."""

    @virtual_time
    async def play() -> bool:
        async with (
            one_scope("a", "b", "c", "d") as (made, lead),
            lead(NODE, LIFECYCLE, node_out_of_service_taint=True),
        ):
            await made.started_on("c", FORMER)
            await asyncio.sleep(HOUR)
            made.machines.change("c", state=InstanceState.STOPPED, powered_off=True)
            await made.silence("c")
            await asyncio.sleep(HOUR)
            assert has_taint((await made.nodes())["c"], TAINT_OUT_OF_SERVICE)
            await made.started_on("c", uuid)
            await made.report("c")
            await asyncio.sleep(HOUR)
            return not has_taint((await made.nodes())["c"], TAINT_OUT_OF_SERVICE)

    assert play() is returns
