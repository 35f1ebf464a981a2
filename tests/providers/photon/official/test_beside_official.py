"""The provider inside Kubernetes 1.14 and its SDK beside this one, on the same Photon Controller.

A cluster moves from that provider and back: its kubelets wrote what it said of their machines.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from proreus.cloudprovider.instances import Instance
from proreus.kube.objects import Node
from proreus.kube.requests import NODES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.kubelet import node_body
from proreus.testing.simulated import Instance as Machine

from ....apiserver.site import set_up  # noqa: TID252 - pytest imports tests by path
from ..emulator.server import Age, Emulator, served  # noqa: TID252
from ..emulator.world import INSIDE, OUTSIDE, Nic  # noqa: TID252
from ..site import addresses, config, describe, node, started  # noqa: TID252
from ..stage import Stage  # noqa: TID252
from .driver import Driver, OfficialError, driver

pytestmark = pytest.mark.long

MACHINES: Final[dict[str, Sequence[Nic]]] = {
    "inside": [(INSIDE, "10.1.0.1")],
    "outside": [(OUTSIDE, "203.0.113.1")],
    "both": [(INSIDE, "10.1.0.2"), ("00:0c:29:00:00:02", "203.0.113.2")],
    "capitals": [("00:0C:29:00:00:03", "10.1.0.3")],
    "several": [(INSIDE, f"10.1.1.{number}") for number in range(1, 5)],
    "twice": [(INSIDE, "10.1.2.1"), ("fa:16:3e:00:00:09", "10.1.2.1")],
    "partly": [(INSIDE, None), ("fa:16:3e:00:00:08", "-"), (INSIDE, "10.1.3.1")],
}


@pytest.fixture
async def early() -> AsyncIterator[Emulator]:
    """A Photon Controller of the age of that SDK: March 2017."""
    async with served(Emulator(Age.V1)) as emulator:
        yield emulator


@pytest.fixture
async def official(tmp_path: Path) -> AsyncIterator[Driver]:
    async with driver(tmp_path) as running:
        yield running


class Provider:
    """The provider inside Kubernetes with a cloud-config."""

    def __init__(self, official: Driver, file: Path) -> None:
        self._official = official
        self._file = file

    async def ask(self, verb: str, name: str = "") -> Any:
        return await self._official.ask(verb, config=str(self._file), name=name)

    async def addresses(self, name: str) -> list[tuple[str, str]]:
        """Sorted: the order of Photon Controller's answers is any."""
        return sorted((one["type"], one["address"]) for one in await self.ask("addresses", name))


async def test_both_say_the_same_of_machines(
    early: Emulator, official: Driver, tmp_path: Path
) -> None:
    early.page = 3
    for name, nics in MACHINES.items():
        early.world.add_vm(name, nics)
    file = tmp_path / "cloud-config"
    file.write_text(config(early).partition("[Client]")[0])
    theirs = Provider(official, file)
    async with started(early, file.read_text()) as provider:
        ours = await describe(provider, *map(node, MACHINES))
    for name, machine in ours.items():
        assert isinstance(machine, Instance)
        assert machine.provider_id == await theirs.ask("id", name)
        assert sorted(addresses(machine)) == await theirs.addresses(name), name
        assert machine.instance_type == await theirs.ask("type", name)
    assert await theirs.ask("zone") == {"FailureDomain": "", "Region": ""}
    with pytest.raises(OfficialError, match="No matching started VM"):
        await theirs.ask("id", "none")


async def test_both_find_machines_by_address(
    early: Emulator, official: Driver, tmp_path: Path
) -> None:
    for name, nics in MACHINES.items():
        early.world.add_vm(name, nics)
    file = tmp_path / "cloud-config"
    file.write_text(config(early, overrideIP="true").partition("[Client]")[0])
    theirs = Provider(official, file)
    names = ("10.1.0.1", "203.0.113.2", "10.1.1.4", "10.1.3.1")
    async with started(early, file.read_text()) as provider:
        ours = await describe(provider, *map(node, names))
    for name, machine in ours.items():
        assert isinstance(machine, Instance)
        assert machine.provider_id == await theirs.ask("id", name)
        assert sorted(addresses(machine)) == await theirs.addresses(name)


async def test_what_many_nodes_cost_beside_the_official_provider(
    early: Emulator, official: Driver, tmp_path: Path
) -> None:
    """The figures of the guide: 100 nodes, each once, and then once more."""
    names = [f"node-{number}" for number in range(100)]
    for name in names:
        early.world.add_vm(name)
    file = tmp_path / "cloud-config"
    file.write_text(config(early).partition("[Client]")[0])
    async with started(early, file.read_text()) as provider:
        await describe(provider, *map(node, names))
        assert early.calls.pop("tasks.get") >= 100
        assert early.calls == {"vms.list": 1, "vms.networks": 100}
        early.calls.clear()
        await describe(provider, *map(node, names))
        assert early.calls == {"vms.list": 1}
    early.calls.clear()
    theirs = Provider(official, file)
    for name in names[:10]:
        await theirs.ask("addresses", name)
    assert early.calls.pop("tasks.get") >= 10
    assert early.calls == {"status.get": 20, "vms.list": 20, "vms.networks": 10}


