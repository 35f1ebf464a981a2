"""Machines of CloudStack as instances: ids, names, addresses, states; pages, refusals, quotas."""

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from proreus.cloudprovider.errors import (
    CloudError,
    IdentityConflict,
    InvalidRequest,
    Throttled,
    Unauthenticated,
)
from proreus.cloudprovider.instances import Instance, InstanceState, NotFound, Ownership
from proreus.kube.objects import NodeAddress
from proreus.providers.cloudstack.machines import type_of

from .emulator.server import Emulator
from .site import cloud, context, describe, node, started

PREFIX = "external-cloudstack://"


def machine(answers: Mapping[str, object], name: str) -> Instance:
    found = answers[name]
    assert isinstance(found, Instance), found
    return found


async def test_a_machine_is_described_as_officially(emulator: Emulator) -> None:
    network = emulator.world.add_network()
    (id_,) = emulator.world.add_machines(["node-1"], network, publicip="203.0.113.7")
    async with started(emulator) as provider:
        found = machine(await describe(provider, node("node-1")), "node-1")
    (nic,) = emulator.world.machines[id_]["nic"]
    assert found == Instance(
        provider_id=f"{PREFIX}{id_}",
        name="node-1",
        instance_type="SmallInstance",
        zone="zone-1",
        region="zone-1",
        addresses=(
            NodeAddress("InternalIP", nic["ipaddress"]),
            NodeAddress("ExternalIP", "203.0.113.7"),
        ),
    )


async def test_the_host_name_that_administrators_are_shown_stands_before_the_public_address(
    emulator: Emulator,
) -> None:
    fields = {"hostname": "kvm-1", "publicip": "203.0.113.7"}
    emulator.world.add_machines(["node-1"], emulator.world.add_network(), **fields)
    async with started(emulator) as provider:
        found = machine(await describe(provider, node("node-1")), "node-1")
    assert [one.type for one in found.addresses] == ["InternalIP", "Hostname", "ExternalIP"]


@pytest.mark.parametrize(
    ("section", "shown"),
    [
        ("", ["InternalIP 192.0.2.1", "ExternalIP 203.0.113.7"]),
        ("[Node]\ndual-stack = true",
         ["InternalIP 192.0.2.1", "ExternalIP 203.0.113.7", "InternalIP 2001:db8::1"]),
    ],
)  # fmt: skip
async def test_with_dual_stack_the_ipv6_address_stands_behind_the_official_ones(
    emulator: Emulator, section: str, shown: list[str]
) -> None:
    network = emulator.world.add_network()
    (id_,) = emulator.world.add_machines(["node-1"], network, publicip="203.0.113.7")
    (nic,) = emulator.world.machines[id_]["nic"]
    nic |= {"ipaddress": "192.0.2.1", "ip6address": "2001:db8::1"}
    async with started(emulator, sections=section) as provider:
        found = machine(await describe(provider, node("node-1")), "node-1")
    assert [f"{one.type} {one.address}" for one in found.addresses] == shown


async def test_the_region_is_that_of_the_cloud_config(emulator: Emulator) -> None:
    emulator.world.add_machines(["node-1"], emulator.world.add_network())
    async with started(emulator, "region = north") as provider:
        found = machine(await describe(provider, node("node-1")), "node-1")
    assert (found.zone, found.region) == ("zone-1", "north")


@pytest.mark.parametrize("form", [PREFIX, "cloudstack://", "cloudstack:///zone-1/", ""])
async def test_every_age_of_provider_ids_is_understood_and_kept(
    emulator: Emulator, form: str
) -> None:
    (id_,) = emulator.world.add_machines(["node-1"], emulator.world.add_network())
    async with started(emulator) as provider:
        assert provider.instances is not None
        one = node("another-name", f"{form}{id_}")
        found = machine(await describe(provider, one), "another-name")
        assert provider.instances.owns(one) is Ownership.YES
    assert found.provider_id == f"{form}{id_}"


