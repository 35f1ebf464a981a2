"""Call a provider's verbs behind the guard, and check all that they answer."""

from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from typing import TypeVar

import msgspec

from proreus.cloudprovider import CloudError, Route
from proreus.containment import contract
from proreus.containment.faults import Fault, Kind
from proreus.containment.guard import VERB_SECONDS, Guard

Key = TypeVar("Key", bound=Hashable)
S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T", bound=msgspec.Struct)

Call = Callable[[], Awaitable[object]]
"""A call of the provider, whose answer may be anything."""


class Verb:
    """A call of one verb of a provider; a wrong answer is reported and becomes a `Fault`.

    Every method raises CloudError if the call failed as a whole.
    """

    def __init__(
        self, guard: Guard, name: str, *, text: str = "", seconds: float | None = VERB_SECONDS
    ) -> None:
        """Call behind `guard` for up to `seconds`; messages name the verb by `text`, if given."""
        self._guard = guard
        self._name = name
        self._text = text or name
        self._seconds = seconds

    async def call(self, call: Call) -> object:
        """Call the provider, and leave the answer unchecked."""
        return await self._guard.call(self._name, call, seconds=self._seconds, text=self._text)

    async def each(
        self, call: Call, keys: Collection[Key], success: type[S], other: type[T]
    ) -> dict[Key, S | T | CloudError]:
        """Call, and check the answer for each of `keys`; one that is left out stays missing."""
        checked: dict[Key, S | T | CloudError] = {}
        for key, value in (await self.values(call, keys)).items():
            try:
                checked[key] = contract.answer(value, success, other)
            except contract.Broken as broken:
                checked[key] = self.wrong(f"gave an invalid answer for {_named(key)}: {broken}")
        return checked

    async def values(self, call: Call, keys: Collection[Key]) -> Mapping[Key, object]:
        """Call, and return the values for the keys in `keys`; report missing and unknown keys."""
        answer = await self.call(call)
        if not isinstance(answer, Mapping):
            raise self.wrong(f"answered with a {type(answer).__name__}; it must be a mapping")
        unasked = answer.keys() - set(keys)
        if unasked:
            self.wrong(
                f"answered for {len(unasked)} objects that were not in the call", Kind.UNASKED
            )
        for key in keys:
            if key not in answer:
                self.wrong(f"left out {_named(key)} of its answer", Kind.LEFT_OUT)
        return {key: answer[key] for key in keys if key in answer}

    async def listing(self, call: Call, type_: type[S]) -> Sequence[S]:
        """Call, and check that the answer is a sequence of values of the type."""
        return self.whole(await self.call(call), type_)

    def whole(self, answer: object, type_: type[S]) -> Sequence[S]:
        """Return a sequence of values of the type; one wrong value makes all of it a `Fault`.

        Raises:
            Fault: The answer is no such sequence, or one of its values is of another type.
        """
        try:
            if not isinstance(answer, Sequence):
                raise contract.Broken(f"expected a sequence, got {type(answer).__name__}")
            return [contract.struct(value, type_) for value in answer]
        except contract.Broken as broken:
            raise self.wrong(f"gave an invalid answer: {broken}") from broken

    def wrong(self, problem: str, kind: Kind = Kind.WRONG_ANSWER) -> Fault:
        """Report a wrong answer, and return the report as an error."""
        fault = Fault(f"{self._text} {problem}")
        self._guard.faults.report(self._name, kind, str(fault))
        return fault


def _named(key: object) -> object:
    return key.name if isinstance(key, Route) else key