async def test_the_sdk_reads_every_answer(early: Emulator, official: Driver) -> None:
    world, early.page = early.world, 2
    ids = [world.add_vm(f"vm-{number}") for number in range(5)]
    for number in range(3):
        world.add_project(f"project-{number}", world.add_tenant(f"tenant-{number}"))
    target = {"target": early.url, "project": world.project}

    async def listed(verb: str, **more: str) -> list[str]:
        return [one["name"] for one in (await official.ask(verb, **{**target, **more}))["items"]]

    assert await listed("vms") == [f"vm-{number}" for number in range(5)]
    assert await listed("vms", name="vm-3") == ["vm-3"]
    assert await listed("tenants") == ["engineering", *(f"tenant-{n}" for n in range(3))]
    assert await listed("projects", tenant=world.tenant) == ["kubernetes"]
    assert (await official.ask("tenant", **target, name="tenant-1"))["name"] == "tenant-1"
    assert (await official.ask("project", **target))["name"] == "kubernetes"
    assert (await official.ask("status", **target))["Status"] == "READY"
    assert (await official.ask("vm", **target, name=ids[0]))["state"] == "STARTED"
    world.works = 0.3
    task = await official.ask("networks", **target, name=ids[0])
    (nic,) = task["resourceProperties"]["networkConnections"]
    assert nic["macAddress"] == INSIDE
    world.broken[ids[1]] = ("HostNotFound", "no such host")
    for verb, name, told in (
        ("networks", ids[1], "HostNotFound"),
        ("vm", "none", "code: 'VmNotFound'"),
        ("networks", "none", "HTTP status: '404'"),
    ):
        with pytest.raises(OfficialError, match=told):
            await official.ask(verb, **target, name=name)


async def test_the_sdk_has_tokens_issued_and_renews_them(official: Driver) -> None:
    async with served(Emulator(Age.V1, authentication=True)) as emulator:
        lightwave = emulator.lightwave
        emulator.world.add_vm("vm")
        known = {
            "target": emulator.url, "project": emulator.world.project, "user": lightwave.user,
            "password": lightwave.password,
        }  # fmt: skip
        with pytest.raises(OfficialError, match="MissingAuthToken"):
            await official.ask("vms", **known)
        assert len((await official.ask("vms", **known, tokens=True))["items"]) == 1
        expired = lightwave.issue()
        lightwave.tokens[expired] = 0.0
        found = await official.ask("vms", **known, tokens=True, refreshed=expired)
        assert len(found["items"]) == 1
        assert lightwave.calls["refresh_token"] == 1
        with pytest.raises(OfficialError, match="invalid_grant: incorrect"):
            await official.ask("vms", **{**known, "password": "wrong"}, tokens=True)


def kept(one: Node) -> tuple[str, list[str], dict[str, str], list[str]]:
    """What both write to a Node."""
    return (
        one.spec.provider_id,
        [f"{at.type} {at.address}" for at in one.status.addresses],
        dict(sorted(one.metadata.labels.items())),
        sorted(taint.key for taint in one.spec.taints),
    )


async def register(stage: Stage, theirs: Provider, name: str) -> None:
    """Create a Node as a kubelet with the provider inside it does."""
    body = node_body(Machine(name=name, id=""), now=datetime.now(UTC))
    body["spec"] = {"providerID": await theirs.ask("id", name)}
    found = await theirs.ask("addresses", name)
    body["status"]["addresses"] = [*found, {"type": "Hostname", "address": name}]
    body["status"]["conditions"][-1].update(type="Ready", status="True")
    await stage.site.client.create(NODES, body)


async def test_a_cluster_moves_from_the_official_provider_and_back_and_its_nodes_stay_as_they_are(
    control_plane: ControlPlane, early: Emulator, official: Driver, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        stage = Stage(site, early, tmp_path)
        stage.file.write_text(stage.file.read_text().partition("[Client]")[0])
        theirs = Provider(official, stage.file)
        for name, nics in MACHINES.items():
            stage.ids[name] = early.world.add_vm(name, nics)
            await register(stage, theirs, name)
        before = {name: kept(one) for name, one in (await site.nodes()).items()}
        async with stage.manager():
            await stage.further("vms.list", 5)
            assert {name: kept(one) for name, one in (await site.nodes()).items()} == before
            assert all(set(of) <= {"status"} for of in site.patches().values()), site.patches()
            await stage.join("later", nics=MACHINES["both"])
            nodes = await stage.initialised([*MACHINES, "later"])
        moved = {name: kept(one) for name, one in nodes.items()}
        assert {name: moved[name] for name in MACHINES} == before

        # Back, the official provider says of each machine what its Node has.
        for name, one in nodes.items():
            assert await theirs.ask("id", name) == one.spec.provider_id
            shown = sorted(
                (at.type, at.address) for at in one.status.addresses if at.type != "Hostname"
            )
            assert await theirs.addresses(name) == shown
