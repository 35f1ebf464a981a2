"""What a Service's security group lets in, and which ports have it: the decisions."""

from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import Host, HostPolicy, LoadBalancer
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.identity import marks
from proreus.kube.objects import ServicePort
from proreus.providers.openstack.octavia.group_rules import (
    PortChange,
    Rule,
    RuleChange,
    Spot,
    changed_ports,
    changed_rules,
    description_of,
    desired_rules,
    name_of,
    rule_of,
    spots,
    tags_of,
    unreached,
)
from proreus.testing import objects

from .wire import CLUSTER, Json, port, uuid

CIDR, CIDR_V6 = "10.0.0.0/16", "2001:db8::/64"
BOTH = {"IPv4": CIDR, "IPv6": CIDR_V6}
GROUP = uuid(900)


def desired_balancer(*ports: ServicePort, **spec: Any) -> LoadBalancer:
    given = {
        "ports": ports or (ServicePort(80, "http", node_port=30080),),
        "ip_families": ("IPv4",),
        **spec,
    }
    service = objects.service(namespace="shop", **given)
    return desired_load_balancer(service, (), HostPolicy(), CLUSTER)


def rule(**fields: Any) -> Json:
    return {
        "id": "r",
        "direction": "ingress",
        "ethertype": "IPv4",
        "protocol": "tcp",
        "port_range_min": 30080,
        "port_range_max": 30080,
        "remote_ip_prefix": CIDR,
        "remote_group_id": None,
        **fields,
    }


HTTP = Rule("IPv4", "tcp", 30080, CIDR)
LOCAL = {"external_traffic_policy": "Local", "health_check_node_port": 32000}


@pytest.mark.parametrize(
    ("lb", "cidrs", "provider", "rules"),
    [
        (desired_balancer(), {"IPv4": CIDR}, "amphora", {HTTP}),
        (
            desired_balancer(
                ServicePort(80, "a", node_port=30080),
                ServicePort(53, "b", protocol="UDP", node_port=30053),
                ServicePort(81, "c", node_port=0),
            ),
            {"IPv4": CIDR},
            "amphora",
            {HTTP, Rule("IPv4", "udp", 30053, CIDR)},
        ),
        (
            desired_balancer(ip_families=("IPv4", "IPv6")),
            BOTH,
            "amphora",
            {HTTP, Rule("IPv6", "tcp", 30080, CIDR_V6)},
        ),
        (
            desired_balancer(**LOCAL),
            {"IPv4": CIDR},
            "amphora",
            {HTTP, Rule("IPv4", "tcp", 32000, CIDR)},
        ),
        (
            desired_balancer(load_balancer_source_ranges=("192.0.2.0/24",)),
            {"IPv4": CIDR},
            "amphora",
            {HTTP},
        ),
        (desired_balancer(), {"IPv4": CIDR}, "ovn", {Rule("IPv4", "tcp", 30080, "0.0.0.0/0")}),
        (
            desired_balancer(
                load_balancer_source_ranges=("192.0.2.7/32", "198.51.100.0/24"), **LOCAL
            ),
            {"IPv4": CIDR},
            "ovn",
            {
                Rule("IPv4", "tcp", 30080, "192.0.2.7/32"),
                Rule("IPv4", "tcp", 30080, "198.51.100.0/24"),
                Rule("IPv4", "tcp", 32000, CIDR),
            },
        ),
        (
            desired_balancer(load_balancer_source_ranges=("2001:db8::/32",)),
            {"IPv4": CIDR},
            "ovn",
            set(),
        ),
    ],
)
def test_node_ports_are_open_to_where_load_balancers_send_from(
    lb: LoadBalancer, cidrs: dict[str, str], provider: str, rules: set[Rule]
) -> None:
    assert desired_rules(lb, cidrs, provider) == rules


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        (rule(), HTTP),
        (rule(protocol="6"), HTTP),
        (rule(protocol="TCP"), HTTP),
        (rule(remote_ip_prefix="10.0.3.4/16"), HTTP),
        (rule(remote_ip_prefix=None), Rule("IPv4", "tcp", 30080, "0.0.0.0/0")),
        (
            rule(ethertype="IPv6", remote_ip_prefix=None),
            Rule("IPv6", "tcp", 30080, "::/0"),
        ),
        (rule(direction="egress"), None),
        (rule(remote_group_id=GROUP, remote_ip_prefix=None), None),
        (rule(remote_address_group_id=GROUP, remote_ip_prefix=None), None),
        (rule(port_range_max=30090), None),
        (rule(port_range_min=None, port_range_max=None), None),
    ],
)
def test_a_rule_means_the_same_however_it_is_written(described: Json, expected: Rule) -> None:
    assert rule_of(described) == expected


