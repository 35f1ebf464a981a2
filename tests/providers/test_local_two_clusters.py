"""Managers of two clusters on one gateway: with `hold` or `vrrp` the second is refused.

Without, and with tables of their own, neither touches what is the other's.
"""

import asyncio
import logging
import os
import shutil
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import (
    CloudError,
    ClusterIdentity,
    Context,
    Done,
    Ensured,
    Host,
    LoadBalancer,
)
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.kube.objects import LoadBalancerIngress, ServicePort
from proreus.providers.local.asked import ANNOTATION_ADDRESSES, ANNOTATION_SHARING_KEY
from proreus.providers.local.config import Gateway, HealthChecks, LocalConfig, PoolConfig, Vrrp
from proreus.providers.local.gateways.room import Room
from proreus.providers.local.kernel import Kernel
from proreus.providers.local.load_balancers import LocalLoadBalancers
from proreus.providers.local.locks import Turn
from proreus.testing import objects
from proreus.testing.waiting import until

from .local_namespace import own_namespace
from .local_site import CLUSTER, NoEvents, Objects, node

if not all(shutil.which(program) for program in ("nft", "ip")):
    pytest.skip("nft or ip is missing", allow_module_level=True)

OTHER = ClusterIdentity("two", "uid-of-two")
ALONE = Gateway()
HOLDING = Gateway(hold=timedelta(seconds=30))
SHARING = Gateway(interfaces=("here",), vrrp=Vrrp(enabled=True))
CONFIG = LocalConfig(
    pools={"default": PoolConfig(addresses=("10.9.255.0/24",))},
    # No node answers here; what is told of them must not come in between.
    health_checks=HealthChecks(interval=timedelta(hours=1)),
)
NAMED = r"another cluster.*uid-of-two.*gateways of its own.*nft delete table inet proreus"


@pytest.fixture(autouse=True)
def _namespace() -> Iterator[None]:
    with own_namespace():
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        yield


@asynccontextmanager
async def manager(
    cluster: ClusterIdentity, gateway: Gateway, config: LocalConfig = CONFIG
) -> AsyncIterator[LocalLoadBalancers]:
    listers = {"services": Objects(), "nodes": Objects()}
    context = Context(cluster, now=lambda: datetime.now(UTC), events=NoEvents(), listers=listers)
    room = Room(gateway, "gateway") if gateway.vrrp.enabled else None
    found = LocalLoadBalancers(context, msgspec.structs.replace(config, gateway=gateway), room)
    try:
        await found.start()
        yield found
    finally:
        if room is not None:
            await room.close()
        await found.close()


async def is_refused(cluster: ClusterIdentity, gateway: Gateway) -> None:
    with pytest.raises(CloudError, match=NAMED):
        async with manager(cluster, gateway):
            pass


def web(
    of: LocalLoadBalancers,
    cluster: ClusterIdentity,
    name: str,
    *shown: str,
    at: str = "10.9.0.11",
    asks: str = "",
    key: str = "",
    **spec: Any,
) -> LoadBalancer:
    ingress = [LoadBalancerIngress(ip=one, ip_mode="VIP") for one in shown]
    annotations = {ANNOTATION_ADDRESSES: asks} if asks else {}
    annotations |= {ANNOTATION_SHARING_KEY: key} if key else {}
    service = objects.service(
        name, uid=f"uid-of-{name}", ingress=ingress, annotations=annotations, **spec
    )
    hosts = [node("one", at)]
    return desired_load_balancer(service, hosts, of.host_policy(service), cluster)


def with_more(lb: LoadBalancer, at: str) -> LoadBalancer:
    """The load balancer with a node more at that address."""
    host = Host(f"node-{at.replace('.', '-')}", f"local://{at}", {"IPv4": (at,)})
    return msgspec.structs.replace(lb, hosts=(*lb.hosts, host))


async def ensure(of: LocalLoadBalancers, cluster: ClusterIdentity, name: str) -> object:
    lb = web(of, cluster, name)
    return (await of.ensure([lb]))[lb.ref.uid]


