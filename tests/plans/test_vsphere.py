"""Which machine of vSphere a Node is, and what proves that there is none."""

from typing import Any

import pytest

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import NotFound
from proreus.providers.vsphere.arrivals import Arrivals, Seen
from proreus.providers.vsphere.machines import Machine, Proof, Snapshot
from proreus.providers.vsphere.names import Target
from proreus.providers.vsphere.plan import (
    Index,
    Lone,
    Match,
    Replaced,
    Unproven,
    absence,
    alone,
    match,
    remembered,
    replaced,
    trusted,
    vcenter_of,
)
from proreus.providers.vsphere.soap import Ref

UUID = "422e4956-ad22-1139-6d72-59cc8f26bc90"
SWAPPED = "56492e42-22ad-3911-6d72-59cc8f26bc90"
DOWN = CloudError("no answer")
NOTHING = Proof(frozenset(), {UUID: ()}, {})


def machine(number: int, **fields: Any) -> Machine:
    return Machine(Ref("VirtualMachine", f"vm-{number}"), name=f"m{number}", **fields)


def index(*machines: Machine, **others: Snapshot | CloudError) -> Index:
    return Index({"a": Snapshot({one.ref: one for one in machines}, {}), **others})


def other(*machines: Machine) -> Snapshot:
    return Snapshot({one.ref: one for one in machines}, {})


BY_UUID = machine(1, uuid=UUID, host_name="one", address="10.0.0.1")
BY_NAME = machine(2, uuid=SWAPPED, host_name="Node.Example.org", address="10.0.0.2")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target(uuid=UUID, dns_name="node.example.org"), BY_UUID),
        (Target(system_uuids=(UUID, SWAPPED), dns_name="x"), BY_UUID),
        (Target(system_uuids=("no", SWAPPED), dns_name="one"), BY_NAME),
        (Target(dns_name="node.example.org"), BY_NAME),
        (Target(dns_name="10.0.0.2", address="10.0.0.2"), BY_NAME),
    ],
)
def test_a_machine_is_found_by_the_first_key_that_any_has(
    target: Target, expected: Machine
) -> None:
    assert match(target, index(BY_UUID, BY_NAME), "n") == Match("a", expected)


def test_a_provider_id_is_never_looked_for_by_anything_else() -> None:
    asked = Target(uuid="00000000-0000-0000-0000-000000000000", dns_name="one")
    assert match(asked, index(BY_UUID), "one") == Unproven(asked.uuid)


def test_what_cannot_be_read_names_the_field() -> None:
    answer = match(Target(problem="spec.providerID is wrong"), index(), "n")
    assert isinstance(answer, InvalidRequest)
    assert "spec.providerID" in str(answer)


def test_a_name_that_no_machine_has_is_not_found() -> None:
    assert match(Target(dns_name="none"), index(BY_UUID), "none") == NotFound()


@pytest.mark.parametrize("target", [Target(uuid="none"), Target(dns_name="none")])
def test_nothing_is_absent_while_a_vcenter_does_not_answer(target: Target) -> None:
    answer = match(target, index(BY_UUID, b=DOWN), "n")
    assert type(answer) is CloudError
    assert "vCenter b" in str(answer)
    assert "no answer" in str(answer)


RUNNING = machine(5, uuid=UUID, host_name="N", power="poweredOn")


@pytest.mark.parametrize(
    ("shown", "told"), [(BY_UUID, ("a",)), (BY_UUID, ("a", "b")), (RUNNING, ()), (RUNNING, ("b",))]
)
def test_what_is_surely_the_nodes_needs_no_other_vcenter(
    shown: Machine, told: tuple[str, ...]
) -> None:
    assert match(Target(uuid=UUID), index(shown, b=DOWN), "n", told) == Match("a", shown)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (Target(uuid=UUID), ()),
        (Target(uuid=UUID), ("b",)),
        (Target(uuid=UUID), ("b", "a")),
        (Target(system_uuids=(SWAPPED, UUID), dns_name="n"), ()),
        (Target(dns_name="one"), ()),
        (Target(dns_name="10.0.0.1", address="10.0.0.1"), ("a",)),
    ],
)
def test_while_a_vcenter_does_not_answer_what_another_shows_may_be_a_replica(
    target: Target, told: tuple[str, ...]
) -> None:
    """A replica is off, has the same UUID, and often the same host name."""
    answer = match(target, index(BY_UUID, b=DOWN), "n", told)
    assert type(answer) is CloudError
    assert "vCenter b" in str(answer)


def test_copies_are_no_conflict_while_the_right_one_may_be_elsewhere() -> None:
    copies = (machine(n, uuid=UUID, host_name="x") for n in (3, 4))
    assert type(match(Target(uuid=UUID), index(*copies, b=DOWN), "n")) is CloudError


