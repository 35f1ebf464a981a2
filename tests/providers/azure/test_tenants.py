"""What tenants in the cloud-config lets Services name besides public IPs: places, which have no mark."""

import copy

import pytest

from proreus.cloudprovider import Ensured, InvalidRequest

from .balancing import answers, ensure, everything, machines, service
from .emulator.kinds import filled
from .emulator.links import KIND
from .emulator.seed import resource
from .emulator.server import Emulator
from .emulator.store import network
from .site import started
from .test_links import LINKED, SUBNET

INSIDE = {"azure-load-balancer-internal": "true"}
PREFIX_ID = network("publicIPPrefixes", "kept")
PLACES = {
    "subnet": ({**INSIDE, "azure-load-balancer-internal-subnet": "apps"}, "apps"),
    "resource group": ({"azure-load-balancer-resource-group": "team"}, "team"),
    "prefix": ({"azure-pip-prefix-id": PREFIX_ID}, PREFIX_ID),
    "subnet of a link": ({**LINKED, SUBNET: "apps"}, "apps"),
    "resource group of a link": ({**LINKED, SUBNET: "nodes", "azure-pls-resource-group": "team"}, "team"),
}  # fmt: skip


@pytest.fixture
def places(azure: Emulator) -> Emulator:
    """An emulator with a resource group and a prefix, and no policies in the nodes' subnet."""
    azure.store.groups.add("team")
    kind = "Microsoft.Network/publicIPPrefixes"
    azure.store.put(filled(azure.store, resource(kind, PREFIX_ID, {"prefixLength": 28}), None))
    nodes = azure.store.of[f"{network('virtualNetworks', 'vnet')}/subnets/nodes".lower()]
    nodes["properties"]["privateLinkServiceNetworkPolicies"] = "Disabled"
    return azure


@pytest.mark.parametrize("annotations", [one[0] for one in PLACES.values()], ids=PLACES)
@pytest.mark.parametrize("rule", ["listed", "same-namespace"])
async def test_places_must_be_listed_where_the_cloud_config_says_so(
    places: Emulator, annotations: dict[str, str], rule: str
) -> None:
    nodes = machines(places)
    async with started(places, tenants={"namedObjects": rule}) as provider:
        found = await answers(provider, nodes, service(1, annotations))
        assert isinstance(found["web-1"], InvalidRequest), found
        assert "tenants" in str(found["web-1"]).lower()


@pytest.mark.parametrize(("annotations", "name"), PLACES.values(), ids=PLACES)
async def test_places_that_are_listed_or_used_already_may_be_named(
    places: Emulator, annotations: dict[str, str], name: str
) -> None:
    nodes = machines(places)
    one = service(1, annotations)
    listed = {"namedObjects": "listed", "allow": [f"shop={name}"]}
    async with started(places, tenants=listed) as provider:
        found = await ensure(provider, nodes, one)
    before = everything(places)
    async with started(places, tenants={"namedObjects": "listed"}) as provider:
        assert await ensure(provider, nodes, one) == found
        assert everything(places) == before
        other = await answers(provider, nodes, service(2))
        assert isinstance(other["web-2"], Ensured)


@pytest.mark.parametrize("name", [".", "..", "group."])
async def test_no_resource_group_leads_out_of_its_place_in_a_path(
    azure: Emulator, name: str
) -> None:
    """With dots a list would be that of the whole subscription; no name ends with a period."""
    nodes = machines(azure)
    asked = {"azure-load-balancer-resource-group": name}
    async with started(azure) as provider:
        with pytest.raises(InvalidRequest, match="resource-group"):
            await answers(provider, nodes, service(1, asked))


async def test_a_link_gets_addresses_of_no_other_subnet_than_is_listed(places: Emulator) -> None:
    """Also one that is there already, with addresses of one that is."""
    nodes = machines(places)
    subnets = f"{network('virtualNetworks', 'vnet')}/subnets"
    made = copy.deepcopy(places.store.of[f"{subnets}/apps".lower()])
    made |= {"id": f"{subnets}/bank", "name": "bank"}
    made["properties"]["addressPrefixes"] = ["10.8.0.0/24"]
    places.store.put(made)
    listed = {"namedObjects": "listed", "allow": ["shop=apps"]}
    async with started(places, tenants=listed) as provider:
        await ensure(provider, nodes, service(1, LINKED))
        before = copy.deepcopy(list(places.store.kind(KIND)))
        found = (await answers(provider, nodes, service(1, {**LINKED, SUBNET: "bank"})))["web-1"]
        assert isinstance(found, InvalidRequest), found
        assert f"{SUBNET}: bank" in str(found)
        assert list(places.store.kind(KIND)) == before
        await ensure(provider, nodes, service(1, {**LINKED, SUBNET: "nodes"}))
    async with started(places, tenants={"namedObjects": "listed"}) as provider:
        found = (await answers(provider, nodes, service(1, LINKED)))["web-1"]
        assert isinstance(found, InvalidRequest), "it has left that one"