async def test_a_provider_id_of_another_cloud_is_never_looked_up(emulator: Emulator) -> None:
    emulator.world.add_machines(["node-1"], emulator.world.add_network())
    async with started(emulator) as provider:
        assert provider.instances is not None
        one = node("node-1", "aws:///eu-1a/i-0123456789")
        answers = await describe(provider, one)
        assert provider.instances.owns(one) is Ownership.NO
        assert provider.instances.owns(node("node-1")) is Ownership.UNKNOWN
    assert isinstance(answers["node-1"], InvalidRequest)
    assert not emulator.calls


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("Running", InstanceState.RUNNING),
        ("Starting", InstanceState.RUNNING),
        ("Stopping", InstanceState.RUNNING),
        ("Migrating", InstanceState.RUNNING),
        ("Stopped", InstanceState.STOPPED),
        ("Destroyed", InstanceState.TERMINATING),
        ("Expunging", InstanceState.TERMINATING),
        ("Error", InstanceState.UNKNOWN),
    ],
)
async def test_states(emulator: Emulator, state: str, expected: InstanceState) -> None:
    (id_,) = emulator.world.add_machines(["node-1"], emulator.world.add_network(), state=state)
    emulator.world.shows_destroyed = True
    async with started(emulator) as provider:
        found = machine(await describe(provider, node("node-1", PREFIX + id_)), "node-1")
    assert found.state is expected


async def test_a_stopped_machine_may_still_run_so_nothing_proves_that_it_has_no_power(
    emulator: Emulator,
) -> None:
    """Of one on a host whose agent is away CloudStack says Stopped, and it goes on writing."""
    network = emulator.world.add_network()
    (id_,) = emulator.world.add_machines(["node-1"], network, state="Stopped")
    async with started(emulator) as provider:
        found = machine(await describe(provider, node("node-1", PREFIX + id_)), "node-1")
    assert found.state is InstanceState.STOPPED
    assert not found.powered_off


async def test_a_destroyed_machine_that_users_are_not_shown_is_absent(emulator: Emulator) -> None:
    """The setting `allow.user.view.destroyed.vm` is off unless somebody has changed it."""
    network = emulator.world.add_network()
    (id_,) = emulator.world.add_machines(["node-1"], network, state="Destroyed")
    async with started(emulator) as provider:
        assert await describe(provider, node("node-1", PREFIX + id_)) == {"node-1": NotFound()}


async def test_500_nodes_cost_one_request_and_those_without_provider_id_one_more(
    emulator: Emulator,
) -> None:
    names = [f"node-{number}" for number in range(500)]
    ids = emulator.world.add_machines(names, emulator.world.add_network())
    nodes = [
        node(name, PREFIX + id_ if number % 2 else "")
        for number, (name, id_) in enumerate(zip(names, ids, strict=True))
    ]
    async with started(emulator) as provider:
        answers = await describe(provider, *nodes)
    assert all(isinstance(one, Instance) for one in answers.values())
    assert emulator.calls == {"listVirtualMachines": 2}


async def test_all_pages_are_read_whatever_the_size_of_a_page(emulator: Emulator) -> None:
    emulator.page = 7
    names = [f"node-{number}" for number in range(20)]
    emulator.world.add_machines(names, emulator.world.add_network())
    async with started(emulator) as provider:
        answers = await describe(provider, *map(node, names))
    assert all(isinstance(one, Instance) for one in answers.values())
    assert emulator.calls == {"listVirtualMachines": 3}


