"""Hosts of Rancher as instances: ids, names, addresses, states; pages and joined rows."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from proreus.cloudprovider.errors import (
    CloudError,
    IdentityConflict,
    InvalidRequest,
    Throttled,
    Unauthenticated,
)
from proreus.cloudprovider.instances import Instance, InstanceState, NotFound, Ownership
from proreus.kube.objects import TAINT_UNINITIALIZED, Node, NodeAddress, Taint
from proreus.testing import objects

from .emulator.server import Emulator
from .site import describe, node, started

PREFIX = "rancher://"


def with_host_name(of: Node, name: str) -> Node:
    addresses = (*of.status.addresses, NodeAddress("Hostname", name))
    return replace(of, status=replace(of.status, addresses=addresses))


def host(answers: Mapping[str, object], name: str) -> Instance:
    found = answers[name]
    assert isinstance(found, Instance), found
    return found


async def test_a_host_is_described_as_officially(emulator: Emulator) -> None:
    (uuid,) = emulator.world.add_hosts(["node-1.example.org"])
    async with started(emulator) as provider:
        found = host(await describe(provider, node("node-1.example.org")), "node-1.example.org")
    assert found == Instance(
        provider_id=f"{PREFIX}{uuid}",
        name="node-1.example.org",
        instance_type="rancher",
        zone="FailureDomain1",
        region="Region1",
        addresses=(
            NodeAddress("ExternalIP", "10.42.0.2"),
            NodeAddress("InternalIP", "10.42.0.2"),
            NodeAddress("Hostname", "node-1.example.org"),
        ),
    )


async def test_500_nodes_cost_one_request(emulator: Emulator) -> None:
    names = [f"node-{number}" for number in range(500)]
    uuids = emulator.world.add_hosts(names)
    nodes = [
        node(name, PREFIX + uuid if number % 2 else "")
        for number, (name, uuid) in enumerate(zip(names, uuids, strict=True))
    ]
    async with started(emulator) as provider:
        answers = await describe(provider, *nodes)
    assert all(isinstance(one, Instance) for one in answers.values())
    assert emulator.calls == {"GET hosts": 1}
    assert not emulator.ignored


async def test_a_host_whose_addresses_are_on_two_pages_has_all_of_them_once(
    emulator: Emulator,
) -> None:
    emulator.most = 2
    names = ["node-1", "node-2", "node-3"]
    emulator.world.add_hosts(names, ips=3)
    async with started(emulator) as provider:
        answers = await describe(provider, *map(node, names))
    for name in names:
        found = [one.address for one in host(answers, name).addresses if one.type == "InternalIP"]
        assert len(set(found)) == len(found) == 3
    assert emulator.calls == {"GET hosts": 5}


async def test_a_host_that_moved_to_a_page_that_was_read_is_asked_for_alone(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that is removed while a list is read moves all others by a row."""
    emulator.most = 2
    uuids = emulator.world.add_hosts([f"node-{number}" for number in range(4)])
    advance = emulator.world.advance

    def shift() -> None:
        advance()
        if emulator.calls["GET hosts"] == 1 and not emulator.world.objects["1h1"]["removed"]:
            emulator.world.remove_host(uuids[0])

    monkeypatch.setattr(emulator.world, "advance", shift)
    async with started(emulator) as provider:
        nodes = [node(f"n{number}", PREFIX + uuid) for number, uuid in enumerate(uuids)]
        answers = await describe(provider, *nodes)
    assert isinstance(answers["n0"], Instance | NotFound)
    for number in (1, 2, 3):
        assert host(answers, f"n{number}").name == f"node-{number}"
    assert emulator.calls["GET hosts"] == 3


async def test_without_joined_addresses_that_of_the_agent_or_the_own_list_is_taken(
    emulator: Emulator,
) -> None:
    emulator.joins = False
    emulator.world.add_hosts(["node-1", "node-2"])
    async with started(emulator) as provider:
        answers = await describe(provider, node("node-1"))
    assert host(answers, "node-1").addresses[0].address == "10.42.0.2"
    is_new = "v2-beta" in emulator.versions
    assert emulator.calls == {"GET hosts": 1 if is_new else 2}


async def test_a_host_without_addresses_is_an_error_and_never_gone(emulator: Emulator) -> None:
    emulator.world.add_hosts(["node-1"], ips=0)
    async with started(emulator) as provider:
        answers = await describe(provider, node("node-1"))
    assert isinstance(answers["node-1"], CloudError)
    assert "no IP address yet" in str(answers["node-1"])


