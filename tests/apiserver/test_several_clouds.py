"""One manager of two clouds: each has its nodes and Services, and nothing of the other's."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from proreus.kube.objects import Node, condition
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES, PERSISTENT_VOLUMES, SERVICES
from proreus.testing import programs
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Fault, FaultMode, Volume
from proreus.testing.waiting import until

from .clouds_site import CloudsSite, two_clouds
from .read_only import reader
from .site import CONDITION
from .webhook_site import LABELLING, WebhookSite, cleared

DELETES_SOON = (
    "--node-monitor-period=0.3s",
    "--node-deletion-interval=0.5s",
    "--node-startup-grace=0s",
)
DESCRIBE = "instances.batch_get"
SOONER = 20.0
"""Seconds after which a call that hangs has not ended yet."""


@pytest.fixture
async def site(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[CloudsSite]:
    async with two_clouds(control_plane, tmp_path) as site:
        yield site


def region_of(node: Node) -> str:
    return node.spec.provider_id.removeprefix("simulated://").partition("/")[0]


async def test_each_node_is_initialised_by_its_own_cloud_and_says_which_that_is(
    site: CloudsSite,
) -> None:
    await site.join_with_id("east", "e1", "e2")
    await site.join_with_id("west", "w1")
    await site.join("east", "e3")  # without a provider id both clouds are asked
    await site.join("west", "w3")
    async with site.manager():
        nodes = await site.base.initialised("e1", "e2", "e3", "w1", "w3")
    assert {name: region_of(node) for name, node in nodes.items()} == {
        "e1": "east", "e2": "east", "e3": "east", "w1": "west", "w3": "west",
    }  # fmt: skip
    assert [await site.cloud_of(name) for name in ("e1", "e3", "w1", "w3")] == [
        "east", "east", "west", "west",
    ]  # fmt: skip


async def test_a_label_decides_without_a_question_to_the_other_cloud(site: CloudsSite) -> None:
    (machine,) = await site.machines("west", "w1")
    await site.base.register([machine])
    await label(site, "w1", "west")
    async with site.manager():
        nodes = await site.base.initialised("w1")
    assert region_of(nodes["w1"]) == "west"
    assert await site.calls("east", [DESCRIBE]) == []


async def label(site: CloudsSite, name: str, cloud: str | None) -> None:
    body = {"metadata": {"labels": {"proreus.io/cloud": cloud}}}
    await site.client.patch(NODES, name, Patch(PatchType.MERGE, body))


async def test_a_name_that_both_clouds_know_is_an_error_until_a_label_settles_it(
    site: CloudsSite,
) -> None:
    (machine,) = await site.join("east", "twin")
    await site.machines("west", "twin", system_uuid=machine.system_uuid)
    async with site.manager():
        state = await site.base.cloud_condition("twin", "IdentityConflict")
        assert "east and west both" in state.message
        await label(site, "twin", "east")
        nodes = await site.base.initialised("twin")
    assert region_of(nodes["twin"]) == "east"


async def test_a_provider_id_that_both_clouds_own_is_an_error_and_nothing_is_done(
    site: CloudsSite,
) -> None:
    """Both are configured with one region: what would be gone for one is there for the other."""
    await site.join_with_id("east", "e1", "e2", "e3")
    config = site.configs(region="east")
    async with site.manager(*DELETES_SOON, config=config) as manager:
        state = await site.base.cloud_condition("e1", "IdentityConflict")
        assert "east and west both own" in state.message
        await site.base.silence("e2")
        await asyncio.sleep(3)
        assert (await site.base.existing("e2")).metadata.labels.get("proreus.io/cloud") is None
        for name in ("e1", "e2", "e3"):
            await label(site, name, "east")
        await site.base.initialised("e1", "e2", "e3")
        assert manager.is_running


@pytest.mark.parametrize("clouds", ["east=simulated", "simulated"])
async def test_nodes_of_a_cloud_that_the_manager_has_no_more_are_not_deleted(
    site: CloudsSite, clouds: str
) -> None:
    """West is taken out of the flags while it is repaired; east has ids of the same form."""
    east = await site.join_with_id("east", "e1", "e2", "e3", "e4")
    (west,) = await site.machines("west", "w1", region="east")
    await site.base.register_node(west, ready=True, providerID=f"simulated://east/{west.id}")
    both = {"e1": "east", "e2": "east", "e3": "east", "e4": "east", "w1": "west"}
    for name, cloud in both.items():
        await label(site, name, cloud)
    async with site.manager(config=site.configs(region="east")):
        await site.base.initialised(*both)
    await site.base.silence("w1", "e4")
    await site.clouds["east"].admin.delete(east[3].id)
    config = f"east={site.config('east')}" if "=" in clouds else site.config("east")
    async with site.manager(*DELETES_SOON, clouds=clouds, config=config):
        state = await site.base.cloud_condition("w1", "IdentityConflict")
        assert "proreus.io/cloud names 'west'" in state.message
        if "=" not in clouds:  # the cloud without a name is not known to be east
            await site.base.cloud_condition("e4", "IdentityConflict")
            await label(site, "e4", None)
        await site.base.gone("e4")
        await asyncio.sleep(2)
        assert (await site.base.nodes()).keys() == {"e1", "e2", "e3", "w1"}


async def test_nodes_of_a_cloud_whose_config_leaves_its_machines_out_are_not_deleted(
    site: CloudsSite,
) -> None:
    """Both have ids of one form, and only one of them is asked about machines from then on."""
    inventories = {"east": ["e1", "e2", "e3", "e4"], "west": ["w1"]}
    machines = {name: cloud for cloud, names in inventories.items() for name in names}
    for name, cloud in machines.items():
        (machine,) = await site.machines("east", name)
        await site.base.register_node(machine, ready=True, providerID=f"local://{name}")
        await label(site, name, cloud)
    config = local_configs(site, inventories)
    async with site.manager(clouds="east=local,west=local", config=config):
        await site.base.initialised(*machines)
    await site.base.silence("w1", "e4")
    inventories["east"].remove("e4")
    config = local_configs(site, inventories, off=("west",))
    async with site.manager(*DELETES_SOON, clouds="east=local,west=local", config=config):
        await site.base.gone("e4")
        await asyncio.sleep(2)
        assert (await site.base.nodes()).keys() == {"e1", "e2", "e3", "w1"}
        state = await site.base.cloud_condition("w1", "IdentityConflict")
        assert "proreus.io/cloud names 'west', whose cloud-config" in state.message


def local_configs(
    site: CloudsSite, inventories: Mapping[str, Sequence[str]], off: Sequence[str] = ()
) -> str:
    """Write cloud-configs of two clouds `local`; those in `off` have no machines."""
    found = []
    for cloud, names in inventories.items():
        inventory, file = site.directory / f"{cloud}.machines", site.directory / f"{cloud}.yaml"
        inventory.write_text(json.dumps({"machines": [{"name": name} for name in names]}))
        instances = {"enabled": False} if cloud in off else {"inventory": str(inventory)}
        file.write_text(json.dumps({"instances": instances, "routes": {"enabled": False}}))
        found.append(f"{cloud}={file}")
    return ",".join(found)


@pytest.mark.long
async def test_a_machine_that_is_gone_takes_its_node_along_in_either_cloud(
    site: CloudsSite,
) -> None:
    east = await site.join_with_id("east", "e1", "e2", "e3")
    west = await site.join_with_id("west", "w1", "w2", "w3")
    async with site.manager(*DELETES_SOON):
        await site.base.initialised()
        await site.clouds["east"].admin.delete(east[0].id)
        await site.clouds["west"].admin.delete(west[0].id)
        await site.base.silence("e1", "w1")
        await site.base.gone("e1", "w1")
    assert (await site.base.nodes()).keys() == {"e2", "e3", "w2", "w3"}


@pytest.mark.parametrize(
    "mode",
    [
        FaultMode.HANG,
        *(
            pytest.param(mode, marks=pytest.mark.long)
            for mode in (
                FaultMode.ERROR, FaultMode.MISSING, FaultMode.THROTTLE, FaultMode.CUT_BEFORE,
                FaultMode.CUT_AFTER, FaultMode.GARBAGE, FaultMode.DROP,
            )
        ),
    ],
)  # fmt: skip
async def test_whatever_is_wrong_with_one_cloud_the_other_goes_on(
    site: CloudsSite, mode: FaultMode
) -> None:
    """Nodes join, lose their machines and are deleted; Services come and go."""
    machines = await site.join_with_id("east", "e1", "e2", "e3")
    await site.join_with_id("west", "w1", "w2", "w3")
    async with site.manager(*DELETES_SOON) as manager:
        await site.base.initialised()
        await site.clouds["west"].admin.inject(Fault(mode, count=0))
        for name in ("w1", "w2"):
            await site.base.silence(name)
        await site.join_with_id("west", "late")
        for number in range(70):  # more than there are slots
            await site.service(f"west-{number}", "west")
        await site.join_with_id("east", "e4")
        await asyncio.wait_for(site.base.initialised("e4"), SOONER)
        await site.service("web", "east")
        await asyncio.wait_for(site.balanced("web"), SOONER)
        await site.clouds["east"].admin.delete(machines[0].id)
        await site.base.silence("e1")
        await asyncio.wait_for(site.base.gone("e1"), SOONER)
        await site.client.delete(SERVICES, "web", "default")
        await until("its load balancer is gone", lambda: no_parts(site, "east"))
        nodes = await site.base.nodes()
        assert {"w1", "w2", "w3"} <= nodes.keys()
        await manager.kill()  # what hangs there would keep it from ending
    assert {call.operation for call in await site.calls("east") if call.status != 200} <= {
        "addresses.create", "load_balancers.create", "listeners.create", "firewalls.create",
    }  # fmt: skip


@pytest.mark.parametrize("mode", [FaultMode.HANG, FaultMode.ERROR])
async def test_a_failing_cloud_costs_the_other_no_call_and_its_nodes_no_write(
    site: CloudsSite, mode: FaultMode
) -> None:
    await site.join_with_id("east", "e1", "e2", "e3")
    await site.join_with_id("west", "w1", "w2", "w3")
    async with site.manager(*DELETES_SOON) as manager:
        await site.base.initialised()
        await site.base.quiet(lambda: len(site.base.writes()))
        before, writes = await site.calls("east"), len(site.base.writes())
        await site.clouds["west"].admin.inject(Fault(mode, count=0))
        await site.base.silence("w1", "w2")
        await site.join_with_id("west", "late")
        await asyncio.sleep(5)
        assert await site.calls("east") == before
        written = {one.object_ref.name for one in site.base.writes()[writes:]}
        assert written <= {"late", "w1", "w2"}
        assert {"w1", "w2"} <= (await site.base.nodes()).keys()
        await manager.kill()


async def no_parts(site: CloudsSite, cloud: str) -> bool:
    return not await site.parts(cloud)


async def test_a_cloud_that_cannot_be_started_holds_up_only_what_may_be_its_own(
    site: CloudsSite,
) -> None:
    machines = await site.join_with_id("east", "e1", "e2", "e3")
    await site.join("east", "nameless")
    await site.base.register_node((await site.machines("west", "w1"))[0])
    config = site.configs(**{"token": "", "token-file": str(site.directory / "none")})
    async with site.manager(*DELETES_SOON, config=config):
        await site.base.initialised("e1", "e2", "e3")
        await site.clouds["east"].admin.delete(machines[0].id)
        await site.base.silence("e1")
        await site.base.gone("e1")
        state = await site.base.cloud_condition("nameless", "CloudUnavailable")
        assert "the cloud west" in state.message
        assert "has not started" in state.message


async def test_a_labelled_node_of_a_cloud_that_cannot_be_started_is_left_alone_by_others(
    site: CloudsSite,
) -> None:
    """East has a running machine of its id, such as a replica that is being tried out."""
    (own,) = await site.join_with_id("east", "e1")
    (west,) = await site.machines("west", "w1", region="east")
    await site.base.register_node(west, ready=True, providerID=f"simulated://east/{west.id}")
    await label(site, "e1", "east")
    await label(site, "w1", "west")
    async with site.manager(config=site.configs(region="east")):
        before = (await site.base.initialised())["w1"].status.addresses
    twin = {"id": west.id, "system_uuid": west.system_uuid}
    await site.machines("east", "w1", **twin)
    broken = {"region": "east", "token": "", "token-file": str(site.directory / "none")}
    async with site.manager(config=site.configs(**broken)):
        await site.service("web", "east")
        await site.balanced("web")
        (part,) = await site.clouds["east"].admin.parts("load_balancer")
        assert [one["instance_id"] for one in part["targets"]] == [own.id]
        await asyncio.sleep(2)
        assert (await site.base.existing("w1")).status.addresses == before


@pytest.mark.long
async def test_a_node_without_routes_says_so_though_another_cloud_leaves_it_alone(
    site: CloudsSite,
) -> None:
    for cloud, cidr in (("east", "10.128.1.0/24"), ("west", "10.128.2.0/24")):
        (machine,) = await site.machines(cloud, cloud)
        id_, spec = f"simulated://{cloud}/{machine.id}", {"podCIDR": cidr, "podCIDRs": [cidr]}
        await site.base.register_node(machine, ready=True, providerID=id_, **spec)
    refused = Fault(mode=FaultMode.ERROR, operation="routes.create", count=0, status=500)
    await site.clouds["west"].admin.inject(refused)

    async def network(name: str) -> str:
        found = condition((await site.base.existing(name)).status.conditions, "NetworkUnavailable")
        return found.status if found is not None else ""

    async def lacks() -> bool:
        return await network("west") == "True"

    flags = ("--cluster-cidr=10.128.0.0/16", "--allocate-node-cidrs=false")
    async with site.manager(*flags, "--route-reconciliation-period=1s"):
        await until("the node says that it has no routes", lacks)
        for _ in range(50):
            await asyncio.sleep(0.1)
            assert await network("west") == "True"
        assert await network("east") == "False"


async def test_services_go_to_the_cloud_that_class_annotation_or_default_name(
    site: CloudsSite,
) -> None:
    await site.join_one_each()
    flags = (
        "--load-balancer-cloud=west",
        "--load-balancer-classes=east=example.com/east,example.com/any",
    )
    async with site.manager(*flags):
        await site.base.initialised()
        await site.service("default")
        await site.service("named", "east")
        await site.service("classed", loadBalancerClass="example.com/east")
        await site.service("any", loadBalancerClass="example.com/any")
        await site.service("others", loadBalancerClass="example.com/another")
        for name in ("default", "named", "classed", "any"):
            await site.balanced(name)
        assert await site.parts("east") == ["classed", "named"]
        assert await site.parts("west") == ["any", "default"]
        others = await site.base.service("others")
        assert not others.metadata.finalizers


@pytest.mark.long
async def test_hosts_are_the_nodes_of_the_clouds_own(site: CloudsSite) -> None:
    await site.join_with_id("east", "e1", "e2")
    await site.join_with_id("west", "w1")
    async with site.manager():
        await site.base.initialised()
        await site.service("web", "east")
        await site.balanced("web")
        (part,) = await site.clouds["east"].admin.parts("load_balancer")
        machines = {one.id: one.name for one in await site.clouds["east"].admin.instances()}
        assert sorted(machines[one["instance_id"]] for one in part["targets"]) == ["e1", "e2"]


async def test_a_service_that_names_another_cloud_moves_and_leaves_nothing_behind(
    site: CloudsSite,
) -> None:
    await site.join_one_each()
    async with site.manager() as manager:
        await site.base.initialised()
        await site.service("web", "east")
        first = await site.balanced("web")
        await manager.kill()
        await site.annotate("web", cloud="west")
        await manager.start()
        await until("it has left", lambda: no_parts(site, "east"))
        await manager.kill()
        await manager.start()

        async def moved() -> bool:
            return await site.parts("east") == [] and await site.parts("west") == ["web"]

        await until("it has moved", moved)
        await until("its address is another", lambda: differs(site, first))
        assert in_use(await site.base.service("web")) == "west"
        await site.annotate("web", cloud="north")  # a mistake takes nothing away
        await asyncio.sleep(2)
        assert await site.parts("west") == ["web"]
        await site.client.delete(SERVICES, "web", "default")
        await until("nothing is left", lambda: no_parts(site, "west"))


async def test_a_service_keeps_its_load_balancer_when_somebody_takes_the_record_of_its_cloud_away(
    site: CloudsSite,
) -> None:
    """As tools do that replace a Service by what their file says of it."""
    await site.join_one_each()
    async with site.manager() as manager:
        await site.base.initialised()
        await site.service("web", "west")
        address = await site.balanced("web")
        made = await site.clouds["west"].admin.parts()
        await site.annotate("web", cloud_in_use=None)
        await until("the record is back", lambda: is_in_use(site, "west"))
        assert await site.clouds["west"].admin.parts() == made
        await site.annotate("web", cloud=None)  # it stays where it is
        body = {"metadata": {"annotations": None, "finalizers": None}}
        await site.client.patch(SERVICES, "web", Patch(PatchType.MERGE, body), "default")
        await until("the record is back", lambda: is_in_use(site, "west"))
        assert manager.is_running
    assert await site.clouds["west"].admin.parts() == made
    assert await site.parts("east") == []
    assert await site.balanced("web") == address


async def test_a_service_keeps_its_load_balancer_whatever_others_write_of_its_cloud(
    site: CloudsSite,
) -> None:
    """As when the file of a Service comes from another cluster, or has a mistake in it."""
    await site.join_with_id("east", "e1")
    await site.join_with_id("west", "w1")
    async with site.manager():
        await site.base.initialised()
        await site.service("web", "west")
        address = await site.balanced("web")
        made = await site.clouds["west"].admin.parts()
        for other in ("north", "east"):
            await site.annotate("web", cloud_in_use=other)
            await until("the record is right again", lambda: is_in_use(site, "west"))
        wrong = {"proreus.io/cloud": "north", "proreus.io/cloud-in-use": None}
        body = {"metadata": {"annotations": wrong, "finalizers": None}}
        await site.client.patch(SERVICES, "web", Patch(PatchType.MERGE, body), "default")
        await until("the record is back", lambda: is_in_use(site, "west"))
        await site.annotate("web", cloud="east")  # which is meant
        await until("it has moved", lambda: is_in_use(site, "east"))
        await until("it has left", lambda: no_parts(site, "west"))
        await until("its address is another", lambda: differs(site, address))
    deleted = [call for call in await site.calls("west") if call.operation.endswith(".delete")]
    assert len(deleted) == len(made)
    assert await site.parts("east") == ["web"]


@pytest.mark.long
async def test_a_service_whose_record_went_while_no_manager_ran_keeps_its_address(
    site: CloudsSite,
) -> None:
    """The default cloud has nothing of it; and its own does not answer just then."""
    await site.join_with_id("east", "e1")
    await site.join_with_id("west", "w1")
    async with site.manager() as manager:
        await site.base.initialised()
        await site.service("web", "west")
        address = await site.balanced("web")
        made = await site.clouds["west"].admin.parts()
        await manager.kill()
        await site.annotate("web", cloud_in_use=None)
        await site.clouds["west"].admin.inject(Fault(FaultMode.ERROR, count=0))
        await manager.start()
        await until("it is west's again", lambda: is_in_use(site, "west"))
        await site.says("web", "CloudError")
        points = (await site.base.service("web")).status.load_balancer.ingress
        assert [point.ip for point in points] == [address]
        await site.clouds["west"].admin.clear_faults()
        await site.says("web", "Ensured")
        assert await site.balanced("web") == address
    assert await site.clouds["west"].admin.parts() == made


async def is_in_use(site: CloudsSite, cloud: str) -> bool:
    found = await site.base.service("web")
    return in_use(found) == cloud and bool(found.metadata.finalizers)


async def test_a_cluster_comes_from_one_cloud_to_several_and_goes_back(site: CloudsSite) -> None:
    await site.join("east", "e1")
    alone = {"clouds": "simulated", "config": site.config("east")}
    async with site.manager(**alone):
        await site.base.initialised("e1")
        await site.service("web")
        address = await site.balanced("web")
    made = await site.clouds["east"].admin.parts()
    async with site.manager():
        await until("its label is there", lambda: is_labelled(site))
        await site.service("more")
        await site.balanced("more")
        assert in_use(await site.base.service("more")) == "east"
        assert await site.balanced("web") == address
    assert [one for one in await site.clouds["east"].admin.parts() if one in made] == made
    async with site.manager(**alone):
        await until("its label is gone", lambda: is_not_labelled(site))
        for name in ("web", "more"):
            await site.client.delete(SERVICES, name, "default")
        await until("nothing is left", lambda: no_parts(site, "east"))


async def is_labelled(site: CloudsSite) -> bool:
    return await site.cloud_of("e1") == "east"


async def is_not_labelled(site: CloudsSite) -> bool:
    return await site.cloud_of("e1") == ""


async def differs(site: CloudsSite, first: str) -> bool:
    return await site.balanced("web") != first


def in_use(service: object) -> str:
    annotations: dict[str, str] = service.metadata.annotations  # type: ignore[attr-defined]
    return annotations.get("proreus.io/cloud-in-use", "")


@pytest.mark.long
async def test_a_service_that_names_no_cloud_there_is_says_so(site: CloudsSite) -> None:
    async with site.manager():
        await site.service("web", "north")
        message = await site.says("web", "InvalidRequest")
        assert "north" in message
        assert "east, west" in message
        await site.annotate("web", cloud="west")
        await site.says("web", "NoHosts")
        await site.client.delete(SERVICES, "web", "default")
        await until("nothing is left", lambda: no_parts(site, "west"))


@pytest.mark.long
async def test_the_cloud_config_of_one_changes_and_the_other_is_not_touched(
    site: CloudsSite,
) -> None:
    await site.join_one_each()
    async with site.manager() as manager:
        await site.base.initialised()
        site.config("west", timeout="7.0")
        await until("it is in use", lambda: "The new cloud-config is in use" in manager.output())
    log = manager.output()
    (line,) = [one for one in log.splitlines() if "Switching to a new provider" in one]
    assert 'cloud="west"' in line


@pytest.mark.long
async def test_one_file_has_the_configs_of_all_clouds(site: CloudsSite) -> None:
    file = site.directory / "clouds.yaml"
    east, west = site.clouds["east"], site.clouds["west"]
    text = f"""\
