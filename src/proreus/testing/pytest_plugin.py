"""A plugin of pytest for provider authors: reports what conformance suites do not try, and why.

pytest finds it by its entry point. It imports nothing of the suite, so that it costs nothing where
no suite is collected.
"""

from typing import Any, Final

import pytest

_LINES: Final = pytest.StashKey[set[str]]()
_OUTPUT: Final = "proreus_not_offered"


def pytest_configure(config: pytest.Config) -> None:
    """Begin with an empty list of rules that are not tried."""
    config.stash[_LINES] = set()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note the rules that the collected conformance suites do not try, and why."""
    suites = {getattr(item, "cls", None) for item in session.items}
    for suite in suites:
        by_reason: dict[str, list[str]] = {}
        for rule, reason in getattr(suite, "not_offered", {}).items():
            by_reason.setdefault(reason, []).append(rule)
        for reason, rules in by_reason.items():
            name = getattr(suite, "__name__", "")
            session.config.stash[_LINES].add(f"{name}: {reason} ({', '.join(rules)})")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the list to the main process, where this is a worker of pytest-xdist."""
    lines = session.config.stash[_LINES]
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_OUTPUT] = sorted(lines)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the list that a worker of pytest-xdist has made."""
    node.config.stash[_LINES].update(getattr(node, "workeroutput", {}).get(_OUTPUT, ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the rules that are not tried into pytest's summary."""
    lines = terminalreporter.config.stash[_LINES]
    if lines:
        terminalreporter.section("not offered by these clouds")
        for line in sorted(lines):
            terminalreporter.write_line(line)
