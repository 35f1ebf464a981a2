"""What is broken while specs run, and whose fault it is that a request was lost."""

import datetime as dt
import itertools

from labs.cluster.chaos import (
    END,
    KILL,
    LEAVE,
    MINUTE,
    PLUG,
    PULL,
    RETURN,
    SILENCE,
    UNAVOIDABLE,
    Act,
    judge,
    plan,
    report,
)
from labs.cluster.network import route_commands

NOON = dt.datetime(2026, 11, 23, 12).astimezone().timestamp()
LOST = (
    "I1123 12:{:02}:{:02}.500000 4242 loadbalancer.go:1371] Got error testing for reachability of"
    " http://10.80.0.200:80/echo?msg=hello: context deadline exceeded"
)


def first_hour() -> list[Act]:
    return list(itertools.takewhile(lambda act: act.at <= 60 * MINUTE, plan()))


def test_a_manager_is_killed_every_minute() -> None:
    kills = [act.at for act in first_hour() if act.what == KILL]

    assert kills == [number * MINUTE for number in range(1, 61)]


def test_the_addresses_change_gateways_every_three_minutes_each_way_in_turn() -> None:
    changes = [act for act in first_hour() if act.what in {END, PULL}]

    assert {act.what for act in changes[::2]} == {END}
    assert {act.what for act in changes[1::2]} == {PULL}
    assert {b.at - a.at for a, b in itertools.pairwise(changes)} == {3 * MINUTE}


def test_whatever_goes_comes_back_after_a_minute_and_before_it_goes_again() -> None:
    for away, back in (((PULL,), PLUG), ((SILENCE, LEAVE), RETURN)):
        acts = [act for act in first_hour() if act.what in {*away, back}]

        assert all(act.what in away for act in acts[::2])
        assert {b.what for b in acts[1::2]} == {back}
        assert {b.at - a.at for a, b in zip(acts[::2], acts[1::2], strict=False)} == {MINUTE}


def test_what_is_lost_is_nobodys_fault_only_after_the_act_that_took_its_way() -> None:
    done = [
        Act(NOON, KILL, "gateway-a"),
        Act(NOON + 60, PULL, "gateway-b"),
        Act(NOON + 120, PLUG, "gateway-b"),
        Act(NOON + 180, SILENCE, "node-3"),
    ]
    log = "\n".join(
        [
            "I1123 12:01:10.500000 4242 loadbalancer.go:1] Something else: no error",
            LOST.format(0, 30),  # a manager that is killed costs nothing
            LOST.format(1, 20),
            LOST.format(1, 30),
            LOST.format(2, 1),  # long after the other gateway has taken over
            LOST.format(3, 5),
            LOST.format(0, 59),  # before the cable was pulled
        ]
    )

    verdict = judge(done, log, 2026)

    assert verdict.unavoidable == {PULL: 2, SILENCE: 1, LEAVE: 0}
    assert [line.split(".")[0] for line in verdict.ours] == [
        "I1123 12:00:30",
        "I1123 12:02:01",
        "I1123 12:00:59",
    ]
    assert "(kill gateway-a 30 s before)" in verdict.ours[0]


def test_a_spec_that_fails_is_told_with_what_was_done_before() -> None:
    done = [Act(NOON, PULL, "gateway-a"), Act(NOON + 100, KILL, "gateway-b")]
    log = "  [FAILED] in [It] - k8s.io/kubernetes/test/e2e/x.go:1 @ 11/23/26 12:02:10.123"

    verdict = judge(done, log, 2026)

    assert verdict.failed == ["11/23/26 12:02:10 (kill gateway-b 30 s before)"]


def test_the_report_has_a_line_for_each_kind_of_act_and_for_each_loss_of_ours() -> None:
    done = [Act(NOON, KILL, "gateway-a"), Act(NOON + 10, KILL, "gateway-b")]

    lines = report(done, judge(done, LOST.format(9, 0), 2026)).splitlines()

    assert "| the manager that leads is killed | 2 |  |" in lines
    assert "| the cable of its gateway is pulled | 0 | 0 |" in lines
    assert "| nothing of that, or none of it lately: our fault | | 1 |" in lines
    assert lines[-1].endswith("(nothing was done before)")


def test_only_acts_that_take_a_way_from_packets_are_an_excuse() -> None:
    assert set(UNAVOIDABLE) == {PULL, SILENCE, LEAVE}


def test_pods_of_a_node_are_reached_by_its_address_of_their_family() -> None:
    commands = list(route_commands(["10.82.1.0/24", "fd80:82::/64"], ["10.80.0.11", "fd80:80::11"]))

    assert [(command[3], command[5]) for command in commands] == [
        ("10.82.1.0/24", "10.80.0.11"),
        ("fd80:82::/64", "fd80:80::11"),
    ]
