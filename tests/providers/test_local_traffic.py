"""Load balancers of the provider `local` with real traffic: a gateway, two nodes and a client."""

import contextlib
import socket
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from ipaddress import ip_network
from typing import Any

import msgspec
import pytest
from msgspec import structs

from proreus.cloudprovider import (
    CloudError,
    ClusterIdentity,
    Context,
    Ensured,
    InvalidRequest,
    marks,
)
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.kube.objects import (
    LABEL_EXCLUDE_LB,
    ClientIPConfig,
    Condition,
    NodeAddress,
    ServicePort,
    SessionAffinityConfig,
)
from proreus.testing import objects

from . import local_manager
from .local_manager import CLUSTER, PORTS, delete, desired, ensure, eventually
from .traffic import CLIENT, CLIENT6, NODES, OTHER, STRANGER, VIP, VIP6, Lab, run


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with ExitStack() as stack:
        yield Lab(stack)


@pytest.fixture(autouse=True)
def healthy(lab: Lab) -> Iterator[None]:
    yield
    for name in NODES:
        lab.plug(name)
        lab.check_says(name, "200 OK")
    assert not [one for one in lab.table() if "chain" in one], "a test left something behind"


def manager(**how: Any) -> AbstractAsyncContextManager[tuple[Any, Context]]:
    return local_manager.manager(f"{VIP}-{OTHER}", VIP6, **how)


def asked(lab: Lab, address: str = VIP, times: int = 16, **how: Any) -> set[str]:
    """The nodes that answer new connections."""
    found = set()
    for _ in range(times):
        with lab.client.connect(address, **how) as line:
            found.add(line.ask()[0])
    return found


def only(lab: Lab, name: str) -> bool:
    """Whether new connections are all answered by one node."""
    with contextlib.suppress(OSError):
        return asked(lab, seconds=0.5) == {name}
    return False


async def test_both_nodes_answer_both_families_and_see_the_client(lab: Lab) -> None:
    async with manager() as (balancers, _):
        web = desired(balancers, "one", "two")
        assert await ensure(balancers, web) == [(VIP, VIP6)]
        for address, client in ((VIP, CLIENT), (VIP6, CLIENT6)):
            assert asked(lab, address, 32) == {"one", "two"}
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                with lab.client.connect(address, kind=kind) as line:
                    assert line.ask()[1] == client
        with lab.gateway.connect(VIP) as line:
            assert line.ask()[0] in NODES, "the gateway reaches its own load balancers"
        for machine in (lab.client, lab.gateway):
            with pytest.raises(ConnectionRefusedError):
                machine.connect(VIP, 7299)
        await delete(balancers, web)


