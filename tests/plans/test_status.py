from datetime import UTC, datetime, timedelta

import pytest

from proreus.app.status import text
from proreus.app.status.summary import (
    Cloud,
    Deletions,
    GatewayRow,
    Inside,
    LeakRow,
    LeaseRow,
    State,
    counts,
    node_row,
    service_row,
    summarise,
)
from proreus.kube.objects import (
    LABEL_INSTANCE_TYPE,
    LABEL_ZONE,
    TAINT_OUT_OF_SERVICE,
    TAINT_SHUTDOWN,
    TAINT_UNINITIALIZED,
    Condition,
    Node,
    Service,
    Taint,
)
from proreus.testing import objects

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
READY = Condition("Ready", "True", "KubeletReady")
SILENT = Condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting")
FINE = Condition("CloudInitialized", "True", "Initialized", "all is well")
NO_MACHINE = Condition("CloudInitialized", "False", "InstanceNotFound", "no such machine")
OTHER_ZONE = Condition("CloudInitialized", "False", "TopologyDiffers", "it is in z2")
MADE = Condition("NetworkUnavailable", "False", "RouteCreated")
MISSING = Condition("NetworkUnavailable", "True", "NoRouteCreated")
ENSURED = Condition("LoadBalancerReady", "True", "Ensured", "as the Service says")
REJECTED = Condition("LoadBalancerReady", "True", "HostsRejected", "n7: no address")
THROTTLED = Condition("LoadBalancerReady", "False", "Throttled", "quota")


def node(*conditions: Condition, name: str = "n1", taint: str = "", gone: bool = False) -> Node:
    return objects.node(
        name,
        creation_timestamp=NOW - timedelta(minutes=5),
        deletion_timestamp=NOW if gone else None,
        labels={LABEL_ZONE: "z1", LABEL_INSTANCE_TYPE: "large"},
        taints=(Taint(taint, "NoSchedule"),) if taint else (),
        conditions=conditions,
    )


def service(*conditions: Condition, ip: str = "", type_: str = "LoadBalancer") -> Service:
    return objects.service(
        "web",
        namespace="shop",
        creation_timestamp=NOW,
        type=type_,
        ingress=[ip] if ip else [],
        conditions=conditions,
    )


def test_where_there_are_several_clouds_each_row_names_its_own() -> None:
    labelled = objects.node("n1", labels={"proreus.io/cloud": "east"})
    annotated = objects.service(annotations={"proreus.io/cloud-in-use": "west"})
    # Whoever may edit a Service can change the annotation.
    recorded = (Condition("LoadBalancerCloud", "True", "Recorded", "east", NOW),)
    meddled = objects.service(annotations={"proreus.io/cloud-in-use": "west"}, conditions=recorded)
    summary = summarise([labelled, node(name="n2")], [annotated, meddled], NOW)
    assert [row.cloud for row in summary.nodes] == ["east", ""]
    assert [row.cloud for row in summary.services] == ["west", "east"]
    shown = text.render(summary, everything=True).splitlines()
    heads = [line.split() for line in shown if "NAME" in line]
    assert heads == [["NAME", "STATE", "AGE", "CLOUD", "ZONE", "DETAIL", "REASON", "MESSAGE"]] * 2
    alone = text.render(summarise([node()], [], NOW), everything=True).splitlines()
    assert [line.split()[3] for line in alone if "NAME" in line] == ["ZONE"]


@pytest.mark.parametrize(
    ("node", "state", "reason"),
    [
        (node(READY, FINE), State.READY, ""),
        (node(READY, FINE, MADE), State.READY, ""),
        (node(READY, FINE, MISSING), State.WARNING, ""),
        (node(READY, NO_MACHINE, taint=TAINT_UNINITIALIZED), State.WAITING, "InstanceNotFound"),
        (node(taint=TAINT_UNINITIALIZED), State.WAITING, ""),
        (node(READY, OTHER_ZONE), State.WARNING, "TopologyDiffers"),
        (node(SILENT, FINE), State.NOT_READY, "NodeStatusUnknown"),
        (node(SILENT, FINE, taint=TAINT_SHUTDOWN), State.SHUT_DOWN, ""),
        (node(SILENT, FINE, taint=TAINT_OUT_OF_SERVICE), State.OUT_OF_SERVICE, ""),
        (node(READY, FINE, gone=True), State.DELETING, ""),
        (node(), State.NOT_READY, ""),
    ],
)
def test_the_state_of_a_node(node: Node, state: State, reason: str) -> None:
    row = node_row(node, NOW)
    assert (row.state, row.reason) == (state, reason)
    assert (row.zone, row.detail, row.age) == ("z1", "large", 300.0)


