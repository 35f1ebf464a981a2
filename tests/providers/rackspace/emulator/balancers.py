"""The emulated Cloud Load Balancers of one account in one region."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from . import checks
from .checks import Json
from .faults import Fault, clb, invalid

_SIMPLE: Final = (
    "name", "id", "protocol", "port", "algorithm", "status", "timeout", "virtualIps", "created",
    "updated",
)  # fmt: skip
_STAMP: Final = {"time": "2026-01-01T00:00:00Z"}
_BATCH: Final = 10

Body = Json
Handler = Callable[["Balancers", Json, Body, Sequence[int]], Any]


class Balancers:
    """Load balancers by id; each works on one change at a time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.by_id: dict[int, Json] = {}
        self.works = 0.0
        """Seconds for which a load balancer works on a change."""
        self.limit, self.node_limit = 25, 25
        self.page = 100
        self.hides: frozenset[str] = frozenset()
        """Parts that details leave out, which are to be asked for by themselves."""
        self.unlisted: set[int] = set()
        """Ids that lists leave out."""
        self._now = now
        self._ids = itertools.count(1001)
        self._until: dict[int, float] = {}

    def advance(self) -> None:
        """Finish what is done by now."""
        for id_, until in list(self._until.items()):
            if until <= self._now():
                del self._until[id_]
                one = self.by_id[id_]
                is_going = one["status"] == "PENDING_DELETE"
                one["status"] = "DELETED" if is_going else "ACTIVE"
                if is_going:
                    one["virtualIps"] = []

    def finish(self) -> None:
        """Finish all that is worked on, however long it would take."""
        self._until = dict.fromkeys(self._until, 0.0)
        self.advance()

    def alive(self) -> list[Json]:
        """Those that are not deleted, in their order."""
        return [one for one in self.by_id.values() if one["status"] != "DELETED"]

    def get(self, id_: int) -> Json:
        """One of them, deleted ones too."""
        try:
            return self.by_id[id_]
        except KeyError:
            raise clb(404, "Load balancer not found") from None

    def listed(self, query: Json) -> Json:
        """A page, from the marker on; the marker is the first of it."""
        found = [one for one in self.alive() if one["id"] >= int(query.get("marker", 0))]
        found = [one for one in found if one["id"] not in self.unlisted]
        found = found[int(query.get("offset", 0)) :]
        if name := query.get("name"):
            found = [one for one in found if one["name"] == name]
        limit = min(int(query.get("limit", self.page)), self.page)
        shown = [
            {**{field: one[field] for field in _SIMPLE}, "nodeCount": len(one["nodes"])}
            for one in found[:limit]
        ]
        return {"loadBalancers": shown}

    def details(self, id_: int) -> Json:
        """All of one; what is not set is left out."""
        one = self.get(id_)
        if one["status"] == "DELETED":
            short = ("id", "name", "status", "created", "updated")
            return {"loadBalancer": {field: one[field] for field in short}}
        shown = {field: value for field, value in one.items() if value or field == "nodes"}
        return {"loadBalancer": {k: v for k, v in shown.items() if k not in self.hides}}

    def create(self, body: Body) -> Json:
        """Make one, all of it at once."""
        given = _inner(body, "loadBalancer")
        checks.balancer(given, new=True)
        if len(self.alive()) >= self.limit:
            raise clb(
                413, f"Load balancer limit reached. Limit is set to '{self.limit}'. Contact support"
                " if you would like to increase your limit.",
            )  # fmt: skip
        if len(given.get("nodes", [])) > self.node_limit:
            raise clb(413, "Node limit for this load balancer exceeded.")
        protocol = given["protocol"]
        port = given.get("port") or checks.PROTOCOLS[protocol]
        vips = list(self._virtual_ips(given["virtualIps"]))
        self._check_port(vips, port, protocol, 0)
        id_ = next(self._ids)
        self.by_id[id_] = {
            "id": id_, "name": given["name"], "protocol": protocol, "port": port,
            "algorithm": given.get("algorithm", "RANDOM"), "status": "BUILD",
            "timeout": given.get("timeout", 30), "halfClosed": given.get("halfClosed", False),
            "virtualIps": vips, "nodes": [], "created": _STAMP, "updated": _STAMP,
            "accessList": self._numbered(given.get("accessList", [])),
            "metadata": self._numbered(given.get("metadata", [])),
            "healthMonitor": given.get("healthMonitor"),
            "sessionPersistence": given.get("sessionPersistence"),
            "connectionThrottle": given.get("connectionThrottle"),
            "cluster": {"name": "ztm-n01"}, "httpsRedirect": False,
            "sourceAddresses": {
                "ipv6Public": "2001:db8:79f1:1::3/64", "ipv4Servicenet": "10.183.250.1",
                "ipv4Public": "198.51.100.28",
            },
            "connectionLogging": {"enabled": False}, "contentCaching": {"enabled": False},
        }  # fmt: skip
        self._add_nodes(self.by_id[id_], given.get("nodes", []))
        self._work(id_)
        return {"loadBalancer": self.details(id_)["loadBalancer"] | {"status": "BUILD"}}

    def delete(self, ids: Sequence[int]) -> None:
        """Delete all of them, or none."""
        gone = [id_ for id_ in ids if id_ not in self.by_id]
        if gone:
            raise clb(
                400, f"Must provide valid load balancers: {_joined(gone)}  could not be found."
            )
        busy = [id_ for id_ in ids if self.by_id[id_]["status"] != "ACTIVE"]
        if busy:
            raise clb(
                400, f"Must provide valid load balancers: {_joined(busy)}  are immutable and could"
                " not be processed.",
            )  # fmt: skip
        if not ids or len(ids) > _BATCH:
            raise clb(400, "Must supply one to ten ids to process this request.")
        for id_ in ids:
            self.by_id[id_]["status"] = "PENDING_DELETE"
            self._work(id_)

    def change(self, method: str, id_: int, part: str, body: Body, ids: Sequence[int]) -> Any:
        """Change a part of one; `ids` are those of its items."""
        one = self.get(id_)
        if one["status"] == "DELETED":
            raise clb(422, "The load balancer is deleted and considered immutable.")
        handler = _HANDLERS.get((method, part))
        if handler is None:
            raise Fault(405, {"message": "Method Not Allowed", "code": 405})
        before = one["status"]
        if before != "ACTIVE" and (method, part) not in _ALWAYS:
            text = f"Load Balancer '{id_}' has a status of '{before}' and is considered immutable."
            is_bulk = (method, part) == ("DELETE", "nodes")
            raise clb(422, "LoadBalancer is not ACTIVE" if is_bulk else text)
        answer = handler(self, one, body, ids)
        if part != "metadata":
            one["status"] = "PENDING_UPDATE"
            self._work(id_)
        return answer

    def part(self, id_: int, part: str) -> Json:
        """What is asked for by itself; empty where it is not set."""
        one = self.get(id_)
        if part not in _PARTS:
            raise clb(404, "Object not Found")
        field, empty = _PARTS[part]
        return {field: one[field] or empty}

    def _work(self, id_: int) -> None:
        self._until[id_] = self._now() + self.works
        if not self.works:
            self.advance()

    def _numbered(self, items: Sequence[Json]) -> list[Json]:
        return [{**one, "id": next(self._ids)} for one in items]

    def _add_nodes(self, one: Json, given: Sequence[Json]) -> list[Json]:
        defaults = {"type": "PRIMARY", "weight": 1, "status": "ONLINE"}
        made = self._numbered([{**defaults, **node} for node in given])
        one["nodes"] += made
        return made

    def _virtual_ips(self, given: Sequence[Json]) -> Iterator[Json]:
        shared = {vip["id"]: vip for one in self.alive() for vip in one["virtualIps"]}
        for wanted in given:
            if "id" in wanted:
                if wanted["id"] not in shared:
                    raise clb(400, "Shared virtual ip could not be found.")
                yield shared[wanted["id"]]
                continue
            versions = [wanted["ipVersion"]] if "ipVersion" in wanted else ["IPV4", "IPV6"]
            for version in versions if wanted["type"] == "PUBLIC" else ["IPV4"]:
                number = next(self._ids)
                network = "10.180.0" if wanted["type"] == "SERVICENET" else "203.0.113"
                text = f"{network}.{number % 250}" if version == "IPV4" else f"2001:db8::{number}"
                yield {
                    "id": number, "address": text, "type": wanted["type"], "ipVersion": version,
                }  # fmt: skip

    def _check_port(self, vips: Sequence[Json], port: int, protocol: str, but: int) -> None:
        ids = {vip["id"] for vip in vips}
        for one in self.alive():
            is_shared = ids & {vip["id"] for vip in one["virtualIps"]} and one["port"] == port
            if is_shared and one["id"] != but and not checks.can_share(one["protocol"], protocol):
                raise clb(
                    400, "Another load balancer is currently using the requested port with the"
                    " shared virtual ip.",
                )  # fmt: skip

    # Changes

    def update(self, one: Json, body: Body, _: Sequence[int]) -> None:
        given = _inner(body, "loadBalancer")
        checks.balancer(given, new=False)
        protocol = str({**one, **given}["protocol"])
        if protocol != one["protocol"]:
            given.setdefault("port", checks.PROTOCOLS[protocol])
            if one["healthMonitor"]:
                checks.monitor(one["healthMonitor"], protocol)
            one["sessionPersistence"] = None
        if given.get("port", one["port"]) != one["port"] or protocol != one["protocol"]:
            port = int({**one, **given}["port"])
            self._check_port(one["virtualIps"], port, protocol, one["id"])
        one |= given

    def add_nodes(self, one: Json, body: Body, _: Sequence[int]) -> Json:
        checks.only(body, {"nodes"}, "The request")
        checks.nodes(body["nodes"])
        if len(one["nodes"]) + len(body["nodes"]) > self.node_limit:
            raise clb(413, f"Nodes must not exceed {self.node_limit} per load balancer.")
        there = {(node["address"], node["port"]) for node in one["nodes"]}
        if there & {(node["address"], node["port"]) for node in body["nodes"]}:
            raise clb(422, "Duplicate nodes detected. One or more nodes already configured.")
        return {"nodes": self._add_nodes(one, body["nodes"])}

    def update_node(self, one: Json, body: Body, ids: Sequence[int]) -> None:
        checks.only(body, {"node"}, "The request")
        checks.only(body["node"], {"condition", "type", "weight"}, "A node")
        checks.node(body["node"])
        (node,) = self.items(one, "nodes", ids, 404)
        node |= body["node"]

    def add_access(self, one: Json, body: Body, _: Sequence[int]) -> None:
        checks.only(body, {"accessList"}, "The request")
        there = [item["address"] for item in one["accessList"]]
        checks.access_list(body["accessList"], there)
        one["accessList"] += self._numbered(body["accessList"])

    def add_metadata(self, one: Json, body: Body, _: Sequence[int]) -> Json:
        checks.only(body, {"metadata"}, "The request")
        checks.metadata(body["metadata"])
        keys = {item["key"] for item in one["metadata"]}
        if keys & {item["key"] for item in body["metadata"]}:
            raise clb(422, "Duplicate metadata keys detected.")
        made = self._numbered(body["metadata"])
        one["metadata"] += made
        return {"metadata": made}

    def update_metadata(self, one: Json, body: Body, ids: Sequence[int]) -> None:
        checks.only(body, {"meta"}, "The request")
        checks.only(body["meta"], {"value"}, "An item of metadata")
        checks.metadata([{"key": "known", **body["meta"]}])
        (item,) = self.items(one, "metadata", ids, 404)
        item |= body["meta"]

    def set_monitor(self, one: Json, body: Body, _: Sequence[int]) -> None:
        given = _inner(body, "healthMonitor")
        checks.monitor(given, one["protocol"])
        one["healthMonitor"] = given

    def set_persistence(self, one: Json, body: Body, _: Sequence[int]) -> None:
        given = _inner(body, "sessionPersistence")
        checks.persistence(given, one["protocol"])
        one["sessionPersistence"] = given

    def set_throttle(self, one: Json, body: Body, _: Sequence[int]) -> None:
        there = one["connectionThrottle"]
        given = _inner(body, "connectionThrottle")
        checks.throttle(given, new=not there)
        one["connectionThrottle"] = {**(there or {}), **given}

    def items(self, one: Json, field: str, ids: Sequence[int], status: int) -> list[Json]:
        """The items of one of its lists; refuse ids that are not there."""
        found = [item for item in one[field] if item["id"] in ids]
        if len(found) < len(set(ids)):
            absent = set(ids) - {item["id"] for item in found}
            if status == 404:
                raise clb(404, f"Item with id #{_joined(absent)} not found")
            raise invalid(f"Node ids {_joined(absent)} are not a part of your loadbalancer")
        return found