@pytest.mark.parametrize(
    ("name", "hostname"),
    [
        ("node-1", "NODE-1"),
        ("node-1", "node-1.example.org"),
        ("node-1.example.org", "node-1"),
        ("Node-1.Example.org", "node-1.example.ORG"),
    ],
)
async def test_a_name_matches_with_or_without_the_domain(
    emulator: Emulator, name: str, hostname: str
) -> None:
    emulator.world.add_hosts(["node-10.example.org", hostname, "other"])
    async with started(emulator) as provider:
        assert host(await describe(provider, node(name)), name).name == hostname


async def test_another_domain_is_another_host(emulator: Emulator) -> None:
    emulator.world.add_hosts(["node-1.example.net"])
    async with started(emulator) as provider:
        answers = await describe(provider, node("node-1.example.org"), node("node-2"))
    assert set(answers.values()) == {NotFound()}


async def test_two_hosts_of_one_name_are_an_error_unless_one_has_just_that_name(
    emulator: Emulator,
) -> None:
    emulator.world.add_hosts(["a.example.org", "a.example.net", "b", "b.example.org", "c", "c"])
    async with started(emulator) as provider:
        answers = await describe(provider, node("a"), node("b"), node("c"))
    assert isinstance(answers["a"], IdentityConflict)
    assert host(answers, "b").name == "b"
    assert isinstance(answers["c"], IdentityConflict)


async def test_a_provider_id_decides_whatever_the_name(emulator: Emulator) -> None:
    (uuid, _) = emulator.world.add_hosts(["node-1", "node-2"])
    async with started(emulator) as provider:
        assert provider.instances is not None
        upper = node("node-2", PREFIX + uuid.upper())
        answers = await describe(provider, upper)
        assert provider.instances.owns(upper) is Ownership.YES
    found = host(answers, "node-2")
    assert (found.name, found.provider_id) == ("node-1", PREFIX + uuid.upper())


async def test_a_provider_id_of_another_cloud_is_never_looked_up(emulator: Emulator) -> None:
    emulator.world.add_hosts(["node-1"])
    async with started(emulator) as provider:
        assert provider.instances is not None
        one = node("node-1", "aws:///eu-1a/i-0123456789")
        answers = await describe(provider, one)
        assert provider.instances.owns(one) is Ownership.NO
        assert provider.instances.owns(node("node-1")) is Ownership.UNKNOWN
    assert isinstance(answers["node-1"], InvalidRequest)
    assert not emulator.calls


async def test_the_id_of_a_host_in_the_place_of_its_uuid_says_nothing_of_it(
    emulator: Emulator,
) -> None:
    """People see that id in each address of Rancher's pages."""
    emulator.world.add_hosts(["node-1"])
    async with started(emulator) as provider:
        assert provider.instances is not None
        one = node("node-1", f"{PREFIX}1h1")
        answers = await describe(provider, one)
        assert provider.instances.owns(one) is Ownership.NO
    assert isinstance(answers["node-1"], InvalidRequest)
    assert "uuid" in str(answers["node-1"])


async def test_a_purged_host_is_gone_and_was_asked_for_alone(emulator: Emulator) -> None:
    uuids = emulator.world.add_hosts(["node-1", "node-2"])
    emulator.world.remove_host(uuids[0])
    async with started(emulator) as provider:
        nodes = [node(f"node-{number}", PREFIX + uuid) for number, uuid in enumerate(uuids, 1)]
        answers = await describe(provider, *nodes)
    assert answers["node-1"] == NotFound()
    assert host(answers, "node-2").name == "node-2"
    assert emulator.calls == {"GET hosts": 2}


async def test_a_host_that_was_removed_and_added_again_may_be_the_same_machine(
    emulator: Emulator,
) -> None:
    """Its agent has a new uuid, since its state was deleted: Rancher takes no removed host back."""
    (before,) = emulator.world.add_hosts(["node-1.example.org"])
    emulator.world.remove_host(before)
    emulator.world.add_hosts(["node-1.example.org"])
    async with started(emulator) as provider:
        for name in ("node-1", "node-1.example.org"):
            found = (await describe(provider, node(name, PREFIX + before)))[name]
            assert isinstance(found, IdentityConflict)
            assert before in str(found)
        name = "node-2"
        assert (await describe(provider, node(name, PREFIX + before)))[name] == NotFound()


