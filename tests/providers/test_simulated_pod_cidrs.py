"""Pod CIDRs of the provider `simulated`."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from proreus.cloudprovider import PodCIDRs
from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.testing.simulated import SimulatedCloudProcess

from .simulated_site import machines, node, node_of, provider

BLOCKS = ("10.0.0.0/24", "fd00::/64")


@pytest.fixture
async def pod_cidrs(cloud: SimulatedCloudProcess) -> AsyncIterator[PodCIDRs]:
    started = await provider(cloud, batch_size=2)
    assert started.pod_cidrs is not None
    yield started.pod_cidrs
    await started.close()


async def test_assigned_blocks_are_described_until_they_are_released(
    cloud: SimulatedCloudProcess, pod_cidrs: PodCIDRs
) -> None:
    a, b = map(node_of, await cloud.admin.create(machines(2)))
    await pod_cidrs.assign(a, BLOCKS)
    await pod_cidrs.assign(a, BLOCKS)
    assert await pod_cidrs.describe([a, b]) == {a.metadata.name: BLOCKS, b.metadata.name: ()}
    with pytest.raises(CloudError, match="Conflict"):
        await pod_cidrs.assign(b, BLOCKS[:1])
    await pod_cidrs.release(a, BLOCKS)
    await pod_cidrs.assign(b, BLOCKS)
    assert await pod_cidrs.describe([a, b]) == {a.metadata.name: (), b.metadata.name: BLOCKS}


async def test_nodes_are_asked_about_in_batches_and_the_unknown_are_left_out(
    cloud: SimulatedCloudProcess, pod_cidrs: PodCIDRs
) -> None:
    nodes = [node_of(one) for one in await cloud.admin.create(machines(3))]
    strangers = [
        node("no-machine"),
        node("elsewhere", "other://x"),
        node("gone", "simulated://sim-1/i-000000000000"),
    ]
    found = await pod_cidrs.describe([*nodes, *strangers])
    assert found == {one.metadata.name: () for one in nodes}
    assert await cloud.admin.counts() == Counter({"instances.batch_get": 2})


async def test_a_machine_that_is_gone_has_nothing_to_release(
    cloud: SimulatedCloudProcess, pod_cidrs: PodCIDRs
) -> None:
    (machine,) = await cloud.admin.create(machines(1))
    await cloud.admin.delete(machine.id)
    await pod_cidrs.release(node_of(machine), BLOCKS)
    await pod_cidrs.release(node("elsewhere", "other://x"), BLOCKS)


async def test_blocks_go_only_to_machines_of_this_cloud(pod_cidrs: PodCIDRs) -> None:
    with pytest.raises(InvalidRequest, match="other://x"):
        await pod_cidrs.assign(node("elsewhere", "other://x"), BLOCKS)


async def test_a_refused_release_is_an_error(
    cloud: SimulatedCloudProcess, pod_cidrs: PodCIDRs
) -> None:
    (machine,) = await cloud.admin.create(machines(1))
    with pytest.raises(CloudError, match="malformed pod CIDR"):
        await pod_cidrs.release(node_of(machine), ("nonsense",))
