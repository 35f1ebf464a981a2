"""Lists in pages."""

from collections.abc import Sequence

import pytest

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.paging import MOST_PAGES, pages


async def test_all_pages_are_one_list_in_order() -> None:
    asked = []

    async def page(marker: str) -> tuple[Sequence[int], str]:
        asked.append(marker)
        number = int(marker or 0)
        return range(number, number + 2), str(number + 2) if number < 4 else ""

    assert await pages("x.list", page) == [0, 1, 2, 3, 4, 5]
    assert asked == ["", "2", "4"]


async def test_pages_that_go_in_a_circle_or_never_end_are_an_error() -> None:
    async def circle(marker: str) -> tuple[Sequence[int], str]:
        return [1], {"": "a", "a": "b", "b": "a"}[marker]

    count = 0

    async def endless(_: str) -> tuple[Sequence[int], str]:
        nonlocal count
        count += 1
        return [], str(count)

    for page in (circle, endless):
        with pytest.raises(
            CloudError,
            match=r"^x\.list: the list does not end: the cloud names a page that was read already",
        ):
            await pages("x.list", page)
    assert count <= MOST_PAGES + 1


async def test_of_a_list_that_cannot_be_read_whole_nothing_is_returned() -> None:
    async def page(marker: str) -> tuple[Sequence[int], str]:
        if marker:
            raise CloudError("down")
        return [1], "next"

    with pytest.raises(CloudError, match="down"):
        await pages("x.list", page)
