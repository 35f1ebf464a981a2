"""What a provider answered: told apart, and put in words."""

from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from proreus.cloudprovider import Instance, InstanceAnswer, Unauthenticated

_CREDENTIALS = "Check the credentials that the fixture's `provider` gives"

T = TypeVar("T")


class Violated(Exception):
    """A rule does not hold; the text says what was seen."""

    def __init__(self, seen: str, *, remedy: str = "") -> None:
        """Keep `remedy`: what to do, if that is not what the rule says."""
        super().__init__(seen)
        self.remedy = remedy


def instance(name: str, answers: Mapping[str, InstanceAnswer]) -> Instance:
    """The answer for a machine that runs."""
    if name not in answers:
        raise Violated(f"describe did not answer for {name}, which runs")
    return expect(Instance, answers[name], f"describe, for {name}, which runs,")


def expect(kind: type[T], answer: object, who: str) -> T:
    """The answer if it is of that kind."""
    if isinstance(answer, kind):
        return answer
    said = f"{who} answered {shown(answer)} instead of {kind.__name__}"
    raise Violated(said, remedy=remedy_of(answer))


def remedy_of(answer: object) -> str:
    """What to do about an answer or error of which the rule itself cannot know; else ""."""
    return _CREDENTIALS if isinstance(answer, Unauthenticated) else ""


def shown(answer: object) -> str:
    """An answer for people, with what an error was made from."""
    if not isinstance(answer, BaseException):
        return repr(answer)
    cause = f" (from {shown(answer.__cause__)})" if answer.__cause__ else ""
    return f"{type(answer).__name__}: {answer}{cause}"


def mapping(verb: str, answers: Any) -> Mapping[str, Any]:
    """What a verb answered, if it is a mapping at all."""
    if isinstance(answers, Mapping):
        return answers
    raise Violated(f"{verb} answered {type(answers).__name__} instead of a mapping")


async def outcome(work: Awaitable[T]) -> T | Exception:
    """What comes of it: an answer or an error."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - the rule judges it
        return error