def _inner(body: Body, word: str) -> Json:
    """What is sent of one thing: the documents wrap it in its name, libcloud does not."""
    if word not in body:
        return dict(body)
    checks.only(body, {word}, "The request")
    return dict(body[word])


def _joined(ids: Any) -> str:
    return ", ".join(map(str, sorted(ids)))


def _remover(field: str) -> Handler:
    def remove(at: Balancers, one: Json, _: Body, ids: Sequence[int]) -> None:
        if field == "accessList" and not ids:
            if not one[field]:
                raise clb(422, "No access list found to delete")
            one[field] = []
            return
        if not ids or len(ids) > _BATCH:
            raise invalid("Please provide one to ten ids per request.")
        going = at.items(one, field, ids, 400)
        one[field] = [item for item in one[field] if item not in going]

    return remove


def _clearer(field: str, text: str) -> Handler:
    def clear(_: Balancers, one: Json, __: Body, ___: Sequence[int]) -> None:
        if not one[field]:
            raise clb(422, text)
        one[field] = None

    return clear


_PARTS: Final[dict[str, tuple[str, Any]]] = {
    "accesslist": ("accessList", []),
    "connectionthrottle": ("connectionThrottle", {}),
    "healthmonitor": ("healthMonitor", {}),
    "metadata": ("metadata", []),
    "nodes": ("nodes", []),
    "sessionpersistence": ("sessionPersistence", {}),
    "virtualips": ("virtualIps", []),
}
_ALWAYS: Final = {("PUT", "metadata"), ("DELETE", "metadata")}
_HANDLERS: Final[dict[tuple[str, str], Handler]] = {
    ("PUT", ""): Balancers.update,
    ("POST", "nodes"): Balancers.add_nodes,
    ("PUT", "nodes"): Balancers.update_node,
    ("DELETE", "nodes"): _remover("nodes"),
    ("POST", "accesslist"): Balancers.add_access,
    ("DELETE", "accesslist"): _remover("accessList"),
    ("POST", "metadata"): Balancers.add_metadata,
    ("PUT", "metadata"): Balancers.update_metadata,
    ("DELETE", "metadata"): _remover("metadata"),
    ("PUT", "healthmonitor"): Balancers.set_monitor,
    ("DELETE", "healthmonitor"): _clearer("healthMonitor", "No health monitor found to delete."),
    ("PUT", "sessionpersistence"): Balancers.set_persistence,
    ("DELETE", "sessionpersistence"): _clearer(
        "sessionPersistence", "Session persistence is already deleted."
    ),
    ("PUT", "connectionthrottle"): Balancers.set_throttle,
    ("DELETE", "connectionthrottle"): _clearer(
        "connectionThrottle", "No connection throttle found to delete."
    ),
}
