"""MetalLB's pools in the cloud-config of `local`: what they are read as, and who gets what of them.

The order is MetalLB's: `pinnedPoolsForService` and `sortPools` of its allocator.
"""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import indent
from typing import Any

import pytest
import yaml

from proreus.cloudprovider import ConfigError, read_config
from proreus.cloudprovider.selectors import Requirement, Selector
from proreus.providers.local import LocalCloud
from proreus.providers.local.addresses import Pool, parse_range
from proreus.providers.local.asked import Request
from proreus.providers.local.config import LocalConfig
from proreus.providers.local.pools import Assigned, Refused, assign
from proreus.providers.local.taken import Occupied, Taken

HTTP = frozenset({("TCP", 80)})

SIMPLE = """
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata:
  name: example
  namespace: metallb-system
spec:
  addresses:
  - 192.168.10.0/24
  - 192.168.9.1-192.168.9.5
  - fc00:f853:0ccd:e799::/124
"""
"""An example of MetalLB's: `configsamples/ipaddresspool_simple.yaml`."""

SELECTING = """
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata:
  name: ippool-ns-service-alloc-sample
  namespace: metallb-system
spec:
  addresses:
    - 192.168.20.0/24
  avoidBuggyIPs: true
  serviceAllocation:
    priority: 50
    namespaces:
      - namespace-a
      - namespace-b
    namespaceSelectors:
      - matchLabels:
          foo: bar
    serviceSelectors:
      - matchExpressions:
          - {key: app, operator: In, values: [bar]}
"""
"""An example of MetalLB's: `configsamples/ipaddresspool_with_selector.yaml`."""

EXPENSIVE = """
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata:
  name: expensive
  namespace: metallb-system
spec:
  addresses:
  - 42.176.25.64/30
  autoAssign: false
"""
"""An example of MetalLB's documentation, "Controlling automatic address allocation"."""

EXAMPLES = (
    Pool(
        name="ippool-ns-service-alloc-sample",
        ranges=(parse_range("192.168.20.0/24"),),
        avoid_buggy_ips=True,
        namespaces=frozenset({"namespace-a", "namespace-b"}),
        namespace_selectors=(Selector(match_labels={"foo": "bar"}),),
        service_selectors=(
            Selector(match_expressions=(Requirement(key="app", operator="In", values=("bar",)),)),
        ),
        share_across_namespaces=True,
    ),
    Pool(
        name="example",
        ranges=tuple(
            parse_range(one)
            for one in (
                "192.168.10.0/24",
                "192.168.9.1-192.168.9.5",
                "fc00:f853:ccd:e799::/124",
            )
        ),
        share_across_namespaces=True,
    ),
    Pool(
        name="expensive",
        ranges=(parse_range("42.176.25.64/30"),),
        auto_assign=False,
        share_across_namespaces=True,
    ),
)


def read(text: str) -> LocalConfig:
    return read_config(text, LocalConfig, source="cloud.yaml", environment={})


def listed(*texts: str, **of_list: Any) -> Mapping[str, Any]:
    """What kubectl prints of several objects: with what the API server adds to them."""
    items = [yaml.safe_load(text) for text in texts]
    for number, one in enumerate(items):
        one["metadata"] |= {
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}\n"},
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "generation": 1,
            "resourceVersion": str(number),
            "uid": f"uid-{number}",
        }
        one["status"] = {"assignedIPv4": 1, "availableIPv4": 2, "conditions": [{"type": "New"}]}
    of_list = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}} | of_list
    return {**of_list, "items": items}


def given(objects: Any, **more: Any) -> LocalConfig:
    return read(yaml.safe_dump({"ip-address-pools": objects, **more}, sort_keys=False))


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param(listed(SIMPLE, SELECTING, EXPENSIVE), id="the list that kubectl prints"),
        pytest.param([yaml.safe_load(one) for one in (SIMPLE, SELECTING, EXPENSIVE)], id="objects"),
        pytest.param(
            [yaml.safe_load(SIMPLE), listed(SELECTING, EXPENSIVE)], id="an object and a list"
        ),
        pytest.param(
            listed(
                SIMPLE,
                SELECTING,
                EXPENSIVE,
                apiVersion="metallb.io/v1beta1",
                kind="IPAddressPoolList",
            ),
            id="the list that the API server has",
        ),
    ],
)
def test_the_examples_of_metallb_are_read(objects: Any) -> None:
    assert given(objects).address_pools == EXAMPLES


