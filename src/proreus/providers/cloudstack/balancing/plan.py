"""Plan the steps that make a load balancer of CloudStack as desired, or delete it.

Each round holds steps that need not wait for one another; the next round is planned from what there
is then.

* An address that is to be acquired is claimed first, by a tag on the network: so one that was
  acquired by a process which ended before it could mark it is known to be the Service's. The claim
  goes once the address is marked, and before it is released.
* What is not desired goes before what is missing comes, since a port of an address has one rule.
  A rule is closed before it goes: while it is there it proves whose its firewall rule is. One whose
  deletion has begun proves nothing: another Service may have its port.
* What CloudStack cannot change is made anew: another node port, and sources before 4.22.
* A stickiness policy with another time is made anew, too; the algorithm serves meanwhile.
* A changed list of sources is opened before the old one is closed, unless they overlap, which
  CloudStack refuses.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from proreus.providers.cloudstack.balancing.parts import (
    Address,
    Desired,
    Key,
    Observed,
    Opening,
    Rule,
)


class Wait(msgspec.Struct, frozen=True):
    """The result that CloudStack has first to finish the deletion of a rule with the same port."""

    rule: str


class Claim(msgspec.Struct, frozen=True):
    """The step to write on the network which address is about to be acquired."""

    network: str
    ip: str


class Unclaim(msgspec.Struct, frozen=True):
    """The step to remove the note of the address to acquire from the network."""

    network: str


class Acquire(msgspec.Struct, frozen=True):
    """The step to acquire a public address: `ip`, or any if that is ""."""

    ip: str


class MarkAddress(msgspec.Struct, frozen=True):
    """The step to put the Service's marks on an address."""

    id: str


class Release(msgspec.Struct, frozen=True):
    """The step to release an address."""

    id: str


class HandOver(msgspec.Struct, frozen=True):
    """The step to leave an address to others who use it, with their marks in place of ours."""

    id: str


class MakeRule(msgspec.Struct, frozen=True):
    """The step to make a rule, without machines."""

    desired: Rule


class ChangeRule(msgspec.Struct, frozen=True):
    """The step to change fields of a rule, by CloudStack's names."""

    id: str
    fields: Mapping[str, str]
    desired: Rule


class DropRule(msgspec.Struct, frozen=True):
    """The step to delete a rule."""

    id: str


class MarkRules(msgspec.Struct, frozen=True):
    """The step to put the Service's marks on rules that the official manager has made."""

    ids: tuple[str, ...]


class Assign(msgspec.Struct, frozen=True):
    """The step to assign machines to a load balancer rule."""

    rule: str
    machines: tuple[str, ...]


class Unassign(msgspec.Struct, frozen=True):
    """The step to remove machines from a load balancer rule."""

    rule: str
    machines: tuple[str, ...]


class Stick(msgspec.Struct, frozen=True):
    """The step to bind clients to machines for a number of seconds after their last connection."""

    rule: str
    seconds: int


class Unstick(msgspec.Struct, frozen=True):
    """The step to delete a stickiness policy."""

    id: str


class Open(msgspec.Struct, frozen=True):
    """The step to let clients reach a port: in an access list, or else in the firewall."""

    key: Key
    cidrs: frozenset[str]
    acl: str = ""


class Close(msgspec.Struct, frozen=True):
    """The step to delete a rule of an access list or of the firewall."""

    id: str
    in_acl: bool


Step = (
    Wait
    | Claim
    | Unclaim
    | Acquire
    | MarkAddress
    | Release
    | HandOver
    | MakeRule
    | ChangeRule
    | DropRule
    | MarkRules
    | Assign
    | Unassign
    | Stick
    | Unstick
    | Open
    | Close
)


def plan(desired: Desired, observed: Observed) -> tuple[Step, ...]:
    """Return the next steps; none if all is as desired."""
    address = observed.address
    if address is None or not address.id:
        return (_acquisition(desired, address, observed.claim),)
    surplus = [one for one in observed.rules if not _can_stay(one, desired, address)]
    for decided in (
        tuple(_marks(address, observed)),
        _farewell(surplus, desired, observed, address),
        tuple(_unstick(desired, observed)),
        tuple(_rules(desired, observed, address)),
        tuple(_details(desired, observed)),
    ):
        if decided:
            return decided
    return tuple(_departure(one) for one in observed.spare)


def deletion(observed: Observed, network: str) -> tuple[Step, ...]:
    """Return the next steps to delete a load balancer; none if it is gone.

    Args:
        observed: The observed state; its openings are only those for the load balancer's rules, its
            items only the Service's.
        network: The id of the network with the Service's claim, or "".
    """
    address = observed.address
    if address is not None and address.is_adopted and not address.is_ours:
        # Once the rules are gone nothing would prove whose it is.
        return (MarkAddress(address.id),)
    if unmarked := tuple(MarkAddress(one.id) for one in observed.spare if not one.is_ours):
        return unmarked
    if observed.claim and network:
        # It would prove that the address is the Service's once that is somebody else's.
        return (Unclaim(network),)
    closed = (
        *(Close(one.id, in_acl=False) for one in observed.openings),
        *(Close(one.id, in_acl=True) for one in observed.items if one.is_ours),
    )
    if closed:
        return closed
    if observed.rules:
        return tuple(Wait(one.id) if one.is_going else DropRule(one.id) for one in observed.rules)
    last = (address,) if address is not None and address.is_ours else ()
    return tuple(_departure(one) for one in (*observed.spare, *last))


