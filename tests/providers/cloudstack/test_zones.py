"""Machines and load balancers of one account in several zones."""

import pytest

from proreus.cloudprovider import Done, InvalidRequest
from proreus.cloudprovider.instances import Instance
from proreus.providers.cloudstack.balancing.owners import CLAIM

from .emulator.server import Emulator
from .lb_site import UID, lb_site
from .site import CLUSTER, describe, node, started


async def test_each_node_has_the_zone_of_its_machine_from_one_request(emulator: Emulator) -> None:
    world = emulator.world
    other = world.add_zone("zone-2")
    world.add_machines(["node-1"], world.add_network())
    world.add_machines(["node-2"], world.add_network(zone=other))
    async with started(emulator) as provider:
        answers = await describe(provider, node("node-1"), node("node-2"))
    zones = {
        name: (one.zone, one.region) for name, one in answers.items() if isinstance(one, Instance)
    }
    assert zones == {"node-1": ("zone-1", "zone-1"), "node-2": ("zone-2", "zone-2")}
    assert emulator.calls == {"listVirtualMachines": 1}


@pytest.mark.parametrize("vpc", [False, True])
async def test_a_load_balancer_is_in_the_zone_of_most_nodes_with_an_address_of_it(
    emulator: Emulator, *, vpc: bool
) -> None:
    async with lb_site(emulator, vpc=vpc) as site:
        other = site.world.add_zone("zone-2")
        site.world.add_addresses("198.51.100.1", 3, other)
        far = site.world.add_machines(
            ["far-1", "far-2", "far-3"], site.world.add_network(vpc=vpc, zone=other)
        )
        desired = site.desired(ids=[*site.machines, *far])
        answer = await site.made(desired)
        assert answer.ingress[0].ip.startswith("198.51.100.")
        assert answer.rejected.keys() == {"node-1", "node-2"}
        assert {frozenset(one["members"]) for one in site.rules().values()} == {frozenset(far)}
        # It stays there, whatever nodes come to the other zone.
        more = site.world.add_machines(["a", "b"], site.network)
        again = await site.made(site.desired(ids=[*site.machines, *far, *more]))
        assert again.ingress == answer.ingress
        await site.deleted(desired)
        assert site.is_empty()


async def test_an_address_of_another_zone_is_refused_and_named(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        site.world.add_addresses("198.51.100.1", 1, site.world.add_zone("zone-2"))
        refused = await site.ensure(site.desired(load_balancer_ip="198.51.100.1"))
    assert isinstance(refused, InvalidRequest)
    assert "198.51.100.1 is an address of the zone zone-2" in str(refused)
    assert not emulator.calls["associateIpAddress"]


@pytest.mark.parametrize("named", [False, True])
async def test_of_an_address_that_two_zones_have_that_of_the_nodes_zone_is_taken(
    emulator: Emulator, *, named: bool
) -> None:
    """Behind gateways that translate addresses, zones may have the same "public" ones."""
    world = emulator.world
    other = world.add_zone("zone-0")
    world.add_addresses("203.0.113.1", 20, other)
    async with lb_site(emulator) as site:
        desired = site.desired(load_balancer_ip="203.0.113.7" if named else "")
        await site.made(desired)
        (taken,) = (one for one in world.ips.values() if one["state"] != "Free")
        assert taken["zonename"] == "zone-1"
        await site.deleted(desired)
        assert site.is_empty()


async def test_what_another_zone_has_at_a_claimed_address_is_not_released(
    emulator: Emulator,
) -> None:
    """A process has ended between the claim and the acquisition, and the Service is deleted."""
    world = emulator.world
    other = world.add_zone("zone-0")
    world.add_addresses("203.0.113.1", 20, other)
    async with lb_site(emulator, vpc=True) as site:
        far = next(one for one in world.ips.values() if one["ipaddress"] == "203.0.113.7")
        assert far["zonename"] == "zone-0"
        theirs = world.networks[world.add_network(vpc=True, zone=other)]["vpcid"]
        far |= {"state": "Allocated", "vpcid": theirs, "allocated": "2026"}
        world.tags["Network", site.network] = {f"{CLAIM}{UID}": f"{CLUSTER.uid}/203.0.113.7"}
        assert isinstance(await site.deleted(site.desired()), Done)
        assert far["state"] == "Allocated"
        assert not world.tags["Network", site.network]
