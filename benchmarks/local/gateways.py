"""Measure two gateways that share the addresses: what clients lose, how long both answer."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.local.lab import NEAR, PATIENCE, Lab, Line, asking
from benchmarks.local.works import until_served
from labs.cluster.gateways import GATEWAYS, leader
from proreus.testing.waiting import block_until

_ADDRESSES = 4
_SERVER = "servers"
_WATCHED = 15.0
_WALL = (
    "add table inet wall",
    "add chain inet wall in { type filter hook input priority 0 ; }",
    "add rule inet wall in ip protocol vrrp drop",
)


def gateways(lab: Lab) -> Iterator[Line]:
    """A gateway dies and comes back, VRRP is cut, a manager is killed or told to end."""
    lab.deploy(_SERVER)
    addresses = {lab.expose(f"shared-{number}", _SERVER) for number in range(_ADDRESSES)}
    for leads in (False, True):
        name = _gateway(lab, leads=leads)
        what = f"a gateway that {'leads' if leads else 'does not lead'}"
        address = _address(lab, name, addresses)
        yield _measured(lab, f"{what} dies", address, partial(_link, lab, name, "down"))
        yield _measured(lab, f"{what} comes back", address, partial(_link, lab, name, "up"))
    address = _address(lab, _gateway(lab, leads=True), addresses)
    yield _measured(lab, "VRRP is cut", address, partial(_cut, lab))
    yield _measured(lab, "VRRP is back", address, partial(_mend, lab))
    for signal, what in (("KILL", "killed"), ("TERM", "told to end")):
        name = _gateway(lab, leads=True)
        address = _address(lab, name, addresses)
        machine = lab.machine(name)
        words = ("pkill", f"-{signal}", "-P", str(machine.pid("manager")))
        yield _measured(
            lab, f"the leading manager is {what}", address, partial(machine.run, *words)
        )  # fmt: skip


def _address(lab: Lab, name: str, addresses: set[str]) -> str:
    """Wait until each gateway has a share; return an address of one."""

    def shared() -> list[str]:
        held = {one: _announced(lab, one) for one in GATEWAYS}
        whole = sum(map(len, held.values())) == len(addresses)
        return sorted(held[name]) if whole and set().union(*held.values()) == addresses else []

    block_until("each gateway has a share", shared, PATIENCE)
    address = shared()[0]
    until_served(lab, address, NEAR)
    return address


def _measured(lab: Lab, what: str, address: str, act: Callable[[], object]) -> Line:
    """Ask at an address while something happens, and for a while after."""
    watch = _Watch(lab, address)
    with asking(lab, address, on=NEAR) as client, watch:
        act()
        time.sleep(_WATCHED)
    return {
        "what": what,
        "longest silence": f"{client.results.longest_silence():.1f} s",
        **client.results.lost(),
        "both answer": f"{watch.both:.1f} s",
    }


class _Watch(threading.Thread):
    """A watch of how long two gateways announce an address."""

    def __init__(self, lab: Lab, address: str) -> None:
        super().__init__(daemon=True)
        self.both = 0.0
        self._lab, self._address = lab, address
        self._is_over = threading.Event()

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()

    def run(self) -> None:
        last = time.monotonic()
        while not self._is_over.wait(0.05):
            having = [self._address in _announced(self._lab, name) for name in GATEWAYS]
            now = time.monotonic()
            self.both += (now - last) * all(having)
            last = now


def _announced(lab: Lab, name: str) -> set[str]:
    said = lab.machine(name).run("ip", "-j", "neigh", "show", "proxy")
    return {one["dst"] for one in json.loads(said or "[]")}


def _gateway(lab: Lab, *, leads: bool) -> str:
    block_until("a leader", lambda: leader(lab.cluster.plane), PATIENCE)
    first = leader(lab.cluster.plane)
    return first if leads else next(name for name in GATEWAYS if name != first)


def _link(lab: Lab, name: str, state: str) -> None:
    lab.gateway.run("ip", "link", "set", name, state)


def _cut(lab: Lab) -> None:
    for name in GATEWAYS:
        for line in _WALL:
            lab.machine(name).run("nft", *line.split())


def _mend(lab: Lab) -> None:
    for name in GATEWAYS:
        lab.machine(name).run("nft", "delete", "table", "inet", "wall")