east:
  global: {{endpoint: "{east.endpoint}", region: east, token: "{east.token}"}}
west: |
  [Global]
  endpoint = "{west.endpoint}"
  region = west
  token = "{west.token}"
"""
    file.write_text(text)
    await site.join_one_each()
    async with site.manager(config=str(file)) as manager:
        await site.base.initialised("e1", "w1")
        file.write_text(text.replace("region = west", "region = west\n  timeout = 7.0"))
        await until("it is in use", lambda: "The new cloud-config is in use" in manager.output())
    assert len([one for one in manager.output().splitlines() if "Switching" in one]) == 1


async def test_a_node_that_no_cloud_owns_is_told_so_once_and_left_alone(site: CloudsSite) -> None:
    (machine,) = await site.machines("east", "alien")
    await site.base.register_node(machine, providerID="other://alien")
    async with site.manager(*DELETES_SOON):
        await site.base.cloud_condition("alien", "NotOwned")
        before = (await site.base.existing("alien")).metadata.resource_version
        await asyncio.sleep(2)
        assert (await site.base.existing("alien")).metadata.resource_version == before


def manager_is_well(manager: ManagerProcess) -> bool:
    return manager.is_running and "Traceback" not in manager.output()


async def test_a_failing_cloud_delays_nodes_that_it_may_have_and_their_condition_says_so(
    site: CloudsSite,
) -> None:
    async with site.manager() as manager:
        await site.clouds["west"].admin.inject(Fault(FaultMode.ERROR, count=0))
        await site.join("east", "e1")
        state = await site.base.cloud_condition("e1", "CloudUnavailable")
        assert "west" in state.message
        assert "proreus.io/cloud" in state.message
        await site.clouds["west"].admin.clear_faults()
        await site.base.initialised("e1")
        assert manager_is_well(manager)
    found = condition((await site.base.existing("e1")).status.conditions, CONDITION)
    assert found is not None
    assert found.status == "True"


async def test_plan_and_doctor_name_the_cloud_of_each_thing(
    site: CloudsSite, tmp_path: Path
) -> None:
    await site.join_with_id("east", "e1")
    await site.join("west", "w1")
    await site.service("web", "east")
    await site.service("lost", "north")
    flags = (
        "--cloud-provider=east=simulated,west=simulated",
        f"--cloud-config={site.configs()}",
        "--allocate-node-cidrs",
        "--cluster-cidr=10.244.0.0/16",
        "--configure-cloud-routes=false",
    )
    async with reader(site.base, "looker", tmp_path) as looker:
        planned = await looker.run("plan", "--json", *flags)
        text = await looker.run("plan", *flags)
        assert planned.code == 2, planned.err
        found = {one["about"]: one for one in planned.json["changes"]}
        assert found["node/e1"]["cloud"] == "east"
        assert "+ label proreus.io/cloud=east" in found["node/e1"]["lines"]
        assert "+ label proreus.io/cloud=west" in found["node/w1"]["lines"]
        assert found["load-balancer/default/web"]["cloud"] == "east"
        lines = [line for name in ("e1", "w1") for line in found[f"node/{name}"]["lines"]]
        cidrs = [line for line in lines if "spec.podCIDRs" in line]
        assert len(set(cidrs)) == 2, "no two nodes get one block, whatever their clouds"
        assert "~ node/e1 (cloud east)" in text.out
        diagnosed = await looker.run("doctor", "--patience=0s", "--json", *flags)
        clouds = {one["about"]: one["cloud"] for one in diagnosed.json["findings"]}
        assert clouds["node/e1"] == "east"
        assert clouds["service/default/web"] == "east"
        assert clouds["service/default/lost"] == "undecided"

        await site.clouds["west"].admin.inject(Fault(FaultMode.ERROR, count=0))
        planned = await looker.run("plan", "--json", *flags)
        assert planned.code == 1
        found = {one["about"]: one for one in planned.json["changes"]}
        assert found["node/e1"]["cloud"] == "east"
        assert "cloud west" in "".join(planned.json["unread"])
        diagnosed = await looker.run("doctor", "--json", *flags)
        assert "cloud/west" in {one["about"] for one in diagnosed.json["findings"]}


@pytest.mark.long
async def test_status_shows_the_cloud_of_each_node_and_service(site: CloudsSite) -> None:
    await site.join_with_id("east", "e1")
    async with site.manager():
        await site.base.initialised("e1")
        await site.service("web", "west")
        await site.balanced("web")
    kubeconfig = f"--kubeconfig={site.base.plane.kubeconfig}"
    code, out, err = await programs.run("proreus", "status", kubeconfig, "--json")
    assert code == 0, err
    found = json.loads(out)
    rows = {one["name"]: one["cloud"] for one in (*found["nodes"], *found["services"])}
    assert rows == {"e1": "east", "default/web": "west"}


async def test_a_volume_is_labelled_by_its_cloud_while_another_hangs_or_does_not_know_it(
    site: CloudsSite, tmp_path: Path
) -> None:
    (made,) = await site.clouds["west"].admin.create_volumes([Volume(zones=("west-1a",))])
    webhooks = WebhookSite(site.base, tmp_path)

    async def zone_of(name: str, id_: str) -> str:
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "csi.simulated.example", "volumeHandle": id_},
        }
        await site.client.create(PERSISTENT_VOLUMES, {"metadata": {"name": name}, "spec": spec})
        volume = await site.client.get(PERSISTENT_VOLUMES, name)
        return volume.metadata.labels.get("topology.kubernetes.io/zone", "")

    names = (f"volume-{number}" for number in range(10_000))

    async def is_asked() -> bool:
        return bool(await zone_of(next(names), made.id))

    await cleared(site.client, PERSISTENT_VOLUMES)
    async with (
        site.manager(*webhooks.flags),
        webhooks.configured("MutatingWebhookConfiguration", LABELLING),
    ):
        await until("the webhook is asked", is_asked)  # east does not know the volume
        hang = Fault(FaultMode.HANG, "volumes.*", count=0)
        await site.clouds["east"].admin.inject(hang)
        for _ in range(3):
            async with asyncio.timeout(20):
                assert await zone_of(next(names), made.id) == "west-1a"
    await cleared(site.client, PERSISTENT_VOLUMES)