@pytest.mark.parametrize(
    "keys", [{"dns_name": "node.example.org"}, {"dns_name": "x", "address": "10.0.0.2"}]
)
def test_a_machine_of_the_nodes_name_with_another_uuid_is_another_one(
    keys: dict[str, str],
) -> None:
    found = match(Target(system_uuids=("no", "yes"), **keys), index(BY_UUID, BY_NAME), "n")
    assert isinstance(found, IdentityConflict)
    assert f"the UUID {SWAPPED}, but its kubelet reports yes" in str(found)
    unread = machine(2, host_name="Node.Example.org", address="10.0.0.2")
    assert match(Target(system_uuids=("no",), **keys), index(unread), "n") == Match("a", unread)


def test_a_node_whose_kubelet_runs_on_another_machine_is_not_gone() -> None:
    target = Target(uuid="gone", system_uuids=("no", UUID))
    found = match(target, index(BY_UUID), "n")
    assert isinstance(found, IdentityConflict)
    assert "the one that the kubelet reports, m1" in str(found)
    assert match(target, index(BY_NAME), "n") == Unproven("gone", ("no", UUID))


def test_a_machine_that_is_off_is_not_the_one_on_which_the_kubelet_runs() -> None:
    """A new machine goes on with the Node of a former one, whose provider id it has."""
    target = Target(uuid=UUID, system_uuids=("no", "yes"))
    found = match(target, index(OFF), "n")
    assert isinstance(found, IdentityConflict)
    assert "the kubelet reports another one, yes" in str(found)
    assert match(target, index(ON), "n") == Match("a", ON)
    assert match(Target(uuid=UUID), index(OFF), "n") == Match("a", OFF)


def test_of_copies_the_one_that_runs_under_the_nodes_name_counts() -> None:
    live = machine(3, uuid=UUID, host_name="ONE", power="poweredOn")
    replica = machine(4, uuid=UUID, host_name="one", power="poweredOff")
    found = match(Target(uuid=UUID), index(live, b=other(replica)), "one")
    assert found == Match("a", live)


def test_copies_that_cannot_be_told_apart_are_a_conflict() -> None:
    first, second = (machine(n, uuid=UUID, host_name="x", power="poweredOn") for n in (3, 4))
    found = match(Target(uuid=UUID), index(first, b=other(second)), "one")
    assert isinstance(found, IdentityConflict)
    assert "m3 (VirtualMachine:vm-3) in a" in str(found)
    assert "m4 (VirtualMachine:vm-4) in b" in str(found)


OFF = machine(5, uuid=UUID, host_name="n", power="poweredOff")
ON = machine(6, uuid=UUID, host_name="x", power="poweredOn")
OWN = machine(6, uuid=UUID, host_name="N", power="poweredOn")
FORMER = Ref("VirtualMachine", "vm-9")


@pytest.mark.parametrize(
    ("shown", "seen", "told", "unreadable", "expected"),
    [
        # It is the one that was seen for sure, or it runs under the Node's name.
        (OFF, Seen("a", OFF.ref, is_sure=True), (), ("lost",), Match),
        (ON, Seen("a", ON.ref), (), ("lost",), Match),
        (OWN, Seen("b", FORMER), (), (), Match),
        # It was seen under another name: replicas of others may have it.
        (OFF, Seen("a", OFF.ref), (), ("lost",), Lone),
        # Another one was seen, here or elsewhere.
        (OFF, Seen("a", FORMER, is_sure=True), (), (), Replaced),
        (OFF, Seen("b", OFF.ref), ("b",), (), CloudError),
        (OFF, Seen("a", OFF.ref, is_sure=True), ("a", "b"), (), Match),
        (ON, Seen("b", FORMER), (), (), Replaced),
        # None was seen: the label tells where it is, and it may be one that nobody can read.
        (OFF, None, (), (), Lone),
        (OFF, None, ("a",), (), Lone),
        (OFF, None, ("b",), (), CloudError),
        (OFF, None, ("a",), ("lost",), CloudError),
        (ON, None, ("b",), ("lost",), Match),
    ],
)
def test_what_is_off_may_be_a_replica(
    shown: Machine,
    seen: Seen | None,
    told: tuple[str, ...],
    unreadable: tuple[str, ...],
    expected: type[object],
) -> None:
    lost = [("a", name) for name in unreadable]
    before = () if seen is None else (seen,)
    assert type(trusted(Match("a", shown), "n", before, told, lost)) is expected


def test_a_machine_is_not_off_with_a_copy_that_has_run_in_its_place() -> None:
    former, off, on = Seen("b", FORMER), Match("a", OFF), Match("a", ON)
    seen = (former, Seen("a", OFF.ref, is_sure=True))
    assert trusted(off, "n", seen, (), ()) == Replaced(off, former)
    assert trusted(on, "n", (former, Seen("a", ON.ref)), (), ()) == on


def test_the_vcenter_that_a_node_is_in_tells_whether_its_machine_has_replicas() -> None:
    assert trusted(Match("a", OFF), "n", (), ("a",), ()) == Lone(Match("a", OFF), ("a",))
    assert trusted(Match("a", OFF), "n", (), (), ()) == Lone(Match("a", OFF))


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"a": (OFF.ref,), "b": ()}, Match),
        ({"a": ()}, Match),  # the index lags
        ({"a": (OFF.ref, FORMER)}, CloudError),
        ({"a": (OFF.ref,), "b": (OFF.ref,)}, CloudError),
        ({"a": (OFF.ref,), "b": DOWN}, CloudError),
    ],
)
def test_a_machine_that_is_off_counts_if_no_index_knows_another(
    known: dict[str, tuple[Ref, ...] | CloudError], expected: type[object]
) -> None:
    assert type(alone(Lone(Match("a", OFF)), known)) is expected


