"""How long node changes take to reach all load balancers, for Go's `nodesync` metrics."""

from collections.abc import Iterable

import msgspec


class NodeSyncs(msgspec.Struct):
    """The Services that still wait for their hosts to be updated. Pure; times in seconds."""

    waiting: set[str] = msgspec.field(default_factory=set)
    started: float = 0.0
    failed: bool = False

    def begin(self, keys: Iterable[str], now: float) -> None:
        """These Services have new hosts; what comes while others wait belongs to the same sync."""
        if not self.waiting:
            self.started, self.failed = now, False
        self.waiting.update(keys)

    def done(self, key: str, *, failed: bool = False) -> bool:
        """A Service was updated, or need not be any more; whether it was the last one."""
        if key not in self.waiting:
            return False
        self.waiting.discard(key)
        self.failed |= failed
        return not self.waiting
