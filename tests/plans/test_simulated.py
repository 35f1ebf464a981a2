"""Tables of the decisions about a load balancer of the simulated cloud: one row, one situation."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.identity import (
    MARK_CLUSTER_UID,
    MARK_SERVICE,
    MARK_SERVICE_UID,
    ClusterIdentity,
)
from proreus.cloudprovider.load_balancers import HostPolicy, LoadBalancer
from proreus.kube.objects import (
    Node,
    ServicePort,
)
from proreus.providers.simulated.ids import OFFICIAL_CLUSTER, OFFICIAL_SERVICE
from proreus.providers.simulated.parts import (
    Address,
    Balancer,
    Firewall,
    HealthCheck,
    Listener,
    Observed,
    Part,
    Target,
)
from proreus.providers.simulated.plan import (
    check,
    delete_steps,
    desired_fingerprint,
    fingerprint,
    owned,
    plan,
    targets,
    unlisted,
)
from proreus.providers.simulated.steps import Step
from proreus.testing import objects

REGION = "sim-1"
CLUSTER = ClusterIdentity("test", "cluster-uid")
UID = "5e000000-0000-4000-8000-000000000001"
OFFICIAL = {f"{OFFICIAL_CLUSTER}test": "owned", OFFICIAL_SERVICE: "default/web"}
INSTANCE = "i-000000000001"
TARGET = Target(INSTANCE, "10.0.0.1")


def node(provider_id: str = f"simulated://{REGION}/{INSTANCE}", ip: str = "10.0.0.1") -> Node:
    return objects.node(provider_id=provider_id, addresses=[ip] if ip else [])


def desired_lb(
    *nodes: Node, shown: str = "", port: ServicePort | None = None, **spec: Any
) -> LoadBalancer:
    given = {"ip_families": ("IPv4",), **({"ports": (port,)} if port else {}), **spec}
    service = objects.service(uid=UID, ingress=[shown] if shown else [], **given)
    return desired_load_balancer(service, nodes, HostPolicy(families=("IPv4",)), CLUSTER)


DESIRED = desired_lb(node())
MARKS = dict(DESIRED.marks)
RANGES = tuple(DESIRED.source_ranges.get("IPv4", ()))
HEALTH = HealthCheck(DESIRED.health_check.port, DESIRED.health_check.path)


def common(id_: str, marks: Mapping[str, str], created: float) -> dict[str, Any]:
    return {"id": id_, "name": "web", "tags": marks, "version": 1, "created": created}


def address(
    id_: str = "a-1", ip: str = "127.0.1.1", marks: Mapping[str, str] = MARKS, created: float = 1
) -> Address:
    return Address(address=ip, **common(id_, marks, created))


def balancer(
    id_: str = "b-1", marks: Mapping[str, str] = MARKS, created: float = 1, **fields: Any
) -> Balancer:
    fields = {
        "address_id": "a-1",
        "state": "active",
        "health_check": HEALTH,
        "targets": (TARGET,),
        **fields,
    }
    return Balancer(**fields, **common(id_, marks, created))


def listener(id_: str = "l-1", marks: Mapping[str, str] = MARKS, **fields: Any) -> Listener:
    fields = {
        "load_balancer_id": "b-1",
        "protocol": "TCP",
        "port": 80,
        "target_port": 30080,
        "state": "active",
        **fields,
    }
    return Listener(**fields, **common(id_, marks, 1))


def firewall(id_: str = "f-1", marks: Mapping[str, str] = MARKS, **fields: Any) -> Firewall:
    fields = {"load_balancer_id": "b-1", "source_ranges": RANGES, **fields}
    return Firewall(**fields, **common(id_, marks, 1))


def observed(*parts: Part, **fields: Any) -> Observed:
    return Observed({part.id: part for part in parts}, **fields)


DONE = (address(), balancer(), listener(), firewall())


def body_of(step: Step) -> dict[str, Any]:
    body = step.call.body
    return dict(json.loads(body.content)) if body is not None else {}


def brief(steps: tuple[Step, ...]) -> list[tuple[object, ...]]:
    """What each step is about, without the parts' other fields."""
    found: list[tuple[object, ...]] = []
    for step in steps:
        collection, _, verb = step.call.name.partition(".")
        id_, body = step.call.url.rpartition("/")[2], body_of(step)
        match verb:
            case "create":
                found.append(("create", collection, body["name"].removeprefix(DESIRED.ref.name)))
            case "update":
                found.append(("change", id_, *sorted(body.keys() - {"version"})))
            case "delete":
                found.append(("delete", id_))
            case "add_targets":
                found.append(("add", *(target["instance_id"] for target in body["targets"])))
            case "remove_targets":
                found.append(("remove", *body["instance_ids"]))
    return found


