"""Lists that lack machines for a while: load balancers outlive them unchanged."""

from proreus.kube.objects import Node
from proreus.providers.azure.balancing.observation import MOST_ALONE

from .balancing import addresses, ensure, machines, service
from .emulator.server import Emulator
from .emulator.store import compute, network
from .site import context, started
from .test_several_balancers import NAMED, NAMES, pool

SETS = ("first-pool", "second-pool")
APART = {
    "loadBalancerBackendPoolConfigurationType": "nodeIP",
    "multipleStandardLoadBalancerConfigurations": [
        {"name": name, "primaryVMSet": set_, "nodeSelector": {"matchLabels": {"side": name}}}
        for name, set_ in zip(NAMES, SETS, strict=True)
    ],
}
"""A cloud-config by which a node without labels is behind the load balancer of its set alone."""


def in_sets(azure: Emulator, count: int = 4) -> list[Node]:
    """Start machines of scale sets of the mode Flexible, by turns."""
    nodes = machines(azure, count)
    for number in range(count):
        stored = azure.store.of[compute("virtualMachines", f"node-{number}").lower()]
        id_ = compute("virtualMachineScaleSets", SETS[number % 2])
        stored["properties"]["virtualMachineScaleSet"] = {"id": id_}
    return nodes


async def test_nodes_stay_behind_their_load_balancer_while_a_list_lacks_their_machines(
    azure: Emulator,
) -> None:
    nodes = in_sets(azure, 2 * MOST_ALONE)
    names = [one.metadata.name for one in nodes]
    first, second = (service(n, {NAMED: NAMES[n - 1]}) for n in (1, 2))
    async with started(azure, context(nodes=nodes), **APART) as provider:
        await ensure(provider, nodes, first, second)
        before = [pool(azure, name) for name in NAMES]
        assert before == [set(names[::2]), set(names[1::2])]
        azure.unlisted = {compute("virtualMachines", name).lower() for name in names}
        await ensure(provider, nodes, first, second)
        assert [pool(azure, name) for name in NAMES] == before


async def test_a_new_machine_that_a_list_lacks_comes_to_the_load_balancer_of_its_set(
    azure: Emulator,
) -> None:
    nodes = in_sets(azure)
    first, second = (service(n, {NAMED: NAMES[n - 1]}) for n in (1, 2))
    azure.unlisted = {compute("virtualMachines", "node-2").lower()}
    async with started(azure, context(nodes=nodes), **APART) as provider:
        await ensure(provider, nodes, first, second)
    assert [pool(azure, name) for name in NAMES] == [{"node-0", "node-2"}, {"node-1", "node-3"}]


async def test_a_public_ip_that_a_list_lacks_keeps_what_others_have_set(azure: Emulator) -> None:
    nodes = machines(azure)
    async with started(azure) as provider:
        before = await ensure(provider, nodes, service())
        ((name, made),) = addresses(azure).items()
        stored = azure.store.of[network("publicIPAddresses", name).lower()]
        stored["properties"]["dnsSettings"] = {"domainNameLabel": "shop"}
        stored["tags"]["cost-center"] = "7"
        azure.unlisted = {made["id"].lower()}
        assert await ensure(provider, nodes, service()) == before
    left = addresses(azure)[name]
    assert left["properties"]["dnsSettings"]["domainNameLabel"] == "shop"
    assert left["tags"]["cost-center"] == "7"
