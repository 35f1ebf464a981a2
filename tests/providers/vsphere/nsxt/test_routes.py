"""Static routes of NSX-T: their ids and tags, adoption, replacement, realization, refusals."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from proreus.cloudprovider import CloudError, Done, InvalidRequest, Pending, Route
from proreus.cloudprovider.identity import MARK_CLUSTER, MARK_CLUSTER_UID
from proreus.cloudprovider.routes import Routes
from proreus.testing import objects

from ..site import CLUSTER  # noqa: TID252 - pytest imports tests by path
from .emulator.server import Emulator, Fault
from .emulator.world import GATEWAY
from .lb_site import NODES, as_tags, node, tags
from .site import NsxtCloud, started

FIRST = Route("hint", "10.64.0.0/24", "vsphere://node-1")
SECOND = Route("hint", "10.64.1.0/24", "vsphere://node-2")
PATH = f"{GATEWAY}/static-routes/uid-node-1_10.64.0.0_24"
OFFICIAL = {"vsphere.k8s.io/cluster-name": "test", "vsphere.k8s.io/node-name": "node-1"}


def routes(provider: NsxtCloud) -> Routes:
    assert provider.routes is not None
    return provider.routes


async def apply(
    provider: NsxtCloud, create: Sequence[Route] = (), delete: Sequence[Route] = ()
) -> Any:
    return await routes(provider).apply(CLUSTER, NODES, create, delete)


async def listed(provider: NsxtCloud) -> set[tuple[str, str | None]]:
    found = await routes(provider).list(CLUSTER, NODES)
    return {(one.destination, one.target) for one in found}


async def test_a_route_has_the_official_id_name_and_tags_and_our_mark(nsxt: Emulator) -> None:
    async with started(nsxt) as provider:
        answers = await apply(provider, [FIRST, SECOND])
        assert answers == {FIRST: Done(), SECOND: Done()}
        first, second = nsxt.of("static-routes")
        assert first["path"] == PATH
        assert first["display_name"] == "test_node-1_10.64.0.0/24"
        assert first["network"] == "10.64.0.0/24"
        assert [one["ip_address"] for one in first["next_hops"]] == ["10.0.0.1"]
        assert tags(first) == {**OFFICIAL, MARK_CLUSTER: "test", MARK_CLUSTER_UID: CLUSTER.uid}
        assert second["path"].endswith("uid-node-2_10.64.1.0_24")
        assert await listed(provider) == {
            ("10.64.0.0/24", "10.0.0.1"),
            ("10.64.1.0/24", "10.0.0.2"),
        }


async def test_what_the_official_manager_has_made_is_marked_kept_and_then_listed(
    nsxt: Emulator,
) -> None:
    nsxt.put(
        PATH, network="10.64.0.0/24", next_hops=[{"ip_address": "10.0.0.1"}], tags=as_tags(OFFICIAL)
    )
    async with started(nsxt) as provider:
        assert await listed(provider) == set()
        assert await apply(provider, [FIRST]) == {FIRST: Done()}
        assert await listed(provider) == {("10.64.0.0/24", "10.0.0.1")}
        (one,) = nsxt.of("static-routes")
        assert (one["path"], tags(one)[MARK_CLUSTER_UID]) == (PATH, CLUSTER.uid)
        nsxt.counted()
        assert await apply(provider, [FIRST]) == {FIRST: Done()}
        assert not [name for name in nsxt.counted() if name.startswith("PUT")]


@pytest.mark.parametrize("cidr", ["10.64.0.0/24", "10.64.9.0/24", ""])
async def test_no_node_takes_the_route_of_another_by_its_provider_id(
    nsxt: Emulator, cidr: str
) -> None:
    """Any kubelet can write another node's id on its own new Node."""
    born = datetime(2026, 1, 1, tzinfo=UTC)
    first, taker = (
        objects.node(
            name,
            "vsphere://node-1",
            addresses=(address,),
            pod_cidrs=cidrs,
            creation_timestamp=born + timedelta(days=age),
        )
        for age, (name, address, cidrs) in enumerate(
            (
                ("node-1", "10.0.0.1", ("10.64.0.0/24",) if cidr else ()),
                ("taker", "10.0.0.66", (cidr,) if cidr else ()),
            )
        )
    )
    async with started(nsxt) as provider:
        answers = await routes(provider).apply(CLUSTER, [taker, first], [FIRST], [])
        assert answers == {FIRST: Done()}
        (one,) = nsxt.of("static-routes")
        assert [hop["ip_address"] for hop in one["next_hops"]] == ["10.0.0.1"]


