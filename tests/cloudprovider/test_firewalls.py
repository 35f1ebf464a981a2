"""Rules of firewalls: the difference as a table, and the order in which a cloud is told of it."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider import PartChange, Refused, RuleDiff, RuleRefusal
from proreus.cloudprovider.firewalls import change_rules, delete_group, diff_rules, free_numbers

MEANINGS = {
    "Exists": RuleRefusal.DONE,
    "Gone": RuleRefusal.DONE,
    "Full": RuleRefusal.FULL,
    "InUse": RuleRefusal.IN_USE,
}

OBSERVED = {"r1": "web", "r2": "dns", "r3": "web", "r4": None, "mine": "old"}
"""Rules by the id that the cloud gives them; None is one of a form that nobody desires."""

DIFFS = {
    "as desired": (("web", "dns"), ("r1", "r2"), (), ()),
    "nothing there": (("web", "dns"), (), ("web", "dns"), ()),
    "nothing desired": ((), ("r2", "r1"), (), ("r2", "r1")),
    "a second of the same": (("web",), ("r1", "r3"), (), ("r3",)),
    "of another form": (("web",), ("r4", "r1"), (), ("r4",)),
    "others' rules stay": (("ssh",), ("r1", "mine"), ("ssh",), ("mine",)),
}


@pytest.mark.parametrize("case", DIFFS)
def test_what_differs(case: str) -> None:
    desired, observed, grant, revoke = DIFFS[case]
    shared = case == "others' rules stay"
    diff = diff_rules(
        desired, observed, read=OBSERVED.__getitem__, mine=lambda id_: not shared or id_ == "mine"
    )
    assert (diff.grant, diff.revoke) == (grant, revoke)
    assert bool(diff) == bool(grant or revoke)


def test_what_the_cloud_takes_for_one_rule_is_granted_once() -> None:
    diff = diff_rules(["web: old", "web: new", "dns"], ["dns: other"], key=port, read=port)
    assert diff == RuleDiff(("web: new",))


def port(rule: str) -> str:
    return rule.partition(":")[0]


@given(st.lists(st.sampled_from("abcd")), st.lists(st.sampled_from("abcd")))
def test_after_a_change_nothing_differs(desired: list[str], observed: list[str]) -> None:
    diff = diff_rules(desired, observed, read=str)
    after = list(observed)
    for one in diff.revoke:
        after.remove(one)
    after += diff.grant
    assert sorted(after) == sorted(set(desired))
    assert not diff_rules(desired, after, read=str)


def test_a_difference_is_reported_in_lines() -> None:
    diff = RuleDiff(("web",), ("r1",))
    assert list(diff.lines("rule", str.upper, str)) == [
        PartChange("create", "rule", "WEB"),
        PartChange("delete", "rule", "r1"),
    ]


def test_new_rules_get_numbers_that_no_rule_has() -> None:
    assert list(free_numbers(100, 104, {100, 102, 7})) == [101, 103, 104]
    assert list(free_numbers(100, 101, {100, 101})) == []


class Group:
    """A group of a cloud that takes all rules of a call, or none."""

    def __init__(self, rules: set[str], room: int) -> None:
        self.rules = rules
        self.room = room
        self.calls: list[str] = []

    async def grant(self, rules: Sequence[str]) -> None:
        self.calls.append(f"+{''.join(rules)}")
        if self.rules & set(rules):
            raise refused("Exists")
        if len(self.rules) + len(rules) > self.room:
            raise refused("Full")
        self.rules |= set(rules)

    async def revoke(self, rules: Sequence[str]) -> None:
        self.calls.append(f"-{''.join(rules)}")
        if not self.rules >= set(rules):
            raise refused("Gone")
        self.rules -= set(rules)


def refused(code: str) -> Refused:
    return Refused("fw.call: refused", status=409, code=code)


CHANGES = {
    "nothing to do": ("ab", 9, "", "", [], True),
    "grant before revoke": ("ab", 9, "c", "a", ["+c", "-a"], True),
    "no room for both": ("ab", 2, "c", "a", ["+c", "-a", "+c"], True),
    "somebody has granted one": ("abc", 9, "cd", "a", ["+cd", "+c", "+d", "-a"], False),
    "somebody has granted it": ("abc", 9, "c", "a", ["+c", "-a"], False),
    "somebody has revoked one": ("ab", 9, "c", "ax", ["+c", "-ax", "-a", "-x"], False),
    "no room, and one revoked": ("ab", 2, "c", "ax", ["+c", "-ax", "-a", "-x", "+c"], False),
}


@pytest.mark.parametrize("case", CHANGES)
def test_the_order_of_a_change(case: str) -> None:
    there, room, grant, revoke, calls, as_observed = CHANGES[case]
    group = Group(set(there), room)
    diff = RuleDiff(tuple(grant), tuple(revoke))
    told = asyncio.run(change_rules(diff, group.grant, group.revoke, MEANINGS))
    assert (group.calls, told) == (calls, as_observed)
    assert group.rules == (set(there) | set(grant)) - set(revoke)


@pytest.mark.parametrize(("room", "revoke"), [(2, ""), (1, "a")])
def test_what_has_no_room_at_all_is_an_error(room: int, revoke: str) -> None:
    group = Group({"a", "b"}, room)
    with pytest.raises(Refused):
        asyncio.run(
            change_rules(RuleDiff(("c",), tuple(revoke)), group.grant, group.revoke, MEANINGS)
        )
    assert group.rules == {"a", "b"} - set(revoke)


DELETIONS = {"": "", "Gone": "", "InUse": "group g is still in use"}


@pytest.mark.parametrize("code", DELETIONS)
def test_a_group_in_use_is_waited_for(code: str) -> None:
    assert asyncio.run(deleted(code)) == DELETIONS[code]


@pytest.mark.parametrize("code", ["Full", "Other"])
def test_a_group_that_cannot_be_deleted_is_an_error(code: str) -> None:
    with pytest.raises(Refused):
        asyncio.run(deleted(code))


async def deleted(code: str) -> str:
    async def delete() -> None:
        if code:
            raise refused(code)

    return await delete_group(delete, MEANINGS, "group g")
