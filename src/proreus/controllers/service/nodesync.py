"""Measure how long node changes take to reach all load balancers, for Go's `nodesync` metrics."""

from collections.abc import Iterable

import msgspec


class NodeSyncs(msgspec.Struct):
    """The Services whose hosts are still to be updated. Pure; times in seconds."""

    waiting: set[str] = msgspec.field(default_factory=set)
    started: float = 0.0
    failed: bool = False

    def begin(self, keys: Iterable[str], now: float) -> None:
        """Add Services whose hosts changed; they join a sync that has not ended, or begin one."""
        if not self.waiting:
            self.started, self.failed = now, False
        self.waiting.update(keys)

    def done(self, key: str, *, failed: bool = False) -> bool:
        """Remove a Service; tell whether it was the last one."""
        if key not in self.waiting:
            return False
        self.waiting.discard(key)
        self.failed |= failed
        return not self.waiting
