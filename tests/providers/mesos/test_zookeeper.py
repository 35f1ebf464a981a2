"""The leading master by a real ZooKeeper: it changes, sessions expire, servers hang and fail."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest

from labs.zookeeper import ZooKeeperServer
from proreus.cloudprovider.errors import CloudError, Unauthenticated
from proreus.cloudprovider.instances import Instance, NotFound
from proreus.cloudprovider.lookups import attempt
from proreus.providers.mesos import MesosCloud
from proreus.testing.waiting import until

from .electorate import PATH, Electorate, Line, line
from .emulator import Cluster
from .site import describe, node, one, started
from .world import Status

pytestmark = pytest.mark.long

PATIENT = "http-client-timeout = 5s"
HASTY = "http-client-timeout = 2s"
SECRET = "planted-secret-0001"


@asynccontextmanager
async def over(
    path: Line, mesos: Cluster, electorate: Electorate, more: str = PATIENT
) -> AsyncIterator[MesosCloud]:
    """A provider that speaks to ZooKeeper over this line, and has found the first master."""
    await electorate.join(0)
    async with started(mesos.config(more, master=f"zk://{path.address}{PATH}")) as provider:
        yield provider


async def test_the_leader_is_the_one_that_registered_first(
    mesos: Cluster, electorate: Electorate
) -> None:
    mesos.elect(2)
    for number in (2, 0, 1):
        await electorate.join(number)
    # A server that is not there is passed over.
    url = electorate.url.replace("zk://", "zk://127.0.0.1:1,")
    async with started(mesos.config(PATIENT, master=url)) as provider:
        await describe(provider)
    assert mesos.masters[2].calls == {"GET_MASTER": 1, "GET_AGENTS": 2}
    assert mesos.calls == {"GET_MASTER": 1, "GET_AGENTS": 2}


async def test_the_next_leader_is_found_in_the_same_question(
    mesos: Cluster, electorate: Electorate
) -> None:
    for number in range(3):
        await electorate.join(number)
    agent = mesos.world.add("n1")
    async with started(mesos.config(PATIENT, master=electorate.url)) as provider:
        for number in range(2):
            await mesos.masters[number].stop()
            await electorate.leave(number)
            mesos.elect(number + 1)
            assert isinstance(await one(provider, node("n1", agent)), Instance)
    assert mesos.masters[2].calls == {"GET_AGENTS": 1}


async def test_a_leader_that_leaves_while_we_ask_is_not_asked_for(
    zookeeper: ZooKeeperServer, mesos: Cluster, electorate: Electorate
) -> None:
    async with line(zookeeper.address) as path, over(path, mesos, electorate) as provider:
        await electorate.join(1)
        await mesos.masters[0].stop()
        mesos.elect(1)
        # The session and the list of masters go through, the question about the leader waits.
        path.lets_through = 2
        path.held.clear()
        asking = asyncio.create_task(describe(provider))
        await path.held.wait()
        await electorate.leave(0)
        path.release()
        await asking
    assert mesos.masters[1].calls == {"GET_AGENTS": 1}


async def test_a_session_that_expires_while_we_ask_is_an_error_and_the_next_one_serves(
    zookeeper: ZooKeeperServer, mesos: Cluster, electorate: Electorate
) -> None:
    agent = mesos.world.add("n1")
    async with line(zookeeper.address) as path, over(path, mesos, electorate, HASTY) as provider:
        agent.status = Status.REMOVED
        before = await zookeeper.sessions()
        path.lets_through = 2
        path.held.clear()
        asking = asyncio.create_task(one(provider, node("n1", agent)))
        await path.held.wait()
        await expired(zookeeper, await zookeeper.sessions() - before)
        path.release()
        assert isinstance(await asking, CloudError)
        assert await one(provider, node("n1", agent)) == NotFound()


async def expired(zookeeper: ZooKeeperServer, sessions: Collection[str]) -> None:
    """Wait until ZooKeeper has ended these sessions."""

    async def are_ended() -> bool:
        return not await zookeeper.sessions() & set(sessions)

    assert sessions
    await until("the session has expired", are_ended, 60.0)


async def test_the_session_of_a_leader_that_is_cut_off_expires_and_the_next_one_leads(
    zookeeper: ZooKeeperServer, mesos: Cluster, electorate: Electorate
) -> None:
    async with line(zookeeper.address) as path:
        await electorate.join(0, path.address)
        leading = await zookeeper.sessions()
        await electorate.join(1)
        agent = mesos.world.add("n1")
        async with started(mesos.config(PATIENT, master=electorate.url)) as provider:
            path.hold()
            await mesos.masters[0].stop()
            mesos.elect(1)
            with pytest.raises(CloudError):
                await describe(provider)
            await expired(zookeeper, leading)

            async def is_found() -> bool:
                # What a session leaves goes a moment after it.
                found = await attempt(one, provider, node("n1", agent))
                return isinstance(found, Instance)

            await until("the next leader is found", is_found, 30.0)


async def test_a_zookeeper_that_hangs_holds_up_nothing_but_deletions(
    zookeeper: ZooKeeperServer, mesos: Cluster, electorate: Electorate
) -> None:
    await electorate.join(0)
    there, gone = mesos.world.add("n1"), mesos.world.add("n2")
    async with started(mesos.config(HASTY, master=electorate.url)) as provider:
        gone.status = Status.GONE
        zookeeper.pause()
        for _ in range(2):
            found = await describe(provider, node("n1", there), node("n2", gone))
            assert isinstance(found["n1"], Instance)
            assert isinstance(found["n2"], CloudError)
        zookeeper.resume()

        async def is_told() -> bool:
            return await attempt(one, provider, node("n2", gone)) == NotFound(tombstone=True)

        # The masters' sessions may have expired meanwhile; they register again.
        await electorate.close()
        await electorate.join(0)
        await until("it is gone", is_told, 30.0)


async def test_a_zookeeper_that_is_started_again_is_asked_again(
    zookeeper: ZooKeeperServer, mesos: Cluster, electorate: Electorate
) -> None:
    await electorate.join(0)
    agent = mesos.world.add("n1")
    async with started(mesos.config(HASTY, master=electorate.url)) as provider:
        await zookeeper.stop()
        agent.status = Status.REMOVED
        assert isinstance(await one(provider, node("n1", agent)), CloudError)
        await electorate.close()
        await zookeeper.start()
        await electorate.join(1)
        await mesos.masters[0].stop()
        mesos.elect(1)

        async def is_told() -> bool:
            # The session of the leader before lasts until it expires.
            return await attempt(one, provider, node("n1", agent)) == NotFound()

        await until("it is gone", is_told, 30.0)


async def test_what_is_protected_is_read_with_user_and_password_that_are_not_shown(
    mesos: Cluster, electorate: Electorate, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(1)
    logging.getLogger("kazoo").setLevel(1)
    electorate.credentials = ("mesos", SECRET)
    await electorate.join(0)
    caplog.clear()
    url = electorate.url.replace("zk://", f"zk://mesos:{SECRET}@")
    async with started(mesos.config(PATIENT, master=url)) as provider:
        await describe(provider)
    assert SECRET not in caplog.text
    with pytest.raises(Unauthenticated, match="user and password"):
        async with started(mesos.config(PATIENT, master=electorate.url)):
            pass
    wrong = url.replace(SECRET, f"{SECRET}-wrong")
    with pytest.raises(Unauthenticated) as caught:
        async with started(mesos.config(PATIENT, master=wrong)):
            pass
    assert SECRET not in str(caught.value)


async def test_what_is_missing_in_zookeeper_is_named(
    mesos: Cluster, electorate: Electorate
) -> None:
    with pytest.raises(CloudError, match=f"no {PATH}: is the path"):
        async with started(mesos.config(PATIENT, master=electorate.url)):
            pass
    await electorate.join(0)
    await electorate.leave(0)
    with pytest.raises(CloudError, match="no master leads"):
        async with started(mesos.config(PATIENT, master=electorate.url)):
            pass
