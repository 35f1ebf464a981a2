"""Compare the configuration that FRR shows with the desired one. Pure.

FRR may be an operator's, too. Ours are the neighbors with our description, networks with our route
map, and what has a name that begins with ours; nothing else is changed or taken away, but four
settings of `router bgp` and two of zebra are made as they must be.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from proreus.providers.local.bgp.frr import ANNOUNCED, MARK, Line

_NOISE: Final = ("!", "exit", "exit-address-family")
_NEIGHBOR: Final = re.compile(r"(?:no )?neighbor (\S+) (.+)")
_ROUTER: Final = re.compile(r"router bgp (\d+)")
_APART: Final = re.compile(r"router bgp \S+ (?:vrf|view) ")
"""Instances of BGP that are none of ours: their neighbors may have the addresses of our own."""
_NAMED: Final = re.compile(rf"(?:ip|ipv6) prefix-list {MARK}-|route-map {MARK}-|profile {MARK}-")
_NETWORK: Final = re.compile(rf"network \S+ route-map {ANNOUNCED}")
_PREFIX: Final = re.compile(r"network (\S+)")
_SETTING: Final = re.compile(
    r"bgp router-id \S+|no bgp default ipv4-unicast|bgp graceful-restart preserve-fw-state"
    r"|no bgp network import-check|coalesce-time \d+|address-family \S+ \S+"
)
"""What of `router bgp` is made as it must be, and is in each instance that is ours."""
_VALUES: Final = re.compile(
    r"(?:ip|ipv6) prefix-list \S+ seq \d+"
    r"|(?:detect-multiplier|transmit-interval|receive-interval|minimum-ttl)"
    r"|(?:bgp router-id|coalesce-time)"
    r"|set (?:community|large-community|local-preference)"
    r"|match (?:ip|ipv6) address"
    r"|neighbor \S+ (?:remote-as|description|password|port|ebgp-multihop|bfd profile|timers connect"
    r"|timers)"
)
"""The beginnings of lines of which there is one, with a value, which another value replaces."""
_BFD_DEFAULTS: Final = {
    "detect-multiplier": 3,
    "transmit-interval": 300,
    "receive-interval": 300,
    "minimum-ttl": 254,
}
"""What a profile of BFD has where FRR shows nothing; there is no `no` for these."""
_KNOWN: Final = re.compile(
    r"remote-as|description|password|port|ebgp-multihop|bfd|timers|graceful-restart$|activate$"
    r"|route-map"
)
"""What of a neighbor is ours to take away."""
_ENTRY: Final = re.compile(r"(route-map \S+) (?:permit|deny) (\d+)")
_PASSWORD: Final = re.compile(r"( password )\S+")


class Edit(msgspec.Struct, frozen=True):
    """A command of FRR's configuration: the line, after those that it is within."""

    line: Line

    def __repr__(self) -> str:
        return f"Edit({self.text!r})"

    @property
    def text(self) -> str:
        """The command for people: without a password."""
        return hidden(" / ".join(self.line))


def hidden(text: str) -> str:
    """Return the text without passwords."""
    return _PASSWORD.sub(r"\1<hidden>", text)


def parse(text: str) -> tuple[Line, ...]:
    """Parse what `show running-config` shows, but for what is `_APART`."""
    found: list[Line] = []
    within: Line = ()
    for row in text.splitlines():
        line = row.strip()
        if not line or line.startswith("!") or line in _NOISE:
            continue
        within = (*within[: len(row) - len(row.lstrip())], line)
        if not _APART.match(within[0]):
            found.append(within)
    return tuple(found)


class Foreign(Exception):
    """The error that FRR has BGP of somebody else's where ours should be."""


def foreign(desired: Sequence[Line], running: Sequence[Line]) -> tuple[str, ...]:
    """Return the desired neighbors that somebody else has configured differently, in order.

    A neighbor that differs in nothing is ours: the process ended before it could say so.
    """
    wanted = set(desired)
    others = _neighbors_of(desired) & (_neighbors_of(running) - _our_neighbors(running))
    return tuple(
        one
        for one in sorted(others)
        if any(line not in wanted for line in running if _neighbors_of([line]) == {one})
    )


def foreign_networks(desired: Sequence[Line], running: Sequence[Line]) -> tuple[str, ...]:
    """Return the desired networks that somebody else has FRR announce, in order.

    FRR has one entry for a network, so ours would take the place of theirs, and go with it.
    """
    others = {_network_of(line) for line in running if not _NETWORK.fullmatch(line[-1])} - {()}
    return tuple(sorted({one[-1] for one in map(_network_of, desired) if one in others}))


def _network_of(line: Line) -> Line:
    """Return where a line announces which network; () for any other line."""
    match = _PREFIX.match(line[-1]) if len(line) > 1 else None
    return (*line[:-1], match[1]) if match is not None else ()


