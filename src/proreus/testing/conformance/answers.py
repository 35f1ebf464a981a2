"""Check what a provider answered and put it in words."""

from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from proreus.cloudprovider import Instance, InstanceAnswer, Unauthenticated

_CREDENTIALS = "Correct the credentials that the fixture's `provider()` gives to the provider"

T = TypeVar("T")


class Violated(Exception):
    """The error that a rule does not hold; the text says what happened."""

    def __init__(self, seen: str, *, remedy: str = "") -> None:
        """Keep what was seen and, if the rule's own remedy does not fit, another `remedy`."""
        super().__init__(seen)
        self.remedy = remedy


def instance(name: str, answers: Mapping[str, InstanceAnswer]) -> Instance:
    """Return the answer for a machine that runs; anything else violates the rule."""
    if name not in answers:
        raise Violated(f"describe did not answer for {name}, which runs")
    return expect(Instance, answers[name], f"describe, for {name}, which runs,")


def expect(kind: type[T], answer: object, who: str) -> T:
    """Return the answer if it is of the expected type; anything else violates the rule."""
    if isinstance(answer, kind):
        return answer
    text = f"{who} answered {shown(answer)} instead of {kind.__name__}"
    raise Violated(text, remedy=remedy_of(answer))


def remedy_of(answer: object) -> str:
    """Return the remedy for an answer or error that the rule itself cannot foresee; else ""."""
    return _CREDENTIALS if isinstance(answer, Unauthenticated) else ""


def shown(answer: object) -> str:
    """Format an answer for people, with the error that it was made from."""
    if not isinstance(answer, BaseException):
        return repr(answer)
    cause = f" (from {shown(answer.__cause__)})" if answer.__cause__ else ""
    return f"{type(answer).__name__}: {answer}{cause}"


def mapping(verb: str, answers: Any) -> Mapping[str, Any]:
    """Return what a verb answered, if it is a mapping; anything else violates the rule."""
    if isinstance(answers, Mapping):
        return answers
    raise Violated(f"{verb} answered {type(answers).__name__} instead of a mapping")


async def outcome(work: Awaitable[T]) -> T | Exception:
    """Await the work; return its answer or its error."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - the rule judges it
        return error
