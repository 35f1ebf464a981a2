"""Observe the cloud's machines: one snapshot shared by all controllers.

    get(nodes, not_before) ─► an answer that began late enough        no call
                           ├► a flight that began late enough         no call, its answer is shared
                           └► new flights, ⌈rest / batch_size⌉ calls

A reader says how old an answer may be by `not_before`, the time at which its need arose: an
answer proves nothing about what happened after its call *began*.

A flight is one batch, with all the calls that it takes (`containment.batches`).

    ask_with_witnesses(candidates, witnesses, due) ─► one call for all, shared with nobody

Where a deletion hangs on the answer, nothing is shared and nothing is taken from memory.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import Instance, Instances, NotFound
from proreus.containment.batches import SUSPECTS_ALONE, Batches, Key, Observation, OnError, key
from proreus.containment.failed_calls import FailedCalls
from proreus.containment.faults import Kind
from proreus.containment.holders import shared_machine
from proreus.containment.sightings import Sighting, Sightings
from proreus.kube.objects import Node

__all__ = ["Inventory", "Observation", "Sighting"]

DEADLINE: Final = 40.0
"""Seconds for one batch: longer than a provider's own calls, so that theirs end first."""

FLIGHTS_AT_ONCE: Final = 8
"""How many flights one `get` runs at a time."""


