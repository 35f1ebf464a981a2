"""The cloud-config of the provider `local`: what is read, and one message for each mistake."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from proreus.cloudprovider import ConfigError, read_config
from proreus.providers.local import LocalCloud, inventory, pools, usage
from proreus.providers.local.bgp.config import BFDProfile, Peer
from proreus.providers.local.config import LocalConfig, Unreachable


def read(text: str, source: str = "cloud.yaml") -> LocalConfig:
    return read_config(text, LocalConfig, source=source, environment={})


def test_no_setting_is_required() -> None:
    config = read("")
    assert config.address_pools == ()
    assert config.instances.inventory == ""
    assert config.instances.probing.ports == ()
    assert config.routes.enabled


def test_pools_select_services_as_kubernetes_does() -> None:
    config = read("""
        pools:
          web:
            addresses: [192.0.2.0/30]
            share-across-namespaces: true
            service-selectors:
              - matchLabels: {tier: web}
              - matchExpressions: [{key: app, operator: In, values: [a, b]}]
        """)
    (web,) = config.address_pools
    assert web.share_across_namespaces
    assert [one.matches({"app": "b"}) for one in web.service_selectors] == [False, True]
    with pytest.raises(ConfigError, match="operator: 'Is' must be In, NotIn"):
        read(
            "pools: {p: {addresses: [192.0.2.1],"
            " service-selectors: [{matchExpressions: [{key: a, operator: Is}]}]}}"
        )


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "cloud.yaml",
            """
            instances: {inventory: /etc/machines, probing: {ports: [22], unreachable: gone}}
            pools:
              blue: {addresses: [192.0.2.0/30, 2001:db8::1-2001:db8::2]}
              red: {addresses: 198.51.100.7, auto-assign: false, namespaces: [a, b]}
            """,
        ),
        (
            "cloud.conf",
            """
