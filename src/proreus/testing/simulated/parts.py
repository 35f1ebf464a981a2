"""Create, change and delete the simulated cloud's parts by all rules of the API."""

import ipaddress
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from proreus.testing.simulated.machines import Machines
from proreus.testing.simulated.model import (
    AddressPart,
    AnyPart,
    ApiError,
    Firewall,
    Listener,
    LoadBalancer,
    Part,
    Route,
    Settings,
    Target,
)
from proreus.testing.simulated.store import Key, Table, kind_key

KINDS: Mapping[str, type[AnyPart]] = {
    "addresses": AddressPart,
    "load_balancers": LoadBalancer,
    "listeners": Listener,
    "firewalls": Firewall,
    "routes": Route,
}
_PREFIXES: Mapping[type[Part], str] = {
    AddressPart: "addr",
    LoadBalancer: "lb",
    Listener: "lsn",
    Firewall: "fw",
    Route: "rt",
}
_GIVEN_BY_THE_CLOUD = frozenset({"id", "kind", "version", "created", "active_at", "targets"})
_CHANGEABLE: Mapping[type[Part], frozenset[str]] = {
    AddressPart: frozenset({"tags"}),
    LoadBalancer: frozenset({"tags", "internal", "affinity_seconds", "health_check"}),
    Listener: frozenset({"tags", "target_port", "proxy_protocol"}),
    Firewall: frozenset({"tags", "source_ranges"}),
    Route: frozenset({"tags", "instance_id"}),
}
_MAX_PORT = 65535
_WITH_BROADCAST = 30
"""The longest prefix of a network whose last address is no host's."""


