"""Machines, load balancers, routes and volumes in projects and in accounts, each alone."""

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from proreus.cloudprovider import Done, InvalidRequest, Route
from proreus.cloudprovider.errors import CloudError, Unauthenticated
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.instances import Instance, NotFound
from proreus.cloudprovider.load_balancers import DeleteAnswer
from proreus.cloudprovider.refused import Refused
from proreus.kube.objects import LABEL_ZONE, NodeAddress
from proreus.testing import objects
from proreus.testing.volumes import labels_of

from .emulator.accounts import ALL_PROJECTS, MAIN, fields_of, owner_of
from .emulator.refusals import Refusal
from .emulator.server import Emulator
from .emulator.world import ZONE
from .lb_site import HTTPS, LBSite, lb_site
from .site import CLUSTER, describe, node, started

PREFIX = "external-cloudstack://"
OTHER_UID = "5e000000-0000-4000-8000-000000000002"


def machine_of(emulator: Emulator, owner: str, name: str = "node-1") -> str:
    (id_,) = emulator.world.add_machines([name], emulator.world.add_network(owner=owner))
    return id_


async def test_machines_of_the_project_are_described_by_id_and_by_name(emulator: Emulator) -> None:
    project = emulator.world.add_project("shop")
    id_ = machine_of(emulator, project)
    machine_of(emulator, MAIN)
    async with started(emulator, f"project-id = {project}") as provider:
        for one in (node("node-1"), node("node-1", PREFIX + id_)):
            answer = (await describe(provider, one))["node-1"]
            assert isinstance(answer, Instance)
            assert answer.provider_id == PREFIX + id_
    assert emulator.calls == {"listVirtualMachines": 2}


@pytest.mark.parametrize("is_admin", [False, True])
async def test_a_machine_of_a_project_that_no_one_has_configured_is_not_absent(
    emulator: Emulator, *, is_admin: bool
) -> None:
    """A list of ids leaves out what is in projects, just as what is gone."""
    emulator.world.is_admin = is_admin
    id_ = machine_of(emulator, emulator.world.add_project("shop"))
    async with started(emulator) as provider:
        answer = (await describe(provider, node("node-1", PREFIX + id_)))["node-1"]
    assert isinstance(answer, CloudError)
    assert "is in the project shop" in str(answer)
    assert "project-id in [Global]" in str(answer)


@pytest.mark.parametrize("owner", ["the account", "another project"])
async def test_a_machine_that_was_moved_out_of_the_project_is_not_absent(
    emulator: Emulator, owner: str
) -> None:
    project = emulator.world.add_project("shop")
    other = emulator.world.add_project("bank") if owner == "another project" else MAIN
    here, moved = machine_of(emulator, project), machine_of(emulator, other, "node-2")
    nodes = [node("node-1", PREFIX + here), node("node-2", PREFIX + moved)]
    async with started(emulator, f"project-id = {project}") as provider:
        answers = await describe(provider, *nodes)
    assert isinstance(answers["node-1"], Instance)
    assert isinstance(answers["node-2"], CloudError)
    assert ("bank" if other != MAIN else "the account main") in str(answers["node-2"])


async def test_what_the_key_does_not_reach_anywhere_is_absent_after_one_more_request(
    emulator: Emulator,
) -> None:
    world = emulator.world
    project = world.add_project("shop")
    gone = machine_of(emulator, project)
    world.remove_machine(gone)
    foreign = machine_of(emulator, world.add_project("theirs", members=["another"]), "node-2")
    there = machine_of(emulator, project, "node-3")
    ids = {"node-1": gone, "node-2": foreign, "node-3": there}
    async with started(emulator, f"project-id = {project}") as provider:
        answers = await describe(provider, *(node(name, PREFIX + ids[name]) for name in ids))
    assert answers["node-1"] == answers["node-2"] == NotFound()
    assert isinstance(answers["node-3"], Instance)
    assert emulator.calls == {"listVirtualMachines": 2}