[Instances]
inventory = /etc/machines
[Pools "blue"]
addresses = 192.0.2.0/30
addresses = 2001:db8::1-2001:db8::2
[Pools "red"]
addresses = 198.51.100.7
auto-assign = false
namespaces = a
namespaces = b
""",
        ),
    ],
)
def test_pools_are_read_in_every_language(source: str, text: str) -> None:
    config = read(text, source)
    assert config.instances.inventory == "/etc/machines"
    blue, red = config.address_pools
    assert [(str(one.first), str(one.last)) for one in blue.ranges] == [
        ("192.0.2.0", "192.0.2.3"),
        ("2001:db8::1", "2001:db8::2"),
    ]
    assert (blue.name, blue.auto_assign, blue.namespaces) == ("blue", True, frozenset())
    assert (red.name, red.auto_assign, set(red.namespaces)) == ("red", False, {"a", "b"})


def test_probing_is_read() -> None:
    probing = read(
        "instances: {probing: {ports: [22, 10250], unreachable: gone}}"
    ).instances.probing
    assert probing.ports == (22, 10250)
    assert probing.unreachable is Unreachable.GONE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pools: {a: {addresses: [192.0.2.0/24]}, b: {addresses: [192.0.2.9]}}",
         ("pools", "a and b overlap", "192.0.2.9")),
        ("pools: {a: {addresses: [192.0.2.1-192.0.2.99, 192.0.2.99]}}",
         ("a overlaps itself: 192.0.2.1-192.0.2.99 and 192.0.2.99",)),
        ("pools: {a: {addresses: []}}", ("pools.a", "addresses", "192.0.2.0/27")),
        ("pools: {a: {}}", ("pools.a.addresses", "required")),
        ("pools: {a: {addresses: [192.0.2.5/24]}}", ("host bits", "192.0.2.0/24 or 192.0.2.5")),
        ("pools: {a: {addresses: [192.0.2.9-192.0.2.1]}}", ("ends before it begins",)),
        ("pools: {a: {addresses: [192.0.2.9-2001:db8::1]}}", ("not a range",)),
        ("pools: {a: {addresses: [nowhere]}}", ("'nowhere'", "not a CIDR")),
        ("pools: {a: {addresses: [127.0.0.0/8]}}", ("127.0.0.0", "leave out")),
        ("pools: {a: {addresses: ['fe80::/64']}}", ("fe80::", "leave out")),
        ("pools: {a: {addresses: 192.0.2.1, adresses: x}}", ("pools.a.adresses", "mean addresses")),
        ("routes: {table: 255}", ("routes", "table", "254")),
        ("routes: {protocol: 2}", ("routes", "protocol", "192 to 254")),
        ("routes: {protocol: 202}", ("protocol",)),
        ("instances: {probing: {ports: [0]}}", ("ports", "0 is not a port")),
        ("instances: {enabled: false, inventory: /etc/machines}", ("enabled", "take out inventory")),
        ("instances: {probing: {timeout: 0s}}", ("timeout", "more than 0s")),
        ("instances: {probing: {threshold: 0}}", ("threshold", "at least 1")),
        ("instances: {probing: {unreachable: maybe}}", ("unknown, stopped, gone",)),
        ("health-checks: {interval: 2}", ("interval", "unit")),
        ("health-checks: {interval: 0s}", ("interval", "more than 0s")),
        ("health-checks: {threshold: 0}", ("threshold", "at least 1")),
        ("health-checks: {ping: 1ms}", ("ping", "100ms")),
        ("draining: -1s", ("draining", "negative")),
        ("pool: {}", ("pool", "did you mean pools")),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_the_remedy(
    text: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    (problem,) = caught.value.problems
    assert problem.startswith("cloud.yaml:1: ")
    assert all(word in problem for word in words), problem


def test_a_range_within_a_pool_hides_no_overlap_behind_it() -> None:
    with pytest.raises(ConfigError) as caught:
        read(
            "pools: {a: {addresses: [192.0.2.1-192.0.2.99]}, b: {addresses: [192.0.2.5]},"
            " c: {addresses: [192.0.2.50]}}"
        )
    assert [text.partition("pools ")[2] for text in caught.value.problems] == [
        "a and b overlap: 192.0.2.1-192.0.2.99 and 192.0.2.5",
        "a and c overlap: 192.0.2.1-192.0.2.99 and 192.0.2.50",
    ]


def test_region_and_zone_can_be_labels() -> None:
    with pytest.raises(ConfigError) as caught:
        LocalCloud(read("region: at home\nzone: z-1"))
    (problem,) = caught.value.problems
    assert problem.startswith("region: 'at home' must be")


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        read("routes: {table: 0, protocol: 1}\npools: {a: {addresses: [x, y]}}\ndraining: soon")
    assert len(caught.value.problems) == 5


@pytest.mark.parametrize(
    ("text", "is_gateway"),
    [
        ("{}", False),
        ("pools: {a: {addresses: [192.0.2.64/27]}}", True),
        ("pools: {a: {addresses: [192.0.2.64/27]}}\ngateway: {enabled: false}", False),
    ],
)
def test_one_replica_leads_where_the_kernel_of_its_machine_is_the_gateway(
    text: str, *, is_gateway: bool
) -> None:
    assert LocalCloud(read(text)).one_leads == is_gateway


def settings(of: type[msgspec.Struct]) -> Iterator[str]:
    """The names of all settings, as they are written."""
    for field in msgspec.structs.fields(of):
        yield field.encode_name.rstrip("_").replace("_", "-")
        for inner in (field.type, *get_args(field.type)):
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                yield from settings(inner)


def test_the_guide_names_every_setting_annotation_and_metric() -> None:
    guide = Path(__file__).parents[2].joinpath("docs/guides/local.md").read_text()
    metrics = [inventory.PROBLEMS, usage.TOTAL, usage.USED]
    names = {
        *(f"{name}:" for name in settings(LocalConfig)),
        *(f"`{name}`" for name in vars(pools).values() if str(name).startswith("proreus.io/")),
        *(f"`{next(iter(metric.describe())).name}`" for metric in metrics),
    }
    assert {name for name in names if name not in guide} == set()
    machines = {field.encode_name for field in msgspec.structs.fields(inventory.Machine)}
    spelt = {name.replace("_", "").replace("uuid", "UUID").lower() for name in machines}
    assert {name for name in spelt if f"{name.lower()}:" not in guide.lower()} == set()


def test_the_configurations_that_the_guide_shows_are_right() -> None:
    guide = Path(__file__).parents[2].joinpath("docs/guides/local.md").read_text()
    shown_texts = re.findall(r"```yaml\n(?!# values\.yaml)(.*?)```", guide, re.DOTALL)
    *_, config, machines, bgp, metallb, beside = shown_texts
    (pool,) = read(metallb).address_pools
    assert (pool.name, pool.avoid_buggy_ips, pool.share_across_namespaces) == ("web", True, True)
    assert not read(beside).instances.enabled
    (peer,) = read(bgp).bgp.peers.values()
    assert peer == Peer(address="10.9.0.1", as_=64513, bfd_profile="fast")
    assert read(bgp).bgp.bfd_profiles["fast"] == BFDProfile()
    shown, default = read(config), LocalConfig()
    assert shown.gateway == default.gateway
    assert shown.routes == default.routes
    assert shown.health_checks == default.health_checks
    assert shown.draining == default.draining
    assert inventory.decode({"m.yaml": machines}, inventory.Defaults()).by_name.keys() == {
        "node-1",
        "node-2",
    }
