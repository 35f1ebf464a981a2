"""Write searches in the engine's language, for `GET /vms?search=…`. Pure.

A search that the engine cannot read is answered with an empty list, as if there were nothing. So
what a search lacks proves nothing by itself.
"""

import re
from collections.abc import Iterable
from typing import Final

PAGE: Final = 200
"""Machines in one answer: as many as the engine describes with their devices within seconds."""
IDS: Final = 40
"""Ids in one search, which stands in the URL."""

_SORTED = re.compile(r"(?i)\bsortby\b")


def page_of(search: str, number: int) -> str:
    """Return the search for one page; in a fixed order, so that pages do not overlap."""
    order = "" if _SORTED.search(search) else "sortby name asc"
    return " ".join(part for part in (search, order, f"page {number}") if part)


def with_ids(ids: Iterable[str]) -> str:
    """Return the search for machines by their ids, whatever else is true of them.

    The search ends with an asterisk: an engine keeps every other search that it has ever read, and
    these differ from batch to batch.
    """
    return " or ".join(f"id={one}" for one in sorted(ids)) + " and name=*"
