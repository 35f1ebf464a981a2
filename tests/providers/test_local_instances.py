"""Instances of the provider `local`: what an inventory, a Node or a probe says of a machine."""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from proreus.cloudprovider import (
    CloudError,
    ConfigError,
    IdentityConflict,
    Instance,
    InstanceAnswer,
    InstanceState,
    InvalidRequest,
    NotFound,
    Ownership,
)
from proreus.kube.objects import TAINT_UNINITIALIZED, Condition, Node, NodeAddress, Taint
from proreus.providers.local import LocalCloud
from proreus.providers.local.addresses import Hop
from proreus.providers.local.config import (
    Gateway,
    InstancesConfig,
    LocalConfig,
    Probing,
    RoutesConfig,
    Unreachable,
)
from proreus.providers.local.instances import (
    LocalInstances,
    claimed,
    from_inventory,
    from_node,
)
from proreus.providers.local.inventory import Defaults, Inventory, decode
from proreus.providers.local.probes import Prober
from proreus.testing import objects

from .local_namespace import IPV4, IPV6, own_namespace
from .local_site import context, node

UUID = "4c4c4544-0042-3510-8056-b4c04f4e5131"
INVENTORY = decode(
    {
        "m.yaml": f"""
defaults: {{zone: rack-1}}
machines:
  - {{name: n1, id: SN-1, systemUUID: {UUID.upper()}, type: metal, labels: {{rack: r1}},
      addresses: [192.0.2.11, "2001:db8::11"], externalAddresses: [198.51.100.11]}}
  - {{name: n2, state: stopped, hostname: two}}
  - {{name: n3, id: SN-3, state: gone}}
  - {{name: n4, id: SN-4}}
  - {{name: n5, systemUUID: old, state: gone}}
  - {{name: n6, id: SN-6}}
"""
    },
    Defaults(region="home"),
)


async def by_one_cable(addresses: Collection[str]) -> Mapping[str, Hop]:
    """The interface by which all machines are reached, without a router."""
    return dict.fromkeys(addresses, (2, ""))


def ask(of: Node, inventory: Inventory = INVENTORY) -> InstanceAnswer:
    return from_inventory(of, inventory)


def test_a_machine_is_described_as_in_the_inventory() -> None:
    found = ask(node("n1", provider_id="", uuid=UUID))
    assert found == Instance(
        provider_id="local://SN-1",
        name="n1",
        instance_type="metal",
        zone="rack-1",
        region="home",
        addresses=(
            NodeAddress("InternalIP", "192.0.2.11"),
            NodeAddress("InternalIP", "2001:db8::11"),
            NodeAddress("ExternalIP", "198.51.100.11"),
            NodeAddress("Hostname", "n1"),
        ),
        additional_labels={"rack": "r1"},
    )
    for same in (
        node("n1", provider_id="local://SN-1"),
        node("renamed", provider_id="local://SN-1"),
        node("renamed", provider_id="", uuid=UUID),
    ):
        assert ask(same) == found


def test_a_machine_without_addresses_has_those_of_its_node() -> None:
    found = ask(node("n2", "192.0.2.12"))
    assert isinstance(found, Instance)
    assert found.state is InstanceState.STOPPED
    assert found.addresses == (
        NodeAddress("InternalIP", "192.0.2.12"),
        NodeAddress("Hostname", "n2"),
    )


@pytest.mark.parametrize(
    ("of", "answer"),
    [
        pytest.param(node("n9"), NotFound(), id="unknown by id"),
        pytest.param(node("n9", provider_id=""), NotFound(), id="unknown by name"),
        pytest.param(node("n3", provider_id="local://SN-3"), NotFound(tombstone=True), id="gone"),
        pytest.param(node("n3", provider_id=""), NotFound(), id="a name proves no end"),
        pytest.param(node("n5", provider_id="local://n5", uuid="OLD"), NotFound(tombstone=True),
                     id="gone by both"),
    ],
)  # fmt: skip
def test_absence_is_answered_and_only_the_very_id_proves_an_end(of: Node, answer: NotFound) -> None:
    assert ask(of) == answer


