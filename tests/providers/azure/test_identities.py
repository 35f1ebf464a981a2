"""A kubelet can name any machine on its Node: those of others are not touched."""

from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import Ensured
from proreus.kube.objects import Node, NodeAddress, NodeSpec
from proreus.providers.azure import AzureCloud
from proreus.providers.azure.balancing import identities

from .balancing import (
    answers,
    delete,
    ensure,
    machines,
    parts,
    rules,
    service,
    set_machines,
    targets,
)
from .emulator import seed
from .emulator.server import Emulator, Fault
from .emulator.store import SUBSCRIPTION, compute, network
from .site import ID, context, started
from .test_strangers_beside import put_parts

ALONE, OF_SET = "virtualMachines/db", "virtualMachineScaleSets/db/virtualMachines/0"


def naming(node: Node, machine: str) -> Node:
    """The same Node, on which its kubelet names another machine."""
    spec = msgspec.structs.replace(node.spec, provider_id=f"{ID}/{machine}")
    return msgspec.structs.replace(node, spec=spec)


def of_others(azure: Emulator) -> dict[str, Any]:
    return {id_: one["etag"] for id_, one in azure.store.of.items() if "/db" in id_}


async def rejected(provider: AzureCloud, nodes: list[Node]) -> dict[str, str]:
    found = (await answers(provider, nodes, service()))["web-1"]
    assert isinstance(found, Ensured), found
    return dict(found.rejected)


@pytest.mark.parametrize("forged", [ALONE, OF_SET])
@pytest.mark.parametrize("alone", [False, True])
async def test_a_machine_of_another_service_comes_into_no_pool(
    azure: Emulator, forged: str, *, alone: bool
) -> None:
    seed.machine(azure.store, "db")
    seed.scale_set(azure.store, "db")
    seed.set_machine(azure.store, "db", 0)
    own = machines(azure) if alone else set_machines(azure)
    nodes = [own[0], naming(own[1], forged)]
    before = of_others(azure)
    async with started(azure, context(nodes=nodes)) as provider:
        found = await rejected(provider, nodes)
    assert list(found) == [own[1].metadata.name]
    assert "its machine is called" in found[own[1].metadata.name]
    assert of_others(azure) == before
    pool = parts(azure, "backendAddressPools")["kubernetes"]
    assert len(pool["backendIPConfigurations"]) == 1


@pytest.mark.parametrize("more", [{}, {"loadBalancerBackendPoolConfigurationType": "nodeIP"}])
@pytest.mark.parametrize("alone", [False, True])
async def test_a_machine_of_the_node_s_name_in_another_group_comes_into_no_pool(
    azure: Emulator, more: dict[str, Any], *, alone: bool
) -> None:
    """Such as another cluster's, whose machines are called alike."""
    start = machines if alone else set_machines
    theirs = start(azure, 2)[1]
    id_ = seed.twin(azure.store, theirs.spec.provider_id.removeprefix("azure://"), "others")
    nodes = start(azure, 3)
    forged = msgspec.structs.replace(
        nodes[1],
        spec=msgspec.structs.replace(nodes[1].spec, provider_id=f"azure://{id_}"),
        status=theirs.status,
    )
    before = {key: one["etag"] for key, one in azure.store.of.items() if "/others/" in key}
    address = theirs.status.addresses[0].address
    nodes[1] = forged
    async with started(azure, context(nodes=nodes), **more) as provider:
        found = await rejected(provider, nodes)
        assert list(found) == [forged.metadata.name]
        assert "the resource group others" in found[forged.metadata.name]
    now = {key: one["etag"] for key, one in azure.store.of.items() if "/others/" in key}
    assert before == now
    assert address not in everything_open(azure)
    listed = {"tenants": {"allow": ["*=others"]}}
    async with started(azure, context(nodes=nodes), **more, **listed) as provider:
        assert await rejected(provider, nodes) == {}


