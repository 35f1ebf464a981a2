"""Make the simulated cloud hard to use: quotas and injected faults."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from proreus.testing.simulated.model import Fault, FaultMode, Settings


class Quotas:
    """Token buckets, one per credential for reads and one for writes."""

    def __init__(self) -> None:
        """Fill all buckets."""
        self._buckets: dict[tuple[str, bool], tuple[float, float]] = {}

    def take(self, caller: str, settings: Settings, now: float, *, read: bool) -> float:
        """Take a token; return 0, or the seconds until there will be one."""
        rate = settings.read_rate if read else settings.write_rate
        burst = settings.read_burst if read else settings.write_burst
        if rate <= 0:
            return 0.0
        tokens, then = self._buckets.get((caller, read), (burst, now))
        tokens = min(burst, tokens + (now - then) * rate)
        if tokens < 1:
            self._buckets[caller, read] = (tokens, now)
            return (1 - tokens) / rate
        self._buckets[caller, read] = (tokens - 1, now)
        return 0.0


class Faults:
    """The faults to inject; the first that matches a call hits it."""

    def __init__(self) -> None:
        """Begin without a fault."""
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Inject `fault` from now on."""
        self._faults.append(fault)

    def clear(self) -> None:
        """Forget all faults."""
        self._faults.clear()

    def take(self, operation: str, target: str = "") -> Fault | None:
        """Return the fault that hits this call, if any, and count it."""
        for index, fault in enumerate(self._faults):
            if not fnmatchcase(operation, fault.operation):
                continue
            if not fnmatchcase(target, fault.target):
                continue
            if fault.skip > 0:
                self._faults[index] = msgspec.structs.replace(fault, skip=fault.skip - 1)
                continue
            if fault.count == 1:
                del self._faults[index]
            elif fault.count > 1:
                self._faults[index] = msgspec.structs.replace(fault, count=fault.count - 1)
            return fault
        return None


def spoil(
    fault: Fault | None, answer: dict[str, Any], request: Mapping[str, Any]
) -> dict[str, Any]:
    """Return an answer as the faults DROP and MISSING leave it."""
    if fault is None or fault.mode not in {FaultMode.DROP, FaultMode.MISSING}:
        return answer
    field = next((f for f in ("instances", "resources") if f in answer), None)
    if field is None:
        return answer
    items: Sequence[dict[str, Any]] = answer[field]
    lost = round(len(items) * fault.share)
    spoilt = dict(answer)
    spoilt[field] = items[lost:]
    if "next_page_token" in answer:
        spoilt["next_page_token"] = ""
    if fault.mode is FaultMode.MISSING and "missing_ids" in answer:
        for by in ("id", "name"):
            of_lost = {item[by] for item in items[:lost]} & set(request.get(f"{by}s", ()))
            spoilt[f"missing_{by}s"] = [*answer[f"missing_{by}s"], *sorted(of_lost)]
    return spoilt
