"""A network namespace for the tests of the provider `local`: nothing of the machine is touched."""

import ctypes
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from pyroute2 import IPRoute

CLONE_NEWNET = 0x40000000
IPV4, IPV6 = "10.9.0.1", "fd00:9::1"
"""The addresses of this machine in the namespace, in a /16 and a /64."""


@contextmanager
def own_namespace() -> Iterator[None]:
    """This thread, and the threads that it starts, in an empty network with two addresses.

    Python 3.11 has no `os.unshare` yet.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(CLONE_NEWNET):
            pytest.skip(f"no network namespace: {os.strerror(ctypes.get_errno())} (needs root)")
        try:
            # pyroute2 runs an event loop of its own, which a thread with one does not allow.
            with ThreadPoolExecutor(1) as threads:
                threads.submit(furnish).result()
            yield
        finally:
            leave_for(before)
    finally:
        os.close(before)


def leave_for(namespace: int) -> None:
    """Go back; what followed in the wrong network would prove nothing."""
    if ctypes.CDLL(None).setns(namespace, CLONE_NEWNET):
        os._exit(1)


def furnish() -> None:
    """Two ends of a cable, one of which has addresses; the other stands for the network."""
    with IPRoute() as netlink:
        netlink.link("add", ifname="here", kind="veth", peer="there")
        for name in ("lo", "here", "there"):
            netlink.link("set", index=index_of(netlink, name), state="up")
        here = index_of(netlink, "here")
        netlink.addr("add", index=here, address=IPV4, prefixlen=16)
        netlink.addr("add", index=here, address=IPV6, prefixlen=64, flags=0x02)  # no DAD


def index_of(netlink: Any, name: str) -> int:
    return int(netlink.link_lookup(ifname=name)[0])
