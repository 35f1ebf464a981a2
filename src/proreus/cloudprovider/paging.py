"""Read lists that a cloud answers in pages."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from proreus.cloudprovider.errors import CloudError

T = TypeVar("T")

MOST_PAGES: Final = 10_000
"""Pages of a list; one that has more does not end."""


async def pages(name: str, page: Callable[[str], Awaitable[tuple[Iterable[T], str]]]) -> list[T]:
    """Read all pages of a list, or fail: a list that lacks a page must not pass for a list.

    Args:
        name: The name of the call, for errors.
        page: Reads one page: the first if given "", else the page that the page before named.
            Returns the objects in the page and what names the next one: a marker, a token, a number
            or a link; "" if it is the last.

    Raises:
        CloudError: A page could not be read, or the list does not end.
    """
    found: list[T] = []
    seen = {""}
    marker = ""
    while True:
        items, marker = await page(marker)
        found.extend(items)
        if not marker:
            return found
        if marker in seen or len(seen) > MOST_PAGES:
            raise CloudError(
                f"{name}: the list does not end: the cloud names a page that was read already"
            )
        seen.add(marker)
