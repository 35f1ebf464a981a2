"""Two managers: one acts, and whatever happens to it, the other goes on where it was."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proreus.controllers.table import CONTROLLERS
from proreus.kube import config
from proreus.kube.errors import NotFound
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import EVENTS, LEASES, NODES
from proreus.runtime.leaderelection import LeaderElector
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Address, Fault, FaultMode, Instance
from proreus.testing.waiting import until

from .api_proxy import api_proxy
from .rights import MANAGERS
from .site import PATIENCE, TOKENS, Site, is_initialised, names

# Not shorter: a leader on a slow machine must be able to renew in time.
LEASE = (
    "--leader-elect-lease-duration=10s",
    "--leader-elect-renew-deadline=8s",
    "--leader-elect-retry-period=500ms",
)
LONG_LEASE = (
    "--leader-elect-lease-duration=1h",
    "--leader-elect-renew-deadline=50m",
    "--leader-elect-retry-period=500ms",
)
MAIN = "cloud-controller-manager"
MIGRATION = "cloud-provider-extraction-migration"
TWO_PATCHES = Counter({"status": 1, "": 1})
LATE = Instance(
    name="late",
    id="i-00000000abcd",
    system_uuid="0b6a5b1c-5a4e-4a53-8f0f-6d9f1a3c2e10",
    addresses=(Address("InternalIP", "10.1.1.1"), Address("Hostname", "late")),
)


def replica(site: Site, name: str, lease: tuple[str, ...] = LEASE, **more: Any) -> ManagerProcess:
    """A manager that both servers know by its name."""
    return site.manager(*lease, user=name, token=TOKENS[name], **more)


async def holder(site: Site, name: str = MAIN) -> str:
    """Who holds the lease; "" if nobody does."""
    try:
        lease = await site.client.get_lease("kube-system", name)
    except NotFound:
        return ""
    return str(lease["spec"].get("holderIdentity") or "")


async def leads(manager: ManagerProcess, lease: str = MAIN) -> None:
    """Wait until this manager has won the lease."""

    async def told() -> bool:
        return f'"Became leader" lease="kube-system/{lease}"' in manager.output()

    await until(f"it wins {lease}", told)


async def end_lease(site: Site) -> None:
    """Make the lease free, as the end of its hour would."""
    free = Patch(PatchType.MERGE, {"spec": {"holderIdentity": ""}})
    await site.client.patch(LEASES, MAIN, free, "kube-system")


async def lease_events(site: Site, identity: str) -> set[str]:
    """What was told about leases of this holder, without its name."""
    found = (await site.client.list(EVENTS, "kube-system")).items
    return {
        event["message"].removeprefix(f"{identity} ")
        for event in found
        if event["involvedObject"]["kind"] == "Lease"
        and event["reason"] == "LeaderElection"
        and event["message"].startswith(f"{identity} ")
    }


@pytest.fixture
async def leases(site: Site) -> AsyncIterator[None]:
    """Remove the leases beside the main one at the end."""
    yield
    for name in (MIGRATION, *(f"{MAIN}-{one.alias}" for one in CONTROLLERS)):
        with suppress(NotFound):
            await site.client.delete(LEASES, name, "kube-system")


async def callers(site: Site) -> set[str]:
    """Whose tokens the cloud has seen."""
    return {call.caller for call in await site.cloud.admin.calls()}


async def calls_by(site: Site, name: str) -> int:
    """How many calls the cloud has had from a manager."""
    return sum(call.caller == name for call in await site.cloud.admin.calls())


def effects(site: Site, user: str, *, since: datetime | None = None) -> list[str]:
    """A user's writes to anything; leases too if `since` is given."""
    return [
        f"{one.verb} {one.object_ref.resource} {one.object_ref.name}"
        for one in site.audit(user)
        if one.is_write
        and (
            one.object_ref.resource != LEASES.plural
            if since is None
            else one.request_received_timestamp > since
        )
    ]


