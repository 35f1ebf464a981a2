"""What others have in the kernel of a gateway stays theirs: routes, entries, devices, tables."""

import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proreus.cloudprovider import CloudError, Context, Ensured, HostPolicy, LoadBalancer
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.kube.objects import LoadBalancerIngress, Service, ServicePort
from proreus.providers.local import LocalCloud
from proreus.providers.local.asked import ANNOTATION_ADDRESSES, ANNOTATION_SHARING_KEY
from proreus.providers.local.bgp.config import BGP, Peer
from proreus.providers.local.config import Gateway, InstancesConfig, LocalConfig, PoolConfig
from proreus.providers.local.load_balancers import LocalLoadBalancers
from proreus.testing import objects

from .local_namespace import own_namespace
from .local_site import CLUSTER, NoEvents, Objects, node

if not all(shutil.which(program) for program in ("nft", "ip")):
    pytest.skip("nft or ip is missing", allow_module_level=True)

POOLS = {"default": PoolConfig(addresses=("10.9.255.1-10.9.255.9", "fd00:9::100-fd00:9::109"))}

SPEAKING = BGP(as_=64512, peers={"tor": Peer(address="10.9.0.1", as_=64513)})


@pytest.fixture(autouse=True)
def _namespace() -> Iterator[None]:
    with own_namespace():
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        Path("/proc/sys/net/ipv6/conf/all/forwarding").write_text("1")
        yield


def made(gateway: Gateway, *services: Service) -> LocalLoadBalancers:
    listers = {"services": Objects(*services), "nodes": Objects()}
    context = Context(CLUSTER, now=lambda: datetime.now(UTC), events=NoEvents(), listers=listers)
    return LocalLoadBalancers(context, LocalConfig(pools=POOLS, gateway=gateway))


@asynccontextmanager
async def manager(*services: Service) -> AsyncIterator[LocalLoadBalancers]:
    found = made(Gateway(), *services)
    try:
        await found.start()
        yield found
    finally:
        await found.close()


def web(
    name: str, asks: str = "", has: str = "", more: Mapping[str, str] = {}, **spec: Any
) -> LoadBalancer:
    service = objects.service(
        name,
        uid=f"uid-of-{name}",
        annotations={**more, **({ANNOTATION_ADDRESSES: asks} if asks else {})},
        ingress=[
            LoadBalancerIngress(ip=one, ip_mode="VIP") for one in filter(None, has.split(","))
        ],
        **{"ip_families": ("IPv6",) if ":" in asks + has else ("IPv4",), **spec},
    )
    hosts = [node("one", "10.9.0.11", "fd00:9::11")]
    return desired_load_balancer(service, hosts, HostPolicy(), CLUSTER)


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


def nft(*words: str) -> str:
    return subprocess.run(["nft", *words], capture_output=True, text=True, check=True).stdout


def addresses(answer: object) -> list[str]:
    assert isinstance(answer, Ensured), answer
    return [point.ip for point in answer.ingress]


@pytest.mark.parametrize("metric", ["", "20", "4000"], ids=["default", "as FRR", "worse"])
@pytest.mark.parametrize(
    ("address", "via"), [("10.9.255.5", "10.9.0.77"), ("fd00:9::105", "fd00:9::77")]
)
async def test_a_route_of_another_program_is_left_alone(
    address: str, via: str, metric: str
) -> None:
    """Such as that of a tunnel: whoever asks for its address must not get its packets."""
    family = "-6" if ":" in address else "-4"
    more = ("metric", metric) if metric else ()
    ip(family, "route", "add", address, "via", via, "proto", "static", *more)
    before = ip(family, "route", "show", address)
    async with manager() as ours:
        first, asking = web("first"), web("asking", asks=address)
        answers = await ours.ensure([asking, first])
        with pytest.raises(CloudError, match=f"{address}.*a route of another program"):
            raise answers[asking.ref.uid]  # type: ignore[misc]  # an error, or the test fails
        assert addresses(answers[first.ref.uid]) == ["10.9.255.1"], "nobody else is held up"
        assert ip(family, "route", "show", address) == before
        await ours.delete([asking.ref, first.ref])
    assert ip(family, "route", "show", address) == before


