"""Decide which gateway answers for which address, and what to do when two think it is them. Pure.

The addresses are cut into `SHARES`, neighbours into different ones. For each share and each
interface there is one virtual router of VRRP (RFC 9568), which elects one gateway among those that
hear one another. A gateway's priority for a share is a hash of both (rendezvous hashing), so that
shares are spread over the gateways, whichever there are, and only those of a gateway that goes
move. Where the gateways are named, they take turns in having the highest priority, which spreads a
few addresses evenly, too; the hash says who comes next.

keepalived is the program that speaks VRRP. While it is master for a share it has an address on
the loopback that stands for it (127.118.INTERFACE.SHARE): so the kernel says what this gateway
holds, to a new process, too, and after whatever was missed.

Gateways that do not hear one another, in a network that is split, all become master. They tell
each other by notes on a board at the API server; `withheld` says who gives way.
"""

import hashlib
import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

SHARES: Final = 64
"""How many parts the addresses are cut into: many more than there are gateways."""

Share = tuple[str, int]
"""A share on an interface."""
Announcement = tuple[str, str]
"""An address, and an interface to announce it on."""

_FIRST_OCTETS: Final = "127.118"
_HIGHEST_PRIORITY: Final = 254  # 255 is for a router that owns the address
_SHOWN: Final = 20
_SURE: Final = 3
_NUMBERS: Final = {str(one): one for one in range(SHARES)}
HANDICAP: Final = -253
"""What is added to the priorities of a gateway that is not fit: one that is, comes first."""


class Holding(msgspec.Struct, frozen=True):
    """What this gateway may announce.

    Attributes:
        shares: The shares of addresses that VRRP gives it.
        withheld: The shares that VRRP gives it, but that it leaves to another gateway.
        settled: Whether VRRP has had the time to distribute the shares; until then, what is
            announced stays announced.
        heard: Whether other gateways have heard of this one lately; if not, it must fall silent.
    """

    shares: frozenset[Share] = frozenset()
    withheld: frozenset[Share] = frozenset()
    settled: bool = True
    heard: bool = True


class Note(msgspec.Struct, frozen=True):
    """A gateway's note to the others.

    Attributes:
        number: The number of this note, counted by its gateway.
        claims: The shares that VRRP gives the gateway, each with the number of the note that first
            said so.
        seen: The numbers of the others' notes that were known when this one was written.
        reaches: Whether any node answers this gateway.
        addresses: The first of the addresses that it announces.
        more: How many addresses it announces besides those in `addresses`.
        named: The names of all gateways in this gateway's cloud-config.
        at: When the note was written, as Unix time; only for people to read.
        by: A word of the process that has written the note, which no other has.
    """

    number: int = 0
    claims: Mapping[str, int] = MappingProxyType({})
    seen: Mapping[str, int] = MappingProxyType({})
    reaches: bool = True
    addresses: tuple[str, ...] = ()
    more: int = 0
    named: tuple[str, ...] = ()
    at: float = 0.0
    by: str = ""


class Namesake(msgspec.Struct, frozen=True):
    """What is known of another process that posts its notes under this gateway's name.

    Attributes:
        number: The number of its last note.
        notes: How many of its notes have taken the place of ours.
        at: When the last one did, on the clock of `namesake`.
    """

    number: int = 0
    notes: int = 0
    at: float = 0.0

    @property
    def is_there(self) -> bool:
        """Whether it is another one for sure, and not the last process, which was about to end."""
        return self.notes >= _SURE


class Fitness(msgspec.Struct, frozen=True):
    """Whether this gateway is fit to have shares; since when not all nodes are silent, or None."""

    is_fit: bool = True
    since: float | None = None


def fitness(
    before: Fitness, silent: int, asked: int, now: float, patience: float, *, is_idle: bool = False
) -> Fitness:
    """Return whether a gateway is fit after answers to `asked` checks, of which some were silent.

    One to which no node answers is not: it is its own network that is broken, or another gateway
    may reach them. It is fit again when all answer, or some have for `patience` seconds, so that
    all have been asked again: a node that it takes for dead would lose its connections. One that
    announces nothing, such as `is_idle` with its cable out, has to wait so for any silent node.
    """
    if asked and silent == asked:
        return Fitness(is_fit=False)
    if not silent or (before.is_fit and not is_idle):
        return Fitness()
    since = now if before.since is None else before.since
    return Fitness(is_fit=now - since >= patience, since=since)


