"""A gateway that stands by, beside others, and when programs fail: on a real kernel."""

import asyncio
import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import CloudError, ClusterIdentity, Context, Ensured, LoadBalancer
from proreus.cloudprovider.calls import CallHooks
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.kube.objects import Condition, LoadBalancerIngress, Service, ServicePort
from proreus.providers.local.asked import ANNOTATION_ADDRESSES, ANNOTATION_SHARING_KEY
from proreus.providers.local.config import Gateway, LocalConfig, PoolConfig
from proreus.providers.local.kernel import Kernel
from proreus.providers.local.load_balancers import LocalLoadBalancers
from proreus.testing import objects
from proreus.testing.waiting import until

from .local_namespace import own_namespace
from .local_site import CLUSTER, NoEvents, Objects, node

if not all(shutil.which(program) for program in ("nft", "ip")):
    pytest.skip("nft or ip is missing", allow_module_level=True)

OTHER = ClusterIdentity("two", "uid-of-two")
CONFIG = LocalConfig(pools={"default": PoolConfig(addresses=("10.9.255.0/24",))})
SHARED = LocalConfig(
    pools={"default": PoolConfig(addresses=("10.9.255.0/24",), share_across_namespaces=True)}
)


@pytest.fixture(autouse=True)
def _namespace() -> Iterator[None]:
    with own_namespace():
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        yield


def balancers(
    cluster: ClusterIdentity,
    hold: float = 0.0,
    hooks: CallHooks | None = None,
    services: Sequence[Service] = (),
    config: LocalConfig = CONFIG,
) -> LocalLoadBalancers:
    listers = {"services": Objects(*services), "nodes": Objects()}
    given = Context(
        cluster, now=lambda: datetime.now(UTC), events=NoEvents(), listers=listers, hooks=hooks
    )
    gateway = Gateway(hold=timedelta(seconds=hold))
    return LocalLoadBalancers(given, msgspec.structs.replace(config, gateway=gateway))


def web(
    of: LocalLoadBalancers, cluster: ClusterIdentity, name: str, *shown: str, **spec: Any
) -> LoadBalancer:
    ingress = [LoadBalancerIngress(ip=one, ip_mode="VIP") for one in shown]
    service = objects.service(name, uid=f"uid-of-{name}", ingress=ingress, **spec)
    return desired_load_balancer(
        service, [node("one", "10.9.0.11")], of.host_policy(service), cluster
    )


async def test_a_standby_leaves_the_load_balancers_of_other_clusters_alone() -> None:
    theirs, standby = balancers(OTHER), balancers(CLUSTER)
    await theirs.start()
    await standby.start()
    try:
        lb = web(theirs, OTHER, "theirs")
        assert isinstance((await theirs.ensure([lb]))[lb.ref.uid], Ensured)
        await standby.mirror([web(standby, CLUSTER, "ours", "10.9.255.9")], [])
        assert len(await theirs.list_owned(OTHER)) == 1
        assert len(await standby.list_owned(CLUSTER)) == 1
        await standby.mirror([], [])
        assert len(await theirs.list_owned(OTHER)) == 1
        assert not await standby.list_owned(CLUSTER)
    finally:
        await standby.close()
        await theirs.close()


def served() -> dict[tuple[str | int, ...], str]:
    """Return which chain gets the packets for an address and port, as the kernel says."""
    program = Kernel(Gateway()).show().program
    assert program is not None
    return dict(program.elements["services4"])


async def test_a_standby_gives_no_service_the_traffic_of_another_one() -> None:
    """A Service that shares an address asks for a port of the other one: the leader refuses."""
    standby = balancers(CLUSTER)
    await standby.start()

    def shared(name: str, port: int) -> LoadBalancer:
        key = {ANNOTATION_SHARING_KEY: "together"}
        ports = (ServicePort(port, "p", "TCP"),)
        return web(standby, CLUSTER, name, "10.9.255.9", ports=ports, annotations=key)

    try:
        await standby.mirror([shared("victim", 80), shared("thief", 81)], [])
        before = served()
        assert before["10.9.255.9", "tcp", 80] == "service4-uid-of-victim"
        await standby.mirror([shared("victim", 80), shared("thief", 80)], [])
        assert served() == before
    finally:
        await standby.close()