async def test_a_port_of_another_one_is_told_although_the_machine_lets_no_traffic_pass() -> None:
    """Nodes' kube-proxies go by ports and status alone; a manager that began now knows no ports."""
    key, other = {ANNOTATION_SHARING_KEY: "k"}, (ServicePort(81, "other", node_port=30081),)
    async with manager() as ours:
        first, second = web("first", more=key), web("second", more=key, ports=other)
        for answer in (await ours.ensure([first, second])).values():
            assert addresses(answer) == ["10.9.255.1"]
    Path("/proc/sys/net/ipv4/ip_forward").write_text("0")
    async with manager() as ours:
        wrong = web("second", has="10.9.255.1", more=key)
        right = web("first", has="10.9.255.1", more=key)
        answers = await ours.ensure([right, wrong])
        refused, waits = answers[wrong.ref.uid], answers[right.ref.uid]
        assert isinstance(refused, CloudError)
        assert refused.disowns
        assert isinstance(waits, CloudError)
        assert not waits.disowns
        assert "net.ipv4.ip_forward=1" in str(waits)


async def test_no_address_is_lost_to_one_that_could_not_be_given_it() -> None:
    """The one was to move away, and the other to come; the kernel has taken neither."""
    async with manager() as ours:
        await ours.ensure([web("first", "10.9.255.1")])
        Path("/proc/sys/net/ipv4/ip_forward").write_text("0")
        moves = web("first", "10.9.255.2", has="10.9.255.1")
        answers = await ours.ensure([moves, web("second", "10.9.255.1")])
        for answer in answers.values():
            assert isinstance(answer, CloudError)
            assert "net.ipv4.ip_forward=1" in str(answer)
            assert not answer.disowns


@pytest.mark.parametrize("device", ["here", "lo", "off"])
@pytest.mark.parametrize("address", ["10.9.255.1", "fd00:9::100"])
async def test_the_gateway_s_own_address_is_left_to_it(device: str, address: str) -> None:
    """Such as the control plane's virtual one, which who announces it by BGP has on the loopback.

    An interface that is down may be up soon.
    """
    ip("link", "add", "off", "type", "bridge")
    ip("addr", "add", f"{address}/{128 if ':' in address else 32}", "dev", device)
    async with manager() as ours:
        family = "IPv6" if ":" in address else "IPv4"
        lb, asking = web("web", ip_families=(family,)), web("asking", asks=address)
        answers = await ours.ensure([asking, lb])
        with pytest.raises(CloudError, match=f"{address} .* is in use by this machine"):
            raise answers[asking.ref.uid]  # type: ignore[misc]  # an error, or the test fails
        assert address not in addresses(answers[lb.ref.uid])


async def test_services_share_an_address_that_kube_proxy_has_put_on_its_device() -> None:
    """In the mode IPVS kube-proxy has the addresses of Services on a device, which is down."""
    other, key = (ServicePort(81, "other", node_port=30081),), {ANNOTATION_SHARING_KEY: "k"}
    async with manager() as ours:
        first, second = web("first", more=key), web("second", more=key, ports=other)
        assert addresses((await ours.ensure([first]))[first.ref.uid]) == ["10.9.255.1"]
        ip("link", "add", "kube-ipvs0", "type", "bridge")
        ip("addr", "add", "10.9.255.1/32", "dev", "kube-ipvs0")
        assert addresses((await ours.ensure([second]))[second.ref.uid]) == ["10.9.255.1"]
        await ours.delete([first.ref, second.ref])
        asking = web("asking", asks="10.9.255.1")
        assert addresses((await ours.ensure([asking]))[asking.ref.uid]) == ["10.9.255.1"]


