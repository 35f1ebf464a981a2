"""Servers of Rackspace as instances: ids, names, addresses, states; pages and failures."""

import pytest

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import Instance, InstanceState, NotFound, Ownership
from proreus.kube.objects import NodeAddress
from proreus.providers.rackspace.machines import addresses
from proreus.testing import objects

from .emulator.faults import LOST
from .emulator.server import REGION, Emulator
from .site import SCHEME, describe, node, started

NO_SUCH = f"{SCHEME}2e8c1f0a-0000-4000-8000-000000000000"


async def test_a_server_is_described_with_servicenet_inside_and_publicnet_outside(
    emulator: Emulator,
) -> None:
    (id_,) = emulator.add_servers(["node-1"])
    async with started(emulator) as provider:
        found = (await describe(provider, node("node-1")))["node-1"]
    assert found == Instance(
        provider_id=f"{SCHEME}{id_}",
        name="node-1",
        instance_type="general1-8",
        zone="",
        region=REGION,
        addresses=(
            NodeAddress("InternalIP", "10.180.0.2"),
            NodeAddress("ExternalIP", "198.51.0.2"),
            NodeAddress("ExternalIP", "2001:4800:780e:510:d87b:9cbc:ff04:1"),
        ),
    )


@pytest.mark.parametrize(
    ("networks", "access", "expected"),
    [
        (
            {"blue": "192.168.3.4", "private": "10.1.0.1", "public": "198.51.100.1"},
            {"accessIPv4": "198.51.100.9"},
            ["I 10.1.0.1", "I 192.168.3.4", "E 198.51.100.1", "E 198.51.100.9"],
        ),
        ({"public": "198.51.100.1"}, {}, ["I 198.51.100.1", "E 198.51.100.1"]),
        ({}, {"accessIPv6": "2001:DB8::0001"}, ["I 2001:db8::1", "E 2001:db8::1"]),
        ({}, {}, []),
    ],
)
def test_addresses(networks: dict[str, str], access: dict[str, str], expected: list[str]) -> None:
    """The first internal one is what the in-tree provider gave a node as its only address."""
    server = {"addresses": {k: [{"addr": v}] for k, v in networks.items()}, **access}
    assert [f"{one.type[0]} {one.address}" for one in addresses(server)] == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("ACTIVE", InstanceState.RUNNING),
        ("REBOOT", InstanceState.RUNNING),
        ("ERROR", InstanceState.RUNNING),
        ("SHUTOFF", InstanceState.STOPPED),
        ("DELETED", InstanceState.TERMINATING),
        ("UNKNOWN", InstanceState.UNKNOWN),
    ],
)
async def test_states(emulator: Emulator, status: str, expected: InstanceState) -> None:
    (id_,) = emulator.add_servers(["node-1"], status=status)
    async with started(emulator) as provider:
        for provider_id in ("", f"{SCHEME}{id_}"):
            found = (await describe(provider, node("node-1", provider_id)))["node-1"]
            assert isinstance(found, Instance)
            assert found.state is expected
            assert found.powered_off is (status == "SHUTOFF")


async def test_of_several_servers_of_a_name_the_active_one_is_meant(emulator: Emulator) -> None:
    (id_,) = emulator.add_servers(["Node-1"])
    emulator.add_servers(["node-1"], status="SHUTOFF")
    async with started(emulator) as provider:
        found = (await describe(provider, node("node-1")))["node-1"]
        assert isinstance(found, Instance)
        assert found.provider_id == f"{SCHEME}{id_}"
        emulator.add_servers(["node-1"])
        assert isinstance((await describe(provider, node("node-1")))["node-1"], IdentityConflict)


@pytest.mark.parametrize("status", ["BUILD", "REBOOT", "VERIFY_RESIZE", "ERROR"])
async def test_of_two_servers_that_may_run_none_is_guessed(emulator: Emulator, status: str) -> None:
    """The kubelet of either may have made the Node, which would have the other's id for good."""
    emulator.add_servers(["node-1"])
    emulator.add_servers(["node-1"], status=status)
    async with started(emulator) as provider:
        assert isinstance((await describe(provider, node("node-1")))["node-1"], IdentityConflict)


