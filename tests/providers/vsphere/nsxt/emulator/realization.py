"""Realize what is desired: some time after a write, and not always with success."""

import heapq
import ipaddress
import itertools
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final

from .errors import EXHAUSTED, bad_path
from .store import Store

Json = dict[str, Any]

RELEASE: Final = 120_000
"""Milliseconds for which a released address is in use, as `ip_release_delay` has by default."""
_POINT: Final = "/infra/sites/default/enforcement-points/default"


class Realization:
    """The state of objects at the enforcement point.

    Attributes:
        works: Seconds until a write is realized.
        never: Paths of objects that are not realized, or `*` for all.
        broken: Paths of objects whose realization fails, with what the alarm says.
        leases: The addresses of each IP pool that are in use: by which allocation, or until when.
    """

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store, self._now = store, now
        self.works = 0.0
        self.never: set[str] = set()
        self.broken: dict[str, str] = {}
        self.leases: dict[str, dict[str, str | float]] = defaultdict(dict)
        self._state: dict[str, Json] = {}
        self._due: list[tuple[float, int, str, int]] = []
        self._numbers = itertools.count()

    def written(self, one: Json) -> None:
        """An object was created or changed: begin to realize it."""
        path = one["path"]
        begun = self._state.setdefault(
            path, {"state": "UNREALIZED", "attributes": {}, "alarms": []}
        )
        begun["revision"] = one["_revision"]
        if self.works:
            begun |= {"state": "UNREALIZED", "alarms": []}
        heapq.heappush(
            self._due, (self._now() + self.works, next(self._numbers), path, one["_revision"])
        )
        self.advance()

    def deleted(self, one: Json) -> None:
        """An object was deleted: its address is in use until the pool's release delay is over."""
        self._state.pop(one["path"], None)
        if one["resource_type"] != "IpAddressAllocation":
            return
        pool = _pool(one["path"])
        delay = self._store.objects.get(pool, {}).get("ip_release_delay", RELEASE) / 1000
        for address, lease in self.leases[pool].items():
            if lease == one["path"]:
                self.leases[pool][address] = self._now() + delay

    def advance(self) -> None:
        """Realize all whose time has come."""
        while self._due and self._due[0][0] <= self._now():
            _, _, path, revision = heapq.heappop(self._due)
            state = self._state.get(path)
            if state is None or state["revision"] != revision:
                continue
            if path in self.never or "*" in self.never:
                continue
            message = self.broken.get(path, "")
            if not message and self._store.objects[path]["resource_type"] == "IpAddressAllocation":
                message = self._allocate(path, state)
            state["state"] = "ERROR" if message else "REALIZED"
            state["alarms"] = [_alarm(path, message)] if message else []

    def entities(self, path: str) -> list[Json]:
        """The realized entities of an intent.

        Raises:
            NsxError: There is no such intent.
        """
        self.advance()
        one = self._store.objects.get(path)
        if one is None:
            raise bad_path(path)
        state = self._state.get(path)
        if state is None:
            return []
        kind = f"Realized{one['resource_type']}"
        entity = {
            "entity_type": kind, "resource_type": "GenericPolicyRealizedResource",
            "id": f"{one['id']}-realized", "display_name": one["display_name"],
            "path": f"{_POINT}/realized-state/{path.removeprefix('/infra/')}",
            "relative_path": f"{one['id']}-realized", "parent_path": _POINT,
            "intent_paths": [path], "intent_reference": [path], "state": state["state"],
            "enforcement_point_path": _POINT, "site_path": "/infra/sites/default",
            "realization_specific_identifier": one["unique_id"], "alarms": state["alarms"],
            "runtime_status": "UNINITIALIZED", "publish_status": "UNAVAILABLE",
            "extended_attributes": [
                {"data_type": "STRING", "multivalue": False, "key": key, "values": [value]}
                for key, value in state["attributes"].items()
            ],
            "_system_owned": False, "_protection": "NOT_PROTECTED", "_revision": 0,
        }  # fmt: skip
        return [entity]

    def address(self, path: str) -> str:
        """The address of an allocation, or nothing."""
        self.advance()
        return str(self._state.get(path, {"attributes": {}})["attributes"].get("allocation_ip", ""))

    def usage(self, pool: str) -> Json:
        """The field `pool_usage` of an IP pool."""
        self.advance()
        total, used = len(list(self._addresses(pool))), len(self._in_use(pool))
        asked = [one for one in self._store.children(pool) if "/ip-allocations/" in one]
        return {
            "total_ips": total, "available_ips": max(total - used, 0),
            "requested_ip_allocations": len(asked), "allocated_ip_allocations": used,
        }  # fmt: skip

    def _allocate(self, path: str, state: Json) -> str:
        """Give an allocation its address; why it gets none."""
        if state["attributes"]:
            return ""
        pool, wanted = _pool(path), self._store.objects[path].get("allocation_ip")
        used = self._in_use(pool)
        free = [one for one in self._addresses(pool) if one not in used]
        if wanted and wanted not in free:
            return f"The IP address {wanted} of {path} is not free in IpAddressPool path=[{pool}]."
        if not free:
            return (
                f"IpAddressPool path=[{pool}] is exhausted, no free IPs available for allocation."
            )
        address = wanted or free[0]
        self.leases[pool][address] = path
        state["attributes"] = {"allocation_ip": address}
        return ""

    def _in_use(self, pool: str) -> set[str]:
        leases = self.leases[pool]
        for address in [a for a, one in leases.items() if not isinstance(one, str)]:
            if float(leases[address]) <= self._now():
                del leases[address]
        return set(leases)

    def _addresses(self, pool: str) -> Iterator[str]:
        for path in self._store.children(pool):
            for part in self._store.objects[path].get("allocation_ranges", ()):
                first, last = (ipaddress.ip_address(part[end]) for end in ("start", "end"))
                for number in range(int(first), int(last) + 1):
                    yield str(type(first)(number))


def _pool(path: str) -> str:
    return path.partition("/ip-allocations/")[0]


def _alarm(path: str, message: str) -> Json:
    """An alarm: its error's code tells an exhausted pool from others."""
    code = EXHAUSTED if "is exhausted" in message else 500000
    return {
        "id": str(uuid.uuid4()), "resource_type": "PolicyAlarmResource", "message": message,
        "source_reference": path,
        "error_details": {
            "error_code": code, "module_name": "policy", "error_message": message,
            "related_errors": [],
        },
    }  # fmt: skip