@pytest.mark.parametrize(
    ("of", "kind", "words"),
    [
        pytest.param(node("n1", provider_id="", uuid="other"), IdentityConflict, ("SN-1", "other"),
                     id="another UUID by name"),
        pytest.param(node("n1", provider_id="local://SN-1", uuid="other"), IdentityConflict,
                     ("SN-1", "other"), id="another UUID by id"),
        pytest.param(node("n4"), IdentityConflict, ("n4", "SN-4", "gone"), id="a name used again"),
        pytest.param(node("n5", provider_id="local://n5", uuid="new"), IdentityConflict,
                     ("n5", "old", "new"), id="another machine took over the Node of one gone"),
        pytest.param(node("n3", provider_id="local://SN-3", uuid=UUID), IdentityConflict,
                     ("SN-3", UUID, "n1 (SN-1)", "delete the Node"),
                     id="a machine that is known by its UUID took over the Node of one gone"),
        pytest.param(node("n6", provider_id="", uuid=UUID), IdentityConflict,
                     ("SN-6", UUID, "n1 (SN-1)", "correct the inventory"),
                     id="the name of another one, before the inventory says so"),
        pytest.param(node("old", "10.0.0.1", "2001:DB8::11"), IdentityConflict,
                     ("old", "n1 (SN-1)", "give its entry the id old"), id="a new name and id"),
        pytest.param(node("old", "192.0.2.11", provider_id=""), IdentityConflict,
                     ("n1 (SN-1)", "give its entry the name old"), id="a new name, without an id"),
        pytest.param(node("n1", provider_id="aws:///i-1"), InvalidRequest, ("aws:///i-1",),
                     id="of another cloud"),
        pytest.param(node("n9", provider_id="local://"), InvalidRequest, ("'local://'",),
                     id="an id that names nothing, and a name that is not there"),
        pytest.param(node("n1", provider_id="local:// /"), InvalidRequest, ("'local:// /'",),
                     id="an id that names nothing, and a name that is there"),
    ],
)  # fmt: skip
def test_another_machine_is_never_taken_for_one_that_is_gone(
    of: Node, kind: type[CloudError], words: tuple[str, ...]
) -> None:
    said = ask(of)
    assert isinstance(said, kind)
    assert all(word in str(said) for word in words), said


def test_a_machine_that_took_over_an_address_is_no_former_one() -> None:
    """Such as one that was put in the place of a broken one: it is a Node of its own by then."""
    old = node("old", "192.0.2.11")
    for new in (node("n1", provider_id="local://SN-1"), node("n1", provider_id="")):
        assert from_inventory(old, INVENTORY, claimed([old, new])) == NotFound()
        nameless = node("old", "192.0.2.11", provider_id="")
        assert from_inventory(nameless, INVENTORY, claimed([nameless, new])) == NotFound()
    assert from_inventory(node("old", "192.0.2.11", uuid="other"), INVENTORY) == NotFound()
    taint = Taint(TAINT_UNINITIALIZED, "NoSchedule")
    elsewhere = objects.node("old", addresses=("192.0.2.11",), taints=(taint,))
    assert from_inventory(elsewhere, INVENTORY) == NotFound()  # perhaps of another cloud
    liar = node("n9", provider_id="local://SN-1")  # any kubelet can write that on a new Node
    for alone in ([], [old], [old, node("n4")], [old, liar]):
        assert isinstance(from_inventory(old, INVENTORY, claimed(alone)), IdentityConflict)


async def test_a_machine_that_is_renamed_in_the_inventory_is_not_gone(tmp_path: Path) -> None:
    """Without an id of its own its name is its id, and nothing but the address is left of it."""
    path = tmp_path / "machines.yaml"
    path.write_text("machines: [{name: n1, addresses: [192.0.2.1]}, {name: n2}]")
    cloud = LocalCloud(
        LocalConfig(instances=InstancesConfig(inventory=str(path)), gateway=Gateway(enabled=False))
    )
    await cloud.start(context())
    assert cloud.instances is not None
    asked = [node("n1", "192.0.2.1"), node("n2", "192.0.2.2")]
    said = await cloud.instances.describe(asked)
    assert isinstance(said["n1"], Instance)
    path.write_text("machines: [{name: n1.example, addresses: [192.0.2.1]}, {name: n2}]")
    said = await cloud.instances.describe(asked)
    assert isinstance(said["n1"], IdentityConflict)
    assert isinstance(said["n2"], Instance)
    await cloud.close()


