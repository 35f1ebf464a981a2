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
    first, second = wanted = await some_routes(cloud, 2)
    assert await routes.apply(CLUSTER, (), wanted, ()) == {first: Done(), second: Done()}
    assert set(await routes.list(CLUSTER, ())) == {first, second}
    assert await routes.apply(CLUSTER, (), (), [first]) == {first: Done()}
    assert await routes.list(CLUSTER, ()) == [second]
    assert await routes.apply(CLUSTER, (), (), [first]) == {first: Done()}


async def test_routes_of_another_cluster_of_the_same_name_are_not_seen(
    cloud: SimulatedCloudProcess, routes: Routes
) -> None:
    wanted = await some_routes(cloud, 1)
    await routes.apply(OTHER, (), wanted, ())
    assert await routes.list(CLUSTER, ()) == []
    await routes.apply(CLUSTER, (), (), wanted)
    assert len(await cloud.admin.parts("route")) == 1


async def test_a_route_to_a_machine_that_is_gone_is_a_blackhole(
    cloud: SimulatedCloudProcess, routes: Routes
) -> None:
    (wanted,) = await some_routes(cloud, 1)
    await routes.apply(CLUSTER, (), [wanted], ())
    assert wanted.target is not None
    await cloud.admin.delete(wanted.target.rpartition("/")[2])
    (seen,) = await routes.list(CLUSTER, ())
    assert seen.blackhole
    assert seen.destination == wanted.destination


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
    (wanted,) = await some_routes(cloud, 1)
    await cloud.admin.inject(Fault(mode=FaultMode.CUT_AFTER, operation="routes.create"))
    assert isinstance((await routes.apply(CLUSTER, (), [wanted], ()))[wanted], CloudError)
    assert await routes.apply(CLUSTER, (), [wanted], ()) == {wanted: Done()}
    assert len(await cloud.admin.parts("route")) == 1


async def test_a_target_that_is_no_instance_of_ours_is_refused_without_a_call(
    cloud: SimulatedCloudProcess, routes: Routes
) -> None:
    stray = Route("r", "10.0.0.0/24", "10.1.1.1")
    said = await routes.apply(CLUSTER, (), [stray], ())
    assert isinstance(said[stray], InvalidRequest)
    assert await cloud.admin.counts() == {}
