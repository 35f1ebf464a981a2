"""Whose an object is: a table of proofs, and the forms in which clouds keep marks."""

import re
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider import (
    MARK_CLUSTER,
    MARK_CLUSTER_UID,
    MARK_FINGERPRINT,
    MARK_SERVICE,
    MARK_SERVICE_UID,
    ClusterIdentity,
    LoadBalancerRef,
    OwnedObject,
    Owner,
    Verdict,
    default_load_balancer_name,
    marks,
    verdict,
)
from proreus.cloudprovider.mark_forms import (
    LABELS,
    Description,
    LabelForm,
    TagList,
    one_value,
    owned_object,
    owner_of,
    read_one_value,
)
from proreus.cloudprovider.names import NameForm
from proreus.kube.objects import LoadBalancerIngress

UID = "5e000000-0000-4000-8000-000000000001"
OTHER_UID = "5e000000-0000-4000-8000-000000000002"
CLUSTER = ClusterIdentity("prod", "c0000000-0000-4000-8000-000000000001")
NAME = default_load_balancer_name(UID)
REF = LoadBalancerRef(
    CLUSTER,
    "shop",
    "web",
    UID,
    NAME,
    (LoadBalancerIngress(ip="192.0.2.1"), LoadBalancerIngress(hostname="lb.example")),
)

SELF = Owner(CLUSTER.uid, "prod", "shop", "web", UID)
API = Owner(CLUSTER.uid, "prod", "shop", "api", OTHER_UID)
COPY = Owner("uid-copy", "prod", "shop", "web", UID)
WHOLE = Owner(CLUSTER.uid, "prod")
OURS = Owner(cluster="prod", namespace="shop", service="web")
THEIRS = Owner(cluster="prod", namespace="shop", service="api")
SHOWN = ("192.0.2.1",)

