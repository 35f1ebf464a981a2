"""Read the leases by which replicas of the manager elect a leader."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec


class Lease(msgspec.Struct, frozen=True):
    """A lease, valid for `seconds` after `renewed`; `holder` is "" once released."""

    name: str
    holder: str
    renewed: datetime | None
    seconds: float


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    renew_time: datetime | None = None
    lease_duration_seconds: float | None = None


def of_manager(items: Iterable[dict[str, Any]], name: str) -> tuple[Lease, ...]:
    """Select the lease named `name` and those of its single controllers.

    A controller's lease begins with the manager's name and a dash.
    """
    found = []
    for item in items:
        own = item["metadata"]["name"]
        if own == name or own.startswith(f"{name}-"):
            spec = msgspec.convert(item.get("spec") or {}, _Spec)
            seconds = spec.lease_duration_seconds or 0.0
            found.append(Lease(own, spec.holder_identity or "", spec.renew_time, seconds))
    return tuple(found)
