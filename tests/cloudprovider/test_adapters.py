"""Adapters for clouds that know one thing at a time."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence

import pytest

from proreus.cloudprovider import (
    CloudError,
    ClusterIdentity,
    Done,
    Ensured,
    HostPolicy,
    IdentityConflict,
    Instance,
    InstanceAnswer,
    InvalidRequest,
    LoadBalancer,
    LoadBalancerRef,
    NotFound,
    NotSupported,
    OwnedObject,
    Ownership,
    Pending,
    Route,
    Throttled,
    in_bulk,
    per_node,
    per_route,
    per_service,
)
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.kube.objects import (
    LoadBalancerIngress,
    Node,
)
from proreus.testing import clock
from proreus.testing.objects import node, service

CLUSTER = ClusterIdentity("prod", "uid")


def desired(uid: str) -> LoadBalancer:
    return desired_load_balancer(service(f"s-{uid}", uid=uid), [], HostPolicy(), CLUSTER)


def no_id(provider_id: str) -> None:
    raise AssertionError(provider_id)


async def by_no_id(id_: str) -> InstanceAnswer:
    raise AssertionError(id_)


async def test_each_node_gets_its_own_answer_and_a_failing_one_costs_only_itself() -> None:
    throttled = Throttled("slow down", after=3)

    async def look_up(found: Node) -> InstanceAnswer:
        match found.metadata.name:
            case "gone":
                return NotFound()
            case "slow":
                raise throttled
            case "odd":
                raise KeyError("secret=hunter2")
            case "exits":
                raise SystemExit(3)
            case "stray":
                raise asyncio.CancelledError
            case name:
                return Instance(provider_id=f"x://{name}")

    instances = per_node(
        by_no_id, look_up, parse=no_id, owns=lambda _: Ownership.YES, batch_size=7, concurrency=1
    )
    answers = await instances.describe(
        [node(name) for name in ("a", "gone", "slow", "odd", "exits", "stray", "b")]
    )
    odd = answers["odd"]
    assert answers == {
        "a": Instance(provider_id="x://a"),
        "gone": NotFound(),
        "slow": throttled,
        "odd": odd,
        "exits": answers["exits"],
        "b": Instance(provider_id="x://b"),
    }
    assert isinstance(odd, CloudError)
    assert str(odd) == "unexpected KeyError"
    assert isinstance(odd.__cause__, KeyError)
    assert str(answers["exits"]) == "unexpected SystemExit"
    assert instances.batch_size == 7
    assert instances.owns(node("a")) is Ownership.YES


@pytest.mark.parametrize("said", [None, ""])
async def test_a_provider_id_that_cannot_be_read_is_never_looked_up(said: str | None) -> None:
    async def by_id(id_: str) -> InstanceAnswer:
        return Instance(provider_id=f"x://{id_}")

    async def by_name(found: Node) -> InstanceAnswer:
        return NotFound()

    def parse(provider_id: str) -> str | None:
        return said if provider_id == "x://" else provider_id.removeprefix("x://")

    new, known, unreadable = node("new"), node("known", "x://1"), node("unreadable", "x://")
    instances = per_node(by_id, by_name, parse=parse)
    answers = await instances.describe([new, known, unreadable])
    assert answers["new"] == NotFound()
    assert answers["known"] == Instance(provider_id="x://1")
    assert isinstance(answers["unreadable"], InvalidRequest)
    owned = [instances.owns(one) for one in (new, known, unreadable)]
    assert owned == [Ownership.UNKNOWN, Ownership.YES, Ownership.NO]


@pytest.mark.parametrize(("concurrency", "seconds"), [(1, 10), (3, 4), (10, 1), (50, 1)])
def test_nodes_are_looked_up_side_by_side_up_to_the_limit(concurrency: int, seconds: int) -> None:
    async def scenario() -> tuple[float, int]:
        running = most = 0

        async def look_up(_: Node) -> InstanceAnswer:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(1)
            running -= 1
            return NotFound()

        instances = per_node(by_no_id, look_up, parse=no_id, concurrency=concurrency)
        await instances.describe([node(str(number)) for number in range(10)])
        return asyncio.get_running_loop().time(), most

    took, most = clock.run(scenario())
    assert took == pytest.approx(seconds)
    assert most == min(concurrency, 10)


async def test_cancelling_a_batch_cancels_its_items() -> None:
    cancelled: list[str] = []

    async def look_up(found: Node) -> InstanceAnswer:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(found.metadata.name)
            raise
        return NotFound()

    instances = per_node(by_no_id, look_up, parse=no_id)
    batch = asyncio.create_task(instances.describe([node("a"), node("b")]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch
    assert sorted(cancelled) == ["a", "b"]


async def ensure(lb: LoadBalancer) -> Ensured | Pending:
    if lb.ref.uid == "bad":
        raise CloudError("no room")
    if lb.ref.uid == "slow":
        return Pending(after=5, reason="Building")
    return Ensured(ingress=(LoadBalancerIngress(ip="192.0.2.1"),))


async def delete(gone: LoadBalancerRef) -> Done:
    if gone.uid == "bad":
        raise CloudError("in use")
    return Done()


async def test_each_service_gets_its_own_answer() -> None:
    load_balancers = per_service(ensure, delete)
    balancers = [desired("bad"), desired("good"), desired("slow")]
    for answers in (
        await load_balancers.ensure(balancers),
        await load_balancers.update_hosts(balancers),
    ):
        assert str(answers["bad"]) == "no room"
        assert answers["good"] == Ensured(ingress=(LoadBalancerIngress(ip="192.0.2.1"),))
        assert answers["slow"] == Pending(after=5, reason="Building")
    gone = await load_balancers.delete([lb.ref for lb in balancers])
    assert str(gone["bad"]) == "in use"
    assert (gone["good"], gone["slow"]) == (Done(), Done())


async def test_the_defaults_share_nothing_choose_every_node_and_list_nothing() -> None:
    load_balancers = per_service(ensure, delete)
    lb = desired("good")
    assert load_balancers.group(lb.ref) == "good"
    assert load_balancers.host_policy(lb.service) == HostPolicy()
    with pytest.raises(NotSupported):
        await load_balancers.list_owned(CLUSTER)


async def test_everything_but_ensure_and_delete_may_be_given() -> None:
    owned = [OwnedObject(kind="pool", id="1")]

    async def update(lb: LoadBalancer) -> Ensured:
        return Ensured(annotations={"updated": lb.ref.uid})

    async def list_owned(_: ClusterIdentity) -> list[OwnedObject]:
        return owned

    policy = HostPolicy(families=("IPv4",))
    load_balancers = per_service(
        ensure,
        delete,
        update_hosts=update,
        group=lambda _: "all",
        host_policy=lambda _: policy,
        list_owned=list_owned,
    )
    lb = desired("good")
    assert load_balancers.group(lb.ref) == "all"
    assert load_balancers.host_policy(lb.service) == policy
    assert await load_balancers.list_owned(CLUSTER) == owned
    assert await load_balancers.update_hosts([lb]) == {
        "good": Ensured(annotations={"updated": "good"})
    }


# Many machines a call


class Machines:
    """Shows machines, and keeps what it was asked about."""

    def __init__(self, *found: Instance) -> None:
        self.found = found
        self.asked: list[tuple[list[str], list[str]]] = []

    async def search(self, ids: Sequence[str], names: Sequence[str]) -> Iterable[Instance]:
        self.asked.append((list(ids), list(names)))
        return iter(self.found)

    def describe(self, *nodes: Node) -> Awaitable[Mapping[str, InstanceAnswer]]:
        return in_bulk(self.search, parse=digits, batch_size=7).describe(nodes)


def digits(provider_id: str) -> str | None:
    found = provider_id.removeprefix("x://")
    return found if found.isdigit() else None


async def test_machines_of_a_batch_are_distinguished_by_id_and_by_name_without_one() -> None:
    one, two = Instance("x://1", name="a"), Instance("x://2", name="renamed")
    machines = Machines(one, two)
    # What has an id is never known by its name, and a name is not one that another machine has.
    answers = await machines.describe(
        node("a"), node("b", "x://2"), node("renamed", "x://3"), node("new"), node("odd", "x://")
    )
    odd = answers["odd"]
    assert isinstance(odd, InvalidRequest)
    assert answers == {
        "a": one, "b": two, "renamed": NotFound(), "new": NotFound(), "odd": odd,
    }  # fmt: skip
    assert machines.asked == [(["2", "3"], ["a", "new"])]


async def test_several_machines_for_one_node_are_a_conflict() -> None:
    answers = await Machines(Instance("x://1", name="a"), Instance("x://2", name="a")).describe(
        node("a"), node("b", "x://2")
    )
    assert isinstance(answers["a"], IdentityConflict)
    assert "x://1, x://2" in str(answers["a"])
    assert answers["b"] == Instance("x://2", name="a")


async def test_a_search_for_nothing_is_not_made_and_a_failed_one_fails_the_batch() -> None:
    machines = Machines()
    assert list(await machines.describe(node("odd", "y://1"))) == ["odd"]
    assert machines.asked == []

    async def fails(ids: Sequence[str], names: Sequence[str]) -> Iterable[Instance]:
        raise CloudError("down")

    instances = in_bulk(fails, parse=digits, batch_size=7)
    with pytest.raises(CloudError, match="down"):
        await instances.describe([node("a"), node("odd", "y://1")])
    owned = [instances.owns(node("n", id_)) for id_ in ("", "x://1", "y://1")]
    assert owned == [Ownership.UNKNOWN, Ownership.YES, Ownership.NO]
    assert instances.batch_size == 7


# One route a call


async def test_each_route_gets_its_own_answer_and_goes_before_others_come() -> None:
    changes: list[str] = []

    async def list_routes(cluster: ClusterIdentity) -> Sequence[Route]:
        return [Route(cluster.name, "10.0.0.0/24")]

    async def create(cluster: ClusterIdentity, route: Route) -> None:
        if route.name == "bad":
            raise Throttled("slow down")
        if route.name == "odd":
            raise KeyError("secret=hunter2")
        changes.append(f"create {cluster.uid}/{route.name}")

    async def delete(cluster: ClusterIdentity, route: Route) -> None:
        changes.append(f"delete {cluster.uid}/{route.name}")

    routes = per_route(list_routes, create, delete)
    assert await routes.list(CLUSTER, []) == [Route("prod", "10.0.0.0/24")]
    old, bad, odd, new = (Route(name, "10.0.0.0/24") for name in ("old", "bad", "odd", "new"))
    answers = await routes.apply(CLUSTER, [], [bad, odd, new], [old])
    assert changes == ["delete uid/old", "create uid/new"]
    assert (answers[old], answers[new]) == (Done(), Done())
    assert isinstance(answers[bad], Throttled)
    assert str(answers[odd]) == "unexpected KeyError"