PLANS: dict[str, tuple[LoadBalancer, Observed, list[tuple[object, ...]]]] = {
    "nothing there": (DESIRED, observed(), [("create", "addresses", "")]),
    "an address only": (DESIRED, observed(address()), [("create", "load_balancers", "")]),
    "a balancer without the rest": (
        DESIRED,
        observed(address(), balancer(targets=())),
        [
            ("create", "firewalls", ""),
            ("create", "listeners", "-tcp-80"),
            ("add", INSTANCE),
        ],
    ),
    "all as desired": (DESIRED, observed(*DONE), []),
    "another address is desired": (
        desired_lb(node(), load_balancer_ip="127.0.1.9"),
        observed(*DONE),
        [("create", "addresses", "-127.0.1.9")],
    ),
    "the desired address is there beside the old one": (
        desired_lb(node(), load_balancer_ip="127.0.1.9"),
        observed(*DONE, address("a-2", "127.0.1.9")),
        [("delete", "l-1"), ("delete", "f-1")],
    ),
    "two addresses, the younger in use": (
        DESIRED,
        observed(*DONE, address("a-0", "127.0.1.8", created=0)),
        [("delete", "a-0")],
    ),
    "two balancers at one address": (
        DESIRED,
        observed(*DONE, balancer("b-2", created=2)),
        [("delete", "b-2")],
    ),
    "parts of a balancer that is gone": (
        DESIRED,
        observed(*DONE, listener("l-2", load_balancer_id="b-0")),
        [("delete", "l-2")],
    ),
    "marks removed by hand": (
        DESIRED,
        observed(address(marks={}), balancer(marks={"team": "a"}), listener(), firewall()),
        [("change", "a-1", "tags"), ("change", "b-1", "tags")],
    ),
    "traits changed by hand": (
        DESIRED,
        observed(address(), balancer(internal=True), listener(), firewall()),
        [("change", "b-1", "internal")],
    ),
    "ranges changed by hand": (
        DESIRED,
        observed(address(), balancer(), listener(), firewall(source_ranges=("192.0.2.0/24",))),
        [("change", "f-1", "source_ranges")],
    ),
    "two firewalls": (DESIRED, observed(*DONE, firewall("f-2")), [("delete", "f-2")]),
    "a listener of a port that is not desired": (
        DESIRED,
        observed(*DONE, listener("l-2", port=81)),
        [("delete", "l-2")],
    ),
    "a listener with another node port": (
        DESIRED,
        observed(address(), balancer(), listener(target_port=1), firewall()),
        [("change", "l-1", "target_port")],
    ),
    "a broken listener of an earlier run": (
        DESIRED,
        observed(address(), balancer(), listener(state="error"), firewall()),
        [("delete", "l-1")],
    ),
    "a listener that broke in this run": (
        DESIRED,
        observed(
            address(),
            balancer(),
            listener(state="error"),
            firewall(),
            made=frozenset({"l-1"}),
        ),
        [],
    ),
    "a target with another address": (
        DESIRED,
        observed(
            address(), balancer(targets=(Target(INSTANCE, "10.9.9.9"),)), listener(), firewall()
        ),
        [("add", INSTANCE)],
    ),
    "a target that was refused": (
        DESIRED,
        observed(
            address(), balancer(targets=()), listener(), firewall(), refused={INSTANCE: "gone"}
        ),
        [],
    ),
    "a target too many": (desired_lb(), observed(*DONE), [("remove", INSTANCE)]),
}


@pytest.mark.parametrize("case", PLANS)
def test_the_steps(case: str) -> None:
    wanted_, found, steps = PLANS[case]
    assert brief(plan(wanted_, found, REGION)) == steps