async def test_only_the_leader_acts(site: Site) -> None:
    async with replica(site, "first", LONG_LEASE) as first:
        await leads(first)
        async with replica(site, "second", LONG_LEASE) as second:
            await site.join(*names("node", 20))
            await site.create_service("web")
            await site.initialised()
            await served(site, "web")
            await standing_by(site, "second")
            assert second.is_running

    assert await callers(site) == {"first"}
    assert effects(site, "second") == []
    assert site.patches("first") == dict.fromkeys(names("node", 20), TWO_PATCHES)


async def test_a_killed_leader_loses_nothing_and_no_load_balancer_is_made_twice(
    site: Site, tmp_path: Path
) -> None:
    """Nothing but its death ends the first one's time: no lease and no call runs out meanwhile."""
    fleet = names("node", 40)
    services = names("web", 5)
    await site.join(*fleet)
    # Half of the nodes' questions are answered, and of each load balancer some parts are made:
    # then the cloud is silent, and the leader is in the middle of everything.
    silent = (("instances.batch_get", 5), ("listeners.create", 2))
    for operation, skip in silent:
        fault = Fault(mode=FaultMode.HANG, operation=operation, skip=skip, count=0)
        await site.cloud.admin.inject(fault)
    patient = replica(site, "first", LONG_LEASE, batch_size=4)
    with (tmp_path / "first-cloud.conf").open("a") as file:
        file.write("timeout = 3600\n")
    async with patient as first:
        await leads(first)
        async with replica(site, "second", LONG_LEASE):
            await asyncio.gather(*(site.create_service(name) for name in services))

            async def amid() -> bool:
                done = sum(is_initialised(node) for node in (await site.nodes()).values())
                made = len(await site.cloud.admin.parts("load_balancer"))
                return done >= 20 and made == len(services)

            await until("the leader is in the middle", amid)
            assert not all(is_initialised(node) for node in (await site.nodes()).values())
            await first.kill()
            await site.cloud.admin.clear_faults()
            await end_lease(site)

            await site.initialised(*fleet)
            for name in services:
                await served(site, name)
            await site.quiet(lambda: len(site.writes(user="second")))

    parts = await site.cloud.admin.parts()
    kinds = Counter(part["kind"] for part in parts)
    assert kinds == dict.fromkeys(("address", "load_balancer", "listener", "firewall"), 5)
    by_leader, by_other = site.patches("first"), site.patches("second")
    assert {
        name: by_leader.get(name, Counter()) + by_other.get(name, Counter()) for name in fleet
    } == (dict.fromkeys(fleet, TWO_PATCHES))
    assert by_leader
    assert by_other


async def test_sigterm_hands_the_lease_over_at_once(site: Site) -> None:
    await site.join("before")
    # The lease would last an hour: only its release lets the other in.
    async with replica(site, "first", LONG_LEASE) as first:
        await leads(first)
        async with replica(site, "second", LONG_LEASE) as second:
            await site.initialised("before")
            before = await holder(site)
            assert await first.stop() == 0
            assert await lease_events(site, before) == {"became leader", "stopped leading"}
            await leads(second)
            assert await holder(site) not in {"", before}
            await site.join("after")
            await site.initialised("after")
            assert await second.stop() == 0

    assert await holder(site) == ""
    assert site.patches("second")["after"] == TWO_PATCHES
    assert "before" not in site.patches("second")


