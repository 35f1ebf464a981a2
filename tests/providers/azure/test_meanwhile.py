"""What others make in Azure between a pass' reads and its writes: it stays."""

from collections.abc import Callable
from copy import deepcopy

import pytest

from proreus.cloudprovider import CloudError, Done, Ensured, Pending
from proreus.cloudprovider.desired import load_balancer_ref

from .balancing import (
    UID,
    addresses,
    answers,
    balancer,
    delete,
    ensure,
    machines,
    name_of,
    parts,
    public_ip,
    service,
)
from .emulator import seed
from .emulator.kinds import filled
from .emulator.links import KIND
from .emulator.server import Emulator
from .emulator.store import network
from .site import CLUSTER, started
from .test_links import LINKED, SUBNET, links
from .test_pools_of_others import FILLED
from .test_strangers_beside import LB, outbound, put_parts


def before_first(azure: Emulator, method: str, end: str, act: Callable[[], object]) -> list[str]:
    """Let something happen right before the first request of a method about a resource."""
    done: list[str] = []

    def meddle(asked: str, path: str) -> None:
        if asked == method and path.lower().endswith(end.lower()) and not done:
            done.append(path)
            act()

    azure.hooks.append(meddle)
    return done


async def test_a_load_balancer_to_which_an_operator_adds_meanwhile_is_not_deleted(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    public_ip(azure, "way-out")
    frontend = {"publicIPAddress": {"id": network("publicIPAddresses", "way-out")}}

    def add() -> None:
        put_parts(azure, "frontendIPConfigurations", {"name": "out", "properties": frontend})
        put_parts(azure, "outboundRules", outbound("out", "kubernetes"))

    async with started(azure) as provider:
        assert provider.load_balancers is not None
        await ensure(provider, nodes, service())
        done = before_first(azure, "PUT", "/networkSecurityGroups/nsg", add)
        await delete(provider, service())
        assert done
        assert list(parts(azure, "frontendIPConfigurations")) == ["out"]
        assert list(parts(azure, "outboundRules")) == ["outbound"]
        ref = load_balancer_ref(service(), CLUSTER)
        assert await provider.load_balancers.delete([ref]) == {ref.uid: Done(found=False)}


async def test_a_load_balancer_of_which_an_operator_fills_a_pool_meanwhile_is_not_deleted(
    azure: Emulator,
) -> None:
    nodes = machines(azure)

    def fill() -> None:
        stored = azure.store.of[network("loadBalancers", "kubernetes").lower()]
        pools = stored["properties"]["backendAddressPools"]
        (pool,) = (one for one in pools if one["name"] == "db")
        pool["properties"] |= FILLED

    async with started(azure) as provider:
        await ensure(provider, nodes, service())
        put_parts(azure, "backendAddressPools", {"name": "db", "properties": {}})
        done = before_first(azure, "PUT", "/networkInterfaces/node-0-nic", fill)
        with pytest.raises(CloudError, match="the pool db"):
            await delete(provider, service())
        assert done
    assert parts(azure, "backendAddressPools")["db"]["loadBalancerBackendAddresses"]


async def test_a_public_ip_that_an_operator_takes_the_marks_from_meanwhile_stays(
    azure: Emulator,
) -> None:
    """So that clients find what comes next at the same address."""
    nodes = machines(azure)
    async with started(azure) as provider:
        await ensure(provider, nodes, service())
        (name,) = addresses(azure)

        def keep() -> None:
            one = azure.store.of[network("publicIPAddresses", name).lower()]
            azure.store.put({**one, "tags": {"team": "web"}})

        done = before_first(azure, "DELETE", "/loadBalancers/kubernetes", keep)
        await delete(provider, service())
        assert done
        assert {one["name"]: one["tags"] for one in addresses(azure).values()} == {
            name: {"team": "web"}
        }
        assert balancer(azure) is None


async def test_a_load_balancer_that_somebody_makes_meanwhile_is_not_overwritten(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    public_ip(azure, "theirs")

    def make() -> None:
        public = {"publicIPAddress": {"id": network("publicIPAddresses", "theirs")}}
        found = {"frontendIPConfigurations": [{"name": "theirs", "properties": public}]}
        one = seed.resource(
            LB, network("loadBalancers", "kubernetes"), found, sku={"name": "Standard"}
        )
        azure.store.put(filled(azure.store, one, None))

    done = before_first(
        azure, "PUT", f"/publicIPAddresses/kubernetes-{name_of(UID.format(1))}", make
    )
    async with started(azure) as provider:
        await ensure(provider, nodes, service())
    assert done
    assert "theirs" in parts(azure, "frontendIPConfigurations")
    assert len(parts(azure, "frontendIPConfigurations")) == 2


async def test_a_private_link_service_that_a_list_lacks_is_not_overwritten(
    azure: Emulator,
) -> None:
    """A tenant can give his own the name of any."""
    nodes = machines(azure)
    asked = {**LINKED, "azure-pls-name": "payments"}
    async with started(azure) as provider:
        await ensure(provider, nodes, service(2, {**LINKED, SUBNET: "apps"}))
        ((_, one),) = links(azure).items()
        theirs = {**one, "id": network("privateLinkServices", "payments"), "name": "payments"}
        theirs["tags"] = {"team": "payments"}
        assert theirs["type"] == KIND
        azure.store.put(theirs)
        azure.unlisted = {theirs["id"].lower()}
        found = await answers(provider, nodes, service(1, asked))
        assert isinstance(found["web-1"], Pending)
        assert "payments" in found["web-1"].reason
        assert links(azure)["payments"]["tags"] == {"team": "payments"}
        azure.unlisted = set()
        found = await answers(provider, nodes, service(1, asked))
        assert not isinstance(found["web-1"], Ensured)
        assert "without the marks" in str(found["web-1"])
    assert balancer(azure, "kubernetes-internal") is not None


@pytest.mark.parametrize("by", ["made anew", "taken over"])
async def test_a_private_link_service_that_is_somebody_else_s_by_now_stays(
    azure: Emulator, by: str
) -> None:
    """All private endpoints of its consumers would go with it."""
    nodes, ranges = machines(azure), ("192.0.2.0/24",)
    asking = service(1, {**LINKED, SUBNET: "apps"}, load_balancer_source_ranges=ranges)
    other = f"{network('loadBalancers', 'theirs')}/frontendIPConfigurations/theirs"

    def take() -> None:
        ((_, link),) = links(azure).items()
        frontend = {"loadBalancerFrontendIpConfigurations": [{"id": other}]}
        properties = {**link["properties"], **(frontend if by == "made anew" else {})}
        azure.store.put({**link, "tags": {"team": "payments"}, "properties": properties})

    async with started(azure) as provider:
        assert provider.load_balancers is not None
        await ensure(provider, nodes, asking)
        done = before_first(azure, "PUT", "/networkSecurityGroups/nsg", take)
        ref = load_balancer_ref(asking, CLUSTER)
        answer = (await provider.load_balancers.delete([ref]))[ref.uid]
    assert done
    assert [one["tags"] for one in links(azure).values()] == [{"team": "payments"}]
    # Azure takes away no frontend that has one.
    assert isinstance(answer, Done) is (by == "made anew"), answer


@pytest.mark.parametrize("owner", ["a copy of the cluster", "an operator"])
async def test_a_public_ip_that_a_list_lacks_is_not_overwritten(
    azure: Emulator, owner: str
) -> None:
    """A copy has Services of the same UIDs; an operator may have taken the marks from his."""
    nodes = machines(azure)
    async with started(azure) as provider:
        await ensure(provider, nodes, service())
        ((name, made),) = addresses(azure).items()
        await delete(provider, service())
        tags = {**made["tags"], "proreus_cluster-uid": "another"}
        theirs = {**made, "tags": tags if owner.startswith("a copy") else {"team": "web"}}
        azure.store.put(theirs)
        before = deepcopy(addresses(azure)[name])
        azure.unlisted = {before["id"].lower()}
        found = await answers(provider, nodes, service())
        assert isinstance(found["web-1"], Pending)
        assert addresses(azure) == {name: before}
        assert name in found["web-1"].reason
        azure.unlisted = set()
        found = await answers(provider, nodes, service())
        assert "without the marks" in str(found["web-1"])
    assert addresses(azure) == {name: before}