async def test_an_address_that_is_routed_elsewhere_is_given_to_nobody() -> None:
    for number in (1, 2):
        ip("route", "add", f"10.9.255.{number}", "via", "10.9.0.77")
    async with manager() as ours:
        lb = web("web")
        assert addresses((await ours.ensure([lb]))[lb.ref.uid]) == ["10.9.255.3"]


async def test_a_service_does_not_move_because_its_address_is_routed_elsewhere_here() -> None:
    """As on a gateway that takes over: the address is not lost for a route that is in the way."""
    ip("route", "add", "10.9.255.5", "via", "10.9.0.77")
    async with manager() as ours:
        lb = web("web", has="10.9.255.5")
        for _ in range(2):
            with pytest.raises(CloudError, match=r"10\.9\.255\.5 is routed elsewhere"):
                raise (await ours.ensure([lb]))[lb.ref.uid]  # type: ignore[misc]  # as above
        ip("route", "del", "10.9.255.5")
        assert addresses((await ours.ensure([lb]))[lb.ref.uid]) == ["10.9.255.5"]


async def test_nobody_gets_what_a_service_has_that_cannot_move_for_a_route() -> None:
    """It shows its address, as on a gateway that takes over, and asks for another one."""
    ip("-6", "route", "add", "fd00:9::105", "via", "fd00:9::77")
    has, families = "10.9.255.5,fd00:9::105", ("IPv4", "IPv6")
    moving = web("moving", asks="10.9.255.6", has=has, ip_families=families)
    asking = web("asking", asks="10.9.255.5", namespace="theirs")
    async with manager(moving.service, asking.service) as ours:
        answers = await ours.ensure([moving, asking])
    with pytest.raises(CloudError, match="fd00:9::105 is routed elsewhere"):
        raise answers[moving.ref.uid]  # type: ignore[misc]  # an error, or the test fails
    with pytest.raises(CloudError, match=r"10\.9\.255\.5 .* belongs to the Service default/moving"):
        raise answers[asking.ref.uid]  # type: ignore[misc]  # as above


async def test_a_route_that_comes_later_is_left_alone_and_holds_up_no_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with manager() as ours:
        lb, other = web("web"), web("other")
        assert addresses((await ours.ensure([lb]))[lb.ref.uid]) == ["10.9.255.1"]
        ip("route", "replace", "10.9.255.1", "via", "10.9.0.77")
        before = ip("route", "show", "10.9.255.1")
        assert addresses((await ours.ensure([other]))[other.ref.uid]) == ["10.9.255.2"]
        assert "10.9.255.1 is routed elsewhere" in caplog.text
        await ours.delete([lb.ref, other.ref])
        assert ip("route", "show", "10.9.255.1") == before


async def test_a_routing_table_of_another_program_is_left_alone() -> None:
    ip("route", "add", "default", "via", "10.9.0.5", "table", "7301")
    async with manager() as ours:
        lb = web("web")
        with pytest.raises(CloudError, match=r"table 7301.*first-table"):
            raise (await ours.ensure([lb]))[lb.ref.uid]  # type: ignore[misc]  # as above
        await ours.delete([lb.ref])
    assert "via 10.9.0.5" in ip("route", "show", "table", "7301")


async def test_a_proxy_entry_of_another_program_is_left_alone() -> None:
    ip("neigh", "add", "proxy", "10.9.255.5", "dev", "here", "protocol", "static")
    before = ip("neigh", "show", "proxy")
    async with manager() as ours:
        lb = web("web", asks="10.9.255.5")
        assert addresses((await ours.ensure([lb]))[lb.ref.uid]) == ["10.9.255.5"]
        assert ip("neigh", "show", "proxy") == before
        await ours.delete([lb.ref])
    assert ip("neigh", "show", "proxy") == before


