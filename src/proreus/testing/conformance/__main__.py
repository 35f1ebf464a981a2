"""The command `python -m proreus.testing.conformance MODULE:FIXTURE`.

Tries the rules on a provider.

Exits with 0 if nothing fails, with 1 if something does and with 2 if there is no such fixture.
"""

import argparse
import asyncio
import importlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from proreus.testing.conformance.fixture import CloudFixture
from proreus.testing.conformance.report import report
from proreus.testing.conformance.rule import Status
from proreus.testing.conformance.suite import RULES, Suite

_HOW = (
    "run the command in the package's directory; write the module with "
    "dots and without .py, such as tests.test_conformance:Cloud"
)
_WHAT = "pass the subclass of CloudFixture, the one that the test class has as its `fixture`"


def main(arguments: Sequence[str]) -> int:
    """Try rules, by default all, and print the findings; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m proreus.testing.conformance",
        description="Try the conformance rules on a cloud provider, and print remedies.",
    )
    parser.add_argument(
        "fixture", metavar="MODULE:FIXTURE", help="the class of the fixture, as in tests.cloud:Site"
    )
    parser.add_argument(
        "rules",
        metavar="RULE",
        nargs="*",
        help="try these rules only, such as machine-found, and those that they need",
    )
    parsed = parser.parse_args(arguments)
    name = parsed.fixture
    known = {rule.id: rule for rule in RULES}
    if unknown := [one for one in parsed.rules if one not in known]:
        there_are = ", ".join(known)
        parser.error(f"there is no rule {', '.join(unknown)}; there are {there_are}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        fixture = _load(name)
    except (ImportError, AttributeError, ValueError) as error:
        print(f"{parser.prog}: cannot load {name!r}: {error}", file=sys.stderr)
        return 2
    logging.disable(logging.CRITICAL)  # rules provoke errors; the report tells what matters
    findings = asyncio.run(Suite(fixture).findings([known[one] for one in parsed.rules] or RULES))
    print(report(findings))
    return int(any(finding.status in {Status.FAILS, Status.NOT_TRIED} for finding in findings))


def _load(name: str) -> type[CloudFixture]:
    module, _, attribute = name.partition(":")
    if not module or not attribute or module.startswith("."):
        raise ValueError(_HOW)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # something that the module itself imports
        raise ValueError(f"{error}; {_HOW}") from error
    if not (isinstance(found, type) and issubclass(found, CloudFixture)):
        raise ValueError(f"{attribute} is not a subclass of CloudFixture; {_WHAT}")  # noqa: TRY004 - a wrong argument
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
