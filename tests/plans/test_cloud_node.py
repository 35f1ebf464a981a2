"""What is written on a Node for each answer of the cloud."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider.errors import (
    CallTimeout,
    CloudError,
    ConfigError,
    IdentityConflict,
    ImplementedElsewhere,
    InvalidRequest,
    NotSupported,
    RetryAfter,
    Throttled,
    Unauthenticated,
)
from proreus.cloudprovider.instances import Instance, InstanceAnswer, NotFound, Ownership
from proreus.containment.sightings import Sighting
from proreus.controllers.cloud_node import labels
from proreus.controllers.cloud_node.plan import (
    CONDITION,
    Change,
    is_settled,
    may_be_confirmed,
    needs_instance,
    plan,
    relevant,
    update_group,
)
from proreus.controllers.cloud_node.reasons import Failure, Reason
from proreus.controllers.events import PlannedEvent
from proreus.kube.objects import (
    ANNOTATION_PROVIDED_NODE_IP,
    LABEL_INSTANCE_TYPE,
    LABEL_INSTANCE_TYPE_BETA,
    LABEL_REGION,
    LABEL_REGION_BETA,
    LABEL_ZONE,
    LABEL_ZONE_BETA,
    TAINT_OUT_OF_SERVICE,
    TAINT_SHUTDOWN,
    TAINT_UNINITIALIZED,
    Condition,
    Node,
    NodeAddress,
    Taint,
    condition,
    has_taint,
)
from proreus.kube.patch import Op, Patch
from proreus.testing import objects
from proreus.testing.objects import changed

ApplyPatch = Callable[[Node, Patch], Node]

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
TAINT = Taint(key=TAINT_UNINITIALIZED, value="true", effect="NoSchedule")
OTHER_TAINT = Taint(key="dedicated", value="db", effect="NoExecute", time_added="2026-05-04")
MACHINE = Instance(
    provider_id="sim://z1/m-1",
    name="n1",
    instance_type="m1.large",
    zone="z1",
    region="r1",
    addresses=(NodeAddress("InternalIP", "10.0.0.1"), NodeAddress("ExternalIP", "192.0.2.1")),
)
TOPOLOGY = {
    LABEL_INSTANCE_TYPE: "m1.large",
    LABEL_INSTANCE_TYPE_BETA: "m1.large",
    LABEL_ZONE: "z1",
    LABEL_ZONE_BETA: "z1",
    LABEL_REGION: "r1",
    LABEL_REGION_BETA: "r1",
}
FINE = "the labels, addresses and provider id are those of the machine in the cloud"
SYNCED = PlannedEvent("Normal", "Synced", "Node synced successfully")


def fresh(**changes: Any) -> Node:
    """A node as a kubelet registers it."""
    return changed(
        objects.node(
            "n1",
            uid="u1",
            labels={"kubernetes.io/hostname": "n1"},
            taints=(TAINT,),
            addresses=(NodeAddress("Hostname", "n1"),),
        ),
        **changes,
    )


def initialised(**changes: Any) -> Node:
    """A node that has all that MACHINE gives."""
    return changed(
        objects.node(
            "n1",
            "sim://z1/m-1",
            uid="u1",
            labels={"kubernetes.io/hostname": "n1", **TOPOLOGY},
            addresses=(*MACHINE.addresses, NodeAddress("Hostname", "n1")),
            conditions=(
                Condition("Ready", "True"),
                Condition(CONDITION, "True", "Initialized", FINE, NOW),
            ),
        ),
        **changes,
    )


def relabelled(node: Node, **labels_: str) -> Node:
    extra = {name.replace("__", "/").replace("_", "-"): value for name, value in labels_.items()}
    return changed(node, labels={**node.metadata.labels, **extra})


def machine(**changes: object) -> Instance:
    return msgspec.structs.replace(MACHINE, **changes)


def told(node: Node) -> Condition:
    found = condition(node.status.conditions, CONDITION)
    assert found is not None
    return found


def after(apply_patch: ApplyPatch, node: Node, change: Change | None) -> Node:
    assert change is not None
    return apply_patch(apply_patch(node, change.status), change.main.tested)


def test_the_names_that_others_rely_on() -> None:
    assert CONDITION == "CloudInitialized"
    assert labels.ANNOTATION_OURS == "proreus/additional-labels"
    assert [reason.value for reason in Reason] == [
        "Initialized",
        "TopologyDiffers",
        "InstanceNotFound",
        "InstancePending",
        "NoAnswer",
        "CloudUnavailable",
        "CloudTimeout",
        "Throttled",
        "Unauthenticated",
        "NotSupported",
        "InvalidRequest",
        "ConfigError",
        "IdentityConflict",
        "ProviderIDMissing",
        "ProvidedNodeIPInvalid",
        "ProvidedNodeIPMismatch",
        "NotOwned",
    ]


# Which events need a look


@pytest.mark.parametrize(
    "changes",
    [
        {"uid": "u2"},
        {"labels": {}},
        {"annotations": {ANNOTATION_PROVIDED_NODE_IP: "10.0.0.1"}},
        {"provider_id": "sim://other"},
        {"taints": (TAINT, OTHER_TAINT)},
        {"addresses": ()},
    ],
)
def test_a_change_of_what_is_read_is_relevant_while_the_node_waits(
    changes: dict[str, object],
) -> None:
    assert relevant(fresh(), fresh(**changes))


def test_a_node_that_waits_again_is_relevant() -> None:
    assert relevant(initialised(), initialised(taints=(TAINT,)))


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_version": "2"},
        {"uid": "u2"},
        {"labels": {}},
        {"annotations": {ANNOTATION_PROVIDED_NODE_IP: "10.0.0.1"}},
        {"provider_id": "sim://other"},
        {"taints": (OTHER_TAINT,)},
        {"addresses": ()},
        {"conditions": (Condition(CONDITION, "False", "Initialized", FINE, NOW),)},
        {"conditions": ()},
        {"taints": (TAINT,), "deletion_timestamp": NOW},
    ],
)
def test_what_only_a_refresh_could_mend_is_not_looked_at(changes: dict[str, object]) -> None:
    node = initialised(**changes)
    assert is_settled(node)
    assert not relevant(initialised(), node)
    assert plan(node, None, NOW, refresh=False) is None


@pytest.mark.parametrize("label", [LABEL_ZONE, LABEL_REGION, LABEL_INSTANCE_TYPE_BETA])
def test_labels_that_differ_from_their_beta_keys_are_looked_at_once(label: str) -> None:
    edited = changed(initialised(), labels={**initialised().metadata.labels, label: "edited"})
    assert not is_settled(edited)
    assert relevant(initialised(), edited)
    assert relevant(None, edited)
    # A heartbeat is no reason to try again at once, should the write have failed.
    assert not relevant(edited, changed(edited, resource_version="3"))


def test_nodes_that_wait_are_not_settled() -> None:
    assert not is_settled(fresh())


def test_a_heartbeat_is_not_relevant() -> None:
    beat = fresh(
        resource_version="2",
        annotations={"volumes": "x"},
        conditions=(Condition("Ready", "Unknown"),),
    )
    assert not relevant(fresh(), beat)


def test_the_text_of_a_failure_is_no_reason_to_try_again() -> None:
    failing = Condition(CONDITION, "False", "InstanceNotFound", "no machine", NOW)
    again = Condition(CONDITION, "False", "CloudError", "500", LATER)
    assert not relevant(fresh(), fresh(conditions=(failing,)))
    assert not relevant(fresh(conditions=(failing,)), fresh(conditions=(again,)))
    assert relevant(fresh(conditions=(failing,)), fresh())


def test_a_new_node_is_relevant_and_a_gone_one_is_not() -> None:
    assert relevant(None, fresh())
    assert relevant(fresh(), None) is False


@pytest.mark.parametrize(
    ("node", "needed"),
    [
        (fresh(), True),
        (fresh(taints=(OTHER_TAINT, Taint(TAINT_UNINITIALIZED, "NoExecute"))), True),
        (fresh(taints=(OTHER_TAINT,)), False),
        (fresh(deletion_timestamp=NOW), False),
    ],
)
def test_only_tainted_nodes_that_stay_need_the_cloud(node: Node, *, needed: bool) -> None:
    assert needs_instance(node) is needed


# Initialisation


@pytest.mark.parametrize("updates", [1, 4])
def test_initialised_nodes_share_groups_and_new_ones_do_not(updates: int) -> None:
    names = [f"node-{number}" for number in range(200)]
    assert [update_group(name, fresh(), updates) for name in names] == names
    assert [update_group(name, None, updates) for name in names] == names
    assert [update_group(name, initialised(), 0) for name in names] == names
    assert {update_group(name, initialised(), updates) for name in names} == set(range(updates))


def test_initialisation_writes_the_status_first_and_the_taint_last(apply_patch: ApplyPatch) -> None:
    change = plan(fresh(taints=(TAINT, OTHER_TAINT)), MACHINE, NOW, refresh=False)

    assert change is not None
    halfway = apply_patch(fresh(taints=(TAINT, OTHER_TAINT)), change.status)
    assert halfway.status.addresses == (*MACHINE.addresses, NodeAddress("Hostname", "n1"))
    assert told(halfway) == Condition(CONDITION, "True", "Initialized", FINE, NOW)
    assert has_taint(halfway, TAINT_UNINITIALIZED)
    done = apply_patch(halfway, change.main.tested)
    assert done.spec.taints == (OTHER_TAINT,)
    assert done.spec.provider_id == "sim://z1/m-1"
    assert done.metadata.labels == {"kubernetes.io/hostname": "n1", **TOPOLOGY}
    assert done.metadata.annotations == {}
    assert change.initialised
    assert change.failure is None
    assert change.events == (SYNCED,)
    assert change.main.tested.body[-1] == Op("remove", "/spec/taints/0")


def test_after_initialisation_nothing_is_left_to_do(apply_patch: ApplyPatch) -> None:
    done = after(apply_patch, fresh(), plan(fresh(), MACHINE, NOW, refresh=False))

    assert plan(done, None, LATER, refresh=False) is None
    assert plan(done, MACHINE, LATER, refresh=True) is None


def test_a_crash_between_the_patches_costs_only_the_second(apply_patch: ApplyPatch) -> None:
    first = plan(fresh(), MACHINE, NOW, refresh=False)
    assert first is not None
    halfway = apply_patch(fresh(), first.status)

    again = plan(halfway, MACHINE, LATER, refresh=False)

    assert again is not None
    assert not again.status
    assert again.main == first.main


def test_every_uninitialized_taint_goes_whatever_its_effect(apply_patch: ApplyPatch) -> None:
    node = fresh(taints=(TAINT, OTHER_TAINT, Taint(TAINT_UNINITIALIZED, "NoExecute")))
    done = after(apply_patch, node, plan(node, MACHINE, NOW, refresh=False))
    assert done.spec.taints == (OTHER_TAINT,)


def test_the_cloud_overwrites_labels_at_initialisation_where_it_knows(
    apply_patch: ApplyPatch,
) -> None:
    node = fresh(labels={LABEL_ZONE: "old", LABEL_REGION: "old", LABEL_REGION_BETA: "older"})
    instance = machine(region="", instance_type="")
    done = after(apply_patch, node, plan(node, instance, NOW, refresh=False))
    assert done.metadata.labels == {
        LABEL_ZONE: "z1",
        LABEL_ZONE_BETA: "z1",
        LABEL_REGION: "old",
        LABEL_REGION_BETA: "old",
    }


def test_a_preset_provider_id_stays(apply_patch: ApplyPatch) -> None:
    node = fresh(provider_id="sim://z1/m-1")
    for instance in (MACHINE, machine(provider_id="")):
        change = plan(node, instance, NOW, refresh=False)
        assert change is not None
        assert "/spec/providerID" not in [op.path for op in change.main.tested.body]
        assert not has_taint(after(apply_patch, node, change), TAINT_UNINITIALIZED)


def test_a_cloud_without_addresses_leaves_the_kubelets(apply_patch: ApplyPatch) -> None:
    node = fresh(addresses=(NodeAddress("InternalIP", "10.9.9.9"),))
    done = after(apply_patch, node, plan(node, machine(addresses=()), NOW, refresh=False))
    assert done.status.addresses == (NodeAddress("InternalIP", "10.9.9.9"),)
    assert told(done).status == "True"


def test_a_node_that_is_being_deleted_is_left_alone() -> None:
    answers: tuple[InstanceAnswer, ...] = (MACHINE, NotFound())
    for answer in answers:
        for refresh in (True, False):
            gone = fresh(deletion_timestamp=NOW)
            assert plan(gone, answer, NOW, refresh=refresh) is None
            gone = initialised(deletion_timestamp=NOW, addresses=())
            assert plan(gone, answer, NOW, refresh=refresh) is None


# Failures to initialise


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (
            None,
            Failure(Reason.NO_ANSWER, "the cloud's answer says nothing about this node"),
        ),
        (
            NotFound(),
            Failure(
                Reason.INSTANCE_NOT_FOUND,
                "the cloud has no instance named n1; give the node its instance's name, or start "
                "the kubelet with --provider-id",
            ),
        ),
        (Throttled("slow down", after=7.0), Failure(Reason.THROTTLED, "slow down", 7.0)),
        (Throttled("slow down"), Failure(Reason.THROTTLED, "slow down")),
        (RetryAfter("building", after=9.0), Failure(Reason.INSTANCE_PENDING, "building", 9.0)),
        (Unauthenticated("key expired"), Failure(Reason.UNAUTHENTICATED, "key expired")),
        (CallTimeout("no answer"), Failure(Reason.CLOUD_TIMEOUT, "no answer")),
        (IdentityConflict("two names"), Failure(Reason.IDENTITY_CONFLICT, "two names")),
        (NotSupported("no such thing"), Failure(Reason.NOT_SUPPORTED, "no such thing")),
        (InvalidRequest("bad id"), Failure(Reason.INVALID_REQUEST, "bad id")),
        (ConfigError(("region: missing",)), Failure(Reason.CONFIG_ERROR, "region: missing")),
        (CloudError("500"), Failure(Reason.CLOUD_UNAVAILABLE, "500")),
        (CloudError(), Failure(Reason.CLOUD_UNAVAILABLE, "CloudError")),
        (
            ImplementedElsewhere("not here"),
            Failure(
                Reason.NOT_OWNED,
                "the machine is not of this cloud, region and account; "
                "its own cloud-controller-manager must initialise the node",
                retry=False,
            ),
        ),
        (
            machine(provider_id=""),
            Failure(
                Reason.PROVIDER_ID_MISSING,
                "neither the cloud nor the node gives a provider id; "
                "start the kubelet with --provider-id",
            ),
        ),
    ],
)
def test_a_failure_is_written_once_and_the_taint_stays(
    apply_patch: ApplyPatch, answer: InstanceAnswer | None, failure: Failure
) -> None:
    change = plan(fresh(), answer, NOW, refresh=False)

    assert change is not None
    assert change.failure == failure
    assert change.failure.retry is (failure.reason is not Reason.NOT_OWNED)
    assert not change.main
    assert not change.initialised
    is_pending = failure.reason is Reason.INSTANCE_PENDING
    type_ = "Normal" if is_pending else "Warning"
    assert [(e.type, e.reason, e.message) for e in change.events] == [
        (type_, failure.reason, failure.message)
    ]
    node = apply_patch(fresh(), change.status)
    assert told(node) == Condition(CONDITION, "False", failure.reason, failure.message, NOW)
    assert node.status.addresses == fresh().status.addresses
    again = plan(node, answer, LATER, refresh=False)
    assert again is not None
    assert again.failure == failure
    assert not again.status
    assert not again.main
    # A Warning each time: the recorder counts them, and writes a lasting one every ten minutes.
    is_said_once = failure.reason in {Reason.INSTANCE_PENDING, Reason.NOT_OWNED}
    assert again.events == (() if is_said_once else change.events)


def test_not_found_names_the_provider_id_that_was_looked_up() -> None:
    change = plan(fresh(provider_id="sim://x"), NotFound(tombstone=True), NOW, refresh=False)
    assert change is not None
    assert change.failure == Failure(
        Reason.INSTANCE_NOT_FOUND, "the cloud has no instance with the provider id sim://x"
    )


def test_another_machines_provider_id_is_a_conflict() -> None:
    change = plan(fresh(provider_id="sim://z1/old"), MACHINE, NOW, refresh=False)
    assert change is not None
    assert change.failure == Failure(
        Reason.IDENTITY_CONFLICT,
        "the node has the provider id sim://z1/old, but the cloud found sim://z1/m-1 for it; "
        "delete the Node object if its machine was replaced",
    )
    assert not change.main


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        ("10.0.0.9", Reason.PROVIDED_NODE_IP_MISMATCH),
        ("ten", Reason.PROVIDED_NODE_IP_INVALID),
    ],
)
def test_a_wrong_node_ip_keeps_the_node_tainted(annotation: str, reason: Reason) -> None:
    node = fresh(annotations={ANNOTATION_PROVIDED_NODE_IP: annotation})
    for instance in (MACHINE, machine(addresses=())):
        change = plan(node, instance, NOW, refresh=False)
        assert change is not None
        assert change.failure is not None
        assert change.failure.reason is reason
        assert annotation in change.failure.message
        assert not change.main


def test_the_condition_follows_the_reason_and_keeps_the_time_of_the_transition(
    apply_patch: ApplyPatch,
) -> None:
    node = fresh()
    answers: list[InstanceAnswer] = [CloudError("a"), CloudError("b"), NotFound(), MACHINE]
    seen = []
    for i, answer in enumerate(answers):
        change = plan(node, answer, NOW + timedelta(minutes=i), refresh=False)
        assert change is not None
        node = apply_patch(node, change.status)
        seen.append((told(node), [event.reason for event in change.events]))
    a, b, gone, fine = seen
    assert (a[0].message, a[1]) == ("a", ["CloudUnavailable"])
    assert (b[0].message, b[1]) == ("b", ["CloudUnavailable"])
    assert (gone[0].reason, gone[1]) == ("InstanceNotFound", ["InstanceNotFound"])
    assert {c.last_transition_time for c, _ in (a, b, gone)} == {NOW}
    assert fine[0].status == "True"
    assert fine[0].last_transition_time == NOW + timedelta(minutes=3)
    assert all(x[0] != y[0] for x, y in pairwise(seen))


def test_a_condition_without_a_time_gets_one(apply_patch: ApplyPatch) -> None:
    node = fresh(conditions=(Condition(CONDITION, "False", "Throttled", "x"),))
    change = plan(node, NotFound(), NOW, refresh=False)
    assert change is not None
    assert told(apply_patch(node, change.status)).last_transition_time == NOW


def test_request_ids_do_not_reach_the_condition() -> None:
    messages = set()
    for request in ("req-0a1b2c3d", "req-99aabbcc"):
        error = CloudError(f"server error (Request-ID: {request})")
        change = plan(fresh(), error, NOW, refresh=False)
        assert change is not None
        assert change.failure is not None
        messages.add(change.failure.message)
    assert len(messages) == 1


# Ownership


def test_a_foreign_node_is_reported_once_and_its_own_controllers_condition_stays(
    apply_patch: ApplyPatch,
) -> None:
    change = plan(fresh(), None, NOW, refresh=False, ownership=Ownership.NO)
    assert change is not None
    assert change.failure is not None
    assert change.failure.reason is Reason.NOT_OWNED
    assert not change.failure.retry
    assert [event.reason for event in change.events] == ["NotOwned"]
    node = apply_patch(fresh(), change.status)
    assert told(node).reason == "NotOwned"
    for word in (told(node), Condition(CONDITION, "True"), Condition(CONDITION, "False", "X")):
        node = fresh(conditions=(word,))
        again = plan(node, MACHINE, NOW, refresh=False, ownership=Ownership.NO)
        assert again is not None
        assert again == Change(again.status, again.main, failure=change.failure)
        assert not again.status
        assert not again.main


def test_unknown_ownership_does_not_keep_a_node_from_being_initialised() -> None:
    change = plan(fresh(), MACHINE, NOW, refresh=False, ownership=Ownership.UNKNOWN)
    assert change is not None
    assert change.initialised
    assert not change.failure


@pytest.mark.parametrize("refresh", [True, False])
def test_nothing_is_written_on_an_initialised_foreign_node(*, refresh: bool) -> None:
    node = relabelled(initialised(addresses=()), failure_domain_beta__x="y")
    stale = changed(node, labels={**node.metadata.labels, LABEL_ZONE_BETA: "z9"})
    assert plan(stale, MACHINE, NOW, refresh=refresh, ownership=Ownership.NO) is None
    assert plan(stale, MACHINE, NOW, refresh=refresh, ownership=Ownership.UNKNOWN) is not None


# Additional labels


def with_labels(**additional: str) -> Instance:
    return machine(
        additional_labels={k.replace("__", "/").replace("_", "-"): v for k, v in additional.items()}
    )


def test_additional_labels_are_added_and_remembered(apply_patch: ApplyPatch) -> None:
    instance = with_labels(example_com__rack="7", tier="gold")
    done = after(apply_patch, fresh(), plan(fresh(), instance, NOW, refresh=False))
    assert done.metadata.labels["example-com/rack"] == "7"
    assert done.metadata.labels["tier"] == "gold"
    assert done.metadata.annotations == {labels.ANNOTATION_OURS: "example-com/rack,tier"}
    assert plan(done, instance, LATER, refresh=True) is None


@pytest.mark.parametrize("refresh", [True, False])
def test_an_existing_label_of_another_is_never_replaced_nor_removed(
    apply_patch: ApplyPatch, *, refresh: bool
) -> None:
    node = relabelled(initialised() if refresh else fresh(), tier="iron")
    for value in ("gold", "iron"):
        change = plan(node, with_labels(tier=value), NOW, refresh=refresh)
        done = node if change is None else after(apply_patch, node, change)
        assert done.metadata.labels["tier"] == "iron"
        assert labels.ANNOTATION_OURS not in done.metadata.annotations


@pytest.mark.parametrize(
    ("key", "reserved"),
    [
        ("kubernetes.io/x", True),
        ("k8s.io/x", True),
        ("node.kubernetes.io/x", True),
        ("a.k8s.io/x", True),
        ("notk8s.io/x", False),
        ("mykubernetes.io/x", False),
        ("kubernetes.io.example/x", False),
        ("kubernetes.io", False),
        ("example.com/kubernetes.io", False),
    ],
)
def test_labels_in_kubernetes_own_domains_are_dropped(
    apply_patch: ApplyPatch, key: str, *, reserved: bool
) -> None:
    assert labels.reserved(key) is reserved
    change = plan(fresh(), machine(additional_labels={key: "v"}), NOW, refresh=False)
    done = after(apply_patch, fresh(), change)
    assert (key in done.metadata.labels) is not reserved
    assert change is not None
    assert change.events == (SYNCED,)


@pytest.mark.parametrize(
    ("key", "value", "ok"),
    [
        ("a", "", True),
        ("a", "b" * 63, True),
        ("a", "b" * 64, False),
        ("a" * 63, "b", True),
        ("a" * 64, "b", False),
        ("x/" + "a" * 63, "b", True),
        ("d" * 253 + "/a", "b", True),
        ("d" * 254 + "/a", "b", False),
        ("", "b", False),
        ("/a", "b", False),
        ("a/b/c", "b", False),
        ("Upper/a", "b", False),
        ("up.er-0.io/A_b.c-D", "A_b.c-D", True),
        ("-a/b", "c", False),
        ("a-/b", "c", False),
        ("a..b/c", "d", False),
        ("a", "-b", False),
        ("a", "b.", False),
        ("a", "two words", False),
        ("a_", "b", False),
        ("a", "b\n", False),
    ],
)
def test_label_syntax(key: str, value: str, *, ok: bool) -> None:
    assert labels.valid(key, value) is ok


def test_one_bad_label_does_not_keep_the_node_from_being_initialised(
    apply_patch: ApplyPatch,
) -> None:
    instance = machine(zone="Zone 1", additional_labels={"good": "1", "bad key": "2"})
    change = plan(fresh(), instance, NOW, refresh=False)
    done = after(apply_patch, fresh(), change)
    assert not has_taint(done, TAINT_UNINITIALIZED)
    assert done.metadata.labels["good"] == "1"
    assert LABEL_ZONE not in done.metadata.labels
    assert LABEL_ZONE_BETA not in done.metadata.labels
    assert change is not None
    assert change.events == (
        PlannedEvent(
            "Warning",
            "LabelsRejected",
            "labels that the cloud gives, but Kubernetes does not allow, are left out: "
            f"{LABEL_ZONE}=Zone 1, bad key=2",
        ),
        SYNCED,
    )


def ours(node: Node, keys: str, **values: str) -> Node:
    return relabelled(changed(node, annotations={labels.ANNOTATION_OURS: keys}), **values)


@pytest.mark.parametrize("refresh", [True, False])
def test_our_labels_are_repaired_and_removed(apply_patch: ApplyPatch, *, refresh: bool) -> None:
    node = ours(initialised() if refresh else fresh(), "a,b,c", a="wrong", b="2", user="x")
    instance = with_labels(a="1", c="3", d="4")
    done = after(apply_patch, node, plan(node, instance, NOW, refresh=refresh))
    found = done.metadata.labels
    assert {key: found.get(key) for key in ("a", "b", "c", "d", "user")} == {
        "a": "1",
        "b": None,
        "c": "3",
        "d": "4",
        "user": "x",
    }
    assert done.metadata.annotations == {labels.ANNOTATION_OURS: "a,c,d"}


def test_the_list_of_ours_goes_with_the_last_of_them(apply_patch: ApplyPatch) -> None:
    node = ours(initialised(), "a", a="1")
    done = after(apply_patch, node, plan(node, MACHINE, NOW, refresh=True))
    assert "a" not in done.metadata.labels
    assert done.metadata.annotations == {}


def test_a_forged_list_of_ours_cannot_remove_kubernetes_own_labels(apply_patch: ApplyPatch) -> None:
    node = ours(initialised(), f"kubernetes.io/hostname,{LABEL_ZONE},a", a="1")
    done = after(apply_patch, node, plan(node, MACHINE, NOW, refresh=True))
    assert done.metadata.labels == {"kubernetes.io/hostname": "n1", **TOPOLOGY}


# After initialisation


def test_a_steady_node_costs_nothing() -> None:
    assert plan(initialised(), None, LATER, refresh=False) is None
    assert plan(initialised(), MACHINE, LATER, refresh=True) is None


def test_the_refresh_repairs_addresses_in_order(apply_patch: ApplyPatch) -> None:
    moved = tuple(reversed(MACHINE.addresses))
    change = plan(initialised(), machine(addresses=moved), LATER, refresh=True)
    assert change is not None
    assert not change.main
    assert change.events == ()
    done = apply_patch(initialised(), change.status)
    assert done.status.addresses == (*moved, NodeAddress("Hostname", "n1"))
    assert done.status.conditions == initialised().status.conditions


def test_without_the_refresh_addresses_and_type_are_not_compared() -> None:
    assert plan(initialised(), machine(addresses=()), LATER, refresh=False) is None
    stale = relabelled(initialised(addresses=()), x="y")
    assert plan(stale, machine(instance_type="m2"), LATER, refresh=False) is None


def test_a_cloud_that_gives_no_addresses_clears_none() -> None:
    node = initialised(annotations={ANNOTATION_PROVIDED_NODE_IP: "10.0.0.1"})
    assert plan(node, machine(addresses=()), LATER, refresh=True) is None


def test_the_instance_type_is_repaired_with_its_beta_key(apply_patch: ApplyPatch) -> None:
    change = plan(initialised(), machine(instance_type="m2"), LATER, refresh=True)
    done = after(apply_patch, initialised(), change)
    assert done.metadata.labels[LABEL_INSTANCE_TYPE] == "m2"
    assert done.metadata.labels[LABEL_INSTANCE_TYPE_BETA] == "m2"


@pytest.mark.parametrize("type_", ["", "not valid"])
def test_an_unusable_instance_type_changes_nothing(type_: str) -> None:
    assert plan(initialised(), machine(instance_type=type_), LATER, refresh=True) is None


@pytest.mark.parametrize("refresh", [True, False])
def test_beta_keys_follow_the_stable_ones(apply_patch: ApplyPatch, *, refresh: bool) -> None:
    edited = {**TOPOLOGY, LABEL_ZONE_BETA: "z9", LABEL_INSTANCE_TYPE_BETA: "old"}
    done = after(
        apply_patch,
        initialised(labels=edited),
        plan(initialised(labels=edited), MACHINE, LATER, refresh=refresh),
    )
    assert done.metadata.labels == TOPOLOGY


@pytest.mark.parametrize("answer", [MACHINE, NotFound(), CloudError("x"), None])
def test_a_lost_stable_key_is_restored_from_the_beta_key(
    apply_patch: ApplyPatch, answer: InstanceAnswer | None
) -> None:
    lost = {key: value for key, value in TOPOLOGY.items() if key != LABEL_REGION}
    node = initialised(labels=lost)
    change = plan(node, answer, LATER, refresh=True)
    done = after(apply_patch, node, change)
    assert done.metadata.labels == TOPOLOGY
    assert told(done).reason == "Initialized"


def test_absent_beta_keys_stay_absent() -> None:
    stable = {key: value for key, value in TOPOLOGY.items() if "beta" not in key}
    assert plan(initialised(labels=stable), MACHINE, LATER, refresh=True) is None


@pytest.mark.parametrize(
    ("instance", "message"),
    [
        (machine(zone="z2"), f'label {LABEL_ZONE} is "z1", but the cloud says "z2"'),
        (machine(region="r2"), f'label {LABEL_REGION} is "r1", but the cloud says "r2"'),
        (
            machine(zone="z2", region="r2"),
            (
                f'label {LABEL_ZONE} is "z1", but the cloud says "z2"; '
                f'label {LABEL_REGION} is "r1", but the cloud says "r2"'
            ),
        ),
    ],
)
def test_zone_and_region_are_never_changed_but_a_difference_is_reported(
    apply_patch: ApplyPatch, instance: Instance, message: str
) -> None:
    change = plan(initialised(), instance, LATER, refresh=True)
    assert change is not None
    assert not change.main
    assert change.failure is None
    assert change.events == (PlannedEvent("Warning", "TopologyDiffers", message),)
    node = apply_patch(initialised(), change.status)
    assert told(node) == Condition(CONDITION, "True", "TopologyDiffers", message, NOW)
    assert plan(node, instance, LATER, refresh=True) is None
    back = plan(node, MACHINE, LATER, refresh=True)
    assert back is not None
    assert back.events == ()
    assert told(apply_patch(node, back.status)).reason == "Initialized"


def test_a_zone_that_the_node_lacks_is_reported_not_set() -> None:
    node = initialised(labels={LABEL_INSTANCE_TYPE: "m1.large", LABEL_REGION: "r1"})
    change = plan(node, MACHINE, LATER, refresh=True)
    assert change is not None
    assert not change.main
    assert change.events[0].message == f'label {LABEL_ZONE} is "", but the cloud says "z1"'


def test_a_cloud_that_knows_no_zone_is_no_difference() -> None:
    assert plan(initialised(), machine(zone="", region=""), LATER, refresh=True) is None


@pytest.mark.parametrize(
    ("answer", "annotations", "reason"),
    [
        (machine(provider_id="sim://z1/new", addresses=()), {}, "IdentityConflict"),
        (IdentityConflict("two nodes claim it"), {}, "IdentityConflict"),
        (MACHINE, {ANNOTATION_PROVIDED_NODE_IP: "10.0.0.9"}, "ProvidedNodeIPMismatch"),
        (MACHINE, {ANNOTATION_PROVIDED_NODE_IP: "ten"}, "ProvidedNodeIPInvalid"),
    ],
)
def test_what_the_refresh_finds_wrong_is_reported_while_the_node_stays_initialised(
    apply_patch: ApplyPatch,
    answer: InstanceAnswer,
    annotations: dict[str, str],
    reason: str,
) -> None:
    labels_ = {**TOPOLOGY, LABEL_ZONE_BETA: "z9"}
    node = initialised(annotations=annotations, labels=labels_)
    change = plan(node, answer, LATER, refresh=True)
    done = after(apply_patch, node, change)
    assert (told(done).status, told(done).reason) == ("True", reason)
    assert done.status.addresses == node.status.addresses
    assert done.metadata.labels == TOPOLOGY, "beta keys follow all the same"
    assert change is not None
    assert [(event.type, event.reason) for event in change.events] == [("Warning", reason)]
    assert plan(done, answer, LATER, refresh=True) is None


def test_the_type_is_repaired_even_if_the_node_ip_is_wrong(apply_patch: ApplyPatch) -> None:
    node = initialised(annotations={ANNOTATION_PROVIDED_NODE_IP: "ten"})
    done = after(apply_patch, node, plan(node, machine(instance_type="m2"), LATER, refresh=True))
    assert done.metadata.labels[LABEL_INSTANCE_TYPE] == "m2"


def test_a_conflicting_machine_changes_no_label(apply_patch: ApplyPatch) -> None:
    other = machine(provider_id="sim://z1/new", instance_type="m2")
    done = after(apply_patch, initialised(), plan(initialised(), other, LATER, refresh=True))
    assert done.metadata.labels == initialised().metadata.labels


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (CloudError("down"), Reason.CLOUD_UNAVAILABLE),
        (Throttled("slow"), Reason.THROTTLED),
        (None, Reason.NO_ANSWER),
    ],
)
def test_an_outage_writes_nothing_on_initialised_nodes(
    answer: InstanceAnswer | None, reason: Reason
) -> None:
    change = plan(initialised(), answer, LATER, refresh=True)
    assert change is not None
    assert change.failure is not None
    assert change.failure.reason is reason
    assert not change.status
    assert not change.main
    assert change.events == ()


def test_a_machine_that_is_gone_is_the_lifecycle_controllers_business() -> None:
    assert plan(initialised(), NotFound(), LATER, refresh=True) is None


def test_a_node_initialised_by_another_manager_gets_the_condition(apply_patch: ApplyPatch) -> None:
    node = initialised(conditions=(Condition("Ready", "True"),))
    change = plan(node, MACHINE, LATER, refresh=True)
    assert change is not None
    assert change.events == ()
    assert told(apply_patch(node, change.status)) == Condition(
        CONDITION, "True", "Initialized", FINE, LATER
    )


def test_a_missing_provider_id_does_not_stop_the_refresh(apply_patch: ApplyPatch) -> None:
    node = initialised(provider_id="", addresses=())
    for instance in (machine(provider_id=""), MACHINE):
        done = after(apply_patch, node, plan(node, instance, LATER, refresh=True))
        assert done.status.addresses == MACHINE.addresses
        assert done.spec.provider_id == ""


# Nodes of which a source that lags may say that nothing has changed

READY = Condition(type="Ready", status="True")
INITIALIZED = Condition(type=CONDITION, status="True", reason=Reason.INITIALIZED)
WHOLE = objects.node("n1", "sim://z1/m-1", conditions=(READY, INITIALIZED))
SEEN = Sighting(shown=1000.0, until=1001.0)


@pytest.mark.parametrize(
    ("node", "sighting", "expected"),
    [
        (WHOLE, SEEN, True),
        (changed(WHOLE, taints=(OTHER_TAINT,)), SEEN, True),
        (changed(WHOLE, conditions=(INITIALIZED,)), SEEN, False),
        (changed(WHOLE, conditions=(Condition(type="Ready", status="Unknown"), INITIALIZED)), SEEN, False),
        (changed(WHOLE, conditions=(READY,)), SEEN, False),
        (changed(WHOLE, conditions=(READY, Condition(type=CONDITION, status="True", reason=Reason.TOPOLOGY_DIFFERS))), SEEN, False),
        (changed(WHOLE, provider_id=""), SEEN, False),
        (changed(WHOLE, deletion_timestamp=NOW), SEEN, False),
        (changed(WHOLE, taints=(TAINT,)), SEEN, False),
        (changed(WHOLE, taints=(Taint(key=TAINT_SHUTDOWN, effect="NoSchedule"),)), SEEN, False),
        (changed(WHOLE, taints=(Taint(key=TAINT_OUT_OF_SERVICE, effect="NoExecute"),)), SEEN, False),
        (WHOLE, Sighting(), False),
        (WHOLE, Sighting(shown=1000.0, missing=1300.0), False),
        (WHOLE, Sighting(shown=-2600.0), False),
    ],
)  # fmt: skip
def test_only_of_a_node_with_which_all_is_well_another_source_may_say_that_nothing_has_changed(
    node: Node, sighting: Sighting, *, expected: bool
) -> None:
    assert may_be_confirmed(node, sighting, 1500.0) is expected
