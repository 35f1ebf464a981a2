"""Each Service is tried again soon at first, and later while nothing happens."""

import asyncio

import pytest

from proreus.cloudprovider.desired import load_balancer_ref
from proreus.cloudprovider.errors import Throttled
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import LoadBalancerRef, Pending
from proreus.cloudprovider.waits import (
    LONG,
    Missed,
    Twice,
    Waits,
    Working,
    has_left,
    showing_only,
)
from proreus.kube.objects import LoadBalancerIngress
from proreus.testing import objects
from proreus.testing.clock import virtual_time

AGAIN = 10.0


def test_delays_grow_for_each_service_by_itself_and_the_last_one_stays() -> None:
    waits = Waits((1.0, 3.0))
    assert [waits.pending("a", "busy") for _ in range(3)] == [
        Pending(1.0, "busy"), Pending(3.0, "busy"), Pending(3.0, "busy"),
    ]  # fmt: skip
    assert waits.pending("b", "busy").after == 1.0
    assert waits.has_waited("a")
    assert not waits.has_waited("b")


def test_delays_begin_anew_after_progress_and_when_a_service_is_done() -> None:
    waits = Waits((1.0, 3.0, 9.0))
    for _ in range(2):
        waits.pending("a", "busy")
    assert waits.pending("a", "busy", is_moving=True).after == 1.0
    assert waits.pending("a", "busy").after == 3.0
    waits.done("a")
    assert waits.pending("a", "busy").after == 1.0


def ref(*shown: str) -> LoadBalancerRef:
    ingress = [LoadBalancerIngress(ip=ip) for ip in shown]
    return load_balancer_ref(objects.service("web", ingress=ingress), ClusterIdentity("c", "uid"))


@virtual_time
async def test_what_is_missing_is_looked_for_once_more() -> None:
    missed = Missed(AGAIN)
    for _ in range(3):
        with pytest.raises(Working, match="once more"):
            missed.check(ref("192.0.2.1"), is_there=False)
        await asyncio.sleep(AGAIN / 3)
    await asyncio.sleep(0.1)
    missed.check(ref("192.0.2.1"), is_there=False)
    # Once it is there, the next time counts for itself.
    missed.check(ref("192.0.2.1"), is_there=True)
    with pytest.raises(Working):
        missed.check(ref("192.0.2.1"), is_there=False)


@virtual_time
async def test_a_look_from_long_ago_is_none_of_the_two() -> None:
    twice = Twice(AGAIN)
    assert not twice.is_sure("a", is_so=True)
    await asyncio.sleep(LONG + AGAIN + 0.1)
    assert not twice.was_sure("a")
    assert not twice.is_sure("a", is_so=True)
    await asyncio.sleep(AGAIN + 0.1)
    assert twice.is_sure("a", is_so=True)
    for _ in range(3):  # a Service that fails is looked at now and then
        await asyncio.sleep(LONG)
        assert twice.was_sure("a")
        assert twice.is_sure("a", is_so=True)


@virtual_time
async def test_what_never_had_an_address_is_not_missing() -> None:
    Missed(AGAIN).check(ref(), is_there=False)


@virtual_time
async def test_what_was_missing_twice_is_gone_until_it_is_seen_again() -> None:
    missed, one = Missed(AGAIN), ref("192.0.2.1")
    for _ in range(2):
        assert not missed.is_sure(one, is_there=False)
        with pytest.raises(Working):
            missed.check(one, is_there=False)
    await asyncio.sleep(AGAIN + 0.1)
    missed.check(one, is_there=False)
    assert missed.is_sure(one, is_there=False)
    missed.check(one, is_there=True)
    assert not missed.is_sure(one, is_there=False)


@pytest.mark.parametrize(
    ("held", "is_left"),
    [
        (("192.0.2.1",), False),
        (("192.0.2.1", "192.0.2.2"), False),
        (("192.0.2.2",), True),
        ((), True),
    ],
)
def test_an_address_that_is_not_held_is_withdrawn_unless_all_ends_well(
    held: tuple[str, ...], *, is_left: bool
) -> None:
    one, waits = ref("192.0.2.1"), Waits((1.0,))
    shared = Throttled("x", after=3.0)
    with showing_only(one, held):
        pass
    with pytest.raises(Throttled, match="x") as failed, showing_only(one, held):
        raise shared
    assert (failed.value.disowns, failed.value.after) == (is_left, 3.0)
    assert not shared.disowns
    with pytest.raises(Working) as busy, showing_only(one, held):
        raise Working("busy")
    assert waits.answer("a", busy.value) == Pending(1.0, "busy", withdrawn=is_left)


def test_an_address_to_which_nodes_lead_nothing_need_not_be_held() -> None:
    proxied = LoadBalancerIngress(ip="192.0.2.1", ip_mode="Proxy")
    service = objects.service("web", ingress=[proxied, LoadBalancerIngress(hostname="x.test")])
    assert not has_left(load_balancer_ref(service, ClusterIdentity("c", "uid")), ())
