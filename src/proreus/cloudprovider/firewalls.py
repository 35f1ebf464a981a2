"""Compare the rules of firewalls and security groups, and change them without a gap.

    diff = diff_rules(desired, observed)
    await change_rules(diff, self._grant, self._revoke, {"RuleExists": RuleRefusal.DONE})
    meanings = {"GroupInUse": RuleRefusal.IN_USE}
    if reason := await delete_group(self._delete_group, meanings, f"security group {id_}"):
        return Pending(1.0, reason)

A cloud's own value for a rule is all that this needs: a Struct of ports and source, a document with
an id, or the whole of a numbered rule. `grant` and `revoke` take several rules in one call, or call
once for each. Others change the same groups: what the codes of a refusal mean, the provider says.
"""

from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from enum import Enum, auto
from typing import Generic, TypeVar

import msgspec

from proreus.cloudprovider.load_balancers import PartChange
from proreus.cloudprovider.refused import Refused

Rule = TypeVar("Rule")
Observed = TypeVar("Observed")


class RuleDiff(msgspec.Struct, Generic[Rule, Observed], frozen=True):
    """The diff of a group's desired and observed rules; false if they are equal.

    Attributes:
        grant: Rules that are missing.
        revoke: Rules that nobody needs, in the form in which they were observed.
    """

    grant: tuple[Rule, ...] = ()
    revoke: tuple[Observed, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether any rule is to be granted or revoked."""
        return bool(self.grant or self.revoke)

    def lines(
        self,
        part: str,
        granted: Callable[[Rule], str],
        revoked: Callable[[Observed], str],
    ) -> Iterator[PartChange]:
        """Return the changes of the rules of `part` for `proreus plan`, each rule in words."""
        yield from (PartChange("create", part, granted(rule)) for rule in self.grant)
        yield from (PartChange("delete", part, revoked(rule)) for rule in self.revoke)


class RuleRefusal(Enum):
    """The meaning of a cloud's refusal to change rules or to delete a group."""

    DONE = auto()
    """Somebody has done it already: the rule is there, or gone; the group is gone."""
    FULL = auto()
    """There is no room for another rule."""
    IN_USE = auto()
    """Something has the group, such as a load balancer that is going."""


def diff_rules(
    desired: Iterable[Rule],
    observed: Iterable[Observed],
    *,
    key: Callable[[Rule], Hashable] = lambda rule: rule,
    read: Callable[[Observed], Hashable | None],
    mine: Callable[[Observed], bool] = lambda _: True,
) -> RuleDiff[Rule, Observed]:
    """Return the rules that a group lacks, and those that it should not have. Pure.

    Each desired rule is kept once; what is too much is revoked, in the order in which it was
    observed. Where several Services share a group, `mine` keeps the others' rules.

    Args:
        desired: The rules of all load balancers that the group is for.
        observed: The rules that the group has.
        key: Returns the key by which the cloud takes two rules for one, whatever else differs.
        read: Returns the key of an observed rule; None if no rule like it can be desired.
        mine: Tells whether an observed rule may be revoked.
    """
    by_key = {key(rule): rule for rule in desired}
    kept: set[Hashable] = set()
    revoke = []
    for current in observed:
        is_needed = (found := read(current)) in by_key and found not in kept
        kept.add(found)
        if not is_needed and mine(current):
            revoke.append(current)
    grant = (rule for found, rule in by_key.items() if found not in kept)
    return RuleDiff(tuple(grant), tuple(revoke))


def free_numbers(first: int, last: int, taken: Collection[int]) -> Iterator[int]:
    """Return the numbers that new rules can have, where each has one, such as a priority. Pure.

    Numbers of rules that are about to be revoked are still taken: those rules are revoked last.
    """
    return (number for number in range(first, last + 1) if number not in taken)


async def change_rules(
    diff: RuleDiff[Rule, Observed],
    grant: Callable[[Sequence[Rule]], Awaitable[object]],
    revoke: Callable[[Sequence[Observed]], Awaitable[object]],
    meanings: Mapping[str, RuleRefusal],
) -> bool:
    """Change the rules of a group; return whether they were as observed until then.

    What is missing comes first, so that nobody is locked out in between, unless there is no room
    for both. Where somebody has done some of a call already, its rules go one by one.

    Raises:
        CloudError: The cloud refuses a rule, or does not answer.
    """
    try:
        is_granted = await _each(grant, diff.grant, meanings)
    except Refused as error:
        if meanings.get(error.code) is not RuleRefusal.FULL or not diff.revoke:
            raise
        is_revoked = await _each(revoke, diff.revoke, meanings)
        return await _each(grant, diff.grant, meanings) and is_revoked
    return await _each(revoke, diff.revoke, meanings) and is_granted


async def delete_group(
    delete: Callable[[], Awaitable[object]], meanings: Mapping[str, RuleRefusal], group: str
) -> str:
    """Delete a group; return the reason to wait, as a `Pending` gives it, or "" if it is gone.

    Raises:
        CloudError: The cloud refuses for another reason, or does not answer.
    """
    try:
        await delete()
    except Refused as error:
        match meanings.get(error.code):
            case RuleRefusal.IN_USE:
                return f"{group} is still in use"
            case RuleRefusal.DONE:
                return ""
        raise
    return ""


async def _each(
    change: Callable[[Sequence[Rule]], Awaitable[object]],
    rules: Collection[Rule],
    meanings: Mapping[str, RuleRefusal],
) -> bool:
    """Change rules in one call, or one by one; return whether none of it had been done before."""
    if not rules:
        return True
    try:
        await change(tuple(rules))
    except Refused as error:
        if meanings.get(error.code) is not RuleRefusal.DONE:
            raise
        for rule in rules if len(rules) > 1 else ():
            await _each(change, (rule,), meanings)
        return False
    return True
