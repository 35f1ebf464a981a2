"""Judge machines of Nodes that are not Ready: whether they are silent, or the way to them broken.

What does not answer may be behind a network of ours that is out. So some Ready nodes that are
reached by the same way are asked, too. And the way must be the one by which the machine was reached
before: with an interface or a tunnel its routes are lost, and the default router has what comes for
the machines there; nodes beyond that router answer as ever.

Nor does silence say anything at an address where the machine did not answer while its Node was
Ready, such as one whose firewall drops the probes, though it may have answered before. So the
machines of Ready nodes are asked each time, too. What the former machine of a Node's name has
answered says nothing of the next one.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.addresses import is_address
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import Instance, InstanceAnswer, InstanceState, NotFound
from proreus.cloudprovider.lookups import attempt
from proreus.cloudprovider.waits import Twice
from proreus.kube.objects import Node, condition, is_ready
from proreus.providers.local.addresses import Hop
from proreus.providers.local.config import Probing, Unreachable

MUTE: Final = 240.0
"""Seconds of silence while its Node is Ready after which a machine's silence says nothing.

A Node whose machine has died is Ready for less than that.
"""
_WITNESSES: Final = 3

Probe = Callable[[Sequence[str]], Awaitable[bool]]
"""Whether a machine with these addresses answers."""
Ways = Callable[[Collection[str]], Awaitable[Mapping[str, Hop]]]
"""The ways by which addresses are reached, without addresses that lead to this machine."""


class Silence:
    """A judge of silent machines, by probes."""

    def __init__(self, probe: Probe, settings: Probing, ways: Ways) -> None:
        """Keep what asks machines, and begin to count.

        Args:
            probe: Asks a machine whether it lives.
            settings: The settings that say what failed probes mean.
            ways: Tells by which ways machines are reached.
        """
        self._probe = probe
        self._settings = settings
        self._ways = ways
        self._failures: dict[str, tuple[Hashable, int]] = {}
        self._known: dict[str, Mapping[str, Hop]] = {}
        """By the names of Nodes: the ways by which the addresses of their machines are reached."""
        self._unheard = Twice(MUTE)
        self._heard: dict[str, frozenset[str]] = {}
        """By the names of Nodes: the addresses at which their machines answer; none: nowhere."""
        self._machines: dict[str, Hashable] = {}
        """By the names of Nodes: which machine has answered there."""

    async def judged(
        self, nodes: Sequence[Node], answers: Mapping[str, InstanceAnswer]
    ) -> Mapping[str, InstanceAnswer]:
        """Probe all machines that should run; return the answers of nodes that are not Ready.

        Raises:
            CloudError: The kernel does not tell the ways, or nobody could be asked.
        """
        running = {
            node.metadata.name: answer
            for node in nodes
            if isinstance(answer := answers[node.metadata.name], Instance)
            and answer.state is InstanceState.RUNNING
            and _ips(answer)
        }
        suspects = [node for node in nodes if node.metadata.name in running and not is_ready(node)]
        silent = {node.metadata.name for node in suspects}
        ready = {name: one for name, one in running.items() if name not in silent}
        for name in ready:
            self._failures.pop(name, None)
        for node in nodes:
            self._recognise(node)
        every = {address for one in running.values() for address in _ips(one)}
        found = await attempt(self._look, every)
        if isinstance(found, CloudError):
            if suspects:
                raise found
            return {}
        ways, answering = found
        for name, one in running.items():
            answered = answering.intersection(_ips(one))
            if name in ready or answered:
                self._note(name, one, ways, answered)
            self._listen(name, one, answered, is_ready=name in ready)
        asked = witnesses(ready.values(), ways)
        proven = {way for (way, _), one in asked.items() if not answering.isdisjoint(one)}
        return {
            name: self._judged(
                node,
                running[name],
                lives=not answering.isdisjoint(_ips(running[name])),
                is_proof=not proven.isdisjoint(self._telling(name, running[name], ways)),
            )
            for node in suspects
            if (name := node.metadata.name)
        }

    async def _look(self, addresses: Collection[str]) -> tuple[Mapping[str, Hop], frozenset[str]]:
        """Return the ways to addresses, and those that answer.

        Raises:
            CloudError: The kernel does not tell the ways, or nobody could be asked.
        """
        ways = await self._ways(addresses) if addresses else {}
        results = await asyncio.gather(*(self._probe([one]) for one in addresses))
        heard = zip(addresses, results, strict=True)
        return ways, frozenset(one for one, is_heard in heard if is_heard)

    def _telling(self, name: str, found: Instance, ways: Mapping[str, Hop]) -> Collection[Hop]:
        """Return the ways by which a machine would answer if it lived, as far as that is known.

        One that has answered, but at none of its present addresses, may not have these yet. Nor is
        anything known of one that has stopped to answer while its Node was Ready.
        """
        usual, told = self._usual(name, found, ways), self._told(name, found)
        if not told and name in self._heard:
            return ()
        return {way for one, way in usual.items() if not told or one in told}

    def _told(self, name: str, found: Instance) -> frozenset[str]:
        """Return those of a machine's addresses at which it has answered."""
        return self._heard.get(name, frozenset()).intersection(_ips(found))

    def _recognise(self, node: Node) -> None:
        """Forget where another machine has answered that had the Node's name before."""
        name = node.metadata.name
        machine = node.metadata.uid, node.status.node_info.system_uuid
        if self._machines.get(name, machine) != machine and self._heard.get(name):
            del self._heard[name]
        self._machines[name] = machine

    def _usual(self, name: str, found: Instance, ways: Mapping[str, Hop]) -> Mapping[str, Hop]:
        """Return the ways to a machine that are not known to have been other ones before."""
        known = self._known.get(name, {})
        present = {one: ways[one] for one in _ips(found) if one in ways}
        return {one: way for one, way in present.items() if known.get(one, way) == way}

    def _note(
        self,
        name: str,
        found: Instance,
        ways: Mapping[str, Hop],
        answered: Collection[str],
    ) -> None:
        """Remember the ways to a machine; where it has `answered`, they are the right ones."""
        own = _ips(found)
        present = {one: ways[one] for one in own if one in ways}
        known = {one: way for one, way in self._known.get(name, {}).items() if one in own}
        sure = {one: way for one, way in present.items() if one in answered}
        self._known[name] = present | known | sure

    def _listen(
        self, name: str, found: Instance, answered: frozenset[str], *, is_ready: bool
    ) -> None:
        """Remember where a machine answers, and where it does not while its Node is Ready."""
        lost = {
            one
            for one in _ips(found)
            if self._unheard.is_sure(f"{name} {one}", is_so=is_ready and one not in answered)
        }
        if answered or lost:
            self._heard[name] = (self._heard.get(name, frozenset()) | answered) - lost

    def _judged(
        self, node: Node, found: Instance, *, lives: bool, is_proof: bool
    ) -> InstanceAnswer:
        """Count by the Node's name: any kubelet can write another's provider id on its new Node.

        A Node that was Ready meanwhile, also while nobody asked about it, begins a new count.
        """
        name, silence = node.metadata.name, _silence(node)
        if lives:
            self._failures.pop(name, None)
            return found
        if is_proof:
            before, count = self._failures.get(name, (silence, 0))
            count = count + 1 if before == silence else 1
            self._failures[name] = silence, count
            if count >= self._settings.threshold:
                return unreachable(found, self._settings.unreachable)
        return unreachable(found, Unreachable.UNKNOWN)