async def test_a_leader_that_was_frozen_writes_nothing_more_and_ends(
    site: Site, control_plane: ControlPlane
) -> None:
    fleet = names("node", 12)
    user = control_plane.kubeconfig_for("first", [MANAGERS])
    async with (
        api_proxy(config.load(str(user), env={}), answers={"PATCH"}) as proxy,
        replica(site, "first", api_server=proxy.url) as first,
    ):
        await leads(first)
        async with replica(site, "second") as second:
            # It is frozen between the two patches of many nodes: the answers to the first ones
            # are there when it wakes up, and the second ones are due at once.
            await site.join(*fleet)

            async def amid() -> bool:
                return len(proxy.held) >= 6

            await until("the leader is in the middle of its writes", amid)
            first.pause()
            proxy.release()
            await leads(second)
            await site.initialised(*fleet)
            await site.quiet(lambda: len(site.writes(user="second")))

            resumed = datetime.fromtimestamp(time.time(), UTC)
            called = await calls_by(site, "first")
            first.resume()
            async with asyncio.timeout(PATIENCE):
                assert await first.wait() == 1

            assert await calls_by(site, "first") == called
            assert effects(site, "first", since=resumed) == []
            assert second.is_running
            await site.join("later")
            await site.initialised("later")

    assert await holder(site) == ""
    assert site.patches("second")["later"] == TWO_PATCHES
    # Nothing that the frozen one had written was written again.
    assert all(
        site.patches("first").get(name, Counter()) + site.patches("second")[name] == TWO_PATCHES
        for name in fleet
    )


async def test_an_outage_of_the_cloud_ends_neither_leader_nor_standby(site: Site) -> None:
    await site.cloud.kill()
    async with replica(site, "first", LONG_LEASE) as first:
        await leads(first)
        async with replica(site, "second", LONG_LEASE) as second:
            await site.register_node(LATE)
            await site.cloud_condition("late", "CloudUnavailable")
            assert first.is_running
            assert await first.stop() == 0
            await leads(second)

            await site.cloud.restart()
            await site.cloud.admin.create([LATE])
            await site.initialised("late")


async def test_a_deleted_lease_never_lets_two_act(site: Site) -> None:
    async with replica(site, "first") as first:
        await leads(first)
        async with replica(site, "second") as second:
            await standing_by(site, "second")
            await site.client.delete(LEASES, "cloud-controller-manager", "kube-system")
            async with asyncio.timeout(PATIENCE):
                assert await first.wait() == 1
            await site.join("node")
            await leads(second)
            await site.initialised("node")

    assert site.patches("first") == {}
    assert site.patches("second") == {"node": TWO_PATCHES}


async def test_a_restart_of_the_api_server_changes_no_leader(
    site: Site, control_plane: ControlPlane
) -> None:
    site.may_be_refused = True  # until a new API server's authorizer has read the roles
    async with replica(site, "first", LONG_LEASE) as first:
        await leads(first)
        async with replica(site, "second", LONG_LEASE) as second:
            await standing_by(site, "second")
            before = await holder(site)
            await control_plane.restart_apiserver()
            await site.join("node")
            await site.initialised("node")
            assert await holder(site) == before
            assert first.is_running
            assert second.is_running
    assert set(site.patches("first")) == {"node"}
    assert effects(site, "second") == []


@pytest.mark.usefixtures("leases")
async def test_migrated_controllers_start_when_kube_controller_manager_lets_them_go(
    site: Site,
) -> None:
    kcm = LeaderElector(
        site.client, namespace="kube-system", name=MIGRATION, identity="kube-controller-manager"
    )
    await kcm.acquire()
    theirs = asyncio.create_task(kcm.hold())
    async with replica(site, "first", (*LEASE, "--enable-leader-migration")) as first:
        await leads(first)
        await site.create_service("web")
        await site.join("node")
        await site.initialised("node")
        assert '"Started" controller="service-lb-controller"' not in first.output()
        assert not (await site.service("web")).metadata.finalizers
        theirs.cancel()
        await asyncio.gather(theirs, return_exceptions=True)
        await served(site, "web")
        assert await holder(site, MIGRATION) == await holder(site)
    assert await holder(site, MIGRATION) == await holder(site) == ""


