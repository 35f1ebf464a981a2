"""The guide has exactly the annotations and the keys that the code knows."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from proreus.cloudprovider.ownership import Tenants
from proreus.providers.cloudstack import config
from proreus.providers.cloudstack.balancing.annotations import ASSOCIATED, PREFIX, read_options

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "cloudstack.md").read_text()


def rows(header: str) -> list[str]:
    """The first cells of the table that begins so."""
    _, _, rest = GUIDE.partition(f"\n| {header} |")
    table = rest.partition("\n\n")[0].splitlines()[2:]
    return [found[1] for line in table if (found := re.match(r"\| `([^`]+)` \|", line))]


class Watched(Mapping[str, str]):
    """No annotations, and which of them were looked for."""

    def __init__(self) -> None:
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.read.add(name.removeprefix(PREFIX))
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def test_the_table_of_annotations_has_those_that_are_read_or_written() -> None:
    given = Watched()
    read_options(given)
    known = {*given.read, ASSOCIATED.removeprefix(PREFIX)}
    assert sorted(rows(f"annotation, behind `{PREFIX}`")) == sorted(known)


@pytest.mark.parametrize(
    ("header", "section"),
    [
        ("key in `[Global]`", config.Global),
        ("key in `[Client]`, of ours", config.Client),
        ("key in `[Route]`, of ours", config.Route),
        ("key in `[Tenants]`, of ours", Tenants),
    ],
)
def test_the_tables_of_the_cloud_config_have_its_keys(
    header: str, section: type[msgspec.Struct]
) -> None:
    keys = [one.encode_name for one in msgspec.structs.fields(section)]
    assert sorted(rows(header)) == sorted(keys)