class Parts:
    """All parts of the simulated cloud, with the indexes that its rules need."""

    def __init__(
        self,
        table: Table[AnyPart],
        machines: Machines,
        settings: Callable[[], Settings],
        now: Callable[[], float],
        chance: random.Random,
    ) -> None:
        """Load what the table holds; ids come from `chance`."""
        self._table = table
        self._machines = machines
        self._settings = settings
        self._now = now
        self._chance = chance
        self._tokens: dict[tuple[type[Part], str], str] = {}
        self._on: defaultdict[str, set[str]] = defaultdict(set)
        self._addresses: set[int] = set()
        for part in table.all():
            self._index(part)

    def all(self) -> Sequence[AnyPart]:
        """Return every part, in the order of ids."""
        return self._table.all()

    def keyed(self, *keys: Key, prefix: str = "", lag: float = 0.0) -> Sequence[AnyPart]:
        """Return the parts with all the keys and names that begin so, in the order of ids."""
        return self._table.keyed(*keys, prefix=prefix, lag=lag)

    def find(self, id_: str) -> AnyPart | None:
        """Return the part as it is now, or None."""
        return self._table.get(id_)

    def on(self, id_: str) -> list[AnyPart]:
        """Return the parts that refer to the part `id_`, in the order of ids."""
        return [self._table_get(other) for other in sorted(self._on.get(id_, ()))]

    def get(self, kind: type[AnyPart], id_: str) -> AnyPart:
        """Return a part by id, as it was `read_lag` ago."""
        return self._of_kind(kind, id_, self._table.get(id_, lag=self._settings().read_lag))

    def create(self, kind: type[AnyPart], body: Mapping[str, Any]) -> tuple[AnyPart, bool]:
        """Make a part; return it and True, or for a known token the earlier part and False."""
        token = body.get("idempotency_token", "")
        if token and (kind, token) in self._tokens:
            return self._table_get(self._tokens[kind, token]), False
        foreign = _GIVEN_BY_THE_CLOUD & body.keys()
        if foreign:
            raise ApiError(400, "BadRequest", f"only the cloud sets {sorted(foreign)}")
        now = self._now()
        given = {"id": f"{_PREFIXES[kind]}-{self._chance.getrandbits(48):012x}", "created": now}
        if kind is LoadBalancer:
            given["active_at"] = now + self._settings().provision_delay
        part = _convert({**body, **given}, kind)
        if self._settings().unique_names and any(
            type(other) is kind for other in self._table.keyed(("name", part.name))
        ):
            raise ApiError(
                409, "NameTaken", f"there is another {kind.__name__} with the name {part.name!r}"
            )
        part = self._admit(part)
        self._table.put([part])
        self._index(part)
        return part, True

    def change(self, kind: type[AnyPart], id_: str, body: Mapping[str, Any]) -> AnyPart:
        """Change a part if `version` is the one that it has."""
        old = self._of_kind(kind, id_, self._table.get(id_))
        changes = dict(body)
        if changes.pop("version", None) != old.version:
            raise ApiError(409, "VersionConflict", f"{id_} has version {old.version}")
        refused = changes.keys() - _CHANGEABLE[kind]
        if refused:
            raise ApiError(400, "BadRequest", f"these fields cannot be changed: {sorted(refused)}")
        new = _convert(msgspec.to_builtins(old) | changes | {"version": old.version + 1}, kind)
        _check_fields(new)
        if isinstance(new, Route):
            self._check_instance(new)
        self._table.put([new])
        return new

    def delete(self, kind: type[AnyPart], id_: str) -> AnyPart:
        """Delete a part that no other refers to."""
        part = self._of_kind(kind, id_, self._table.get(id_))
        users = self.on(id_)
        if users:
            raise ApiError(409, "InUse", f"{id_} is in use by {users[0].id}")
        return self.remove(part)

    def remove(self, part: AnyPart) -> AnyPart:
        """Remove a part whatever refers to it."""
        self._table.delete(part.id)
        self._tokens.pop((type(part), part.idempotency_token), None)
        self._on[_refers_to(part)].discard(part.id)
        if isinstance(part, AddressPart):
            self._addresses.discard(int(ipaddress.IPv4Address(part.address)))
        return part

    def add_targets(self, id_: str, targets: Sequence[Target]) -> tuple[AnyPart, dict[str, str]]:
        """Add or replace targets; return the load balancer and why some were rejected."""
        balancer = self._load_balancer(id_)
        rejected = {}
        current = {target.instance_id: target for target in balancer.targets}
        for target in targets:
            reason = self._refusal(target)
            if reason:
                rejected[target.instance_id] = reason
            else:
                current[target.instance_id] = target
        return self._put_targets(balancer, current), rejected

    def remove_targets(self, id_: str, instance_ids: Sequence[str]) -> AnyPart:
        """Take targets off; those that are not there are no error."""
        balancer = self._load_balancer(id_)
        gone = set(instance_ids)
        return self._put_targets(
            balancer, {t.instance_id: t for t in balancer.targets if t.instance_id not in gone}
        )

    def _refusal(self, target: Target) -> str:
        instance = self._machines.find(target.instance_id)
        if instance is None:
            return "no such instance"
        if instance.state in {"terminating", "terminated"}:
            return f"the instance is {instance.state}"
        if target.address not in {address.address for address in instance.addresses}:
            return f"{target.address} is not an address of the instance"
        return ""

    def _put_targets(self, balancer: LoadBalancer, current: Mapping[str, Target]) -> AnyPart:
        new = msgspec.structs.replace(balancer, targets=tuple(current.values()))
        self._table.put([new])
        return new

    def _admit(self, part: AnyPart) -> AnyPart:
        """Check a new part against the rest of the cloud; give an address part its address."""
        _check_fields(part)
        if isinstance(part, AddressPart):
            return msgspec.structs.replace(part, address=self._allocate(part.address))
        if isinstance(part, LoadBalancer):
            self._of_kind(AddressPart, part.address_id, self._table.get(part.address_id))
            if self.on(part.address_id):
                raise ApiError(409, "InUse", f"{part.address_id} is in use")
        elif isinstance(part, Listener):
            self._admit_listener(part)
        elif isinstance(part, Firewall):
            self._load_balancer(part.load_balancer_id)
        else:
            self._admit_route(part)
        return part

    def _admit_listener(self, part: Listener) -> None:
        balancer = self._load_balancer(part.load_balancer_id)
        for other in self.on(balancer.id):
            if isinstance(other, Listener) and (other.protocol, other.port) == (
                part.protocol,
                part.port,
            ):
                raise ApiError(
                    409, "Conflict", f"{other.id} already listens on {part.protocol} {part.port}"
                )

    def _admit_route(self, part: Route) -> None:
        self._check_instance(part)
        found = self._table.keyed(kind_key(Route))
        routes = [other for other in found if isinstance(other, Route)]
        if any(other.destination == part.destination for other in routes):
            raise ApiError(409, "Conflict", f"there is already a route to {part.destination}")
        if len(routes) >= self._settings().route_limit:
            raise ApiError(
                409, "LimitExceeded", f"the route table is full, it has {len(routes)} routes"
            )

    def _check_instance(self, part: Route) -> None:
        if self._machines.find(part.instance_id) is None:
            raise ApiError(404, "NotFound", f"there is no instance {part.instance_id}")

    def _allocate(self, address: str) -> str:
        pool = ipaddress.IPv4Network(self._settings().pool)
        if address:
            if not _is_in(address, pool):
                raise ApiError(400, "BadRequest", f"address: {address} is not in {pool}")
            if int(ipaddress.IPv4Address(address)) in self._addresses:
                raise ApiError(409, "Conflict", f"{address} is taken")
            return address
        first = int(next(iter(pool.hosts())))
        end = int(pool.broadcast_address) + (pool.prefixlen > _WITH_BROADCAST)
        free = next((one for one in range(first, end) if one not in self._addresses), None)
        if free is None:
            raise ApiError(409, "LimitExceeded", f"the pool {pool} is exhausted")
        return str(ipaddress.IPv4Address(free))

    def _load_balancer(self, id_: str) -> LoadBalancer:
        part = self._of_kind(LoadBalancer, id_, self._table.get(id_))
        if not isinstance(part, LoadBalancer):  # pragma: no cover - _of_kind saw to it
            raise TypeError(part)
        return part

    def _of_kind(self, kind: type[AnyPart], id_: str, part: AnyPart | None) -> AnyPart:
        if type(part) is not kind:
            raise ApiError(404, "NotFound", f"there is no {kind.__name__} {id_}")
        return part

    def _table_get(self, id_: str) -> AnyPart:
        part = self._table.get(id_)
        if part is None:  # pragma: no cover - an index without its object is a defect
            raise KeyError(id_)
        return part

    def _index(self, part: AnyPart) -> None:
        if part.idempotency_token:
            self._tokens[type(part), part.idempotency_token] = part.id
        if isinstance(part, AddressPart):
            self._addresses.add(int(ipaddress.IPv4Address(part.address)))
        refers_to = _refers_to(part)
        if refers_to:
            self._on[refers_to].add(part.id)


