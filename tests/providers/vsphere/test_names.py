"""Which machine a Node names: provider ids, UUIDs in both byte orders, names, addresses."""

from typing import Any

import pytest

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.lookups import swapped
from proreus.cloudprovider.names import LABEL_VALUE
from proreus.providers.vsphere.addresses import selection
from proreus.providers.vsphere.config import Labels, Nodes
from proreus.providers.vsphere.instances import LABEL_VCENTER, VSphereInstances
from proreus.providers.vsphere.names import Target, parsed, provider_id, target

from .site import node

UUID = "422e4956-ad22-1139-6d72-59cc8f26bc90"
REPORTED = "56492e42-22ad-3911-6d72-59cc8f26bc90"


def test_a_uuid_has_its_first_three_fields_in_two_byte_orders() -> None:
    assert swapped(REPORTED) == UUID
    assert swapped(UUID) == REPORTED


@pytest.mark.parametrize(
    "text", [f"vsphere://{UUID}", f"vsphere://{UUID.upper()}", f"vsphere:// {UUID} "]
)
def test_a_provider_id_names_a_uuid(text: str) -> None:
    assert parsed(text) == UUID
    assert provider_id(UUID) == f"vsphere://{UUID}"


@pytest.mark.parametrize(
    "text",
    [
        "vsphere://",
        "vsphere:///",
        f"vsphere:///{UUID}",
        UUID,
        f"aws://{UUID}",
        f"vsphere://{UUID}0",
        "vsphere://zone/x",
    ],
)
def test_other_texts_are_no_provider_ids_of_vsphere(text: str) -> None:
    assert parsed(text) is None


def test_a_provider_id_is_all_that_counts() -> None:
    found = target(node("10.0.0.1", f"vsphere://{UUID}", uuid=REPORTED))
    assert found == Target(uuid=UUID, system_uuids=(REPORTED,))
    assert "spec.providerID" in target(node("n", "vsphere://x")).problem


def test_without_one_the_reported_uuid_goes_before_the_name() -> None:
    found = target(node("Node-1", uuid=REPORTED.upper()))
    assert found == Target(system_uuids=(UUID, REPORTED), dns_name="node-1")


@pytest.mark.parametrize("reported", ["", "fb5f3c3b7c0a4ed0", "x" * 36])
def test_what_is_no_uuid_is_not_looked_for(reported: str) -> None:
    assert target(node("n", uuid=reported)).system_uuids == ()


@pytest.mark.parametrize(
    ("name", "address"), [("10.0.0.1", "10.0.0.1"), ("fd00::0:1", "fd00::1"), ("n", "")]
)
def test_a_name_may_be_an_address(name: str, address: str) -> None:
    assert target(node(name)).address == address


def test_a_label_that_fits_several_vcenters_names_none() -> None:
    names = [f"vcenter.{'a' * 60}.{city}.example.org" for city in ("bern", "rome")]
    places: dict[str, Any] = dict.fromkeys(names)
    instances = VSphereInstances(places, selection(Nodes()), Labels())
    label = LABEL_VALUE.clean(names[0])
    assert label == LABEL_VALUE.clean(names[1])
    labelled = node("n", f"vsphere://{UUID}", **{LABEL_VCENTER: label})
    with pytest.raises(CloudError, match="which vCenter"):
        instances.scope(labelled)
