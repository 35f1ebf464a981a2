"""What `proreus plan` shows: decided by the controllers' plans, put into words, and applied."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Any

import msgspec
import pytest

from proreus.app.preview import certificates, report, routes, services, volumes
from proreus.app.preview.applied import applied, lines
from proreus.app.preview.changes import Change, Preview
from proreus.app.preview.nodes import Drafts
from proreus.cloudprovider import (
    CloudError,
    ClusterIdentity,
    HostPolicy,
    Instance,
    InstanceAnswer,
    InvalidRequest,
    LoadBalancer,
    NotFound,
    NotSupported,
    OwnedObject,
    Ownership,
    PartChange,
    Route,
    Throttled,
)
from proreus.containment.inventory import Observation
from proreus.controllers.cloud_node import plan as node_plan
from proreus.controllers.cloud_node_lifecycle.memory import Memory
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.questions import Known, Reply, questions
from proreus.controllers.kubelet_serving.plan import SIGNER, Asked, Observed
from proreus.controllers.node_ipam.cidrset import Blocks, Range
from proreus.controllers.node_ipam.plan import Mode
from proreus.controllers.persistent_volume_label.plan import Answer, askable
from proreus.controllers.service.intake import AS_GO
from proreus.controllers.service.plan import Ensure
from proreus.kube import patch as patches
from proreus.kube.objects import (
    FINALIZER_LOAD_BALANCER,
    TAINT_OUT_OF_SERVICE,
    TAINT_SHUTDOWN,
    TAINT_UNINITIALIZED,
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
    CertificateSigningRequestStatus,
    Condition,
    Node,
    NodeAddress,
    ObjectMeta,
    Service,
    Taint,
)
from proreus.testing import objects
from proreus.testing.volumes import persistent_volume

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TAINT = Taint(TAINT_UNINITIALIZED, "NoSchedule", "true")
CLUSTER = ClusterIdentity("test", "uid")
CIDR = ip_network("10.0.0.0/16")
READY = Condition("Ready", "True")
SILENT = Condition("Ready", "Unknown")


def owns(node: Node) -> Ownership:
    return Ownership.NO if node.spec.provider_id.startswith("other://") else Ownership.YES


def a_node(name: str, id_: str = "", *conditions: Condition, **fields: Any) -> Node:
    yesterday = NOW - timedelta(days=1)
    return objects.node(name, id_, creation_timestamp=yesterday, conditions=conditions, **fields)


def machine(name: str) -> Instance:
    address = NodeAddress("InternalIP", "192.0.2.1")
    return Instance(f"sim://{name}", name, "large", "z", "r", (address,))


POLICY = Policy()


def replies(
    nodes: tuple[Node, ...], answers: Mapping[str, InstanceAnswer], policy: Policy = POLICY
) -> list[Reply]:
    return [
        Reply(one, {name: [Observation(answers[name], 0.0)] for name in answers})
        for one in questions(
            nodes, NOW, Known(owns), policy, Memory(), batch_size=500, turn=0, at=0.0
        )
    ]


@pytest.mark.parametrize(
    "node",
    [
        a_node("one", taints=(TAINT,)),
        a_node("one", taints=(Taint("a", "NoExecute"), TAINT, Taint("b", "NoSchedule"))),
        a_node("one", "sim://one", READY),
    ],
)
def test_a_node_that_is_as_the_patches_make_it_needs_nothing_more(node: Node) -> None:
    drafts = Drafts([node], NOW)

    drafts.initialise({"one": machine("one")}, owns)

    (change,) = drafts.changes
    assert (change.about, change.action) == ("node/one", "change")
    again = node_plan.plan(drafts.nodes["one"], machine("one"), NOW, refresh=True)
    assert again is None or not (again.status or again.main)
    assert Drafts([drafts.nodes["one"]], NOW).changes == ()


def test_patches_are_shown_line_by_line_and_applied() -> None:
    node = objects.node(
        "n",
        uid="u",
        labels={"a/b": "1", "c": "2"},
        annotations={"x": "y"},
        taints=(TAINT,),
        conditions=(Condition("Old", "True"), Condition("New", "False", "R", "m")),
    )
    ops = patches.labels(node.metadata.labels, {"a/b": "3", "c": None, "d": "4"})
    ops += patches.annotations(node.metadata.annotations, {"x": None})
    ops += patches.taints(node.spec.taints, (Taint("new", "NoSchedule"),))
    ops += patches.set_once("/spec/podCIDRs", ["10.0.0.0/24", "fd00::/64"])
    main = patches.json_patch("u", ops)
    address = NodeAddress("InternalIP", "192.0.2.1")
    state = Condition("New", "True", "Fine", "all is well", NOW)
    both = (patches.status("u", addresses=(address,), conditions=(state,)), main)

    assert lines(node, None, *both) == (
        "~ addresses: InternalIP 192.0.2.1",
        "~ condition New=True (Fine): all is well",
        "~ label a/b=1 -> 3",
        "- label c=2",
        "+ label d=4",
        "- annotation x=y",
        f"- taint {TAINT.key}:NoSchedule",
        "+ taint new:NoSchedule",
        "+ spec.podCIDRs: 10.0.0.0/24, fd00::/64",
    )
    after = applied(node, None, *both)
    assert after.metadata.labels == {"a/b": "3", "d": "4"}
    assert after.metadata.annotations == {}
    assert after.spec.taints == (Taint("new", "NoSchedule"),)
    assert after.spec.pod_cidrs == ("10.0.0.0/24", "fd00::/64")
    assert after.status.addresses == (address,)
    assert [one.type for one in after.status.conditions] == ["Old", "New"]
    bare = Node(ObjectMeta(uid="u"))
    first = patches.json_patch("u", patches.taints((), (TAINT,)))
    assert lines(bare, first) == (f"+ taint {TAINT.key}:NoSchedule",)
    assert applied(bare, first).spec.taints == (TAINT,)


@pytest.mark.parametrize(
    ("policy", "gone", "waits", "held"),
    [
        (Policy(confirmations=1), 1, "", ()),
        (Policy(), 1, "at the earliest in 30 s (--node-deletion-confirmations=2", ()),
        (Policy(), 4, "", ("not deleted: 4 nodes look gone at once",)),
    ],
)
def test_nodes_go_when_the_rules_let_them(
    policy: Policy, gone: int, waits: str, held: tuple[str, ...]
) -> None:
    lost = [a_node(f"lost-{number}", f"sim://lost-{number}", SILENT) for number in range(gone)]
    nodes = (a_node("here", "sim://here", READY), *lost)
    answers: dict[str, InstanceAnswer] = {one.metadata.name: NotFound() for one in lost}
    drafts = Drafts(nodes, NOW)

    drafts.remove(replies(nodes, {"here": machine("here"), **answers}, policy), policy, Known(owns))

    assert len(drafts.held) == len(held)
    assert all(text.startswith(start) for text, start in zip(drafts.held, held, strict=True))
    if held:
        assert drafts.changes == ()
        assert len(drafts.nodes) == 1 + gone
        return
    (change,) = drafts.changes
    assert (change.about, change.action) == ("node/lost-0", "delete")
    assert waits in change.waits_for
    assert bool(waits) == bool(change.waits_for)
    assert drafts.nodes.keys() == {"here"}


def test_a_machine_that_nobody_can_bear_witness_for_stays() -> None:
    nodes = (a_node("lost", "sim://lost", SILENT),)
    drafts = Drafts(nodes, NOW)

    drafts.remove(replies(nodes, {"lost": NotFound()}), Policy(), Known(owns))

    assert drafts.changes == ()
    assert drafts.held == ["not deleted: no Ready node vouches for what the cloud says: lost"]


def test_a_ready_node_that_the_cloud_does_not_know_is_named_and_keeps_the_others() -> None:
    nodes = (a_node("lost", "sim://lost", SILENT), a_node("here", "sim://here", READY))
    drafts, policy = Drafts(nodes, NOW), Policy(dying=0.0)

    drafts.remove(replies(nodes, {"lost": NotFound(), "here": NotFound()}), policy, Known(owns))

    assert drafts.changes == ()
    assert drafts.held == [
        "not deleted: the cloud does not know a Ready node either: here: lost",
        "Ready, but the cloud does not know their machines: here",
    ]


def test_a_stopped_machine_is_tainted() -> None:
    nodes = (a_node("one", "sim://one", SILENT),)
    stopped = msgspec.structs.replace(machine("one"), state=msgspec.convert("stopped", STATE))
    drafts = Drafts(nodes, NOW)

    drafts.remove(replies(nodes, {"one": stopped}), Policy(), Known(owns))

    assert [text.rpartition(": ")[2] for text in drafts.held] == ["one"]
    assert drafts.changes == (
        Change("node/one", "change", (f"+ taint {TAINT_SHUTDOWN}:NoSchedule",)),
    )


STATE = type(machine("one").state)


def test_nodes_without_power_and_those_that_return_are_shown() -> None:
    mark = {"proreus.io/out-of-service": "true"}
    ours = Taint(TAINT_OUT_OF_SERVICE, "NoExecute", "nodeshutdown")
    nodes = (
        a_node("off", "sim://off", SILENT),
        a_node("back", "sim://back", READY, annotations=mark, taints=(ours,)),
    )
    off = msgspec.structs.replace(
        machine("off"), state=msgspec.convert("stopped", STATE), powered_off=True
    )
    drafts = Drafts(nodes, NOW)

    drafts.remove(
        replies(nodes, {"off": off}),
        Policy(out_of_service_grace=60.0),
        Known(owns),
        returning={"back": machine("back")},
    )

    assert any(
        text.startswith("powered off, and not out of service yet: off") for text in drafts.held
    )
    (back,) = [one for one in drafts.changes if one.about == "node/back"]
    assert f"- taint {TAINT_OUT_OF_SERVICE}:NoExecute" in back.lines


def test_pod_cidrs_go_to_the_nodes_without_as_long_as_there_are_any() -> None:
    nodes = [
        a_node("b", "sim://b"), a_node("a", "sim://a"), a_node("c", "sim://c"),
        a_node("has", "sim://h", pod_cidrs=("10.0.0.0/17",)),
    ]  # fmt: skip
    drafts = Drafts(nodes, NOW)

    drafts.allocate(Mode.RANGE, Blocks([Range(CIDR, 18)]), None, owns)

    found = {one.about: one.lines for one in drafts.changes}
    assert found["node/a"] == ("+ spec.podCIDR: 10.0.128.0/18", "+ spec.podCIDRs: 10.0.128.0/18")
    assert found["node/b"][1] == "+ spec.podCIDRs: 10.0.192.0/18"
    assert found["node/c"][0].startswith("~ condition PodCIDRsAllocated=False (CIDRNotAvailable)")
    assert "node/has" not in found


@pytest.mark.parametrize(
    ("mode", "has", "in_cloud", "about", "line"),
    [
        (Mode.FROM_CLOUD, (), ("10.0.1.0/24",), "node/one", "+ spec.podCIDR: 10.0.1.0/24"),
        (Mode.FROM_CLOUD, (), (), "node/one", "~ condition PodCIDRsAllocated=False (CIDRNotAv"),
        (Mode.FROM_CLUSTER, ("10.0.1.0/24",), (), "pod-cidrs/one", "+ 10.0.1.0/24"),
        (Mode.FROM_CLUSTER, (), (), "pod-cidrs/one", "+ 10.0.0.0/24"),
        (Mode.FROM_CLOUD, ("10.0.1.0/24",), ("10.0.1.0/24",), "", ""),
    ],
)
def test_pod_cidrs_pass_between_node_and_cloud(
    mode: Mode, has: tuple[str, ...], in_cloud: tuple[str, ...], about: str, line: str
) -> None:
    drafts = Drafts([a_node("one", "sim://one", pod_cidrs=has), a_node("no", "other://x")], NOW)

    drafts.allocate(mode, Blocks([Range(CIDR, 24)]), {"one": in_cloud}, owns)

    found = {one.about: one.lines for one in drafts.changes}
    assert "node/no" not in found
    assert bool(about) == bool(found)
    assert not about or found[about][0].startswith(line)


def test_routes_are_made_replaced_and_deleted_and_their_nodes_report_it() -> None:
    nodes = [
        a_node("one", "sim://one", pod_cidrs=("10.0.1.0/24",)),
        a_node("two", "sim://two", pod_cidrs=("10.0.2.0/24",)),
        a_node("odd", "sim://odd", pod_cidrs=("192.0.2.0/24",)),
    ]
    drafts = Drafts(nodes, NOW)
    listed = [
        Route("a", "10.0.2.0/24", "sim://gone", blackhole=True),
        Route("b", "10.0.9.0/24", "sim://one"),
    ]

    found = {one.about: one for one in routes.changes(drafts, listed, (CIDR,), owns, NOW)}

    assert {about: one.action for about, one in found.items()} == {
        "route/10.0.1.0/24": "create", "route/10.0.2.0/24": "change", "route/10.0.9.0/24": "delete",
    }  # fmt: skip
    assert found["route/10.0.2.0/24"].lines == (
        "- to sim://gone (a black hole now)", "+ to sim://two (node two)",
    )  # fmt: skip
    assert "10 s later" in found["route/10.0.9.0/24"].waits_for
    said = {one.about: one.lines[0] for one in drafts.changes}
    assert "NetworkUnavailable=False (RouteCreated)" in said["node/one"]
    assert "NetworkUnavailable=True (NoRouteCreated)" in said["node/odd"]
    assert "192.0.2.0/24" in drafts.held[0]


class Hooks:
    """The hooks of a provider that need no cloud."""

    def host_policy(self, service: Service) -> HostPolicy:
        if service.metadata.annotations:
            raise InvalidRequest("annotation a/b: no")
        return HostPolicy()

    def fingerprint(self, wanted: LoadBalancer) -> str:
        return "f"


def a_service(**fields: Any) -> Service:
    return objects.service("web", uid="u", **fields)


FINALIZED: dict[str, Any] = {"finalizers": (FINALIZER_LOAD_BALANCER,)}
OWNED = (OwnedObject("listener", "l-1", "default/web", "u"), OwnedObject("route", "r-1"))
ADD = f"+ finalizer {FINALIZER_LOAD_BALANCER}"
ENSURED = "~ condition LoadBalancerReady=True (Ensured)"
REJECTED: dict[str, Any] = {
    "ingress": ["192.0.2.1"],
    "conditions": (Condition("LoadBalancerReady", "True", "HostsRejected", "not taken: two"),),
}
DROP = f"- finalizer {FINALIZER_LOAD_BALANCER}"


@pytest.mark.parametrize(
    ("service", "said", "owned", "expected", "unforeseen"),
    [
        (
            a_service(), [PartChange("create", "listener", "x=1")], (),
            {"load-balancer": ("create", "+ listener: x=1"), "service": ("change", ADD)}, 0,
        ),
        (
            a_service(), [PartChange("change", "lb"), PartChange("delete", "t")], (),
            {"load-balancer": ("change", "~ lb"), "service": ("change", ADD)}, 0,
        ),
        (a_service(), None, None, {"service": ("change", ADD)}, 1),
        (a_service(), NotSupported(""), (), {"service": ("change", ADD)}, 1),
        (
            a_service(**FINALIZED), Throttled("429"), (),
            {"service": ("change", "~ condition LoadBalancerReady=False (Throttled)")}, 0,
        ),
        (
            a_service(annotations={"a/b": "x"}), None, (),
            {"service": ("change", "~ condition LoadBalancerReady=False (InvalidRequest)")}, 0,
        ),
        (
            a_service(type="ClusterIP", **FINALIZED), None, OWNED,
            {"load-balancer": ("delete", "- listener l-1"), "service": ("change", DROP)}, 0,
        ),
        (
            a_service(type="ClusterIP", **FINALIZED), None, None,
            {"load-balancer": ("delete", ""), "service": ("change", DROP)}, 0,
        ),
        (a_service(**FINALIZED, **REJECTED), [], (), {}, 0),
        (
            a_service(**FINALIZED, **REJECTED), [PartChange("change", "lb")], (),
            {"load-balancer": ("change", "~ lb"), "service": ("change", ENSURED)}, 0,
        ),
        (a_service(type="ClusterIP"), None, OWNED, {}, 0),
        (a_service(load_balancer_class="x/y"), None, (), {}, 0),
    ],
)  # fmt: skip
def test_services_are_decided_as_after_a_restart(
    service: Service,
    said: services.Previewed | None,
    owned: tuple[OwnedObject, ...] | None,
    expected: dict[str, tuple[str, str]],
    unforeseen: int,
) -> None:
    hooks: Any = Hooks()
    nodes = (a_node("one", "sim://one"),)

    due = services.due(
        [service], nodes, (), cloud=hooks, owned=owned, cluster=CLUSTER, classes=AS_GO
    )
    given = {} if said is None else {"u": said}
    found = list(services.changes(due, given, owned, NOW))

    shown = {one.about: one for one in found}
    assert shown.keys() == {f"{kind}/default/web" for kind in expected}
    for kind, (action, line) in expected.items():
        change = shown[f"{kind}/default/web"]
        assert change.action == action
        assert "".join(change.lines[:1]).startswith(line)
    assert len(list(services.unforeseen(due, given))) == unforeseen


SETTLED = a_service(
    **FINALIZED,
    ingress=["192.0.2.1"],
    conditions=(
        Condition(
            "LoadBalancerReady", "False", "NoHosts", "There are no available nodes for LoadBalancer"
        ),
    ),
)


@pytest.mark.parametrize(("recorded", "is_asked"), [(False, False), (True, True)])
def test_only_a_fingerprint_that_the_cloud_shows_spares_the_question(
    *, recorded: bool, is_asked: bool
) -> None:
    hooks: Any = Hooks()
    owned = (OwnedObject("lb", "lb-1", "default/web", "u", "f", recorded=recorded),)
    (due,) = services.due(
        [SETTLED], (), (), cloud=hooks, owned=owned, cluster=CLUSTER, classes=AS_GO
    )
    assert isinstance(due.verb, Ensure) is is_asked, due.verb


def test_a_report_is_a_diff_or_json() -> None:
    preview = Preview(
        (
            Change("node/a", "change", ("+ label x=y",)),
            Change("node/b", "delete", (), "another answer must say so"),
            Change("route/c", "create"),
        ),
        held=("not deleted: d",),
        notes=("no routes",),
    )

    assert report.as_text(preview).splitlines() == [
        "~ node/a",
        "    + label x=y",
        "- node/b",
        "    waits: another answer must say so",
        "+ route/c",
        "! not deleted: d",
        "note: no routes",
        "1 to create, 1 to change, 1 to delete",
    ]
    assert preview.exit_code == 2
    assert msgspec.json.decode(report.as_json(preview))["changes"][2]["about"] == "route/c"
    nothing = Preview((), held=("x",))
    assert nothing.exit_code == 0
    assert report.as_text(nothing) == "! x\nno changes"


def test_an_error_of_one_node_is_its_condition() -> None:
    drafts = Drafts([a_node("one", taints=(TAINT,))], NOW)

    drafts.initialise({"one": CloudError("no such region")}, owns)

    (change,) = drafts.changes
    assert change.lines == (
        "~ condition CloudInitialized=False (CloudUnavailable): no such region",
    )


def test_a_node_that_is_stuck_and_reports_it_is_named_though_nothing_changes() -> None:
    new = Drafts([a_node("one", taints=(TAINT,))], NOW)
    new.initialise({"one": CloudError("no such region")}, owns)
    assert not new.stuck
    again = Drafts(list(new.nodes.values()), NOW)

    again.initialise({"one": CloudError("no such region")}, owns)

    assert not again.changes
    assert again.stuck == ("node/one is not initialised: CloudUnavailable: no such region",)


def test_serving_certificates_are_previewed_as_they_would_be_decided() -> None:
    machine = Instance("sim://1", "one", addresses=(NodeAddress("InternalIP", "10.0.0.1"),))
    asked = Asked(("system:node:one",), ("system:nodes",), ("one",))
    node = objects.node("one", "sim://1")
    spec = CertificateSigningRequestSpec(
        b"", SIGNER, "system:node:one", ("system:nodes",), ("digital signature", "server auth")
    )
    sound, other, done = (
        CertificateSigningRequest(ObjectMeta(name), spec) for name in ("csr-1", "csr-2", "csr-3")
    )
    done = msgspec.structs.replace(
        done, status=CertificateSigningRequestStatus((Condition("Denied", "True"),))
    )
    known = Observed(asked, node, Ownership.YES, machine)
    seen = {
        "csr-1": known,
        "csr-2": msgspec.structs.replace(known, answer=NotFound()),
        "csr-3": known,
    }
    approval, refusal = certificates.changes([sound, other, done], seen, NOW)
    assert approval == Change(
        "certificatesigningrequest/csr-1", "change", ("+ Approved, for node one",)
    )
    assert isinstance(refusal, str)
    assert "csr-2 of system:node:one: not approved: the cloud knows no machine" in refusal


def test_volumes_without_labels_get_them_and_those_without_an_answer_are_held() -> None:
    zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
    ebs = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
    affinity: dict[str, Any] = {"required": {"nodeSelectorTerms": [{"matchExpressions": []}]}}
    made = {"pv.kubernetes.io/provisioned-by": "kubernetes.io/aws-ebs"}
    several = [
        persistent_volume(ebs, "new", labels={zone: "other"}),
        persistent_volume({**ebs, "nodeAffinity": affinity}, "fixed"),
        persistent_volume({**ebs, "nodeAffinity": affinity}, "done", labels={zone: "a"}),
        persistent_volume(ebs, "trusted", labels={zone: "b", region: "r"}, annotations=made),
        persistent_volume(ebs, "unknown"),
        persistent_volume(ebs, "elsewhere"),
        persistent_volume({"hostPath": {"path": "/"}}, "path"),
    ]
    asked = askable(several)
    assert [one.metadata.name for one in asked] == ["new", "fixed", "unknown", "elsewhere"]
    answers: dict[str, Answer] = {
        "new": {zone: "a__c", region: "r"},
        "fixed": {zone: "a"},
        "unknown": InvalidRequest("there is no volume vol-1"),
        "elsewhere": {},
    }
    assert volumes.changes(several, answers) == (
        (
            Change(
                "persistentvolume/new",
                "change",
                (
                    f"+ label {region}=r",
                    f"~ label {zone}=other -> a__c",
                    f"+ node affinity: {region} in r; {zone} in a, c",
                ),
            ),
            Change("persistentvolume/fixed", "change", (f"+ label {zone}=a",)),
            Change(
                "persistentvolume/trusted",
                "change",
                (f"+ node affinity: {region} in r; {zone} in b",),
            ),
        ),
        ("persistentvolume/unknown gets no labels: there is no volume vol-1",),
    )