async def test_a_standby_keeps_in_the_kernel_what_the_leader_refuses_to_change() -> None:
    standby = balancers(CLUSTER)
    await standby.start()
    try:
        both = [
            web(standby, CLUSTER, name, f"10.9.255.{number}") for number, name in enumerate("ab")
        ]
        await standby.mirror(both, [])
        before = served()
        await standby.mirror(both[:1], [both[1].ref])
        assert served() == before
        await standby.mirror(both[:1], [])
        assert list(served().values()) == ["service4-uid-of-a"]
    finally:
        await standby.close()


async def test_who_is_given_what_a_refused_one_has_left_keeps_it_where_a_standby_leads() -> None:
    """The standby saw at once that it had moved, and that the leader refuses what it asks for."""
    standby = balancers(CLUSTER)
    had, moved = (web(standby, CLUSTER, "moved", ip) for ip in ("10.9.255.0", "10.9.255.7"))
    next_ = web(standby, CLUSTER, "next", "10.9.255.0", namespace="bank")
    await standby.start()
    try:
        await standby.mirror([had], [])
        await standby.mirror([next_], [moved.ref])
        assert served() == {("10.9.255.0", "tcp", 80): "service4-uid-of-next"}
    finally:
        await standby.close()
    leads = balancers(CLUSTER, services=[moved.service, next_.service])
    await leads.start()
    try:
        answer = (await leads.ensure([next_]))[next_.ref.uid]
        assert isinstance(answer, Ensured)
        assert answer.ingress[0].ip == "10.9.255.0"
    finally:
        await leads.close()


class Cancelling:
    """Hooks that cancel the task which makes a call of this operation."""

    def __init__(self, operation: str) -> None:
        self._operation = operation

    def before(self, service: str, operation: str, *, read: bool) -> None:
        del service, read
        task = asyncio.current_task()
        if operation == self._operation and task is not None:
            task.cancel()

    def after(self, record: object) -> None: ...


