"""Format the findings as a table for people."""

from collections import Counter
from collections.abc import Iterable, Sequence

from proreus.testing.conformance.rule import Finding, Status


def report(findings: Sequence[Finding]) -> str:
    """Format the findings: a line for each rule, each failure with its remedy, a summary."""
    return "\n".join((*_table(findings), "", *_failures(findings), _summary(findings)))


def _table(findings: Sequence[Finding]) -> Iterable[str]:
    width = max((len(one.rule.id) for one in findings), default=0)
    for one in findings:
        why = f" ({one.seen})" if one.status in {Status.NOT_OFFERED, Status.NOT_TRIED} else ""
        yield f"{one.status.value:<12} {one.rule.id:<{width}}  {one.rule.title}{why}"


def _failures(findings: Sequence[Finding]) -> Iterable[str]:
    for one in findings:
        if one.status is Status.FAILS:
            yield str(one)
            yield ""


def _summary(findings: Sequence[Finding]) -> str:
    counts = Counter(one.status for one in findings)
    return ", ".join(f"{counts[status]} {status.value}" for status in Status if counts[status])