@pytest.mark.parametrize(
    ("service", "state", "reason", "detail"),
    [
        (service(ENSURED, ip="192.0.2.1"), State.READY, "Ensured", "192.0.2.1"),
        (service(REJECTED, ip="192.0.2.1"), State.WARNING, "HostsRejected", "192.0.2.1"),
        (service(THROTTLED), State.WAITING, "Throttled", ""),
        (service(), State.WAITING, "", ""),
        (service(ip="192.0.2.1"), State.READY, "", "192.0.2.1"),
    ],
)
def test_the_state_of_a_service(service: Service, state: State, reason: str, detail: str) -> None:
    row = service_row(service, NOW)
    assert (row.name, row.state, row.reason, row.detail) == ("shop/web", state, reason, detail)


def test_only_services_that_have_or_had_a_load_balancer_are_shown() -> None:
    kept = summarise((), [service(), service(type_="ClusterIP")], NOW).services
    assert [row.name for row in kept] == ["shop/web"]
    assert len(summarise((), [service(THROTTLED, type_="ClusterIP")], NOW).services) == 1


def test_the_worst_comes_first() -> None:
    nodes = [
        node(READY, FINE, name="a"),
        node(SILENT, name="b"),
        node(name="c", taint=TAINT_UNINITIALIZED),
        node(READY, FINE, name="d"),
    ]
    rows = summarise(nodes, (), NOW).nodes
    assert [row.name for row in rows] == ["c", "b", "a", "d"]
    assert counts(rows) == {State.WAITING: 1, State.NOT_READY: 1, State.READY: 2}


def test_the_table_shows_figures_and_what_is_not_well() -> None:
    nodes = [
        node(READY, FINE, MADE, name="good"),
        node(NO_MACHINE, name="lost", taint=TAINT_UNINITIALIZED),
    ]
    inside = Inside(
        Cloud({"ok": 12, "throttled": 3}, 2, {"first read": 5.0}),
        Deletions(1, 4, 2, ("node-7",)),
        (LeakRow("listener", "l-1", "shop/old", NOW),),
    )
    leases = [LeaseRow("cloud-controller-manager", "host-1", 1.2)]
    gateways = [
        GatewayRow("gw-1", ("192.0.2.1", "192.0.2.3"), 4, 2.0),
        GatewayRow("gw-2", ("192.0.2.2",), 0, 200.0),
        GatewayRow("gw-3", (), 0, 1.0),
    ]
    summary = summarise(
        nodes, [service(THROTTLED)], NOW, leases=leases, inside=inside, gateways=gateways
    )

    shown = text.render(summary)

    assert "LEASE      cloud-controller-manager: host-1, renewed 1s ago" in shown
    assert "GATEWAY    gw-1: answers for 192.0.2.1, 192.0.2.3 and 4 more\n" in shown
    assert "GATEWAY    gw-2: silent, last heard of 3m ago\n" in shown
    assert "GATEWAY    gw-3: answers for no address\n" in shown
    assert "NODES      2  1 waiting, 1 ready" in shown
    assert "lost" in shown
    assert "InstanceNotFound" in shown
    assert "good" not in shown
    assert "SERVICES   1  1 waiting" in shown
    assert "ROUTES     1 nodes have theirs, 0 lack them" in shown
    assert "1 wait for more answers, 4 held by the breaker, 2 without proof" in shown
    assert "Ready, but unknown to the cloud: node-7" in shown
    assert "12 ok, 3 throttled; 2 wait; learned quota: first read 5.0/s" in shown
    assert "listener l-1 of shop/old" in shown
    assert "good" in text.render(summary, everything=True)


def test_a_long_table_is_cut_and_reports_it() -> None:
    nodes = [node(name=f"n{i:03}", taint=TAINT_UNINITIALIZED) for i in range(100)]
    lines = text.render(summarise(nodes, (), NOW), rows=10, width=60).splitlines()
    assert "  and 90 more: --all shows them" in lines
    assert max(map(len, lines)) <= 60


def test_what_only_a_manager_knows_is_shown_as_unknown() -> None:
    assert text.render(summarise((), (), NOW)).count(text.NOT_ASKED[:20]) == 3


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172800, "2d")],
)
def test_ages(seconds: float, shown: str) -> None:
    assert text.age(seconds) == shown
