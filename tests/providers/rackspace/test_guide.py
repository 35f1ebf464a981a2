"""The guide has exactly the annotations, the keys and the roles that the code and its emulator know."""

import msgspec
import pytest

from proreus.cloudprovider import sections
from proreus.cloudprovider.ownership import Tenants
from proreus.providers.rackspace import config
from proreus.providers.rackspace.balancing.annotations import PREFIX, read_options

from ..guides import Guide, Watched, keys  # noqa: TID252 - pytest imports tests by path
from .emulator.server import LEAST

GUIDE = Guide("rackspace")


def test_the_table_of_annotations_has_those_that_are_read() -> None:
    given = Watched(PREFIX)
    read_options(given)
    assert sorted(GUIDE.names(f"annotation, behind `{PREFIX}`")) == sorted(given.read)


@pytest.mark.parametrize(
    ("header", "section"),
    [
        ("key in `[Global]`", config.Global),
        ("key in `[LoadBalancer]`", config.LoadBalancer),
        ("key in `[CloudLoadBalancers]`, of ours", config.CloudLoadBalancers),
        ("key in `[Client]`, of ours", sections.Client),
        ("key in `[Tenants]`, of ours", Tenants),
    ],
)
def test_the_tables_of_the_cloud_config_have_its_keys(
    header: str, section: type[msgspec.Struct]
) -> None:
    assert sorted(GUIDE.names(header)) == sorted(keys(section))


def test_the_roles_are_those_that_the_emulator_allows() -> None:
    assert set(GUIDE.names("role")) == LEAST


def test_the_first_sentence_says_that_the_product_is_an_old_one() -> None:
    first = GUIDE.text.partition("\n\n")[2].partition(":")[0]
    assert "legacy product" in " ".join(first.split())
