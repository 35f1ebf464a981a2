"""Build nftables' JSON: what matches a packet, and what is done with it. Pure."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final

Json = Any
"""A piece of nftables' JSON."""

_IP: Final = MappingProxyType({"IPv4": "ip", "IPv6": "ip6"})
_ALL_BITS: Final = 2**32 - 1


def match(left: Json, right: Json, op: str = "==") -> Json:
    """Build the match of packets of which `left` compares with `right`."""
    return {"match": {"op": op, "left": left, "right": right}}


def field(family: str, name: str) -> Json:
    """Build the expression for a field of the packet's IP header."""
    return {"payload": {"protocol": _IP[family], "field": name}}


def port(name: str) -> Json:
    """Build the expression for the port `sport` or `dport`, whatever the protocol."""
    return {"payload": {"protocol": "th", "field": name}}


def meta(key: str) -> Json:
    """Build the expression for the kernel's metadata of a packet."""
    return {"meta": {"key": key}}


def bits(of: str, mask: int) -> Json:
    """Build the expression for some bits of the mark of a packet (`meta`) or connection (`ct`)."""
    return {"&": [{of: {"key": "mark"}}, mask]}


def set_mark(of: str, mask: int, value: int) -> Json:
    """Set the mark's bits of the mask, and leave the others."""
    kept: Json = bits(of, _ALL_BITS ^ mask)
    return {
        "mangle": {"key": {of: {"key": "mark"}}, "value": {"|": [kept, value]} if value else kept}
    }


def lead(key: Json, chains: Sequence[tuple[int, str]]) -> Json:
    """Go to the chain that a map gives for the value of `key`."""
    return {"vmap": {"key": key, "data": {"set": [[at, goto(name)] for at, name in chains]}}}


def goto(chain: str) -> Json:
    """Continue in another chain, without coming back to this one."""
    return {"goto": {"target": chain}}


def jump(chain: str) -> Json:
    """Go through another chain."""
    return {"jump": {"target": chain}}


def prefix(cidr: str) -> Json:
    """Build the expression for a CIDR."""
    address, _, length = cidr.partition("/")
    return {"prefix": {"addr": address, "len": int(length)}}
