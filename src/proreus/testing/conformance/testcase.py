"""The rules as tests of pytest, one each."""

import asyncio
import unittest
from collections.abc import Callable
from typing import ClassVar

from proreus.testing.conformance.fixture import CloudFixture
from proreus.testing.conformance.rule import Rule, Status
from proreus.testing.conformance.suite import RULES, Suite


class Conformance:
    """Subclass it in a test module: `class TestMyCloud(Conformance): fixture = MyFixture`.

    There is a test for each rule, of its name; what is not offered is skipped with the reason.

    Attributes:
        fixture: Makes a fixture: its class.
    """

    fixture: ClassVar[Callable[[], CloudFixture]]
    _suite: ClassVar[Suite]

    def __init_subclass__(cls) -> None:
        """Findings are made once for the class."""
        super().__init_subclass__()
        cls._suite = Suite(cls.fixture)


def _test(rule: Rule) -> Callable[[Conformance], None]:
    def test(self: Conformance) -> None:
        # With a loop factory the runner leaves a plugin's current event loop alone.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            found = runner.run(self._suite.finding(rule))
        if found.status in {Status.NOT_OFFERED, Status.NOT_TRIED}:
            raise unittest.SkipTest(f"{found.status.value}: {found.seen}")
        if found.status is Status.FAILS:
            raise AssertionError(str(found))

    test.__doc__ = rule.title
    return test


for _rule in RULES:
    setattr(Conformance, f"test_{_rule.id.replace('-', '_')}", _test(_rule))