def test_what_a_broken_inventory_lacks_is_unknown(tmp_path: Path) -> None:
    stale = Inventory(
        by_id=INVENTORY.by_id, by_name=INVENTORY.by_name, by_uuid={}, stale="m.yaml:3: is not YAML"
    )
    assert ask(node("n1", provider_id="local://SN-1"), stale) == ask(node("n1", provider_id=""))
    for missing in (node("n9"), node("n9", provider_id="")):
        said = ask(missing, stale)
        assert isinstance(said, CloudError)
        assert "m.yaml:3" in str(said)


async def test_a_machine_that_is_back_in_an_inventory_with_a_mistake_is_not_gone(
    tmp_path: Path,
) -> None:
    file = tmp_path / "machines.yaml"
    file.write_text("machines: [{name: n1, state: gone}]")
    cloud = LocalCloud(
        LocalConfig(instances=InstancesConfig(inventory=str(file)), gateway=Gateway(enabled=False))
    )
    await cloud.start(context())
    instances, silent = cloud.instances, node("n1", is_ready=False)
    assert instances is not None
    assert await instances.describe([silent]) == {"n1": NotFound(tombstone=True)}
    file.write_text("machines: [{name: n1}, {name: n2, zoen: rack-1}]")
    said = (await instances.describe([silent]))["n1"]
    assert isinstance(said, CloudError)
    assert "machines that it says are gone may be back" in str(said)
    assert "zoen" in str(said)
    await cloud.close()


async def test_beside_another_cloud_its_nodes_are_left_to_it_and_may_all_be_hosts() -> None:
    """Whose provider ids are another cloud's would get no traffic, if nodes were looked after."""
    off = LocalConfig(
        instances=InstancesConfig(enabled=False),
        routes=RoutesConfig(enabled=False),
        gateway=Gateway(enabled=False),
    )
    provider = LocalCloud(off)
    await provider.start(context())
    assert provider.instances is None
    await provider.close()


def test_only_nodes_with_our_scheme_are_ours() -> None:
    instances = LocalInstances(None, Defaults(), None, Probing(), ways=by_one_cable)
    assert instances.owns(node("a")) is Ownership.YES
    assert instances.owns(node("a", provider_id="aws:///i-1")) is Ownership.NO
    assert instances.owns(node("a", provider_id="")) is Ownership.UNKNOWN


STATUS = (
    NodeAddress("Hostname", "a.example"),
    NodeAddress("InternalIP", "192.0.2.1"),
    NodeAddress("ExternalIP", "198.51.100.1"),
)


@pytest.mark.parametrize(
    ("of", "addresses"),
    [
        pytest.param(node("a", *STATUS, provider_id=""),
                     ["InternalIP 192.0.2.1", "ExternalIP 198.51.100.1", "Hostname a.example"],
                     id="of its status"),
        pytest.param(node("a", provider_id="",
                          annotations={"alpha.kubernetes.io/provided-node-ip": "192.0.2.7"}),
                     ["InternalIP 192.0.2.7", "Hostname a"], id="of its kubelet"),
        pytest.param(node("a", *STATUS, provider_id="", annotations={
                          "alpha.kubernetes.io/provided-node-ip": "192.0.2.7, 2001:db8::7"}),
                     ["InternalIP 192.0.2.7", "InternalIP 2001:db8::7", "ExternalIP 198.51.100.1",
                      "Hostname a.example"], id="the kubelet's come before an old one"),
    ],
)  # fmt: skip
def test_without_an_inventory_a_node_names_its_own_addresses(
    of: Node, addresses: list[str]
) -> None:
    found = from_node(of, Defaults(region="home", zone="z"))
    assert isinstance(found, Instance)
    assert (found.provider_id, found.region, found.zone) == ("local://a", "home", "z")
    assert [f"{one.type} {one.address}" for one in found.addresses] == addresses


def test_without_an_inventory_no_node_is_gone() -> None:
    kept = from_node(node("a", "192.0.2.1", provider_id="local://SN-1"), Defaults())
    assert isinstance(kept, Instance)
    assert kept.provider_id == "local://SN-1"
    bare = from_node(node("a", provider_id=""), Defaults())
    assert isinstance(bare, CloudError)
    assert "--node-ip" in str(bare)
    assert isinstance(from_node(node("a", provider_id="aws:///i-1"), Defaults()), InvalidRequest)