def test_one_object_is_pasted_below_the_key() -> None:
    assert read("ip-address-pools:" + indent(SELECTING, "  ")).address_pools == EXAMPLES[:1]


def test_an_empty_list_has_no_pools() -> None:
    assert given(listed()).address_pools == ()


def test_bits_of_the_host_do_not_matter_as_in_metallb() -> None:
    config = given(pool("a", "192.0.2.5/24", "2001:db8::1/120"))
    ranges = config.address_pools[0].ranges
    assert ranges == (parse_range("192.0.2.0/24"), parse_range("2001:db8::/120"))


def pool(name: str, *addresses: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "metallb.io/v1beta1",
        "kind": "IPAddressPool",
        "metadata": {"name": name},
        "spec": {"addresses": [*addresses], **spec},
    }


MISTAKES: Sequence[tuple[Any, dict[str, Any], Sequence[Sequence[str]]]] = [
    (pool("a", "192.0.2.0/24") | {"kind": "AddressPool"}, {}, [["a apiVersion, kind", "'AddressPool'", "must be metallb.io/v1beta1, IPAddressPool"]]),
    (pool("a", "192.0.2.0/24") | {"apiVersion": "metallb.io/v1beta2"}, {}, [["'metallb.io/v1beta2'"]]),
    (pool("a") | {"spec": None}, {}, [["a spec.addresses: give a CIDR"]]),
    (pool("a"), {}, [["a spec.addresses: give a CIDR"]]),
    (pool("", "192.0.2.0/24"), {}, [["metadata.name: give"]]),
    (pool("a", "192.0.2.0/24") | {"metadata": "a"}, {}, [["metadata.name: give"]]),
    (pool("a", "192.0.2.0/33", "192.0.2.9-192.0.2.1"), {}, [["a spec.addresses", "'192.0.2.0/33' is not a CIDR"], ["a spec.addresses", "ends before it begins"]]),
    (pool("a", "192.0.2.0/24", autoAsign=False), {}, [["ip-address-pools.spec.autoAsign", "did you mean autoAssign?"]]),
    (pool("a", "192.0.2.0/24", serviceAllocation={"priority": "high", "selectors": []}), {}, [["serviceAllocation.priority", "whole number"], ["serviceAllocation.selectors", "is unknown"]]),
    (pool("a", "192.0.2.0/24") | {"items": [pool("b", "192.0.3.0/24")]}, {}, [["items: take them out"]]),
    ({**listed(SIMPLE), "spec": {}}, {}, [["spec: a list has none"]]),
    ([pool("a", "192.0.2.0/24"), pool("b", "192.0.2.9-192.0.2.9"), pool("a", "192.0.3.0/24")], {}, [["a is the name of two pools"], ["pools a and b overlap"]]),
    (pool("a", "192.0.2.0/24"), {"pools": {"a": {"addresses": ["192.0.3.0/24"]}, "b": {"addresses": ["192.0.2.9"]}}}, [["a is the name of two pools"], ["pools a and b overlap"]]),
]  # fmt: skip


@pytest.mark.parametrize(("objects", "more", "expected"), MISTAKES)
def test_mistakes_are_told_at_once(
    objects: Any, more: dict[str, Any], expected: Sequence[Sequence[str]]
) -> None:
    with pytest.raises(ConfigError) as caught:
        given(objects, **more)
    found = caught.value.problems
    assert len(found) == len(expected), found
    for problem, words in zip(found, expected, strict=True):
        assert problem.startswith("cloud.yaml:"), problem
        assert all(word in problem for word in words), problem


