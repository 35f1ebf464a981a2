"""Which Node has a machine, and which new one may therefore not get it."""

from collections.abc import Sequence

import pytest

from proreus.cloudprovider import CloudProvider
from proreus.cloudprovider.errors import IdentityConflict
from proreus.cloudprovider.instances import Instance
from proreus.containment.holders import MachineHolders, of_any
from proreus.providers.aws import AWSCloud
from proreus.providers.azure import AzureCloud
from proreus.providers.baidu import BaiduCloud
from proreus.providers.cloudstack import CloudStackCloud
from proreus.providers.gce import GCECloud
from proreus.providers.openstack import OpenStackCloud
from proreus.providers.ovirt import OVirtCloud
from proreus.providers.photon import PhotonCloud
from proreus.providers.rackspace import RackspaceCloud
from proreus.providers.rancher import RancherCloud
from proreus.providers.vsphere import VSphereCloud
from proreus.testing import objects

HERE, THERE = "cloud://here", "cloud://there"
UUID = "4d1a6f0e-93c5-4b8e-8d56-0c9be1a0a7f1"
_GROUP = "azure:///subscriptions/5ubscr1pt10n/resourceGroups"
_MACHINE = "providers/Microsoft.Compute/virtualMachines/one"
FORMS: Sequence[tuple[type[CloudProvider], Sequence[str]]] = (
    (AWSCloud, ("aws:///eu-west-1a/i-0123456789abcdef0", "i-0123456789abcdef0")),
    (AzureCloud, (f"{_GROUP}/mine/{_MACHINE}", f"{_GROUP}/Mine/{_MACHINE}")),
    (BaiduCloud, ("cce://i-abcd1234", "i-abcd1234")),
    (
        CloudStackCloud,
        (f"external-cloudstack://{UUID}", f"cloudstack:///zone/{UUID}", f"cloudstack://{UUID}"),
    ),
    (GCECloud, ("gce://mine/europe-west1-b/one", "gce://mine/europe-west1-b/one.example.net")),
    (
        OpenStackCloud,
        (f"openstack://east/{UUID}", f"openstack:///{UUID}", f"openstack:///{UUID.upper()}", UUID),
    ),
    (OVirtCloud, (f"ovirt-cloud-provider://{UUID}", f"ovirt:///{UUID}", f"ovirt://{UUID}")),
    (RackspaceCloud, (f"rackspace://{UUID}", f"rackspace:///{UUID}")),
    (RancherCloud, (f"rancher://{UUID}", f"rancher:///{UUID}")),
    (VSphereCloud, (f"vsphere://{UUID}", f"vsphere://{UUID.upper()}")),
    (PhotonCloud, (f"photon://{UUID}",)),
)
CLOUDS = [cloud for cloud, _ in FORMS]


def test_a_machine_is_free_once_its_node_is_gone_or_was_made_anew_with_another() -> None:
    answer = Instance(HERE)
    new = objects.node("new", provider_id="")
    one = objects.node("one", provider_id=HERE)
    for after in (None, objects.node("one", provider_id=THERE, uid="other")):
        holders = MachineHolders()
        holders.on_node(None, one)
        assert isinstance(holders.unmistaken(new, answer), IdentityConflict)
        holders.on_node(one, after)  # a list after a gap of the watch shows the last state only
        assert holders.unmistaken(new, answer) is answer


def test_a_machine_that_two_nodes_name_is_free_once_both_are_gone() -> None:
    answer = Instance(HERE)
    new = objects.node("new", provider_id="")
    nodes = [objects.node(name, provider_id=HERE) for name in ("one", "two")]
    for first, second in (nodes, reversed(nodes)):
        holders = MachineHolders()
        for node in nodes:
            holders.on_node(None, node)
        holders.on_node(first, None)
        told = holders.unmistaken(new, answer)
        assert isinstance(told, IdentityConflict)
        assert f"node {second.metadata.name} are both {HERE}" in str(told)
        holders.on_node(second, None)
        assert holders.unmistaken(new, answer) is answer


@pytest.mark.parametrize(("cloud", "forms"), FORMS)
def test_a_machine_is_not_free_whatever_form_of_its_provider_id_its_node_has(
    cloud: type[CloudProvider], forms: Sequence[str]
) -> None:
    of_one, of_several = cloud.machine_of, of_any(one.machine_of for one in CLOUDS)
    new = objects.node("new", provider_id="")
    for form in forms:
        one = objects.node("one", provider_id=form)
        for machine_of in (of_one, of_several):
            holders = MachineHolders(machine_of)
            holders.on_node(None, one)
            for answer in map(Instance, forms):
                assert isinstance(holders.unmistaken(new, answer), IdentityConflict)
            assert holders.unmistaken(new, Instance(THERE)) == Instance(THERE)
            holders.on_node(one, None)
            assert holders.unmistaken(new, Instance(form)) == Instance(form)


def test_a_provider_that_fails_over_a_provider_id_leaves_it_as_it_is_written() -> None:
    def failing(provider_id: str) -> str:
        raise ValueError(provider_id)

    holders = MachineHolders(failing)
    holders.on_node(None, objects.node("one", provider_id=HERE))
    new = objects.node("new", provider_id="")
    assert isinstance(holders.unmistaken(new, Instance(HERE)), IdentityConflict)
    assert holders.unmistaken(new, Instance(THERE)) == Instance(THERE)
