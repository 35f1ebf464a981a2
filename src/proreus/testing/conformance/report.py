"""Format the findings as a table for people."""

from collections import Counter
from collections.abc import Iterable, Sequence

from proreus.testing.conformance.rule import Finding, Status


def report(findings: Sequence[Finding]) -> str:
    """Format the findings: a line for each rule, each failure with its remedy, a summary."""
    return "\n".join((*_table(findings), "", *_failures(findings), _summary(findings)))


def _table(findings: Sequence[Finding]) -> Iterable[str]:
    width = max((len(finding.rule.id) for finding in findings), default=0)
    for finding in findings:
        why = (
            f" ({finding.seen})" if finding.status in {Status.NOT_OFFERED, Status.NOT_TRIED} else ""
        )
        yield f"{finding.status.value:<12} {finding.rule.id:<{width}}  {finding.rule.title}{why}"


def _failures(findings: Sequence[Finding]) -> Iterable[str]:
    for finding in findings:
        if finding.status is Status.FAILS:
            yield str(finding)
            yield ""


def _summary(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.status for finding in findings)
    return ", ".join(f"{counts[status]} {status.value}" for status in Status if counts[status])
