"""Measure two gateways that share the addresses: what clients lose, how long both answer."""

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.local.lab import NEAR, PATIENCE, ClientResults, Lab, Line, asking, together
from benchmarks.local.works import until_served
from labs.cluster.gateways import GATEWAYS, leader
from proreus.testing.waiting import block_until

_ADDRESSES = 4
_ROUNDS = 5
_SERVER = "servers"
_WATCHED = 12.0
_WALL = (
    "add table inet wall",
    "add chain inet wall in { type filter hook input priority 0 ; }",
    "add rule inet wall in ip protocol vrrp drop",
)


def gateways(lab: Lab) -> Iterator[Line]:
    """A gateway dies and comes back, VRRP is cut, a manager is killed or told to end."""
    lab.deploy(_SERVER)
    addresses = {lab.expose(f"shared-{number}", _SERVER) for number in range(_ADDRESSES)}
    watched: dict[str, list[tuple[ClientResults, float]]] = {}
    for _ in range(_ROUNDS):
        for what, seen in _round(lab, addresses):
            watched.setdefault(what, []).append(seen)
    for what, every in watched.items():
        silences = [results.longest_silence() for results, _ in every]
        yield {
            "what": f"{what}, {_ROUNDS} times",
            "longest silence": f"{statistics.median(silences):.1f} s",
            "at most": f"{max(silences):.1f} s",
            **together(results for results, _ in every).lost(),
            "both answer": f"{statistics.median(both for _, both in every):.1f} s",
        }


def _round(lab: Lab, addresses: set[str]) -> Iterator[tuple[str, tuple[ClientResults, float]]]:
    for leads in (False, True):
        name = _gateway(lab, leads=leads)
        what = f"a gateway that {'leads' if leads else 'does not lead'}"
        address = _address(lab, name, addresses)
        yield f"{what} dies", _measured(lab, address, partial(_link, lab, name, "down"))
        yield f"{what} comes back", _measured(lab, address, partial(_link, lab, name, "up"))
    address = _address(lab, _gateway(lab, leads=True), addresses)
    yield "VRRP is cut", _measured(lab, address, partial(_cut, lab))
    yield "VRRP is back", _measured(lab, address, partial(_mend, lab))
    for signal, what in (("KILL", "killed"), ("TERM", "told to end")):
        name = _gateway(lab, leads=True)
        address = _address(lab, name, addresses)
        machine = lab.machine(name)
        words = ("pkill", f"-{signal}", "-P", str(machine.pid("manager")))
        act = partial(machine.run, *words)
        yield f"the leading manager is {what}", _measured(lab, address, act)


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


def _measured(lab: Lab, address: str, act: Callable[[], object]) -> tuple[ClientResults, float]:
    """Ask at an address while something happens, and for a while after.

    Returns:
        The client's results, and for how many seconds two gateways announced the address.
    """
    watch = _Watch(lab, address)
    with asking(lab, address, on=NEAR) as client, watch:
        act()
        time.sleep(_WATCHED)
    return client.results, watch.both


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