@pytest.mark.parametrize("operation", ["is_held", "show", "announce_addresses"])
async def test_a_start_that_is_cancelled_leaves_nothing_running(operation: str) -> None:
    before = balancers(CLUSTER, hold=30.0)
    await before.start()
    lb = web(before, CLUSTER, "web")
    assert isinstance((await before.ensure([lb]))[lb.ref.uid], Ensured)
    await before.close()
    running = asyncio.all_tasks()
    gateway = balancers(CLUSTER, hold=30.0, hooks=Cancelling(operation))
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(gateway.start())
    assert asyncio.all_tasks() == running


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [("#!/bin/sh\n", 0o644, "Permission denied"), ("\0", 0o755, "Exec format error")],
)
async def test_a_program_that_cannot_be_run_is_an_error_of_the_cloud_with_the_remedy(
    content: str, mode: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a fault of the provider, which hides what is wrong from the Service."""
    program = tmp_path / "ip"
    program.write_text(content)
    program.chmod(mode)
    gateway = balancers(CLUSTER)
    await gateway.start()
    monkeypatch.setenv("PATH", str(tmp_path))
    try:
        lb = web(gateway, CLUSTER, "web")
        with pytest.raises(CloudError, match=f"program ip cannot be run: {why}; see that root"):
            raise (await gateway.ensure([lb]))[lb.ref.uid]  # type: ignore[misc]  # or it fails
    finally:
        monkeypatch.undo()
        await gateway.close()


async def test_a_gateway_goes_on_after_a_program_could_not_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a package is upgraded; it held its addresses no more, nor did health checks count."""
    for program in ("nft", "ip"):
        script = tmp_path / program
        script.write_text(f'#!/bin/sh\nexec {shutil.which(program)} "$@"\n')
        script.chmod(0o755)
    kernel, nft = Kernel(Gateway()), tmp_path / "nft"
    gateway = balancers(CLUSTER, hold=3.0)
    await gateway.start()
    try:
        lb = web(gateway, CLUSTER, "web")
        assert isinstance((await gateway.ensure([lb]))[lb.ref.uid], Ensured)
        path = os.environ["PATH"]
        monkeypatch.setenv("PATH", str(tmp_path))
        nft.chmod(0o644)
        await asyncio.sleep(4.0)
        monkeypatch.setenv("PATH", path)
        assert not kernel.is_held()
        monkeypatch.setenv("PATH", str(tmp_path))
        nft.chmod(0o755)
        await until("the gateway answers again", kernel.is_held)
    finally:
        await gateway.close()


@pytest.mark.parametrize("hold", [0.0, 30.0])
async def test_a_gateway_that_leads_again_gives_nobody_the_address_of_a_service_that_moved(
    hold: float,
) -> None:
    """Another gateway has led meanwhile; what this one's kernel has is from before."""
    before = balancers(CLUSTER, hold)
    await before.start()
    try:
        lb = web(before, CLUSTER, "moved")
        had = (await before.ensure([lb]))[lb.ref.uid]
        assert isinstance(had, Ensured)
        assert had.ingress[0].ip == "10.9.255.0"
    finally:
        await before.close()
    asks = {"annotations": {ANNOTATION_ADDRESSES: "10.9.255.1"}}
    moved = web(before, CLUSTER, "moved", "10.9.255.1", **asks)
    again = balancers(CLUSTER, hold, services=[moved.service])
    await again.start()
    try:
        new = web(again, CLUSTER, "another-tenants", namespace="bank")
        answers = await again.ensure([new, moved])
        shown = {uid: one.ingress[0].ip for uid, one in answers.items() if isinstance(one, Ensured)}
        assert shown == {new.ref.uid: "10.9.255.2", moved.ref.uid: "10.9.255.1"}
    finally:
        await again.close()


@pytest.mark.parametrize("asks", ["", "10.9.255.0"])
@pytest.mark.parametrize("wrong", ["key", "port"])
async def test_nobody_loses_an_address_to_one_that_has_left_it_and_does_not_show_that_yet(
    wrong: str, asks: str
) -> None:
    """Its status may be written late, or not at once; it says what the Service asks for by now."""
    keys = {one: {ANNOTATION_SHARING_KEY: one} for one in ("k", "z")}
    named = {**keys["k"], **({ANNOTATION_ADDRESSES: asks} if asks else {})}
    dns, web_port = (ServicePort(53, node_port=30053),), (ServicePort(80, node_port=30080),)
    of = balancers(CLUSTER)
    shop = web(of, CLUSTER, "shop", annotations=named, ports=web_port, namespace="shop")
    bank = web(of, CLUSTER, "bank", annotations=keys["k"], ports=dns, namespace="bank")
    before = balancers(CLUSTER, config=SHARED)
    await before.start()
    try:
        for answer in (await before.ensure([shop, bank])).values():
            assert isinstance(answer, Ensured)
            assert answer.ingress[0].ip == "10.9.255.0"
    finally:
        await before.close()
    has = "10.9.255.0"
    shop = web(of, CLUSTER, "shop", has, annotations=named, ports=web_port, namespace="shop")
    changed = {
        "key": {"annotations": keys["z"], "ports": dns},
        "port": {"annotations": keys["k"], "ports": web_port},
    }[wrong]
    moved = web(of, CLUSTER, "bank", has, namespace="bank", **changed)
    gateway = balancers(CLUSTER, services=[shop.service, moved.service], config=SHARED)
    await gateway.start()
    try:
        answer = (await gateway.ensure([moved]))[moved.ref.uid]
        assert isinstance(answer, Ensured)
        assert answer.ingress[0].ip == "10.9.255.1"
        kept = (await gateway.ensure([shop]))[shop.ref.uid]
        assert isinstance(kept, Ensured)
        assert kept.ingress[0].ip == has
        more = (ServicePort(80, "web", node_port=30080), ServicePort(53, "dns", node_port=30053))
        greedy = web(of, CLUSTER, "shop", has, annotations=named, ports=more, namespace="shop")
        given = (await gateway.ensure([greedy]))[shop.ref.uid]
        assert (wrong == "port") is (isinstance(given, Ensured) and given.ingress[0].ip == has)
    finally:
        await gateway.close()


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("wrong", ["key", "port"])
async def test_nobody_loses_an_address_to_one_that_a_gateway_has_left_out_while_it_stood_by(
    wrong: str, *, is_first: bool
) -> None:
    """The leader has ended before it could take the address from that one's status."""
    keys = {one: {ANNOTATION_SHARING_KEY: one} for one in ("k", "z")}
    dns, web_port = (ServicePort(53, node_port=30053),), (ServicePort(80, node_port=30080),)
    asked = {
        "key": {"annotations": keys["z"], "ports": dns},
        "port": {"annotations": keys["k"], "ports": web_port},
    }[wrong]
    has, of = "10.9.255.0", balancers(CLUSTER)
    made = {
        one: datetime(year, 1, 1, tzinfo=UTC) for one, year in (("thief", 2025), ("shop", 2026))
    }
    given: dict[str, Any] = {"annotations": keys["k"], "ports": web_port}
    shop, thief = (
        web(of, CLUSTER, one, has, namespace=one, creation_timestamp=made[one], **fields)
        for one, fields in (("shop", given), ("thief", asked))
    )
    gateway = balancers(CLUSTER, services=[shop.service, thief.service], config=SHARED)
    await gateway.start()
    try:
        await gateway.mirror([shop], [])
        await gateway.mirror([shop, thief], [])
        assert [one.service_uid for one in await gateway.list_owned(CLUSTER)] == [shop.ref.uid]
        answers = await gateway.ensure([shop, thief] if is_first else [thief, shop])
        shown = {uid: one.ingress[0].ip for uid, one in answers.items() if isinstance(one, Ensured)}
        assert shown == {shop.ref.uid: has, thief.ref.uid: "10.9.255.1"}
    finally:
        await gateway.close()


@pytest.mark.parametrize("is_first", [False, True])
async def test_a_gateway_that_knows_nobody_moves_no_service_for_the_port_of_a_younger_one(
    *, is_first: bool
) -> None:
    """The younger one shared the address, and has changed its port while nobody led."""
    key = {"annotations": {ANNOTATION_SHARING_KEY: "k"}}
    first, thief = (
        web(
            balancers(CLUSTER),
            CLUSTER,
            name,
            "10.9.255.0",
            namespace=name,
            creation_timestamp=datetime(year, 1, 1, tzinfo=UTC),
            **key,
        )
        for name, year in (("first", 2025), ("thief", 2026))
    )
    gateway = balancers(CLUSTER, services=[first.service, thief.service], config=SHARED)
    await gateway.start()
    try:
        answers = await gateway.ensure([first, thief] if is_first else [thief, first])
    finally:
        await gateway.close()
    shown = {uid: one.ingress[0].ip for uid, one in answers.items() if isinstance(one, Ensured)}
    assert shown == {first.ref.uid: "10.9.255.0", thief.ref.uid: "10.9.255.1"}


@pytest.mark.parametrize("is_first", [False, True])
async def test_a_gateway_that_let_nothing_pass_moves_no_service_for_the_port_of_a_younger_one(
    *, is_first: bool
) -> None:
    """It was booted, and forwards nothing yet: all are refused, and one changes its port then."""
    key = {"annotations": {ANNOTATION_SHARING_KEY: "k"}}
    waits = (Condition("LoadBalancerReady", "False", reason="CloudError"),)
    first, thief = (
        web(
            balancers(CLUSTER),
            CLUSTER,
            name,
            "10.9.255.0",
            namespace=name,
            creation_timestamp=datetime(year, 1, 1, tzinfo=UTC),
            conditions=waits,
            **key,
        )
        for name, year in (("first", 2025), ("thief", 2026))
    )
    gateway = balancers(CLUSTER, services=[first.service, thief.service], config=SHARED)
    asked = [first, thief] if is_first else [thief, first]
    await gateway.start()
    try:
        Path("/proc/sys/net/ipv4/ip_forward").write_text("0")
        failed = await gateway.ensure(asked)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        answers = await gateway.ensure(asked)
    finally:
        await gateway.close()
    disowned = {one for one, why in failed.items() if isinstance(why, CloudError) and why.disowns}
    shown = {uid: one.ingress[0].ip for uid, one in answers.items() if isinstance(one, Ensured)}
    assert shown == {first.ref.uid: "10.9.255.0", thief.ref.uid: "10.9.255.1"}
    assert disowned == {thief.ref.uid}