def test_bgp_announces_and_a_gateway_gives_what_only_metallb_has_written() -> None:
    bgp = {"as": 64512, "peers": {"tor": {"address": "10.9.0.1", "as": 64513}}}
    told = {"pools": ["example"]}
    config = given(
        yaml.safe_load(SIMPLE),
        gateway={"enabled": False},
        bgp={**bgp, "advertisements": {"each": told}},
    )
    assert [one.name for one in config.address_pools] == ["example"]
    with pytest.raises(ConfigError, match="'other' is not there, but example"):
        given(
            yaml.safe_load(SIMPLE),
            gateway={"enabled": False},
            bgp={**bgp, "advertisements": {"each": {"pools": ["other"]}}},
        )


@pytest.mark.parametrize(
    ("objects", "more", "reads"),
    [
        ([], {}, False),
        (yaml.safe_load(SIMPLE), {}, False),
        (yaml.safe_load(SELECTING), {}, True),
        (yaml.safe_load(SELECTING), {"gateway": {"enabled": False}}, False),
        (
            pool("a", "192.0.2.0/24", serviceAllocation={"namespaces": ["b"]}),
            {},
            False,
        ),
        (
            pool(
                "a",
                "192.0.2.0/24",
                serviceAllocation={
                    "namespaceSelectors": [{"matchLabels": {"kubernetes.io/metadata.name": "b"}}]
                },
            ),
            {},
            False,
        ),
    ],
)
def test_namespaces_are_needed_only_where_labels_of_theirs_choose(
    objects: Any, more: dict[str, Any], *, reads: bool
) -> None:
    assert ("namespaces" in LocalCloud(given(objects, **more)).needs) is reads


def kept(name: str, third: int, **allocation: Any) -> dict[str, Any]:
    """A pool of one address for some Services."""
    return pool(name, f"10.0.{third}.1/32", serviceAllocation=allocation)


def by_label(**labels: str) -> list[dict[str, Any]]:
    return [{"matchLabels": labels}]


ALL = pool("all", "10.0.9.1/32")
CLUSTER = [
    ALL,
    kept("last", 1, namespaces=["team"]),
    kept("second", 2, priority=20, namespaces=["team"], serviceSelectors=by_label(tier="web")),
    kept("by-selector", 3, priority=10, serviceSelectors=by_label(tier="web")),
    kept("by-namespace", 4, priority=10, namespaceSelectors=by_label(zone="red")),
    kept("any", 5, priority=30),
    pool(
        "asked", "10.0.6.1/32", autoAssign=False, serviceAllocation={"priority": 1, "namespaces": ["team"]}
    ),
]  # fmt: skip
RED, BLUE = {"zone": "red"}, {"zone": "blue"}
WEB = {"tier": "web"}


def order(request: Mapping[str, Any], objects: Iterable[Any] = CLUSTER, **more: Any) -> list[str]:
    """The pools that Services of this kind get addresses of, until there is none left."""
    pools = given([*objects], **more).address_pools
    names = {str(one.ranges[0].first): one.name for one in pools}
    occupied = Occupied()
    found: list[str] = []
    for number in range(len(pools) + 1):
        uid = f"uid-{number}"
        wants = Request(**{"uid": uid, "ports": HTTP, "namespace_labels": {}, **request})
        answer = assign(wants, occupied, pools)
        if isinstance(answer, Refused):
            assert answer.may_pass, answer
            return found
        (address,) = answer.addresses
        found.append(names[address])
        service = f"{wants.namespace}/{number}"
        occupied.give(uid, [Taken(address=address, uid=uid, service=service, ports=HTTP)])
    raise AssertionError(found)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param({"namespace": "none"}, ["any", "all"], id="no pool is kept for it"),
        pytest.param({"namespace": "team"}, ["any", "last", "all"], id="no priority is the last"),
        pytest.param(
            {"namespace": "none", "labels": WEB}, ["by-selector", "any", "all"], id="by labels"
        ),
        pytest.param(
            {"namespace": "team", "labels": WEB},
            ["by-selector", "second", "any", "last", "all"],
            id="a lower number comes first",
        ),
        pytest.param(
            {"namespace": "team", "labels": WEB, "namespace_labels": RED},
            ["by-namespace", "by-selector", "second", "any", "last", "all"],
            id="of equals the one by namespace comes first",
        ),
        pytest.param(
            {"namespace": "team", "labels": WEB, "namespace_labels": BLUE},
            ["by-selector", "second", "any", "last", "all"],
            id="a namespace with other labels",
        ),
        pytest.param({"namespace": "team", "pool": "asked"}, ["asked"], id="asked for by name"),
    ],
)
def test_pools_are_tried_in_the_order_of_metallb(
    request_: Mapping[str, Any], expected: list[str]
) -> None:
    assert order(request_) == expected


