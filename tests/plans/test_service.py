"""The decisions of the service controller, as tables."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider.desired import desired_load_balancer, load_balancer_ref
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
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    Done,
    EndpointTarget,
    EnsureAnswer,
    Ensured,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    Pending,
)
from proreus.controllers.events import MESSAGE_LIMIT, PlannedEvent, scrub
from proreus.controllers.service.answers import (
    Change,
    after_delete,
    after_ensure,
    before,
    before_delete,
    refuse,
)
from proreus.controllers.service.conditions import CONDITION, Reason
from proreus.controllers.service.intake import (
    ANNOTATION_CLOUD_IN_USE,
    CONDITION_CLOUD,
    Classes,
    has_finalizer,
    is_hostless,
    is_to_have,
    needs_cleanup,
    needs_update,
    nodes_changed,
    quiet_time,
    wants,
)
from proreus.controllers.service.plan import (
    CONFIRM_SECONDS,
    Delete,
    Ensure,
    Memory,
    Nothing,
    Refuse,
    UpdateHosts,
    Verb,
    after,
    before_call,
    confirmed_delete,
    decide,
    fingerprint,
    has_new_hosts,
    is_gone,
    is_kept,
    still_ours,
    with_ip_mode,
)
from proreus.controllers.service.recording import record
from proreus.kube.objects import (
    FINALIZER_LOAD_BALANCER,
    LABEL_EXCLUDE_LB,
    TAINT_AUTOSCALER,
    Condition,
    LoadBalancerIngress,
    Node,
    Service,
    ServicePort,
    ServiceStatus,
    Taint,
)
from proreus.kube.patch import PatchType
from proreus.providers.gce import GCECloud
from proreus.testing import objects

CLUSTER = ClusterIdentity("prod", "cluster-uid")
NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
EARLIER = NOW - timedelta(hours=1)
ADDRESS = (LoadBalancerIngress(ip="192.0.2.9", ip_mode="VIP"),)
OURS = (FINALIZER_LOAD_BALANCER,)
CLASS = "example.com/fast"


def service(
    *, deleted: bool = False, said: tuple[str, str, str] | None = None, **fields: Any
) -> Service:
    """A Service; `said` is status, reason and message of our condition."""
    own = (Condition(CONDITION, *said, last_transition_time=EARLIER),) if said else ()
    fields = {"uid": "uid-1", "resource_version": "7", "finalizers": OURS, **fields}
    gone = NOW if deleted else None
    return objects.service(namespace="shop", deletion_timestamp=gone, conditions=own, **fields)


def node(
    name: str = "n1", *, address: str = "10.0.0.1", deleted: bool = False, **fields: Any
) -> Node:
    fields.setdefault("provider_id", f"cloud://{name}")
    gone = NOW if deleted else None
    return objects.node(name, addresses=[address], deletion_timestamp=gone, **fields)


def desired(of: Service, *names: str) -> LoadBalancer:
    return desired_load_balancer(of, [node(name) for name in names], HostPolicy(), CLUSTER)


READY = ("True", "Ensured", "Ensured load balancer")
PROVISIONING = ("False", "Provisioning", "Ensuring load balancer")
NO_HOSTS = ("False", "NoHosts", "There are no available nodes for LoadBalancer")


# Which Services are ours


@pytest.mark.parametrize(
    ("type_", "class_", "classes", "expected"),
    [
        ("LoadBalancer", None, Classes(), True),
        ("LoadBalancer", CLASS, Classes(), False),
        ("LoadBalancer", "", Classes(), False),
        ("LoadBalancer", CLASS, Classes(frozenset({CLASS})), True),
        ("LoadBalancer", None, Classes(frozenset({CLASS})), True),
        ("LoadBalancer", "other", Classes(frozenset({CLASS})), False),
        ("LoadBalancer", None, Classes(frozenset({CLASS}), classless=False), False),
        ("LoadBalancer", CLASS, Classes(frozenset({CLASS}), classless=False), True),
        ("NodePort", None, Classes(), False),
        ("ClusterIP", CLASS, Classes(frozenset({CLASS})), False),
    ],
)
def test_wants_follows_type_and_class(
    type_: str, class_: str | None, classes: Classes, *, expected: bool
) -> None:
    asked = service(type=type_, load_balancer_class=class_)
    assert wants(asked, classes) is expected
    assert is_to_have(asked, classes) is expected
    gone = service(type=type_, load_balancer_class=class_, deleted=True)
    assert wants(gone, classes) is expected
    assert not is_to_have(gone, classes)


def test_has_finalizer_looks_for_ours_among_others() -> None:
    assert has_finalizer(service(finalizers=("other", FINALIZER_LOAD_BALANCER)))
    assert not has_finalizer(service(finalizers=("other",)))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (service(), False),
        (service(deleted=True), True),
        (service(type="ClusterIP"), True),
        (service(type="ClusterIP", deleted=True), True),
        (service(type="ClusterIP", finalizers=()), False),
        (service(deleted=True, finalizers=()), False),
        (service(load_balancer_class=CLASS), False),
        (service(load_balancer_class=CLASS, deleted=True), False),
    ],
)
def test_needs_cleanup(asked: Service, *, expected: bool) -> None:
    assert needs_cleanup(asked) is expected


def test_a_service_of_our_own_class_needs_cleanup() -> None:
    gone = service(load_balancer_class=CLASS, deleted=True)
    assert needs_cleanup(gone, Classes(frozenset({CLASS})))


# Which events matter


BASE = service(ingress=ADDRESS, said=READY)


@pytest.mark.parametrize(
    "new",
    [
        service(ingress=ADDRESS, said=READY, load_balancer_source_ranges=("10.0.0.0/8",)),
        service(ingress=ADDRESS, said=READY, ports=(ServicePort(81, node_port=30080),)),
        service(ingress=ADDRESS, said=READY, ports=(ServicePort(80, node_port=0),)),
        service(ingress=ADDRESS, said=READY, session_affinity="ClientIP"),
        service(ingress=ADDRESS, said=READY, load_balancer_ip="192.0.2.1"),
        service(ingress=ADDRESS, said=READY, external_ips=("192.0.2.1",)),
        service(ingress=ADDRESS, said=READY, external_traffic_policy="Local"),
        service(ingress=ADDRESS, said=READY, health_check_node_port=31000),
        service(ingress=ADDRESS, said=READY, ip_families=("IPv6",)),
        service(ingress=ADDRESS, said=READY, annotations={"a": "b"}),
        service(ingress=ADDRESS, said=READY, uid="uid-2"),
        service(ingress=ADDRESS, said=READY, deleted=True),
        service(ingress=ADDRESS, said=READY, deleted=True, finalizers=()),
        service(ingress=ADDRESS, said=READY, type="ClusterIP"),
        service(ingress=ADDRESS, said=READY, load_balancer_class=CLASS),
        service(ingress=ADDRESS, said=READY, finalizers=()),
        service(said=READY),
        service(ingress=(LoadBalancerIngress(ip="192.0.2.8", ip_mode="VIP"),), said=READY),
        service(ingress=ADDRESS),
    ],
)
def test_an_update_of_this_kind_is_enqueued(new: Service) -> None:
    assert needs_update(BASE, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (BASE, BASE),
        (BASE, service(ingress=ADDRESS, said=READY, resource_version="8", labels={"team": "x"})),
        # our own writes
        (service(), service(said=PROVISIONING)),
        (service(finalizers=()), service()),
        (service(said=PROVISIONING), BASE),
        (BASE, service(ingress=ADDRESS, said=("False", "Throttled", "slow"))),
        (BASE, service(ingress=(*ADDRESS, LoadBalancerIngress(hostname="lb.example")), said=READY)),
        # somebody else's
        (service(type="ClusterIP", finalizers=()), service(type="NodePort", finalizers=())),
        (
            service(load_balancer_class=CLASS, finalizers=()),
            service(load_balancer_class=CLASS, annotations={"a": "b"}, finalizers=()),
        ),
        # A deletion that goes on keeps its backoff.
        (
            service(deleted=True),
            service(deleted=True, said=("False", "DeleteCloudError", "x")),
        ),
        (service(type="ClusterIP"), service(type="ClusterIP", annotations={"a": "b"})),
        # and what is left when it is done
        (service(type="ClusterIP", load_balancer_class=CLASS, finalizers=()),) * 2,
    ],
)
def test_an_update_of_this_kind_is_not_enqueued(old: Service, new: Service) -> None:
    assert not needs_update(old, new)


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (service(finalizers=()), True),
        (service(type="ClusterIP"), True),
        (service(type="ClusterIP", finalizers=()), False),
        (service(load_balancer_class=CLASS), False),
    ],
)
def test_adds_and_removals_are_enqueued_for_ours(present: Service, *, expected: bool) -> None:
    assert needs_update(None, present) is expected
    assert needs_update(present, None) is expected


def test_a_type_that_changes_to_ours_is_enqueued() -> None:
    assert needs_update(service(type="ClusterIP", finalizers=()), service(finalizers=()))


def test_no_service_at_all_is_no_event() -> None:
    assert not needs_update(None, None)


HEARTBEAT = (Condition("Ready", "True", "KubeletReady", "", NOW),)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (node(), node(), False),
        (node(), node(conditions=HEARTBEAT), False),
        (node(), node(taints=(Taint("any", "NoSchedule"),)), False),
        (None, node(), True),
        (node(), None, True),
        (None, None, False),
        (node(), node(labels={"pool": "a"}), True),
        (node(), node(labels={LABEL_EXCLUDE_LB: ""}), True),
        (node(), node(address="10.0.0.2"), True),
        (node(provider_id=""), node(), True),
        (node(), node(taints=(Taint(TAINT_AUTOSCALER, "NoSchedule"),)), True),
        (node(), node(deleted=True), True),
        # no host before and after
        (None, node(provider_id=""), False),
        (node(deleted=True), None, False),
        (node(deleted=True), node(deleted=True, labels={"pool": "a"}), False),
        (
            node(labels={LABEL_EXCLUDE_LB: "true"}),
            node(labels={LABEL_EXCLUDE_LB: "true"}, address="10.0.0.2"),
            False,
        ),
    ],
)
def test_node_events_that_can_change_hosts(
    old: Node | None, new: Node | None, *, expected: bool
) -> None:
    assert nodes_changed(old, new) is expected


def test_an_address_of_the_second_family_counts_too() -> None:
    assert nodes_changed(node(address="2001:db8::1"), node(address="2001:db8::2"))


@pytest.mark.parametrize(
    ("since", "urgent", "pause"),
    [(0.0, False, 0.75), (9.0, False, 0.75), (9.5, False, 0.5), (10.0, False, 0.0),
     (12.0, False, 0.0), (0.0, True, 0.0)],
)  # fmt: skip
def test_node_changes_are_gathered_for_a_moment_and_for_ten_seconds_at_most(
    since: float, *, urgent: bool, pause: float
) -> None:
    assert quiet_time(since, is_urgent=urgent) == pause


def test_a_service_is_hostless_by_its_condition() -> None:
    assert is_hostless(service(said=NO_HOSTS))
    assert not is_hostless(service(said=READY))
    assert not is_hostless(service())


# Before the first call


def test_a_new_service_gets_finalizer_and_condition_in_one_patch() -> None:
    change = before(service(finalizers=("other",)), NOW)
    assert change is not None
    assert change.status is not None
    assert change.status.type is PatchType.STRATEGIC
    assert body(change) == {
        "metadata": {
            "uid": "uid-1",
            "resourceVersion": "7",
            "finalizers": [FINALIZER_LOAD_BALANCER],
        },
        "status": {
            "conditions": [
                {
                    "type": "LoadBalancerReady",
                    "status": "False",
                    "reason": "Provisioning",
                    "message": "Ensuring load balancer",
                    "lastTransitionTime": "2026-05-01T12:00:00Z",
                }
            ]
        },
    }
    assert change.metadata is None
    assert change.events == (
        PlannedEvent("Normal", "EnsuringLoadBalancer", "Ensuring load balancer"),
    )
    assert (change.after, change.error) == (None, None)


def test_a_migrated_service_has_an_address_so_its_readiness_is_unknown() -> None:
    change = before(service(ingress=ADDRESS), NOW)
    assert shown(change)[0] == "Unknown"
    assert "finalizers" not in body(change)["metadata"]


def test_a_stripped_finalizer_comes_back_without_an_event() -> None:
    change = before(service(finalizers=(), said=READY), NOW)
    assert body(change)["metadata"]["finalizers"] == [FINALIZER_LOAD_BALANCER]
    assert "status" not in body(change)
    assert change is not None
    assert change.events == ()


@pytest.mark.parametrize("said", [READY, PROVISIONING, ("False", "CloudError", "x")])
def test_nothing_is_written_before_the_call_when_all_is_there(said: tuple[str, str, str]) -> None:
    assert before(service(said=said), NOW) is None


def test_a_deletion_that_was_called_off_starts_anew() -> None:
    change = before(service(said=("False", "DeleteThrottled", "x")), NOW)
    assert shown(change) == PROVISIONING
    assert reasons(change) == ["EnsuringLoadBalancer"]
    # the status stays False, so the time of its transition does too
    assert body(change)["status"]["conditions"][0]["lastTransitionTime"] == "2026-05-01T11:00:00Z"


def test_a_service_under_deletion_gets_no_finalizer() -> None:
    assert before(service(finalizers=(), deleted=True), NOW) is None


# After ensure and update_hosts


def body(change: Change | None) -> dict[str, Any]:
    assert change is not None
    assert change.status is not None
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(change.status.body))
    return found


def shown(change: Change | None) -> tuple[str, str, str]:
    """Status, reason and message of the condition that is written."""
    (written,) = body(change)["status"]["conditions"]
    return written["status"], written["reason"], written["message"]


def reasons(change: Change | None) -> list[str]:
    assert change is not None
    return [event.reason for event in change.events]


def answered(
    to: Service | None,
    answer: EnsureAnswer,
    *hosts: str,
    update: bool = False,
    edited: bool = False,
    asked: Service | None = None,
) -> Change:
    balancer = desired(asked or service(), *hosts)
    verb = UpdateHosts(balancer) if update else Ensure(balancer, edited=edited)
    return after_ensure(to, answer, NOW, verb=verb)


def test_an_ensured_load_balancer_is_written_in_one_patch() -> None:
    point = LoadBalancerIngress(ip="192.0.2.9")
    change = answered(service(said=PROVISIONING), Ensured((point,)), "n1")
    assert body(change) == {
        "metadata": {"uid": "uid-1", "resourceVersion": "7"},
        "status": {
            "loadBalancer": {"ingress": [{"ip": "192.0.2.9", "ipMode": "VIP"}]},
            "conditions": [
                {
                    "type": "LoadBalancerReady",
                    "status": "True",
                    "reason": "Ensured",
                    "message": "Ensured load balancer",
                    "lastTransitionTime": "2026-05-01T12:00:00Z",
                }
            ],
        },
    }
    assert change.metadata is None
    assert change.events == (
        PlannedEvent("Normal", "EnsuredLoadBalancer", "Ensured load balancer"),
    )
    assert (change.after, change.error) == (None, None)


@pytest.mark.parametrize("update", [False, True])
def test_a_repeated_answer_is_no_write_and_no_event(*, update: bool) -> None:
    told = service(said=READY, ingress=ADDRESS, annotations={"cloud/id": "4", "mine": "x"})
    answer = Ensured(ADDRESS, annotations={"cloud/id": "4"})
    assert answered(told, answer, "n1", update=update) == Change()


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        (LoadBalancerIngress(ip="1.2.3.4"), LoadBalancerIngress(ip="1.2.3.4", ip_mode="VIP")),
        (
            LoadBalancerIngress(ip="1.2.3.4", ip_mode="Proxy"),
            LoadBalancerIngress(ip="1.2.3.4", ip_mode="Proxy"),
        ),
        (LoadBalancerIngress(hostname="lb", ip_mode="VIP"), LoadBalancerIngress(hostname="lb")),
    ],
)
def test_ip_mode_stands_with_every_ip_and_with_nothing_else(
    point: LoadBalancerIngress, expected: LoadBalancerIngress
) -> None:
    assert with_ip_mode((point,)) == (expected,)


def test_a_new_address_is_written_and_reported() -> None:
    change = answered(service(said=READY, ingress=ADDRESS), Ensured(), "n1")
    assert body(change)["status"] == {"loadBalancer": {"ingress": []}}
    assert reasons(change) == ["EnsuredLoadBalancer"]


def test_update_hosts_need_not_repeat_the_address() -> None:
    assert answered(service(said=READY, ingress=ADDRESS), Ensured(), "n1", update=True) == Change()


def test_an_edit_is_reported_though_the_condition_stays() -> None:
    told = service(said=READY, ingress=ADDRESS)
    change = answered(told, Ensured(ADDRESS), "n1", edited=True)
    assert change.status is None
    assert reasons(change) == ["EnsuredLoadBalancer"]


def test_annotations_of_the_cloud_go_in_a_patch_of_the_service_itself() -> None:
    told = service(said=READY, ingress=ADDRESS, annotations={"cloud/id": "3"})
    change = answered(told, Ensured(ADDRESS, annotations={"cloud/id": "4"}), "n1")
    assert change.status is None
    assert change.metadata is not None
    assert change.metadata.type is PatchType.JSON
    ops = msgspec.to_builtins(change.metadata.body)
    assert [(op["op"], op["path"], op["value"]) for op in ops] == [
        ("test", "/metadata/uid", "uid-1"),
        ("test", "/metadata/annotations/cloud~1id", "3"),
        ("add", "/metadata/annotations/cloud~1id", "4"),
    ]


@pytest.mark.parametrize(
    ("said", "update", "hosts", "expected"),
    [
        (None, False, ("n1",), ["EnsuredLoadBalancer"]),
        (PROVISIONING, False, ("n1",), ["EnsuredLoadBalancer"]),
        (("False", "Throttled", "x"), False, ("n1",), ["EnsuredLoadBalancer"]),
        (("False", "Throttled", "x"), True, ("n1",), ["UpdatedLoadBalancer"]),
        (NO_HOSTS, True, ("n1",), ["UpdatedLoadBalancer"]),
        (NO_HOSTS, False, ("n1",), ["EnsuredLoadBalancer"]),
        (("True", "HostsRejected", "x"), True, ("n1",), ["UpdatedLoadBalancer"]),
        (READY, True, ("n1",), []),
        (READY, True, (), ["UnAvailableLoadBalancer"]),
        (READY, False, (), ["UnAvailableLoadBalancer"]),
        (PROVISIONING, False, (), ["EnsuredLoadBalancer", "UnAvailableLoadBalancer"]),
        (("False", "Throttled", "x"), True, (), ["UnAvailableLoadBalancer"]),
        (NO_HOSTS, True, (), []),
        (NO_HOSTS, False, (), []),
    ],
)
def test_success_is_an_event_on_a_transition_only(
    said: tuple[str, str, str] | None, *, update: bool, hosts: tuple[str, ...], expected: list[str]
) -> None:
    told = service(said=said, ingress=ADDRESS)
    change = answered(told, Ensured(ADDRESS), *hosts, update=update)
    assert reasons(change) == expected
    for event in change.events:
        assert event.type == ("Warning" if event.reason == "UnAvailableLoadBalancer" else "Normal")


def test_update_of_hosts_is_reported_in_these_words() -> None:
    change = answered(service(said=NO_HOSTS), Ensured(), "n1", update=True)
    assert [event.message for event in change.events] == ["Updated load balancer with new hosts"]


def test_a_load_balancer_without_hosts_is_not_ready() -> None:
    change = answered(service(said=READY, ingress=ADDRESS), Ensured(ADDRESS))
    assert shown(change) == NO_HOSTS
    assert change.events[0].message == NO_HOSTS[2]


def test_rejected_hosts_are_named_and_block_nobody() -> None:
    answer = Ensured(ADDRESS, rejected={"n2": "wrong network", "n1": "stopped"})
    change = answered(service(said=READY, ingress=ADDRESS), answer, "n1", "n2", "n3")
    text = "The cloud did not accept these nodes as hosts: n1 (stopped), n2 (wrong network)"
    assert shown(change) == ("True", "HostsRejected", text)
    assert change.events == (PlannedEvent("Warning", "HostsRejected", text),)
    again = service(said=("True", "HostsRejected", text), ingress=ADDRESS)
    assert answered(again, answer, "n1", "n2", "n3") == Change()
    other = Ensured(ADDRESS, rejected={"n1": "stopped"})
    changed = answered(again, other, "n1", "n2", "n3", update=True)
    assert reasons(changed) == ["HostsRejected"]
    assert "n2" not in shown(changed)[2]


def test_rejected_hosts_are_written_to_a_service_without_a_condition_yet() -> None:
    change = answered(service(), Ensured(ADDRESS, rejected={"n1": "stopped"}), "n1", "n2")
    assert reasons(change) == ["EnsuredLoadBalancer", "HostsRejected"]


def test_with_every_host_rejected_it_is_not_ready() -> None:
    change = answered(service(said=READY), Ensured(rejected={"n1": "a", "n2": "b"}), "n1", "n2")
    assert shown(change)[:2] == ("False", "HostsRejected")


@pytest.mark.parametrize(("count", "more"), [(20, None), (21, "and 1 more"), (25, "and 5 more")])
def test_a_text_names_twenty_nodes(count: int, more: str | None) -> None:
    rejected = {f"n{number:02}": "x" for number in range(count)}
    text = shown(answered(service(), Ensured(rejected=rejected), "good"))[2]
    assert text.count("(x)") == 20
    assert text.endswith(more or "n19 (x)")


@pytest.mark.parametrize(
    "answer",
    [Pending(12.0, "port is building"), RetryAfter("port is building", after=12.0)],
)
def test_pending_is_no_failure_and_no_warning(answer: EnsureAnswer) -> None:
    change = answered(service(said=PROVISIONING), answer, "n1")
    assert (change.after, change.error) == (12.0, None)
    assert change.events == ()
    text = "Ensuring load balancer: port is building"
    assert shown(change) == ("False", "Provisioning", text)
    again = answered(service(said=("False", "Provisioning", text)), answer, "n1")
    assert again == Change(after=12.0)


def test_a_ready_load_balancer_that_is_changed_for_long_is_unknown_meanwhile() -> None:
    change = answered(service(said=READY, ingress=ADDRESS), Pending(5.0, "resizing"), "n1")
    text = "Ensuring load balancer: resizing"
    assert shown(change) == ("Unknown", "Provisioning", text)
    assert change.events == (PlannedEvent("Normal", "EnsuringLoadBalancer", text),)
    assert "loadBalancer" not in body(change)["status"]


def test_a_pending_load_balancer_may_have_its_address_already() -> None:
    known = Pending(5.0, "x", ingress=(LoadBalancerIngress(ip="192.0.2.9"),))
    change = answered(service(said=PROVISIONING), known, "n1")
    assert body(change)["status"]["loadBalancer"] == {
        "ingress": [{"ip": "192.0.2.9", "ipMode": "VIP"}]
    }
    said = ("Unknown", "Provisioning", "Ensuring load balancer: x")
    assert answered(service(said=said, ingress=ADDRESS), known, "n1") == Change(after=5.0)


def test_an_address_that_a_load_balancer_has_left_is_no_proof_for_the_next_call() -> None:
    """Nor while the status still shows it, since the last write failed."""
    old = service(said=READY, ingress=ADDRESS)
    balancer = desired(old, "n1")
    memory = after(Memory(balancer.ref), Ensure(balancer), Pending(5.0, "x", withdrawn=True))
    verb = decide(old, memory, desired(old, "n1", "n2"), cluster=CLUSTER)
    assert isinstance(verb, Ensure | UpdateHosts)
    assert verb.desired.ref.last_ingress == ()
    new = (LoadBalancerIngress(ip="192.0.2.10", ip_mode="VIP"),)
    memory = after(memory, Ensure(balancer), Pending(5.0, "x", ingress=new))
    deletion = decide(service(deleted=True, ingress=ADDRESS), memory, None, cluster=CLUSTER)
    assert isinstance(deletion, Delete)
    assert deletion.ref.last_ingress == new


def test_implemented_elsewhere_is_success_without_a_status() -> None:
    change = answered(service(said=PROVISIONING), ImplementedElsewhere("x"), "n1")
    text = "Another controller provides this load balancer"
    assert shown(change) == ("Unknown", "ImplementedElsewhere", text)
    assert "loadBalancer" not in body(change)["status"]
    assert (change.events, change.after, change.error) == ((), None, None)
    told = service(said=("Unknown", "ImplementedElsewhere", text))
    assert answered(told, ImplementedElsewhere("x"), "n1") == Change()


def test_an_address_that_others_have_by_now_leaves_the_status_also_then() -> None:
    shows = service(said=PROVISIONING, ingress=ADDRESS)
    lost = ImplementedElsewhere("x").disowning()
    assert "loadBalancer" not in body(answered(shows, ImplementedElsewhere("x"), "n1"))["status"]
    assert body(answered(shows, lost, "n1"))["status"]["loadBalancer"] == {"ingress": []}
    verb = Ensure(desired(shows, "n1"))
    memory = after(before_call(None, verb), verb, lost)
    assert (memory.withdrawn, memory.ref.last_ingress) == (True, ())


FAILURES = [
    (Throttled("x"), "Throttled", True),
    (Unauthenticated("x"), "Unauthenticated", True),
    (CallTimeout("x"), "CallTimeout", True),
    (IdentityConflict("x"), "IdentityConflict", True),
    (NotSupported("x"), "NotSupported", False),
    (InvalidRequest("x"), "InvalidRequest", False),
    (ConfigError(("x",)), "ConfigError", True),
    (CloudError("x"), "CloudError", True),
]


@pytest.mark.parametrize(("error", "reason", "is_retried"), FAILURES)
def test_a_failure_has_its_reason(error: CloudError, reason: str, *, is_retried: bool) -> None:
    change = answered(service(said=PROVISIONING), error, "n1")
    text = "Error syncing load balancer: x"
    assert shown(change) == ("False", reason, text)
    assert change.events == (PlannedEvent("Warning", "SyncLoadBalancerFailed", text),)
    assert change.error is (error if is_retried else None)
    assert change.after is None
    repeated = answered(service(said=("False", reason, text)), error, "n1")
    # A Warning at each try: the recorder counts them, and writes a lasting one every ten minutes.
    expected = Change(error=error, events=change.events) if is_retried else Change()
    assert repeated == expected


@pytest.mark.parametrize(
    ("answer", "disowns"),
    [
        (CloudError("x"), False),
        (CloudError("x").disowning(), True),
        (RetryAfter("x", after=1.0), False),
        (RetryAfter("x", after=1.0).disowning(), True),
        (Pending(1.0, "x"), False),
        (Pending(1.0, "x", withdrawn=True), True),
    ],
)
def test_an_address_leaves_the_status_only_if_it_is_not_to_be_shown(
    answer: EnsureAnswer, *, disowns: bool
) -> None:
    status = body(answered(service(said=READY, ingress=ADDRESS), answer, "n1"))["status"]
    assert status.get("loadBalancer") == ({"ingress": []} if disowns else None)
    bare = body(answered(service(said=READY), answer, "n1"))["status"]
    assert "loadBalancer" not in bare


@pytest.mark.parametrize("disowns", [False, True])
def test_an_address_that_is_given_up_leaves_the_status_while_the_rest_cannot_be_deleted(
    *, disowns: bool
) -> None:
    present = service(deleted=True, ingress=ADDRESS)
    error = CloudError("x").disowning() if disowns else CloudError("x")
    change = after_delete(present, error, NOW, ref=reference(present))
    assert change.error is error
    assert change.status is not None
    assert change.status.body["status"].get("loadBalancer") == (
        {"ingress": ()} if disowns else None
    )


@pytest.mark.parametrize("error", [CloudError("y"), Throttled("x")])
def test_another_failure_is_written_and_an_event(error: CloudError) -> None:
    told = service(said=("False", "CloudError", "Error syncing load balancer: x"))
    change = answered(told, error, "n1")
    assert shown(change)[2] == f"Error syncing load balancer: {error}"
    assert reasons(change) == ["SyncLoadBalancerFailed"]


def test_a_failed_update_of_hosts_has_its_own_name() -> None:
    change = answered(service(said=READY), CloudError("x"), "n1", update=True)
    assert change.events == (
        PlannedEvent(
            "Warning",
            "UpdateLoadBalancerFailed",
            "Error updating load balancer with new hosts: x",
        ),
    )


def test_the_delay_that_a_throttling_cloud_asks_for_is_kept() -> None:
    error = Throttled("x", after=9.0)
    change = answered(service(), error, "n1")
    assert (change.after, change.error) == (9.0, error)


def test_texts_of_the_cloud_lose_what_varies() -> None:
    first = CloudError("quota (request id: aa11bb22cc)")
    second = CloudError("quota (request id: dd33ee44ff)")
    told = service(said=shown(answered(service(), first, "n1")))
    again = answered(told, second, "n1")
    assert (again.status, again.error) == (None, second)
    assert again.events == answered(service(), first, "n1").events


@pytest.mark.parametrize(
    "newest",
    [
        None,
        service(uid="uid-2"),
        service(deleted=True),
        service(type="ClusterIP"),
        service(load_balancer_class=CLASS),
    ],
)
@pytest.mark.parametrize("answer", [Ensured(ADDRESS), Pending(1.0, "x"), CloudError("x")])
def test_a_service_that_needs_no_load_balancer_any_more_gets_no_event(
    newest: Service | None, answer: EnsureAnswer
) -> None:
    assert answered(newest, answer, "n1") == Change()


def test_an_owned_class_is_recognised() -> None:
    asked = service(load_balancer_class=CLASS)
    change = after_ensure(
        asked,
        Ensured(),
        NOW,
        verb=Ensure(desired(asked, "n1")),
        classes=Classes(frozenset({CLASS})),
    )
    assert shown(change) == READY


def test_a_refused_service_is_reported_as_by_a_failed_ensure() -> None:
    error = InvalidRequest("spec.ports is empty")
    change = refuse(service(), error, NOW)
    text = "Error syncing load balancer: spec.ports is empty"
    assert shown(change) == ("False", "InvalidRequest", text)
    assert (reasons(change), change.after, change.error) == (["SyncLoadBalancerFailed"], None, None)
    assert refuse(service(said=("False", "InvalidRequest", text)), error, NOW) == Change()


def test_the_time_of_transition_changes_with_the_status_only() -> None:
    told = service(said=("False", "CloudError", "x"))
    same = answered(told, Throttled("x"), "n1")
    other = answered(told, Ensured(), "n1")
    assert body(same)["status"]["conditions"][0]["lastTransitionTime"] == "2026-05-01T11:00:00Z"
    assert body(other)["status"]["conditions"][0]["lastTransitionTime"] == "2026-05-01T12:00:00Z"


def test_a_condition_without_a_time_gets_one() -> None:
    bare = Condition(CONDITION, "False", "CloudError", "x")
    told = msgspec.structs.replace(service(), status=ServiceStatus(conditions=(bare,)))
    change = answered(told, Throttled("x"), "n1")
    assert body(change)["status"]["conditions"][0]["lastTransitionTime"] == "2026-05-01T12:00:00Z"


# Deletion


def reference(of: Service) -> LoadBalancerRef:
    return load_balancer_ref(of, CLUSTER)


def deleted(to: Service | None, answer: DeleteAnswer, *, uid: str = "uid-1") -> Change:
    return after_delete(to, answer, NOW, ref=reference(service(uid=uid)))


def test_a_deletion_that_starts_is_an_event_and_no_write() -> None:
    gone = service(deleted=True, said=READY)
    assert before_delete(gone, reference(gone)) == Change(
        events=(PlannedEvent("Normal", "DeletingLoadBalancer", "Deleting load balancer"),)
    )


@pytest.mark.parametrize(
    "gone",
    [
        None,
        service(uid="uid-2"),
        service(deleted=True, said=("False", "Deleting", "x")),
        service(deleted=True, said=("False", "DeleteCloudError", "x")),
        service(deleted=True, said=("False", "DeleteNotSupported", "x")),
    ],
)
def test_a_deletion_that_is_tried_again_is_no_event(gone: Service | None) -> None:
    assert before_delete(gone, reference(service())) == Change()


@pytest.mark.parametrize("answer", [Done(), ImplementedElsewhere("x")])
def test_done_takes_finalizer_status_and_condition_in_one_patch(answer: DeleteAnswer) -> None:
    gone = service(deleted=True, finalizers=("a", *OURS), ingress=ADDRESS, said=READY)
    change = deleted(gone, answer)
    assert body(change) == {
        "metadata": {
            "uid": "uid-1",
            "resourceVersion": "7",
            "$deleteFromPrimitiveList/finalizers": [FINALIZER_LOAD_BALANCER],
        },
        "status": {
            "conditions": [{"$patch": "delete", "type": "LoadBalancerReady"}],
            "loadBalancer": {"ingress": []},
        },
    }
    assert change.events == (
        PlannedEvent("Normal", "DeletedLoadBalancer", "Deleted load balancer"),
    )
    assert (change.after, change.error, change.metadata) == (None, None, None)
    assert is_gone(answer)


def test_done_for_a_service_that_shows_nothing_writes_nothing() -> None:
    change = deleted(service(type="ClusterIP", finalizers=()), Done())
    assert change.status is None
    assert reasons(change) == ["DeletedLoadBalancer"]


def test_done_for_a_service_of_another_class_leaves_their_status() -> None:
    theirs = service(load_balancer_class=CLASS, ingress=ADDRESS, said=READY)
    change = deleted(theirs, Done())
    assert "loadBalancer" not in body(change)["status"]
    assert body(change)["metadata"]["$deleteFromPrimitiveList/finalizers"] == list(OURS)


def test_a_service_under_deletion_of_our_class_loses_its_address() -> None:
    ours = service(load_balancer_class=CLASS, ingress=ADDRESS, deleted=True)
    classes = Classes(frozenset({CLASS}))
    change = after_delete(ours, Done(), NOW, ref=reference(ours), classes=classes)
    assert body(change)["status"]["loadBalancer"] == {"ingress": []}


def test_the_official_manager_s_finalizers_go_with_ours_and_no_others() -> None:
    official = "example.com/balancer"
    gone = service(deleted=True, finalizers=("a", official, *OURS))
    classes = Classes(left_finalizers=(official, "example.com/other"))
    change = after_delete(gone, Done(), NOW, ref=reference(gone), classes=classes)
    removed = body(change)["metadata"]["$deleteFromPrimitiveList/finalizers"]
    assert removed == [*OURS, official]


@pytest.mark.parametrize("kind", ["ilb", "netlb"])
def test_the_finalizers_of_the_official_manager_of_gce_go_with_ours(kind: str) -> None:
    official = f"gke.networking.io/l4-{kind}-v1"
    gone = service(deleted=True, finalizers=(*OURS, official))
    classes = Classes(left_finalizers=GCECloud.left_finalizers)
    change = after_delete(gone, Done(), NOW, ref=reference(gone), classes=classes)
    removed = body(change)["metadata"]["$deleteFromPrimitiveList/finalizers"]
    assert removed == [*OURS, official]


@pytest.mark.parametrize(
    ("cloud", "noted", "is_taken_off"),
    [("east", "east", True), ("", "east", True), ("east", "west", False), ("east", "", False)],
)
def test_the_name_of_the_cloud_goes_with_the_finalizer_unless_another_cloud_has_it(
    cloud: str, noted: str, *, is_taken_off: bool
) -> None:
    annotations = {ANNOTATION_CLOUD_IN_USE: noted} if noted else {}
    moved = service(type="ClusterIP", said=READY, annotations=annotations)
    change = after_delete(moved, Done(), NOW, ref=reference(moved), classes=Classes(cloud=cloud))
    assert bool(change.metadata) is is_taken_off
    leaving = service(deleted=True, annotations=annotations)
    change = after_delete(
        leaving, Done(), NOW, ref=reference(leaving), classes=Classes(cloud=cloud)
    )
    assert change.metadata is None  # it goes with the Service


@pytest.mark.parametrize(
    ("cloud", "noted", "was_found", "is_emptied"),
    [
        ("east", "", False, False),
        ("east", "west", False, False),
        ("east", "", True, True),
        ("east", "east", False, True),
        ("", "", False, True),
    ],
)
def test_an_address_stays_that_may_be_of_another_cloud_since_ours_has_nothing(
    cloud: str, noted: str, *, was_found: bool, is_emptied: bool
) -> None:
    annotations = {ANNOTATION_CLOUD_IN_USE: noted} if noted else {}
    moved = service(type="ClusterIP", said=READY, annotations=annotations, ingress=ADDRESS)
    answer, classes = Done(found=was_found), Classes(cloud=cloud)
    change = after_delete(moved, answer, NOW, ref=reference(moved), classes=classes)
    assert ("loadBalancer" in body(change).get("status", {})) is is_emptied


def in_cloud(service: Service, cloud: str) -> Service:
    """The Service with a status that names its cloud."""
    named = (Condition(CONDITION_CLOUD, "True", "Recorded", cloud, NOW),) if cloud else ()
    conditions = (*service.status.conditions, *named)
    status = msgspec.structs.replace(service.status, conditions=conditions)
    return msgspec.structs.replace(service, status=status)


@pytest.mark.parametrize(
    ("cloud", "noted", "gone", "is_written"),
    [
        ("east", "", False, True),
        ("east", "west", False, True),
        ("east", "east", False, False),
        ("east", "", True, False),
        ("", "", False, False),
    ],
)
def test_of_several_clouds_the_one_that_begins_writes_its_name(
    cloud: str, noted: str, *, gone: bool, is_written: bool
) -> None:
    annotations = {ANNOTATION_CLOUD_IN_USE: noted} if noted else {}
    change = record(service(deleted=gone, annotations=annotations), Classes(cloud=cloud), NOW)
    assert bool(change.metadata) is is_written
    assert bool(change.status) is (bool(cloud) and not gone)


@pytest.mark.parametrize(
    ("noted", "is_written", "is_emptied"),
    [("", True, False), ("west", True, True), ("east", False, False)],
)
def test_an_address_that_another_cloud_gave_leaves_the_status_with_its_name(
    noted: str, *, is_written: bool, is_emptied: bool
) -> None:
    change = record(in_cloud(service(ingress=ADDRESS), noted), Classes(cloud="east"), NOW)
    assert bool(change.status) is is_written
    if is_written:
        written = body(change)["status"]
        assert [one["message"] for one in written["conditions"]] == ["east"]
        assert ("loadBalancer" in written) is is_emptied


def test_the_name_of_the_cloud_makes_no_other_load_balancer_desired() -> None:
    plain = desired(service())
    noted = desired(service(annotations={ANNOTATION_CLOUD_IN_USE: "east"}))
    assert fingerprint(plain) == fingerprint(noted)


def test_done_for_a_service_that_wants_one_again_keeps_the_finalizer() -> None:
    change = deleted(service(ingress=ADDRESS, said=("False", "Deleting", "x")), Done())
    assert body(change)["metadata"] == {"uid": "uid-1", "resourceVersion": "7"}
    assert body(change)["status"]["loadBalancer"] == {"ingress": []}
    assert shown(change) == PROVISIONING
    assert reasons(change) == ["DeletedLoadBalancer"]
    empty = deleted(service(said=PROVISIONING), Done())
    assert empty.status is None


@pytest.mark.parametrize("answer", [Pending(7.0, "draining"), RetryAfter("draining", after=7.0)])
def test_a_pending_deletion_keeps_the_finalizer_and_is_no_failure(answer: DeleteAnswer) -> None:
    change = deleted(service(deleted=True, said=READY), answer)
    text = "Deleting load balancer: draining"
    assert shown(change) == ("False", "Deleting", text)
    assert set(body(change)["metadata"]) == {"uid", "resourceVersion"}
    assert (change.after, change.error, change.events) == (7.0, None, ())
    again = deleted(service(deleted=True, said=("False", "Deleting", text)), answer)
    assert again == Change(after=7.0)
    assert not is_gone(answer)


@pytest.mark.parametrize(("error", "reason"), [(error, reason) for error, reason, _ in FAILURES])
def test_a_failed_deletion_reports_its_reason_and_is_tried_again(
    error: CloudError, reason: str
) -> None:
    change = deleted(service(deleted=True, said=READY), error)
    text = "Error deleting load balancer: x"
    assert shown(change) == ("False", f"Delete{reason}", text)
    assert set(body(change)["metadata"]) == {"uid", "resourceVersion"}
    assert change.events == (PlannedEvent("Warning", "DeleteLoadBalancerFailed", text),)
    assert (change.error, change.after) == (error, None)
    again = deleted(service(deleted=True, said=("False", f"Delete{reason}", text)), error)
    assert again == Change(error=error, events=change.events)
    assert not is_gone(error)


def test_a_throttled_deletion_waits_as_asked() -> None:
    assert deleted(service(deleted=True), Throttled("x", after=4.0)).after == 4.0


@pytest.mark.parametrize("newest", [None, service(uid="uid-2", ingress=ADDRESS)])
def test_deletion_for_a_gone_service_patches_nothing_and_goes_on(newest: Service | None) -> None:
    error = CloudError("x")
    assert deleted(newest, error) == Change(error=error)
    assert deleted(newest, Throttled("x", after=2.0)).after == 2.0
    assert deleted(newest, Pending(7.0, "x")) == Change(after=7.0)
    assert deleted(newest, Done()) == Change()


def test_a_deletion_that_finds_nothing_of_an_address_must_do_so_twice() -> None:
    verb = Delete(reference(service(ingress=ADDRESS)))
    nothing = Done(found=False)

    first, answer = confirmed_delete(before_call(None, verb), nothing, 100.0)
    assert isinstance(answer, Pending)
    assert (answer.after, "192.0.2.9" in answer.reason) == (CONFIRM_SECONDS, True)
    early, answer = confirmed_delete(before_call(first, verb), nothing, 104.0)
    assert isinstance(answer, Pending)
    assert answer.after == CONFIRM_SECONDS - 4
    last, answer = confirmed_delete(before_call(early, verb), nothing, 100.0 + CONFIRM_SECONDS)
    assert answer == nothing
    assert last == early


@pytest.mark.parametrize("shown", [Pending(1.0, "it goes"), Done()])
def test_a_deletion_that_shows_it_once_more_begins_to_confirm_anew(shown: DeleteAnswer) -> None:
    present = service(ingress=ADDRESS)
    missing, _ = confirmed_delete(Memory(reference(present)), Done(found=False), 100.0, present)
    assert missing.missing_since == 100.0
    memory, answer = confirmed_delete(missing, shown, 110.0, present)
    assert (memory.missing_since, answer) == (None, shown)
    failed, _ = confirmed_delete(missing, CloudError("x"), 110.0, present)
    assert failed.missing_since == 100.0


@pytest.mark.parametrize(
    "said",
    [("False", "DeleteCloudError", "x"), READY, NO_HOSTS],
    ids=["failed", "ready", "no hosts"],
)
def test_what_the_condition_says_is_believed_of_a_load_balancer(said: tuple[str, str, str]) -> None:
    present = service(deleted=True, said=said)
    memory = before_call(None, Delete(reference(present)))
    assert isinstance(confirmed_delete(memory, Done(found=False), 0.0, present)[1], Pending)


def test_an_address_that_was_withdrawn_is_remembered_when_the_service_is_gone() -> None:
    memory = before_call(None, Delete(reference(service(ingress=ADDRESS))))
    memory, _ = confirmed_delete(memory, Pending(0.0, "x", withdrawn=True), 0.0)
    memory = before_call(memory, Delete(memory.ref))
    assert isinstance(confirmed_delete(memory, Done(found=False), 1.0)[1], Pending)


def test_a_deletion_that_goes_on_after_a_restart_needs_two_observations_too() -> None:
    """Its address is withdrawn, but there was a load balancer."""
    present = service(deleted=True, said=("False", "Deleting", "Deleting load balancer: soon"))
    memory = before_call(None, Delete(reference(present)))
    _, answer = confirmed_delete(memory, Done(found=False), 100.0, present)
    assert isinstance(answer, Pending)
    assert "though it had one" in answer.reason
    assert confirmed_delete(memory, Done(found=False), 100.0, service()) == (
        memory,
        Done(found=False),
    )


@pytest.mark.parametrize(
    ("withdrawn", "reason"),
    [
        (Pending(0.0, "deleting", withdrawn=True), "Deleting"),
        (RetryAfter("deleting", after=1.0).disowning(), "Deleting"),
        (CloudError("x").disowning(), "DeleteCloudError"),
    ],
    ids=["withdrawn", "later", "disowned"],
)
def test_an_address_that_is_withdrawn_is_forgotten_and_leaves_the_status(
    withdrawn: Pending | CloudError, reason: str
) -> None:
    present = service(deleted=True, ingress=ADDRESS)
    asked = reference(present)
    memory, answer = confirmed_delete(before_call(None, Delete(asked)), withdrawn, 0.0, present)
    assert (memory.ref.last_ingress, answer) == ((), withdrawn)
    change = after_delete(present, answer, NOW, ref=asked)
    assert change.status is not None
    assert change.status.body["status"]["loadBalancer"] == {"ingress": ()}
    assert change.status.body["status"]["conditions"][0]["reason"] == reason
    # Whoever is asked next is not told of it, though the cache may show it still.
    bare = service(deleted=True)
    assert decided(bare, memory) == Delete(reference(bare))
    again = after_delete(bare, Pending(1.0, "deleting"), NOW, ref=asked)
    assert again.status is not None
    assert "loadBalancer" not in again.status.body["status"]


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (Pending(1.0, "working", withdrawn=True), ()),
        (CloudError("x").disowning(), ()),
        (Pending(1.0, "working"), ADDRESS),
        (CloudError("x"), ADDRESS),
    ],
    ids=["withdrawn", "disowned", "pending", "failed"],
)
def test_an_address_that_the_load_balancer_has_left_is_no_proof_for_its_deletion(
    answer: EnsureAnswer, left: tuple[LoadBalancerIngress, ...]
) -> None:
    present, memory = settled("n1")
    verb = Ensure(desired(present, "n1"))
    memory = after(before_call(memory, verb), verb, answer)
    bare = service()
    verb = Ensure(desired(bare, "n1"))
    memory = after(before_call(memory, verb), verb, CloudError("x"))
    gone = decided(None, memory)
    assert isinstance(gone, Delete)
    assert gone.ref.last_ingress == left
    # It was there: one look that finds nothing is not enough.
    _, nothing = confirmed_delete(before_call(memory, gone), Done(found=False), 0.0)
    assert isinstance(nothing, Pending)


def test_the_status_of_another_class_is_no_proof_and_stays() -> None:
    """It was of ours before: what is deleted had the address that is remembered, not theirs."""
    _, memory = settled("n1")
    elsewhere = (LoadBalancerIngress(ip="198.51.100.7", ip_mode="VIP"),)
    theirs = service(load_balancer_class=CLASS, ingress=elsewhere, said=READY)
    verb = decided(theirs, memory)
    assert isinstance(verb, Delete)
    assert verb.ref.last_ingress == ADDRESS
    withdrawn = Pending(0.0, "deleting", withdrawn=True)
    change = after_delete(theirs, withdrawn, NOW, ref=verb.ref)
    assert change.status is not None
    assert "loadBalancer" not in change.status.body["status"]
    later, _ = confirmed_delete(before_call(memory, verb), withdrawn, 0.0, theirs)
    again = decided(theirs, later)
    assert isinstance(again, Delete)
    assert again.ref.last_ingress == ()


@pytest.mark.parametrize(
    ("ingress", "answer"),
    [
        (ADDRESS, Done()),
        ((), Done(found=False)),
        (ADDRESS, Pending(1.0, "draining")),
        (ADDRESS, CloudError("x")),
    ],
)
def test_other_answers_to_a_deletion_count_at_once(
    ingress: tuple[LoadBalancerIngress, ...], answer: DeleteAnswer
) -> None:
    memory = Memory(reference(service(ingress=ingress)))
    assert confirmed_delete(memory, answer, 0.0) == (memory, answer)


# Which verb


@pytest.mark.parametrize(
    ("present", "classes", "expected"),
    [
        (service(), Classes(), True),
        (None, Classes(), False),
        (service(uid="uid-2"), Classes(), False),
        (service(type="ClusterIP"), Classes(), False),
        (service(deleted=True), Classes(), False),
        (service(finalizers=("another",)), Classes(), False),
        (service(load_balancer_class=CLASS), Classes(), False),
        (service(load_balancer_class=CLASS), Classes(frozenset({CLASS})), True),
    ],
)
def test_the_cloud_is_called_for_services_that_the_finalizer_keeps(
    present: Service | None, classes: Classes, *, expected: bool
) -> None:
    assert is_kept(present, reference(service()), classes) is expected


def settled(*names: str, **changes: Any) -> tuple[Service, Memory]:
    """A Service whose load balancer has been ensured on those nodes, and what is remembered."""
    changes = {"ingress": ADDRESS, "said": READY, **changes}
    present = service(**changes)
    verb = Ensure(desired(present, *names))
    return present, after(before_call(None, verb), verb, Ensured(ADDRESS))


THEIRS = service(load_balancer_class=CLASS)


@pytest.mark.parametrize(
    ("present", "made", "missing_since", "is_kept"),
    [
        (THEIRS, False, None, False),
        (THEIRS, True, 5.0, False),
        (THEIRS, True, None, True),
        (service(load_balancer_class=CLASS, deleted=True), False, None, False),
        (service(load_balancer_class=CLASS, uid="uid-2"), False, None, True),
        (service(type="ClusterIP"), False, 5.0, True),
        (service(deleted=True), False, 5.0, True),
        (service(), False, 5.0, True),
        (None, False, 5.0, True),
    ],
)
def test_what_another_may_have_made_is_forgotten(
    present: Service | None, missing_since: float | None, *, made: bool, is_kept: bool
) -> None:
    memory = Memory(reference(service()), missing_since=missing_since, made=made)
    assert still_ours(present, memory) == (memory if is_kept else None)
    assert still_ours(present, None) is None


@pytest.mark.parametrize("verb", [Ensure, UpdateHosts])
def test_who_has_asked_for_one_remembers_it_until_it_is_gone(
    verb: type[Ensure | UpdateHosts],
) -> None:
    of = desired(service(), "n1")
    begun = before_call(None, verb(of))
    assert begun.made
    assert after(begun, verb(of), Ensured(ADDRESS)).made
    assert before_call(begun, Delete(of.ref)).made
    assert not before_call(None, Delete(of.ref)).made


def decided(
    present: Service | None,
    memory: Memory | None,
    *names: str,
    classes: Classes = Classes(),  # noqa: B008 - an immutable value
) -> Verb:
    balancer = desired(present, *names) if present is not None else None
    return decide(present, memory, balancer, cluster=CLUSTER, classes=classes)


def test_nothing_is_done_when_all_is_right() -> None:
    present, memory = settled("n1", "n2")
    assert decided(present, memory, "n2", "n1") == Nothing()


@pytest.mark.parametrize(
    ("recorded", "stated", "is_right"),
    [
        ("west", "west", True),
        ("east", "west", False),
        (None, "west", False),
        ("west", "", False),
        ("west", "east", False),
    ],
)
def test_a_service_that_lacks_the_record_of_its_cloud_is_ensured_which_records_it(
    recorded: str | None, stated: str, *, is_right: bool
) -> None:
    given = {} if recorded is None else {ANNOTATION_CLOUD_IN_USE: recorded}
    settled_, memory = settled("n1", annotations=given)
    present = in_cloud(settled_, stated)
    verb = decided(present, memory, "n1", classes=Classes(cloud="west"))
    if is_right:
        assert verb == Nothing()
    else:
        assert isinstance(verb, Ensure)
        # An address that another cloud gave proves nothing in this one.
        assert bool(verb.desired.ref.last_ingress) is (stated != "east")
    assert decided(present, memory, "n1") == Nothing()


@pytest.mark.parametrize(
    ("names", "rejected"), [((), {}), (("n1", "n2"), {"n1": "stopped"}), (("n1",), {})]
)
def test_a_load_balancer_in_place_is_right_with_or_without_good_hosts(
    names: tuple[str, ...], rejected: dict[str, str]
) -> None:
    answer = Ensured(ADDRESS, rejected=rejected)
    verb = Ensure(desired(service(), *names))
    memory = after(before_call(None, verb), verb, answer)
    told = shown(after_ensure(service(), answer, NOW, verb=verb))
    assert decided(service(ingress=ADDRESS, said=told), memory, *names) == Nothing()


@pytest.mark.parametrize(
    "told",
    [
        *(("False", reason, "x") for reason in Reason),
        ("False", READY[1], READY[2]),
        (READY[0], READY[1], "x"),
        NO_HOSTS,
    ],
)
def test_a_condition_with_any_other_content_needs_an_ensure(told: tuple[str, str, str]) -> None:
    present, memory = settled("n1", said=told)
    assert decided(present, memory, "n1") == Ensure(desired(present, "n1"))


def test_a_memory_without_a_saying_proves_nothing() -> None:
    present, memory = settled("n1")
    bare = msgspec.structs.replace(memory, condition=None)
    assert decided(present, bare, "n1") == Ensure(desired(present, "n1"))


def test_a_service_first_seen_is_ensured() -> None:
    present = service()
    assert decided(present, None, "n1") == Ensure(desired(present, "n1"), edited=False)


def test_a_load_balancer_of_unknown_outcome_is_ensured() -> None:
    present, memory = settled("n1")
    open_ = before_call(memory, UpdateHosts(desired(present, "n1", "n2")))
    assert decided(present, open_, "n1") == Ensure(desired(present, "n1"))


def test_other_hosts_need_no_more_than_update_hosts() -> None:
    present, memory = settled("n1")
    assert decided(present, memory, "n1", "n2") == UpdateHosts(desired(present, "n1", "n2"))


@pytest.mark.parametrize(
    "answer", [Ensured(ADDRESS), Pending(1.0, "x"), CloudError("x"), ImplementedElsewhere("x")]
)
@pytest.mark.parametrize("kind", [Ensure, UpdateHosts])
def test_hosts_that_were_asked_for_are_not_new_whatever_came_of_it(
    kind: type[Ensure | UpdateHosts], answer: EnsureAnswer
) -> None:
    present, memory = settled("n1")
    verb = kind(desired(present, "n1", "n2"))
    asked = after(before_call(memory, verb), verb, answer)

    assert has_new_hosts(memory, desired(present, "n1", "n2"))
    assert not has_new_hosts(before_call(memory, verb), desired(present, "n1", "n2"))
    assert not has_new_hosts(asked, desired(present, "n2", "n1"))
    assert has_new_hosts(asked, desired(present, "n1"))


def test_all_hosts_are_new_while_nothing_was_asked_and_after_a_deletion() -> None:
    present, memory = settled()
    assert has_new_hosts(None, desired(present))
    assert not has_new_hosts(memory, desired(present))
    assert has_new_hosts(before_call(memory, Delete(memory.ref)), desired(present))


def test_other_endpoints_are_other_hosts() -> None:
    present, memory = settled("n1")
    target = EndpointTarget("10.1.0.1", "n1", "IPv4")
    balancer = msgspec.structs.replace(desired(present, "n1"), endpoints=(target,))
    verb = decide(present, memory, balancer, cluster=CLUSTER)
    assert verb == UpdateHosts(balancer)


@pytest.mark.parametrize(
    "changes",
    [
        {"annotations": {"cloud/size": "large"}},
        {"ports": (ServicePort(81, node_port=30080),)},
        {"external_traffic_policy": "Local", "health_check_node_port": 31000},
        {"load_balancer_source_ranges": ("10.0.0.0/8",)},
        {"session_affinity": "ClientIP"},
        {"load_balancer_ip": "192.0.2.9"},
        {"ip_families": ("IPv4", "IPv6")},
        {"external_ips": ("192.0.2.1",)},
    ],
)
def test_any_other_change_is_ensured_as_an_edit(changes: dict[str, Any]) -> None:
    _, memory = settled("n1")
    present = service(ingress=ADDRESS, said=READY, **changes)
    assert decided(present, memory, "n2") == Ensure(desired(present, "n2"), edited=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_version": "99"},
        {"labels": {"team": "x"}},
        {"finalizers": ("another", FINALIZER_LOAD_BALANCER)},
        {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
    ],
)
def test_what_no_cloud_reads_changes_nothing(changes: dict[str, Any]) -> None:
    _, memory = settled("n1")
    present = service(**{"ingress": ADDRESS, "said": READY, **changes})
    assert decided(present, memory, "n1") == Nothing()


@pytest.mark.parametrize(
    "changes",
    [
        {"ingress": ()},
        {"ingress": (*ADDRESS, LoadBalancerIngress(hostname="lb.example"))},
        {"finalizers": ("another",)},
        {"said": None},
    ],
)
def test_what_others_took_away_is_put_right_by_an_ensure(changes: dict[str, Any]) -> None:
    _, memory = settled("n1")
    present = service(**{"ingress": ADDRESS, "said": READY, **changes})
    assert decided(present, memory, "n1") == Ensure(desired(present, "n1"))


def test_annotations_of_the_cloud_are_no_edit_but_are_put_right() -> None:
    asked = service(said=PROVISIONING, annotations={"mine": "1"})
    verb = Ensure(desired(asked, "n1"))
    memory = after(before_call(None, verb), verb, Ensured(ADDRESS, annotations={"cloud/id": "4"}))

    def seen(**annotations: str) -> Verb:
        present = service(said=READY, ingress=ADDRESS, annotations={"mine": "1", **annotations})
        return decided(present, memory, "n1")

    assert seen(**{"cloud/id": "4"}) == Nothing()
    for verb_ in (seen(), seen(**{"cloud/id": "5"})):
        assert isinstance(verb_, Ensure)
        assert not verb_.edited
    assert getattr(seen(**{"cloud/id": "4", "other": "x"}), "edited", False)


def test_an_annotation_that_was_there_before_a_restart_is_no_edit_later() -> None:
    present = service(said=READY, ingress=ADDRESS, annotations={"cloud/id": "4"})
    verb = Ensure(desired(present, "n1"))
    memory = after(before_call(None, verb), verb, Ensured(ADDRESS, annotations={"cloud/id": "4"}))
    assert decided(present, memory, "n1") == Nothing()


def test_update_hosts_adds_to_what_was_written() -> None:
    present, _ = settled("n1")
    verb = Ensure(desired(present, "n1"))
    memory = after(
        before_call(None, verb), verb, Ensured(ADDRESS, annotations={"a": "1", "b": "1"})
    )
    more = UpdateHosts(desired(present, "n2"))
    memory = after(before_call(memory, more), more, Ensured(annotations={"b": "2"}))
    assert memory.written == {"a": "1", "b": "2"}
    assert memory.ref.last_ingress == ADDRESS
    assert memory.last == fingerprint(more.desired, {"a", "b"})
    again = after(before_call(memory, verb), verb, Ensured(annotations={"c": "3"}))
    assert (again.written, again.ref.last_ingress) == ({"c": "3"}, ())


@pytest.mark.parametrize("answer", [Pending(1.0, "x"), CloudError("x"), RetryAfter("x", after=1.0)])
def test_no_success_leaves_the_outcome_open(answer: EnsureAnswer) -> None:
    present, memory = settled("n1")
    verb = UpdateHosts(desired(present, "n2"))
    open_ = after(before_call(memory, verb), verb, answer)
    assert open_.last is None
    assert isinstance(decided(present, open_, "n2"), Ensure)


def test_what_another_controller_provides_is_left_alone_until_the_desired_state_changes() -> None:
    said = ("Unknown", "ImplementedElsewhere", "Another controller provides this load balancer")
    asked = service(said=said)
    verb = Ensure(desired(asked, "n1"))
    memory = after(before_call(None, verb), verb, ImplementedElsewhere("x"))
    assert memory.written == {}
    assert decided(service(said=said, ingress=ADDRESS), memory, "n1") == Nothing()
    edited = service(said=said, annotations={"a": "b"})
    assert decided(edited, memory, "n1") == Ensure(desired(edited, "n1"), edited=True)


def test_the_load_balancer_of_a_former_service_goes_first() -> None:
    old, memory = settled("n1")
    verb = decided(service(uid="uid-2"), memory, "n1")
    assert isinstance(verb, Delete)
    assert (verb.ref.uid, verb.ref.service, verb.ref.last_ingress) == ("uid-1", None, ADDRESS)
    assert verb == decided(None, memory)
    assert verb.ref.key == "shop/web"
    assert old.metadata.uid == "uid-1"


def test_a_service_that_is_gone_and_unknown_needs_nothing() -> None:
    assert decided(None, None) == Nothing()


@pytest.mark.parametrize(
    "changes",
    [
        {"deleted": True},
        {"type": "ClusterIP"},
        {"type": "ClusterIP", "deleted": True},
    ],
)
def test_with_the_finalizer_delete_is_always_called(changes: dict[str, Any]) -> None:
    gone = service(**changes)
    assert decided(gone, None) == Delete(reference(gone))


@pytest.mark.parametrize(
    "changes",
    [{"deleted": True}, {"type": "ClusterIP"}, {"load_balancer_class": CLASS}],
)
def test_without_the_finalizer_what_is_remembered_is_deleted(changes: dict[str, Any]) -> None:
    _, memory = settled("n1")
    gone = service(finalizers=(), **changes)
    verb = decided(gone, memory)
    assert isinstance(verb, Delete)
    assert verb.ref.service is gone
    # The status was emptied by the API server or the user: the last address is still known.
    assert verb.ref.last_ingress == ADDRESS
    assert decided(gone, None) == Nothing()


def test_the_status_is_newer_than_what_is_remembered() -> None:
    _, memory = settled("n1")
    newer = (LoadBalancerIngress(ip="192.0.2.77", ip_mode="VIP"),)
    verb = decided(service(deleted=True, ingress=newer), memory)
    assert isinstance(verb, Delete)
    assert verb.ref.last_ingress == newer


def test_a_service_of_another_class_is_not_touched() -> None:
    theirs = service(load_balancer_class=CLASS, deleted=True)
    assert decided(theirs, None, "n1") == Nothing()
    assert isinstance(decided(theirs, None, "n1", classes=Classes(frozenset({CLASS}))), Delete)


def test_a_deletion_under_way_makes_the_outcome_unknown() -> None:
    present, memory = settled("n1")
    half = before_call(memory, Delete(memory.ref))
    assert (half.ref, half.last) == (memory.ref, None)
    assert decided(present, half, "n1") == Ensure(desired(present, "n1"))
    unknown = before_call(None, Delete(memory.ref))
    assert unknown == Memory(memory.ref)


def test_an_impossible_service_is_refused_and_deleted_all_the_same() -> None:
    error = InvalidRequest("spec.ports is empty")
    assert decide(service(), None, error, cluster=CLUSTER) == Refuse(error)
    assert isinstance(decide(service(deleted=True), None, error, cluster=CLUSTER), Delete)


def test_without_a_desired_load_balancer_there_is_nothing_to_do() -> None:
    assert decide(service(), None, None, cluster=CLUSTER) == Nothing()


def test_fingerprints_do_not_depend_on_the_order_of_mappings() -> None:
    one = service(annotations={"a": "1", "b": "2"})
    two = service(annotations={"b": "2", "a": "1"})
    assert fingerprint(desired(one, "n1")) == fingerprint(desired(two, "n1"))


def test_fingerprints_do_not_depend_on_what_we_write_ourselves() -> None:
    present = fingerprint(desired(service(), "n1"))
    assert present == fingerprint(desired(service(ingress=ADDRESS, said=READY), "n1"))


# Texts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain  text\n with\tspace ", "plain text with space"),
        ("volume 3f2504e0-4f89-11d3-9a0c-0305e82c3301 busy", "volume <id> busy"),
        ("req-3f2504e0-4f89-11d3-9a0c-0305e82c3301", "<id>"),
        ("status 503, request id: 7b3c9XYZ.1=", "status 503, request id: <id>"),
        ("RequestID: ABCDEF123456, api error", "RequestID: <id>, api error"),
        ("(x-amz-request-id ABCDEF123456)", "(x-amz-request-id <id>)"),
        ('{"correlation_id": "abcdef99"}', '{"correlation_id": "<id>"}'),
        ("object at 0x7f3a99", "object at <pointer>"),
        ("trace 0123456789abcdef01234567", "trace <id>"),
        ("at 2026-01-02T03:04:05.678Z failed", "at <time> failed"),
        ("at 2026-01-02 03:04:05,678 failed", "at <time> failed"),
        ("at 2026-01-02T03:04:05+01:00", "at <time>"),
        ("read 10.0.0.4:53412->10.0.0.1:443: reset", "read <address>-><address>: reset"),
        ("dial [2001:db8::1]:443", "dial <address>"),
        ("Connect call failed ('192.0.2.1', 443)", "Connect call failed <address>"),
        ("failed ('2001:db8::1', 443, 0, 0)", "failed <address>"),
        # What says which one is meant stays.
        ("address 192.0.2.1 is in use", "address 192.0.2.1 is in use"),
        ("subnet 2001:db8::/64 is full", "subnet 2001:db8::/64 is full"),
        ("node n1 in eu-west-1a", "node n1 in eu-west-1a"),
        ("port 30080 refused", "port 30080 refused"),
    ],
)
def test_scrub_takes_out_what_differs_between_tries(text: str, expected: str) -> None:
    assert scrub(text) == expected


@pytest.mark.parametrize("length", [MESSAGE_LIMIT, MESSAGE_LIMIT + 1])
def test_texts_are_cut_to_what_an_event_may_hold(length: int) -> None:
    cut = scrub("y" * length)
    assert len(cut) == MESSAGE_LIMIT
    assert cut.endswith("y" if length == MESSAGE_LIMIT else "…")
