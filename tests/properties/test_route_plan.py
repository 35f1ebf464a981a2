"""Routes in a small world of nodes, a cloud table and a cloud that errs, over virtual time."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from proreus.cloudprovider.errors import CallTimeout, CloudError, RetryAfter, Throttled
from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.load_balancers import Done, Pending
from proreus.cloudprovider.routes import Route
from proreus.controllers.networks import Network, is_within, network
from proreus.controllers.route import attempts, plan, table
from proreus.controllers.route.attempts import Unit
from proreus.controllers.route.conditions import NetworkState
from proreus.controllers.route.desired import DesiredRoutes, desired_routes
from proreus.controllers.route.policy import LABEL_EXCLUDE, Policy
from proreus.kube.objects import Node
from proreus.testing import objects

POLICY = Policy(batch=3)
START = datetime(2026, 5, 1, tzinfo=UTC)
CLUSTERS = tuple(net for text in ("10.0.0.0/16", "fd00::/48") if (net := network(text)))
BLOCKS = [f"10.0.{n}.0/24" for n in range(5)] + [f"fd00:0:0:{n}::/64" for n in range(5)]
OTHERS = ["10.0.0.0/16", "10.0.0.0/15", "10.0.0.0/22", "10.9.0.0/24", "::/0", "10.0.9.0/24", "x"]
TARGETS = [f"sim://{n}" for n in range(4)]
FAULTS = ("left out", "late", "refused", "throttled", "later", "pending", "lost")

nodes_strategy = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(
        lambda block, target, label: (block, target, label),
        st.sampled_from([None, 0, 1, 2, 3, 4]),
        st.sampled_from(["", *TARGETS]),
        st.sampled_from([False, False, False, True]),
    ),
    max_size=4,
)
routes_strategy = st.lists(
    st.builds(
        Route,
        st.just(""),
        st.sampled_from([*BLOCKS, *OTHERS]),
        st.sampled_from([None, *TARGETS, "sim://gone"]),
        st.sampled_from([False, False, True]),
    ),
    max_size=8,
)


def nodes_of(drawn: Mapping[str, tuple[int | None, str, bool]]) -> list[Node]:
    """Nodes; two never have one machine."""
    found, used = [], set[str]()
    for age, (name, (block, target, is_excluded)) in enumerate(drawn.items()):
        provider_id = "" if target in used else target
        used.add(target)
        cidrs = () if block is None else (BLOCKS[block], BLOCKS[block + 5])
        found.append(
            objects.node(
                name,
                provider_id,
                uid=f"uid-{name}-{provider_id}",
                labels={LABEL_EXCLUDE: ""} if is_excluded else {},
                creation_timestamp=START - timedelta(seconds=age),
                pod_cidrs=cidrs,
            )
        )
    return found


def owns(_: Node) -> Ownership:
    return Ownership.YES


class World:
    """A cloud's table, and a controller that sees it through plans."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.cloud = list(dict.fromkeys(routes))
        self.memory = plan.Memory()
        self.table: table.Table | None = None
        self.now = 0.0
        self.deleted: list[Route] = []
        self.listings = 0
        self.conditions: dict[str, NetworkState] = {}

    def desired(self, nodes: Sequence[Node]) -> DesiredRoutes:
        return desired_routes(nodes, CLUSTERS, owns)

    def decide(self, nodes: Sequence[Node]) -> plan.Plan:
        assert self.table is not None
        return plan.plan(
            self.desired(nodes), self.table, self.memory, POLICY, CLUSTERS, busy=(), now=self.now
        )

    def observe(self) -> None:
        self.listings += 1
        self.table = table.listed(
            self.table, self.cloud, CLUSTERS, began=self.now, busy=(), settle=0.0
        )

    def turn(self, nodes: Sequence[Node], faults: Sequence[str] = ()) -> plan.Plan:
        """One pass; each fault hits one route of it."""
        decided = self.decide(nodes) if self.table else None
        if decided is None or decided.needs_listing:
            self.observe()
            decided = self.decide(nodes)
        self.memory = decided.memory
        self.conditions.update(decided.conditions)
        self.check(decided, nodes)
        waiting = list(faults)
        for batch in decided.batches:
            self.apply(batch, waiting)
        return decided

    def apply(self, batch: Sequence[Unit], faults: list[str]) -> None:
        answers: dict[Route, attempts.Answer] = {}
        known = dict(self.memory.attempts)
        made: dict[Network, Route] = {}
        gone: dict[Network, tuple[Route, ...]] = {}
        for unit in batch:
            for route in unit.delete:
                self.do(route, answers, faults, creates=False)
            if unit.desired:
                self.do(unit.desired.route(), answers, faults, creates=True)
        for unit in batch:
            result = attempts.result(
                unit, answers, known.pop(unit.key, None), POLICY, batch=len(batch), now=self.now
            )
            if result.attempt:
                known[unit.key] = result.attempt
            if result.created:
                made[unit.destination] = result.created
            gone[unit.destination] = result.deleted
        self.memory = plan.Memory(
            known, self.memory.doubts, self.memory.there, self.memory.problems
        )
        assert self.table is not None
        self.table = table.applied(self.table, made, gone, at=self.now)

    def do(
        self,
        route: Route,
        answers: dict[Route, attempts.Answer],
        faults: list[str],
        *,
        creates: bool,
    ) -> None:
        fault = faults.pop() if faults else ""
        if fault in ("", "lost", "left out", "late"):
            if creates:
                if route not in self.cloud:
                    self.cloud.append(route)
            elif route in self.cloud:
                self.cloud.remove(route)
                self.deleted.append(route)
        said: dict[str, attempts.Answer] = {
            "": Done(),
            "late": CallTimeout("late"),
            "lost": CloudError("connection lost"),
            "refused": CloudError("refused"),
            "throttled": Throttled("slow down", after=3.0),
            "later": RetryAfter("later", after=3.0),
            "pending": Pending(3.0, "working"),
        }
        if fault in said:
            answers[route] = said[fault]

    def check(self, decided: plan.Plan, nodes: Sequence[Node]) -> None:
        """What no plan may ever do."""
        desired = self.desired(nodes)
        units = [unit for batch in decided.batches for unit in batch]
        assert all(0 < len(batch) <= POLICY.batch for batch in decided.batches)
        assert len({unit.destination for unit in units}) == len(units)
        assert decided.due is None or decided.due > self.now
        for unit in units:
            if unit.desired:
                assert desired.routes[unit.destination] == unit.desired
            assert any(is_within(unit.destination, cluster) for cluster in CLUSTERS)
            for route in unit.delete:
                self.check_deletion(route, unit, desired)

    def check_deletion(self, route: Route, unit: Unit, desired: DesiredRoutes) -> None:
        net = unit.destination
        assert self.table is not None
        assert self.table.began == self.now, "nothing is deleted without a listing"
        assert route in self.cloud
        assert network(route.destination) == net
        assert route.target is not None or route.blackhole
        desired_route = desired.routes.get(net)
        if desired_route is not None and desired_route.leads_here(route):
            assert route.blackhole
            assert unit.desired == desired_route
        if unit.desired is None:
            assert net not in CLUSTERS
            assert net in desired.routes or route.target not in desired.shielded_targets
            assert not any(
                one.overlaps(net) for one in desired.shielded if one.version == net.version
            )
            assert not any(one != net and is_within(one, net) for one in desired.claimed)

    def settle(self, nodes: Sequence[Node]) -> None:
        """Let time pass without faults until nothing is left to do."""
        for _ in range(60):
            decided = self.turn(nodes)
            if not decided.batches and decided.due is None:
                return
            self.now = max(self.now + 0.1, decided.due or 0.0)
        raise AssertionError(f"no rest: {decided}")