def _refers_to(part: AnyPart) -> str:
    """Return the id of the part to which this one belongs, or ""."""
    if isinstance(part, LoadBalancer):
        return part.address_id
    if isinstance(part, Listener | Firewall):
        return part.load_balancer_id
    return ""


def _convert(body: Mapping[str, Any], kind: type[AnyPart]) -> AnyPart:
    try:
        part: AnyPart = msgspec.convert({**body, "kind": kind.__struct_config__.tag}, kind)
    except msgspec.ValidationError as error:
        raise ApiError(400, "BadRequest", str(error)) from error
    return part


def _check_fields(part: AnyPart) -> None:
    if isinstance(part, Listener):
        for name, port in (("port", part.port), ("target_port", part.target_port)):
            if not 1 <= port <= _MAX_PORT:
                raise ApiError(400, "BadRequest", f"{name}: {port} is no port")
    cidrs = part.source_ranges if isinstance(part, Firewall) else ()
    if isinstance(part, Route):
        cidrs = (part.destination,)
    for cidr in cidrs:
        try:
            ipaddress.ip_network(cidr)
        except ValueError as error:
            raise ApiError(400, "BadRequest", f"{cidr!r} is not a CIDR") from error


def _is_in(address: str, pool: ipaddress.IPv4Network) -> bool:
    try:
        return ipaddress.IPv4Address(address) in pool
    except ValueError:
        return False