class _Flight:
    """A batch under way: its readers, when it began (None: not yet) and its observations.

    `forgotten` are the uids of nodes that were forgotten meanwhile.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.began: float | None = None
        self.readers = 0
        self.result: dict[Key, Observation] = {}
        self.forgotten: set[str] = set()
        self.task: asyncio.Task[None] | None = None


class Inventory:
    """A snapshot of the machines of one provider; use it from one event loop."""

    def __init__(
        self,
        instances: Instances,
        *,
        clock: Callable[[], float] | None = None,
        deadline: float = DEADLINE,
        on_error: OnError,
        failed_calls: FailedCalls | None = None,
    ) -> None:
        """Observe through `instances`.

        Args:
            instances: The provider's capability `Instances`, guarded (`containment.guarded`).
            clock: Seconds that only grow; the running loop's time if None.
            deadline: Seconds that a call to the provider may take, with all requests that it makes.
            on_error: Handles a fault that the guard cannot see: a batch without an answer before
                the deadline, or two nodes with one machine.
            failed_calls: Logs other failed calls; None: they are not logged.
        """
        self._on_error = on_error
        self._failed_calls = failed_calls
        self._clock = clock
        self._batches = Batches(instances, clock=self._now, deadline=deadline, on_error=on_error)
        self._known: dict[str, tuple[str, Observation]] = {}
        self._sightings = Sightings()
        self._slots = asyncio.Semaphore(FLIGHTS_AT_ONCE)
        # The uids forgotten while questions are under way, whose answers are not kept.
        self._asking = 0
        self._forgotten: set[str] = set()
        self._claims: dict[str, dict[str, str]] = {}
        self._sweepers = 0
        self._flights: dict[Key, _Flight] = {}
        # With those that were asked for again since, or that nobody waits for any more.
        self._live: dict[asyncio.Task[None], _Flight] = {}

    @property
    def batch_size(self) -> int:
        """How many nodes the provider describes in one call."""
        return self._batches.size

    async def get(self, nodes: Sequence[Node], *, not_before: float) -> Mapping[str, Observation]:
        """Observe the nodes' machines.

        Args:
            nodes: Any number of them, of different names.
            not_before: The earliest time, not in the future, at which a call may have begun
                for its answer to count.

        Returns:
            An observation for every node, by name. An error is the answer for this caller and for
            those that waited with it; a later caller asks anew.
        """
        observed: dict[str, Observation] = {}
        flights: dict[str, _Flight] = {}
        rest: list[Node] = []
        for node in nodes:
            name = node.metadata.name
            if known := self._fresh(node, not_before):
                observed[name] = known
            elif flight := self._joinable(node, not_before):
                flights[name] = flight
            else:
                rest.append(node)
        for flight in self._launch(rest):
            flights.update({node.metadata.name: flight for node in flight.nodes})
        await self._wait(tuple(dict.fromkeys(flights.values())))
        for node in nodes:
            name = node.metadata.name
            if name in flights:
                observed[name] = self._landed(flights[name], node)
        if self._failed_calls is not None:
            self._failed_calls.note(nodes, observed)
        return {node.metadata.name: self._checked(node, observed) for node in nodes}

    async def ask_with_witnesses(
        self,
        candidates: Sequence[Node],
        witnesses: Sequence[Node],
        due: Collection[str],
        due_off: Collection[str] = (),
    ) -> Mapping[str, Sequence[Observation]]:
        """Ask about nodes that may have lost their machine, together with witnesses.

        All nodes go in one call. If they are more than a batch, and for candidates that make
        batches fail, the candidates are asked about first; those for which witnesses matter are
        asked about once more, between two looks at the witnesses.

        Args:
            candidates: The nodes in question.
            witnesses: The nodes whose machines surely exist, to judge what the answers are worth.
            due: The names of the candidates for which an answer "not found" would count now.
            due_off: The names of the candidates for which an answer "powered off" would count now.

        Returns:
            By name, the last observation of each candidate, and every one of each witness.
        """
        sound = [node for node in candidates if not self._batches.is_suspect(node)]
        alone = [node for node in candidates if self._batches.is_suspect(node)][:SUSPECTS_ALONE]
        jury = [node for node in witnesses if not self._batches.is_suspect(node)]
        observed: dict[str, list[Observation]] = {}
        if len(sound) + len(jury) <= self.batch_size:
            if sound:
                await self._ask(observed, [[*sound, *jury]])
            sound = []
        apart = [*self._split(sound), *self._split(alone, 1)]
        await self._ask(observed, apart)
        again = [
            named
            for batch in apart
            if (named := [n for n in batch if _needs_witnesses(n, observed, due, due_off)])
        ]
        if again and jury:
            await self._ask(observed, self._split(jury))
            await self._ask(observed, again)
            await self._ask(observed, self._split(jury))
        if self._failed_calls is not None:
            last = {name: seen[-1] for name, seen in observed.items()}
            asked = [n for n in (*candidates, *witnesses) if n.metadata.name in last]
            self._failed_calls.note(asked, last)
        names = {node.metadata.name for node in candidates}
        return {name: seen[-1:] if name in names else seen for name, seen in observed.items()}

    @property
    def is_swept(self) -> bool:
        """Whether somebody asks about all nodes again and again (`swept`)."""
        return self._sweepers > 0

    @contextmanager
    def swept(self) -> Iterator[None]:
        """Let others know that all nodes are asked about again and again during the body."""
        self._sweepers += 1
        try:
            yield
        finally:
            self._sweepers -= 1

    def sighting(self, node: Node) -> Sighting:
        """Return what all calls have shown of the node's machine."""
        return self._sightings.of(node)

    @property
    def notable(self) -> Collection[str]:
        """The names of the nodes whose machines are lost, or shown as powered off."""
        return self._sightings.notable

    def forget(self, uid: str) -> None:
        """Drop all records of the Node with that uid, which is gone from the API."""
        self._unclaim(uid)
        if self._failed_calls is not None:
            self._failed_calls.forget(uid)
        self._known.pop(uid, None)
        self._sightings.forget(uid)
        if self._asking:
            self._forgotten.add(uid)
        self._batches.forget(uid)
        for waited in [waited for waited in self._flights if waited[0] == uid]:
            del self._flights[waited]
        for flight in self._live.values():
            flight.forgotten.add(uid)

    def _now(self) -> float:
        return self._clock() if self._clock else asyncio.get_running_loop().time()

    # Questions with witnesses

    def _split(self, nodes: Sequence[Node], most: int | None = None) -> list[Sequence[Node]]:
        size = most or self.batch_size
        return [nodes[start : start + size] for start in range(0, len(nodes), size)]

    async def _ask(
        self, observed: dict[str, list[Observation]], batches: Sequence[Sequence[Node]]
    ) -> None:
        """Ask about batches side by side, and add the answers to `observed`."""

        async def ask(batch: Sequence[Node]) -> None:
            observations: dict[Key, Observation] = {}
            async with self._slots:
                await self._batches.describe(batch, observations)
            for node in batch:
                observation = observations[key(node)]
                answers = observed.setdefault(node.metadata.name, [])
                answers.append(self._unmistaken(node, observation))
                if node.metadata.uid in self._forgotten:
                    self._batches.forget(node.metadata.uid)
                else:
                    self._keep(node, observation)

        self._asking += 1
        try:
            await asyncio.gather(*(ask(batch) for batch in batches))
        finally:
            self._asking -= 1
            if not self._asking:
                self._forgotten.clear()

    # Flights

    def _joinable(self, node: Node, not_before: float) -> _Flight | None:
        """Return the flight whose answer will be fresh: not begun, or begun late enough."""
        flight = self._flights.get(key(node))
        is_fresh = flight and (flight.began is None or flight.began >= not_before)
        return flight if is_fresh else None

    def _launch(self, nodes: Sequence[Node]) -> list[_Flight]:
        flights = [_Flight(batch) for batch in self._batches.split(nodes)]
        slots = asyncio.Semaphore(FLIGHTS_AT_ONCE)
        for flight in flights:
            flight.task = asyncio.create_task(self._fly(flight, slots))
            self._live[flight.task] = flight
            flight.task.add_done_callback(self._live.pop)
            self._flights.update({key(node): flight for node in flight.nodes})
        return flights

    async def _wait(self, flights: Sequence[_Flight]) -> None:
        """Wait until all flights have landed; cancel a flight that lost its last reader."""
        for flight in flights:
            flight.readers += 1
        try:
            for flight in flights:
                if flight.task and not flight.task.done():
                    # Not `await task`: whoever is cancelled here must not take it along.
                    await asyncio.wait({flight.task})
        finally:
            for flight in flights:
                flight.readers -= 1
                if not flight.readers and flight.task and not flight.task.done():
                    self._close(flight)
                    flight.task.cancel()

    async def _fly(self, flight: _Flight, slots: asyncio.Semaphore) -> None:
        try:
            async with slots:
                flight.began = self._now()
                await self._batches.describe(flight.nodes, flight.result)
        finally:
            self._close(flight)
            self._keep_all(flight)

    def _close(self, flight: _Flight) -> None:
        """Close a call to new callers."""
        for node in flight.nodes:
            if self._flights.get(key(node)) is flight:
                del self._flights[key(node)]

    def _keep_all(self, flight: _Flight) -> None:
        """Keep the answers of a call, without those of forgotten nodes.

        Also of nodes that were asked for again meanwhile: it may have shown what that one lacks.
        """
        for node in flight.nodes:
            if node.metadata.uid in flight.forgotten:
                self._batches.forget(node.metadata.uid)
            elif key(node) in flight.result:
                self._keep(node, flight.result[key(node)])

    def _landed(self, flight: _Flight, node: Node) -> Observation:
        if flight.task:
            flight.task.result()  # raises if we, or `on_error`, failed: that is no answer
        return flight.result[key(node)]

    # Memory

    def _fresh(self, node: Node, not_before: float) -> Observation | None:
        provider_id, observation = self._known.get(node.metadata.uid, ("", None))
        if observation is None or observation.began < not_before:
            return None
        # Asked for by its name, a machine is the one whose id the Node has got since.
        answer, now = observation.answer, node.spec.provider_id
        is_same = isinstance(answer, Instance) and answer.provider_id == now
        return observation if is_same or provider_id == now else None

    def _keep(self, node: Node, observation: Observation) -> None:
        """Keep an answer for later readers, unless it is an error or outdated."""
        uid, provider_id = key(node)
        answer = observation.answer
        old_id, old = self._known.get(uid, ("", None))
        is_old = old is not None and old_id == provider_id and old.began > observation.began
        if isinstance(answer, CloudError):
            return
        if old is not None and is_old:
            # A slow call may have shown it after a later one had not found it.
            self._sightings.note_late(node, observation, old)
            return
        self._unclaim(uid)
        self._known[uid] = (provider_id, observation)
        self._sightings.note(node, observation)
        if isinstance(answer, Instance) and answer.provider_id:
            self._claims.setdefault(answer.provider_id, {})[uid] = node.metadata.name

    def _unclaim(self, uid: str) -> None:
        _, observation = self._known.get(uid, ("", None))
        if observation is None or not isinstance(observation.answer, Instance):
            return
        claims = self._claims.get(observation.answer.provider_id, {})
        claims.pop(uid, None)
        if not claims:
            self._claims.pop(observation.answer.provider_id, None)

    def _checked(self, node: Node, observed: Mapping[str, Observation]) -> Observation:
        """Return the observation, or a conflict if another node has the same machine.

        A node whose spec has the provider id already gets no conflict.
        """
        return self._unmistaken(node, observed[node.metadata.name])

    def _unmistaken(self, node: Node, observation: Observation) -> Observation:
        answer = observation.answer
        if not isinstance(answer, Instance) or answer.provider_id in ("", node.spec.provider_id):
            return observation
        name = node.metadata.name
        others = sorted({n for n in self._claims.get(answer.provider_id, {}).values() if n != name})
        if not others:
            return observation
        conflict = shared_machine(name, others, answer.provider_id)
        self._on_error(conflict, Kind.DUPLICATE)
        return msgspec.structs.replace(observation, answer=conflict)


def _needs_witnesses(
    node: Node,
    observed: Mapping[str, Sequence[Observation]],
    due: Collection[str],
    due_off: Collection[str],
) -> bool:
    """Tell whether witnesses have to confirm the cloud's last answer about a node's machine."""
    name = node.metadata.name
    observations = observed.get(name)
    match observations[-1].answer if observations else None:
        case NotFound(tombstone=False):
            return name in due
        case Instance(powered_off=True):
            return name in due_off
    return False