async def test_machines_come_into_pools_by_any_of_their_names(azure: Emulator) -> None:
    """That of the resource, that of the computer, and a domain name that begins with one."""
    ids = [seed.machine(azure.store, name, set_="flex") for name in ("flex_1", "node-2", "node-3")]
    for id_, name in zip(ids, ("FLEX000001", "other-2", "other-3"), strict=True):
        azure.store.of[id_.lower()]["properties"]["osProfile"]["computerName"] = name
    (sole,) = machines(azure, 1)
    metadata = (msgspec.structs.replace(sole.metadata, name=one) for one in
                ("flex000001", "node-2", "node-3.example.com"))  # fmt: skip
    nodes = [
        msgspec.structs.replace(
            naming(sole, f"virtualMachines/{id_.rpartition('/')[2]}"), metadata=one
        )
        for id_, one in zip(ids, metadata, strict=True)
    ]
    async with started(azure, context(nodes=nodes)) as provider:
        assert await rejected(provider, nodes) == {}


async def test_a_machine_of_another_service_that_has_got_the_id_of_a_former_one_comes_into_no_pool(
    azure: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Node is still there: Azure shows a machine of its provider id."""

    def started_as(computer: str) -> str:
        id_ = seed.machine(azure.store, "flex_1", set_="flex")
        azure.store.of[id_.lower()]["properties"]["osProfile"]["computerName"] = computer
        return id_.rpartition("/")[2]

    (sole,) = machines(azure, 1)
    metadata = msgspec.structs.replace(sole.metadata, name="flex000001")
    flex = naming(sole, f"virtualMachines/{started_as('FLEX000001')}")
    nodes = [sole, msgspec.structs.replace(flex, metadata=metadata)]
    async with started(azure, context(nodes=nodes)) as provider:
        assert await rejected(provider, nodes) == {}
        azure.store.delete(compute("virtualMachines", "flex_1"))
        azure.store.delete(network("networkInterfaces", "flex_1-nic"))
        started_as("db")
        before = azure.store.of[network("networkInterfaces", "flex_1-nic").lower()]["etag"]
        monkeypatch.setattr(identities, "KEPT", 0.0)  # as if so long had passed
        assert list(await rejected(provider, nodes)) == ["flex000001"]
    assert azure.store.of[network("networkInterfaces", "flex_1-nic").lower()]["etag"] == before


def asked(azure: Emulator) -> int:
    """How often somebody asked for machines of scale sets since this was called last."""
    kind = "microsoft.compute/virtualmachinescalesets/virtualmachines"
    counted = azure.counted().items()
    return sum(number for (method, of), number in counted if (method, of.lower()) == ("GET", kind))


@pytest.mark.parametrize("given", [True, False], ids=["filled by others", "of another family"])
async def test_azure_is_not_asked_for_a_pool_that_is_left_as_it_is(
    azure: Emulator, monkeypatch: pytest.MonkeyPatch, *, given: bool
) -> None:
    inner = service(2, {"azure-load-balancer-internal": "true"})
    more = {"preConfiguredBackendPoolLoadBalancerTypes": "external"} if given else {}
    (sole,) = machines(azure, 1)
    id_ = seed.machine(azure.store, "flex_1", set_="flex", families=("IPv4", "IPv6"))
    nodes = [sole, naming(sole, "virtualMachines/flex_1")]
    metadata = msgspec.structs.replace(sole.metadata, name="flex000001")
    azure.store.of[id_.lower()]["properties"]["osProfile"]["computerName"] = "flex000001"
    addresses = tuple(NodeAddress("InternalIP", one) for one in ("10.0.0.9", "fd00::9"))
    status = msgspec.structs.replace(sole.status, addresses=addresses)
    nodes[1] = msgspec.structs.replace(nodes[1], metadata=metadata, status=status)
    monkeypatch.setattr(identities, "KEPT", 0.0)
    async with started(azure, context(nodes=nodes), **more) as provider:
        first = service() if given else service(ip_families=("IPv4", "IPv6"))
        await ensure(provider, nodes, first, inner)
        await ensure(provider, nodes, service(), inner)
        azure.counted()
        await ensure(provider, nodes, service(), inner)
    found = azure.counted()
    assert not any("virtualmachines" in of.lower() for _, of in found), found


async def test_azure_is_asked_once_whose_a_machine_is(azure: Emulator) -> None:
    nodes = set_machines(azure, 5)
    async with started(azure, context(nodes=nodes)) as provider:
        assert await rejected(provider, nodes[:4]) == {}
        azure.counted()
        assert await rejected(provider, nodes[:4]) == {}
        assert not asked(azure)
    async with started(azure, context(nodes=nodes)) as provider:
        assert await rejected(provider, nodes[:4]) == {}
        assert not asked(azure)
        assert await rejected(provider, nodes) == {}
        assert asked(azure) == 2
    async with started(azure, context(nodes=nodes)) as provider:
        await ensure(provider, nodes, service(2))
        await delete(provider, service(2))
        assert not asked(azure)


async def test_while_azure_does_not_tell_whose_a_machine_is_it_comes_into_no_pool(
    azure: Emulator,
) -> None:
    nodes = set_machines(azure)
    set_ = compute("virtualMachineScaleSets", "pool").lower()
    kind = "virtualMachineScaleSets/virtualMachines"
    before = azure.store.of[set_]["etag"]
    async with started(azure, context(nodes=nodes)) as provider:
        azure.faults.append(Fault("GET", kind, status=403, code="AuthorizationFailed", times=2))
        assert len(await rejected(provider, nodes)) == 2
        azure.faults.append(Fault("GET", kind, status=400, code="BadRequest", times=2))
        found = await answers(provider, nodes, service())
        assert not isinstance(found["web-1"], Ensured)
        assert azure.store.of[set_]["etag"] == before
        assert await rejected(provider, nodes) == {}


async def test_a_machine_that_somebody_has_put_into_a_pool_stays_whatever_nodes_name_it(
    azure: Emulator,
) -> None:
    """Nodes that are no hosts leave their pools; a kubelet can choose both, machine and label."""
    seed.machine(azure.store, "db")
    own = machines(azure, 3)
    async with started(azure, context(nodes=own)) as provider:
        assert await rejected(provider, own) == {}
    nic = azure.store.of[network("networkInterfaces", "db-nic").lower()]
    pool = network("loadBalancers", "kubernetes") + "/backendAddressPools/kubernetes"
    configuration = nic["properties"]["ipConfigurations"][0]["properties"]
    configuration["loadBalancerBackendAddressPools"] = [{"id": pool}]
    label = {"node-role.kubernetes.io/control-plane": ""}
    forged = naming(own[2], ALONE)
    metadata = msgspec.structs.replace(forged.metadata, labels=label)
    real = msgspec.structs.replace(
        own[1], metadata=msgspec.structs.replace(own[1].metadata, labels=label)
    )
    nodes = [own[0], real, msgspec.structs.replace(forged, metadata=metadata)]
    async with started(azure, context(nodes=nodes)) as provider:
        assert list(await rejected(provider, nodes)) == ["node-2"]
    assert configuration["loadBalancerBackendAddressPools"] == [{"id": pool}]
    members = parts(azure, "backendAddressPools")["kubernetes"]["backendIPConfigurations"]
    assert sorted(one["id"].split("/")[8] for one in members) == [
        "db-nic",
        "node-0-nic",
        "node-2-nic",
    ]


@pytest.mark.parametrize("of", ["db", "kubernetes"])
async def test_a_machine_that_somebody_has_put_into_one_pool_comes_into_no_other(
    azure: Emulator, of: str
) -> None:
    """Such as that of the API server, in an operator's pool of the same load balancer."""
    seed.machine(azure.store, "db")
    own = machines(azure)
    async with started(azure, context(nodes=own)) as provider:
        await ensure(provider, own[:1], service())
    if of == "db":
        put_parts(azure, "backendAddressPools", {"name": of, "properties": {}})
    nic = azure.store.of[network("networkInterfaces", "db-nic").lower()]
    configuration = nic["properties"]["ipConfigurations"][0]["properties"]
    pool = f"{network('loadBalancers', 'kubernetes')}/backendAddressPools/{of}"
    configuration["loadBalancerBackendAddressPools"] = [{"id": pool}]
    nodes = [own[0], naming(own[1], ALONE)]
    before = of_others(azure)
    inner = {"azure-load-balancer-internal": "true"} if of == "kubernetes" else {}
    async with started(azure, context(nodes=nodes)) as provider:
        found = (await answers(provider, nodes, service(2, inner)))["web-2"]
    assert isinstance(found, Ensured), found
    assert list(found.rejected) == ["node-1"]
    assert of_others(azure) == before


@pytest.mark.parametrize("of", ["db", "kubernetes"])
async def test_an_address_that_somebody_has_put_into_one_pool_comes_into_no_other(
    azure: Emulator, of: str
) -> None:
    own = machines(azure)
    of_pool = {"virtualNetwork": {"id": seed.VNET}, "loadBalancerBackendAddresses": []}
    theirs = {"name": "db", "properties": {"ipAddress": "10.0.9.9"}}
    inner = {"azure-load-balancer-internal": "true"} if of == "kubernetes" else {}
    status = msgspec.structs.replace(
        own[1].status, addresses=(NodeAddress("InternalIP", "10.0.9.9"),)
    )
    nodes = [own[0], msgspec.structs.replace(own[1], status=status)]
    async with started(azure, context(nodes=nodes), **BY_ADDRESS) as provider:
        await ensure(provider, own[:1], service())
        if of == "db":
            put_parts(azure, "backendAddressPools", {"name": of, "properties": of_pool})
        stored = azure.store.of[network("loadBalancers", "kubernetes").lower()]
        pool = stored["properties"]["backendAddressPools"][-1]["properties"]
        pool["loadBalancerBackendAddresses"].append(theirs)
        found = (await answers(provider, nodes, service(), service(2, inner)))["web-2"]
    assert isinstance(found, Ensured), found
    assert list(found.rejected) == ["node-1"]
    pools = parts(azure, "backendAddressPools", f"kubernetes{'-internal' if inner else ''}")
    (only,) = pools["kubernetes"]["loadBalancerBackendAddresses"]
    assert only["name"] == "node-0"


AT_NODES = {"azure-disable-load-balancer-floating-ip": "true"}
BY_ADDRESS = {"loadBalancerBackendPoolConfigurationType": "nodeIP"}


@pytest.mark.parametrize(
    ("annotations", "more"),
    [(AT_NODES, {}), ({}, BY_ADDRESS)],
    ids=["at nodes", "pool of addresses"],
)
@pytest.mark.parametrize("names_it", [False, True])
async def test_an_address_of_another_service_s_machine_is_opened_to_nobody(
    azure: Emulator, annotations: dict[str, str], more: dict[str, Any], *, names_it: bool
) -> None:
    """A kubelet can write any address on its Node, and name the machine that has it."""
    seed.machine(azure.store, "db")
    nic = azure.store.of[network("networkInterfaces", "db-nic").lower()]
    address = nic["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"]
    own = machines(azure)
    status = msgspec.structs.replace(own[1].status, addresses=(NodeAddress("InternalIP", address),))
    forged = msgspec.structs.replace(naming(own[1], ALONE) if names_it else own[1], status=status)
    nodes = [own[0], forged]
    async with started(azure, context(nodes=nodes), **more) as provider:
        found = (await answers(provider, nodes, service(1, annotations)))["web-1"]
        assert isinstance(found, Ensured), found
        assert list(found.rejected) == ["node-1"]
        assert address not in everything_open(azure)
        assert own[0].status.addresses[0].address in everything_open(azure)
        found = (await answers(provider, own, service(1, annotations)))["web-1"]
        assert isinstance(found, Ensured), found
        assert not found.rejected
        assert own[1].status.addresses[0].address in everything_open(azure)
        azure.counted()
        await answers(provider, own, service(1, annotations))
        assert not azure.counted()["GET", "Microsoft.Compute/virtualMachines"]


def everything_open(azure: Emulator) -> set[str]:
    """The destinations of rules, and the addresses in pools."""
    found = set[str]().union(*(targets(one) for one in rules(azure).values()))
    for pool in parts(azure, "backendAddressPools").values():
        for one in pool.get("loadBalancerBackendAddresses") or ():
            found.add(one["properties"]["ipAddress"])
    return found


@pytest.mark.parametrize("annotations", [{}, AT_NODES], ids=["", "at nodes"])
@pytest.mark.parametrize("name", ["a-thief", "z-thief"])
async def test_a_node_that_names_another_one_s_machine_keeps_nothing_from_it(
    azure: Emulator, annotations: dict[str, str], name: str
) -> None:
    for own in (machines(azure), set_machines(azure)):
        metadata = msgspec.structs.replace(own[1].metadata, name=name)
        nodes = [*own, msgspec.structs.replace(own[1], metadata=metadata)]
        async with started(azure, context(nodes=nodes)) as provider:
            found = (await answers(provider, nodes, service(1, annotations)))["web-1"]
        assert isinstance(found, Ensured), found
        assert list(found.rejected) in ([name], [])
        if annotations:
            assert own[1].status.addresses[0].address in everything_open(azure)
    members = parts(azure, "backendAddressPools")["kubernetes"]["backendIPConfigurations"]
    assert len(members) == 4


@pytest.mark.parametrize("by_address", [False, True])
@pytest.mark.parametrize(
    ("subscription", "group"),
    [
        ("5ab5c4c1-0000-4000-8000-000000000000", "none"),
        (SUBSCRIPTION, "none"),
        ("no-uuid", "none"),
        (SUBSCRIPTION, "no*ne"),
    ],
)
@pytest.mark.parametrize(
    "kind", ["virtualMachines/x", "virtualMachineScaleSets/x/virtualMachines/0"]
)
async def test_no_node_keeps_services_from_their_hosts_by_the_group_that_it_names(
    azure: Emulator, subscription: str, group: str, kind: str, *, by_address: bool
) -> None:
    place = f"azure:///subscriptions/{subscription}/resourceGroups/{group}"
    liar = naming(machines(azure, 3).pop(), "")
    spec = NodeSpec(provider_id=f"{place}/providers/Microsoft.Compute/{kind}")
    liar = msgspec.structs.replace(liar, spec=spec)
    nodes = [*machines(azure), liar]
    of = {
        "loadBalancerBackendPoolConfigurationType": "nodeIP"
        if by_address
        else "nodeIPConfiguration"
    }
    async with started(azure, context(nodes=nodes), **of) as provider:
        for _ in range(2):
            assert list(await rejected(provider, nodes)) == ["node-2"]


async def test_no_node_keeps_services_from_their_hosts_by_a_machine_that_may_not_be_seen(
    azure: Emulator,
) -> None:
    own = machines(azure, 3)
    nodes = [*own[:2], naming(own[2], "virtualMachines/node-3")]
    seed.machine(azure.store, "node-3")
    hidden = Fault(
        "GET", "Microsoft.Compute/virtualMachines", status=403, code="AuthorizationFailed", times=-1
    )
    by_address = {"loadBalancerBackendPoolConfigurationType": "nodeIP"}
    async with started(azure, context(nodes=nodes), **by_address) as provider:
        assert list(await rejected(provider, nodes)) == ["node-2"]
        azure.faults.append(hidden)
        assert list(await rejected(provider, nodes)) == ["node-2"]
