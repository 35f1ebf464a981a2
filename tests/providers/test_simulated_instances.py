"""How the provider `simulated` answers for machines, against the real cloud process."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proreus.cloudprovider.config import read
from proreus.cloudprovider.errors import (
    CloudError,
    ConfigError,
    IdentityConflict,
    InvalidRequest,
    Throttled,
    Unauthenticated,
)
from proreus.cloudprovider.instances import Instance, Instances, InstanceState, NotFound, Ownership
from proreus.cloudprovider.routes import Route
from proreus.kube.objects import NodeAddress
from proreus.providers.simulated import SimulatedCloud
from proreus.providers.simulated.config import Global, SimulatedConfig
from proreus.testing.simulated import Fault, FaultMode, SimulatedCloudProcess
from proreus.testing.simulated import Instance as Machine

from .simulated_site import CLUSTER, Mortal, desired_lb, machines, node, node_of, provider


@pytest.fixture
async def instances(cloud: SimulatedCloudProcess) -> AsyncIterator[Instances]:
    started = await provider(cloud)
    assert started.instances is not None
    yield started.instances
    await started.close()


async def test_a_batch_costs_one_call_for_ids_and_names_together(
    cloud: SimulatedCloudProcess, instances: Instances
) -> None:
    first, second = await cloud.admin.create(machines(2))
    said = await instances.describe([node_of(first), node(second.name)])
    assert await cloud.admin.counts() == {"instances.batch_get": 1}
    assert said["node-1"] == Instance(
        provider_id=f"simulated://sim-1/{second.id}",
        name="node-1",
        instance_type="small",
        zone="zone-1",
        region="sim-1",
        addresses=tuple(NodeAddress(a.type, a.address) for a in second.addresses),
        additional_labels={"rack": "r1"},
        state=InstanceState.RUNNING,
    )
    assert isinstance(said["node-0"], Instance)


async def test_no_nodes_cost_no_call(cloud: SimulatedCloudProcess, instances: Instances) -> None:
    assert await instances.describe([]) == {}
    assert await cloud.admin.counts() == {}


async def test_absence_is_answered_only_for_what_the_cloud_calls_missing(
    cloud: SimulatedCloudProcess, instances: Instances
) -> None:
    here, gone = await cloud.admin.create(machines(2))
    await cloud.admin.delete(gone.id)
    nodes = [node_of(here), node_of(gone), node("nobody")]
    said = await instances.describe(nodes)
    assert (said["node-1"], said["nobody"]) == (NotFound(), NotFound())
    await cloud.admin.inject(Fault(mode=FaultMode.DROP))
    said = await instances.describe(nodes)
    assert "node-0" not in said, "a machine that an answer leaves out is unknown, not absent"


async def test_a_terminated_instance_is_a_tombstone_for_its_own_id_only(
    cloud: SimulatedCloudProcess, instances: Instances
) -> None:
    await cloud.admin.configure(tombstone=3600)
    (ended,) = await cloud.admin.create(machines(1))
    await cloud.admin.delete(ended.id)
    assert await instances.describe([node_of(ended)]) == {"node-0": NotFound(tombstone=True)}
    assert await instances.describe([node("node-0")]) == {"node-0": NotFound()}
    (again,) = await cloud.admin.create(machines(1))
    said = await instances.describe([node("node-0")])
    assert isinstance(said["node-0"], Instance)
    assert said["node-0"].provider_id.endswith(again.id)


@pytest.mark.parametrize(
    ("state", "seen"),
    [
        ("stopped", InstanceState.STOPPED),
        ("suspended", InstanceState.STOPPED),
        ("terminating", InstanceState.TERMINATING),
    ],
)
async def test_states_are_distinguished(
    cloud: SimulatedCloudProcess, instances: Instances, state: str, seen: InstanceState
) -> None:
    (one,) = await cloud.admin.create(machines(1))
    await cloud.admin.change(one.id, state=state)
    said = await instances.describe([node_of(one)])
    assert isinstance(said["node-0"], Instance)
    assert said["node-0"].state is seen
    assert said["node-0"].powered_off is (state == "stopped")


async def test_another_machine_under_the_same_name_is_a_conflict(
    cloud: SimulatedCloudProcess, instances: Instances
) -> None:
    (one,) = await cloud.admin.create(machines(1))
    said = await instances.describe([node("node-0", uuid="11111111-2222-3333-4444-555555555555")])
    assert isinstance(said["node-0"], IdentityConflict)
    assert one.system_uuid in str(said["node-0"])
    said = await instances.describe([node("node-0", uuid=one.system_uuid.upper())])
    assert isinstance(said["node-0"], Instance)


async def test_one_name_with_two_machines_is_settled_by_the_system_uuid(
    cloud: SimulatedCloudProcess, instances: Instances
) -> None:
    first, second = await cloud.admin.create([Machine(name="twin"), Machine(name="twin")])
    said = await instances.describe([node("twin")])
    assert isinstance(said["twin"], IdentityConflict)
    assert first.id in str(said["twin"])
    said = await instances.describe([node("twin", uuid=second.system_uuid)])
    assert isinstance(said["twin"], Instance)
    assert said["twin"].provider_id.endswith(second.id)


async def test_an_id_whose_machine_has_another_uuid_is_a_conflict(
    cloud: SimulatedCloudProcess, instances: Instances
) -> None:
    (one,) = await cloud.admin.create(machines(1))
    other = node("x", node_of(one).spec.provider_id, uuid="11111111-2222-3333-4444-555555555555")
    assert isinstance((await instances.describe([other]))["x"], IdentityConflict)


async def test_foreign_provider_ids_are_not_ours_and_cost_no_call(
    cloud: SimulatedCloudProcess, instances: Instances
) -> None:
    foreign = node("a", "aws:///eu-1/i-1")
    elsewhere = node("b", "simulated://sim-2/i-000000000000")
    assert instances.owns(foreign) is Ownership.NO
    assert instances.owns(elsewhere) is Ownership.NO
    assert instances.owns(node("c")) is Ownership.UNKNOWN
    assert instances.owns(node("d", "simulated://sim-1/i-000000000000")) is Ownership.YES
    nothing = node("e", "simulated://sim-1/")
    assert instances.owns(nothing) is Ownership.NO
    said = await instances.describe([foreign, elsewhere, nothing])
    assert {type(answer) for answer in said.values()} == {InvalidRequest}
    assert await cloud.admin.counts() == {}


async def test_a_malformed_id_fails_the_batch_as_the_cloud_does(
    cloud: SimulatedCloudProcess, instances: Instances
) -> None:
    (one,) = await cloud.admin.create(machines(1))
    bad = node("bad", "simulated://sim-1/oops")
    with pytest.raises(CloudError, match="oops"):
        await instances.describe([node_of(one), bad])


async def test_throttling_carries_the_time_to_wait(
    cloud: SimulatedCloudProcess, instances: Instances
) -> None:
    await cloud.admin.inject(Fault(mode=FaultMode.THROTTLE, retry_after=60))
    with pytest.raises(Throttled) as caught:
        await instances.describe([node("a")])
    assert caught.value.after == 60


@pytest.mark.parametrize("mode", [FaultMode.CUT_BEFORE, FaultMode.GARBAGE, FaultMode.ERROR])
async def test_a_broken_answer_is_an_error_of_the_batch(
    cloud: SimulatedCloudProcess, instances: Instances, mode: FaultMode
) -> None:
    await cloud.admin.inject(Fault(mode=mode))
    with pytest.raises(CloudError):
        await instances.describe([node("a")])
    assert await instances.describe([node("a")]) == {"a": NotFound()}


async def test_a_cloud_that_never_answers_ends_in_a_timeout(cloud: SimulatedCloudProcess) -> None:
    started = await provider(cloud, timeout=0.1)
    assert started.instances is not None
    await cloud.admin.inject(Fault(mode=FaultMode.HANG))
    with pytest.raises(CloudError):
        await started.instances.describe([node("a")])
    await started.close()


async def test_a_wrong_token_reports_it_without_showing_it(cloud: SimulatedCloudProcess) -> None:
    started = await provider(cloud, token="not-the-token")
    assert started.instances is not None
    with pytest.raises(Unauthenticated) as caught:
        await started.instances.describe([node("a")])
    assert "not-the-token" not in str(caught.value)
    await started.close()


async def test_every_request_goes_through_the_context(cloud: SimulatedCloudProcess) -> None:
    seen = Mortal()
    started = await provider(cloud, seen)
    assert started.instances is not None
    assert started.load_balancers is not None
    assert started.routes is not None
    created = await cloud.admin.create(machines(2))
    await started.instances.describe([node("a")])
    await started.load_balancers.ensure([desired_lb(created)])
    await started.load_balancers.update_hosts([desired_lb(created[:1])])
    await started.load_balancers.list_owned(CLUSTER)
    await started.load_balancers.delete([desired_lb().ref])
    route = Route("r", "10.1.0.0/24", f"simulated://sim-1/{created[0].id}")
    await started.routes.apply(CLUSTER, (), [route], ())
    await started.routes.apply(CLUSTER, (), (), [route])
    assert Counter(seen.calls) == await cloud.admin.counts()
    assert len(set(seen.calls)) >= 12
    await started.close()


def test_every_problem_of_the_config_is_named() -> None:
    text = '[Global]\nendpoint = nowhere\nregion = ""\nbatch-size = 0\ntimeout = 0\n'
    with pytest.raises(ConfigError) as caught:
        read(text, SimulatedConfig, source="cloud.conf")
    for word in ("endpoint", "region", "token-file", "batch-size", "timeout"):
        assert word in str(caught.value)
    assert len(caught.value.problems) == 5
    with pytest.raises(ConfigError, match="cloud-config"):
        SimulatedCloud(None)


async def test_a_config_file_with_a_token_file_is_all_it_takes(
    cloud: SimulatedCloudProcess, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(f"{cloud.token}\n")
    text = f"[global]\nEndpoint={cloud.endpoint}\nRegion=sim-1\nToken-File={token_file}\n"
    config = read(text, SimulatedConfig, source="cloud.conf")
    assert config == SimulatedConfig(
        Global(endpoint=cloud.endpoint, region="sim-1", token_file=str(token_file))
    )
    started = await provider(cloud, token="", token_file=str(token_file))
    assert started.instances is not None
    assert await started.instances.describe([node("a")]) == {"a": NotFound()}
    await started.close()


def test_the_token_is_not_shown() -> None:
    assert "hush" not in repr(
        SimulatedConfig(Global(endpoint="http://x", region="r", token="hush"))
    )
