"""Routes follow the nodes, and what is not ours stays: on a real API server and cloud."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from proreus.cloudprovider import ClusterIdentity, Done, Pending
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.routes import Route, Routes
from proreus.controllers.route.policy import LABEL_EXCLUDE, Policy
from proreus.kube.objects import Node
from proreus.kube.requests import NODES
from proreus.testing.simulated import Fault, FaultMode
from proreus.testing.waiting import until

from .route_site import QUICK, RouteSite, v4, v6
from .site import PATIENCE, Site

SOME_TIME = 1.0  # for what must not happen: several times the delays of QUICK
CILIUM = {"type": "NetworkUnavailable", "status": "False", "reason": "CiliumIsUp", "message": "m"}

Answers = Mapping[Route, Done | Pending | CloudError]


@pytest.fixture
async def routing(site: Site) -> RouteSite:
    made = RouteSite(site)
    await made.start()
    return made


class Between:
    """Stands between the controller and the provider."""

    def __init__(self, real: Routes) -> None:
        self.real = real

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        return await self.real.list(cluster, nodes)

    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Answers:
        return await self.real.apply(cluster, nodes, create, delete)


async def test_dual_stack_nodes_get_their_routes_and_lose_them_when_they_go(
    routing: RouteSite,
) -> None:
    async with routing.controller():
        a, b = await routing.join("a", "b", dual=True)
        await routing.has_routes({v4(1): a, v6(1): a, v4(2): b, v6(2): b})
        await routing.says("RouteCreated", "a", "b")

        await routing.remove("a")

        await routing.has_routes({v4(2): b, v6(2): b})
    condition = await routing.network("b")
    assert condition is not None
    assert condition.status == "False"
    assert condition.last_transition_time is not None


async def test_a_node_gets_its_routes_once_it_has_its_pod_cidrs(routing: RouteSite) -> None:
    async with routing.controller():
        (a,) = await routing.machines("a")
        await routing.add_node(a)
        (b,) = await routing.join("b", first=2)
        await routing.has_routes({v4(2): b})
        assert await routing.network("a") is None

        await routing.patch("a", {"spec": {"podCIDR": v4(1), "podCIDRs": [v4(1)]}})

        await routing.has_routes({v4(1): a, v4(2): b})
        await routing.says("RouteCreated", "a")


async def test_foreign_routes_supernets_and_what_lies_elsewhere_stay(routing: RouteSite) -> None:
    (hub,) = await routing.machines("hub")
    foreign = v4(100)
    await routing.add_route(foreign, hub, ours=False)
    stay = ["10.0.0.0/15", "10.0.0.0/16", "fd00::/40", "10.9.9.0/24", "10.0.0.0/18"]
    for destination in stay:
        await routing.add_route(destination, hub)
    orphan = v4(200)
    await routing.add_route(orphan, hub)

    async with routing.controller(period=1.0):
        (a,) = await routing.join("a")
        kept = {**dict.fromkeys([foreign, *stay], hub), v4(1): a}
        await routing.has_routes(kept)
        await routing.further("resources.list", 2)

    await routing.has_routes(kept)
    assert await routing.calls("routes.delete") == 1


async def test_a_foreign_route_in_the_way_is_the_trouble_of_one_node_only(
    routing: RouteSite,
) -> None:
    (hub,) = await routing.machines("hub")
    await routing.add_route(v4(1), hub, ours=False)
    async with routing.controller():
        _, b = await routing.join("a", "b")
        await routing.says("RouteCreated", "b")
        await routing.says("NoRouteCreated", "a")
        event = await routing.site.event("FailedToCreateRoute", "a")
        assert event.type == "Warning"
        assert v4(1) in event.message
        await routing.further("routes.create", 2)  # tried again, and said no more
        assert len(await routing.site.events("FailedToCreateRoute")) == 1
        assert await routing.routes() == {v4(1): hub.id, v4(2): b.id}

        await routing.remove_route(v4(1))

        await routing.says("RouteCreated", "a")


async def test_half_of_a_batch_that_fails_holds_up_nobody_and_is_tried_again(
    routing: RouteSite,
) -> None:
    names = [f"n{n}" for n in range(10)]
    fault = Fault(mode=FaultMode.ERROR, operation="routes.create", skip=5, count=0, status=500)
    await routing.cloud.admin.inject(fault)
    machines = await routing.join(*names)

    async with routing.controller():
        await until("one half is there, the other not", lambda: _count(routing, 5))
        assert len(await routing.routes()) == 5
        await routing.cloud.admin.clear_faults()
        await routing.has_routes({v4(n): one for n, one in enumerate(machines, 1)})
        await routing.says("RouteCreated", *names)
        await until("the events are there", lambda: _failures(routing, 5))
    assert len(await routing.site.events("FailedToCreateRoute")) == 5


async def _failures(routing: RouteSite, count: int) -> bool:
    events = await routing.site.events("FailedToCreateRoute")
    return len({event.involved_object["name"] for event in events}) == count


async def _count(routing: RouteSite, count: int) -> bool:
    nodes = (await routing.site.nodes()).values()
    reasons = [
        one.reason
        for node in nodes
        for one in node.status.conditions
        if one.type == "NetworkUnavailable"
    ]
    return reasons.count("RouteCreated") == reasons.count("NoRouteCreated") == count


async def test_a_lost_answer_is_settled_by_the_next_listing(routing: RouteSite) -> None:
    await routing.cloud.admin.inject(Fault(mode=FaultMode.CUT_AFTER, operation="routes.create"))
    async with routing.controller():
        (a,) = await routing.join("a")
        await routing.says("RouteCreated", "a")
        assert await routing.routes() == {v4(1): a.id}
        assert await routing.calls("routes.create") == 1


async def test_an_answer_that_leaves_a_route_out_proves_nothing(routing: RouteSite) -> None:
    class Forgetful(Between):
        async def apply(
            self,
            cluster: ClusterIdentity,
            nodes: Sequence[Node],
            create: Sequence[Route],
            delete: Sequence[Route],
        ) -> Answers:
            await super().apply(cluster, nodes, create, delete)
            return {}

    async with routing.controller(routes=Forgetful):
        a, b = await routing.join("a", "b")
        await routing.says("RouteCreated", "a", "b")
        assert await routing.routes() == {v4(1): a.id, v4(2): b.id}
        await routing.remove("a")
        await routing.has_routes({v4(2): b})
        assert await routing.site.events("FailedToCreateRoute") == []
    assert await routing.when_written(2) == 2


async def test_a_cloud_that_works_on_it_is_asked_again_and_no_warning_is_given(
    routing: RouteSite,
) -> None:
    class Slow(Between):
        is_ready = False

        async def apply(
            self,
            cluster: ClusterIdentity,
            nodes: Sequence[Node],
            create: Sequence[Route],
            delete: Sequence[Route],
        ) -> Answers:
            if not Slow.is_ready:
                return dict.fromkeys([*create, *delete], Pending(0.3, "working"))
            return await super().apply(cluster, nodes, create, delete)

    async with routing.controller(routes=Slow):
        await routing.join("a")
        await routing.says("NoRouteCreated", "a")
        Slow.is_ready = True
        await routing.says("RouteCreated", "a")
    assert await routing.site.events("FailedToCreateRoute") == []


async def test_a_batch_that_one_route_spoils_comes_through_in_smaller_ones(
    routing: RouteSite,
) -> None:
    class Picky(Between):
        async def apply(
            self,
            cluster: ClusterIdentity,
            nodes: Sequence[Node],
            create: Sequence[Route],
            delete: Sequence[Route],
        ) -> Answers:
            if any(route.destination == v4(3) for route in create):
                raise CloudError("malformed")
            return await super().apply(cluster, nodes, create, delete)

    names = [f"n{n}" for n in range(1, 9)]
    async with routing.controller(routes=Picky):
        await routing.join(*names)
        await routing.says("RouteCreated", *(name for name in names if name != "n3"))
        await routing.says("NoRouteCreated", "n3")


async def test_a_call_that_hangs_holds_up_no_other_node(routing: RouteSite) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    class Stuck(Between):
        async def apply(
            self,
            cluster: ClusterIdentity,
            nodes: Sequence[Node],
            create: Sequence[Route],
            delete: Sequence[Route],
        ) -> Answers:
            if any(route.destination == v4(1) for route in create):
                started.set()
                await go_on.wait()
            return await super().apply(cluster, nodes, create, delete)

    async with routing.controller(routes=Stuck):
        (a,) = await routing.join("a")
        async with asyncio.timeout(PATIENCE):
            await started.wait()
        (b,) = await routing.join("b", first=2)
        await routing.says("RouteCreated", "b")
        assert await routing.routes() == {v4(2): b.id}
        assert await routing.network("a") is None
        go_on.set()
        await routing.has_routes({v4(1): a, v4(2): b})
        await routing.says("RouteCreated", "a")


@pytest.mark.parametrize("block", [1, 2])
async def test_a_node_replaced_under_the_same_name_takes_over(
    routing: RouteSite, block: int
) -> None:
    async with routing.controller():
        (old,) = await routing.join("a")
        (other,) = await routing.join("z", first=50)
        await routing.has_routes({v4(1): old, v4(50): other})
        await routing.says("RouteCreated", "a", "z")

        (new,) = await routing.machines("a")
        await routing.remove("a")
        await routing.add_node(new, v4(block))
        await routing.cloud.admin.delete(old.id)

        await routing.has_routes({v4(block): new, v4(50): other})
        await routing.says("RouteCreated", "a")
    if block == 1:
        # Led elsewhere in one call: it was never gone.
        assert await routing.calls("routes.update") == 1
        assert await routing.calls("routes.delete") == 0


async def test_the_route_of_a_node_that_comes_back_without_its_machine_yet_stays(
    routing: RouteSite,
) -> None:
    async with routing.controller(period=1.0):
        (a,) = await routing.join("a")
        await routing.join("z", first=50)
        await routing.says("RouteCreated", "a", "z")
        await routing.remove("a")
        body = {"metadata": {"name": "a"}, "spec": {"podCIDR": v4(1), "podCIDRs": [v4(1)]}}
        await routing.client.create(NODES, body)
        await routing.further("resources.list", 3)
        assert (await routing.routes())[v4(1)] == a.id
        assert await routing.calls("routes.delete") == 0


async def test_blackholes_are_replaced(routing: RouteSite) -> None:
    (dead,) = await routing.machines("dead")
    await routing.add_route(v4(1), dead)
    await routing.add_route(v4(9), dead)
    await routing.cloud.admin.delete(dead.id)
    async with routing.controller():
        (a,) = await routing.join("a")
        await routing.has_routes({v4(1): a})
        await routing.says("RouteCreated", "a")


async def test_a_full_table_is_reported_by_those_that_found_no_place_and_heals(
    routing: RouteSite,
) -> None:
    await routing.cloud.admin.configure(route_limit=4)
    async with routing.controller():
        await routing.join("a", "b", "c", "d")
        await routing.says("RouteCreated", "a", "b", "c", "d")
        e, f = await routing.join("e", "f", first=5)
        await routing.says("NoRouteCreated", "e", "f")
        for name in ("e", "f"):
            event = await routing.site.event("FailedToCreateRoute", name)
            assert "LimitExceeded" in event.message
        condition = await routing.network("e")
        assert condition is not None
        assert condition.status == "True"
        await routing.says("RouteCreated", "a", "b", "c", "d")

        await routing.remove("a")  # makes room for one

        await routing.table_is(lambda seen: v4(1) not in seen and len(seen) == 4)
        await routing.cloud.admin.configure(route_limit=5)
        await routing.says("RouteCreated", "b", "c", "d", "e", "f")
        routes = await routing.routes()
        assert (routes[v4(5)], routes[v4(6)]) == (e.id, f.id)
    assert {
        e.involved_object["name"] for e in await routing.site.events("FailedToCreateRoute")
    } == {"e", "f"}


async def test_a_listing_that_fails_changes_nothing(routing: RouteSite) -> None:
    (dead,) = await routing.machines("dead")
    await routing.add_route(v4(9), dead)
    fault = Fault(mode=FaultMode.ERROR, operation="resources.list", count=0)
    await routing.cloud.admin.inject(fault)
    await routing.join("a")
    await routing.cloud.admin.clear_calls()
    async with routing.controller():
        await until("it was asked for twice", lambda: _listed(routing, 2))
        assert list(await routing.routes()) == [v4(9)]
        assert set(await routing.cloud.admin.counts()) == {"resources.list"}
        await routing.cloud.admin.clear_faults()
        await routing.says("RouteCreated", "a")
        await routing.table_is(lambda seen: list(seen) == [v4(1)])


async def test_nodes_without_a_known_route_report_it_while_nothing_can_be_listed(
    routing: RouteSite,
) -> None:
    async with routing.controller():
        await routing.join("old")
        await routing.says("RouteCreated", "old")
    fault = Fault(mode=FaultMode.ERROR, operation="resources.list", count=0)
    await routing.cloud.admin.inject(fault)
    async with routing.controller():
        await routing.join("new", first=2)
        await routing.says("NoRouteCreated", "new")
        event = await routing.site.event("FailedToCreateRoute", "new")
        assert "cannot list the routes" in event.message
        assert list(await routing.routes()) == [v4(1)]
        await routing.says("RouteCreated", "old")
        assert await routing.site.events("FailedToCreateRoute", "old") == []

        await routing.cloud.admin.clear_faults()

        await routing.says("RouteCreated", "old", "new")


@pytest.mark.parametrize("share", [1.0, 0.5])
async def test_a_listing_that_is_suddenly_empty_rewrites_nothing(
    routing: RouteSite, share: float
) -> None:
    names = [f"n{n}" for n in range(6)]
    machines = await routing.join(*names)
    wanted = {v4(n): one for n, one in enumerate(machines, 1)}
    async with routing.controller():
        await routing.has_routes(wanted)
        await routing.says("RouteCreated", *names)
    writes = await routing.when_written(len(names))
    await routing.cloud.admin.clear_calls()
    fault = Fault(mode=FaultMode.DROP, operation="resources.list", share=share)
    await routing.cloud.admin.inject(fault)

    async with routing.controller():  # after a restart only the nodes bear witness
        await until("it was listed twice", lambda: _listed(routing, 2))
        await asyncio.sleep(SOME_TIME)

    await routing.has_routes(wanted)
    assert set(await routing.cloud.admin.counts()) == {"resources.list"}
    assert routing.writes() == writes


async def _listed(routing: RouteSite, count: int) -> bool:
    return (await routing.cloud.admin.counts())["resources.list"] >= count


async def test_a_route_that_somebody_deletes_comes_back(routing: RouteSite) -> None:
    async with routing.controller(period=1.0):
        (a,) = await routing.join("a")
        await routing.says("RouteCreated", "a")
        await routing.remove_route(v4(1))
        await routing.has_routes({v4(1): a})


async def test_a_lagging_listing_does_not_undo_what_was_just_done(routing: RouteSite) -> None:
    await routing.cloud.admin.configure(list_lag=3.0)
    policy = Policy(confirm=0.5, settle=30.0, retry_first=0.25)
    async with routing.controller(policy, period=1.0):
        (a,) = await routing.join("a")
        (z,) = await routing.join("z", first=50)
        await routing.says("RouteCreated", "a", "z")
        await routing.further("resources.list", 5)  # the first of these do not show them
        await routing.remove("a")
        await routing.has_routes({v4(50): z})
        await routing.further("resources.list", 5)  # the first of these still show it
        assert a.id not in (await routing.routes()).values()
        assert await routing.calls("routes.create") == 2
        assert await routing.calls("routes.delete") == 1


async def test_a_condition_that_a_network_plugin_owns_is_left_alone(routing: RouteSite) -> None:
    async with routing.controller():
        a, b = await routing.machines("a", "b")
        await routing.add_node(a)
        await routing.patch("a", {"status": {"conditions": [CILIUM]}}, "status")
        await routing.patch("a", {"spec": {"podCIDR": v4(1), "podCIDRs": [v4(1)]}})
        await routing.has_routes({v4(1): a})
        await routing.add_node(b, v4(2))
        await routing.says("RouteCreated", "b")
        condition = await routing.network("a")
    assert condition is not None
    assert condition.reason == "CiliumIsUp"
    assert await routing.when_written(1) == 1


async def test_routes_of_a_node_with_the_label_are_left_alone(
    routing: RouteSite,
) -> None:
    (hub,) = await routing.machines("hub")
    await routing.add_route(v4(1), hub)
    a, c = await routing.machines("a", "c")
    await routing.add_node(a, v4(1), labels={LABEL_EXCLUDE: ""})
    await routing.add_node(c, v4(3), labels={LABEL_EXCLUDE: ""})
    async with routing.controller(period=1.0):
        (b,) = await routing.join("b", first=2)
        await routing.says("RouteCreated", "b")
        await routing.further("resources.list", 3)
        assert await routing.routes() == {v4(1): hub.id, v4(2): b.id}
        assert await routing.network("a") is None

        await routing.patch("a", {"metadata": {"labels": {LABEL_EXCLUDE: None}}})

        await routing.has_routes({v4(1): a, v4(2): b})
        await routing.says("RouteCreated", "a")


async def test_a_pod_cidr_outside_the_cluster_cidr_gets_an_event_and_no_route(
    routing: RouteSite,
) -> None:
    async with routing.controller():
        (a,) = await routing.machines("a")
        await routing.add_node(a, "10.9.1.0/24", v6(1))
        await routing.says("NoRouteCreated", "a")
        event = await routing.site.event("FailedToCreateRoute", "a")
        assert "--cluster-cidr" in event.message
        await routing.has_routes({v6(1): a})


async def test_the_manager_runs_it_when_it_knows_the_pods_networks(site: Site) -> None:
    routing = RouteSite(site)
    (machine,) = await site.join("a")
    await routing.patch("a", {"spec": {"podCIDR": v4(1), "podCIDRs": [v4(1), v6(1)]}})
    clusters = "--cluster-cidr=10.0.0.0/16,fd00::/48"
    off = "--configure-cloud-routes=false"
    without = {
        (): '"Not started" controller="node-route-controller" reason="--cluster-cidr is not given"',
        (clusters, off): "--configure-cloud-routes is false",
    }
    for flags, said in without.items():
        async with site.lone_manager(*flags) as manager:
            await site.initialised("a")
            await logged(manager.log, said)
    assert await routing.network("a") is None

    async with site.lone_manager(clusters):
        await routing.has_routes({v4(1): machine, v6(1): machine})
        await routing.says("RouteCreated", "a")


async def logged(log: Path, text: str) -> None:
    """Wait for a text in a log."""

    async def there() -> bool:
        return text in log.read_text()

    await until(f"the log says {text}", there)


def test_quick_has_the_shape_of_the_real_policy() -> None:
    real = Policy()
    assert QUICK.confirm < SOME_TIME < real.confirm
