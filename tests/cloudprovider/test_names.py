"""Names of cloud objects: clusters that exist keep theirs, and no two objects get the same one."""

import hashlib
import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proreus.cloudprovider import ClusterIdentity, LoadBalancerRef
from proreus.cloudprovider.names import (
    LABEL_VALUE,
    NameForm,
    cut,
    default_load_balancer_name,
    digest_of,
)
from proreus.providers.aws.network.plan import group_name, target_group_prefix
from proreus.providers.openstack.octavia import floating, group_rules, owners

UID = "5e000000-0000-4000-8000-000000000001"
GCE = NameForm(63, "a-z0-9-")
BARE = NameForm(32, "A-Za-z0-9", filler="", edges="")

DNS = st.text(string.ascii_lowercase + string.digits + "-", min_size=1, max_size=63)
CLUSTERS = st.text(string.printable, min_size=1, max_size=300)
UIDS = st.uuids().map(str)


@st.composite
def refs(draw: st.DrawFn) -> LoadBalancerRef:
    uid = draw(UIDS)
    cluster = ClusterIdentity(draw(CLUSTERS), draw(UIDS))
    name = default_load_balancer_name(uid)
    return LoadBalancerRef(cluster, draw(DNS), draw(DNS), uid, name)


LONG = LoadBalancerRef(ClusterIdentity("c" * 300, UID), "n" * 63, "s" * 63, UID, "a")


@given(refs())
@example(LONG)
def test_the_names_of_existing_clusters_stay_for_ever(ref: LoadBalancerRef) -> None:
    """The forms that releases before this one have written by hand; another one orphans objects."""
    cluster, namespace, name, uid = ref.cluster.name, ref.namespace, ref.service_name, ref.uid
    assert default_load_balancer_name(uid) == ("a" + uid.replace("-", ""))[:32]

    prefix = "-".join(("k8s", *(re.sub("[^A-Za-z0-9]", "", one)[:8] for one in (namespace, name))))
    assert target_group_prefix(namespace, name) == f"{prefix}-"
    digest = hashlib.sha256(f"{cluster}{name}{namespace}{uid}".encode()).hexdigest()
    assert group_name(ref) == f"{prefix}-{digest[:10]}"

    official = f"kube_service_{cluster}_{namespace}_{name}"[:255]
    assert owners.name_of(ref) == official
    assert owners.name_of(ref, "IPv6") == f"{official[:250]}_ipv6"
    tags = {"tags": [f"proreus/cluster={cluster}-former"]}
    former = f"kube_service_{cluster}-former_{namespace}_{name}"[:255]
    assert owners.own_names(tags, ref) == {official, former}
    assert group_rules.name_of(ref) == f"lb-sg-{uid}-{namespace}-{name}"[:255]

    text = f"Floating IP for Kubernetes external service {namespace}/{name} from cluster {cluster}"
    proof = f" ({uid} {ref.cluster.uid} keep)"
    assert floating.description(ref, kept=True) == text[: 255 - len(proof)] + proof


@given(st.text())
def test_every_text_becomes_a_label(text: str) -> None:
    allowed = re.sub(r"[^-A-Za-z0-9_.]", "-", text)
    former = allowed.strip("-_.")[:63].strip("-_.")
    assert LABEL_VALUE.clean(text) == former
    assert re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", former)
    assert LABEL_VALUE.fits(former)


FITS = {"eu-1.zone_A": True, "": True, "a" * 63: True, "a" * 64: False, "-a": False, "a b": False}


@pytest.mark.parametrize("text", FITS)
def test_what_may_be_in_a_label_stays(text: str) -> None:
    assert LABEL_VALUE.fits(text) is FITS[text]


NAMES = {
    ("web",): "web",
    ("a5e0", "tcp", "80"): "a5e0-tcp-80",
    ("k8s", "Prod EU", "web"): "k8s-prod-eu-web-…",
    ("k8s", "a-b", "c"): "k8s-a-b-c-…",
    ("k8s", "a", "b-c"): "k8s-a-b-c-…",
    ("a", ""): "a-…",
    ("",): "",
    ("-a",): "a-…",
    ("x" * 63,): "x" * 63,
    ("x" * 64,): "x" * 52 + "-…",
    ("x" * 40, "y" * 40): "x" * 40 + "-" + "y" * 11 + "-…",
    ("ä",): "…",
}


@pytest.mark.parametrize("parts", NAMES)
def test_a_name_has_a_digest_where_it_is_not_clear_what_it_was_made_of(
    parts: tuple[str, ...],
) -> None:
    digest = digest_of(("\0".join(parts),))
    assert GCE.name(*parts) == NAMES[parts].replace("…", digest)


PARTS = st.lists(st.text("ab-A.", max_size=40), min_size=1, max_size=4).map(tuple)


@pytest.mark.parametrize("form", [GCE, BARE, NameForm(255, "!-~", "_", edges="")])
@given(one=PARTS, other=PARTS)
def test_no_two_objects_have_the_same_name(
    form: NameForm, one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    name = form.name(*one)
    assert len(name) <= form.limit
    assert re.fullmatch(f"[{form.letters}]*", name)
    assert not form.edges or not name.startswith(form.edges)
    assert name == form.name(*one)
    assert (name == form.name(*other)) == (one == other)


def test_a_form_without_room_for_a_digest_is_refused() -> None:
    assert NameForm(8, "a-z").name("short") == "short"
    with pytest.raises(ValueError, match="no room"):
        NameForm(8, "a-z").name("rather-long")


def test_the_end_of_a_text_is_kept_whole() -> None:
    assert cut("abcdef", 10, "!") == "abcdef!"
    assert cut("abcdef", 4, "!") == "abc!"
