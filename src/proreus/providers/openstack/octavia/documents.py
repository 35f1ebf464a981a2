"""Load balancers as Octavia's API has them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proreus.providers.openstack.machines import Described, id_of
from proreus.providers.openstack.octavia.parts import Balancer, Listener, Member, Monitor, Pool

Document = dict[str, Any]


def member(of: Member) -> Document:
    """A member as it is given to a pool."""
    found: Document = {"address": of.address, "protocol_port": of.port}
    if of.name:
        found["name"] = of.name[:255]
    if of.subnet_id:
        found["subnet_id"] = of.subnet_id
    if of.monitor_port:
        found["monitor_port"] = of.monitor_port
    return found


def monitor(of: Monitor, tags: Sequence[str]) -> Document:
    """A monitor as it is made."""
    return {"name": of.name, "type": of.type, "tags": list(tags), **of.fields}


def pool(of: Pool, tags: Sequence[str], *, whole: bool) -> Document:
    """A pool as it is made: `whole` with its members and its monitor."""
    found: Document = {"name": of.name, "protocol": of.protocol, "tags": list(tags), **of.fields}
    if found.get("session_persistence") is None:
        found.pop("session_persistence", None)
    if whole:
        found["members"] = [member(one) for one in of.members]
        if of.monitor is not None:
            found["healthmonitor"] = monitor(of.monitor, tags)
    return found


def listener(of: Listener, tags: Sequence[str], *, whole: bool) -> Document:
    """A listener as it is made: `whole` with its pool."""
    found: Document = {
        "name": of.name,
        "protocol": of.protocol,
        "protocol_port": of.port,
        "tags": list(tags),
        **of.fields,
    }
    if found.get("allowed_cidrs") is None:
        found.pop("allowed_cidrs", None)
    if whole and of.pool is not None:
        found["default_pool"] = pool(of.pool, tags, whole=True)
    return found


def balancer(of: Balancer, tags: Sequence[str], *, whole: bool) -> Document:
    """A load balancer as it is made: `whole` with all its parts."""
    found: Document = {"name": of.name, "tags": list(tags), **of.placed, **of.fields}
    if whole:
        found["listeners"] = [listener(one, tags, whole=True) for one in of.listeners]
    return found


def actual(
    described: Described, listeners: Iterable[Described], pools: Iterable[Described]
) -> Balancer:
    """What there is, but for members and monitors.

    Args:
        described: The load balancer.
        listeners: The Service's.
        pools: The Service's.
    """
    by_id = {id_of(one): _pool(one) for one in pools}
    found = tuple(_listener(one, by_id) for one in listeners)
    used = {one.pool.id for one in found if one.pool is not None}
    return Balancer(
        name=str(described.get("name", "")),
        fields=described,
        placed={},
        listeners=found,
        stray=tuple(sorted(set(by_id) - used)),
        id=id_of(described),
        status=str(described.get("provisioning_status", "")),
    )


def port_of(described: Described) -> tuple[str, int]:
    """What no other listener can have: `Listener.key`."""
    return _listener(described, {}).key


def _listener(described: Described, pools: Mapping[str, Pool]) -> Listener:
    fields = dict(described)
    ranges = described.get("allowed_cidrs") or None
    if ranges is not None and {"0.0.0.0/0", "::/0"} & set(ranges):
        ranges = None  # what the official manager sets means the same as nothing
    fields["allowed_cidrs"] = None if ranges is None else sorted(ranges)
    return Listener(
        protocol=str(described["protocol"]),
        port=int(described["protocol_port"]),
        fields=fields,
        pool=pools.get(str(described.get("default_pool_id") or "")),
        name=str(described.get("name", "")),
        id=id_of(described),
    )


def monitor_of(of: Pool) -> str:
    """The id of the monitor of a pool as it is; "" if it has none."""
    return str(of.fields.get("healthmonitor_id") or "")


def read(of: Pool, members: Iterable[Described], monitor_: Described | None) -> Pool:
    """A pool with its members and its monitor."""
    return msgspec.structs.replace(
        of,
        is_read=True,
        members=tuple(
            Member(
                address=str(one["address"]),
                port=int(one["protocol_port"]),
                subnet_id=str(one.get("subnet_id") or ""),
                monitor_port=int(one.get("monitor_port") or 0),
                name=str(one.get("name") or ""),
            )
            for one in members
        ),
        monitor=None
        if monitor_ is None
        else Monitor(str(monitor_["type"]), dict(monitor_), id=id_of(monitor_)),
    )


def _pool(described: Described) -> Pool:
    fields = dict(described)
    persistence = described.get("session_persistence")
    fields["session_persistence"] = {"type": persistence["type"]} if persistence else None
    return Pool(
        protocol=str(described["protocol"]),
        fields=fields,
        name=str(described.get("name", "")),
        id=id_of(described),
        is_read=False,
    )
