"""Read and change the kernel's routing tables through rtnetlink. Everything here blocks.

A route is ours if it is in our table, has our protocol number and our metric; the metric tells
clusters apart. Of other routes nothing is read or changed: the kernel has a route with another
metric beside ours, and the lower metric wins.
"""

import errno
import ipaddress
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import msgspec
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from proreus.cloudprovider.errors import CloudError, Unauthenticated
from proreus.providers.local.addresses import Hop, parse

_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_UNICAST: Final = 1
_OUT_OF_REACH: Final = frozenset(
    {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EINVAL, errno.ENETDOWN}
)


class KernelRoute(msgspec.Struct, frozen=True):
    """A route of the kernel to `destination` (a CIDR) via the neighbour `via` (an address)."""

    destination: str
    via: str


class RouteTable(msgspec.Struct, frozen=True, kw_only=True):
    """The routing table that holds our routes, and what marks them.

    Attributes:
        table: The number of the table.
        protocol: The protocol number.
        metric: The metric of the routes, which is the cluster's.
    """

    table: int
    protocol: int
    metric: int

    def list(self) -> Sequence[KernelRoute]:
        """List our routes of both families.

        Raises:
            CloudError: The kernel refuses.
        """
        found = []
        with _socket() as netlink:
            for family in _FAMILIES:
                try:
                    # The kernel filters by table and protocol.
                    results = [
                        *netlink.get_routes(family=family, table=self.table, proto=self.protocol)
                    ]
                except NetlinkError as error:
                    if error.code in {errno.ENOENT, errno.EAFNOSUPPORT}:
                        continue  # no such table yet; no IPv6 in this kernel
                    raise _refusal("list routes", error) from error
                # A kernel without IPv6 answers with what it has.
                mine = (self._ours(result) for result in results if result["family"] == family)
                found += [one for one in mine if one is not None]
        return found

    def change(
        self, put: Iterable[KernelRoute], remove: Iterable[str]
    ) -> Mapping[str, CloudError | None]:
        """Create or replace routes, then remove those to the destinations in `remove`.

        Replacing leaves no moment without a route. Both do nothing where nothing is to be done.

        Returns:
            The error of each destination that failed.
        """
        results: dict[str, CloudError | None] = {}
        with _socket() as netlink:
            for route in put:
                what = f"route {route.destination} via {route.via}"
                results[route.destination] = None
                try:
                    netlink.route(
                        "replace", dst=route.destination, gateway=route.via, **self._marks()
                    )
                except NetlinkError as error:
                    results[route.destination] = _refusal(what, error)
            for destination in remove:
                results[destination] = None
                try:
                    netlink.route("del", dst=destination, **self._marks())
                except NetlinkError as error:
                    if error.code not in {errno.ESRCH, errno.ENOENT}:
                        results[destination] = _refusal(f"delete the route to {destination}", error)
        return results

    def _marks(self) -> Mapping[str, int]:
        return {"table": self.table, "proto": self.protocol, "priority": self.metric}

    def _ours(self, message: Any) -> KernelRoute | None:
        marks = message.get("RTA_TABLE"), message["proto"], message.get("RTA_PRIORITY")
        if marks != (self.table, self.protocol, self.metric) or message["type"] != _UNICAST:
            return None
        any_address = "0.0.0.0" if message["family"] == socket.AF_INET else "::"  # noqa: S104
        network = ipaddress.ip_network(
            f"{message.get('RTA_DST') or any_address}/{message['dst_len']}"
        )
        return KernelRoute(str(network), message.get("RTA_GATEWAY") or "")


def own_addresses() -> frozenset[str]:
    """Return the addresses of this machine.

    Raises:
        CloudError: The kernel refuses.
    """
    with _socket() as netlink:
        try:
            results = [*netlink.get_addr()]
        except NetlinkError as error:
            raise _refusal("list addresses", error) from error
    found = {result.get("IFA_LOCAL") or result.get("IFA_ADDRESS") for result in results}
    return frozenset(str(ipaddress.ip_address(one)) for one in found if one)


def ways(addresses: Iterable[str]) -> Mapping[str, Hop]:
    """Return by which interface's number, and which router or "", addresses are reached.

    Where an interface is lost its network may be sought behind the default router: that is another
    way than to who is in the network of that router's interface.

    What stays on this machine has none, and so has an address to which there is no way, or whose
    zone names one.

    Raises:
        CloudError: No netlink socket can be opened.
    """
    found: dict[str, Hop] = {}
    with _socket() as netlink:
        for text in addresses:
            address = parse(text)
            if isinstance(address, ipaddress.IPv6Address):
                address = address.ipv4_mapped or address
            if address is None or address.is_unspecified:
                continue
            with suppress(NetlinkError):  # there is no way, or none may go there
                (result,) = netlink.route("get", dst=str(address))
                if result["type"] == _UNICAST:
                    router = result.get("RTA_GATEWAY") or result.get("RTA_VIA") or ""
                    found[text] = int(result.get("RTA_OIF")), str(router)
    return found


@contextmanager
def _socket() -> Iterator[Any]:
    """Open a netlink socket for this thread; the kernel checks strictly what it filters by."""
    try:
        netlink = IPRoute(strict_check=True)
    except OSError as error:
        raise CloudError(f"cannot open a netlink socket: {error.strerror}") from error
    with netlink:
        yield netlink


def _refusal(what: str, error: NetlinkError) -> CloudError:
    """Return a CloudError for the kernel's error, with the remedy."""
    text = f"cannot {what}: {os.strerror(error.code)}"
    if error.code == errno.EPERM:
        return Unauthenticated(f"{text}: the manager needs the capability NET_ADMIN")
    if error.code in _OUT_OF_REACH:
        return CloudError(
            f"{text}: the node's address must be in a network of this machine, and another than"
            " its own"
        )
    return CloudError(text)
