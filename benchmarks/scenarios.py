"""The work that contestants are given: each scenario is done by one contestant at a time."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from benchmarks.amounts import Scale
from benchmarks.contestants import BARE, PROREUS, PROREUS_SINGLE, Contestant
from benchmarks.measure import AuditTail, Figures, memory
from benchmarks.stage import OBJECT_SIZE, USER, Meter, Stage, is_initialised, started
from proreus.kube.requests import LEASES, NODES, Request
from proreus.testing.kubelet import KubeletPlayer

Results: TypeAlias = AsyncIterator[tuple[str, Figures]]
Play: TypeAlias = Callable[[Stage], Results]


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Some pieces of work one after another, on one control plane.

    Attributes:
        name: Names it on the command line.
        play: Does the work; gives the name and figures of each piece.
        contestants: Who does it.
        settings: How the cloud differs from its usual ways.
    """

    name: str
    play: Play
    contestants: Sequence[Contestant]
    settings: Mapping[str, Any] = {}


_STARTING = 50
"""Machines that start in a second."""
WITH_QUOTA = "a cloud that admits 20 calls/s"
SAME_PATCHES = "the same patches"


def initialising(count: int, title: str = "") -> str:
    """Return the name of this work, as those below."""
    work = f"initialise {count:,} nodes"
    return f"{work}: {title}" if title else work


def steady(count: int, seconds: float) -> str:
    """Measure nodes that only send heartbeats."""
    return f"steady, {count:,} nodes, {seconds:.0f} s with two refreshes"


def balancing(verb: str, count: int, hosts: int) -> str:
    """Services that are ensured, edited or deleted."""
    return f"{verb} {count:,} Services on {hosts} nodes"


def joining(count: int, services: int) -> str:
    """Measure nodes that join."""
    return f"join: {count} nodes, {services} load balancers"


def scenarios(scale: Scale) -> list[Scenario]:
    """Return all scenarios at a scale."""
    biggest, who = max(scale.nodes), scale.contestants
    return [
        Scenario(name="process", play=_process, contestants=who),
        *(
            Scenario(
                name=f"nodes-{count}",
                play=_nodes(count, restart=count == biggest),
                contestants=who,
            )
            for count in scale.nodes
        ),
        Scenario(
            name="steady",
            play=_steady(biggest, scale.steady_seconds),
            contestants=who,
        ),
        Scenario(
            name="limit",
            play=_nodes(scale.limit_nodes, title=SAME_PATCHES),
            contestants=(BARE, PROREUS),
        ),
        Scenario(name="kubelets", play=_kubelets(scale.kubelets), contestants=who),
        Scenario(
            name="quota",
            play=_nodes(scale.throttled_nodes, title=WITH_QUOTA),
            contestants=(*who, PROREUS_SINGLE),
            settings={"read_rate": 20.0, "read_burst": 20.0},
        ),
        *(
            Scenario(name=f"services-{count}", play=_services(count, scale.hosts), contestants=who)
            for count in scale.services
        ),
        *(
            Scenario(
                name=f"join-{count}",
                play=_join(count, scale.join_services, scale.hosts),
                contestants=who,
            )
            for count in scale.joining
        ),
        Scenario(
            name="routes",
            play=_routes(scale.routes),
            contestants=who,
            settings={"route_limit": 2 * scale.routes},
        ),
        Scenario(name="failover", play=_failover(scale.signals), contestants=who),
    ]


async def _process(stage: Stage) -> Results:
    """From exec to the first node, and the memory of a manager with nothing to do."""
    await stage.register(await stage.machines(1))
    async with started(stage) as (process, meter):
        await meter.until("the node is initialised", lambda: stage.all_initialised(1))
        figures = await meter.end(meter.audit.last_write("nodes"))
        yield "start-up: exec to the first node initialised", figures
        await meter.begin()
        await meter.settled("it is idle", _yes, quiet=5.0)
        idle = await meter.end()
        yield "idle, 5 s", msgspec.structs.replace(idle, rss=memory(process.pid, "VmRSS"))