def test_own_pools_come_first_as_written() -> None:
    own = {"z": {"addresses": ["10.1.0.1"]}, "a": {"addresses": ["10.1.1.1"]}}
    assert order({"namespace": "none"}, pools=own) == ["z", "a", "any", "all"]


def test_equal_pools_come_as_written() -> None:
    objects = [kept("b", 1), kept("a", 2), pool("d", "10.0.3.1/32"), pool("c", "10.0.4.1/32")]
    assert order({"namespace": "none"}, objects) == ["b", "a", "d", "c"]


@pytest.mark.parametrize(
    "allocation",
    [
        {"namespaceSelectors": by_label(zone="red")},
        {"namespaceSelectors": by_label(zone="red"), "serviceSelectors": by_label(tier="web")},
    ],
)
def test_selectors_that_match_no_namespace_are_for_nobody(allocation: Mapping[str, Any]) -> None:
    request = {"namespace": "team", "labels": WEB, "namespace_labels": BLUE}
    assert order(request, [kept("red", 1, **allocation), ALL]) == ["all"]


UNKNOWN: Mapping[str, Any] = {"uid": "u", "ports": HTTP, "namespace_labels": None}


def test_a_service_waits_for_the_labels_of_its_namespace_and_keeps_what_it_has() -> None:
    pools = given([kept("red", 1, namespaceSelectors=by_label(zone="red")), ALL]).address_pools
    answer = assign(Request(namespace="team", **UNKNOWN), Occupied(), pools)
    assert isinstance(answer, Refused)
    assert answer.may_pass
    assert "labels of the namespace team are not known" in answer.reason
    assert "namespaceSelectors of red" in answer.reason


@pytest.mark.parametrize(
    "allocation",
    [
        pytest.param({"namespaces": ["team"]}, id="its namespace is named"),
        pytest.param(
            {"namespaces": ["team"], "namespaceSelectors": by_label(zone="red")},
            id="its namespace is named, too",
        ),
        pytest.param(
            {"namespaceSelectors": by_label(**{"kubernetes.io/metadata.name": "team"})},
            id="its namespace is selected by its name",
        ),
    ],
)
def test_where_the_name_of_the_namespace_is_enough_nothing_is_waited_for(
    allocation: Mapping[str, Any],
) -> None:
    pools = given([kept("named", 1, **allocation), ALL]).address_pools
    answer = assign(Request(namespace="team", **UNKNOWN), Occupied(), pools)
    assert answer == Assigned(("10.0.1.1",))


def test_a_pool_for_other_services_does_not_make_a_service_wait() -> None:
    allocation = {"namespaceSelectors": by_label(zone="red"), "serviceSelectors": by_label(a="b")}
    pools = given([kept("red", 1, **allocation), ALL]).address_pools
    answer = assign(Request(namespace="team", **UNKNOWN), Occupied(), pools)
    assert answer == Assigned(("10.0.9.1",))


def test_services_of_several_namespaces_share_as_in_metallb() -> None:
    (one,) = given(ALL).address_pools
    has = Taken(address="10.0.9.1", uid="o", service="other/a", ports=HTTP, sharing_key="k")
    wants = Request(uid="u", namespace="team", ports=frozenset({("TCP", 443)}), sharing_key="k")
    assert assign(wants, Occupied([has]), [one]) == Assigned(("10.0.9.1",))