def _acquisition(desired: Desired, address: Address | None, claim: str) -> Step:
    """Return the next step towards an address; a free one is claimed first, then acquired."""
    ip = address.ip if address is not None else ""
    if not ip or claim == ip:
        return Acquire(ip)
    return Unclaim(desired.network.id) if claim else Claim(desired.network.id, ip)


def _departure(address: Address) -> Step:
    return HandOver(address.id) if address.is_shared else Release(address.id)


def _can_stay(rule: Rule, desired: Desired, address: Address) -> bool:
    """Tell whether a rule can be as desired without being made anew."""
    wanted = {one.key: one for one in desired.rules}.get(rule.key)
    if wanted is None or rule.is_going:
        return False
    there = rule.address, rule.network, rule.node_port
    if there != (address.id, desired.network.id, wanted.node_port):
        return False
    return desired.can_change_sources or rule.cidrs == wanted.cidrs


def _farewell(
    surplus: Sequence[Rule], desired: Desired, observed: Observed, address: Address
) -> tuple[Step, ...]:
    """Close and delete rules that are not desired, or that keep a desired one from being made.

    Rules that are made anew at once stay open meanwhile.
    """
    needed = {one.key for one in desired.rules}
    keys = {one.key for one in surplus} - needed
    # The openings are those of the address that stays, which other Services may share.
    rules = (one for one in surplus if one.address == address.id and not one.is_going)
    here = {one.key for one in rules} - needed
    closed = (
        *(Close(one.id, in_acl=False) for one in observed.openings if one.key in here),
        *(Close(one.id, in_acl=True) for one in observed.items if one.key in keys and one.is_ours),
    )
    if closed:
        return closed
    return tuple(Wait(one.id) if one.is_going else DropRule(one.id) for one in surplus)


def _marks(address: Address, observed: Observed) -> Iterator[Step]:
    """Mark the Service's objects.

    The address is marked before the rules: while these are unmarked, they prove whose it is. One
    that was acquired for the Service is marked before there are rules; with rules and no mark it is
    somebody else's, also while a claim from before could not be removed.
    """
    is_claimed = bool(observed.claim) and observed.claim == address.ip
    is_acquired = is_claimed and not (address.is_shared or observed.rules)
    if (is_acquired or address.is_adopted) and not address.is_ours:
        yield MarkAddress(address.id)
        return
    unmarked = tuple(one.id for one in observed.rules if not one.is_marked)
    if unmarked:
        yield MarkRules(unmarked)


def _unstick(desired: Desired, observed: Observed) -> Iterator[Step]:
    """Delete stickiness policies of ours that are not desired: CloudStack cannot change them.

    They are deleted before the algorithm of their rule is changed, since policies are looked for by
    that algorithm.
    """
    for rule in observed.rules:
        for one in rule.policies:
            if one.is_ours and one.seconds != desired.affinity_seconds:
                yield Unstick(one.id)


def _rules(desired: Desired, observed: Observed, address: Address) -> Iterator[Step]:
    there = {one.key: one for one in observed.rules}
    for wanted in desired.rules:
        found = there.get(wanted.key)
        if found is None:
            yield MakeRule(msgspec.structs.replace(wanted, address=address.id))
        elif changed := _differing(wanted, found):
            yield ChangeRule(found.id, changed, wanted)
    if observed.claim:
        yield Unclaim(desired.network.id)


def _differing(wanted: Rule, found: Rule) -> dict[str, str]:
    fields = {
        "name": (wanted.name, found.name),
        "algorithm": (wanted.algorithm, found.algorithm),
        "protocol": (wanted.protocol, found.protocol),
        "cidrlist": (sources(wanted.cidrs), sources(found.cidrs)),
    }
    return {name: new for name, (new, old) in fields.items() if new != old}


def sources(cidrs: Iterable[str]) -> str:
    """Return source CIDRs in one text, as CloudStack takes them."""
    return ",".join(sorted(cidrs))


def _details(desired: Desired, observed: Observed) -> Iterator[Step]:
    """Plan the machines of rules, their stickiness, and the openings for clients.

    A rule has one policy: a policy that others have made is left alone, and takes the place of
    ours.
    """
    for rule in observed.rules:
        if new := desired.members - rule.members:
            yield Assign(rule.id, tuple(sorted(new)))
        if old := rule.members - desired.members - desired.unseen:
            yield Unassign(rule.id, tuple(sorted(old)))
        if desired.affinity_seconds is not None and not rule.policies:
            yield Stick(rule.id, desired.affinity_seconds)
    for wanted in desired.rules:
        if desired.network.has_firewall:
            yield from _openings(wanted.key, desired.sources, observed.openings, "")
        elif desired.network.acl:
            yield from _openings(wanted.key, desired.sources, observed.items, desired.network.acl)


def _openings(
    key: Key, cidrs: frozenset[str], there: Iterable[Opening], acl: str
) -> Iterator[Step]:
    """Plan the openings of a port for exactly these sources.

    In an access list, what others have opened is left alone, and suffices if it is the same.
    """
    of_key = [one for one in there if one.key == key]
    fitting = [one for one in of_key if one.cidrs == cidrs]
    kept = next((one for one in fitting if one.is_ours), fitting[0] if fitting else None)
    surplus = [one for one in of_key if one.is_ours and one is not kept]
    is_missing = kept is None and bool(cidrs)
    overlaps = [one for one in surplus if not acl and one.cidrs & cidrs]
    if is_missing and not overlaps:
        yield Open(key, cidrs, acl)
        return
    for one in overlaps if is_missing else surplus:
        yield Close(one.id, in_acl=bool(acl))
