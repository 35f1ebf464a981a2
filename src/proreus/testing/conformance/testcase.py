"""Make tests of pytest from the rules, one each."""

import asyncio
import unittest
from collections.abc import Callable, Mapping
from typing import ClassVar

from proreus.testing.conformance.fixture import CloudFixture
from proreus.testing.conformance.offers import left_out
from proreus.testing.conformance.rule import Rule, Status
from proreus.testing.conformance.suite import RULES, Suite


class Conformance:
    """The base of a test class: `class TestMyCloud(Conformance): fixture = MyFixture`.

    There is a test for each rule that the fixture offers, of the rule's name. What turns out not
    to be offered only when it is tried is skipped, with what to write in the fixture.

    Attributes:
        fixture: The class of the fixture, or a function that makes one.
        not_offered: The rules that have no test, each with the reason.
    """

    fixture: ClassVar[Callable[[], CloudFixture]]
    not_offered: ClassVar[Mapping[str, str]]
    _suite: ClassVar[Suite]

    def __init_subclass__(cls) -> None:
        """Make the suite of the class, whose findings are made once."""
        super().__init_subclass__()
        cls._suite = Suite(cls.fixture)
        missing = left_out(cls.fixture)
        cls.not_offered = {
            rule.id: reason for rule in RULES if (reason := rule.not_offered(missing))
        }
        for rule in RULES:
            if rule.id in cls.not_offered:
                setattr(cls, _name(rule), None)  # hides the test from pytest and unittest


def _name(rule: Rule) -> str:
    return f"test_{rule.id.replace('-', '_')}"


def _test(rule: Rule) -> Callable[[Conformance], None]:
    def test(self: Conformance) -> None:
        # With a loop factory the runner leaves a plugin's current event loop alone.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            found = runner.run(self._suite.finding(rule))
        if found.status in {Status.NOT_OFFERED, Status.NOT_TRIED}:
            remedy = f". {found.remedy}" if found.remedy else ""
            raise unittest.SkipTest(f"{found.status.value}: {found.seen}{remedy}")
        if found.status is Status.FAILS:
            raise AssertionError(str(found))

    test.__doc__ = rule.title
    return test


for _rule in RULES:
    setattr(Conformance, _name(_rule), _test(_rule))