@pytest.mark.parametrize(
    "more",
    [{}, {"gateway": Gateway(enabled=False), "bgp": SPEAKING}],
    ids=["gateway", "bgp"],
)
async def test_the_address_of_a_machine_that_is_no_node_yet_is_left_to_it(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    """The pool may be a part of the nodes' network, and the inventory tells who will be there."""
    path = tmp_path / "machines.yaml"
    path.write_text(
        "machines: [{name: spare, addresses: [10.9.255.1], state: stopped},"
        " {name: broken, addresses: [10.9.255.2], state: gone}]"
    )
    listers = {"services": Objects(), "nodes": Objects()}
    context = Context(CLUSTER, now=lambda: datetime.now(UTC), events=NoEvents(), listers=listers)
    instances = InstancesConfig(inventory=str(path))
    cloud = LocalCloud(LocalConfig(pools=POOLS, instances=instances, **more))
    await cloud.start(context)
    try:
        assert cloud.load_balancers is not None
        lb, asking = web("web"), web("asking", asks="10.9.255.1")
        answers = await cloud.load_balancers.ensure([asking, lb])
        assert addresses(answers[lb.ref.uid]) == ["10.9.255.2"]
        with pytest.raises(CloudError, match=r"10\.9\.255\.1.*the machine spare of the inventory"):
            raise answers[asking.ref.uid]  # type: ignore[misc]  # as above
    finally:
        await cloud.close()


@pytest.mark.parametrize(
    "more",
    [{}, {"gateway": Gateway(enabled=False), "bgp": SPEAKING}],
    ids=["gateway", "bgp"],
)
async def test_the_address_of_a_machine_that_was_just_written_to_the_inventory_is_left_to_it(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    """Nobody has asked about a machine since: it is set up, and has no Node yet."""
    path = tmp_path / "machines.yaml"
    path.write_text("machines: [{name: one, addresses: [10.9.0.11]}]")
    listers = {"services": Objects(), "nodes": Objects()}
    context = Context(CLUSTER, now=lambda: datetime.now(UTC), events=NoEvents(), listers=listers)
    instances = InstancesConfig(inventory=str(path))
    cloud = LocalCloud(LocalConfig(pools=POOLS, instances=instances, **more))
    cloud.settled = 0.01
    await cloud.start(context)
    try:
        assert cloud.load_balancers is not None
        path.write_text(
            "machines: [{name: one, addresses: [10.9.0.11]}, {name: next, addresses: [10.9.255.1]}]"
        )
        lb = web("web")
        assert addresses((await cloud.load_balancers.ensure([lb]))[lb.ref.uid]) == ["10.9.255.2"]
    finally:
        await cloud.close()


@pytest.mark.parametrize("used", ["address", "port"])
async def test_a_device_that_the_manager_has_not_made_is_left_alone(used: str) -> None:
    """Such as a bridge of virtual machines that gateway device names by mistake."""
    ip("link", "add", "br0", "type", "bridge")
    ip("link", "set", "br0", "up")
    if used == "address":
        ip("addr", "add", "10.8.0.1/24", "dev", "br0")
    else:
        ip("link", "add", "port", "type", "veth", "peer", "machine")
        ip("link", "set", "port", "master", "br0")
    ours = made(Gateway(device="br0"))
    with pytest.raises(CloudError, match=r"br0 is in use.*set gateway device"):
        await ours.start()
    assert "br0" in ip("link", "show", "br0")


@pytest.mark.parametrize("family", ["inet", "arp"])
async def test_a_table_that_the_manager_has_not_made_is_left_alone(family: str) -> None:
    """Such as that of a firewall, which gateway nft-table names by mistake."""
    chain = "{ type filter hook input priority 0 ; policy drop ; }"
    for words in (
        ("table", family, "filter"),
        ("set", family, "filter", "ours", "{ type ipv4_addr ; flags interval ; }"),
        ("element", family, "filter", "ours", "{ 10.0.0.0/8 }"),
        ("chain", family, "filter", "input", chain),
    ):
        nft("add", *words)
    before = nft("list", "ruleset")
    ours = made(Gateway(nft_table="filter"))
    with pytest.raises(CloudError, match=rf"{family} filter is not the manager's.*nft-table"):
        await ours.start()
    assert nft("list", "ruleset") == before