async def test_a_host_that_was_added_again_by_another_name_is_known_by_its_address(
    emulator: Emulator,
) -> None:
    """Its domain was changed; its kubelet goes on under the former name, and is silent now."""
    before, gone = emulator.world.add_hosts(["node-1.old.example.org", "node-2.example.org"])
    for uuid in (before, gone):
        emulator.world.remove_host(uuid)
    (again,) = emulator.world.add_hosts(["node-1.new.example.org"])
    ip = str(emulator.world.host(again)["agentIpAddress"])
    async with started(emulator) as provider:
        lives = node("node-1.old.example.org", PREFIX + before, ip)
        answers = await describe(provider, lives, node("n2", PREFIX + gone, "10.42.9.9"))
        assert isinstance(answers[lives.metadata.name], IdentityConflict), answers
        assert answers["n2"] == NotFound()


@pytest.mark.parametrize("joins", [True, False])
async def test_a_node_without_an_id_is_not_gone_while_a_host_has_its_address(
    emulator: Emulator, *, joins: bool
) -> None:
    """It goes only with `--delete-nodes-by-name`; a new one may have no host yet."""
    (again,) = emulator.world.add_hosts(["node-1.new.example.org"])
    ip = str(emulator.world.host(again)["agentIpAddress"])
    emulator.joins = joins
    if not joins:
        emulator.world.host(again)["agentIpAddress"] = None
    name = "node-1.old.example.org"
    taint = Taint(TAINT_UNINITIALIZED, "NoSchedule")
    async with started(emulator) as provider:
        answers = await describe(provider, node(name, "", ip), node("n2", "", "10.42.9.9"))
        assert isinstance(answers[name], IdentityConflict), answers
        assert answers["n2"] == NotFound()
        new = objects.node(name, addresses=(ip,), taints=(taint,))
        assert (await describe(provider, new))[name] == NotFound()


async def test_a_host_added_again_is_known_by_its_address_also_where_lists_join_none(
    emulator: Emulator,
) -> None:
    before, gone = emulator.world.add_hosts(["node-1.old.example.org", "node-2.example.org"])
    for uuid in (before, gone):
        emulator.world.remove_host(uuid)
    (again,) = emulator.world.add_hosts(["node-1.new.example.org"])
    ip = str(emulator.world.host(again)["agentIpAddress"])
    emulator.joins = False
    emulator.world.host(again)["agentIpAddress"] = None
    async with started(emulator) as provider:
        lives = node("node-1.old.example.org", PREFIX + before, ip)
        nodes = lives, node("n2", PREFIX + gone, "10.42.9.9")
        answers = await describe(provider, *nodes)
        assert isinstance(answers[lives.metadata.name], IdentityConflict), answers
        assert answers["n2"] == NotFound()
        # What was read host by host is read again only where nothing else keeps a Node.
        for asked, cost in (((lives,), 2), (nodes, 4)):
            calls = emulator.calls["GET hosts"]
            again_answers = await describe(provider, *asked)
            assert all(str(one) == str(answers[name]) for name, one in again_answers.items())
            assert emulator.calls["GET hosts"] == calls + cost


async def test_a_host_added_again_is_known_by_the_address_that_it_has_by_now(
    emulator: Emulator,
) -> None:
    """It had another one first, and the Node is silent while its machine boots."""
    before, gone = emulator.world.add_hosts(["node-1.old.example.org", "node-2.example.org"])
    for uuid in (before, gone):
        emulator.world.remove_host(uuid)
    (again,) = emulator.world.add_hosts(["node-1.new.example.org"])
    emulator.joins = False
    emulator.world.host(again)["agentIpAddress"] = None
    async with started(emulator) as provider:
        other = node("n2", PREFIX + gone, "10.42.9.9")
        assert (await describe(provider, other))["n2"] == NotFound()
        (shown,) = emulator.world.addresses(emulator.world.host(again))
        shown["address"] = "10.42.8.8"
        lives = node("node-1.old.example.org", PREFIX + before, "10.42.8.8")
        answer = (await describe(provider, lives))[lives.metadata.name]
        assert isinstance(answer, IdentityConflict), answer


async def test_a_host_added_again_is_known_by_its_host_name_also_where_its_node_has_another(
    emulator: Emulator,
) -> None:
    """It was away for so long that Rancher removed it, and has another address by now."""
    before, gone = emulator.world.add_hosts(["box-7.example.org", "box-8.example.org"])
    for uuid in (before, gone):
        emulator.world.remove_host(uuid)
    (again,) = emulator.world.add_hosts(["box-7.new.example.org"])
    emulator.world.host(again)["hostname"] = "Box-7.example.org"
    async with started(emulator) as provider:
        nodes = [
            with_host_name(node(name, PREFIX + uuid, "10.42.9.9"), f"{box}.example.org")
            for name, uuid, box in (("worker-1", before, "box-7"), ("worker-2", gone, "box-8"))
        ]
        answers = await describe(provider, *nodes)
        found = answers["worker-1"]
        assert isinstance(found, IdentityConflict), found
        assert str(emulator.world.host(again)["id"]) in str(found)
        assert answers["worker-2"] == NotFound()
        # Where several have one host name, that says nothing.
        emulator.world.add_hosts(["box-7.example.org"])
        assert (await describe(provider, *nodes))["worker-1"] == NotFound()


