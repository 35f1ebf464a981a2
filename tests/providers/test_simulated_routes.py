"""Routes of the provider `simulated`."""

from collections.abc import AsyncIterator

import pytest

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import Done
from proreus.cloudprovider.routes import Route, Routes
from proreus.testing.simulated import Fault, FaultMode, SimulatedCloudProcess

from .simulated_site import CLUSTER, machines, provider

OTHER = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-000000000002")


@pytest.fixture
async def routes(cloud: SimulatedCloudProcess) -> AsyncIterator[Routes]:
    started = await provider(cloud)
    assert started.routes is not None
    yield started.routes
    await started.close()


async def some_routes(cloud: SimulatedCloudProcess, count: int) -> list[Route]:
    created = await cloud.admin.create(machines(count))
    return [
        Route(f"r{n}", f"10.{n}.0.0/24", f"simulated://sim-1/{one.id}")
        for n, one in enumerate(created)
    ]


async def test_created_routes_are_listed_and_deleted_ones_are_not(
    cloud: SimulatedCloudProcess, routes: Routes
) -> None:
    first, second = desired = await some_routes(cloud, 2)
    assert await routes.apply(CLUSTER, (), desired, ()) == {first: Done(), second: Done()}
    assert set(await routes.list(CLUSTER, ())) == {first, second}
    assert await routes.apply(CLUSTER, (), (), [first]) == {first: Done()}
    assert await routes.list(CLUSTER, ()) == [second]
    assert await routes.apply(CLUSTER, (), (), [first]) == {first: Done()}


async def test_routes_of_another_cluster_of_the_same_name_are_not_seen(
    cloud: SimulatedCloudProcess, routes: Routes
) -> None:
    desired = await some_routes(cloud, 1)
    await routes.apply(OTHER, (), desired, ())
    assert await routes.list(CLUSTER, ()) == []
    await routes.apply(CLUSTER, (), (), desired)
    assert len(await cloud.admin.parts("route")) == 1


async def test_a_route_to_a_machine_that_is_gone_is_a_blackhole(
    cloud: SimulatedCloudProcess, routes: Routes
) -> None:
    (desired,) = await some_routes(cloud, 1)
    await routes.apply(CLUSTER, (), [desired], ())
    assert desired.target is not None
    await cloud.admin.delete(desired.target.rpartition("/")[2])
    (seen,) = await routes.list(CLUSTER, ())
    assert seen.blackhole
    assert seen.destination == desired.destination


async def test_room_is_made_before_routes_are_created_in_a_full_table(
    cloud: SimulatedCloudProcess, routes: Routes
) -> None:
    await cloud.admin.configure(route_limit=1)
    first, second, third = await some_routes(cloud, 3)
    await routes.apply(CLUSTER, (), [first], ())
    said = await routes.apply(CLUSTER, (), [second], [first])
    assert said == {first: Done(), second: Done()}
    said = await routes.apply(CLUSTER, (), [third], ())
    assert isinstance(said[third], CloudError)
    assert "LimitExceeded" in str(said[third])


async def test_a_lost_answer_is_healed_by_asking_again(
    cloud: SimulatedCloudProcess, routes: Routes
) -> None:
    (desired,) = await some_routes(cloud, 1)
    await cloud.admin.inject(Fault(mode=FaultMode.CUT_AFTER, operation="routes.create"))
    assert isinstance((await routes.apply(CLUSTER, (), [desired], ()))[desired], CloudError)
    assert await routes.apply(CLUSTER, (), [desired], ()) == {desired: Done()}
    assert len(await cloud.admin.parts("route")) == 1


async def test_a_target_that_is_no_instance_of_ours_is_refused_without_a_call(
    cloud: SimulatedCloudProcess, routes: Routes
) -> None:
    stray = Route("r", "10.0.0.0/24", "10.1.1.1")
    said = await routes.apply(CLUSTER, (), [stray], ())
    assert isinstance(said[stray], InvalidRequest)
    assert await cloud.admin.counts() == {}


async def test_a_route_is_replaced_in_one_call_and_was_never_gone(
    cloud: SimulatedCloudProcess, routes: Routes
) -> None:
    old, other = await some_routes(cloud, 2)
    await routes.apply(CLUSTER, (), [old], ())
    (before,) = await cloud.admin.parts("route")
    listed = await routes.list(CLUSTER, ())
    await cloud.admin.clear_calls()
    new = Route("new", old.destination, other.target)

    assert await routes.apply(CLUSTER, (), [new], listed) == {new: Done(), old: Done()}

    assert await cloud.admin.counts() == {"routes.update": 1}
    (after,) = await cloud.admin.parts("route")
    assert after["id"] == before["id"]
    assert f"simulated://sim-1/{after['instance_id']}" == other.target


async def test_a_route_stays_when_it_cannot_be_replaced(
    cloud: SimulatedCloudProcess, routes: Routes
) -> None:
    old, other = await some_routes(cloud, 2)
    await routes.apply(CLUSTER, (), [old], ())
    assert other.target is not None
    await cloud.admin.delete(other.target.rpartition("/")[2])

    for target in (other.target, "elsewhere://1"):
        new = Route("new", old.destination, target)
        said = await routes.apply(CLUSTER, (), [new], [old])
        assert all(isinstance(answer, CloudError) for answer in said.values())
        assert said.keys() == {new, old}

    assert await routes.list(CLUSTER, ()) == [old]


async def test_what_was_listed_is_deleted_without_another_listing(
    cloud: SimulatedCloudProcess, routes: Routes
) -> None:
    await routes.apply(CLUSTER, (), await some_routes(cloud, 3), ())
    listed = await routes.list(CLUSTER, ())
    await cloud.admin.clear_calls()
    said = await routes.apply(CLUSTER, (), (), listed[:2])
    assert list(said.values()) == [Done(), Done()]
    assert await cloud.admin.counts() == {"routes.delete": 2}
    assert await routes.list(CLUSTER, ()) == listed[2:]


async def test_a_token_that_finds_a_route_which_leads_elsewhere_by_now_is_an_error(
    cloud: SimulatedCloudProcess, routes: Routes
) -> None:
    old, other = await some_routes(cloud, 2)
    new = Route("new", old.destination, other.target)
    await routes.apply(CLUSTER, (), [old], ())
    await routes.apply(CLUSTER, (), [new], [old])
    said = await routes.apply(CLUSTER, (), [old], ())
    assert "leads to another instance" in str(said[old])
