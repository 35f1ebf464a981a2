"""Questions about a batch, of which some fail."""

import asyncio
import gc
import warnings
from collections.abc import Collection, Mapping

import pytest

from proreus.cloudprovider import (
    CloudError,
    IdentityConflict,
    Refused,
    all_but_refused,
    ask_all,
    attempt,
    in_parts,
)
from proreus.cloudprovider.lookups import (
    Recent,
    most_first,
    random_system_uuids,
    runs_elsewhere,
    swapped,
)
from proreus.testing.objects import node


async def found(names: Collection[str]) -> Mapping[str, str]:
    return dict.fromkeys(names, "there")


async def failing(names: Collection[str]) -> Mapping[str, str]:
    raise CloudError(f"no answer about {sorted(names)}")


def test_parts_are_sorted_and_none_is_too_long() -> None:
    assert in_parts({"c", "a", "b"}, 2) == [["a", "b"], ["c"]]
    assert in_parts((), 2) == []


def test_what_occurs_most_comes_first_and_equals_in_their_order() -> None:
    assert most_first(["b", "a", "c", "a"]) == ["a", "b", "c"]
    assert most_first(()) == []


def test_only_random_uuids_may_be_random_ids_in_either_byte_order() -> None:
    uuid = "2e8c1f0a-1234-4abc-9234-0123456789ab"
    for told in (uuid.upper(), swapped(uuid)):
        assert random_system_uuids(node("n1", system_uuid=told)) == (uuid,)
    for told in ("", "4c4c4544-0042-3510-8056-b4c04f4e5131", f"{uuid}0"):
        assert random_system_uuids(node("n1", system_uuid=told)) == ()


def test_of_what_a_kubelet_may_run_on_a_machine_that_is_shown_goes_before_an_error() -> None:
    error = CloudError("down")
    known: dict[str, Mapping[str, str] | CloudError | None] = {
        "a": error,
        "b": {"id": "b", "name": "worker"},
        "c": None,
    }
    for named in ("gone", ""):
        conflict = runs_elsewhere(named, ("a", "b"), known)
        assert isinstance(conflict, IdentityConflict)
        assert "the machine b, called worker" in str(conflict)
    assert runs_elsewhere("gone", ("a", "c"), known) is error
    assert runs_elsewhere("gone", ("c", "d"), known) is None
    assert runs_elsewhere("gone", ("a",), error) is error
    assert runs_elsewhere("gone", (), error) is None


async def test_a_failure_costs_no_other_question() -> None:
    answers = await ask_all((["a"], found), (["b"], failing))
    assert answers[0] == {"a": "there"}
    assert isinstance(answers[1], CloudError)


async def test_if_all_that_was_asked_failed_the_batch_is_to_be_tried_again() -> None:
    with pytest.raises(CloudError, match="about"):
        await ask_all((["a"], failing), ([], found))
    answers = await ask_all(([], failing), ([], found))
    assert isinstance(answers[0], CloudError)


async def test_an_error_that_is_none_of_the_clouds_is_not_taken_for_an_answer() -> None:
    async def broken() -> None:
        raise ValueError("a fault")

    assert await attempt(found, ["a"]) == {"a": "there"}
    with pytest.raises(ValueError, match="a fault"):
        await attempt(broken)


async def test_an_attempt_that_is_cancelled_before_it_begins_leaves_nothing_behind() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        waiting = asyncio.gather(attempt(found, ["a"]), attempt(found, ["b"]))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gc.collect()
    assert not [str(one.message) for one in heard]


class AllOrNone:
    """Takes ids unless one is bad, and names the first bad one."""

    def __init__(self, *bad: str) -> None:
        self.bad = bad
        self.calls: list[str] = []

    async def send(self, ids: list[str]) -> None:
        self.calls.append("".join(ids))
        for one in self.bad:
            if one in ids:
                raise Refused(f"add: {one} is bad", status=400, text=f"{one} is bad")


def named(error: Refused) -> list[str]:
    return error.text.split()[:1]


@pytest.mark.parametrize(
    ("ids", "bad", "calls", "refused"),
    [
        ("ab", "", ["ab"], ""),
        ("", "", [], ""),
        ("abc", "b", ["abc", "ac"], "b"),
        ("abc", "cax", ["abc", "ab", "b"], "ac"),
        ("a", "a", ["a"], "a"),
    ],
)
async def test_all_are_sent_but_those_that_are_refused(
    ids: str, bad: str, calls: list[str], refused: str
) -> None:
    cloud = AllOrNone(*bad)
    answer = await all_but_refused(cloud.send, ids, named)
    assert answer == {one: f"{one} is bad" for one in refused}
    assert cloud.calls == calls


async def test_a_refusal_that_names_none_of_the_ids_is_an_error() -> None:
    with pytest.raises(Refused):
        await all_but_refused(AllOrNone("a").send, ["a"], lambda _: ["other"])


async def test_what_is_known_of_ids_is_asked_for_once_until_it_is_forgotten() -> None:
    asked: list[list[str]] = []

    async def ask(ids: Collection[str]) -> dict[str, str]:
        asked.append(sorted(ids))
        await asyncio.sleep(0)
        return {id_: f"machine {id_}" for id_ in ids}

    recent = Recent(ask)
    answers = await asyncio.gather(*(recent.find(["a", "b"]) for _ in range(3)), recent.find(["b"]))
    assert answers == [{"a": "machine a", "b": "machine b"}] * 3 + [{"b": "machine b"}]
    assert asked == [["a", "b"]]
    await recent.find(["a", "c"])  # all are asked for, if one is not known
    recent.forget()
    await recent.find(["c"])
    assert asked == [["a", "b"], ["a", "c"], ["c"]]


async def test_what_was_known_long_ago_is_asked_for_again() -> None:
    asked: list[str] = []

    async def ask(ids: Collection[str]) -> dict[str, bool]:
        asked.extend(ids)
        return dict.fromkeys(ids, True)

    recent = Recent(ask, seconds=0.0)
    for _ in range(2):
        assert await recent.find(["a"]) == {"a": True}
    assert asked == ["a", "a"]