@pytest.mark.usefixtures("leases")
async def test_of_replicas_that_share_the_work_one_dies_and_its_work_is_done_once(
    site: Site,
) -> None:
    shared = "--leader-elect-per-controller"
    nodes, services = f"{MAIN}-cloud-node", f"{MAIN}-service"
    before, after = names("before", 6), names("after", 6)
    async with replica(site, "first", (*LEASE, shared, "--controllers=cloud-node")) as first:
        await leads(first, nodes)
        async with (
            replica(site, "second", (*LONG_LEASE, shared)) as second,
            site.manager(*LONG_LEASE, shared, user="third", token=TOKENS["second"]) as third,
        ):
            await site.join(*before)
            await site.create_service("web")
            await served(site, "web")
            await site.initialised(*before)
            killed, works = await holder(site, nodes), await holder(site, services)
            assert killed != works
            await first.kill()
            await site.join(*after)
            await site.create_service("later")
            await served(site, "later")
            await site.initialised(*after)
            assert await holder(site, nodes) != killed
            assert await holder(site, services) == works
            assert second.is_running
            assert third.is_running

    users = ("first", "second", "third")
    counts = [site.patches(user) for user in users]
    assert {
        name: sum((one.get(name, Counter()) for one in counts), Counter())
        for name in (*before, *after)
    } == dict.fromkeys((*before, *after), TWO_PATCHES)
    kinds = Counter(part["kind"] for part in await site.cloud.admin.parts())
    assert kinds == dict.fromkeys(("address", "load_balancer", "listener", "firewall"), 2)


@pytest.mark.usefixtures("leases")
async def test_who_takes_a_controller_over_gives_no_block_that_the_watch_is_still_to_show(
    site: Site, control_plane: ControlPlane
) -> None:
    """Who held the lease has written a pod CIDR a moment ago."""
    lease = f"{MAIN}-nodeipam"
    former = LeaderElector(
        site.client, namespace="kube-system", name=lease, identity="former", lease_duration=3600.0
    )
    await former.acquire()
    theirs = asyncio.create_task(former.hold())
    user = config.load(str(control_plane.kubeconfig_for("second", [MANAGERS])), env={})
    flags = (
        "--leader-elect-per-controller",
        "--controllers=cloud-node,nodeipam",
        "--allocate-node-cidrs",
        "--cluster-cidr=10.0.0.0/22",
    )
    async with (
        api_proxy(user) as proxy,
        replica(site, "second", (*LEASE, *flags), api_server=proxy.url) as second,
    ):
        await site.join("a", "b")
        await site.initialised("a", "b")  # so its cache has both
        proxy.hanging.add(NODES.path())
        written = {"spec": {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24"]}}
        await site.client.patch(NODES, "a", Patch(PatchType.STRATEGIC, written))
        theirs.cancel()
        await asyncio.gather(theirs, return_exceptions=True)
        await leads(second, lease)

        async def has_begun() -> bool:
            """It has given a block, or has looked past its cache first."""
            nodes = [one for one in site.audit("second") if one.object_ref.resource == "nodes"]
            looked = sum(one.verb == "list" for one in nodes)
            return looked > 1 or bool((await site.existing("b")).spec.pod_cidr)

        await until("it has begun", has_begun)
        proxy.release()

        async def have() -> list[str] | None:
            found = [node.spec.pod_cidr for node in (await site.nodes()).values()]
            return sorted(found) if all(found) else None

        assert await until("both have a block", have) == ["10.0.0.0/24", "10.0.1.0/24"]


async def standing_by(site: Site, user: str) -> None:
    """Wait until a manager has looked at the lease."""

    async def has_looked() -> bool:
        return LEASES.plural in {one.object_ref.resource for one in site.audit(user)}

    await until(f"{user} looks at the lease", has_looked)


async def served(site: Site, name: str) -> None:
    """Wait until the Service has its address."""

    async def has_address() -> bool:
        return bool((await site.service(name)).status.load_balancer.ingress)

    await until(f"{name} has an address", has_address)