def _nodes(count: int, *, restart: bool = False, title: str = "") -> Play:
    """Measure nodes that wait for a manager, then a restart, if asked for."""

    async def play(stage: Stage) -> Results:
        await stage.register(await stage.machines(count))
        async with started(stage) as (_, meter):
            await _all_written(stage, meter, count)
            yield initialising(count, title), await meter.end(_done(meter), units=count)
        if restart:
            async with started(stage) as (_, meter):
                await meter.settled("it rests", _yes, quiet=4.0)
                figures = await meter.end(await _last(meter), units=count)
                yield f"restart, {count:,} nodes in place", figures

    return play


def _kubelets(count: int) -> Play:
    """Let machines start, some each second, whose kubelets register and write their status.

    A kube-controller-manager writes taints, the TTL annotation and pod CIDRs beside. What the
    manager writes in the same moment is refused with 409 and written in another form: these are the
    refused requests.
    """

    async def play(stage: Stage) -> Results:
        player = KubeletPlayer(
            stage.client,
            stage.cloud.admin.instances,
            lease_period=1.0,
            status_period=10.0,
            object_size=OBJECT_SIZE,
        )
        async with await stage.node_controllers() as beside, started(stage) as (_, meter):
            beating = asyncio.create_task(player.run())
            try:
                for number in range(0, count, _STARTING):
                    await stage.machines(min(_STARTING, count - number), f"wave-{number}")
                    await asyncio.sleep(1.0)
                await _all_written(stage, meter, count)
                figures = await meter.end(_done(meter), units=count)
                beside.check()
            finally:
                beating.cancel()
                await asyncio.gather(beating, return_exceptions=True)
            yield f"initialise {count:,} nodes while their kubelets register", figures

    return play


def _steady(count: int, seconds: float) -> Play:
    """Initialised nodes that heartbeat, once each in this time."""

    async def play(stage: Stage) -> Results:
        machines = await stage.machines(count)
        await stage.register(machines, initialised=True)
        refresh = f"--node-status-update-frequency={seconds / 2:.0f}s"
        async with started(stage, refresh) as (_, meter):
            # Less than the time between two refreshes, or it never rests.
            await meter.settled("it rests", _yes, quiet=min(4.0, seconds / 5))
            await meter.begin()
            beating = asyncio.create_task(stage.heartbeats(machines, seconds))
            try:
                await asyncio.wait([beating], timeout=seconds)
            finally:
                beating.cancel()
            yield steady(count, seconds), await meter.end(units=count)

    return play


async def _last(meter: Meter) -> float:
    """Return when the cloud was last called, or a node or Service written."""
    return max(await meter.last_call(), meter.audit.last_write("nodes", "services"))


async def _all_written(stage: Stage, meter: Meter, count: int) -> None:
    async def written() -> bool:
        both = meter.audit.writes("nodes").keys() & meter.audit.writes("nodes", "status").keys()
        return len(both) >= count and await stage.all_initialised(count)

    await meter.until(f"{count} nodes are initialised", written)


def _done(meter: Meter) -> float:
    return meter.audit.last_write("nodes")


def _services(count: int, hosts: int) -> Play:
    """Services made, edited, found again after a restart, and deleted."""

    async def play(stage: Stage) -> Results:
        await stage.register(await stage.machines(hosts), initialised=True)
        restart = f"restart, {count:,} Services on {hosts} nodes in place"
        async with started(stage) as (_, meter):
            await meter.settled("it rests", _yes)
            await meter.begin()
            await stage.create_services(count)
            await meter.until("all have addresses", _equal(stage.addresses, count))
            yield (
                balancing("ensure", count, hosts),
                await meter.end(meter.audit.last_write("services"), units=count),
            )
            await meter.settled("it rests", _yes)
            await meter.begin()
            await stage.edit_services(count)
            await meter.settled("all listen on the new port", lambda: _listen(stage, count))
            figures = await meter.end(await meter.last_call(), units=count)
            yield balancing("edit", count, hosts), figures
        async with started(stage) as (_, meter):
            await meter.settled("it rests", _yes, quiet=4.0)
            yield restart, await meter.end(await _last(meter), units=count)
            await meter.begin()
            await stage.delete_services(count)
            await meter.until("all are gone", _equal(stage.services, 0))
            figures = await meter.end(await _last(meter), units=count)
            yield balancing("delete", count, hosts), figures

    return play


