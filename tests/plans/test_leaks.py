from datetime import UTC, datetime, timedelta

import pytest

from proreus.cloudprovider import ClusterIdentity, OwnedObject
from proreus.controllers.service.leaks import Leak, due, leaks

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
BEFORE = NOW - timedelta(days=1)
"""Our clock has jumped since: it was an hour ago."""
CLUSTER = ClusterIdentity("kubernetes", "cluster-uid")
LEFT = OwnedObject("listener", "l-1", "shop/web", "uid-1")
OURS = OwnedObject("listener", "l-2", "shop/api", "uid-2")
SHARED = OwnedObject("firewall", "f-1")


def test_what_has_no_service_is_a_leak_and_shared_objects_are_none() -> None:
    assert leaks([LEFT, OURS, SHARED], {"uid-2"}, (), NOW, 3600.0) == (Leak(LEFT, NOW, 3600.0),)


def test_a_leak_keeps_the_time_at_which_it_was_first_seen() -> None:
    again = leaks([LEFT], (), [Leak(LEFT, BEFORE, 0.0)], NOW, 3600.0)
    assert again == (Leak(LEFT, BEFORE, 0.0),)
    assert leaks([], (), again, NOW, 3600.0) == ()


@pytest.mark.parametrize(
    ("grace", "gone"), [(0.0, False), (1800.0, True), (3600.0, True), (3601.0, False)]
)
def test_only_what_is_left_over_for_long_enough_is_deleted(grace: float, *, gone: bool) -> None:
    refs = due([Leak(LEFT, BEFORE, 0.0)], CLUSTER, 3600.0, grace)
    assert [ref.uid for ref in refs.values()] == (["uid-1"] if gone else [])


def test_a_load_balancer_is_deleted_once_by_a_key_that_no_service_has() -> None:
    other_part = OwnedObject("address", "a-1", "shop/web", "uid-1")
    refs = due([Leak(LEFT, BEFORE, 0.0), Leak(other_part, BEFORE, 0.0)], CLUSTER, 3600.0, 60.0)
    ((key, ref),) = refs.items()
    assert (key, ref.key, ref.cluster, ref.service) == (
        "shop/web/uid-1",
        "shop/web",
        CLUSTER,
        None,
    )


def test_a_leak_whose_mark_names_no_service_is_only_reported() -> None:
    nameless = OwnedObject("listener", "l-1", "", "uid-1")
    assert due([Leak(nameless, BEFORE, 0.0)], CLUSTER, 3600.0, 60.0) == {}