VERDICTS: dict[str, tuple[dict[str, Any], Verdict]] = {
    "our marks": ({"owners": [SELF]}, Verdict.MARKED),
    "our marks after the cluster was renamed": (
        {"owners": [Owner(CLUSTER.uid, "old", "shop", "web", UID)], "official": [THEIRS]},
        Verdict.MARKED,
    ),
    "marks of a neighbour": ({"owners": [API], "texts": [NAME]}, Verdict.FOREIGN),
    "marks of a copy of the cluster": (
        {"owners": [COPY], "texts": [NAME], "official": [OURS], "addresses": SHOWN},
        Verdict.FOREIGN,
    ),
    "marks of two": ({"owners": [SELF, API]}, Verdict.FOREIGN),
    "the uid, but of no cluster": ({"owners": [Owner(service_uid=UID)]}, Verdict.UNPROVEN),
    "a former Service of the name": (
        {"owners": [Owner(CLUSTER.uid, "prod", "shop", "web", OTHER_UID)]},
        Verdict.FOREIGN,
    ),
    "the cluster's": ({"owners": [WHOLE]}, Verdict.FOREIGN),
    "the cluster's, named for the Service": ({"owners": [WHOLE], "texts": [NAME]}, Verdict.NAMED),
    "the default name": ({"texts": [NAME]}, Verdict.NAMED),
    "a name around it": ({"texts": [f"k8s-elb-{NAME}"]}, Verdict.NAMED),
    "the uid in a description": ({"texts": ["", f"made for {UID}."]}, Verdict.NAMED),
    "a longer word around the name": ({"texts": [f"x{NAME}", f"{NAME}0"]}, Verdict.UNMARKED),
    "a name that can be guessed": ({"texts": ["kube_service_prod_shop_web"]}, Verdict.UNMARKED),
    "a name with another's official marks": (
        {"texts": [NAME], "official": [THEIRS]},
        Verdict.FOREIGN,
    ),
    "official marks and the address": (
        {"official": [OURS], "addresses": SHOWN},
        Verdict.OFFICIAL,
    ),
    "official marks and the host name": (
        {"official": [OURS], "addresses": ["lb.example"]},
        Verdict.OFFICIAL,
    ),
    "official marks alone": ({"official": [OURS]}, Verdict.UNPROVEN),
    "official marks and another address": (
        {"official": [OURS], "addresses": ["192.0.2.9"]},
        Verdict.UNPROVEN,
    ),
    "official marks of another": ({"official": [THEIRS], "addresses": SHOWN}, Verdict.FOREIGN),
    "official marks of another cluster": (
        {"official": [Owner(cluster="test", namespace="shop", service="web")], "addresses": SHOWN},
        Verdict.FOREIGN,
    ),
    "the address alone": ({"addresses": SHOWN}, Verdict.UNMARKED),
    "nothing": ({}, Verdict.UNMARKED),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_what_an_object_is_to_a_service(case: str) -> None:
    known, expected = VERDICTS[case]
    found = verdict(REF, **known)
    assert found is expected
    assert found.is_ours == (expected in {Verdict.MARKED, Verdict.NAMED, Verdict.OFFICIAL})


def test_a_service_without_an_address_and_a_uid_owns_nothing() -> None:
    bare = LoadBalancerRef(CLUSTER, "shop", "web", "", "a")
    assert verdict(bare, texts=["", "a", NAME]) is Verdict.UNMARKED
    assert verdict(bare, official=[OURS], addresses=["", *SHOWN]) is Verdict.UNPROVEN


NAMES = st.text(string.ascii_lowercase + string.digits + "-", min_size=1, max_size=63)


@st.composite
def all_marks(draw: st.DrawFn) -> dict[str, str]:
    cluster = ClusterIdentity(draw(st.text(min_size=1, max_size=300)), str(draw(st.uuids())))
    service = f"{draw(NAMES)}/{draw(NAMES)}"
    found = {**marks(cluster, service, str(draw(st.uuids()))), MARK_FINGERPRINT: "0123456789abcdef"}
    return {key: found[key] for key in found if key != MARK_FINGERPRINT or draw(st.booleans())}


@given(all_marks())
def test_labels_keep_the_uids_and_what_else_fits(given_: dict[str, str]) -> None:
    labels = LABELS.write(given_)
    assert all(re.fullmatch("[a-z][a-z0-9_-]{0,62}", key) for key in labels)
    assert all(re.fullmatch("[a-z0-9_-]{0,63}", value) for value in labels.values())
    read = LABELS.read({**labels, "team": "shop"})
    for key in (MARK_CLUSTER_UID, MARK_SERVICE_UID, MARK_FINGERPRINT):
        assert read.get(key) == given_.get(key)
    service = given_[MARK_SERVICE]
    assert read.get(MARK_SERVICE) == (service if len(service) <= 63 else None)
    assert set(read) <= set(given_)


def test_a_cloud_may_forbid_only_some_letters() -> None:
    """Azure's tags have no slash in their names, and capitals stay."""
    form = LabelForm(NameForm(256, "-A-Za-z0-9_.", edges=""))
    given_ = marks(ClusterIdentity("Prod", CLUSTER.uid), "shop/web", UID)
    assert form.write(given_) == {
        "proreus-cluster": "Prod",
        "proreus-cluster-uid": CLUSTER.uid,
        "proreus-service": "shop_web",
        "proreus-service-uid": UID,
    }
    assert form.read(form.write(given_)) == given_


def test_labels_are_those_of_gce() -> None:
    assert LABELS.write(marks(CLUSTER, "shop/web", UID)) == {
        "proreus-cluster": "prod",
        "proreus-cluster-uid": CLUSTER.uid,
        "proreus-service": "shop_web",
        "proreus-service-uid": UID,
    }


@given(all_marks())
def test_a_list_of_tags_keeps_the_uids_and_what_else_fits(given_: dict[str, str]) -> None:
    form = TagList(100)
    tags = form.write(given_)
    assert all(len(one) <= 100 and "," not in one for one in tags)
    read = form.read(["other", "team=shop", *tags])
    kept = {key: value for key, value in given_.items() if len(f"{key}={value}") <= 100}
    assert read == {key: value.replace(",", "_") for key, value in kept.items()}
    assert {MARK_CLUSTER_UID, MARK_SERVICE_UID} <= set(read)


def test_a_list_of_tags_may_name_several() -> None:
    tags = [f"{MARK_CLUSTER_UID}=one", f"{MARK_CLUSTER_UID}=two", "three"]
    assert TagList(60).values(tags, MARK_CLUSTER_UID) == ["one", "two"]
    assert TagList(60).read(tags) == {MARK_CLUSTER_UID: "one"}


def test_marks_name_an_owner() -> None:
    assert owner_of(marks(CLUSTER, "shop/web", UID)) == SELF
    assert owner_of({MARK_CLUSTER: "prod", "team": "shop"}) == Owner(cluster="prod")
    assert owner_of({"team": "shop", MARK_FINGERPRINT: "f"}) is None
    assert read_one_value(one_value(REF)) == Owner(CLUSTER.uid, "", "shop", "web", UID)
    assert read_one_value("a/b") == Owner(cluster_uid="a/b")


def test_an_object_is_listed_by_its_marks() -> None:
    found = marks(CLUSTER, "shop/web", UID)
    assert owned_object("disk", "d1", found) == OwnedObject("disk", "d1", "shop/web", UID)
    found = {**found, MARK_FINGERPRINT: "f"}
    assert owned_object("disk", "d1", found) == OwnedObject(
        "disk", "d1", "shop/web", UID, fingerprint="f", recorded=True
    )


FORM = Description(255, words=frozenset({"keep"}))
DESCRIPTIONS = {
    "written": (FORM.write("For shop/web", REF), ("For shop/web", True, frozenset())),
    "with a word": (FORM.write("For it", REF, "keep"), ("For it", True, frozenset({"keep"}))),
    "cut": (FORM.write("x" * 300, REF), ("x" * (255 - 76), True, frozenset())),
    "an operator's": ("Mine (really)", ("Mine (really)", False, frozenset())),
    "with another word": ("Mine (not yours, hands off)", ("Mine (not yours, hands off)", False, frozenset())),
    "not at the end": ("For (a b) me", ("For (a b) me", False, frozenset())),
    "none": ("", ("", False, frozenset())),
}  # fmt: skip


@pytest.mark.parametrize("case", DESCRIPTIONS)
def test_a_description_holds_the_uids_whole(case: str) -> None:
    description, (text, is_proof, words) = DESCRIPTIONS[case]
    assert len(description) <= 255
    owner = Owner(CLUSTER.uid, service_uid=UID) if is_proof else None
    assert FORM.read(description) == (text, owner, words)
    if owner is not None:
        assert verdict(REF, owners=[owner]) is Verdict.MARKED
