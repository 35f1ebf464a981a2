"""Hear from a provider that machines may have changed, so that controllers look at them at once.

    context.hints.changed("cloud://i-1")    a provider, as soon as its cloud tells

A hint is never proof. It only brings a look forward that would have come by itself: what is done
follows from what the cloud answers then, by the same rules. So a wrong hint costs a question, and
a lost one the time until the next round. However many come, each controller looks at a pace that
is bounded (`Listener`, `Pace`).
"""

import asyncio
import contextlib
import math
from collections.abc import Iterator
from typing import Final

import msgspec
from prometheus_client import Counter

from proreus.cloudprovider.metrics import REGISTRY
from proreus.kube.objects import Node

BETWEEN: Final = 1.0
"""Seconds between two hints that a listener gets; what comes meanwhile is in the second one."""
MOST: Final = 10_000
"""Names that a listener keeps; of a provider that gives more, all machines may have changed."""


_HINTS: Final = Counter(
    "proreus_provider_hints_total",
    "Words of a provider that a machine, or any machine of a scope, may have changed.",
    ["about"],
    registry=REGISTRY,
)


class Hint(msgspec.Struct, frozen=True):
    """Machines that may have changed since the last hint.

    Attributes:
        machines: The names of machines, in small letters: provider ids, system UUIDs, names of
            Nodes.
        scopes: The scopes in which all machines may have changed (`Scopes`).
        everything: Whether any machine may have changed.
    """

    machines: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    everything: bool = False

    def names(self, node: Node) -> bool:
        """Tell whether a node's machine is one of `machines`."""
        known = (node.spec.provider_id, node.metadata.name, node.status.node_info.system_uuid)
        return any(one and one.casefold() in self.machines for one in known)


class Hints:
    """The place where a provider leaves hints, `Context.hints`."""

    def __init__(self) -> None:
        """Begin without listeners."""
        self._listeners: tuple[Listener, ...] = ()  # never changed in place: threads read it
        self._heard = asyncio.Event()

    def changed(self, *names: str) -> None:
        """Say that one machine may have changed, or come, or gone; from any thread.

        Args:
            names: The names by which a Node may know the machine: its provider id, the UUID that
                its kubelet reports, the Node's name. A name that no Node has costs nothing.
        """
        _HINTS.labels("machine").inc()
        self._give(Hint(machines=frozenset(name.casefold() for name in names if name)))

    def scope_changed(self, scope: str = "") -> None:
        """Say that any machine of a scope may have changed; from any thread.

        A look at all nodes of the scope costs as much as a full round: it is for a source that has
        lost its place.

        Args:
            scope: As `Scopes.scope` returns it; "" where the provider has none.
        """
        _HINTS.labels("scope").inc()
        self._give(Hint(scopes=frozenset((scope,))))

    async def heard(self) -> None:
        """Wait until somebody listens: before that, nobody needs to watch the cloud."""
        await self._heard.wait()

    @contextlib.contextmanager
    def listen(self) -> Iterator["Listener"]:
        """Listen in the body of a `with`; what came before is not heard."""
        listener = Listener(asyncio.get_running_loop())
        self._listeners = (*self._listeners, listener)
        self._heard.set()
        try:
            yield listener
        finally:
            self._listeners = tuple(one for one in self._listeners if one is not listener)
            if not self._listeners:
                self._heard.clear()

    def _give(self, hint: Hint) -> None:
        for listener in self._listeners:
            listener.tell(hint)


class Listener:
    """A receiver of hints within one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin with no hints."""
        self._loop = loop
        self._machines: set[str] = set()
        self._scopes: set[str] = set()
        self._came = asyncio.Event()
        self._last = -math.inf

    def tell(self, hint: Hint) -> None:
        """Add a hint, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody listens
            self._loop.call_soon_threadsafe(self._add, hint)

    async def next(self) -> Hint:
        """Wait for a hint; return all that came, at most once in `BETWEEN` seconds."""
        await self._came.wait()
        await asyncio.sleep(max(0.0, self._last + BETWEEN - self._loop.time()))
        self._last = self._loop.time()
        self._came.clear()
        machines, self._machines = frozenset(self._machines), set()
        scopes, self._scopes = frozenset(self._scopes), set()
        if len(machines) + len(scopes) > MOST:
            return Hint(everything=True)
        return Hint(machines, scopes)

    def _add(self, hint: Hint) -> None:
        if len(self._machines) + len(self._scopes) <= MOST:
            self._machines |= hint.machines
            self._scopes |= hint.scopes
        self._came.set()


class Pace:
    """A limit of how often something is looked at because of hints; times in seconds.

    The first look is due at once. While hints keep coming, each next one waits twice as long, up to
    `longest`; after `longest` without a hint, it is due at once again.
    """

    def __init__(self, first: float, longest: float) -> None:
        """Begin with no looks; `first` seconds lie between the first two."""
        self._first = first
        self._longest = longest
        self._due: dict[str, tuple[float, float]] = {}

    def delay(self, key: str, now: float) -> float:
        """Return in how many seconds `key` is to be looked at for a hint that came at `now`."""
        due, gap = self._due.get(key, (-math.inf, self._first))
        if due <= now:
            is_quiet = now - due >= self._longest
            due = now if is_quiet else max(now, due + gap)
            gap = self._first if is_quiet else min(2 * gap, self._longest)
            self._due[key] = (due, gap)
        return due - now

    def forget(self, key: str) -> None:
        """Forget the looks at `key`."""
        self._due.pop(key, None)