async def test_the_provider_reads_the_inventory_whenever_it_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "machines.yaml"
    cloud = LocalCloud(
        LocalConfig(instances=InstancesConfig(inventory=str(path)), gateway=Gateway(enabled=False))
    )
    with pytest.raises(ConfigError, match=r"machines\.yaml"):
        await cloud.start(context())
    path.write_text("machines: [{name: n1, addresses: [192.0.2.1]}]")
    await cloud.start(context())
    assert cloud.instances is not None
    said = await cloud.instances.describe([node("n1"), node("n2")])
    assert isinstance(said["n1"], Instance)
    assert said["n2"] == NotFound()
    path.write_text("machines: [{name: n1, state: gone}, {name: n2, addresses: [192.0.2.2]}]")
    said = await cloud.instances.describe([node("n1"), node("n2")])
    assert said["n1"] == NotFound(tombstone=True)
    assert isinstance(said["n2"], Instance)
    await cloud.close()


class Network:
    """Which addresses answer."""

    def __init__(self, *answering: str) -> None:
        self.answering = set(answering)
        self.asked: list[str] = []

    async def probe(self, addresses: Sequence[str]) -> bool:
        self.asked += addresses
        return not self.answering.isdisjoint(addresses)


READY = node("up", "192.0.2.1")
DEAD = node("dead", "192.0.2.2", is_ready=False)


def probing(
    network: Network, *, threshold: int = 2, unreachable: Unreachable = Unreachable.GONE
) -> LocalInstances:
    settings = Probing(ports=(22,), threshold=threshold, unreachable=unreachable)
    return LocalInstances(None, Defaults(), network.probe, settings, ways=by_one_cable)


async def states(
    network: Network, unreachable: Unreachable, rounds: int, *nodes: Node
) -> list[Mapping[str, object]]:
    instances = probing(network, unreachable=unreachable)
    said = [await instances.describe(nodes) for _ in range(rounds)]
    return [
        {name: one.state if isinstance(one, Instance) else one for name, one in each.items()}
        for each in said
    ]


@pytest.mark.parametrize(
    ("unreachable", "answer"),
    [
        (Unreachable.UNKNOWN, InstanceState.UNKNOWN),
        (Unreachable.STOPPED, InstanceState.STOPPED),
        (Unreachable.GONE, NotFound()),
    ],
)
async def test_a_machine_that_never_answers_is_what_was_configured_after_some_probes(
    unreachable: Unreachable, answer: object
) -> None:
    network = Network("192.0.2.1")
    first, second = await states(network, unreachable, 2, READY, DEAD)
    assert first == {"up": InstanceState.RUNNING, "dead": InstanceState.UNKNOWN}
    assert second == {"up": InstanceState.RUNNING, "dead": answer}


async def test_ready_nodes_are_not_judged_by_probes() -> None:
    network = Network()
    for said in await states(network, Unreachable.GONE, 3, READY):
        assert said == {"up": InstanceState.RUNNING}


async def test_machines_of_ready_nodes_are_asked_each_time() -> None:
    network = Network("192.0.2.1")
    await states(network, Unreachable.GONE, 3, READY, node("mute", "192.0.2.3"))
    assert sorted(network.asked) == [*["192.0.2.1"] * 3, *["192.0.2.3"] * 3]


async def test_probes_prove_nothing_while_no_ready_node_answers_either() -> None:
    for nodes in ((READY, DEAD), (DEAD,)):
        *_, last = await states(Network(), Unreachable.GONE, 5, *nodes)
        assert last["dead"] is InstanceState.UNKNOWN


async def test_an_answer_ends_the_count() -> None:
    network = Network("192.0.2.1")
    instances = probing(network)
    for is_answering in (False, True, False, True, False):
        network.answering = {"192.0.2.1", *(["192.0.2.2"] if is_answering else [])}
        said = (await instances.describe([READY, DEAD]))["dead"]
        assert isinstance(said, Instance)
        assert (said.state is InstanceState.RUNNING) == is_answering