def _join(count: int, services: int, hosts: int) -> Play:
    """Let nodes join one after another, where there are load balancers, and leave again."""

    async def play(stage: Stage) -> Results:
        await stage.register(await stage.machines(hosts), initialised=True)
        async with started(stage) as (_, meter):
            await stage.create_services(services)
            await meter.until("all have addresses", _equal(stage.addresses, services))
            await meter.settled("it rests", _yes, quiet=3.0)
            machines = await stage.machines(count, "late")
            await meter.begin()
            for machine in machines:
                await stage.register([machine])
                await asyncio.sleep(5.0 / 50)
            joined = time.time()
            everyone = hosts + count
            await meter.settled("all have all hosts", lambda: _targets(stage, services, everyone))
            finished = await meter.last_call("load_balancers.add_targets")
            yield (
                joining(count, services),
                await meter.end(finished, units=count, after_the_last_join=finished - joined),
            )
            await meter.begin()
            for machine in machines:
                await stage.client.delete(NODES, machine.name)
                await stage.cloud.admin.delete(machine.id)
                await asyncio.sleep(5.0 / 50)
            left = time.time()
            await meter.settled("all lost the hosts", lambda: _targets(stage, services, hosts))
            finished = await meter.last_call("load_balancers.remove_targets")
            yield (
                f"leave: {count} nodes, {services} load balancers",
                await meter.end(finished, units=count, after_the_last_left=finished - left),
            )

    return play


def _routes(count: int) -> Play:
    """Measure a route to every node."""

    async def play(stage: Stage) -> Results:
        await stage.register(await stage.machines(count), initialised=True, pod_cidrs=True)

        async def there() -> bool:
            if len(meter.audit.writes("nodes", "status")) < count:
                return False
            return len(await stage.cloud.admin.parts("route")) == count

        async with started(stage, routes=True) as (_, meter):
            await meter.until("all have routes", there)
            yield f"make {count:,} routes", await meter.end(_done(meter), units=count)

    return play


def _failover(signals: Sequence[str]) -> Play:
    """Two replicas; how long a new node waits when the leader ends, or is killed."""

    async def play(stage: Stage) -> Results:
        number = 0
        for how in signals:
            async with stage.manager(elect=True, user="leader") as leader:
                number += 1
                await _initialised(stage, number)
                audit = AuditTail(stage.plane.audit_log, USER)
                async with stage.manager(elect=True) as standby:
                    await _asked_for_lease(audit)
                    meter = Meter(stage, standby)
                    await meter.begin()
                    await (leader.kill() if how == "SIGKILL" else leader.terminate())
                    number += 1
                    try:
                        await _initialised(stage, number)
                        yield f"failover after {how}", await meter.end()
                    finally:
                        await meter.close()
            await _release(stage)

    return play


async def _asked_for_lease(audit: AuditTail) -> None:
    """Wait until a standby has seen who leads, however long its start takes."""
    async with asyncio.timeout(60):
        while not audit.requests["get leases"]:
            await asyncio.sleep(0.05)
            audit.read()


async def _initialised(stage: Stage, number: int) -> None:
    """Register one more node and wait for it."""
    (machine,) = await stage.machines(1, f"failover-{number}")
    await stage.register([machine])
    while not is_initialised(await stage.client.get(NODES, machine.name)):
        await asyncio.sleep(0.05)


async def _release(stage: Stage) -> None:
    """Forget the lease, so that the next replica need not wait for its end."""
    lease = LEASES.path("kube-system", "cloud-controller-manager")
    await stage.client.send(Request("DELETE", lease), dict[str, Any])


async def _yes() -> bool:
    return True


def _equal(count: Callable[[], Awaitable[int]], expected: int) -> Callable[[], Awaitable[bool]]:
    async def equal() -> bool:
        return await count() == expected

    return equal


async def _listen(stage: Stage, count: int) -> bool:
    ports = [part["port"] for part in await stage.cloud.admin.parts("listener")]
    return ports == [8080] * count


async def _targets(stage: Stage, services: int, hosts: int) -> bool:
    balancers = await stage.cloud.admin.parts("load_balancer")
    return [len(one["targets"]) for one in balancers] == [hosts] * services
