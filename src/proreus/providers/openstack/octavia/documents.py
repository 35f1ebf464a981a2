"""Translate load balancers and their parts to documents of Octavia's API, and back. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proreus.providers.nova.machines import Described, id_of
from proreus.providers.openstack.octavia.parts import Balancer, Listener, Member, Monitor, Pool

Document = dict[str, Any]


def member(desired: Member) -> Document:
    """Return the document of a member, as it is given to a pool."""
    found: Document = {"address": desired.address, "protocol_port": desired.port}
    if desired.name:
        found["name"] = desired.name[:255]
    if desired.subnet_id:
        found["subnet_id"] = desired.subnet_id
    if desired.monitor_port:
        found["monitor_port"] = desired.monitor_port
    return found


def monitor(desired: Monitor, tags: Sequence[str]) -> Document:
    """Return the document to make a monitor."""
    return {"name": desired.name, "type": desired.type, "tags": list(tags), **desired.fields}


def pool(desired: Pool, tags: Sequence[str], *, whole: bool) -> Document:
    """Return the document to make a pool: `whole` with its members and its monitor."""
    found: Document = {
        "name": desired.name,
        "protocol": desired.protocol,
        "tags": list(tags),
        **desired.fields,
    }
    if found.get("session_persistence") is None:
        found.pop("session_persistence", None)
    if whole:
        found["members"] = [member(part) for part in desired.members]
        if desired.monitor is not None:
            found["healthmonitor"] = monitor(desired.monitor, tags)
    return found


def listener(desired: Listener, tags: Sequence[str], *, whole: bool) -> Document:
    """Return the document to make a listener: `whole` with its pool."""
    found: Document = {
        "name": desired.name,
        "protocol": desired.protocol,
        "protocol_port": desired.port,
        "tags": list(tags),
        **desired.fields,
    }
    if found.get("allowed_cidrs") is None:
        found.pop("allowed_cidrs", None)
    if whole and desired.pool is not None:
        found["default_pool"] = pool(desired.pool, tags, whole=True)
    return found


def balancer(desired: Balancer, tags: Sequence[str], *, whole: bool) -> Document:
    """Return the body that creates a load balancer; `whole` creates its listeners with it."""
    found: Document = {"name": desired.name, "tags": list(tags), **desired.placed, **desired.fields}
    if whole:
        found["listeners"] = [listener(part, tags, whole=True) for part in desired.listeners]
    return found


def observed(
    described: Described,
    listeners: Iterable[Described],
    pools: Iterable[Described],
    strange: Collection[str] = (),
) -> Balancer:
    """Return a load balancer as Octavia describes it, without members and monitors.

    Args:
        described: The load balancer as Octavia describes it.
        listeners: The Service's listeners.
        pools: The Service's pools.
        strange: The ids of the pools that are others'.
    """
    pools = tuple(pools)
    by_id = {id_of(pool_): _pool(pool_) for pool_ in pools}
    # A pool names its listeners, which the list of these may lack.
    claimed = {id_of(pool_) for pool_ in pools if pool_.get("listeners")}
    found = tuple(_listener(listener_, by_id, strange) for listener_ in listeners)
    used = {listener_.pool.id for listener_ in found if listener_.pool is not None}
    return Balancer(
        name=str(described.get("name", "")),
        fields=described,
        placed={},
        listeners=found,
        stray=tuple(sorted(set(by_id) - used - claimed)),
        id=id_of(described),
        status=str(described.get("provisioning_status", "")),
    )


def port_of(described: Described) -> tuple[str, int]:
    """Return `Listener.key` of a described listener, which no other can have."""
    return _listener(described, {}).key


def _listener(
    described: Described, pools: Mapping[str, Pool], strange: Collection[str] = ()
) -> Listener:
    fields, used = dict(described), str(described.get("default_pool_id") or "")
    ranges = described.get("allowed_cidrs") or None
    if ranges is not None and {"0.0.0.0/0", "::/0"} & set(ranges):
        ranges = None  # what the official manager sets means the same as nothing
    fields["allowed_cidrs"] = None if ranges is None else sorted(ranges)
    return Listener(
        protocol=str(described["protocol"]),
        port=int(described["protocol_port"]),
        fields=fields,
        pool=pools.get(used),
        name=str(described.get("name", "")),
        id=id_of(described),
        has_strange_pool=used in strange,
    )


def monitor_of(pool_: Pool) -> str:
    """Return the id of the monitor of an observed pool; "" if it has none."""
    return str(pool_.fields.get("healthmonitor_id") or "")


def read(pool_: Pool, members: Iterable[Described], monitor_: Described | None) -> Pool:
    """Return a pool with its members and its monitor."""
    return msgspec.structs.replace(
        pool_,
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
