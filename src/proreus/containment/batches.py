"""Ask a cloud about nodes in batches, so that one bad id costs only itself.

If a batch fails for a reason that one bad id could be, three of its nodes, other ones each time,
are asked about one by one: if none has an answer the cloud is down, and that is all (four calls).
Otherwise the batch is halved until each bad id stands alone. Ids found so are asked about one by
one from then on, so that a malformed id costs one call a round and no search.

Before all that, a batch of several scopes is split by them: only one of these may be down, and the
nodes of the others are not to be taken for bad ones.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from proreus.cloudprovider.errors import (
    CallTimeout,
    CloudError,
    ConfigError,
    IdentityConflict,
    RetryAfter,
    Throttled,
    Unauthenticated,
)
from proreus.cloudprovider.instances import InstanceAnswer, Instances, scope_of
from proreus.containment.faults import Fault, Kind, Unanswered
from proreus.containment.renames import Renames
from proreus.kube.objects import Node

SEARCH_CALLS: Final = 64
"""The most calls that the halving of one batch may take."""

SUSPECTS_ALONE: Final = 16
"""How many suspects are asked about one by one at a time; the others share batches."""

PROBES: Final = 3
"""How many nodes of a failed batch are asked about one by one before it is halved."""

Key = tuple[str, str]
"""A node's uid and provider id, which key an answer."""

OnError = Callable[[CloudError, Kind], None]
"""A handler of a fault that no single answer of `describe` shows, with its kind."""

# What no single id can be the reason for: asking for fewer would only add calls.
_NOT_ONE_NODES_FAULT = (Throttled, RetryAfter, Unauthenticated, CallTimeout, ConfigError)


class Observation(msgspec.Struct, frozen=True):
    """An answer about a machine, and when its call began and ended.

    Times are seconds of the inventory's clock. The call may have waited for the cloud's quota, so
    it was sent at some time between the two; `ended` None stands for `began`. Answers of equal
    `call` were given by one and the same call. `refused`: the answer is the error of the whole
    call, and no fault of the provider.
    """

    answer: InstanceAnswer
    began: float
    ended: float | None = None
    call: int = 0
    refused: bool = False


class _Outcome(Enum):
    """The outcome of a call: answered, one id may be at fault, or more calls are of no use.

    After a call that hung there is no time to ask on, but next time each node is asked about by
    itself.
    """

    ANSWERED = "answered"
    SUSPICIOUS = "suspicious"
    HOPELESS = "hopeless"
    HUNG = "hung"


_NO_USE = (_Outcome.HOPELESS, _Outcome.HUNG)


class _Search(msgspec.Struct):
    """The calls made for one batch: their observations, and the deadline.

    About the last call, `hung` says that its time was over before there was an answer, `refused`
    that the provider raised a sound error.
    """

    observations: dict[Key, Observation]
    end: float
    hung: bool = False
    refused: bool = False


