"""Read BGP communities, and write them as FRR does. Pure.

Standard communities are `64512:100` (RFC 1997), large ones `large:64512:1:100` (RFC 8092; the
prefix is MetalLB's), and the well-known ones may be written by their names.
https://www.iana.org/assignments/bgp-well-known-communities
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

_STANDARD: Final = re.compile(r"(\d{1,5}):(\d{1,5})")
_LARGE: Final = re.compile(r"large:(\d{1,10}):(\d{1,10}):(\d{1,10})")
_HIGHEST_HALF: Final = 2**16 - 1
_HIGHEST_PART: Final = 2**32 - 1
_WELL_KNOWN: Final[Mapping[str, int]] = MappingProxyType(
    {
        "graceful-shutdown": 0xFFFF0000,
        "blackhole": 0xFFFF029A,
        "no-export": 0xFFFFFF01,
        "no-advertise": 0xFFFFFF02,
        "local-AS": 0xFFFFFF03,
        "no-peer": 0xFFFFFF04,
    }
)
"""The well-known communities that a route may carry, by the names that FRR has for them."""
_NAMES: Final = {number: name for name, number in _WELL_KNOWN.items()}
_OF_ROUTERS: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 8})
"""65535:1 to 65535:8: what routers say to one another about routes that they have learned."""


class Community(msgspec.Struct, frozen=True, order=True):
    """A community: its numbers, two of a standard one and three of a large one."""

    parts: tuple[int, ...]

    @property
    def is_large(self) -> bool:
        """Whether the community is a large one."""
        return len(self.parts) > 2  # noqa: PLR2004 - a standard one has two

    @property
    def text(self) -> str:
        """The community as FRR shows it."""
        if self.is_large:
            return ":".join(map(str, self.parts))
        high, low = self.parts
        return _NAMES.get(high << 16 | low, f"{high}:{low}")


def parse_community(text: str) -> Community:
    """Parse a community.

    Raises:
        ValueError: The text has another form, or our routes may not carry the community; with the
            remedy.
    """
    if number := _WELL_KNOWN.get(text) or _WELL_KNOWN.get(text.lower()):
        return Community((number >> 16, number & _HIGHEST_HALF))
    if text.lower() == "local-as":
        return parse_community("local-AS")
    if (match := _LARGE.fullmatch(text)) and all(
        int(part) <= _HIGHEST_PART for part in match.groups()
    ):
        return Community(tuple(map(int, match.groups())))
    match = _STANDARD.fullmatch(text)
    if match is None or any(int(part) > _HIGHEST_HALF for part in match.groups()):
        raise ValueError(
            f"{text!r} is not a community: write 64512:100, large:64512:1:100, one of"
            f" {', '.join(_WELL_KNOWN)}, or a name in bgp communities"
        )
    found = Community(tuple(map(int, match.groups())))
    if found.parts[0] == _HIGHEST_HALF and found.parts[1] in _OF_ROUTERS:
        raise ValueError(f"{text!r} is for what routers tell one another: take it out")
    if found.parts == (0, 0):
        raise ValueError(f"{text!r} is reserved (RFC 1997): take it out")
    return found


def standard(communities: Iterable[Community]) -> str:
    """Return the standard communities in FRR's order, with spaces between; "" if there are none."""
    return " ".join(one.text for one in sorted(set(communities)) if not one.is_large)


def large(communities: Iterable[Community]) -> str:
    """Return the large communities in order, with spaces between them; "" if there are none."""
    return " ".join(one.text for one in sorted(set(communities)) if one.is_large)
