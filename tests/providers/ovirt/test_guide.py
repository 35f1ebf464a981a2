"""The guide has exactly the keys and the requests that the code knows, and its files are right."""

import ast
import re
from pathlib import Path

import msgspec
import pytest

from proreus.cloudprovider.config import read
from proreus.providers.local.config import LocalConfig
from proreus.providers.ovirt import config, operations
from proreus.providers.ovirt.operations import OPERATIONS

from ..guides import Guide, keys  # noqa: TID252 - pytest imports tests by path

GUIDE = Guide("ovirt")


@pytest.mark.parametrize(
    ("header", "section"),
    [
        ("key in `[connection]`", config.Connection),
        ("key in `[filters]`", config.Filters),
        ("key in `[client]`, of ours", config.Client),
        ("key in `[addresses]`, of ours", config.Addresses),
    ],
)
def test_the_tables_of_the_cloud_config_have_its_keys(
    header: str, section: type[msgspec.Struct]
) -> None:
    assert sorted(GUIDE.names(header)) == sorted(keys(section))


def test_the_table_of_requests_has_those_that_are_sent_with_their_roles() -> None:
    known = {(f"{one.method} {one.path}", one.role) for one in OPERATIONS.values()}
    assert set(GUIDE.rows("request")) == known


def test_the_code_sends_what_is_in_the_table_and_nothing_else() -> None:
    """The emulator refuses the rest, so all tests show that it is enough."""
    source = Path(operations.__file__).parent
    named = {
        one.value
        for file in source.glob("*.py")
        if file.name != "operations.py"
        for one in ast.walk(ast.parse(file.read_text()))
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }
    assert set(OPERATIONS) <= named
    methods = {one.method for one in OPERATIONS.values() if one.role == operations.READER}
    assert methods == {"GET"}


def test_the_table_of_orders_has_all() -> None:
    assert GUIDE.names("value of `order`") == [one.value for one in config.Order]


def test_the_files_that_the_guide_shows_are_right() -> None:
    (ours,) = re.findall(r"```ini\n(.*?)```", GUIDE.text, re.DOTALL)
    text = "\n".join(line.strip() for line in ours.splitlines())
    found = read(text, config.OVirtConfig, source="ovirt.conf")
    assert found.filters.search == "tag=kubernetes"
    (beside,) = re.findall(r"```yaml\n(.*?)```", GUIDE.text, re.DOTALL)
    local = read(beside, LocalConfig, source="local.yaml")
    assert not local.instances.enabled
    assert local.pools