def bystanders(routes: Sequence[Route], desired: DesiredRoutes) -> set[Route]:
    """The routes that can never be the controller's to delete."""
    return {
        route
        for route in routes
        if (net := network(route.destination)) is None
        or not any(is_within(net, cluster) for cluster in CLUSTERS)
        or (route.target is None and not route.blackhole)
        or (net in CLUSTERS and net not in desired.routes)
        or any(one != net and is_within(one, net) for one in desired.claimed)
    }


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    first=nodes_strategy,
    second=nodes_strategy,
    routes=routes_strategy,
    faults=st.lists(st.lists(st.sampled_from(FAULTS), max_size=6), max_size=6),
    steps=st.lists(st.floats(0.1, 20.0), min_size=6, max_size=6),
)
@example(  # a younger node that waits shields nothing of an older one's
    first={"a": (3, "sim://0", False)},
    second={"a": (3, "", False), "b": (3, "sim://0", False)},
    routes=[Route("", "fd00:0:0:3::/64", None, blackhole=True)],
    faults=[["refused"]],
    steps=[1.0] * 6,
)
def test_routes_converge_and_nothing_else_is_touched(
    first: Mapping[str, tuple[int | None, str, bool]],
    second: Mapping[str, tuple[int | None, str, bool]],
    routes: Sequence[Route],
    faults: Sequence[Sequence[str]],
    steps: Sequence[float],
) -> None:
    world = World(routes)
    for now_faults, step in zip(faults, steps, strict=False):
        world.turn(nodes_of(first), now_faults)
        world.now += step
    nodes = nodes_of(second)
    kept = bystanders(world.cloud, world.desired(nodes))
    world.observe()

    world.settle(nodes)

    desired = world.desired(nodes)
    assert kept <= set(world.cloud)
    for net, desired_route in desired.routes.items():
        there = [one for one in world.cloud if network(one.destination) == net]
        is_unclear = any(one.target is None and not one.blackhole for one in there)
        good = [one for one in there if desired_route.leads_here(one) and not one.blackhole]
        assert good or is_unclear
        if not is_unclear:
            assert all(desired_route.leads_here(one) for one in there)
    for name in {desired_route.node for desired_route in desired.routes.values()}:
        problems = [one for one in desired.problems if one.node == name]
        assert not problems or world.conditions[name] is NetworkState.UNROUTED
    if nodes:
        stray = [one for one in world.cloud if is_orphan(one, desired)]
        assert not stray

    listings, before = world.listings, list(world.cloud)
    decided = world.turn(nodes)
    assert (decided.batches, decided.needs_listing, world.listings) == ((), False, listings)
    world.observe()
    assert world.turn(nodes).batches == ()
    assert world.cloud == before


def is_orphan(route: Route, desired: DesiredRoutes) -> bool:
    """Whether the route is surely the controller's, and of no use."""
    net = network(route.destination)
    return (
        net is not None
        and any(is_within(net, cluster) and net != cluster for cluster in CLUSTERS)
        and net not in desired.routes
        and (route.target is not None or route.blackhole)
        and route.target not in desired.shielded_targets
        and not any(is_within(net, one) or is_within(one, net) for one in desired.shielded)
        and not any(is_within(one, net) for one in desired.claimed)
    )


@given(nodes=nodes_strategy, share=st.integers(0, 8))
def test_one_listing_that_lacks_what_was_there_changes_nothing(
    nodes: Mapping[str, tuple[int | None, str, bool]], share: int
) -> None:
    present = nodes_of(nodes)
    world = World([])
    world.settle(present)
    whole = list(world.cloud)

    world.now += 300
    world.cloud = whole[share:]
    world.observe()
    decided = world.turn(present)
    assert decided.batches == ()
    world.cloud = whole
    world.now += 300
    world.observe()
    world.settle(present)

    assert world.cloud == whole
    assert world.deleted == []
