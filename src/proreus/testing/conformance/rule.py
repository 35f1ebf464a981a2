"""Define a rule and the finding when it was tried."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum

import msgspec

from proreus.testing.conformance.site import Site

Check = Callable[[Site], Awaitable[None]]


class Rule(msgspec.Struct, frozen=True):
    """A rule: something that must hold for every provider.

    Attributes:
        id: Its name, which never changes.
        title: The sentence that holds, in one line.
        remedy: The remedy if the rule does not hold.
        check: Raises `Violated` with what was seen, or `NotOffered`.
        needs: The rules without which this one says nothing.
        wants: The features that the fixture must offer for this rule and those that it needs
            (`offers.WANTS`).
    """

    id: str
    title: str
    remedy: str
    check: Check
    needs: tuple["Rule", ...] = ()
    wants: frozenset[str] = frozenset()

    def not_offered(self, left_out: Mapping[str, str]) -> str:
        """Return why the rule cannot be tried without what is left out; "" if it can."""
        return "; ".join(why for what, why in left_out.items() if what in self.wants)


class Status(Enum):
    """The status of a rule after its try."""

    HOLDS = "holds"
    FAILS = "FAILS"
    NOT_OFFERED = "not offered"
    NOT_TRIED = "not tried"


class Finding(msgspec.Struct, frozen=True):
    """A finding: a rule with its status and what was seen.

    Attributes:
        rule: The rule that was tried.
        status: The status: whether the rule holds.
        seen: The reason why the status is not `HOLDS`.
        remedy: The remedy, where it is better known from the case than from the rule.
    """

    rule: Rule
    status: Status
    seen: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        """Return the whole finding as text."""
        head = f"{self.rule.id}: {self.rule.title}"
        if self.status is Status.HOLDS:
            return head
        if self.status is not Status.FAILS:
            return f"{head}\n  {self.status.value}: {self.seen}"
        return f"{head}\n  seen: {self.seen}\n  next: {self.remedy or self.rule.remedy}"


def rule(*needs: Rule, wants: Iterable[str] = ()) -> Callable[[Check], Rule]:
    """Make a rule of its check: the name is the id, the docstring the title and the remedy."""

    def make(check: Check) -> Rule:
        title, _, remedy = inspect.cleandoc(check.__doc__ or "").partition("\n\n")
        name = getattr(check, "__name__", "")
        return Rule(
            id=name.replace("_", "-"),
            title=title.rstrip("."),
            remedy=" ".join(remedy.split()),
            check=check,
            needs=needs,
            wants=frozenset(wants).union(*(one.wants for one in needs)),
        )

    return make