def share_of(address: str) -> int:
    """Return the number of the share that an address is in, the same on every gateway."""
    return int(ipaddress.ip_address(address)) % SHARES


def priority(gateway: str, share: int, named: Sequence[str] = ()) -> int:
    """Return a gateway's priority for a share: from 1 to 254, the highest one has it.

    `named` are all gateways, in the same order on each, or none.
    """
    if named and named[share % len(named)] == gateway:
        return _HIGHEST_PRIORITY
    digest = hashlib.sha256(f"{share}/{gateway}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % (_HIGHEST_PRIORITY - 1) + 1


def standing_for(place: int, share: int) -> str:
    """Return the address on the loopback that says that a share is held."""
    return f"{_FIRST_OCTETS}.{place}.{share + 1}"


def held(addresses: Iterable[str], interfaces: Sequence[str]) -> frozenset[Share]:
    """Return the shares that are held on `interfaces` by the machine's own addresses."""
    signs = {
        standing_for(place, share): (interface, share)
        for place, interface in enumerate(interfaces)
        for share in range(SHARES)
    }
    return frozenset(signs[one] for one in addresses if one in signs)


def announced(
    wanted: Collection[Announcement], before: Collection[Announcement], holding: Holding
) -> frozenset[Announcement]:
    """Return what of `wanted` this gateway announces, if it has announced `before`."""
    free = holding.shares - holding.withheld
    return frozenset(
        (address, interface)
        for address, interface in wanted
        if (interface, share_of(address)) in free
        or (not holding.settled and (address, interface) in before)
    )


def configuration(
    gateway: str,
    interfaces: Sequence[str],
    *,
    first_router: int,
    interval: float,
    handicap: str,
    farewell: str,
    named: Sequence[str] = (),
) -> str:
    """Return keepalived's configuration file.

    The names in it are checked ones; `interval` is in seconds, `named` as in `priority`. The
    file `handicap` holds a number that is added to all priorities; the script `farewell` runs when
    keepalived ends.
    """
    return "\n".join(
        [
            "global_defs {",
            f"    router_id {gateway}",
            "    vrrp_version 3",
            "    script_user root",
            "    enable_script_security",
            f'    shutdown_script "{farewell}"',
            # It raises its own priority when it finds that it was called late.
            "    max_auto_priority 20",
            "}",
            "track_file handicap {",
            f'    file "{handicap}"',
            "    weight 1",
            "}",
            *(
                line
                for place, interface in enumerate(interfaces)
                for share in range(SHARES)
                for line in (
                    f"vrrp_instance {interface}/{share} {{",
                    "    state BACKUP",
                    f"    interface {interface}",
                    f"    virtual_router_id {first_router + share}",
                    f"    priority {priority(gateway, share, named)}",
                    f"    advert_int {interval:g}",
                    "    track_file {",
                    "        handicap",
                    "    }",
                    "    virtual_ipaddress {",
                    f"        {standing_for(place, share)}/32 dev lo",
                    "    }",
                    "}",
                )
            ),
            "",
        ]
    )


def farewell(protocol: int, others: str) -> str:
    """Return the script that has this machine's kernel answer no more, if others do.

    Without the script two gateways would answer: the kernel goes on when the manager has been
    killed, which takes keepalived with it. While the file `others` does not exist, this gateway is
    alone, and goes on.
    """
    flush = "neigh flush proxy protocol"
    return (
        "#!/bin/sh\n"
        f"test -e '{others}' || exit 0\n"
        f"ip {flush} {protocol}\n"
        f"ip -6 {flush} {protocol}\n"
    )


def key(share: Share) -> str:
    """Return the name of a share in notes."""
    return f"{share[0]}/{share[1]}"


def noted(
    before: Note,
    shares: Collection[Share],
    seen: Mapping[str, int],
    *,
    reaches: bool,
    addresses: Collection[str],
) -> Note:
    """Return the next note of a gateway: what it holds now, and what it has seen of others."""
    number = before.number + 1
    shown = sorted(addresses)
    return Note(
        number=number,
        claims={key(one): before.claims.get(key(one), number) for one in sorted(shares)},
        seen=dict(seen),
        reaches=reaches,
        addresses=tuple(shown[:_SHOWN]),
        more=max(0, len(shown) - _SHOWN),
        named=before.named,
        by=before.by,
    )


def namesake(
    before: Namesake, own: Note, shown: Note | None, now: float, lifetime: float
) -> Namesake:
    """Return what is known of a namesake, by what the board shows under this gateway's name.

    Args:
        before: What was known.
        own: The last note that has been posted; its number is 0 if there is none yet.
        shown: The note on the board; None if there is none that can be read.
        now: The time in seconds.
        lifetime: The seconds after which one that posts nothing is forgotten.
    """
    if shown is not None and shown.by != own.by and shown.number != before.number:
        # Until ours was there, it may be what the last process has left.
        return Namesake(shown.number, before.notes + 1 if own.number else 0, now)
    return before if now - before.at < lifetime else Namesake(before.number)


def is_news(before: Note, after: Note, others: Mapping[str, Note]) -> bool:
    """Tell whether the others should read a note at once.

    They should if it says other things than the last one, but for what it has seen: that is only
    of interest to those who claim the same and do not know yet that it is known.
    """
    same = msgspec.structs.replace(after, number=before.number, seen=before.seen) == before
    return not same or any(
        before.seen.get(name, 0) < other.claims[one]
        for name, other in others.items()
        for one in other.claims.keys() & after.claims.keys()
    )


def withheld(
    gateway: str, own: Note, others: Mapping[str, Note], shares: Collection[Share]
) -> frozenset[Share]:
    """Return the shares that a gateway leaves to others, although VRRP gives them to it.

    Another gateway is known to have a share, too, if it goes on claiming it in a note that was
    written with ours in view: so it is neither dead nor about to learn of us by VRRP. Of the two,
    the one stays that reaches any node, or else has the higher priority.

    Args:
        gateway: The name of this gateway.
        own: The last note of this gateway.
        others: The notes of the gateways that are alive, by name.
        shares: The shares that VRRP gives this gateway.
    """
    return frozenset(
        share
        for share in shares
        for name, other in others.items()
        if key(share) in own.claims
        and key(share) in other.claims
        and other.seen.get(gateway, 0) >= own.claims[key(share)]
        and _rank(name, other, share) > _rank(gateway, own, share)
    )


def _rank(gateway: str, note: Note, share: Share) -> tuple[bool, int, str]:
    return note.reaches, priority(gateway, share[1], note.named), gateway


def _share_in(text: str) -> Share | None:
    """Return the share of a name in notes; None if the name is unknown, as of another version."""
    interface, _, number = text.rpartition("/")
    return (interface, _NUMBERS[number]) if number in _NUMBERS else None


def owners(addresses: Iterable[str], notes: Mapping[str, Note], own: str) -> dict[str, str]:
    """Return the names of the gateways that answer for addresses, by the address.

    Several are named if an address has one on each interface. An address that nobody claims is
    left out. Of two that claim it, a dead one may be the other, whose note is still there; so it
    is the gateway `own`, which asks, if it is one of them. A claim that names no share is none.
    """
    winners: dict[Share, tuple[tuple[bool, bool, int, str], str]] = {}
    for name, note in notes.items():
        for share in filter(None, map(_share_in, note.claims)):
            claim = ((name == own, *_rank(name, note, share)), name)
            winners[share] = max(winners.get(share, claim), claim)
    by_share: dict[int, set[str]] = {}
    for (_, number), (_, name) in winners.items():
        by_share.setdefault(number, set()).add(name)
    found = {address: by_share.get(share_of(address), set()) for address in addresses}
    return {address: " and ".join(sorted(names)) for address, names in found.items() if names}