@pytest.mark.parametrize(
    ("shown", "seen", "is_alone", "is_sure"),
    [
        (OFF, None, False, False),
        (OFF, None, True, True),
        (OWN, None, False, True),
        (ON, Seen("a", ON.ref), False, False),
        (ON, Seen("a", ON.ref, is_sure=True), False, True),
        (ON, Seen("a", FORMER, is_sure=True), False, False),
    ],
)
def test_a_machine_is_known_for_sure_by_its_name_or_as_the_only_one(
    shown: Machine, seen: Seen | None, *, is_alone: bool, is_sure: bool
) -> None:
    found = remembered(Match("a", shown), "n", seen, 7, is_alone=is_alone)
    assert found == Seen("a", shown.ref, is_sure, at=7)


@pytest.mark.parametrize("last", [UUID, "", CloudError("no right")])
def test_a_machine_takes_anothers_place_only_once_that_is_gone(last: str | CloudError) -> None:
    one = Replaced(Match("a", OFF), Seen("b", FORMER))
    assert replaced(one, None, ()) == Lone(one.found)
    assert "m3 in b" in str(replaced(one, None, [("b", "m3")]))
    running = Match("a", ON)
    assert replaced(Replaced(running, Seen("b", FORMER)), None, [("b", "m3")]) == running
    assert type(replaced(one, last, ())) is CloudError
    assert "vm-9 in vCenter b" in str(replaced(one, last, ()))


def test_a_machine_that_nothing_knows_is_gone() -> None:
    assert absence(UUID, {"a": NOTHING, "b": NOTHING}, None, ()) == NotFound()


@pytest.mark.parametrize("count", [1, 6])
def test_a_machine_whose_configuration_is_lost_may_be_any(count: int) -> None:
    lost = [("b", f"m{number}") for number in range(count)]
    answer = absence(UUID, {"a": NOTHING, "b": NOTHING}, None, lost)
    assert isinstance(answer, CloudError)
    assert "m0 in b" in str(answer)
    assert ("1 more" in str(answer)) is (count > 5)


def test_only_what_came_later_may_be_a_machine_that_was_seen() -> None:
    arrivals = Arrivals()
    early, late, unknown = map(machine, (1, 2, 3))
    first = arrivals.note({"a": other(early), "b": other()})
    second = arrivals.note({"a": other(early, late), "b": DOWN})
    third = arrivals.note({"a": DOWN, "b": other(late)})
    assert (first, second, third) == (1, 2, 3)
    lost = [("a", early), ("a", late), ("b", late), ("b", unknown)]
    names = [("a", "m1"), ("a", "m2"), ("b", "m2"), ("b", "m3")]
    assert arrivals.since((), lost) == names
    assert arrivals.since([Seen("a", FORMER)], lost) == names
    for at in (first, second, third):
        assert arrivals.since([Seen("a", FORMER, at=at), Seen("b", REF)], lost) == names[at:]


REF = Ref("VirtualMachine", "vm-7")


@pytest.mark.parametrize(
    ("proof", "last", "words"),
    [
        (DOWN, None, "vCenter b"),
        (Proof(frozenset(), {}, {UUID: DOWN}), None, "no answer"),
        (Proof(frozenset({UUID}), {UUID: ()}, {}), None, "after all"),
        (Proof(frozenset(), {UUID: (REF,)}, {}), None, "datacenter"),
        (Proof(frozenset(), {}, {}), None, "vCenter b"),
        (NOTHING, DOWN, "may still exist"),
        (NOTHING, SWAPPED, SWAPPED),
        (NOTHING, "", "unknown"),
    ],
    ids=["down", "index", "listed", "elsewhere", "unasked", "hidden", "renamed", "unreadable"],
)
def test_a_machine_that_may_be_there_is_not_gone(
    proof: Proof | CloudError, last: str | CloudError | None, words: str
) -> None:
    answer = absence(UUID, {"a": NOTHING, "b": proof}, last, ())
    assert isinstance(answer, CloudError)
    assert words in str(answer)


def test_a_single_vcenter_is_the_scope_of_all_that_no_label_places_elsewhere() -> None:
    assert vcenter_of(["a"], ["", ""]) == "a"
    assert vcenter_of(["a"], ["a", "b"]) == "a"
    with pytest.raises(CloudError, match="vCenter b"):
        vcenter_of(["a"], ["", "b"])


def test_of_several_vcenters_the_first_that_is_told_counts() -> None:
    assert vcenter_of(["a", "b"], ["", "b", "a"]) == "b"


def test_a_node_of_no_known_vcenter_has_no_scope() -> None:
    with pytest.raises(CloudError, match="which vCenter"):
        vcenter_of(["a", "b"], ["", ""])
    with pytest.raises(CloudError, match="vCenter c"):
        vcenter_of(["a", "b"], ["", "c"])