async def test_without_the_second_answer_nothing_is_absent(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = emulator.world.add_project("shop")
    gone = machine_of(emulator, project)
    emulator.world.remove_machine(gone)
    answer = emulator._answer

    def failing(command: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        if parameters.get("projectid") == ALL_PROJECTS:
            raise Refusal(530, "the database is away")
        return answer(command, parameters)

    monkeypatch.setattr(emulator, "_answer", failing)
    async with started(emulator, f"project-id = {project}") as provider:
        with pytest.raises(CloudError, match="database"):
            await describe(provider, node("node-1", PREFIX + gone))


@pytest.mark.parametrize("state", ["unknown", "not theirs"])
async def test_a_project_that_cannot_be_seen_proves_no_absence(
    emulator: Emulator, state: str
) -> None:
    members = [] if state == "not theirs" else [MAIN]
    project = emulator.world.add_project("shop", members)
    id_ = machine_of(emulator, project)
    named = project if state == "not theirs" else str(uuid.uuid4())
    async with started(emulator, f"project-id = {named}") as provider:
        with pytest.raises(Unauthenticated if state == "not theirs" else Refused):
            await describe(provider, node("node-1", PREFIX + id_))
        source = {"csi": {"driver": "csi.cloudstack.apache.org", "volumeHandle": id_}}
        emulator.world.volumes[id_] = {"id": id_, **ZONE}
        with pytest.raises(CloudError) as refused:
            await labels_of(provider, source)
        assert not isinstance(refused.value, InvalidRequest)


def owners(site: LBSite) -> set[str]:
    """Who owns what load balancers are made of."""
    world = site.world
    taken = {id_: one for id_, one in world.ips.items() if one["state"] != "Free"}
    kinds = {"rules": world.rules, "firewall": world.firewall, "acl_items": world.acl_items}
    return {
        owner_of(world, kind, one)
        for kind, there in {**kinds, "ips": taken}.items()
        for one in there.values()
    }


@pytest.mark.parametrize("vpc", [False, True])
async def test_a_load_balancer_is_made_changed_and_deleted_in_the_project(
    emulator: Emulator, *, vpc: bool
) -> None:
    project = emulator.world.add_project("shop")
    async with lb_site(emulator, vpc=vpc, owner=project) as site:
        site.give("203.0.113.9")
        lone = site.desired(load_balancer_ip="203.0.113.9", uid=OTHER_UID)
        assert (await site.made(lone)).ingress[0].ip == "203.0.113.9"
        made = await site.made(site.desired(load_balancer_source_ranges=("192.0.2.0/24",)))
        changed = site.desired(HTTPS)
        assert (await site.made(changed)).ingress == made.ingress
        assert owners(site) == {project}
        found = await site.balancers.list_owned(CLUSTER)
        assert {one.service_uid for one in found} == {lone.ref.uid, changed.ref.uid}
        for one in (lone, changed):
            answer: DeleteAnswer = await site.deleted(one)
            assert isinstance(answer, Done)
        assert site.allocated() == {"203.0.113.9"}
        assert not site.world.rules
        assert not any(site.world.tags.values())


@pytest.mark.parametrize("is_admin", [False, True])
async def test_what_was_made_before_the_project_was_changed_is_not_taken_for_gone(
    emulator: Emulator, *, is_admin: bool
) -> None:
    """With the finalizer gone nobody would ever delete it."""
    emulator.world.is_admin = is_admin
    project, other = emulator.world.add_project("shop"), emulator.world.add_project("bank")
    async with lb_site(emulator, owner=project) as site:
        made = site.desired()
        await site.made(made)
        for section in ("", f"project-id = {other}"):
            async with started(emulator, section) as moved:
                assert moved.load_balancers is not None
                assert not await moved.load_balancers.list_owned(CLUSTER)
                (answer,) = (await moved.load_balancers.delete([made.ref])).values()
            assert isinstance(answer, CloudError)
            assert f"is in the project shop ({project})" in str(answer)
            assert "project-id in [Global]" in str(answer)
        assert site.rules()
        assert len(site.allocated()) == 1
        assert await site.deleted(made) == Done()
        (again,) = (await site.balancers.delete([made.ref])).values()
        assert again == Done(found=False)


async def test_an_address_without_rules_in_another_project_is_not_taken_for_gone(
    emulator: Emulator,
) -> None:
    project = emulator.world.add_project("shop")
    async with lb_site(emulator, owner=project) as site:
        made = site.desired()
        await site.made(made)
        site.world.rules.clear()
        async with started(emulator) as moved:
            assert moved.load_balancers is not None
            (answer,) = (await moved.load_balancers.delete([made.ref])).values()
        assert isinstance(answer, CloudError)
        assert "public address" in str(answer)


async def test_rules_of_others_elsewhere_do_not_keep_a_service(emulator: Emulator) -> None:
    project = emulator.world.add_project("shop")
    async with lb_site(emulator, owner=project) as site:
        await site.made(site.desired())
        gone = site.desired(uid=OTHER_UID)
        stranger = site.desired(cluster=ClusterIdentity("test", OTHER_UID))
        async with started(emulator) as moved:
            assert moved.load_balancers is not None
            for ref in (gone.ref, stranger.ref):
                (answer,) = (await moved.load_balancers.delete([ref])).values()
                assert answer == Done(found=False)


async def test_a_named_address_of_the_account_cannot_be_had_in_a_project(
    emulator: Emulator,
) -> None:
    project = emulator.world.add_project("shop")
    async with lb_site(emulator, owner=project) as site:
        site.give("203.0.113.9", projectid=None, **fields_of(site.world, MAIN))
        refused = await site.ensure(site.desired(load_balancer_ip="203.0.113.9"))
    assert isinstance(refused, InvalidRequest)
    assert "for this account or project" in str(refused)


async def test_a_host_of_another_owner_is_rejected_by_name(emulator: Emulator) -> None:
    project = emulator.world.add_project("shop")
    async with lb_site(emulator, owner=project) as site:
        foreign = machine_of(emulator, MAIN, "node-9")
        answer = await site.made(site.desired(ids=[*site.machines, foreign]))
        assert answer.rejected.keys() == {"node-3"}


async def test_routes_and_volumes_of_the_project(emulator: Emulator) -> None:
    world = emulator.world
    project = world.add_project("shop")
    network = world.add_network(vpc=True, owner=project)
    (id_,) = world.add_machines(["node-1"], network)
    hop = world.machines[id_]["nic"][0]["ipaddress"]
    one = objects.node("node-1", PREFIX + id_, addresses=[NodeAddress("InternalIP", hop)])
    volume = str(uuid.uuid4())
    world.volumes[volume] = {"id": volume, **ZONE, **fields_of(world, project)}
    route = Route("r", "10.64.1.0/24", one.spec.provider_id)
    section = f"[Route]\nvpc-id = {world.networks[network]['vpcid']}"
    async with started(emulator, f"project-id = {project}", section) as provider:
        assert provider.routes is not None
        assert await provider.routes.apply(CLUSTER, [one], [route], []) == {route: Done()}
        (shown,) = await provider.routes.list(CLUSTER, [one])
        assert (shown.destination, shown.target) == ("10.64.1.0/24", hop)
        assert await provider.routes.apply(CLUSTER, [one], [], [shown]) == {shown: Done()}
        source = {"csi": {"driver": "csi.cloudstack.apache.org", "volumeHandle": volume}}
        assert (await labels_of(provider, source))[LABEL_ZONE] == "zone-1"
    async with started(emulator) as provider:
        with pytest.raises(InvalidRequest, match="no volume"):
            await labels_of(provider, source)
