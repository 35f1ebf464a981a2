"""Whose things are by their tags, names and descriptions: tables."""

from collections.abc import Mapping
from typing import Any

import pytest

from proreus.cloudprovider import ClusterIdentity, LoadBalancerRef
from proreus.cloudprovider.ownership import Owner
from proreus.kube.objects import LoadBalancerIngress
from proreus.providers.openstack.octavia import floating, owners

HERE, THERE = ClusterIdentity("test", "uid-here"), ClusterIdentity("test", "uid-there")
ADDRESS = "203.0.113.5"
REF = LoadBalancerRef(
    HERE, "shop", "web", "uid-web", "a" + "0" * 31, (LoadBalancerIngress(ip=ADDRESS),)
)
OFFICIAL = "Floating IP for Kubernetes external service"
MINE = Owner("uid-here", "", "shop", "web", "uid-web")

MAKERS: Mapping[str, tuple[str, list[str], tuple[Owner, ...]]] = {
    "nobody": ("lb", ["kube_service_test_shop_web"], ()),
    "our mark": ("lb", ["proreus/made-for=uid-here/shop/web/uid-web"], (MINE,)),
    "our mark before all others": (
        "kube_service_x_y_z",
        ["proreus/made-for=uid-here/shop/web/uid-web", "proreus/service-uid=other"],
        (MINE,),
    ),
    "our mark in a form that nobody knows": (
        "lb", ["proreus/made-for=2:uid"], (Owner(cluster_uid="2:uid"),),
    ),
    "former marks": (
        "lb",
        ["proreus/cluster-uid=c", "proreus/service=shop/web", "proreus/service-uid=u"],
        (Owner("c", "", "shop", "web", "u"),),
    ),
    "former marks of two clusters": (
        "lb",
        ["proreus/cluster-uid=c", "proreus/cluster-uid=d", "proreus/service-uid=u"],
        (Owner("c", service_uid="u"), Owner("d", service_uid="u")),
    ),
    "only a cluster's, which shares it": ("lb", ["proreus/cluster-uid=c"], ()),
    "an official name": ("kube_service_test_shop_web", [], (Owner("", "test", "shop", "web"),)),
    "an official name of a cluster with strokes": (
        "kube_service_my_own_shop_web", [], (Owner("", "my_own", "shop", "web"),),
    ),
    "a name of managers inside Kubernetes": (
        "a" + "0" * 31, [], (Owner(service_uid="a" + "0" * 31),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MAKERS)
def test_for_whom_a_load_balancer_was_made(name: str) -> None:
    called, tags, expected = MAKERS[name]
    assert owners.makers({"name": called, "tags": tags}) == expected


def test_a_mark_of_a_cluster_alone_reserves_networks() -> None:
    assert owners.reserved_for({"tags": ["proreus/cluster-uid=c"]}) == (Owner("c"),)
    assert owners.reserved_for({"tags": ["proreus/service=shop/web"]}) == (
        Owner("", "", "shop", "web"),
    )
    assert owners.reserved_for({"tags": None}) == ()


LONG = LoadBalancerRef(
    ClusterIdentity("c" * 40, "1" * 36), "n" * 63, "s" * 63, "2" * 36, "a"
)  # fmt: skip
DESCRIBED: Mapping[str, tuple[str | None, Owner | None, bool]] = {
    "nothing": (None, None, False),
    "somebody's": ("for the shop", None, False),
    "ours": (floating.description(REF), Owner("uid-here", "test", "shop", "web", "uid-web"), False),
    "ours, to stay": (
        floating.description(REF, kept=True),
        Owner("uid-here", "test", "shop", "web", "uid-web"),
        True,
    ),
    "one that is cut": (
        floating.description(LONG, kept=True),
        Owner("1" * 36, "", "n" * 63, "s" * 63, "2" * 36),
        True,
    ),
    "official": (f"{OFFICIAL} shop/web from cluster test", Owner("", "test", "shop", "web"), False),
    "official, of a cluster with a strange name": (
        f"{OFFICIAL} shop/web from cluster my (old) one",
        Owner("", "my (old) one", "shop", "web"),
        False,
    ),
}


@pytest.mark.parametrize("name", DESCRIBED)
def test_for_whom_a_floating_address_was_made(name: str) -> None:
    text, expected, is_kept = DESCRIBED[name]
    described = {"description": text}
    assert len(text or "") <= 255
    assert floating.owner(described) == expected
    assert floating.is_kept(described) == is_kept


def at(description: str, address: str = ADDRESS) -> dict[str, Any]:
    return {"description": description, "floating_ip_address": address}


@pytest.mark.parametrize(
    ("described", "is_made"),
    [
        (at(floating.description(REF)), True),
        (at(floating.description(REF), "203.0.113.6"), True),
        (at(f"{OFFICIAL} shop/web from cluster test"), True),
        (at(f"{OFFICIAL} shop/web from cluster test", "203.0.113.6"), False),
        (at(f"{OFFICIAL} shop/web from cluster prod"), False),
        (at(f"{OFFICIAL} shop/api from cluster test"), False),
        (at(f"{OFFICIAL} shop/web from cluster test (uid-old uid-here)"), False),
        (at(f"{OFFICIAL} shop/web from cluster test (uid-web uid-there)"), False),
        (at("for the shop"), False),
    ],
)
def test_whether_it_was_made_for_the_very_service(
    described: dict[str, Any], *, is_made: bool
) -> None:
    assert floating.is_made_for(described, REF) == is_made
    assert floating.goes_with(described, (MINE,), REF) == is_made


LEFT = Owner("uid-here", "", "shop", "api", "uid-api")


@pytest.mark.parametrize(
    ("described", "goes"),
    [
        (at(f"{OFFICIAL} shop/api from cluster test (uid-api uid-here)"), True),
        (at(f"{OFFICIAL} shop/api from cluster test (uid-api uid-here keep)"), False),
        (at(f"{OFFICIAL} shop/api from cluster test (uid-api uid-there)"), False),
        (at(f"{OFFICIAL} shop/old from cluster test (uid-old uid-here)"), False),
        (at(f"{OFFICIAL} shop/api from cluster test"), True),
        (at(f"{OFFICIAL} shop/api from cluster test", "203.0.113.6"), False),
        (at(f"{OFFICIAL} shop/api from cluster prod"), False),
        (at("for the shop"), False),
    ],
)
def test_the_address_of_who_left_goes_with_the_load_balancer_that_was_made_for_it(
    described: dict[str, Any], *, goes: bool
) -> None:
    assert floating.goes_with(described, (LEFT,), REF) == goes


def test_one_of_this_name_without_marks_is_the_services_own_in_the_same_cluster_only() -> None:
    official = {"name": owners.name_of(REF), "tags": [owners.name_of(REF)]}
    assert owners.may_be_used_by(official, REF)
    marked = {**official, "tags": [*official["tags"], owners.cluster_tag(THERE.uid)]}
    assert not owners.may_be_used_by(marked, REF)
    shared = {"name": "lb", "tags": [owners.name_of(REF), "proreus/shared-by=uid-there/shop/web/u"]}
    assert not owners.may_be_used_by(shared, REF)
