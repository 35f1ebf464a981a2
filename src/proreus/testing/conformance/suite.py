"""Try the rules: each on a cloud of its own, and only if the rules that it needs hold."""

import asyncio
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from proreus.testing.conformance import (
    failures,
    foresight,
    interruptions,
    load_balancers,
    machines,
    names,
    ownership,
    process,
    routes,
    scopes,
)
from proreus.testing.conformance.answers import Violated, remedy_of, shown
from proreus.testing.conformance.blame import fixture_remedy
from proreus.testing.conformance.fixture import CloudFixture, NotOffered, NotTried
from proreus.testing.conformance.offers import left_out
from proreus.testing.conformance.rule import Finding, Rule, Status
from proreus.testing.conformance.site import Site

RULES: tuple[Rule, ...] = (
    *machines.RULES,
    *names.RULES,
    *scopes.RULES,
    *load_balancers.RULES,
    *interruptions.RULES,
    *ownership.RULES,
    *foresight.RULES,
    *routes.RULES,
    *failures.RULES,
    *process.RULES,
)
"""Every rule, in the order in which a provider is best written."""

_RULE_SECONDS = 300.0


class Suite:
    """A run of the rules on one fixture; each finding is made once."""

    def __init__(self, fixture: Callable[[], CloudFixture]) -> None:
        """Keep the function or class that makes a fixture."""
        self._fixture = fixture
        self._left_out = left_out(fixture)
        self._findings: dict[str, Finding] = {}

    async def findings(self, rules: Sequence[Rule] = RULES) -> Sequence[Finding]:
        """Try rules in their order, and return what was found."""
        return [await self.finding(rule) for rule in rules]

    async def finding(self, rule: Rule) -> Finding:
        """Try one rule, and before it the rules that it needs."""
        if rule.id not in self._findings:
            self._findings[rule.id] = await self._find(rule)
        return self._findings[rule.id]

    async def _blocked(self, rule: Rule) -> Finding | None:
        if reason := rule.not_offered(self._left_out):
            return Finding(rule, Status.NOT_OFFERED, reason)
        for needed in rule.needs:
            found = await self.finding(needed)
            if found.status is Status.NOT_OFFERED:
                return Finding(rule, Status.NOT_OFFERED, found.seen, found.remedy)
            if found.status is not Status.HOLDS:
                return Finding(rule, Status.NOT_TRIED, f"{needed.id} has to hold first")
        return None

    async def _find(self, rule: Rule) -> Finding:
        if blocked := await self._blocked(rule):
            return blocked
        try:
            async with (
                asyncio.timeout(_RULE_SECONDS),
                self._fixture() as cloud,
                Site(cloud) as site,
            ):
                await rule.check(site)
        except NotOffered as reason:
            return Finding(rule, Status.NOT_OFFERED, str(reason), _declare(reason))
        except NotTried as reason:
            return Finding(rule, Status.NOT_TRIED, str(reason))
        except Violated as error:
            return Finding(rule, Status.FAILS, str(error), error.remedy)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a provider may raise anything
            remedy = fixture_remedy(error) or remedy_of(error)
            return Finding(rule, Status.FAILS, f"{shown(error)} {_place(error)}", remedy)
        return Finding(rule, Status.HOLDS)


def _declare(reason: NotOffered) -> str:
    """Return how the fixture can declare beforehand that something is not offered."""
    return f"Name {reason.lacks!r} in the fixture's `lacks`" if reason.lacks else ""


def _place(error: BaseException) -> str:
    """Return the file and line where an error was raised, outside of this package if possible."""
    frames = traceback.extract_tb(error.__traceback__)
    here = str(Path(__file__).parent)
    theirs = [frame for frame in frames if not frame.filename.startswith(here)]
    last = (theirs or frames)[-1]
    return f"(raised at {last.filename}:{last.lineno})"