def said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def kernel() -> list[str]:
    """Everything that a gateway has in its kernel, but for counters and the time it holds.

    Of IPv6, which no test here uses, the kernel adds routes once no duplicate has answered.
    """
    return [
        said("nft", "--stateless", "list", "ruleset").partition("set alive")[0],
        said("ip", "rule"),
        said("ip", "-4", "route", "show", "table", "all"),
        said("ip", "neigh", "show", "proxy"),
        said("ip", "-4", "-oneline", "addr"),
    ]


async def left_by(cluster: ClusterIdentity, name: str, gateway: Gateway = HOLDING) -> list[str]:
    """A load balancer of a cluster whose manager has ended; returns what the kernel has."""
    async with manager(cluster, gateway) as theirs:
        assert isinstance(await ensure(theirs, cluster, name), Ensured)
    return kernel()


@pytest.mark.parametrize("gateway", [HOLDING, SHARING, ALONE], ids=["hold", "vrrp", "neither"])
async def test_a_manager_does_not_start_on_the_gateway_of_another_cluster(gateway: Gateway) -> None:
    before = await left_by(OTHER, "theirs")
    await is_refused(CLUSTER, gateway)
    assert kernel() == before


async def test_nor_does_one_without_vrrp_where_another_cluster_has_that_alone() -> None:
    """It announced all addresses of the other cluster, whichever gateway had them."""
    before = await left_by(OTHER, "theirs", SHARING)
    await is_refused(CLUSTER, ALONE)
    assert kernel() == before


async def test_what_another_cluster_holds_no_more_is_not_removed() -> None:
    """Its manager may be about to start again, as in an upgrade; this was a deletion of all."""
    await left_by(OTHER, "theirs")
    said("nft", "flush", "set", "inet", "proreus", "alive")
    before = kernel()
    assert not Kernel(HOLDING).is_held()
    await is_refused(CLUSTER, HOLDING)
    assert kernel() == before


@pytest.mark.parametrize("gateway", [HOLDING, SHARING, ALONE], ids=["hold", "vrrp", "neither"])
async def test_a_manager_that_runs_already_touches_nothing_of_another_cluster(
    gateway: Gateway,
) -> None:
    async with manager(CLUSTER, gateway) as ours:
        before = await left_by(OTHER, "theirs")
        lb = web(ours, CLUSTER, "ours", "10.9.255.9")
        for answers in (
            await ours.ensure([lb]),
            await ours.update_hosts([lb]),
            await ours.preview([lb]),
        ):
            with pytest.raises(CloudError, match=NAMED):
                raise answers[lb.ref.uid]  # type: ignore[misc]  # an error, or the test fails
        with pytest.raises(CloudError, match=NAMED):
            await ours.mirror([lb], [])
        # Nothing is here of the Service, so that it can go.
        assert isinstance((await ours.delete([lb.ref]))[lb.ref.uid], Done)
        assert await ours.list_owned(CLUSTER) == []
        assert kernel() == before


async def test_a_manager_does_not_keep_another_clusters_addresses_alive() -> None:
    short = Gateway(hold=timedelta(seconds=2))
    async with manager(CLUSTER, short) as ours:
        async with manager(OTHER, short) as theirs:
            assert isinstance(await ensure(theirs, OTHER, "theirs"), Ensured)
            await ours.delete([web(ours, CLUSTER, "gone").ref])  # so that it has seen them
        await until("the gateway falls silent", lambda: not Kernel(short).is_held())


async def test_a_gateway_is_the_next_clusters_once_the_remedy_is_done() -> None:
    async with manager(CLUSTER, HOLDING) as ours:
        await left_by(OTHER, "theirs")
        said("nft", "delete", "table", "inet", "proreus")
        assert isinstance(await ensure(ours, CLUSTER, "ours"), Ensured)
        program = Kernel(HOLDING).show().program
        assert program is not None
        assert list(program.elements["services4"].values()) == ["service4-uid-of-ours"]


async def test_two_clusters_that_shared_a_gateway_before_go_on_and_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """To stop would cost either its traffic; so did the start of a manager with an expired hold."""
    async with manager(OTHER, ALONE) as theirs, manager(CLUSTER, ALONE) as ours:
        assert isinstance(await ensure(theirs, OTHER, "theirs"), Ensured)
        assert isinstance(await ensure(ours, CLUSTER, "ours"), Ensured)
    async with manager(CLUSTER, HOLDING) as ours:
        assert "Both clusters go on for now" in caplog.text
        assert [one.levelno for one in caplog.records if "Both" in one.message] == [logging.ERROR]
        assert isinstance(await ensure(ours, CLUSTER, "ours"), Ensured)
        assert len(await ours.list_owned(OTHER)) == 1
    said("nft", "flush", "set", "inet", "proreus", "alive")
    before = kernel()
    await is_refused(CLUSTER, HOLDING)
    assert kernel() == before