async def test_routes_of_others_are_neither_listed_nor_touched(nsxt: Emulator) -> None:
    hop = [{"ip_address": "10.0.0.9"}]
    for number, marks in enumerate(
        (
            {},
            {"vsphere.k8s.io/cluster-name": "other"},
            OFFICIAL,  # of a node that is not of this cluster
            {**OFFICIAL, MARK_CLUSTER_UID: "another"},
        )
    ):
        path = f"{GATEWAY}/static-routes/theirs{number}"
        nsxt.put(path, network=f"10.64.{number}.0/24", next_hops=hop, tags=as_tags(marks))
    before = [dict(one) for one in nsxt.of("static-routes")]
    async with started(nsxt) as provider:
        assert await listed(provider) == set()
        gone = Route("theirs0", "10.64.0.0/24", "10.0.0.9")
        answers = await apply(provider, [SECOND], [gone])
        assert answers[gone] == Done()
        assert isinstance(answers[SECOND], InvalidRequest)
        assert "theirs1 leads 10.64.1.0/24 to 10.0.0.9 already" in str(answers[SECOND])
        assert [dict(one) for one in nsxt.of("static-routes")] == before


async def test_a_route_is_replaced_in_place(nsxt: Emulator) -> None:
    async with started(nsxt) as provider:
        await apply(provider, [FIRST])
        (old,) = await routes(provider).list(CLUSTER, NODES)
        moved = Route("hint", "10.64.0.0/24", "vsphere://node-2")
        assert await apply(provider, [moved], [old]) == {moved: Done(), old: Done()}
        (one,) = nsxt.of("static-routes")
        assert one["path"] == PATH
        assert one["next_hops"][0]["ip_address"] == "10.0.0.2"
        assert tags(one)["vsphere.k8s.io/node-name"] == "node-2"
        assert not [name for name in nsxt.calls if name.startswith("DELETE")]


async def test_a_replacement_that_fails_is_not_told_as_done(nsxt: Emulator) -> None:
    async with started(nsxt) as provider:
        await apply(provider, [FIRST])
        (old,) = await routes(provider).list(CLUSTER, NODES)
        nsxt.fail(Fault("PUT static-routes", status=500))
        moved = Route("hint", "10.64.0.0/24", "vsphere://node-2")
        answers = await apply(provider, [moved], [old])
        assert isinstance(answers[old], CloudError)
        assert answers[old] is answers[moved]


async def test_a_route_is_deleted_and_is_gone_already(nsxt: Emulator) -> None:
    async with started(nsxt) as provider:
        await apply(provider, [FIRST, SECOND])
        gone = [
            one for one in await routes(provider).list(CLUSTER, NODES) if "64.0" in one.destination
        ]
        for _ in range(2):
            assert await apply(provider, (), gone) == {gone[0]: Done()}
        assert await listed(provider) == {("10.64.1.0/24", "10.0.0.2")}


async def test_a_route_counts_once_it_is_realized(nsxt: Emulator) -> None:
    nsxt.realization.works = 60.0
    async with started(nsxt) as provider:
        (answer,) = (await apply(provider, [FIRST])).values()
        assert isinstance(answer, Pending)
        ahead = nsxt.now
        nsxt.now = lambda: ahead() + 61
        assert await apply(provider, [FIRST]) == {FIRST: Done()}
        assert nsxt.calls["PUT static-routes"] == 1


async def test_a_route_that_cannot_be_realized_says_why(nsxt: Emulator) -> None:
    nsxt.realization.broken[PATH] = "The next hop is not reachable."
    async with started(nsxt) as provider:
        (answer,) = (await apply(provider, [FIRST])).values()
        assert isinstance(answer, CloudError)
        assert "The next hop is not reachable." in str(answer)


async def test_a_node_needs_an_address_of_the_family_and_has_to_be_known(nsxt: Emulator) -> None:
    six = Route("hint", "fd00:64::/64", "vsphere://node-2")
    unknown = Route("hint", "10.64.2.0/24", "vsphere://node-9")
    async with started(nsxt) as provider:
        answers = await apply(provider, [six, unknown])
        assert "the node has no IPv6 address" in str(answers[six])
        assert "there is no Node with the provider id vsphere://node-9" in str(answers[unknown])
        good = Route("hint", "fd00:64::/64", "vsphere://node-1")
        assert await apply(provider, [good]) == {good: Done()}
        (one,) = nsxt.of("static-routes")
        assert one["next_hops"][0]["ip_address"] == "fd00::1"


async def test_a_route_to_several_hops_has_no_target(nsxt: Emulator) -> None:
    hops = [{"ip_address": "10.0.0.1"}, {"ip_address": "10.0.0.2"}]
    marks = as_tags({**OFFICIAL, MARK_CLUSTER_UID: CLUSTER.uid})
    nsxt.put(PATH, network="10.64.0.0/24", next_hops=hops, tags=marks)
    async with started(nsxt) as provider:
        assert await listed(provider) == {("10.64.0.0/24", None)}
        assert await apply(provider, [FIRST]) == {FIRST: Done()}
        assert await listed(provider) == {("10.64.0.0/24", "10.0.0.1")}


async def test_routes_beyond_the_first_page_are_listed(nsxt: Emulator) -> None:
    nsxt.page = 3
    nodes = [node(f"n{number}", f"10.0.1.{number}") for number in range(1, 9)]
    wanted = [
        Route("hint", f"10.64.{number}.0/24", f"vsphere://n{number}") for number in range(1, 9)
    ]
    async with started(nsxt) as provider:
        await routes(provider).apply(CLUSTER, nodes, wanted, ())
        assert len(await routes(provider).list(CLUSTER, nodes)) == 8
