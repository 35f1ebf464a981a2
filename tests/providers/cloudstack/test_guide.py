"""The guide has exactly the annotations and the keys that the code knows."""

import msgspec
import pytest

from proreus.cloudprovider import sections
from proreus.cloudprovider.ownership import Tenants
from proreus.providers.cloudstack import config
from proreus.providers.cloudstack.balancing.annotations import ASSOCIATED, PREFIX, read_options

from ..guides import Guide, Watched, keys  # noqa: TID252 - pytest imports tests by path

GUIDE = Guide("cloudstack")


def test_the_table_of_annotations_has_those_that_are_read_or_written() -> None:
    given = Watched(PREFIX)
    read_options(given)
    known = {*given.read, ASSOCIATED.removeprefix(PREFIX)}
    assert sorted(GUIDE.names(f"annotation, behind `{PREFIX}`")) == sorted(known)


@pytest.mark.parametrize(
    ("header", "section"),
    [
        ("key in `[Global]`", config.Global),
        ("key in `[Client]`, of ours", sections.Client),
        ("key in `[Route]`, of ours", config.Route),
        ("key in `[Tenants]`, of ours", Tenants),
    ],
)
def test_the_tables_of_the_cloud_config_have_its_keys(
    header: str, section: type[msgspec.Struct]
) -> None:
    assert sorted(GUIDE.names(header)) == sorted(keys(section))
