"""Questions about a batch, of which some fail."""

from collections.abc import Collection, Mapping

import pytest

from proreus.cloudprovider import CloudError, ask_all, attempt, in_parts


async def found(names: Collection[str]) -> Mapping[str, str]:
    return dict.fromkeys(names, "there")


async def failing(names: Collection[str]) -> Mapping[str, str]:
    raise CloudError(f"no answer about {sorted(names)}")


def test_parts_are_sorted_and_none_is_too_long() -> None:
    assert in_parts({"c", "a", "b"}, 2) == [["a", "b"], ["c"]]
    assert in_parts((), 2) == []


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

    assert await attempt(found(["a"])) == {"a": "there"}
    with pytest.raises(ValueError, match="a fault"):
        await attempt(broken())
