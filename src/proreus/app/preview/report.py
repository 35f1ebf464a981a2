"""Print a preview: as a diff for people, or as JSON. Pure."""

from collections import Counter

from proreus.app.preview.changes import Preview
from proreus.app.printed import json, line

_SIGNS = {"create": "+", "change": "~", "delete": "-"}


def as_json(preview: Preview) -> str:
    """Return the preview as one JSON document."""
    return json(preview)


def as_text(preview: Preview) -> str:
    """Return each object with its changed parts, then the totals."""
    parts = []
    for change in preview.changes:
        cloud = f" (cloud {change.cloud})" if change.cloud else ""
        parts.append(f"{_SIGNS[change.action]} {change.about}{cloud}")
        parts += [f"    {text}" for text in change.lines]
        if change.waits_for:
            parts.append(f"    waits: {change.waits_for}")
    parts += [f"! {text}" for text in preview.held]
    parts += [f"note: {text}" for text in preview.notes]
    parts += [f"could not read {text}" for text in preview.unread]
    counts = Counter(change.action for change in preview.changes)
    if preview.changes:
        parts.append(
            f"{counts['create']} to create, {counts['change']} to change, "
            f"{counts['delete']} to delete"
        )
    else:
        parts.append(
            "no changes"
            if preview.held or preview.unread
            else "no changes: everything is as it should be"
        )
    return "\n".join(map(line, parts))
