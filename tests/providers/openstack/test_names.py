"""Which server a Node is, and whose it is."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider.instances import Ownership
from proreus.providers.nova.names import pattern
from proreus.providers.openstack.names import ownership, target

from .wire import node, uuid

ID = uuid(1)
UPPER = "2E8C1F0A-0000-4000-8000-00000000000A"
REGION = "topology.kubernetes.io/region"


@pytest.mark.parametrize("of", [f"openstack:///{ID}", f"openstack://RegionOne/{ID}", ID])
def test_every_form_of_provider_id_names_its_server(of: str) -> None:
    assert target(node("any", of), "RegionOne").id == ID


@pytest.mark.parametrize("of", [f"openstack:///{UPPER}", f"openstack://RegionOne/{UPPER}", UPPER])
def test_an_id_in_capitals_is_the_same_server(of: str) -> None:
    """Some kernels tell a machine's UUID so, and Nova's database may tell the two apart."""
    assert target(node("any", of), "RegionOne").id == UPPER.lower()


@pytest.mark.parametrize(
    "of", [f"openstack://RegionTwo/{ID}", f"aws:///{ID}", "openstack:///x", "x", "openstack://"]
)
def test_what_is_no_server_of_this_region_is_never_looked_up(of: str) -> None:
    found = target(node("any", of), "RegionOne")
    assert (found.id, found.name) == ("", "")
    assert of in found.problem


def test_without_a_provider_id_the_name_decides() -> None:
    assert target(node("worker-1"), "").name == "worker-1"


@pytest.mark.parametrize(
    ("of", "label_", "region", "whose"),
    [
        ("", "", "RegionOne", Ownership.UNKNOWN),
        ("aws:///us-east-1a/i-0123", "", "RegionOne", Ownership.NO),
        (f"openstack://RegionOne/{ID}", "RegionTwo", "RegionOne", Ownership.YES),
        (f"openstack://RegionTwo/{ID}", "RegionOne", "RegionOne", Ownership.NO),
        (f"openstack:///{ID}", "RegionOne", "RegionOne", Ownership.YES),
        (f"openstack:///{ID}", "RegionTwo", "RegionOne", Ownership.NO),
        (f"openstack:///{ID}", "", "RegionOne", Ownership.UNKNOWN),
        (f"openstack:///{ID}", "", "", Ownership.YES),
        (ID, "", "", Ownership.YES),
    ],
)
def test_ownership_follows_the_provider_id_or_else_the_label(
    of: str, label_: str, region: str, whose: Ownership
) -> None:
    labels = {REGION: label_} if label_ else {}
    assert ownership(node("any", of, **labels), region) is whose


NAMES = st.lists(
    st.text(string.ascii_lowercase + string.digits + "-.", min_size=1), min_size=1, unique=True
)


@given(NAMES, st.text(string.ascii_lowercase + string.digits + "-."))
def test_a_pattern_finds_exactly_the_names_in_it(names: list[str], other: str) -> None:
    found = re.compile(pattern(names))
    assert all(found.search(name) for name in names)
    assert bool(found.search(other)) == (other in names)