async def test_a_node_that_is_called_by_an_address_is_found_by_it(emulator: Emulator) -> None:
    ids = emulator.add_servers(["a", "b", "c"])
    names = ["10.180.0.2", "198.51.0.3", "10.180.9.9"]
    async with started(emulator) as provider:
        answers = await describe(provider, *map(node, names))
    assert [getattr(answers[name], "provider_id", "") for name in names] == [
        f"{SCHEME}{ids[0]}", f"{SCHEME}{ids[1]}", "",
    ]  # fmt: skip
    assert answers[names[2]] == NotFound()
    assert emulator.calls == {"GET servers/detail": 1}


async def test_whose_a_node_is(emulator: Emulator) -> None:
    (id_,) = emulator.add_servers(["node-1"])
    async with started(emulator) as provider:
        assert provider.instances is not None
        label, beta = "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"
        mine, there, old = (
            objects.node("node-1", f"{SCHEME}{id_}", labels=labels)
            for labels in ({label: REGION}, {label: "LON"}, {beta: "LON"})
        )
        other = node("node-1", "aws:///eu-1a/i-0123456789")
        owns = provider.instances.owns
        assert [owns(one) for one in (mine, there, old, other)] == [
            Ownership.YES, Ownership.NO, Ownership.NO, Ownership.NO,
        ]  # fmt: skip
        assert owns(node("node-1")) is Ownership.UNKNOWN
        assert owns(node("node-1", NO_SUCH)) is Ownership.YES
        answer = (await describe(provider, other))["node-1"]
    assert isinstance(answer, InvalidRequest)
    assert not emulator.calls


@pytest.mark.parametrize("id_", ["12345", "node-1", "2e8c1f0a-0000-4000-8000"])
async def test_what_nova_never_has_as_an_id_is_never_asked_for(
    emulator: Emulator, id_: str
) -> None:
    """The first generation of servers had numbers, which Nova does not know either."""
    async with started(emulator) as provider:
        assert provider.instances is not None
        one = node("node-1", f"{SCHEME}{id_}")
        assert provider.instances.owns(one) is Ownership.NO
        answer = (await describe(provider, one))["node-1"]
    assert isinstance(answer, InvalidRequest)
    assert not emulator.calls


async def test_200_nodes_cost_one_request_by_id_and_ten_by_name(emulator: Emulator) -> None:
    names = [f"node-{number}" for number in range(200)]
    ids = emulator.add_servers(names)
    async with started(emulator) as provider:
        by_id = [node(name, SCHEME + id_) for name, id_ in zip(names, ids, strict=True)]
        answers = await describe(provider, *by_id)
        assert all(isinstance(one, Instance) for one in answers.values())
        assert emulator.calls == {"GET servers/detail": 1}
        answers = await describe(provider, *map(node, names))
    assert all(isinstance(one, Instance) for one in answers.values())
    assert emulator.calls == {"GET servers/detail": 11}


async def test_absence_is_what_nova_says_of_that_very_server(emulator: Emulator) -> None:
    emulator.page = 3
    names = [f"node-{number}" for number in range(8)]
    ids = emulator.add_servers(names)
    async with started(emulator) as provider:
        nodes = [node(name, SCHEME + id_) for name, id_ in zip(names, ids, strict=True)]
        gone = node("gone", NO_SUCH)
        answers = await describe(provider, *nodes, gone)
        assert answers["gone"] == NotFound()
        assert sum(isinstance(one, Instance) for one in answers.values()) == 8
        assert emulator.calls == {"GET servers/detail": 3, "GET server": 1}
        emulator.fail("GET server", 404)
        answer = (await describe(provider, gone))["gone"]
        assert isinstance(answer, CloudError)  # a 404 that is not Nova's own


@pytest.mark.parametrize("status", [500, 503, LOST])
async def test_a_page_that_cannot_be_had_makes_nothing_absent(
    emulator: Emulator, status: int
) -> None:
    names = [f"node-{number}" for number in range(8)]
    ids = emulator.add_servers(names)
    async with started(emulator) as provider:
        emulator.fail("GET servers/detail", status, times=9)
        nodes = [node(name, SCHEME + id_) for name, id_ in zip(names, ids, strict=True)]
        with pytest.raises(CloudError):
            await describe(provider, *nodes)
