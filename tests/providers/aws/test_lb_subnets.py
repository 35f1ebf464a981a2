"""Tables of the choice of subnets."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider import InvalidRequest
from proreus.providers.aws.identity import ClusterTags
from proreus.providers.aws.subnets import (
    TAG_INTERNAL,
    TAG_PUBLIC,
    Subnet,
    default_subnets,
    named_subnets,
    subnets_of,
    usable_zones,
)

CLUSTER = ClusterTags("prod")
OURS = {CLUSTER.key: "owned"}
ZONES = frozenset({"a", "b"})


def subnet(id_: str, zone: str = "a", *, public: bool = True, **tags: str) -> Subnet:
    known = {
        "ours": CLUSTER.key,
        "theirs": "kubernetes.io/cluster/other",
        "elb": TAG_PUBLIC,
        "internal": TAG_INTERNAL,
        "name": "Name",
    }
    return Subnet(
        f"subnet-{id_}", zone, "vpc-1", tags={known[k]: v for k, v in tags.items()}, public=public
    )


FOUND: dict[str, tuple[tuple[Subnet, ...], dict[str, Any], list[str]]] = {
    "one in each zone, the first by id": (
        (subnet("3", ours="owned"), subnet("1", ours="owned"), subnet("2", "b", ours="shared")),
        {},
        ["1", "2"],
    ),
    "a role goes before": (
        (subnet("1", ours="owned"), subnet("2", ours="owned", elb="1")),
        {},
        ["2"],
    ),
    "a role without the cluster's tag": ((subnet("1", elb=""), subnet("2")), {}, ["1"]),
    "of two with a role the one with the cluster's tag": (
        (subnet("1", elb="1"), subnet("2", elb="1", ours="owned")),
        {},
        ["2"],
    ),
    "none of another cluster": (
        (subnet("1", elb="1", theirs="owned"), subnet("2", ours="owned")),
        {},
        ["2"],
    ),
    "none of another cluster, though none is tagged": (
        (subnet("1", elb="1", theirs="owned"), subnet("2", "b")),
        {"default": "subnet-2"},
        ["2"],
    ),
    "of another cluster, where it is used": (
        (subnet("1", elb="1", theirs="owned"), subnet("2", "b", ours="owned")),
        {"used": {"subnet-1"}},
        ["1", "2"],
    ),
    "shared by another cluster": (
        (subnet("1", elb="1", theirs="shared"), subnet("2", "b", ours="owned")),
        {},
        ["1", "2"],
    ),
    "of both": (
        (subnet("1", elb="1", theirs="owned", ours="shared"),),
        {},
        ["1"],
    ),
    "private ones are not for the public": (
        (subnet("1", public=False, ours="owned"), subnet("2", ours="owned")),
        {},
        ["2"],
    ),
    "internal": (
        (subnet("1", ours="owned"), subnet("2", public=False, ours="owned", internal="1")),
        {"internal": True},
        ["2"],
    ),
    "local zones are left out": ((subnet("1", ours="owned"), subnet("2", "lax", elb="1")), {}, ["1"]),
    "none is tagged": ((subnet("1"), subnet("2")), {"default": "subnet-2"}, ["2"]),
    "the default is not added to tagged ones": (
        (subnet("1", ours="owned"), subnet("2", "b")),
        {"default": "subnet-2"},
        ["1"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FOUND)
def test_which_subnets_are_found(case: str) -> None:
    subnets, options, ids = FOUND[case]
    chosen = default_subnets(subnets, ZONES, CLUSTER, **{"internal": False, **options})
    assert [one.id for one in chosen] == [f"subnet-{id_}" for id_ in ids]


@pytest.mark.parametrize(("internal", "tag"), [(False, TAG_PUBLIC), (True, TAG_INTERNAL)])
def test_without_a_subnet_the_tag_that_is_missing_is_named(*, internal: bool, tag: str) -> None:
    with pytest.raises(InvalidRequest, match=tag):
        default_subnets((subnet("1"),), ZONES, CLUSTER, internal=internal)


SUBNETS = st.builds(
    subnet,
    st.sampled_from("123456"),
    st.sampled_from("ab"),
    ours=st.just("owned"),
)


@given(st.lists(SUBNETS, min_size=1, unique_by=lambda one: one.id), st.randoms())
def test_the_choice_has_one_subnet_a_zone_and_does_not_depend_on_the_order(
    subnets: list[Subnet], random: Any
) -> None:
    chosen = default_subnets(subnets, ZONES, CLUSTER, internal=False)
    assert sorted(one.zone for one in chosen) == sorted({one.zone for one in subnets})
    random.shuffle(subnets)
    assert default_subnets(subnets, ZONES, CLUSTER, internal=False) == chosen


def test_named_subnets_keep_their_order() -> None:
    subnets = (subnet("1"), subnet("2", "b", name="front"), subnet("3", "c"))
    chosen = named_subnets(("front", "subnet-1"), subnets)
    assert [one.id for one in chosen] == ["subnet-2", "subnet-1"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("subnet-9",), "there is none of 'subnet-9'"),
        (("front",), "there are 2 of 'front'"),
        (("subnet-1", "subnet-2"), "both in a"),
        (("subnet-8", "front"), "(?s)subnet-8.*front"),
    ],
)
def test_a_wrong_name_of_a_subnet_is_reported(names: tuple[str, ...], message: str) -> None:
    subnets = (subnet("1", name="front"), subnet("2", name="front"))
    with pytest.raises(InvalidRequest, match=message):
        named_subnets(names, subnets)


def table(routes: Sequence[Mapping[str, Any]], **association: Any) -> dict[str, Any]:
    return {"VpcId": "vpc-1", "Routes": routes, "Associations": [association]}


GATEWAY = [{"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1"}]
LOCAL = [{"DestinationCidrBlock": "10.0.0.0/16", "GatewayId": "local"}, {"NatGatewayId": "nat-1"}]
PUBLIC: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "its own table leads out": ([table(GATEWAY, SubnetId="subnet-1")], True),
    "its own table does not, though the main one does": (
        [table(LOCAL, SubnetId="subnet-1"), table(GATEWAY, Main=True)],
        False,
    ),
    "the main table leads out": (
        [table(LOCAL, SubnetId="subnet-2"), table(GATEWAY, Main=True)],
        True,
    ),
    "the main table of another network": ([{**table(GATEWAY, Main=True), "VpcId": "vpc-2"}], False),
    "no table": ([], False),
}


@pytest.mark.parametrize("case", PUBLIC)
def test_a_subnet_is_public_if_its_routes_lead_to_an_internet_gateway(case: str) -> None:
    tables, is_public = PUBLIC[case]
    described = {
        "SubnetId": "subnet-1",
        "AvailabilityZone": "a",
        "VpcId": "vpc-1",
        "CidrBlock": "10.0.1.0/24",
        "Ipv6CidrBlockAssociationSet": [
            {"Ipv6CidrBlock": "2001:db8::/64", "Ipv6CidrBlockState": {"State": "disassociated"}},
            {"Ipv6CidrBlock": "2001:db8:1::/64", "Ipv6CidrBlockState": {"State": "associated"}},
        ],
        "Tags": [{"Key": "Name", "Value": "front"}],
    }
    (one,) = subnets_of([described], tables)
    assert one == Subnet(
        "subnet-1", "a", "vpc-1", "10.0.1.0/24", "2001:db8:1::/64", {"Name": "front"}, is_public
    )


def test_local_and_wavelength_zones_are_not_usable() -> None:
    assert usable_zones(
        [
            {"ZoneName": "a"},
            {"ZoneName": "b", "ZoneType": "availability-zone"},
            {"ZoneName": "lax", "ZoneType": "local-zone"},
            {"ZoneName": "wl1", "ZoneType": "wavelength-zone"},
        ]
    ) == {"a", "b"}
