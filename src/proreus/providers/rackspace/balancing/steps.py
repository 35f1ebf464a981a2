"""Make the steps that change Cloud Load Balancers: each is one request. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from proreus.cloudprovider.load_balancers import PartChange
from proreus.cloudprovider.steps import PlannedCall
from proreus.providers.rackspace.balancing.parts import (
    ACTIVE,
    ENABLED,
    Desired,
    Existing,
    Item,
    Member,
    Monitor,
    Observed,
    Settings,
    Vip,
)

NEW: Final = 0
"""The id of a part to which Rackspace has not given one yet."""
DELETE: Final = "load_balancer_delete"
"""The operation that ends a load balancer."""
_IDLE: Final = {"minConnections": 0, "maxConnectionRate": 0, "rateInterval": 1}
"""Values that connection throttling still requires, and that no longer mean anything."""


class Call(msgspec.Struct, frozen=True):
    """A request to Cloud Load Balancers.

    Attributes:
        operation: The name of the operation in metrics.
        method: The HTTP method.
        path: The path below the endpoint, with the query.
        balancer: The id of the load balancer that the request changes; `NEW` if it makes one.
        body: The body that is sent.
    """

    operation: str
    method: str
    path: str
    balancer: int = NEW
    body: Mapping[str, Any] | None = None


Step = PlannedCall[Call, Observed]


def create(settings: Settings, desired: Desired, vips: Sequence[Vip]) -> Step:
    """Return the step to make a load balancer, all of it at once.

    Args:
        settings: The settings of the load balancer.
        desired: The desired load balancers of the Service.
        vips: The virtual IPs that it shares; none if it gets new ones.
    """
    place = desired.place
    new = [{"type": place.type, "ipVersion": version} for version in sorted(place.versions)]
    body: dict[str, Any] = {
        "name": settings.name,
        "protocol": settings.protocol,
        "port": settings.port,
        "algorithm": settings.algorithm,
        "timeout": settings.timeout,
        "virtualIps": [{"id": vip.id} for vip in vips] or new,
        "metadata": _metadata(desired.marks),
    }
    if settings.members:
        body["nodes"] = [_node(one) for one in sorted(settings.members)]
    if settings.access:
        body["accessList"] = _items(settings.access)
    if settings.monitor:
        body["healthMonitor"] = _monitor(settings.monitor)
    if settings.persistence:
        body["sessionPersistence"] = {"persistenceType": settings.persistence}
    if settings.max_connections:
        body["connectionThrottle"] = _throttle(settings.max_connections)
    unknown = tuple(Vip(NEW, "", place.type, version) for version in sorted(place.versions))
    made = Existing(NEW, ACTIVE, tuple(vips) or unknown, settings, desired.marks)
    address = "a shared address" if vips else f"a new {place.type} address"
    line = PartChange("create", f"load balancer {settings.name}", f"{_text(settings)}, {address}")
    return Step(
        Call("load_balancer_create", "POST", "loadbalancers", NEW, {"loadBalancer": body}),
        lambda before: Observed((*before.existing, made)),
        (line,),
    )


def delete(one: Existing) -> Step:
    """Return the step to delete a load balancer."""
    return Step(
        Call(DELETE, "DELETE", f"loadbalancers/{one.id}", one.id),
        lambda before: Observed(tuple(it for it in before.existing if it.id != one.id)),
        (PartChange("delete", f"load balancer {one.settings.name}"),),
    )


def update(one: Existing, settings: Settings) -> Step:
    """Return the step to change a load balancer's own fields.

    The port is sent with the protocol, whose default port it would get otherwise; another protocol
    ends session persistence.
    """
    fields = {
        name: getattr(settings, name)
        for name in ("name", "algorithm", "protocol", "timeout")
        if getattr(settings, name) != getattr(one.settings, name)
    }
    after = replace(one.settings, **fields)
    if "protocol" in fields:
        fields["port"] = settings.port
        after = replace(after, persistence="")
    detail = ", ".join(f"{name}={value}" for name, value in fields.items())
    return _change(
        one, after, _call(one, "load_balancer_update", "PUT", "", {"loadBalancer": fields}), detail
    )


def mark(one: Existing, marks: Mapping[str, str]) -> Step:
    """Return the step to put marks on a load balancer; a mark with another value is replaced."""
    wrong = [key for key, value in marks.items() if one.marks.get(key, value) != value]
    if wrong:
        path = f"metadata?{_query(one.mark_ids[key] for key in wrong)}"
        left = {key: value for key, value in one.marks.items() if key not in wrong}
        call = _call(one, "metadata_delete", "DELETE", path, None)
    else:
        missing = {key: value for key, value in marks.items() if key not in one.marks}
        left = {**one.marks, **missing}
        call = _call(one, "metadata_add", "POST", "metadata", {"metadata": _metadata(missing)})
    after = replace(one, marks=left)
    return Step(call, lambda before: _replaced(before, one, after), (_line(one, "our marks"),))


def add_members(one: Existing, members: Sequence[Member]) -> Step:
    """Return the step to add nodes."""
    body = {"nodes": [_node(member) for member in members]}
    after = replace(one.settings, members=one.settings.members | set(members))
    lines = tuple(
        PartChange("create", f"node {member.address}:{member.port}", one.settings.name)
        for member in members
    )
    return _change(one, after, _call(one, "node_add", "POST", "nodes", body), lines=lines)


def remove_members(one: Existing, members: Sequence[Member]) -> Step:
    """Return the step to take nodes out: ten at most."""
    ids = _query(one.member_ids[member.address, member.port] for member in members)
    after = replace(one.settings, members=one.settings.members - set(members))
    lines = tuple(
        PartChange("delete", f"node {member.address}:{member.port}", one.settings.name)
        for member in members
    )
    return _change(
        one, after, _call(one, "node_delete", "DELETE", f"nodes?{ids}", None), lines=lines
    )


def enable_member(one: Existing, member: Member) -> Step:
    """Return the step to let a node have traffic again."""
    id_ = one.member_ids[member.address, member.port]
    members = {*one.settings.members - {member}, replace(member, condition=ENABLED)}
    after = replace(one.settings, members=frozenset(members))
    body = {"node": {"condition": ENABLED, "type": "PRIMARY"}}
    detail = f"node {member.address}:{member.port} enabled"
    return _change(one, after, _call(one, "node_update", "PUT", f"nodes/{id_}", body), detail)


def add_access(one: Existing, items: Sequence[Item]) -> Step:
    """Return the step to add items to an access list."""
    after = replace(one.settings, access=one.settings.access | set(items))
    body = {"accessList": _items(items)}
    detail = ", ".join(f"{item.type.lower()} {item.address}" for item in items)
    return _change(one, after, _call(one, "access_add", "POST", "accesslist", body), detail)


def remove_access(one: Existing, items: Sequence[Item]) -> Step:
    """Return the step to take items out of an access list: ten at most, or all of them."""
    after = replace(one.settings, access=one.settings.access - set(items))
    ids = _query(one.item_ids[item.address] for item in items) if after.access else ""
    detail = ", ".join(f"no longer {item.type.lower()} {item.address}" for item in items)
    path = f"accesslist?{ids}" if ids else "accesslist"
    return _change(one, after, _call(one, "access_delete", "DELETE", path, None), detail)


def set_monitor(one: Existing, monitor: Monitor | None) -> Step:
    """Return the step to set the health monitor of nodes, or to remove it."""
    after = replace(one.settings, monitor=monitor)
    if monitor is None:
        return _change(
            one, after, _call(one, "monitor_delete", "DELETE", "healthmonitor", None), "no monitor"
        )
    body = {"healthMonitor": _monitor(monitor)}
    detail = f"{monitor.type} monitor every {monitor.delay} s"
    return _change(one, after, _call(one, "monitor_update", "PUT", "healthmonitor", body), detail)


def set_persistence(one: Existing, persistence: str) -> Step:
    """Return the step to set how clients stay with a node, or that they do not."""
    after = replace(one.settings, persistence=persistence)
    path, detail = "sessionpersistence", f"session persistence {persistence or 'off'}"
    if not persistence:
        return _change(one, after, _call(one, "persistence_delete", "DELETE", path, None), detail)
    body = {"sessionPersistence": {"persistenceType": persistence}}
    return _change(one, after, _call(one, "persistence_update", "PUT", path, body), detail)


def set_throttle(one: Existing, most: int) -> Step:
    """Return the step to limit the connections of a client; 0 removes the limit."""
    after = replace(one.settings, max_connections=most)
    path, detail = "connectionthrottle", f"{most or 'any number of'} connections of a client"
    if not most:
        return _change(one, after, _call(one, "throttle_delete", "DELETE", path, None), detail)
    body = {"connectionThrottle": _throttle(most)}
    return _change(one, after, _call(one, "throttle_update", "PUT", path, body), detail)


def _change(
    one: Existing,
    after: Settings,
    call: Call,
    detail: str = "",
    *,
    lines: tuple[PartChange, ...] = (),
) -> Step:
    changed = replace(one, settings=after)
    return Step(
        call, lambda before: _replaced(before, one, changed), lines or (_line(one, detail),)
    )


def _call(
    one: Existing, operation: str, method: str, path: str, body: Mapping[str, Any] | None
) -> Call:
    return Call(operation, method, f"loadbalancers/{one.id}/{path}".rstrip("/"), one.id, body)


def _line(one: Existing, detail: str) -> PartChange:
    return PartChange("change", f"load balancer {one.settings.name}", detail)


def _replaced(before: Observed, old: Existing, new: Existing) -> Observed:
    return Observed(tuple(new if one.id == old.id else one for one in before.existing))


def _query(ids: Any) -> str:
    return "&".join(f"id={id_}" for id_ in sorted(ids))


def _node(member: Member) -> Mapping[str, Any]:
    return {"address": member.address, "port": member.port, "condition": ENABLED}


def _items(items: Collection[Item]) -> list[Mapping[str, str]]:
    return [{"address": one.address, "type": one.type} for one in sorted(items)]


def _metadata(marks: Mapping[str, str]) -> list[Mapping[str, str]]:
    return [{"key": key, "value": value} for key, value in sorted(marks.items())]


def _monitor(monitor: Monitor) -> Mapping[str, Any]:
    found: dict[str, Any] = {
        "type": monitor.type,
        "delay": monitor.delay,
        "timeout": monitor.timeout,
        "attemptsBeforeDeactivation": monitor.attempts,
    }
    if monitor.path:
        found |= {"path": monitor.path, "statusRegex": monitor.status_regex}
    return found


def _throttle(most: int) -> Mapping[str, int]:
    return {"maxConnections": most, **_IDLE}


def _text(settings: Settings) -> str:
    allowed = sorted(one.address for one in settings.access if one.type == "ALLOW")
    sources = ", ".join(allowed) or ("nobody" if settings.access else "everyone")
    return (
        f"{settings.protocol} {settings.port}, {settings.algorithm},"
        f" {len(settings.members)} nodes, from {sources}"
    )
