"""What the cloud shows, compared with what is desired."""

import uuid
from collections import Counter

import msgspec
import pytest

from proreus.cloudprovider import (
    ClusterIdentity,
    HealthCheck,
    Host,
    LoadBalancer,
    LoadBalancerRef,
    OwnedObject,
)
from proreus.cloudprovider.ports import ports_of
from proreus.controllers.service import drift, plan
from proreus.controllers.service.conditions import readiness
from proreus.kube.objects import LoadBalancerIngress, ObjectMeta, Service

SERVICE = Service(ObjectMeta(name="web", namespace="shop", uid="u1"))
INGRESS = (LoadBalancerIngress(ip="192.0.2.1", ip_mode="VIP"),)
DESIRED = LoadBalancer(
    ref=LoadBalancerRef(
        cluster=ClusterIdentity("c", "c-uid"), namespace="shop", service_name="web", uid="u1",
        name="au1", last_ingress=INGRESS, service=SERVICE,
    ),
    service=SERVICE, marks={}, frontends=(), hosts=(Host("n1", "sim://1"),),
    health_check=HealthCheck(), source_ranges={},
)  # fmt: skip


SHOWN = frozenset({"192.0.2.1"})


def owned(uid: str, fingerprint: str, *addresses: str) -> OwnedObject:
    return OwnedObject(
        kind="lb", id="x", service_uid=uid, fingerprint=fingerprint, addresses=addresses
    )


def test_fingerprints_are_shown_by_service_and_only_where_there_are_some() -> None:
    found = drift.fingerprints(
        [owned("u1", "a", "x", "y"), owned("u1", "b"), owned("u2", "", "z"), owned("", "c")]
    )
    assert found == {"u1": {"a": frozenset({"x", "y"}), "b": frozenset()}}


def test_a_record_does_not_count_when_it_is_the_services_turn() -> None:
    recorded = OwnedObject("lb", "x", service_uid="u1", fingerprint="a", recorded=True)
    turn = drift.turn_of("u1")
    assert drift.fingerprints([recorded]) == {"u1": {"a": frozenset()}}
    assert (
        drift.fingerprints([recorded], {turn})
        == drift.fingerprints([recorded], drift.EVERY_TURN)
        == {}
    )
    assert drift.fingerprints([recorded], drift.EVERY_TURN - {turn}) == {"u1": {"a": frozenset()}}
    assert drift.fingerprints([owned("u1", "a")], drift.EVERY_TURN) == {"u1": {"a": frozenset()}}


def test_turns_are_even_and_those_of_the_service_alone() -> None:
    counts = Counter(drift.turn_of(str(uuid.UUID(int=number))) for number in range(2400))
    assert counts.keys() == drift.EVERY_TURN
    assert max(counts.values()) < 200


HOUR = 3600.0


@pytest.mark.parametrize(
    ("since", "now", "turns"),
    [
        (None, 0.0, {23, 0}),
        (None, 25.5 * HOUR, {0, 1}),
        (1.2 * HOUR, 2.2 * HOUR, {2}),
        (1.2 * HOUR, 1.9 * HOUR, set()),
        (1.9 * HOUR, 4.1 * HOUR, {2, 3, 4}),
        (22.5 * HOUR, 24.5 * HOUR, {23, 0}),
        (1.0 * HOUR, 900 * HOUR, drift.EVERY_TURN),
        (9.0 * HOUR, 2.5 * HOUR, {1, 2}),
    ],
    ids=["the first pass", "the second day", "an hour later", "in the same hour", "late",
         "over midnight", "after weeks", "a clock that was set back"],
)  # fmt: skip
def test_each_period_has_its_turn_and_none_is_passed_over(
    since: float | None, now: float, turns: set[int]
) -> None:
    assert drift.turns(since, now, HOUR) == turns


@pytest.mark.parametrize(
    ("expected", "cloud", "is_same"),
    [
        ("a", {"u1": {"a": SHOWN}}, True),
        ("a", {"u1": {"a": frozenset()}}, True),
        ("a", {"u1": {"a": frozenset({"192.0.2.2"})}}, False),
        ("a", {"u1": {"a": SHOWN | {"192.0.2.2"}}}, False),
        ("a", {"u1": {"b": frozenset(), "a": SHOWN}}, True),
        ("a", {"u1": {"b": SHOWN}}, False),
        ("a", {"u2": {"a": SHOWN}}, False),
        ("a", {}, False),
        ("", {"u1": {"": SHOWN}}, False),
    ],
)
def test_a_load_balancer_is_as_desired_if_the_cloud_shows_what_is_expected(
    expected: str, cloud: drift.Fingerprints, *, is_same: bool
) -> None:
    assert drift.is_as_desired(DESIRED, expected, cloud) is is_same


def test_after_a_restart_what_is_as_desired_needs_no_verb() -> None:
    memory = drift.adopted(DESIRED, "a", {"u1": {"a": frozenset()}})
    assert memory == plan.Memory(
        DESIRED.ref,
        plan.fingerprint(DESIRED),
        {},
        readiness(DESIRED.hosts, {}),
        made=True,
        ports=ports_of(DESIRED.service),
    )


def test_after_a_restart_what_differs_is_not_taken_as_known() -> None:
    assert drift.adopted(DESIRED, "a", {"u1": {"b": frozenset()}}) is None


def test_after_a_restart_a_service_without_an_address_is_not_taken_as_known() -> None:
    desired = msgspec.structs.replace(
        DESIRED, ref=msgspec.structs.replace(DESIRED.ref, last_ingress=())
    )
    assert drift.adopted(desired, "a", {"u1": {"a": frozenset()}}) is None


def test_keys_are_spread_evenly_in_a_stable_order() -> None:
    assert drift.spread(["c", "a", "b", "d"], 60.0) == {"a": 0.0, "b": 15.0, "c": 30.0, "d": 45.0}
    assert drift.spread([], 60.0) == {}


def test_what_is_doubted_is_ensured_again() -> None:
    memory = plan.Memory(DESIRED.ref, plan.fingerprint(DESIRED), {"k": "v"})
    assert plan.doubted(memory) == plan.Memory(DESIRED.ref, None, {"k": "v"})
