"""Which serving certificates kubelets get, as tables."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import CloudError, Instance, InstanceAnswer, NotFound, Ownership
from proreus.controllers.kubelet_serving.plan import (
    NOT_APPROVED,
    RETRY,
    SIGNER,
    SOON,
    Asked,
    Change,
    Observed,
    is_pending,
    is_to_ask,
    matters,
    node_name,
    plan,
    rivals,
)
from proreus.kube.objects import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
    CertificateSigningRequestStatus,
    Condition,
    Node,
    NodeAddress,
    ObjectMeta,
)
from proreus.testing import objects

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ID = "sim://1"
OWN = (
    NodeAddress("InternalIP", "10.0.0.1"),
    NodeAddress("InternalIP", "fd00::1"),
    NodeAddress("Hostname", "node-1"),
)
MACHINE = Instance(ID, "node-1", addresses=OWN)
NODE = objects.node("node-1", ID, addresses=OWN)
ASKED = Asked(
    common_names=("system:node:node-1",),
    organizations=("system:nodes",),
    names=("node-1",),
    addresses=(ip_address("10.0.0.1"), ip_address("fd00::1")),
)


def request(
    *, age: float = 60.0, conditions: Sequence[str] = (), certificate: str = "", **spec: Any
) -> CertificateSigningRequest:
    given = {
        "signer_name": SIGNER,
        "username": "system:node:node-1",
        "groups": ("system:nodes", "system:authenticated"),
        "usages": ("digital signature", "server auth"),
        **spec,
    }
    return CertificateSigningRequest(
        ObjectMeta("csr-1", uid="u", creation_timestamp=NOW - timedelta(seconds=age)),
        CertificateSigningRequestSpec(**given),
        CertificateSigningRequestStatus(
            tuple(Condition(one, "True") for one in conditions), certificate
        ),
    )


def decided(
    asked: Asked = ASKED,
    node: Node | None = NODE,
    answer: InstanceAnswer | None = MACHINE,
    *,
    others: Sequence[Node] = (),
    about: CertificateSigningRequest | None = None,
    owned: Ownership = Ownership.YES,
    error: Exception | None = None,
) -> Change | None:
    seen = Observed(asked, node, owned, answer)
    nodes = (*others, *((node,) if node else ()))
    seen = msgspec.structs.replace(seen, rivals=rivals(nodes, [seen]))
    return plan(about or request(), seen, error, NOW)


def refusal(**given: Any) -> str:
    """What is said of a request that is not approved."""
    change = decided(**given)
    assert change is not None
    assert change.patch is None
    return change.refusal


def test_what_the_cloud_reports_for_the_nodes_machine_is_approved() -> None:
    change = decided()
    assert change is not None
    assert change.patch is not None
    (uid, test, add) = msgspec.to_builtins(change.patch.body)
    assert uid == {"op": "test", "path": "/metadata/uid", "value": "u"}
    assert test["path"] == add["path"] == "/status/conditions"
    (approved,) = add["value"]
    assert (approved["type"], approved["status"]) == ("Approved", "True")
    assert ID in approved["message"]
    assert change.after is None


def test_the_approval_stands_beside_other_conditions() -> None:
    change = decided(about=request(conditions=["Noted"]))
    assert change is not None
    assert change.patch is not None
    assert [op.path for op in change.patch.body] == ["/metadata/uid", "/status/conditions/-"]


@pytest.mark.parametrize(
    "usages",
    [
        ("server auth", "digital signature"),
        ("digital signature", "key encipherment", "server auth"),
    ],
)
def test_kubelets_with_keys_of_either_kind_are_served(usages: tuple[str, ...]) -> None:
    change = decided(about=request(usages=usages))
    assert change is not None
    assert change.patch


def test_names_are_compared_without_regard_to_case() -> None:
    asked = msgspec.structs.replace(ASKED, names=("NODE-1",))
    found = msgspec.structs.replace(MACHINE, name="Node-1", addresses=OWN[:2])
    change = decided(asked, answer=found)
    assert change is not None
    assert change.patch


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"username": "jane"}, "jane is not a kubelet"),
        ({"username": "system:node:"}, "system:node: is not a kubelet"),
        ({"groups": ("system:authenticated",)}, "is not a kubelet"),
        ({"username": "system:node:node-2"}, "common name system:node:node-1 is not the user's"),
        ({"usages": ("client auth", "digital signature")}, "not those of a server"),
        ({"usages": ("server auth", "digital signature", "client auth")}, "not those of a server"),
        ({"usages": ()}, "the usages are none"),
    ],
)
def test_who_asks_for_what_no_kubelet_asks_for_is_told_once(
    spec: dict[str, Any], said: str
) -> None:
    change = decided(about=request(**spec))
    assert change is not None
    assert said in change.refusal
    assert change.patch is None
    assert change.after is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"common_names": ()}, "the common name none is not"),
        ({"common_names": ("system:node:node-1",) * 2}, "is not the user's"),
        ({"organizations": ("system:nodes", "system:masters")}, "system:nodes, system:masters"),
        ({"organizations": ()}, "the organization is none"),
        ({"names": (), "addresses": ()}, "no name and no address"),
        ({"strange": ("it has two lists of extensions",)}, "two lists of extensions"),
    ],
)
def test_a_certificate_that_says_more_than_a_kubelets_is_refused(
    fields: dict[str, Any], said: str
) -> None:
    assert said in refusal(asked=msgspec.structs.replace(ASKED, **fields))


def test_all_that_is_wrong_is_said_at_once() -> None:
    said = refusal(asked=Asked(strange=("it is odd",)), about=request(usages=()))
    for part in ("it is odd", "common name", "organization", "usages", "no name"):
        assert part in said


@pytest.mark.parametrize(
    ("names", "addresses", "more"),
    [
        (("node-1",), ("10.0.0.1", "10.0.0.2"), "10.0.0.2"),
        (("node-1", "kubernetes.default"), ("10.0.0.1",), "kubernetes.default"),
        (("node-1.example.org",), (), "node-1.example.org"),
        (("10.0.0.1",), (), "10.0.0.1"),
        ((), ("::ffff:10.0.0.1",), "::ffff:"),
    ],
)
def test_what_the_cloud_does_not_report_is_refused(
    names: tuple[str, ...], addresses: tuple[str, ...], more: str
) -> None:
    asked = msgspec.structs.replace(ASKED, names=names, addresses=tuple(map(ip_address, addresses)))
    said = refusal(asked=asked)
    assert more in said
    assert f"does not report for {ID}" in said


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ({"name": "node-2", "addresses": OWN[:2]}, f"the cloud calls the machine {ID} node-2"),
        ({"name": "", "addresses": OWN[:2]}, "nothing, not node-1"),
        ({"addresses": OWN[1:]}, "the Node has 10.0.0.1, which the cloud does not report"),
        ({"self_reported": True}, "what its kubelet says"),
    ],
)
def test_a_machine_that_may_be_anothers_is_no_proof(machine: dict[str, Any], said: str) -> None:
    assert said in refusal(answer=msgspec.structs.replace(MACHINE, **machine))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (objects.node("node-2", ID), f"node-2 also has the provider id {ID}"),
        (objects.node("node-2", "sim://2", addresses=["10.0.0.1"]), "10.0.0.1, which node-2 has"),
        (objects.node("node-2", "sim://2", addresses=["fd00:0::1"]), "fd00::1, which node-2 has"),
        (
            objects.node("node-2", "sim://2", addresses=[NodeAddress("InternalDNS", "Node-1")]),
            "node-1, which node-2 has",
        ),
    ],
)
def test_what_two_nodes_claim_is_given_to_neither(other: Node, said: str) -> None:
    assert said in refusal(others=[other])


def test_nodes_that_have_other_things_are_no_rivals() -> None:
    other = objects.node("node-2", "sim://2", addresses=["10.0.0.2"])
    change = decided(others=[other, objects.node("node-3")])
    assert change is not None
    assert change.patch


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"node": None, "answer": None}, "there is no Node node-1"),
        ({"node": objects.node("node-1"), "answer": None}, "has no provider id yet"),
        ({"answer": CloudError("it is night")}, "it is night"),
        ({"answer": None, "error": ValueError("no answer")}, "no answer"),
        ({"answer": NotFound()}, f"knows no machine {ID}"),
        ({"answer": None, "owned": Ownership.UNKNOWN}, f"knows no machine {ID}"),
    ],
)
def test_what_passes_for_a_new_node_is_told_when_it_lasts(given: dict[str, Any], said: str) -> None:
    early, late = decided(about=request(age=5), **given), decided(about=request(age=31), **given)
    assert early is not None
    assert late is not None
    assert said in early.refusal
    assert early.event is None
    assert late.event is not None
    assert late.event.reason == NOT_APPROVED
    assert said in late.event.message
    assert early.after == late.after == SOON


def test_a_request_for_what_is_not_the_machines_is_told_at_once() -> None:
    change = decided(others=[objects.node("node-2", ID)], about=request(age=0))
    assert change is not None
    assert change.event is not None
    assert change.after == RETRY


def test_nothing_is_said_of_another_clouds_node_or_a_decided_request() -> None:
    assert decided(owned=Ownership.NO) is None
    assert decided(about=request(conditions=["Denied"])) is None


@pytest.mark.parametrize(
    ("one", "pending"),
    [
        (request(), True),
        (request(conditions=["Noted"]), True),
        (request(conditions=["Approved"]), False),
        (request(conditions=["Failed"]), False),
        (request(certificate="MII"), False),
        (request(signer_name="kubernetes.io/kube-apiserver-client-kubelet"), False),
    ],
)
def test_only_undecided_requests_to_the_signer_of_kubelets_are_looked_at(
    one: CertificateSigningRequest, *, pending: bool
) -> None:
    assert is_pending(one) is pending


@pytest.mark.parametrize(
    ("user", "name"), [("system:node:a", "a"), ("system:node:", ""), ("jane", "")]
)
def test_a_kubelets_user_name_names_its_node(user: str, name: str) -> None:
    assert node_name(request(username=user)) == name


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (Observed(ASKED, NODE, Ownership.YES), True),
        (Observed(ASKED, None, Ownership.YES), False),
        (Observed(ASKED, objects.node("node-1"), Ownership.YES), False),
        (Observed(ASKED, NODE, Ownership.UNKNOWN), False),
        (Observed(Asked(), NODE, Ownership.YES), False),
    ],
)
def test_the_cloud_is_asked_only_for_sound_requests_of_its_own_nodes(
    seen: Observed, *, expected: bool
) -> None:
    assert is_to_ask(request(), seen) is expected


def test_requests_are_looked_at_again_when_their_nodes_machine_is_known() -> None:
    bare = objects.node("node-1")
    assert matters(None, bare)
    assert matters(bare, NODE)
    assert matters(bare, objects.node("node-1", addresses=["10.0.0.1"]))
    assert not matters(NODE, objects.changed(NODE, labels={"a": "b"}))
