"""Which machine of Photon Controller a Node is, and whose addresses are read."""

import pytest

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import Instance, InstanceState, NotFound
from proreus.kube.objects import NodeAddress
from proreus.providers.photon.documents import Named, Vm
from proreus.providers.photon.names import Target
from proreus.providers.photon.plan import (
    AGE,
    EMPTY_AGE,
    REFRESHES,
    Addresses,
    Due,
    Known,
    Shown,
    chosen,
    due,
    instance,
    match,
)
from proreus.testing.objects import node

NOW = 1_000_000.0
DOWN = CloudError("no answer")
A, B = NodeAddress("InternalIP", "10.0.0.1"), NodeAddress("ExternalIP", "203.0.113.1")
VM = Vm("id-1", "one", "STARTED")
GONE = Vm("id-2", "one", "DELETED")
TWIN = Vm("id-3", "one", "STARTED")
OFF = Vm("id-4", "off", "STOPPED")


def known(vm: Vm, age: float, *addresses: NodeAddress) -> dict[str, Known]:
    return {vm.id: Known(vm, addresses, NOW - age)}


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ({}, Due((VM,), ())),
        (known(VM, AGE - 1, A), Due((), ())),
        (known(VM, AGE, A), Due((), (VM,))),
        (known(VM, EMPTY_AGE), Due((VM,), ())),
        (known(VM, EMPTY_AGE / 2), Due((), ())),
        (known(Vm("id-1", "one", "STARTED", host="h"), 0.0, A), Due((VM,), ())),
        (known(Vm("id-1", "one", "STARTED", floating_ip="f"), 0.0, A), Due((VM,), ())),
        (known(Vm("id-1", "one", "STOPPED"), 0.0, A), Due((VM,), ())),
        (known(Vm("id-1", "other", "STARTED"), 0.0, A), Due((), ())),
    ],
)
def test_addresses_are_read_of_what_is_new_changed_empty_or_old(
    before: dict[str, Known], expected: Due
) -> None:
    assert due([VM, OFF], before, NOW) == expected


@pytest.mark.parametrize("age", [EMPTY_AGE, EMPTY_AGE * 2])
def test_addresses_that_are_too_old_to_serve_are_needed(age: float) -> None:
    assert due([VM, OFF], known(VM, age, A), NOW, age=EMPTY_AGE) == Due((VM,), ())
    assert due([VM, OFF], known(VM, age / 4, A), NOW, age=EMPTY_AGE) == Due((), ())


def test_of_old_addresses_the_oldest_are_read_first_and_only_some() -> None:
    vms = [Vm(f"id-{number}", "x", "STARTED") for number in range(REFRESHES + 3)]
    before = {vm.id: Known(vm, (A,), NOW - AGE - i * AGE) for i, vm in enumerate(vms)}
    assert due(vms, before, NOW).old == tuple(reversed(vms))[:REFRESHES]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (VM, VM),
        (OFF, OFF),
        (None, NotFound()),
        (GONE, NotFound(tombstone=True)),
        (DOWN, DOWN),
    ],
)
def test_a_provider_id_is_matched_with_what_is_said_of_it_alone(
    shown: Vm | CloudError | None, expected: object
) -> None:
    found = match(Target(id="id"), Shown({"id": shown}, {"one": [TWIN]}), {})
    assert found == expected


def test_what_cannot_be_read_is_never_looked_for() -> None:
    found = match(Target(problem="spec.providerID is wrong"), Shown({}, {}), {})
    assert isinstance(found, InvalidRequest)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ([VM], VM),
        ([GONE, VM], VM),
        ([GONE], NotFound()),
        ([], NotFound()),
        (DOWN, DOWN),
    ],
)
def test_a_name_is_matched_with_the_only_live_machine(
    named: list[Vm] | CloudError, expected: object
) -> None:
    assert match(Target(name="one"), Shown({}, {"one": named}), {}) == expected


def test_several_machines_of_a_name_or_address_are_a_conflict() -> None:
    found = match(Target(name="one"), Shown({}, {"one": [VM, TWIN]}), {})
    assert isinstance(found, IdentityConflict)
    assert "id-1, id-3" in str(found)
    networks: dict[str, Addresses | CloudError] = {VM.id: (A,), TWIN.id: (B, A)}
    found = match(Target(address=A.address), Shown({}, {}, (VM, TWIN)), networks)
    assert isinstance(found, IdentityConflict)


@pytest.mark.parametrize(
    ("machines", "networks", "expected"),
    [
        ((VM, GONE), {VM.id: (A,)}, VM),
        ((VM, OFF), {VM.id: (A,)}, VM),
        ((VM, GONE), {VM.id: (B,)}, NotFound()),
        ((VM, OFF), {VM.id: (B,)}, "off (id-4): it is STOPPED"),
        ((VM,), {VM.id: DOWN}, "one (id-1): no answer"),
        ((VM,), {VM.id: ()}, "one (id-1): it is STARTED"),
    ],
)
def test_no_machine_has_an_address_only_if_all_show_theirs(
    machines: tuple[Vm, ...], networks: dict[str, Addresses | CloudError], expected: object
) -> None:
    found = match(Target(address=A.address), Shown({}, {}, machines), networks)
    if isinstance(expected, str):
        assert type(found) is CloudError
        assert expected in str(found)
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("vm", "found", "of_node", "expected"),
    [
        (VM, (A, B), (), (A, B)),
        (VM, (A, B), (B,), (B, A)),
        (VM, (A,), (B,), (A,)),
        (VM, (), (A,), ()),
        (VM, DOWN, (A,), ()),
        (OFF, (), (), ()),
        (VM, DOWN, (), DOWN),
        (VM, DOWN, (NodeAddress("Hostname", "one"),), DOWN),
    ],
)
def test_a_node_keeps_its_addresses_while_its_machine_shows_none(
    vm: Vm,
    found: Addresses | CloudError,
    of_node: Addresses,
    expected: Addresses | CloudError,
) -> None:
    answer = instance(node("one", addresses=of_node), vm, found)
    if isinstance(expected, CloudError):
        assert answer is expected
    else:
        assert isinstance(answer, Instance)
        assert answer.addresses == expected
        assert answer.provider_id == f"photon://{vm.id}"


def test_a_new_node_of_a_machine_without_addresses_is_told_why() -> None:
    answer = instance(node("one"), VM, ())
    assert isinstance(answer, CloudError)
    assert "one (id-1) has no address yet" in str(answer)


def test_states_of_another_age_say_nothing() -> None:
    answer = instance(node("one", "photon://id-9"), Vm("id-9", "one", "PARKED"), ())
    assert isinstance(answer, Instance)
    assert answer.state is InstanceState.UNKNOWN


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("id-a", "id-a"),
        ("a", "id-a"),
        ("id-b", "id-b"),
        ("b", "project: 2 are called b in t: id-b, id-c; give the id of one"),
        ("d", "project: there is no d in t, only: a, b, b, id-b"),
    ],
)
def test_a_project_is_chosen_by_id_before_its_name(wanted: str, expected: str) -> None:
    shown = [Named("id-a", "a"), Named("id-b", "b"), Named("id-c", "b"), Named("id-d", "id-b")]
    assert expected in str(chosen("project", wanted, "t", shown))


def test_where_there_is_none_it_is_said() -> None:
    assert str(chosen("tenant", "x", "p", [])).endswith("there is no x in p, only: none")
