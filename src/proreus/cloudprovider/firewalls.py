"""Rules of firewalls and security groups: what differs, and how it is changed without a gap.

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
    """What is to be done to the rules of a group; false if there is nothing.

    Attributes:
        grant: Rules that are missing.
        revoke: Rules that nobody needs, as they were observed.
    """

    grant: tuple[Rule, ...] = ()
    revoke: tuple[Observed, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether there is something to do."""
        return bool(self.grant or self.revoke)

    def lines(
        self,
        part: str,
        granted: Callable[[Rule], str],
        revoked: Callable[[Observed], str],
    ) -> Iterator[PartChange]:
        """Say for `proreus plan` what is done to the rules of `part`, each in words."""
        yield from (PartChange("create", part, granted(one)) for one in self.grant)
        yield from (PartChange("delete", part, revoked(one)) for one in self.revoke)


class RuleRefusal(Enum):
    """What it means that a cloud refuses to change rules or to delete a group."""

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
    """Compare the rules that a group is to have with those that it has. Pure.

    Each desired rule is kept once; what is too much is revoked, in the order in which it was
    observed. Where several Services share a group, `mine` keeps the others' rules.

    Args:
        desired: The rules of all that the group is for.
        observed: Its rules.
        key: What makes two desired rules one to the cloud, whatever else differs.
        read: The same of an observed rule; None if it is none that can be desired.
        mine: Whether an observed rule may be revoked.
    """
    wanted = {key(rule): rule for rule in desired}
    kept: set[Hashable] = set()
    revoke = []
    for one in observed:
        is_needed = (found := read(one)) in wanted and found not in kept
        kept.add(found)
        if not is_needed and mine(one):
            revoke.append(one)
    grant = (rule for found, rule in wanted.items() if found not in kept)
    return RuleDiff(tuple(grant), tuple(revoke))


def free_numbers(first: int, last: int, taken: Collection[int]) -> Iterator[int]:
    """Count the numbers that new rules can have, where each has one, such as a priority. Pure.

    Numbers of rules that are about to be revoked are taken still: they go last.
    """
    return (number for number in range(first, last + 1) if number not in taken)


async def change_rules(
    diff: RuleDiff[Rule, Observed],
    grant: Callable[[Sequence[Rule]], Awaitable[object]],
    revoke: Callable[[Sequence[Observed]], Awaitable[object]],
    meanings: Mapping[str, RuleRefusal],
) -> bool:
    """Change the rules of a group; whether they were as observed until then.

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
    """Delete a group; what there is to wait for, for a `Pending`, or "".

    Raises:
        CloudError: The cloud refuses for another reason, or does not answer.
    """
    try:
        await delete()
    except Refused as error:
        match meanings.get(error.code):
            case RuleRefusal.IN_USE:
                return f"{group} is in use still"
            case RuleRefusal.DONE:
                return ""
        raise
    return ""


async def _each(
    change: Callable[[Sequence[Rule]], Awaitable[object]],
    rules: Collection[Rule],
    meanings: Mapping[str, RuleRefusal],
) -> bool:
    """Change rules in one call, or one by one; whether nobody else has done any of it."""
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