def test_a_part_carries_marks_and_a_token_from_its_creation() -> None:
    (step,) = plan(DESIRED, observed(), REGION)
    assert body_of(step)["tags"] == dict(DESIRED.marks)
    assert body_of(step)["idempotency_token"] == f"{CLUSTER.uid}/{UID}/addresses/"


def test_deletion_goes_from_the_leaves_to_the_address() -> None:
    assert brief(delete_steps(observed(*DONE))) == [("delete", "l-1"), ("delete", "f-1")]
    assert brief(delete_steps(observed(address(), balancer()))) == [("delete", "b-1")]
    assert brief(delete_steps(observed(address()))) == [("delete", "a-1")]
    assert delete_steps(observed()) == ()


def test_a_listing_is_not_complete_if_its_parts_refer_to_others() -> None:
    assert unlisted(observed(*DONE)) == set()
    assert unlisted(observed()) == set()
    assert unlisted(observed(balancer())) == {"a-1"}
    assert unlisted(observed(address(), listener())) == {"b-1"}
    assert unlisted(observed(address(), firewall())) == {"b-1"}


OWNED: dict[str, tuple[str, tuple[Part, ...], set[str]]] = {
    "our marks": ("", DONE, {"a-1", "b-1", "l-1", "f-1"}),
    "the marks of another cluster": ("", (address(marks={**MARKS, MARK_CLUSTER_UID: "x"}),), set()),
    "a name alone": ("127.0.1.1", (address(marks={}),), set()),
    "the official manager's, at the address in the status": (
        "127.0.1.1",
        (
            address(marks=OFFICIAL),
            balancer(marks=OFFICIAL),
            listener(marks=OFFICIAL),
            firewall(marks=OFFICIAL),
        ),
        {"a-1", "b-1", "l-1", "f-1"},
    ),
    "the official manager's, at another address": (
        "127.0.1.2",
        (address(marks=OFFICIAL), balancer(marks=OFFICIAL), listener(marks=OFFICIAL)),
        set(),
    ),
    "the official manager's marks beside ours of another Service": (
        "127.0.1.1",
        (address(marks={**OFFICIAL, **MARKS, MARK_SERVICE_UID: "x"}),),
        set(),
    ),
}


@pytest.mark.parametrize("case", OWNED)
def test_what_is_proven_to_be_the_services(case: str) -> None:
    shown, parts, ids = OWNED[case]
    assert set(owned(desired_lb(shown=shown).ref, parts).parts) == ids


REFUSED: dict[str, tuple[ServicePort, str]] = {
    "SCTP": (ServicePort(80, protocol="SCTP", node_port=30080), "spec.ports 80/SCTP: "),
    "no node port": (ServicePort(80), "set spec.allocateLoadBalancerNodePorts"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_port_that_the_cloud_cannot_forward_is_refused_by_name(case: str) -> None:
    port, message = REFUSED[case]
    with pytest.raises(InvalidRequest, match=message):
        check(desired_lb(port=port))


def test_ports_that_the_cloud_forwards_are_accepted() -> None:
    check(DESIRED)


@pytest.mark.parametrize(
    ("host", "message"),
    [
        (node(provider_id="aws:///zone/i-1"), "is not an instance of region"),
        (node(ip=""), "it has no IPv4 address"),
    ],
)
def test_a_host_that_cannot_be_a_target_is_rejected_with_the_reason(
    host: Node, message: str
) -> None:
    found, rejected = targets(desired_lb(host), REGION)
    assert not found
    assert message in rejected["node-1"]


def test_the_fingerprint_of_the_observed_equals_that_of_the_desired() -> None:
    assert fingerprint(observed(*DONE)) == desired_fingerprint(DESIRED, REGION)


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (balancer(), listener(), firewall()),
        (address(), balancer(internal=True), listener(), firewall()),
        (address(), balancer(), listener(port=81), firewall()),
        (address(), balancer(), listener(), firewall(source_ranges=("192.0.2.0/24",))),
        (address(), balancer(targets=()), listener(), firewall()),
        (address(marks={**MARKS, MARK_SERVICE: "default/other"}), *DONE[1:]),
    ],
    ids=["nothing", "no address", "trait", "listener", "range", "target", "mark"],
)
def test_the_fingerprint_changes_with_every_difference(parts: tuple[Part, ...]) -> None:
    assert fingerprint(observed(*parts)) != desired_fingerprint(DESIRED, REGION)
