"""Print a diagnosis: for people, or as JSON. Pure."""

from proreus.app.doctor.diagnosis import Diagnosis
from proreus.app.printed import json, line


def as_json(diagnosis: Diagnosis) -> str:
    """Return all findings as one JSON document."""
    return json(diagnosis)


def as_text(diagnosis: Diagnosis) -> str:
    """Return a paragraph for each finding, then what was left out."""
    parts = [
        f"{line(f'{finding.about}{_of(finding.cloud)}: {finding.problem} [{finding.check}]')}\n"
        f"    seen:   {line(finding.evidence)}\n"
        f"    remedy: {line(finding.remedy)}\n"
        for finding in diagnosis.findings
    ]
    parts += [f"could not read {line(text)}\n" for text in diagnosis.unread]
    parts += [f"note: {line(text)}\n" for text in diagnosis.notes]
    count = len(diagnosis.findings)
    looked = f"{_many(diagnosis.nodes, 'node')}, {_many(diagnosis.services, 'Service')}"
    if count:
        parts.append(f"{_many(count, 'problem')} found ({looked})")
    elif diagnosis.unread:
        parts.append(f"no problem found in what could be read ({looked})")
    else:
        parts.append(f"no problem found ({looked})")
    return "\n".join(parts)


def _of(cloud: str) -> str:
    return f" (cloud {cloud})" if cloud else ""


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
