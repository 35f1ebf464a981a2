"""Azure Resource Graph of the emulator: rows that lag, pages, and a quota of its own.

It knows as much of the query language as the documentation's examples for machines of scale sets
need: `where` with `=~` and `in`, `extend` with `split(tolower(id), …)[0]`, `project`, `order by`.
Everything else it refuses as the graph refuses what it cannot read.

https://learn.microsoft.com/azure/governance/resource-graph/concepts/query-language
"""

import copy
import re
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from .errors import ArmError, invalid
from .rights import check_action
from .store import SUBSCRIPTION, Resource, Store

KIND: Final = "Microsoft.ResourceGraph/resources"
PATH: Final = f"/providers/{KIND}"
LONGEST: Final = 1000
"""Rows on a page."""
_VM: Final = "microsoft.compute/virtualmachinescalesets/virtualmachines"
TYPES: Final = frozenset(
    {
        _VM,
        f"{_VM}/networkinterfaces",
        f"{_VM}/networkinterfaces/ipconfigurations/publicipaddresses",
    }
)
"""The types in the table ComputeResources."""

_WHERE = re.compile(r"where (\w+) =~ '([^']*)'")
_IN = re.compile(r"where (\w+) in \(((?:'[^']*'(?:, )?)+)\)")
_EXTEND = re.compile(r"extend (\w+) = tostring\(split\(tolower\((\w+)\), '([^']*)'\)\[0\]\)")
_PROJECT = re.compile(r"project (.+)")
_FIELD = re.compile(r"(?:(?P<name>\w+) = )?(?:tostring\((?P<text>[\w.]+)\)|(?P<path>[\w.]+))")
_ORDER = re.compile(r"order by (\w+) asc")

Stage = Callable[[Iterable[Resource]], list[Resource]]


class Graph:
    """The rows, as they were when they were read last, and who may ask how often.

    Attributes:
        quota: Queries that a caller has in a window, and its seconds.
        page: Rows on a page.
        types: Those that there are in the table.
        scrubbed: Paths below properties that rows do not have.
        throttled: How many queries were refused.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._frozen: dict[str, Resource] | None = None
        self._window = (0.0, 0)
        self.quota = (15, 5.0)
        self.page = LONGEST
        self.types = TYPES
        self.scrubbed: set[str] = set()
        self.throttled = 0

    def lag(self) -> None:
        """Rows stay as they are now, whatever happens to resources."""
        self._frozen = copy.deepcopy(self._store.of)

    def catch_up(self) -> None:
        """Rows show what there is."""
        self._frozen = None

    def admit(self) -> dict[str, str]:
        """Count a query; the headers that say what is left of the quota."""
        most, seconds = self.quota
        begun, count = self._window
        now = time.monotonic()
        if now - begun >= seconds:
            begun, count = now, 0
        self._window = begun, count + 1
        left = int(seconds - (now - begun)) + 1
        headers = {
            "x-ms-user-quota-remaining": str(max(most - count - 1, 0)),
            "x-ms-user-quota-resets-after": f"00:00:{left:02}",
        }
        if count >= most:
            self.throttled += 1
            raise ArmError(429, "RateLimiting", "Client application has been throttled.", headers)
        return headers

    def answer(self, body: Any, actions: set[str] | None) -> dict[str, Any]:
        """The answer to a query: a page of rows that the caller may read."""
        check_action(actions, f"{KIND}/read", PATH)
        options = body.get("options") or {}
        found = self._found(body, actions)
        start = int(options.get("$skipToken") or 0)
        page = min(self.page, int(options.get("$top") or LONGEST))
        shown = found[start : start + page]
        said: dict[str, Any] = {"totalRecords": len(found), "count": len(shown), "data": shown}
        said |= {"facets": [], "resultTruncated": "false"}
        if start + page < len(found):
            said["$skipToken"] = str(start + page)
        return said

    def _found(self, body: Any, actions: set[str] | None) -> list[Resource]:
        if SUBSCRIPTION not in (body.get("subscriptions") or []):
            return []
        table, *stages = (part.strip() for part in str(body["query"]).split(" | "))
        if table.lower() != "computeresources":
            raise invalid("InvalidQuery", f"Failed to resolve table expression named '{table}'.")
        allowed = None if actions is None else {one.lower() for one in actions}
        rows = [
            self._row(one)
            for one in (self._store.of if self._frozen is None else self._frozen).values()
            if one["type"].lower() in self.types
            and (allowed is None or f"{one['type']}/read".lower() in allowed)
        ]
        for stage in stages:
            rows = _stage(stage)(rows)
        return rows

    def _row(self, one: Resource) -> Resource:
        """A row: the model, and of the instance view the power state alone, by another path."""
        row = copy.deepcopy(one)
        row["type"] = row["type"].lower()
        view = row["properties"].pop("instanceView", None)
        if view is not None:
            codes = (str(status["code"]) for status in view["statuses"])
            power = next((code for code in codes if code.startswith("PowerState/")), None)
            row["properties"]["extended"] = {"instanceView": {"powerState": {"code": power}}}
        for path in self.scrubbed:
            *above, last = path.split(".")
            inner = row["properties"]
            for name in above:
                inner = inner.get(name) or {}
            inner.pop(last, None)
        return row


def _stage(text: str) -> Stage:
    """What a stage of a query makes of rows."""
    if found := _WHERE.fullmatch(text):
        name, value = found[1], found[2].lower()
        return lambda rows: [one for one in rows if str(one.get(name)).lower() == value]
    if found := _IN.fullmatch(text):
        name, values = found[1], set(re.findall(r"'([^']*)'", found[2]))
        return lambda rows: [one for one in rows if one.get(name) in values]
    if found := _EXTEND.fullmatch(text):
        name, source, by = found.groups()
        return lambda rows: [{**one, name: str(one[source]).lower().split(by)[0]} for one in rows]
    if found := _PROJECT.fullmatch(text):
        fields = [_field(one) for one in found[1].split(", ")]
        return lambda rows: [{name: of(one) for name, of in fields} for one in rows]
    if found := _ORDER.fullmatch(text):
        name = found[1]
        return lambda rows: sorted(rows, key=lambda one: str(one.get(name)))
    raise invalid("InvalidQuery", f"Query is invalid: {text}")


def _field(text: str) -> tuple[str, Callable[[Resource], Any]]:
    found = _FIELD.fullmatch(text)
    if found is None:
        raise invalid("InvalidQuery", f"Query is invalid: {text}")
    path, is_text = found["text"] or found["path"], bool(found["text"])

    def read(row: Resource) -> Any:
        value: Any = row
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return str(value or "") if is_text else value

    return found["name"] or path.replace(".", "_"), read
