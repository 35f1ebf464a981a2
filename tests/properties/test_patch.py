"""Patches against a plain reading of RFC 6902, as the API server applies them."""

import copy
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.kube import patch
from proreus.kube.objects import Taint
from proreus.kube.patch import Op, Patch, PatchType


class Failed(Exception):
    """A test failed or a path is not there."""


def applied(document: Any, change: Patch) -> Any:
    """The document with a JSON Patch applied; an error leaves nothing half done."""
    document = copy.deepcopy(document)
    for op in msgspec.json.decode(msgspec.json.encode(change.body)):
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in op["path"].split("/")[1:]
        ]
        target = document
        for part in parents:
            target = member(target, part)
            if target is None:
                raise Failed(op)
        apply_one(target, last, op)
    return document


def member(target: Any, part: str) -> Any:
    if isinstance(target, list):
        if int(part) >= len(target):
            raise Failed(part)
        return target[int(part)]
    return target.get(part)


def apply_one(target: Any, last: str, op: Mapping[str, Any]) -> None:
    match op["op"], target:
        case "test", _:
            if member(target, last) != op["value"]:
                raise Failed(op)
        case "add", list():
            target.insert(len(target) if last == "-" else int(last), op["value"])
        case "add", _:
            target[last] = op["value"]
        case "remove", list():
            member(target, last)
            del target[int(last)]
        case "remove", _:
            if last not in target:
                raise Failed(op)
            del target[last]
        case _:
            raise AssertionError(op)


