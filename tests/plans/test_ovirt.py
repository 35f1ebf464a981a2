"""Which machine of oVirt a Node is, and what proves that there is none."""

import pytest

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import NotFound
from proreus.providers.ovirt.machines import Machine
from proreus.providers.ovirt.names import Target
from proreus.providers.ovirt.plan import Index, Unproven, absence, gone, match

A = Machine("a", "vm-a", "Node-A.example.org", "up")
B = Machine("b", "node-b", "", "down")
TWIN = Machine("t", "vm-t", "node-a.example.org", "down")
RUNNING_TWIN = Machine("r", "vm-r", "node-a.example.org", "migrating")
HIDDEN = Machine("h", "node-h", "node-h", "up")
BOTH = Index([A, B], [HIDDEN])


@pytest.mark.parametrize(
    ("what", "target", "index", "found"),
    [
        ("by provider id", Target(id="a", name="node-b"), BOTH, A),
        ("by provider id, outside of the search", Target(id="h"), BOTH, HIDDEN),
        ("a provider id that nothing shows", Target(id="x", name="node-b"), BOTH, Unproven("x")),
        ("not even one in an empty list", Target(id="x"), Index([]), Unproven("x")),
        ("by the kubelet's UUID first", Target(system_uuids=("y", "b"), name="node-a.example.org"),
         BOTH, B),
        ("only within the search", Target(system_uuids=("h",), name="other"), BOTH,
         Unproven("", ("h",))),
        ("nor what another UUID is known of", Target(id="x", system_uuids=("y", "z")), BOTH,
         Unproven("x", ("y", "z"))),
        ("by domain name, whatever its case", Target(name="node-a.example.org"), BOTH, A),
        ("by name", Target(name="node-b"), BOTH, B),
        ("not by the name of what was looked up by id", Target(name="node-h"), BOTH, NotFound()),
        ("a domain name goes before a name", Target(name="vm-t"),
         Index([Machine("1", "vm-t"), Machine("2", "x", "vm-t")]), Machine("2", "x", "vm-t")),
        ("of two the one that runs", Target(name="node-a.example.org"), Index([A, TWIN]), A),
        ("no machine of that name", Target(name="node-c"), BOTH, NotFound()),
    ],
)  # fmt: skip
def test_the_machine_of_a_node(what: str, target: Target, index: Index, found: object) -> None:
    assert match(target, index, "tag=kubernetes") == found


def test_two_that_run_or_two_that_do_not_are_a_conflict() -> None:
    stopped = Machine("s", "vm-s", "node-a.example.org", "suspended")
    for some in ([A, RUNNING_TWIN], [TWIN, stopped]):
        found = match(Target(name="node-a.example.org"), Index(some), "")
        assert isinstance(found, IdentityConflict)
        assert all(one.id in str(found) for one in some)


@pytest.mark.parametrize(
    ("what", "target"),
    [
        ("no machine of its name where its kubelet runs on another",
         Target(system_uuids=("x", "y"), name="node-b")),
        ("nor is it gone while the one is there on which it runs",
         Target(id="x", system_uuids=("y", "b"))),
    ],
)  # fmt: skip
def test_a_node_is_not_the_machine_of_another_uuid(what: str, target: Target) -> None:
    found = match(target, BOTH, "")
    assert isinstance(found, IdentityConflict)
    assert "node-b (b)" in str(found)


def test_a_search_that_finds_nothing_at_all_says_nothing_about_a_name() -> None:
    found = match(Target(name="node-b"), Index([], [B]), "colour=blue")
    assert isinstance(found, CloudError)
    assert "[Filters] vms), 'colour=blue'" in str(found)


def test_that_there_is_no_machine_is_believed_where_nobody_has_written_a_search() -> None:
    assert match(Target(name="node-b"), Index([], [B]), "") == NotFound()


def test_what_cannot_be_looked_up_is_told() -> None:
    found = match(Target(problem="not one of oVirt"), BOTH, "")
    assert isinstance(found, InvalidRequest)


def test_a_node_is_gone_with_its_machine_and_the_one_on_which_its_kubelet_runs() -> None:
    one = Unproven("a", ("b",))
    assert gone(one, {"a": None, "b": None}) == NotFound()
    for direct, told in (({"a": A, "b": None}, "exists"), ({"a": None, "b": B}, "node-b (b)")):
        found = gone(one, direct)
        assert isinstance(found, CloudError)
        assert told in str(found)


def test_a_node_without_an_id_is_not_gone_while_the_search_hides_its_machine() -> None:
    one = Unproven("", ("h",))
    assert gone(one, {"h": None}) == NotFound()
    found = gone(one, {"h": HIDDEN})
    assert isinstance(found, IdentityConflict)
    assert "node-h (h)" in str(found)
    assert "[Filters] vms" in str(found)


def test_only_a_machine_without_a_url_of_its_own_is_gone() -> None:
    assert absence("a", None) == NotFound()
    for direct, told in ((A, "exists"), (CloudError("no answer"), "no answer")):
        found = absence("a", direct)
        assert isinstance(found, CloudError)
        assert told in str(found)
