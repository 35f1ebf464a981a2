"""Which addresses a Node gets: the rules of the official manager, one by one."""

import base64
import gzip
import zlib
from typing import Any

import pytest
import yaml

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.instances import InstanceState
from proreus.providers.vsphere.addresses import addresses, selection
from proreus.providers.vsphere.config import Nodes
from proreus.providers.vsphere.machines import (
    Machine,
    Nic,
    is_powered_off,
    machine,
    state_of,
    static_addresses,
    type_of,
)
from proreus.providers.vsphere.soap import Ref

REF = Ref("VirtualMachine", "vm-1")
LAN = Nic("LAN", ("10.0.0.5", "192.168.1.5", "fd00::5"))
DMZ = Nic("DMZ", ("172.16.0.5", "fd01::5"))


def of(
    *nics: Nic, families: tuple[str, ...] = ("ipv4",), metadata: str = "", **nodes: Any
) -> list[tuple[str, str]]:
    given: dict[str, Any] = {
        key: (value,) if key.endswith("cidr") else value for key, value in nodes.items()
    }
    found = addresses(
        Machine(REF, name="m", host_name="h", nics=nics, metadata=metadata),
        selection(Nodes(**given)),
        families,
    )
    assert [(one.type, one.address) for one in found[:1]] == [("Hostname", "h")]
    return [(one.type.removesuffix("IP"), one.address) for one in found[1:]]


def test_the_first_address_is_both_internal_and_external() -> None:
    assert of(LAN, DMZ) == [("Internal", "10.0.0.5"), ("External", "10.0.0.5")]


def test_each_family_has_its_own_in_the_order_of_preference() -> None:
    assert of(LAN, families=("ipv6", "ipv4")) == [
        ("Internal", "fd00::5"), ("External", "fd00::5"),
        ("Internal", "10.0.0.5"), ("External", "10.0.0.5"),
    ]  # fmt: skip


def test_a_family_without_any_address_fails_the_node() -> None:
    with pytest.raises(InvalidRequest, match="no ipv6 address"):
        of(Nic("LAN", ("10.0.0.5",)), families=("ipv4", "ipv6"))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (
            {"internal_network_subnet_cidr": "192.168.0.0/16", "external_network_subnet_cidr": "172.16.0.0/12"},
            [("Internal", "192.168.1.5"), ("External", "172.16.0.5")],
        ),
        ({"internal_network_subnet_cidr": "1.0.0.0/8,192.168.0.0/16, 10.0.0.0/8"}, [("Internal", "192.168.1.5")]),
        ({"external_network_subnet_cidr": "172.16.0.0/12"}, [("External", "172.16.0.5")]),
        ({"internal_vm_network_name": "dmz"}, [("Internal", "172.16.0.5")]),
        (
            {"internal_vm_network_name": "LAN", "external_vm_network_name": "DMZ"},
            [("Internal", "10.0.0.5"), ("External", "172.16.0.5")],
        ),
        (
            {"internal_network_subnet_cidr": "192.168.0.0/16", "internal_vm_network_name": "DMZ"},
            [("Internal", "192.168.1.5")],
        ),
        (
            {"exclude_internal_network_subnet_cidr": "10.0.0.0/8"},
            [("Internal", "192.168.1.5"), ("External", "10.0.0.5")],
        ),
        (
            {"exclude_external_network_subnet_cidr": "10.0.0.0/8,192.168.0.0/16"},
            [("Internal", "10.0.0.5"), ("External", "172.16.0.5")],
        ),
        (
            {
                "internal_network_subnet_cidr": "10.0.0.0/8",
                "exclude_internal_network_subnet_cidr": "10.0.0.0/24",
            },
            [("Internal", "192.168.1.5"), ("External", "10.0.0.5")],
        ),
        (
            {"exclude_internal_network_subnet_cidr": "0.0.0.0/0"},
            [("External", "10.0.0.5")],
        ),
        ({"internal_vm_network_name": "none"}, [("Internal", "10.0.0.5"), ("External", "10.0.0.5")]),
    ],
)  # fmt: skip
def test_subnets_go_before_networks_and_exclusions_before_all(
    nodes: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert of(LAN, DMZ, **nodes) == expected


def test_a_machine_in_neither_of_two_named_networks_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="neither network"):
        of(LAN, internal_vm_network_name="a", external_vm_network_name="b")


def test_addresses_that_nobody_else_reaches_do_not_count() -> None:
    nobody = ("127.0.0.1", "169.254.1.1", "fe80::1", "::1", "0.0.0.0", "224.0.0.5", "ff02::1", "no")  # noqa: S104
    assert of(Nic("LAN", (*nobody, "10.0.0.5"))) == [
        ("Internal", "10.0.0.5"),
        ("External", "10.0.0.5"),
    ]
    with pytest.raises(InvalidRequest, match="no ipv4 address"):
        of(Nic("LAN", nobody))