async def test_a_list_that_shrinks_while_it_is_read_proves_no_absence(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator.page = 5
    names = [f"node-{number}" for number in range(10)]
    ids = emulator.world.add_machines(names, emulator.world.add_network())
    nodes = [node(name, PREFIX + id_) for name, id_ in zip(names, ids, strict=True)]
    answer = emulator._answer

    def shrinking(command: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        said = answer(command, parameters)
        if command == "listVirtualMachines" and ids[0] in emulator.world.machines:
            emulator.world.remove_machine(ids[0])  # so that the second page begins one later
        return said

    monkeypatch.setattr(emulator, "_answer", shrinking)
    async with started(emulator) as provider:
        with pytest.raises(CloudError, match="changed while it was read: 9 of 10"):
            await describe(provider, *nodes)


async def test_what_is_gone_or_never_was_is_absent_and_costs_the_others_nothing(
    emulator: Emulator,
) -> None:
    gone, there = emulator.world.add_machines(["gone", "there"], emulator.world.add_network())
    emulator.world.remove_machine(gone)
    nodes = [
        node("gone", PREFIX + gone),
        node("there", PREFIX + there),
        node("never", PREFIX + str(uuid.uuid4())),
        node("unnamed"),
    ]
    async with started(emulator) as provider:
        answers = await describe(provider, *nodes)
    assert {name for name, one in answers.items() if one == NotFound()} == {
        "gone", "never", "unnamed"
    }  # fmt: skip
    assert isinstance(answers["there"], Instance)


async def test_a_node_called_by_a_whole_domain_name_has_the_machine_of_its_first_part(
    emulator: Emulator,
) -> None:
    network = emulator.world.add_network()
    (short,) = emulator.world.add_machines(["Node-1"], network)
    (whole,) = emulator.world.add_machines(["node-2.example.org"], network)
    emulator.world.add_machines(["node-2"], network)
    async with started(emulator) as provider:
        answers = await describe(provider, node("node-1.example.org"), node("node-2.example.org"))
    assert machine(answers, "node-1.example.org").provider_id == PREFIX + short
    assert machine(answers, "node-2.example.org").provider_id == PREFIX + whole


async def test_two_machines_of_one_name_are_a_conflict(emulator: Emulator) -> None:
    network = emulator.world.add_network()
    ids = emulator.world.add_machines(["node-1", "node-1"], network)
    async with started(emulator) as provider:
        found = (await describe(provider, node("node-1")))["node-1"]
    assert isinstance(found, IdentityConflict)
    assert all(id_ in str(found) for id_ in ids)


async def test_a_machine_without_an_address_is_an_error_of_its_node(emulator: Emulator) -> None:
    emulator.world.add_machines(["node-1"], emulator.world.add_network(), nic=[])
    async with started(emulator) as provider:
        found = (await describe(provider, node("node-1")))["node-1"]
    assert isinstance(found, CloudError)
    assert "no address" in str(found)


async def test_a_request_beyond_the_limit_is_throttled_with_the_time_to_wait(
    emulator: Emulator,
) -> None:
    async with started(emulator) as provider:
        emulator.fail(
            "listVirtualMachines", 429,
            "The given user has reached his/her account api limit, please retry after [90000] ms.",
        )  # fmt: skip
        with pytest.raises(Throttled) as refused:
            await describe(provider, node("node-1"))
    assert refused.value.after == 90.0


@pytest.mark.parametrize("code", [401, 432, 531])
async def test_a_credential_that_is_refused_or_shows_less_proves_no_absence(
    emulator: Emulator, code: int
) -> None:
    (id_,) = emulator.world.add_machines(["node-1"], emulator.world.add_network())
    async with started(emulator) as provider:
        emulator.fail("listVirtualMachines", code, "no")
        with pytest.raises(Unauthenticated):
            await describe(provider, node("node-1", PREFIX + id_))


async def test_a_wrong_secret_is_refused_without_showing_it(emulator: Emulator) -> None:
    emulator.secret, secret = "another", emulator.secret
    text = emulator.config().replace("another", secret)
    provider = cloud(text)
    with pytest.raises(Unauthenticated) as refused:
        await provider.start(context())
    await provider.close()
    assert secret not in str(refused.value)
    assert secret not in repr(provider.config)


@pytest.mark.parametrize(
    ("offering", "label"),
    [("Small Instance", "SmallInstance"), ("m1.large", "m1large"), ("größe 2", "gre2"), ("-", "")],
)
def test_the_type_is_the_offering_without_what_no_label_holds(offering: str, label: str) -> None:
    assert type_of(offering) == label