async def test_machines_that_the_inventory_calls_stopped_are_not_probed() -> None:
    async def read() -> Inventory:
        return INVENTORY

    network = Network()
    instances = LocalInstances(
        read, Defaults(), network.probe, Probing(ports=(22,)), ways=by_one_cable
    )
    said = await instances.describe([node("n2", "192.0.2.12", is_ready=False)])
    found = said["n2"]
    assert isinstance(found, Instance)
    assert found.state is InstanceState.STOPPED
    assert network.asked == []


@pytest.fixture
def namespace() -> Iterator[None]:
    with own_namespace():
        yield


async def test_a_connection_or_its_refusal_is_a_sign_of_life(namespace: None) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), IPV4, 0)
    port = server.sockets[0].getsockname()[1]
    prober = Prober(context(), Probing(ports=(port, 1), timeout=timedelta(seconds=0.3)))
    closed = Prober(context(), Probing(ports=(1,), timeout=timedelta(seconds=60)))
    async with server:
        assert await prober.lives(["10.9.0.99", IPV4])
        assert await closed.lives([IPV4])
        # Nobody has the first address; there is no way to the second.
        assert not await prober.lives(["10.9.0.99", "203.0.113.1"])


@pytest.mark.parametrize(
    "address",
    [
        *(IPV4, f"::ffff:{IPV4}", "127.0.0.2", "::1", "::ffff:127.0.0.2", "0.0.0.0"),  # noqa: S104
        *("::1%1", f"{IPV6}%1", f"::ffff:{IPV4}%1"),
    ],
)
async def test_probes_prove_nothing_while_only_the_managers_own_machine_answers(
    namespace: None, address: str
) -> None:
    """It answers also while its cable is out; then the API server on it shows its Node as Ready.

    Any kubelet can name an address that leads there.
    """
    async with await asyncio.start_server(lambda _, writer: writer.close(), None, 0) as server:
        port = server.sockets[0].getsockname()[1]
        probing = Probing(
            ports=(port,),
            timeout=timedelta(seconds=0.2),
            threshold=1,
            unreachable=Unreachable.GONE,
        )
        config = LocalConfig(
            instances=InstancesConfig(probing=probing), gateway=Gateway(enabled=False)
        )
        cloud = LocalCloud(config)
        await cloud.start(context())
        assert cloud.instances is not None
        gateway, worker = node("gateway", address), node("worker", "10.9.0.99", is_ready=False)
        said = await cloud.instances.describe([gateway, worker])
        await cloud.close()
    found = said["worker"]
    assert isinstance(found, Instance), found
    assert found.state is InstanceState.UNKNOWN


async def test_a_node_that_was_ready_in_between_begins_a_new_count() -> None:
    network = Network("192.0.2.1")
    instances = probing(network)
    for is_ready in (False, True, False):
        said = await instances.describe([READY, node("dead", "192.0.2.2", is_ready=is_ready)])
        assert isinstance(said["dead"], Instance)


async def test_a_node_that_was_ready_while_nobody_asked_begins_a_new_count() -> None:
    """Ready nodes are asked about every five minutes; its condition tells that it was one."""
    instances = probing(Network("192.0.2.1"), threshold=3)
    first, second = (
        msgspec.structs.replace(
            DEAD,
            status=msgspec.structs.replace(
                DEAD.status,
                conditions=(Condition("Ready", "Unknown", last_transition_time=since),),
            ),
        )
        for since in (datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 12, 4, tzinfo=UTC))
    )
    for one in (first, first, second, second):
        said = (await instances.describe([READY, one]))["dead"]
        assert isinstance(said, Instance), said
        assert said.state is InstanceState.UNKNOWN
    assert (await instances.describe([READY, second]))["dead"] == NotFound()


async def test_silent_probes_of_a_node_that_names_anothers_machine_do_not_count_for_that() -> None:
    """Any kubelet can write a provider id on its new Node, beside an address that is nobody's."""
    liar = node("liar", "192.0.2.99", provider_id="local://dead", is_ready=False)
    up = node("dead", "192.0.2.2")
    network = Network("192.0.2.1", "192.0.2.2")
    instances = probing(network)
    await instances.describe([READY, up, liar])
    await instances.describe([READY, liar])
    network.answering.remove("192.0.2.2")
    said = (await instances.describe([READY, DEAD, liar]))["dead"]
    assert isinstance(said, Instance), said
    assert said.state is InstanceState.UNKNOWN