def test_missing_rules_are_made_and_all_others_go() -> None:
    actual = [
        rule(id="kept"),
        rule(id="twice", protocol="6"),
        rule(id="old", port_range_min=31111, port_range_max=31111),
        rule(id="out", direction="egress"),
        rule(id="mine", protocol="icmp", port_range_min=None, port_range_max=None),
    ]
    other = Rule("IPv4", "udp", 30053, CIDR)
    change = changed_rules({HTTP, other}, actual)
    assert change == RuleChange((other,), ("twice", "old", "out", "mine"))
    assert changed_rules({HTTP}, actual[:1]) == RuleChange()


def host(number: int, *addresses: str) -> Host:
    families = {"IPv4": tuple(addresses[:1]), "IPv6": tuple(addresses[1:])}
    return Host(f"n{number}", f"openstack:///{uuid(number)}", families)


def test_hosts_are_reached_by_their_first_address_of_each_family() -> None:
    lb = msgspec.structs.replace(
        desired_balancer(),
        hosts=(host(1, "10.0.0.1", "2001:DB8::1"), host(2), Host("n3", "aws:///x")),
    )
    assert spots(lb, {"IPv4": "s4", "IPv6": "s6"}) == {
        Spot(uuid(1), "10.0.0.1", "s4"),
        Spot(uuid(1), "2001:db8::1", "s6"),
    }


def test_ports_get_the_group_or_lose_it_and_keep_their_others() -> None:
    wanted_spots = {Spot(uuid(number), f"10.0.0.{number}", "s") for number in (1, 2, 3, 4)}
    has = port("has", uuid(1), "10.0.0.1", security_groups=["a", GROUP])
    gone = port("gone", uuid(9), "10.0.0.9", security_groups=["b", GROUP, "c"])
    lacks = port("lacks", uuid(2), "10.0.0.2", security_groups=["d"])
    second = port("second", uuid(2), "10.0.7.2")
    elsewhere = port("elsewhere", uuid(3), "10.0.0.3")
    elsewhere["fixed_ips"][0]["subnet_id"] = "another"
    is_open = port("open", uuid(4), "10.0.0.4", port_security_enabled=False, security_groups=[])
    assert unreached(wanted_spots, [has, gone]) == {uuid(2), uuid(3), uuid(4)}
    candidates = [lacks, second, elsewhere, is_open]
    assert changed_ports(wanted_spots, [has, gone], candidates, GROUP) == [
        PortChange(gone, ("b", "c")),
        PortChange(lacks, ("d", GROUP)),
    ]
    assert changed_ports((), [has], [], GROUP) == [PortChange(has, ("a",))]


def test_a_group_has_the_official_name_and_tags_that_every_neutron_takes() -> None:
    ref = desired_balancer().ref
    assert name_of(ref) == "lb-sg-uid-web-shop-web"
    expected = "Security Group for shop/web Service LoadBalancer in cluster test"
    assert description_of(ref) == expected
    uid = "0b5e3a1c-0000-4000-8000-000000000002"
    tags = tags_of(marks(CLUSTER, f"shop/{'x' * 60}", uid))
    assert sorted(tags) == [
        f"proreus/cluster-uid={CLUSTER.uid}",
        "proreus/cluster=test",
        f"proreus/service-uid={uid}",
    ]
