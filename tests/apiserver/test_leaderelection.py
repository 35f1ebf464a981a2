"""Leader election on a real API server, also between processes of which one is killed."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest

from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.errors import Conflict, RefusedByGate
from proreus.kube.requests import LEASES
from proreus.runtime.leaderelection import LeaderElector, LeadershipLost
from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

NAMESPACE = "kube-system"
LEASE, RENEW, RETRY = 6.0, 4.0, 0.25
HANG = 60.0

Connect = Callable[[], Client]

PROCESS = """
import asyncio, sys
from proreus.kube import config
from proreus.kube.client import Client
from proreus.runtime.leaderelection import LeaderElector

async def main(kubeconfig, name, identity):
    async with Client(config.load(kubeconfig, env={})) as client:
        elector = LeaderElector(
            client, namespace="kube-system", name=name, identity=identity,
            lease_duration=6.0, renew_deadline=4.0, retry_period=0.25,
        )
        await elector.acquire()
        print("leader", flush=True)
        await elector.hold()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
async def connect(control_plane: ControlPlane) -> AsyncIterator[Connect]:
    """Make a client with connections of its own."""
    async with AsyncExitStack() as stack:
        clients: list[Client] = []

        def make() -> Client:
            clients.append(Client(config.load(str(control_plane.kubeconfig), env={})))
            stack.push_async_callback(clients[-1].close)
            return clients[-1]

        yield make


@pytest.fixture
async def name(connect: Connect) -> AsyncIterator[str]:
    """The name of a lease, which is removed at the end."""
    name = f"lease-{uuid4().hex[:8]}"
    yield name
    client = connect()
    leases = await client.list(LEASES, NAMESPACE, field_selector=f"metadata.name={name}")
    if leases.items:
        await client.delete(LEASES, name, NAMESPACE)


def elector(client: Client, name: str, identity: str) -> LeaderElector:
    return LeaderElector(
        client, namespace=NAMESPACE, name=name, identity=identity,
        lease_duration=LEASE, renew_deadline=RENEW, retry_period=RETRY,
    )  # fmt: skip


def leads(candidate: LeaderElector) -> bool:
    try:
        candidate.check()
    except RefusedByGate:
        return False
    return True


@asynccontextmanager
async def holding(candidate: LeaderElector) -> AsyncIterator[asyncio.Task[None]]:
    async with asyncio.timeout(HANG):
        await candidate.acquire()
    task = asyncio.create_task(candidate.hold())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def spec(client: Client, name: str) -> dict[str, Any]:
    lease = await client.get_lease(NAMESPACE, name)
    result: dict[str, Any] = lease["spec"]
    return result


async def renewal_after(client: Client, name: str, renew_time: str) -> dict[str, Any]:
    """The lease, once it has been renewed after that time."""

    async def renewed() -> dict[str, Any] | None:
        lease = await client.get_lease(NAMESPACE, name)
        return lease if lease["spec"]["renewTime"] > renew_time else None

    return await until(f"{name} is renewed", renewed, HANG)


async def test_the_lease_is_made_renewed_released_and_taken_over(
    connect: Connect, name: str
) -> None:
    client = connect()
    first, second = elector(client, name, "first"), elector(connect(), name, "second")
    async with holding(first):
        waiting = asyncio.create_task(second.acquire())
        before = await spec(client, name)
        after = (await renewal_after(client, name, before["renewTime"]))["spec"]
        assert after["holderIdentity"] == "first"
        assert after["leaseDurationSeconds"] == LEASE
        assert after["acquireTime"] == before["acquireTime"]
        assert leads(first)
        assert not leads(second)
        assert not waiting.done()
    assert not leads(first)
    async with asyncio.timeout(HANG):
        await waiting
    assert leads(second)
    assert (await spec(client, name))["leaseTransitions"] == 1


async def test_of_many_candidates_one_leads_and_each_gets_its_turn(
    connect: Connect, name: str
) -> None:
    candidates = [elector(connect(), name, f"c{number}") for number in range(5)]
    turns: list[str] = []

    async def take_a_turn(candidate: LeaderElector) -> None:
        await candidate.acquire()
        hold = asyncio.create_task(candidate.hold())
        for _ in range(10):
            assert [each.identity for each in candidates if leads(each)] == [candidate.identity]
            await asyncio.sleep(0.02)
        turns.append(candidate.identity)
        hold.cancel()
        await asyncio.gather(hold, return_exceptions=True)

    async with asyncio.timeout(HANG), asyncio.TaskGroup() as group:
        for candidate in candidates:
            group.create_task(take_a_turn(candidate))
    assert sorted(turns) == [f"c{number}" for number in range(5)]


async def test_fields_that_are_not_ours_survive_renewals(connect: Connect, name: str) -> None:
    client = connect()
    async with holding(elector(client, name, "a")) as hold:
        noted = False
        while not noted:
            lease = await client.get_lease(NAMESPACE, name)
            lease["metadata"]["annotations"] = {"example.com/note": "kept"}
            with suppress(Conflict):  # the renewal was faster
                lease = await client.replace_lease(NAMESPACE, name, lease)
                noted = True
        renewed = await renewal_after(client, name, lease["spec"]["renewTime"])
        assert not hold.done()
        assert renewed["metadata"]["annotations"] == {"example.com/note": "kept"}
        assert renewed["spec"]["holderIdentity"] == "a"


async def test_a_deleted_lease_ends_its_holder(connect: Connect, name: str) -> None:
    client = connect()
    candidate = elector(connect(), name, "a")
    async with holding(candidate) as hold:
        await client.delete(LEASES, name, NAMESPACE)
        async with asyncio.timeout(HANG):
            with pytest.raises(LeadershipLost):
                await hold
        assert not leads(candidate)


async def test_a_killed_leader_is_replaced_when_its_lease_has_run_out(
    connect: Connect, name: str, control_plane: ControlPlane
) -> None:
    client = connect()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROCESS, str(control_plane.kubeconfig), name, "victim",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    standby = elector(connect(), name, "standby")
    try:
        assert process.stdout is not None
        async with asyncio.timeout(HANG):
            assert await process.stdout.readline() == b"leader\n"
        waiting = asyncio.create_task(standby.acquire())
        await asyncio.sleep(2 * RETRY)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        killed = time.monotonic()
        assert (await spec(client, name))["holderIdentity"] == "victim"
        async with asyncio.timeout(HANG):
            await waiting
        # The last renewal came at most one retry period and one request before the end.
        assert time.monotonic() - killed > LEASE - RENEW
        assert (await spec(client, name))["holderIdentity"] == "standby"
        assert leads(standby)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_leader_without_api_server_gives_up_and_the_lease_stays_its_own(
    connect: Connect, name: str, control_plane: ControlPlane
) -> None:
    candidate = elector(connect(), name, "a")
    async with holding(candidate) as hold:
        await control_plane.stop_apiserver()
        try:
            async with asyncio.timeout(HANG):
                with pytest.raises(LeadershipLost, match="within 4 s"):
                    await hold
            assert not leads(candidate)
        finally:
            await control_plane.start_apiserver()
    assert (await spec(connect(), name))["holderIdentity"] == "a"
    async with asyncio.timeout(HANG):
        await candidate.acquire()
    assert leads(candidate)
