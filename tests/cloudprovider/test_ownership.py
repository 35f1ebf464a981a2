"""Whether a Service may name a cloud object: a table of marks, and the settings."""

import pytest

from proreus.cloudprovider import (
    ClusterIdentity,
    ConfigError,
    LoadBalancerRef,
    are_marks_of,
    marks,
)
from proreus.cloudprovider.config import ConfigSection, read
from proreus.cloudprovider.ownership import (
    Naming,
    Owner,
    Standing,
    Tenants,
    pods_refusal,
    refusal,
    standing,
)

CLUSTER = ClusterIdentity("prod", "uid-prod")
REF = LoadBalancerRef(CLUSTER, "shop", "web", "uid-web", "a")
SELF, NEIGHBOUR, FOREIGN = Standing.SELF, Standing.NEIGHBOUR, Standing.FOREIGN

OWNERS = {
    "the very Service": (Owner("uid-prod", "", "shop", "web", "uid-web"), SELF),
    "its uid alone": (Owner(service_uid="uid-web"), SELF),
    "its uid in a copy of the cluster": (Owner("uid-copy", "prod", "shop", "web", "uid-web"), FOREIGN),
    "a former Service of its name": (Owner("uid-prod", "", "shop", "web", "uid-old"), NEIGHBOUR),
    "a neighbour": (Owner("uid-prod", "", "shop", "api", "uid-api"), NEIGHBOUR),
    "a neighbour, officially": (Owner("", "prod", "shop", "api"), NEIGHBOUR),
    "a neighbour of a cluster that was renamed": (Owner("uid-prod", "old", "shop", "api"), NEIGHBOUR),
    "the cluster": (Owner("uid-prod"), NEIGHBOUR),
    "the cluster, officially": (Owner(cluster="prod"), NEIGHBOUR),
    "another namespace": (Owner("uid-prod", "", "bank", "web", "uid-b"), FOREIGN),
    "another namespace, officially": (Owner("", "prod", "bank", "web"), FOREIGN),
    "another namespace of some cluster": (Owner(namespace="bank", service="web"), FOREIGN),
    "another Service of no known namespace": (Owner(service_uid="uid-b"), FOREIGN),
    "another cluster": (Owner("uid-test"), FOREIGN),
    "another cluster, officially": (Owner("", "test", "shop", "web"), FOREIGN),
    "another cluster of the same name": (Owner("uid-copy", "prod", "shop", "api"), FOREIGN),
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "is_proof"),
    [
        ({}, True),
        ({"proreus/cluster": "renamed", "team": "a"}, True),
        ({"proreus/cluster-uid": "uid-copy"}, False),
        ({"proreus/service-uid": "uid-old"}, False),
    ],
)
def test_both_uids_are_proof(changes: dict[str, str], *, is_proof: bool) -> None:
    made = marks(CLUSTER, "shop/web", "uid-web")
    assert are_marks_of({**made, **changes}, REF) == is_proof


def test_half_of_the_marks_is_no_proof() -> None:
    made = marks(CLUSTER, "shop/web", "uid-web")
    for missing in ("proreus/cluster-uid", "proreus/service-uid"):
        assert not are_marks_of({key: made[key] for key in made if key != missing}, REF)


@pytest.mark.parametrize("name", OWNERS)
def test_an_owner_is_the_service_a_neighbour_or_foreign(name: str) -> None:
    owner, expected = OWNERS[name]
    assert standing(owner, REF) is expected
    problem = refusal([owner], REF, Tenants(), ["id"])
    assert (problem != "") == (expected is FOREIGN)
    assert problem in {"", f"it belongs to {owner}"}


WORDS = {
    Owner("u", "prod", "bank", "web", "x"): "the Service bank/web of the cluster prod (u)",
    Owner("u", "", "bank", "web", "x"): "the Service bank/web of the cluster u",
    Owner("", "prod", "bank", "web"): "the Service bank/web of the cluster prod",
    Owner(service_uid="x"): "the Service x of an unknown cluster",
    Owner("u"): "the cluster u",
}


@pytest.mark.parametrize("owner", WORDS)
def test_an_owner_has_a_readable_text(owner: Owner) -> None:
    assert str(owner) == WORDS[owner]


MINE = Owner("uid-prod", "", "shop", "web", "uid-web")
NEXT = Owner("uid-prod", "", "shop", "api", "uid-api")
THEIRS = Owner("uid-prod", "", "bank", "web", "uid-b")


@pytest.mark.parametrize(
    ("naming", "owners", "is_usable"),
    [
        (Naming.UNMARKED, (), True),
        (Naming.UNMARKED, (NEXT,), True),
        (Naming.UNMARKED, (NEXT, THEIRS), False),
        (Naming.UNMARKED, (THEIRS, MINE), True),
        (Naming.SAME_NAMESPACE, (), False),
        (Naming.SAME_NAMESPACE, (NEXT,), True),
        (Naming.SAME_NAMESPACE, (THEIRS,), False),
        (Naming.LISTED, (), False),
        (Naming.LISTED, (NEXT,), False),
        (Naming.LISTED, (THEIRS,), False),
        (Naming.LISTED, (MINE,), True),
    ],
)
def test_the_cloud_config_may_ask_for_more(
    naming: Naming, owners: tuple[Owner, ...], *, is_usable: bool
) -> None:
    tenants = Tenants(named_objects=naming, allow=("bank=one", "*=all", "shop = two"))
    assert (refusal(owners, REF, tenants, ["one"]) == "") == is_usable
    for listed in ("all", "two"):
        assert refusal(owners, REF, tenants, ["one", listed]) == ""


class _File(ConfigSection, frozen=True, rename={"tenants": "Tenants"}):
    tenants: Tenants = Tenants()


def test_the_section_is_read_and_what_is_wrong_is_reported() -> None:
    text = "[Tenants]\nnamed-objects = same-namespace\nallow = shop=one\nallow = *=https://x/?a=b\n"
    assert read(text, _File, source="c").tenants == Tenants(
        named_objects=Naming.SAME_NAMESPACE, allow=("shop=one", "*=https://x/?a=b")
    )
    for wrong, message in (
        ("allow = shop", "namespace=id"),
        ("allow = =one", "namespace=id"),
        ("named-objects = all", "unmarked"),
    ):
        with pytest.raises(ConfigError, match=message):
            read(f"[Tenants]\n{wrong}\n", _File, source="c")


@pytest.mark.parametrize(
    ("address", "reason"), [("10.9.0.4", "it is of the pods of the node one"), ("10.8.0.4", "")]
)
def test_an_address_of_pods_is_refused_and_a_text_that_is_none_is_not(
    address: str, reason: str
) -> None:
    pods = {"10.9.0.0/24": "one", "": "two"}
    assert pods_refusal(address, REF, Tenants(), pods) == reason
    assert not pods_refusal("", REF, Tenants(), pods)
    assert not pods_refusal(address, REF, Tenants(allow=(f"shop={address}",)), pods)