@pytest.mark.parametrize("state", ["registering", "provisioning", "active", "error"])
async def test_while_a_host_shows_no_address_it_may_be_the_machine_of_any_other(
    emulator: Emulator, state: str
) -> None:
    """It is being added; one that has failed has no machine that a Node could have had."""
    (before,) = emulator.world.add_hosts(["node-1.old.example.org"])
    emulator.world.remove_host(before)
    (again,) = emulator.world.add_hosts(["node-1.new.example.org"], ips=0, state=state)
    async with started(emulator) as provider:
        lives = node("node-1.old.example.org", PREFIX + before, "10.42.0.1")
        answer = (await describe(provider, lives))[lives.metadata.name]
    if state == "error":
        assert answer == NotFound()
    else:
        assert type(answer) is CloudError, answer
        assert str(emulator.world.host(again)["id"]) in str(answer)


@pytest.mark.parametrize("is_renamed", [True, False])
async def test_a_host_is_not_gone_while_its_machine_is_added_again_before_it_is_removed(
    emulator: Emulator, *, is_renamed: bool
) -> None:
    """Its kubelet is silent until the machine has its containers back."""
    before, gone = emulator.world.add_hosts(["node-1", "node-2"], state="removing")
    (again,) = emulator.world.add_hosts(["node-1.example.org"])
    other = "10.42.7.7"
    if is_renamed:
        other = str(emulator.world.host(again)["agentIpAddress"])
        emulator.world.host(again)["hostname"] = "renamed.example.org"
    async with started(emulator) as provider:
        nodes = node("node-1", PREFIX + before, other), node("node-2", PREFIX + gone, "10.42.9.9")
        answers = await describe(provider, *nodes)
        found = answers["node-1"]
        assert isinstance(found, IdentityConflict), found
        assert str(emulator.world.host(again)["id"]) in str(found)
        assert host(answers, "node-2").state is InstanceState.TERMINATING
        emulator.world.remove_host(again)
        answers = await describe(provider, *nodes)
        assert host(answers, "node-1").state is InstanceState.TERMINATING


async def test_a_host_of_the_name_that_goes_itself_keeps_no_node(emulator: Emulator) -> None:
    (before,) = emulator.world.add_hosts(["node-1"])
    emulator.world.remove_host(before)
    emulator.world.add_hosts(["node-1"], state="removing")
    async with started(emulator) as provider:
        answers = await describe(provider, node("node-1", PREFIX + before))
    assert answers["node-1"] == NotFound()


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("active", InstanceState.RUNNING),
        ("inactive", InstanceState.RUNNING),
        ("deactivating", InstanceState.RUNNING),
        ("updating-active", InstanceState.RUNNING),
        ("removing", InstanceState.TERMINATING),
        ("purging", InstanceState.TERMINATING),
        ("error", InstanceState.UNKNOWN),
    ],
)
async def test_states(newest: Emulator, state: str, expected: InstanceState) -> None:
    newest.world.add_hosts(["node-1"], state=state)
    async with started(newest) as provider:
        assert host(await describe(provider, node("node-1")), "node-1").state is expected


async def test_a_quota_of_a_proxy_is_told_as_such(newest: Emulator) -> None:
    newest.world.add_hosts(["node-1"])
    async with started(newest) as provider:
        newest.limit = 0
        with pytest.raises(Throttled):
            await describe(provider, node("node-1"))


async def test_keys_that_were_deleted_make_no_node_disappear(newest: Emulator) -> None:
    newest.world.add_hosts(["node-1"])
    async with started(newest) as provider:
        newest.secret = "another"
        with pytest.raises(Unauthenticated):
            await describe(provider, node("node-1"))


async def test_a_list_without_an_end_is_an_error(
    newest: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest.most = 1
    newest.world.add_hosts(["node-1", "node-2", "node-3"])
    monkeypatch.setattr(
        "tests.providers.rancher.emulator.server.Exchange._next", lambda *_: "/hosts?marker=m1"
    )
    async with started(newest) as provider:
        with pytest.raises(CloudError, match="does not end"):
            await describe(provider, node("node-1"))