def without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The API server leaves empty maps and lists out."""
    return {name: value for name, value in fields.items() if value}


def node(labels: Mapping[str, str], taints: tuple[Taint, ...] = ()) -> dict[str, Any]:
    return {
        "metadata": {"uid": "u", **without_empty({"labels": dict(labels)})},
        "spec": without_empty({"taints": [entry(taint) for taint in taints]}),
    }


def entry(taint: Taint) -> dict[str, Any]:
    """A taint with a field that this process does not know."""
    return {**msgspec.to_builtins(taint), "future": taint.key}


def labels_of(document: Any) -> dict[str, str]:
    labels: dict[str, str] = document["metadata"].get("labels", {})
    return labels


def taints_of(document: Any) -> list[dict[str, Any]]:
    return [*document["spec"].get("taints", [])]


keys = st.sampled_from(["a", "b/c", "d~e", "~1", "/", "f"])
values = st.sampled_from(["", "1", "2"])
label_maps = st.dictionaries(keys, values, max_size=4)
wishes = st.dictionaries(keys, st.none() | values, max_size=4)
taint_lists = st.lists(
    st.builds(
        Taint,
        key=st.sampled_from("abcd"),
        effect=st.sampled_from(["NoSchedule", "NoExecute"]),
        value=values,
    ),
    max_size=5,
    unique_by=lambda taint: (taint.key, taint.effect),
).map(tuple)


@given(label_maps, wishes)
def test_labels_become_as_desired_and_others_stay(
    current: dict[str, str], wanted: dict[str, str | None]
) -> None:
    change = patch.json_patch("u", patch.labels(current, wanted))

    after = applied(node(current), change)

    expected = {**current, **wanted}
    assert labels_of(after) == {key: value for key, value in expected.items() if value is not None}
    assert bool(change) == (labels_of(after) != current)


@given(label_maps, wishes, label_maps)
def test_labels_that_changed_meanwhile_are_not_overwritten(
    cached: dict[str, str], wanted: dict[str, str | None], present: dict[str, str]
) -> None:
    try:
        after = applied(node(present), patch.json_patch("u", patch.labels(cached, wanted)))
    except Failed:
        assert cached != present
        return

    touched = {key for key, value in wanted.items() if cached.get(key) != value}
    for key in touched | set(present):
        if key in touched:
            assert present.get(key) == cached.get(key)
            assert labels_of(after).get(key) == wanted[key]
        else:
            assert labels_of(after)[key] == present[key]


@given(taint_lists, taint_lists)
def test_taints_become_as_desired_and_keep_unknown_fields(
    current: tuple[Taint, ...], wanted: tuple[Taint, ...]
) -> None:
    before = node({}, current)

    after = applied(before, patch.json_patch("u", patch.taints(current, wanted)))

    key = {(taint.key, taint.effect): taint.value for taint in wanted}
    assert {
        (t["key"], t["effect"]): t.get("value", "") for t in after["spec"].get("taints", [])
    } == key
    kept = [entry(taint) for taint in current if taint in wanted]
    assert [taint for taint in after["spec"].get("taints", []) if "future" in taint] == kept


@given(taint_lists, st.data())
def test_taints_of_others_survive_whatever_happened_meanwhile(
    cached: tuple[Taint, ...], data: st.DataObject
) -> None:
    ours = data.draw(st.lists(st.sampled_from(cached), max_size=2) if cached else st.just([]))
    wanted = tuple(taint for taint in cached if taint not in ours)
    present = data.draw(taint_lists)
    before = node({}, present)

    try:
        after = applied(before, patch.json_patch("u", patch.taints(cached, wanted)))
    except Failed:
        assert cached != present
        return

    removed = [*map(entry, ours)]
    assert taints_of(after) == [taint for taint in taints_of(before) if taint not in removed]


@given(
    current=st.lists(st.sampled_from("abc"), max_size=3),
    wanted=st.lists(st.sampled_from("abc"), max_size=3),
    changed=st.booleans(),
)
def test_finalizers_are_set_if_the_list_is_as_known(
    current: list[str], wanted: list[str], *, changed: bool
) -> None:
    change = patch.json_patch("u", patch.finalizers(tuple(current), tuple(wanted)))
    present = [*current, "theirs"] if changed else current
    before = {"metadata": {"uid": "u", **without_empty({"finalizers": present})}}

    if changed and change:
        with pytest.raises(Failed):
            applied(before, change)
    else:
        after = applied(before, change)
        assert after["metadata"].get("finalizers", []) == (present if changed else wanted)


def test_set_once_never_overwrites() -> None:
    change = patch.json_patch("u", patch.set_once("/spec/providerID", "x"))

    assert applied(node({}), change)["spec"] == {"providerID": "x"}
    with pytest.raises(Failed):
        applied({"metadata": {"uid": "u"}, "spec": {"providerID": "y"}}, change)


def test_a_json_patch_applies_to_its_uid_only() -> None:
    change = patch.json_patch("another", patch.labels({}, {"a": "b"}))

    with pytest.raises(Failed):
        applied(node({}), change)


@pytest.mark.parametrize(
    "nothing",
    [
        patch.json_patch("u", []),
        patch.json_patch("u", patch.labels({"a": "1"}, {"a": "1", "b": None})),
        patch.json_patch("u", patch.annotations({}, {"b": None})),
        patch.json_patch("u", patch.taints((Taint("a", "b", time_added="x"),), (Taint("a", "b"),))),
        patch.json_patch("u", patch.taints((), ())),
        patch.json_patch("u", patch.finalizers(("a",), ("a",))),
        patch.status("u"),
        patch.status("u", conditions=()),
        patch.service_status("u", "7"),
        patch.service_status("u", "7", conditions=()),
    ],
)
def test_a_patch_is_false_when_there_is_nothing_to_write(nothing: Patch) -> None:
    assert not nothing


def test_ops_and_types_are_encoded_as_the_api_server_reads_them() -> None:
    assert msgspec.json.encode(Op("remove", "/a")) == b'{"op":"remove","path":"/a"}'
    assert msgspec.json.encode(Op("test", "/a", None)) == b'{"op":"test","path":"/a","value":null}'
    assert patch.status("u", addresses=()).type is PatchType.STRATEGIC


def test_status_names_only_what_it_sets() -> None:
    assert patch.status("u", addresses=()).body == {
        "metadata": {"uid": "u"},
        "status": {"addresses": [{"$patch": "replace"}]},
    }
    change = patch.service_status("u", "7", added_finalizers=("f",))
    assert change.body == {"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": ["f"]}}