class Batches:
    """The calls of a guarded `describe`, with a memory of which ids make batches fail."""

    def __init__(
        self,
        instances: Instances,
        *,
        clock: Callable[[], float],
        deadline: float,
        on_error: OnError,
    ) -> None:
        """Ask `instances`; a batch with all its calls may take `deadline` seconds."""
        self._instances = instances
        self._renames = Renames(instances)
        self._clock = clock
        self._deadline = deadline
        self._on_error = on_error
        self._suspects: dict[Key, None] = {}
        self._turn = 0
        self._calls = 0

    @property
    def size(self) -> int:
        """The number of nodes in one call."""
        return self._instances.batch_size

    def split(self, nodes: Sequence[Node]) -> Iterable[Sequence[Node]]:
        """Split nodes into full batches, and some suspects, longest unasked first, one by one."""
        by_key = {key(node): node for node in nodes}
        suspects = [by_key.pop(known) for known in self._suspects if known in by_key]
        size = self.size
        for group in (list(by_key.values()), suspects[SUSPECTS_ALONE:]):
            yield from (group[start : start + size] for start in range(0, len(group), size))
        yield from ([node] for node in suspects[:SUSPECTS_ALONE])

    def is_suspect(self, node: Node) -> bool:
        """Tell whether the node has made a batch fail."""
        return key(node) in self._suspects

    async def describe(self, nodes: Sequence[Node], observations: dict[Key, Observation]) -> None:
        """Ask about one batch; `observations` then has one for each of its nodes."""
        search = _Search(observations, asyncio.get_running_loop().time() + self._deadline)
        outcome = await self._ask(search, nodes)
        if outcome is _Outcome.ANSWERED:
            self._suspect(nodes, ())
        elif outcome is _Outcome.HUNG:
            self._suspect(nodes, nodes)
        elif outcome is _Outcome.SUSPICIOUS and len(nodes) == 1:
            self._still_suspect(nodes)
        elif outcome is _Outcome.SUSPICIOUS:
            await self._apart(search, nodes)

    def forget(self, uid: str) -> None:
        """Drop all records of the Node with that uid."""
        self._renames.forget(uid)
        for known in [known for known in self._suspects if known[0] == uid]:
            del self._suspects[known]

    async def _apart(self, search: _Search, nodes: Sequence[Node]) -> None:
        """Ask about each scope of a failed batch by itself; look for bad ids where that fails."""
        scopes: dict[str | None, list[Node]] = {}
        for node in nodes:
            scopes.setdefault(scope_of(self._instances, node), []).append(node)
        if len(scopes) == 1:
            await self._isolate(search, nodes)
            return
        failed: list[list[Node]] = []
        for part in scopes.values():
            outcome = await self._ask(search, part)
            if outcome is _Outcome.HUNG:
                self._suspect(part, part)
                return
            if outcome is _Outcome.ANSWERED:
                self._suspect(part, ())
            elif outcome is _Outcome.SUSPICIOUS:
                failed.append(part)
        for rest in failed:
            if len(rest) > 1:
                await self._isolate(search, rest)
            else:
                self._suspect(rest, rest)

    async def _isolate(self, search: _Search, nodes: Sequence[Node]) -> None:
        """Find the ids that make the batch fail, if single ids do."""
        bad: list[Node] = []
        for probe in self._probes(nodes):
            outcome = await self._ask(search, [probe])
            if outcome is _Outcome.ANSWERED:
                break
            if outcome in _NO_USE:
                return
            bad.append(probe)
        else:
            return
        probed = {key(node) for node in (*bad, probe)}
        rest = [node for node in nodes if key(node) not in probed]
        # With a bad one found already, the rest may be sound as a whole.
        bad += await self._halve(search, [rest] if bad and rest else _halves(rest))
        self._suspect(nodes, bad)

    async def _halve(self, search: _Search, parts: list[Sequence[Node]]) -> Sequence[Node]:
        """Ask about the parts, halve those that fail; return the nodes that fail alone."""
        bad: list[Node] = []
        for _ in range(SEARCH_CALLS):
            if not parts:
                return bad
            part = parts.pop(0)
            outcome = await self._ask(search, part)
            if outcome in _NO_USE:
                return bad
            if outcome is _Outcome.SUSPICIOUS and len(part) == 1:
                bad += part
            elif outcome is _Outcome.SUSPICIOUS:
                parts += _halves(part)
        # The calls are used up. What was not asked goes apart from the sound ones next time.
        return bad + [node for part in parts for node in part]

    def _probes(self, nodes: Sequence[Node]) -> Sequence[Node]:
        """Pick some nodes, far apart, and others each time, to ask about one by one."""
        count = min(PROBES, len(nodes))
        self._turn += 1
        step = len(nodes) // count
        return [nodes[(self._turn + index * step) % len(nodes)] for index in range(count)]

    async def _ask(self, search: _Search, nodes: Sequence[Node]) -> _Outcome:
        """Make one call and note its observation of each node."""
        began = self._clock()
        self._calls += 1
        call = self._calls
        answers = await self._call(nodes, search)
        ended = self._clock()
        for node in nodes:
            answer = answers if isinstance(answers, CloudError) else answers[node.metadata.name]
            search.observations[key(node)] = Observation(answer, began, ended, call, search.refused)
        if not isinstance(answers, CloudError):
            return _Outcome.ANSWERED
        if search.hung:
            return _Outcome.HUNG
        is_hopeless = isinstance(answers, _NOT_ONE_NODES_FAULT)
        return _Outcome.HOPELESS if is_hopeless else _Outcome.SUSPICIOUS

    async def _call(
        self, nodes: Sequence[Node], search: _Search
    ) -> Mapping[str, InstanceAnswer] | CloudError:
        search.refused = False
        try:
            async with asyncio.timeout_at(search.end):
                return await self._renames.describe(nodes)
        except CloudError as error:
            search.refused = not isinstance(error, Fault)
            return error
        except TimeoutError:
            search.hung = True
            fault = Unanswered(
                f"describe had no answer for {len(nodes)} nodes in {self._deadline:g} s"
            )
            self._on_error(fault, Kind.HUNG)
            return fault

    def _suspect(self, nodes: Sequence[Node], bad: Sequence[Node]) -> None:
        """Make the bad nodes of a batch suspects, and the others not."""
        for node in nodes:
            self._suspects.pop(key(node), None)
        self._suspects.update(dict.fromkeys(key(node) for node in bad))

    def _still_suspect(self, bad: Sequence[Node]) -> None:
        """Move suspects to the end of the line; failing alone proves nothing new."""
        for known in (key(node) for node in bad):
            if known in self._suspects:
                self._suspects[known] = self._suspects.pop(known)


def key(node: Node) -> Key:
    """Return the key of the node's observations."""
    return node.metadata.uid, node.spec.provider_id


def outage(observations: Mapping[str, Observation]) -> CloudError | None:
    """Return the error that all answers share, unless one node can be its cause; else None."""
    errors = [
        observed.answer
        for observed in observations.values()
        if isinstance(observed.answer, CloudError)
    ]
    if not errors or len(errors) < len(observations):
        return None
    is_general = len(errors) > 1 and not any(isinstance(e, IdentityConflict) for e in errors)
    return errors[0] if is_general or isinstance(errors[0], _NOT_ONE_NODES_FAULT) else None


def _halves(nodes: Sequence[Node]) -> list[Sequence[Node]]:
    middle = len(nodes) // 2
    return [half for half in (nodes[:middle], nodes[middle:]) if half]