async def test_a_pool_beyond_the_networks_of_the_gateway_is_logged_at_the_start(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    async with local_manager.manager(VIP, "203.0.113.0/24"):
        assert lab.table() == []
    (line,) = [one.getMessage() for one in caplog.records if "not announced" in one.getMessage()]
    assert "203.0.113.0-203.0.113.255 of the pool default" in line


async def test_the_address_of_a_node_that_is_no_host_is_never_given_out(lab: Lab) -> None:
    """The control plane's nodes carry the label that excludes them, and are in the network, too."""
    addresses = [NodeAddress("InternalIP", VIP), NodeAddress("Hostname", "control")]
    labels = {LABEL_EXCLUDE_LB: ""}
    control = objects.node("control", "local://control", addresses=addresses, labels=labels)
    async with local_manager.manager(f"{VIP}-{OTHER}", VIP6, nodes=(control,)) as (balancers, _):
        web = desired(balancers, "one", "two")
        assert await ensure(balancers, web) == [(OTHER, VIP6)]
        asks = desired(balancers, "one", name="asks", load_balancer_ip=VIP, ip_families=("IPv4",))
        (answer,) = (await balancers.ensure([asks])).values()
        assert isinstance(answer, InvalidRequest)
        assert "is in use by the node control" in str(answer)
        await delete(balancers, web)


async def test_a_service_does_not_keep_the_address_of_a_node_that_another_balancer_wrote(
    lab: Lab,
) -> None:
    """k3s' own one writes the nodes' addresses into the status, and leaves them there."""
    addresses = [NodeAddress("InternalIP", VIP)]
    other = objects.node("other", "local://other", addresses=addresses)
    ours = Condition("LoadBalancerReady", "True", reason="Ensured")
    async with local_manager.manager(f"{VIP}-{OTHER}", VIP6, nodes=(other,)) as (balancers, _):
        left = desired(balancers, "one", "two", has=VIP)
        assert await ensure(balancers, left) == [(OTHER, VIP6)]
        assert VIP not in run("ip", "route", "show", "dev", "proreus0")
        await delete(balancers, left)
        shown = desired(balancers, "one", "two", has=VIP)
        status = structs.replace(shown.service.status, conditions=(ours,))
        known = structs.replace(shown, service=structs.replace(shown.service, status=status))
        assert await ensure(balancers, known) == [(VIP, VIP6)], "it is a kubelet that claims it"
        await delete(balancers, known)


async def test_a_service_that_is_deleted_leaves_nothing_and_takes_nothing_of_others(
    lab: Lab,
) -> None:
    run("nft", "add", "table", "inet", "mine")
    run("ip", "rule", "add", "fwmark", "0x100000/0x100000", "lookup", "7301", "pref", "7299")
    run("ip", "route", "add", OTHER, "dev", "clients0", "metric", "7", "proto", "201")
    shown = ("ip rule", "ip -6 rule", "ip route show table all", "ip -6 route show table all",
             "ip neigh show proxy", "ip -o link show type bridge", "nft list ruleset")  # fmt: skip
    before = [run(*one.split()) for one in shown]
    async with manager() as (balancers, _):
        web = desired(balancers, "one", "two", session_affinity="ClientIP")
        await ensure(balancers, web)
        assert [run(*one.split()) for one in shown] != before
        await delete(balancers, web)
    assert [run(*one.split()) for one in shown] == before
    run("nft", "delete", "table", "inet", "mine")
    run("ip", "rule", "del", "pref", "7299")
    run("ip", "route", "del", OTHER, "dev", "clients0", "metric", "7")


async def test_changes_break_no_connection_that_they_do_not_concern(lab: Lab) -> None:
    async with manager() as (balancers, _):
        web, both = desired(balancers, "one"), desired(balancers, "one", "two")
        other = desired(balancers, "two", name="other", ports=PORTS[:2])
        await ensure(balancers, web)
        with lab.client.connect(VIP) as line, lab.client.connect(VIP6) as line6:
            await ensure(balancers, both, other)
            assert {line.ask()[0], line6.ask()[0]} == {"one"}
            await balancers.update_hosts([desired(balancers, "two")])
            assert asked(lab) == {"two"}
            assert {line.ask()[0], line6.ask()[0]} == {"one"}, "it drains"
            await delete(balancers, other)
            assert {line.ask()[0], line6.ask()[0]} == {"one"}
        await delete(balancers, web)


async def test_a_node_that_refuses_keeps_its_connections_and_gets_no_new_ones(lab: Lab) -> None:
    async with manager() as (balancers, _):
        web = desired(balancers, "one", "two")
        await ensure(balancers, web)
        with contextlib.ExitStack() as stack:
            lines = [stack.enter_context(lab.client.connect(VIP)) for _ in range(16)]
            before = [line.ask()[0] for line in lines]
            lab.check_says("one", "503 Service Unavailable")
            await eventually(lambda: only(lab, "two"))
            assert [line.ask()[0] for line in lines] == before
        lab.check_says("one", "200 OK")
        await eventually(lambda: asked(lab) == {"one", "two"})
        await delete(balancers, web)


async def test_a_dead_node_gets_no_connections_and_the_others_keep_theirs(lab: Lab) -> None:
    async with manager(patience=0.5) as (balancers, _):
        web = desired(balancers, "one", "two")
        await ensure(balancers, web)
        with contextlib.ExitStack() as stack:
            lines = [stack.enter_context(lab.client.connect(VIP)) for _ in range(16)]
            staying = [line for line in lines if line.ask()[0] == "two"]
            lab.unplug("one")
            await eventually(lambda: only(lab, "two"))
            assert {line.ask()[0] for line in staying} == {"two"}
            lab.plug("one")
            await eventually(lambda: not only(lab, "two"))
        await delete(balancers, web)


def is_refused(lab: Lab) -> bool:
    """Whether a client is told that nobody serves; before the nodes were asked it hears nothing."""
    try:
        with lab.client.connect(VIP, seconds=0.2):
            raise AssertionError("somebody serves")
    except TimeoutError:
        return False
    except ConnectionRefusedError:
        return True


async def test_with_the_policy_local_only_nodes_whose_check_is_good_get_connections(
    lab: Lab,
) -> None:
    lab.check_says("one", "503 Service Unavailable")
    lab.check_says("two", "503 Service Unavailable")
    async with manager() as (balancers, _):
        web = desired(
            balancers, "one", "two", external_traffic_policy="Local", health_check_node_port=10256
        )
        await ensure(balancers, web)
        await eventually(lambda: is_refused(lab))
        lab.check_says("two", "200 OK")
        await eventually(lambda: only(lab, "two"))
        with lab.client.connect(VIP) as line:
            assert line.ask() == ("two", CLIENT)
        await delete(balancers, web)


async def test_a_client_with_affinity_stays_with_its_node(lab: Lab) -> None:
    async with manager() as (balancers, _):
        affinity: dict[str, Any] = {
            "session_affinity": "ClientIP",
            "session_affinity_config": SessionAffinityConfig(ClientIPConfig(300)),
        }
        await ensure(balancers, desired(balancers, "one", **affinity))
        assert asked(lab) == asked(lab, source=STRANGER) == asked(lab, VIP6) == {"one"}
        web = desired(balancers, "one", "two", **affinity)
        await ensure(balancers, web)
        assert asked(lab) == asked(lab, source=STRANGER) == asked(lab, VIP6) == {"one"}
        await ensure(balancers, desired(balancers, "one", "two"))
        assert asked(lab, times=32) == {"one", "two"}, "affinity was switched off"
        await ensure(balancers, web)
        assert len(asked(lab)) == 1
        await delete(balancers, web)


async def test_clients_outside_the_source_ranges_are_refused(lab: Lab) -> None:
    async with manager() as (balancers, _):
        ranges = (f"{CLIENT}/32", "10.9.0.0/16", "10.9.1.0/24", "fd00:77::/64")
        web = desired(balancers, "one", "two", load_balancer_source_ranges=ranges)
        await ensure(balancers, web)
        assert asked(lab) <= set(NODES)
        for address, source in ((VIP, STRANGER), (VIP6, CLIENT6)):
            with pytest.raises(TimeoutError):
                lab.client.connect(address, source=source, seconds=0.3)
        only_four = desired(balancers, "one", load_balancer_source_ranges=(f"{STRANGER}/32",))
        await ensure(balancers, only_four)
        assert asked(lab, source=STRANGER) == {"one"}
        with pytest.raises(TimeoutError):
            lab.client.connect(VIP6, seconds=0.3)
        await delete(balancers, web)


async def test_without_a_manager_traffic_goes_on_and_a_new_one_changes_nothing(lab: Lab) -> None:
    async with manager() as (balancers, _):
        web = desired(balancers, "one", "two", session_affinity="ClientIP")
        await ensure(balancers, web)
        await eventually(lambda: "serving" in str(balancers._state.pools))
        line = lab.client.connect(VIP)
        before = line.ask()[0]
    table = [one for one in lab.table() if "rule" in one]
    assert asked(lab) == {before}
    async with manager() as (balancers, _):
        (owned,) = await balancers.list_owned(CLUSTER)
        assert owned.fingerprint == balancers.fingerprint(web)
        assert owned.addresses == (VIP, VIP6)
        await ensure(balancers, web)
        assert [one for one in lab.table() if "rule" in one] == table
        assert line.ask()[0] == before
        assert asked(lab) == {before}
        lab.check_says(before, "503 Service Unavailable")
        await eventually(lambda: asked(lab) != {before})
        assert line.ask()[0] == before
        line.socket.close()
        await delete(balancers, web)


async def test_services_share_an_address_on_different_ports(lab: Lab) -> None:
    async with manager() as (balancers, _):
        web = desired(balancers, "one", name="web", key="k", ports=PORTS[:1], ip_families=("IPv4",))
        dns = desired(balancers, "two", name="dns", key="k", ports=PORTS[2:], ip_families=("IPv4",))
        assert await ensure(balancers, web, dns) == [(VIP,), (VIP,)]
        assert asked(lab) == {"one"}
        assert asked(lab, port=81) == {"two"}
        alone = desired(balancers, "two", name="alone", ip_families=("IPv4",), load_balancer_ip=VIP)
        refusal = (await balancers.ensure([alone]))["uid-of-alone"]
        assert isinstance(refusal, CloudError)
        assert not isinstance(refusal, InvalidRequest), "it is tried again: dns may go"
        assert "belongs to the Service default/" in str(refusal)
        with lab.client.connect(VIP, 81) as line:
            assert line.ask()[0] == "two"
            await delete(balancers, web)
            assert line.ask()[0] == "two"
        with pytest.raises(ConnectionRefusedError):
            lab.client.connect(VIP)
        await delete(balancers, dns)


async def test_who_asks_for_a_port_of_another_one_is_to_show_their_address_no_more(
    lab: Lab,
) -> None:
    """Nodes' kube-proxies go by ports and status alone: one of both would have all clients."""
    async with local_manager.manager(VIP) as (balancers, _):
        web, dns = (
            desired(balancers, "one", name=name, key="k", ports=ports, ip_families=("IPv4",))
            for name, ports in (("web", PORTS[:1]), ("dns", PORTS[2:]))
        )
        assert await ensure(balancers, web, dns) == [(VIP,), (VIP,)]
        spec: dict[str, Any] = {"ports": PORTS[:1], "ip_families": ("IPv4",)}
        wrong = desired(balancers, "one", name="dns", key="k", has=VIP, **spec)
        refusal = (await balancers.ensure([wrong]))["uid-of-dns"]
        assert isinstance(refusal, CloudError)
        assert refusal.disowns
        assert await ensure(balancers, web) == [(VIP,)]
        await delete(balancers, web, dns)


async def test_a_service_that_waits_for_an_address_gets_it_once_another_leaves(lab: Lab) -> None:
    async with local_manager.manager(VIP) as (balancers, _):
        first = desired(balancers, "one", name="first", ip_families=("IPv4",))
        late = desired(balancers, "two", name="late", ip_families=("IPv4",))
        assert await ensure(balancers, first) == [(VIP,)]
        refusal = (await balancers.ensure([late]))["uid-of-late"]
        assert "no free IPv4 address is left in the pools default" in str(refusal)
        assert not isinstance(refusal, InvalidRequest), "that would not be tried again"
        assert asked(lab) == {"one"}
        await delete(balancers, first)
        assert await ensure(balancers, late) == [(VIP,)]
        assert asked(lab) == {"two"}
        await delete(balancers, late)


async def test_hundreds_of_ports_and_what_was_damaged_is_repaired(lab: Lab) -> None:
    ports = tuple(ServicePort(port, f"p{port}") for port in range(7000, 7300))
    async with manager() as (balancers, _):
        web = desired(balancers, "one", ports=ports)
        await ensure(balancers, web)
        assert asked(lab, port=7299) == {"one"}
    for damage in (
        "nft flush chain inet proreus balance4",
        "ip route flush proto 202 table all",
        "ip link del proreus0",
        "nft delete table inet proreus",
    ):
        run(*damage.split())
        # A manager that runs may have repaired it by itself, as after the first health checks.
        async with local_manager.reader(f"{VIP}-{OTHER}", VIP6) as balancers:
            assert all(not one.fingerprint for one in await balancers.list_owned(CLUSTER))
        async with manager() as (balancers, _):
            await ensure(balancers, web)
            (owned,) = await balancers.list_owned(CLUSTER)
            assert owned.fingerprint
            assert asked(lab, port=7299) == {"one"}
    async with manager() as (balancers, _):
        await delete(balancers, web)


@pytest.mark.parametrize("end", ["network", "broadcast"])
async def test_a_node_with_an_address_that_no_machine_can_have_is_rejected_by_name(
    lab: Lab, end: str
) -> None:
    """A kubelet writes its Node's addresses: it must not stop the load balancers of all."""
    (first, *_) = NODES["one"]
    net = ip_network(f"{first}/16", strict=False)
    wrong = net.network_address if end == "network" else net.broadcast_address
    rogue = objects.node("rogue", "local://rogue", addresses=[str(wrong)])
    async with manager() as (balancers, _):
        web = desired(balancers, "one", ip_families=("IPv4",))
        hosts = desired_load_balancer(
            web.service, [rogue], balancers.host_policy(web.service), CLUSTER
        ).hosts
        both = msgspec.structs.replace(web, hosts=(*web.hosts, *hosts))
        answer = (await balancers.ensure([both]))[web.ref.uid]
        assert isinstance(answer, Ensured), answer
        assert list(answer.rejected) == ["rogue"]
        assert asked(lab) == {"one"}
        await delete(balancers, web)


async def test_a_load_balancer_is_of_one_cluster(lab: Lab) -> None:
    async with manager() as (balancers, _):
        web = desired(balancers, "one")
        other = ClusterIdentity("one", "uid-of-the-other")
        theirs = msgspec.structs.replace(
            web,
            ref=msgspec.structs.replace(web.ref, cluster=other),
            marks=marks(other, "default/web", "uid-of-web"),
        )
        await ensure(balancers, web)
        await delete(balancers, theirs)
        assert asked(lab) == {"one"}
        assert await balancers.list_owned(other) == []
        await delete(balancers, web)