def edits(
    desired: Sequence[Line], running: Sequence[Line], held: frozenset[str] = frozenset()
) -> tuple[Edit, ...]:
    """Return the commands that make a daemon's configuration as desired, in their order.

    Policies come before the prefixes that they let pass, these before the neighbors that are told
    of them, so that a new session begins with all; what goes is taken away in reverse. Neighbors
    that are `foreign` stay as they are: prefixes that are to be withdrawn do not wait for them. So
    do `foreign_networks`.

    Args:
        desired: The desired configuration, as `frr.desired` returns it.
        running: The running configuration, as `parse` returns it.
        held: The neighbors that stay as they are.

    Raises:
        Foreign: The whole of BGP is configured by somebody else, with another AS.
    """
    router = next((line for line in desired if _ROUTER.fullmatch(line[0])), ())
    others = [
        line for line in running if len(line) == 1 and _ROUTER.fullmatch(line[0]) and line != router
    ]
    replaced = tuple(_replaced(running, others, router))
    running = [line for line in running if line[:1] not in replaced]
    ours = _our_neighbors(running)
    not_ours = set(foreign(desired, running))
    theirs = set(foreign_networks(desired, running))
    desired = [
        line
        for line in desired
        if not _neighbors_of([line]) & not_ours and not theirs.intersection(_network_of(line)[-1:])
    ]
    wanted = set(desired)
    owned = {line for line in running if _is_owned(line, ours - held) and line not in wanted}
    gone = [
        line
        for line in running
        if line in owned and not any(line[:n] in owned for n in range(1, len(line)))
    ]
    present = set(running)
    added = [line for line in desired if line not in present]
    replacing = {key for line in added if (key := _key(line))}
    whole = ours - held - _neighbors_of(desired)
    removed = [_as_a_whole(line, whole) for line in reversed(gone) if _key(line) not in replacing]
    return (
        *(Edit((f"no {line[0]}",)) for line in replaced),
        *(Edit(line) for line in added),
        *dict.fromkeys(
            Edit((*line[:-1], _negated(line[-1]))) for line in sorted(removed, key=_rank)
        ),
    )


def _replaced(running: Sequence[Line], others: Iterable[Line], router: Line) -> Iterator[Line]:
    """Return the instances of BGP with another AS that are ours as a whole."""
    for other in others if router else ():
        within = [line for line in running if line[:1] == other and len(line) > 1]
        ours = _our_neighbors(within)
        if not all(
            _SETTING.fullmatch(line[-1])
            or _NETWORK.fullmatch(line[-1])
            or not _neighbors_of([line]).isdisjoint(ours)
            for line in within
        ):
            raise Foreign(
                f"FRR has {other[0]}, which is not ours: give bgp as in the cloud-config the same"
                " number, or take it out of FRR's configuration"
            )
        yield other


def _neighbors_of(lines: Iterable[Line]) -> frozenset[str]:
    return frozenset(
        match[1] for line in lines if len(line) > 1 and (match := _NEIGHBOR.fullmatch(line[-1]))
    )


def _our_neighbors(running: Iterable[Line]) -> frozenset[str]:
    return frozenset(
        match[1]
        for line in running
        if (match := _NEIGHBOR.fullmatch(line[-1]))
        and match[2].split()[:2] == ["description", MARK]
    )


def _is_owned(line: Line, ours: frozenset[str]) -> bool:
    text = line[-1]
    if _NAMED.match(line[0]) or (len(line) > 1 and _NAMED.match(line[1])):
        return True
    if len(line) > 1 and _NETWORK.fullmatch(text):
        return True
    match = _NEIGHBOR.fullmatch(text)
    return match is not None and match[1] in ours and _KNOWN.match(match[2]) is not None


def _as_a_whole(line: Line, neighbors: frozenset[str]) -> Line:
    """Return a line that stands for all lines of its neighbor, if that one is to go."""
    match = _NEIGHBOR.fullmatch(line[-1])
    if match is not None and match[1] in neighbors:
        return (line[0], f"neighbor {match[1]}")
    return line


def _key(line: Line) -> Line:
    """Return what a line has in common with all that it replaces; () if it replaces none."""
    text = line[-1]
    if match := _ENTRY.fullmatch(text):
        return (match[1], match[2])
    if match := _VALUES.match(text):
        return (*line[:-1], match[0])
    match = _NEIGHBOR.fullmatch(text)
    if match is not None and match[2].startswith("route-map "):
        return (*line[:-1], f"neighbor {match[1]} route-map", match[2].rpartition(" ")[2])
    return ()


def _negated(text: str) -> str:
    word = text.partition(" ")[0]
    if word in _BFD_DEFAULTS:
        return f"{word} {_BFD_DEFAULTS[word]}"
    return text.removeprefix("no ") if text.startswith("no ") else f"no {text}"


def _rank(line: Line) -> int:
    """Return when a line is taken away: prefixes first, then neighbors, then what they used."""
    if "network " in line[-1]:
        return 0
    if "neighbor " in line[-1]:
        return 1
    return 3 if "prefix-list" in line[0] else 2
