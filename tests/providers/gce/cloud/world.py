"""The state of a project in Compute Engine: resources by their paths, and operations that take time.

What is special about a kind of resource is in `kinds`.
"""

import base64
import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

from .errors import ApiError, exists, invalid, not_found, not_ready, precondition

Resource = dict[str, Any]
Effect = Callable[[], None]

PROJECT: Final = "proreus-test"
NUMBER: Final = "123456789012"
REGION: Final = "us-central1"
ZONES: Final = tuple(f"{REGION}-{letter}" for letter in "abc")
NETWORK: Final = f"projects/{PROJECT}/global/networks/default"
SUBNET: Final = f"projects/{PROJECT}/regions/{REGION}/subnetworks/default"
INSIDE: Final = SUBNET.replace("/default", "/inside")
OUTSIDE: Final = SUBNET.replace("/default", "/outside")
"""Subnetworks with internal and with external addresses of IPv6; one has one kind only."""
PODS: Final = "pods"
"""The secondary range of the subnetwork."""
CREATED: Final = "2026-11-22T00:00:00.000-08:00"


def part_of(path: str) -> str:
    """What comes after the project."""
    return path.split("/", 2)[2]


class World:
    """A project with its network.

    Attributes:
        latency: Seconds that an operation takes.
        page: The most items of a page.
        lag: Seconds until a list shows what was made.
        down: Zones that lists do not reach.
        warns: Whether lists that are to be whole say of such a zone only by a warning in its place
            that it is unreachable, as the list's schema has it and gcloud expects; else they fail.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.base = ""
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        with self.lock:
            self.latency, self.page, self.lag = 0.0, 500, 0.0
            self.down: set[str] = set()
            self.warns = False
            self.objects: dict[str, Resource] = {}
            self._operations: dict[str, dict[str, Any]] = {}
            self._made: dict[str, float] = {}
            self._busy: dict[str, str] = {}
            self._ids = itertools.count(4_000_000_000_000_000_000)
            self._addresses = itertools.count(10)
            self._found()

    def _found(self) -> None:
        """Make what there is in every project."""
        link = f"projects/{PROJECT}/regions/{REGION}"
        for zone in ZONES:
            path = f"projects/{PROJECT}/zones/{zone}"
            self.put(path, {"name": zone, "status": "UP", "region": self.link(link)})
        other = f"projects/{PROJECT}/regions/europe-west1"
        path = f"projects/{PROJECT}/zones/europe-west1-b"
        self.put(path, {"name": "europe-west1-b", "status": "UP", "region": self.link(other)})
        self.put(NETWORK, {"name": "default", "autoCreateSubnetworks": True})
        self.put(
            SUBNET,
            {
                "name": "default",
                "ipCidrRange": "10.128.0.0/20",
                "network": self.link(NETWORK),
                "secondaryIpRanges": [{"rangeName": PODS, "ipCidrRange": "10.40.0.0/14"}],
            },
        )
        for path, type_, v4, v6 in (
            (INSIDE, "INTERNAL", "172.16.0.0/20", "fd20:1:2:3::/64"),
            (OUTSIDE, "EXTERNAL", "172.16.16.0/20", "2600:1900:1:2::/64"),
        ):
            dual = {"stackType": "IPV4_IPV6", "ipv6AccessType": type_, "ipv6CidrRange": v6}
            named = {"name": path.split("/")[-1], "ipCidrRange": v4, "network": self.link(NETWORK)}
            self.put(path, {**named, **dual})
        self.put(
            f"projects/{PROJECT}",
            {"name": PROJECT, "commonInstanceMetadata": {"kind": "compute#metadata", "items": []}},
        )
        self.objects[f"projects/{PROJECT}"]["id"] = NUMBER

    # Resources

    def link(self, path: str) -> str:
        """The URL of a resource."""
        return f"{self.base}/compute/v1/{path}"

    def path(self, reference: str, within: str = "") -> str:
        """The path of what a URL or a part of one names."""
        text = (
            reference.rsplit("/compute/v1/", maxsplit=1)[-1]
            .rsplit("/compute/beta/", maxsplit=1)[-1]
            .strip("/")
        )
        if not text.startswith("projects/"):
            text = f"projects/{within or PROJECT}/{text}"
        return text.replace(f"projects/{NUMBER}/", f"projects/{PROJECT}/")

    def put(self, path: str, resource: Mapping[str, Any]) -> Resource:
        """Keep a resource as it is from now on."""
        made = self.objects.get(path)
        whole: Resource = {
            "id": made["id"] if made else str(next(self._ids)),
            "creationTimestamp": CREATED,
            **deepcopy(dict(resource)),
            "selfLink": self.link(path),
        }
        for scope in ("zone", "region"):
            if f"/{scope}s/" in path and path.count("/") > 3:
                whole[scope] = self.link("/".join(path.split("/")[:4]))
        self.objects[path] = whole
        self._made.setdefault(path, time.monotonic())
        return whole

    def drop(self, path: str) -> None:
        """Forget a resource."""
        self.objects.pop(path, None)
        self._made.pop(path, None)

    def get(self, path: str) -> Resource:
        """A resource by its name or id; raises that there is none."""
        prefix, _, last = path.rpartition("/")
        alike = (one for at, one in self.objects.items() if at.rpartition("/")[0] == prefix)
        by_id = (one for one in alike if last.isdecimal() and one["id"] == last)
        found = self.objects.get(path) or next(by_id, None)
        if found is None:
            raise not_found(path)
        return found

    def require(self, reference: str, field: str, within: str = "") -> str:
        """The path of something that another resource refers to, which must be there."""
        path = self.path(reference, within)
        if path not in self.objects:
            why = "The referenced resource cannot be found."
            raise invalid(f"resource.{field}", reference, why)
        return path

    def of(self, kind: str) -> Iterator[tuple[str, Resource]]:
        """All resources of a kind, by path."""
        return ((path, one) for path, one in self.objects.items() if path.split("/")[-2] == kind)

    def listed(self, prefix: str) -> list[Resource]:
        """What a list of this collection shows now, in the order of names."""
        now = time.monotonic()
        return [
            deepcopy(one)
            for path, one in sorted(self.objects.items())
            if path.rpartition("/")[0] == prefix and now - self._made[path] >= self.lag
        ]

    # Operations

    def operate(self, verb: str, target: str, effect: Effect, *, claims: bool = False) -> Resource:
        """Begin an operation, whose effect comes when it is done.

        Args:
            verb: Its type, such as insert.
            target: The path of the resource.
            effect: What it does in the end.
            claims: Whether nothing else may be done to the resource until then.
        """
        if target in self._busy:
            raise exists(target) if verb == "insert" else not_ready(target)
        scope = "/".join(target.split("/")[:4]) if "/global/" not in target else ""
        scope = scope if "/zones/" in target or "/regions/" in target else ""
        place = scope or f"projects/{target.split('/')[1]}/global"
        name = f"operation-{next(self._ids)}"
        path = f"{place}/operations/{name}"
        self._operations[path] = {
            "done": time.monotonic() + self.latency,
            "effect": effect,
            "target": target if claims else "",
            "shown": {
                "kind": "compute#operation",
                "id": str(next(self._ids)),
                "name": name,
                "operationType": verb,
                "targetLink": self.link(target),
                "selfLink": self.link(path),
                "insertTime": CREATED,
                "progress": 0,
                "status": "RUNNING",
            },
        }
        shown = self._operations[path]["shown"]
        for kind in ("zone", "region"):
            if f"/{kind}s/" in place:
                shown[kind] = self.link(place)
        if claims:
            self._busy[target] = path
        first: Resource = deepcopy(shown)
        if not self.latency:
            self.tick()
        return first

    def tick(self) -> None:
        """Let the effects come of what is done by now."""
        now = time.monotonic()
        for path, one in list(self._operations.items()):
            if one["effect"] is None or one["done"] > now:
                continue
            effect, one["effect"] = one["effect"], None
            self._busy.pop(one["target"], None)
            shown = self._operations[path]["shown"]
            try:
                effect()
            except ApiError as error:
                shown.update(error.of_operation)
            shown.update(status="DONE", progress=100, endTime=CREATED)

    def operation(self, path: str) -> Resource:
        """An operation as it is now."""
        if path not in self._operations:
            raise not_found(path)
        found: Resource = deepcopy(self._operations[path]["shown"])
        return found

    def remaining(self, path: str) -> float:
        """Seconds until it is done."""
        one = self._operations.get(path)
        return 0.0 if one is None or one["effect"] is None else one["done"] - time.monotonic()


def fingerprint(value: object) -> str:
    """What must be given back to change something."""
    return base64.b64encode(hashlib.sha256(repr(value).encode()).digest()[:12]).decode()


def check_fingerprint(given: Any, resource: Mapping[str, Any], field: str) -> None:
    """Refuse a change of what somebody else has changed."""
    if given != resource.get(field):
        raise precondition(field)