async def test_nodes_of_two_clusters_may_have_one_name() -> None:
    """Such as node-1: the first cluster's traffic went to the node of the second."""
    async with manager(OTHER, ALONE) as theirs, manager(CLUSTER, ALONE) as ours:
        first, second = web(theirs, OTHER, "theirs"), web(ours, CLUSTER, "ours", at="10.9.0.22")
        await theirs.ensure([first])
        before = kernel()
        assert isinstance((await ours.ensure([second]))[second.ref.uid], Ensured)
        for lb, of, cluster in ((first, theirs, OTHER), (second, ours, CLUSTER)):
            (owned,) = await of.list_owned(cluster)
            assert owned.fingerprint == of.fingerprint(lb)
        assert "default via 10.9.0.11" in said("ip", "route", "show", "table", "7301")
        assert "default via 10.9.0.22" in said("ip", "route", "show", "table", "7302")
        await ours.delete([second.ref])
        assert kernel() == before


@pytest.mark.parametrize("is_open", [False, True], ids=["namespace", "share-across-namespaces"])
async def test_no_service_shares_an_address_with_one_of_another_cluster(*, is_open: bool) -> None:
    """Both have a namespace default, and tenants guess keys."""
    pool = msgspec.structs.replace(CONFIG.pools["default"], share_across_namespaces=is_open)
    shared = msgspec.structs.replace(CONFIG, pools={"default": pool})
    other_port = (ServicePort(443, "https"),)
    async with manager(OTHER, ALONE, shared) as theirs, manager(CLUSTER, ALONE, shared) as ours:
        await theirs.ensure([web(theirs, OTHER, "theirs", key="k")])
        lb = web(ours, CLUSTER, "ours", key="k", ports=other_port)
        answer = (await ours.ensure([lb]))[lb.ref.uid]
        assert isinstance(answer, Ensured)
        assert [one.ip for one in answer.ingress] == ["10.9.255.1"]
        asks = web(ours, CLUSTER, "asks", key="k", asks="10.9.255.0", ports=other_port)
        with pytest.raises(CloudError, match=r"10\.9\.255\.0.*default/theirs of another cluster"):
            raise (await ours.ensure([asks]))[asks.ref.uid]  # type: ignore[misc]  # as above


async def test_no_service_gets_the_address_of_another_clusters_node() -> None:
    async with manager(OTHER, ALONE) as theirs, manager(CLUSTER, ALONE) as ours:
        await theirs.ensure([web(theirs, OTHER, "theirs", at="10.9.255.7")])
        before = kernel()
        lb = web(ours, CLUSTER, "ours", asks="10.9.255.7")
        with pytest.raises(CloudError, match=r"10\.9\.255\.7.*a node of another cluster"):
            raise (await ours.ensure([lb]))[lb.ref.uid]  # type: ignore[misc]  # as above
        assert kernel() == before


async def test_managers_that_only_share_the_protocol_leave_each_other_alone() -> None:
    apart = Gateway(
        nft_table="second",
        device="second0",
        mark_mask=0xF0000000,
        first_table=8300,
        rule_priority=8300,
    )
    async with manager(OTHER, ALONE) as theirs, manager(CLUSTER, apart) as ours:
        await ensure(theirs, OTHER, "theirs")
        before = kernel()
        lb = web(ours, CLUSTER, "ours", asks="10.9.255.9")
        assert isinstance((await ours.ensure([lb]))[lb.ref.uid], Ensured)
        both = kernel()
        await theirs.ensure([web(theirs, OTHER, "theirs", "10.9.255.0")])
        assert kernel() == both
        await ours.delete([lb.ref])
        said("ip", "route", "flush", "cache")
        assert kernel() == before