@pytest.mark.parametrize(
    "found",
    [Machine(REF, nics=(LAN,)), Machine(REF, host_name="h")],
    ids=["no host name", "no cards"],
)
def test_a_machine_whose_tools_do_not_report_waits(found: Machine) -> None:
    with pytest.raises(CloudError, match="VMware Tools"):
        addresses(found, selection(Nodes()), ("ipv4",))


NETWORK = {
    "version": 2,
    "ethernets": {"b": {"addresses": ["172.16.0.5/16"]}, "a": {"addresses": ["192.168.1.5/24"]}},
}


def encoded(content: object) -> str:
    return base64.b64encode(yaml.safe_dump(content, sort_keys=False).encode()).decode()


PLAIN = encoded({"network": NETWORK})
BASE64 = encoded({"network": encoded(NETWORK), "network.encoding": "base64"})
GZIP = encoded(
    {
        "network": base64.b64encode(
            gzip.compress(yaml.safe_dump(NETWORK, sort_keys=False).encode())
        ).decode(),
        "network.encoding": "gzip+base64",
    }
)


@pytest.mark.parametrize("metadata", [PLAIN, BASE64, GZIP], ids=["plain", "base64", "gzip"])
def test_addresses_that_are_set_statically_come_first_in_their_order(metadata: str) -> None:
    assert static_addresses(metadata) == ("172.16.0.5", "192.168.1.5")
    assert of(LAN, DMZ, metadata=metadata)[0] == ("Internal", "172.16.0.5")
    assert of(LAN, metadata=metadata)[0] == ("Internal", "192.168.1.5")


BOMB = base64.b64encode(zlib.compress(b"\0" * (1 << 24), wbits=zlib.MAX_WBITS | 16)).decode()


@pytest.mark.parametrize(
    "metadata",
    [
        encoded({"network": "%", "network.encoding": "gz+b64"}),
        encoded({"network": BOMB, "network.encoding": "gz+b64"}),
        base64.b64encode(b"a: [").decode(),
        "abc",
        base64.b64encode(b"\xff\xfe\x00").decode(),
    ],
    ids=["no gzip", "too large", "no YAML", "no base64", "no text"],
)
def test_metadata_that_cannot_be_read_name_themselves(metadata: str) -> None:
    with pytest.raises(InvalidRequest, match=r"guestinfo\.metadata"):
        static_addresses(metadata)


@pytest.mark.parametrize(
    "content",
    [None, [], {"network": 5}, {"network": {"ethernets": {"a": 1, "b": {"addresses": 3}}}}],
)
def test_metadata_without_addresses_say_nothing(content: object) -> None:
    assert static_addresses(encoded(content)) == ()


@pytest.mark.parametrize(
    ("power", "connection", "state"),
    [
        ("poweredOn", "connected", InstanceState.RUNNING),
        ("poweredOff", "connected", InstanceState.STOPPED),
        ("poweredOff", "", InstanceState.STOPPED),
        ("suspended", "connected", InstanceState.STOPPED),
        ("poweredOff", "disconnected", InstanceState.UNKNOWN),
        ("poweredOff", "inaccessible", InstanceState.UNKNOWN),
        ("", "connected", InstanceState.UNKNOWN),
    ],
)
def test_only_what_a_host_says_is_stopped(
    power: str, connection: str, state: InstanceState
) -> None:
    found = Machine(REF, power=power, connection=connection)
    assert state_of(found) is state
    assert is_powered_off(found) is ((power, connection) == ("poweredOff", "connected"))


@pytest.mark.parametrize(
    ("guest", "system"),
    [
        ("ubuntu64Guest", "ubuntu"),
        ("other3xLinux64Guest", "linux"),
        ("windows9Server64Guest", "win10server"),
        ("rhel9_64Guest", "unknown"),
    ],
)
def test_the_instance_type_is_the_official_one(guest: str, system: str) -> None:
    found = Machine(REF, cpus=2, memory=4095, guest=guest)
    assert type_of(found) == f"vsphere-vm.cpu-2.mem-3gb.os-{system}"
    assert type_of(Machine(REF, guest=guest)) == ""


def test_properties_of_a_wrong_type_are_as_good_as_none() -> None:
    wrong = {
        "config.uuid": 5,
        "guest.net": ["x", {"network": [1], "ipAddress": [2]}],
        "runtime.host": "x",
    }
    assert machine(REF, wrong) == Machine(REF, nics=(Nic("", ()),), places=(REF,))
