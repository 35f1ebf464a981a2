"""Addresses, types and states: what the services' descriptions mean."""

from typing import Any

import pytest

from proreus.cloudprovider.instances import InstanceState
from proreus.providers.nova.machines import type_of
from proreus.providers.openstack.config import Networking
from proreus.providers.openstack.machines import Wires, instance

from .wire import Json, port, shown, uuid


def fixed(*addresses: str) -> list[Json]:
    return [{"addr": address, "OS-EXT-IPS:type": "fixed"} for address in addresses]


def machine(server: Json, wires: Wires | None = None, **settings: Any) -> Any:
    return instance(
        {"id": uuid(1), "name": "n", "status": "ACTIVE", **server},
        wires or Wires(),
        Networking(**settings),
        region="RegionOne",
        type_="m1",
        known_as="",
        regional=False,
    )


PORTS = Wires([port("1", "", "10.0.0.5", "2001:db8::5"), port("2", "", "10.9.0.5", status="DOWN")])
SERVER = {
    "accessIPv4": "198.51.100.1",
    "accessIPv6": "2001:db8:1::1",
    "metadata": {"hostname": "worker.example.org"},
    "addresses": {
        "private": [
            *fixed("10.0.0.5", "2001:db8::5"),
            {"addr": "203.0.113.5", "OS-EXT-IPS:type": "floating"},
        ],
        "backend": fixed("10.9.0.5"),
    },
}


def test_addresses_come_in_the_official_order() -> None:
    assert shown(machine(SERVER, PORTS)) == [
        ("InternalIP", "10.0.0.5"),
        ("InternalIP", "2001:db8::5"),
        ("ExternalIP", "198.51.100.1"),
        ("ExternalIP", "2001:db8:1::1"),
        ("Hostname", "worker.example.org"),
        ("InternalIP", "10.9.0.5"),
        ("ExternalIP", "203.0.113.5"),
    ]


def test_an_address_of_a_public_network_is_external_only() -> None:
    found = shown(
        machine({"addresses": {"ext": fixed("10.0.0.5")}}, PORTS, public_network_name=("ext",))
    )
    assert found == [("InternalIP", "2001:db8::5"), ("ExternalIP", "10.0.0.5")]


def test_only_networks_that_the_config_names_are_internal() -> None:
    settings: Any = {"internal_network_name": ("backend",), "public_network_name": ()}
    found = [one for one in shown(machine(SERVER, PORTS, **settings)) if one[0] == "InternalIP"]
    assert found == [("InternalIP", "10.9.0.5")]


def test_the_name_of_a_network_means_nothing_unless_the_config_names_it() -> None:
    found = shown(machine({"addresses": {"public": fixed("10.0.0.5")}}, PORTS))
    assert ("InternalIP", "10.0.0.5") in found
    assert ("ExternalIP", "10.0.0.5") not in found


def test_a_key_without_a_value_names_no_network() -> None:
    assert shown(machine(SERVER, PORTS, internal_network_name=("",))) == shown(
        machine(SERVER, PORTS)
    )


def test_ports_in_a_trunk_have_addresses_in_their_network() -> None:
    wires = Wires(
        PORTS.ports, [("public", port("3", "", "192.0.2.9")), ("vlan", port("4", "", "10.5.0.9"))]
    )
    found = shown(machine({"addresses": {}}, wires, public_network_name=("public",)))
    assert ("ExternalIP", "192.0.2.9") in found
    assert ("InternalIP", "10.5.0.9") in found


def test_ipv6_can_be_left_out() -> None:
    assert all(
        ":" not in text for _, text in shown(machine(SERVER, PORTS, ipv6_support_disabled=True))
    )


def test_addresses_are_sorted_by_network_and_value_and_others_stay_behind() -> None:
    wires = Wires(
        [port("1", "", "10.0.0.5", "192.168.0.2", "10.0.0.4", "172.16.0.1", "2001:db8::5")]
    )
    order = "2001:db8::/32,192.168.0.0/16,10.0.0.0/8"
    found = [text for _, text in shown(machine({"addresses": {}}, wires, address_sort_order=order))]
    assert found == ["2001:db8::5", "192.168.0.2", "10.0.0.4", "10.0.0.5", "172.16.0.1"]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("ACTIVE", InstanceState.RUNNING),
        ("PAUSED", InstanceState.RUNNING),
        ("SHUTOFF", InstanceState.STOPPED),
        ("SOFT_DELETED", InstanceState.TERMINATING),
        ("UNKNOWN", InstanceState.UNKNOWN),
    ],
)
def test_only_a_server_that_is_shut_off_is_stopped(status: str, state: InstanceState) -> None:
    assert machine({"status": status}).state is state


@pytest.mark.parametrize(
    ("status", "power", "task", "is_off"),
    [
        ("SHUTOFF", 4, None, True),
        ("SHUTOFF", 4, "powering-on", False),
        ("SHUTOFF", 1, None, False),  # the hypervisor has another word than Nova
        ("ACTIVE", 4, None, False),
        ("SUSPENDED", 4, None, False),
        ("SHELVED_OFFLOADED", 4, None, False),
    ],
)
def test_a_server_is_powered_off_if_nova_and_its_hypervisor_say_so_and_nothing_goes_on(
    status: str, power: int, task: str | None, *, is_off: bool
) -> None:
    seen = {"OS-EXT-STS:power_state": power, "OS-EXT-STS:task_state": task}
    assert machine({"status": status, **seen}).powered_off is is_off


@pytest.mark.parametrize("hidden", ["OS-EXT-STS:power_state", "OS-EXT-STS:task_state"])
def test_a_server_whose_task_or_power_nova_does_not_show_may_have_power(hidden: str) -> None:
    """By its policy os-extended-status; one that is being started is called SHUTOFF meanwhile."""
    seen = {"OS-EXT-STS:power_state": 4, "OS-EXT-STS:task_state": None}
    del seen[hidden]
    found = machine({"status": "SHUTOFF", **seen})
    assert found.state is InstanceState.STOPPED
    assert found.powered_off is False


@pytest.mark.parametrize(
    ("name", "id_", "type_"),
    [
        ("m1.large", "7", "m1.large"),
        ("m1 large", "7", "7"),
        ("", "7", "7"),
        ("m1 large", "", "m1-large"),
    ],
)
def test_the_type_is_the_flavor_as_a_label_can_hold_it(name: str, id_: str, type_: str) -> None:
    assert type_of(name, id_) == type_


def test_a_zone_becomes_a_label() -> None:
    assert machine({"OS-EXT-AZ:availability_zone": "room 1:a"}).zone == "room-1-a"