def witnesses(
    ready: Iterable[Instance], ways: Mapping[str, Hop]
) -> Mapping[tuple[Hop, int], Sequence[str]]:
    """Return the addresses of some machines of Ready nodes by their way, and a number. Pure.

    A Node without addresses in the inventory has those that its kubelet names: one that stays on
    this machine, such as a pod's, answers whatever is wrong with the network of the others.
    """
    found: dict[tuple[Hop, int], Sequence[str]] = {}
    counts: Counter[Hop] = Counter()
    for one in ready:
        by_way: dict[Hop, list[str]] = {}
        for address in _ips(one):
            if (way := ways.get(address)) is not None:
                by_way.setdefault(way, []).append(address)
        for way, several in by_way.items():
            if counts[way] < _WITNESSES:
                found[way, counts[way]] = several
                counts[way] += 1
    return found


def unreachable(found: Instance, meaning: Unreachable) -> InstanceAnswer:
    """Return the answer for a machine that does not answer probes. Pure."""
    if meaning is Unreachable.GONE:
        return NotFound()
    is_stopped = meaning is Unreachable.STOPPED
    state = InstanceState.STOPPED if is_stopped else InstanceState.UNKNOWN
    return msgspec.structs.replace(found, state=state)


def _silence(node: Node) -> Hashable:
    """Return what is another value once a Node was Ready."""
    ready = condition(node.status.conditions, "Ready")
    return node.metadata.uid, ready.last_transition_time if ready is not None else None


def _ips(found: Instance) -> tuple[str, ...]:
    """Return the addresses to probe: the internal ones if there are any."""
    every = [address for address in found.addresses if is_address(address.address)]
    internal = [one for one in every if one.type == "InternalIP"]
    return tuple(one.address for one in internal or every)
