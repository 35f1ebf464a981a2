"""Announce addresses to neighbours by gratuitous ARP and unsolicited neighbour adverts.

The kernel answers those who ask; this is for those who remember another machine.
"""

import contextlib
import socket
import struct
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

BROADCAST: Final = b"\xff" * 6
ALL_NODES: Final = IPv6Address("ff02::1")
ALL_NODES_MAC: Final = bytes.fromhex("333300000001")

_ARP, _IPV6 = 0x0806, 0x86DD
_ICMPV6, _ADVERT, _OVERRIDE = 58, 136, 0x20000000
_TARGET_LINK_ADDRESS: Final = b"\x02\x01"
_MAC_LENGTH: Final = 6


def announce(addresses: Iterable[tuple[str, str]]) -> None:
    """Announce each address on its interface; skip interfaces that cannot. Blocks."""
    for address, interface in addresses:
        # It may just have gone down, or be of a kind that knows no neighbours.
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as packets,
        ):
            packets.bind((interface, 0))
            mac = packets.getsockname()[4]
            if len(mac) == _MAC_LENGTH:
                for frame in frames(ip_address(address), mac, _source(interface)):
                    packets.send(frame)


def frames(
    address: IPv4Address | IPv6Address, mac: bytes, source: IPv6Address
) -> tuple[bytes, ...]:
    """Make the Ethernet frames that announce `address` at `mac`; `source` sends the IPv6 ones."""
    if isinstance(address, IPv4Address):
        # Some listen to requests only, others to answers only.
        return tuple(arp(address, mac, operation) for operation in (1, 2))
    return (advert(address, mac, source),)


def arp(address: IPv4Address, mac: bytes, operation: int) -> bytes:
    """Make a gratuitous ARP request (operation 1) or answer (2)."""
    ethernet = BROADCAST + mac + struct.pack("!H", _ARP)
    target = bytes(6) if operation == 1 else BROADCAST
    head = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation)
    return ethernet + head + mac + address.packed + target + address.packed


def advert(address: IPv6Address, mac: bytes, source: IPv6Address) -> bytes:
    """Make an unsolicited neighbour advertisement (RFC 4861, 7.2.6)."""
    ethernet = ALL_NODES_MAC + mac + struct.pack("!H", _IPV6)
    option = _TARGET_LINK_ADDRESS + mac

    def message(checksum: int) -> bytes:
        head = struct.pack("!BBHI", _ADVERT, 0, checksum, _OVERRIDE)
        return head + address.packed + option

    body = message(0)
    pseudo = source.packed + ALL_NODES.packed + struct.pack("!II", len(body), _ICMPV6)
    header = struct.pack("!IHBB", 6 << 28, len(body), _ICMPV6, 255)
    addresses = source.packed + ALL_NODES.packed
    return ethernet + header + addresses + message(checksum(pseudo + body))


def checksum(data: bytes) -> int:
    """Compute the Internet checksum of an even number of bytes (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _source(interface: str) -> IPv6Address:
    """Return the interface's link-local address; the unspecified one if it has none."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines():
            fields = line.split()
            if fields[5] == interface and fields[0].startswith("fe80"):
                return IPv6Address(bytes.fromhex(fields[0]))
    return IPv6Address("::")