@pytest.mark.parametrize(
    "second",
    [
        Gateway(nft_table="second"),
        Gateway(nft_table="second", protocol=203, first_table=8300),
        Gateway(nft_table="second", device="second0"),
        Gateway(nft_table="second", device="second0", first_table=7299),
    ],
    ids=["device", "device alone", "routing tables", "routing tables that begin elsewhere"],
)
async def test_a_manager_that_shares_ways_has_the_table_too_or_does_not_start(
    second: Gateway,
) -> None:
    """Routes do not say which table they belong to: it took over those of the other one."""
    async with manager(OTHER, ALONE) as theirs:
        await ensure(theirs, OTHER, "theirs")
        before = kernel()
        with pytest.raises(
            CloudError,
            match=r"table proreus has the device .*nft-table|proreus0 has routes of the protocol 202",
        ):
            async with manager(CLUSTER, second):
                pass
        assert kernel() == before
    said("nft", "delete", "table", "inet", "proreus")
    said("ip", "link", "delete", "proreus0")
    async with manager(CLUSTER, second) as ours:
        assert isinstance(await ensure(ours, CLUSTER, "ours"), Ensured)


async def test_what_two_managers_change_at_one_time_stays_both() -> None:
    """What one of them had read was old when it wrote: the other's new node was not noted.

    Without it the other's load balancers could not be read, and went with the next change.
    """
    async with manager(OTHER, ALONE) as theirs, manager(CLUSTER, ALONE) as ours:
        first = web(theirs, OTHER, "theirs")
        await theirs.ensure([first])
        await ours.ensure([web(ours, CLUSTER, "ours", asks="10.9.255.2", at="10.9.0.21")])
        for number in range(22, 26):
            at = f"10.9.0.{number}"
            second = web(ours, CLUSTER, "ours", asks="10.9.255.2", at=at)
            first = with_more(first, f"10.9.0.{number + 100}")
            answers = await asyncio.gather(ours.ensure([second]), theirs.update_hosts([first]))
            for one in answers:
                (answer,) = one.values()
                assert isinstance(answer, Ensured)
            for lb, of, cluster in ((first, theirs, OTHER), (second, ours, CLUSTER)):
                (owned,) = await of.list_owned(cluster)
                assert owned.fingerprint == of.fingerprint(lb)


async def test_a_change_that_goes_on_when_its_verb_has_ended_keeps_the_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when the manager ends or gets another cloud-config: nobody stops a program that runs."""
    change, begun = Kernel.change, threading.Event()

    def slow(self: Kernel, *args: Any) -> None:
        begun.set()
        time.sleep(0.5)
        change(self, *args)

    async with manager(OTHER, ALONE) as theirs, manager(CLUSTER, ALONE) as ours:
        first = web(theirs, OTHER, "theirs")
        await theirs.ensure([first])
        monkeypatch.setattr(Kernel, "change", slow)
        changing = asyncio.create_task(theirs.ensure([with_more(first, "10.9.0.12")]))
        await asyncio.to_thread(begun.wait)
        monkeypatch.undo()
        changing.cancel()
        second = web(ours, CLUSTER, "ours", asks="10.9.255.2", at="10.9.0.21")
        await ours.ensure([second])
        await asyncio.wait({changing})
        await asyncio.sleep(1)
        (owned,) = await ours.list_owned(CLUSTER)
        assert owned.fingerprint == ours.fingerprint(second)


async def test_a_program_that_outlives_its_manager_keeps_the_turn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One that is killed in the midst of a change, such as for its memory, leaves `nft` behind."""
    program = tmp_path / "nft"
    program.write_text("#!/bin/sh\nexec sleep 2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    turn = Turn()
    async with turn:
        running = asyncio.create_task(asyncio.to_thread(Kernel(ALONE).change, [{}], turn.held))
        await asyncio.sleep(0.5)
    with pytest.raises(CloudError, match="has been changing the kernel"):
        async with Turn(patience=0.1):
            pass
    await running
    async with Turn(patience=0.1):
        pass


async def test_a_manager_that_hangs_in_a_change_is_named() -> None:
    async with Turn():
        with pytest.raises(CloudError, match=rf"on this machine, the process {os.getpid()} \("):
            async with Turn(patience=0.1):
                pass
    async with Turn(patience=0.1):
        pass
