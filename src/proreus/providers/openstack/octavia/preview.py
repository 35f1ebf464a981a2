"""Foresee what a step does to a load balancer of Octavia, and describe it. Pure."""

from collections.abc import Iterator, Mapping

import msgspec

from proreus.cloudprovider.load_balancers import PartChange
from proreus.providers.openstack.octavia.parts import Balancer, Listener, Pool
from proreus.providers.openstack.octavia.plan import (
    ACTIVE,
    Change,
    Drop,
    DropBalancer,
    MakeBalancer,
    MakeListener,
    MakeMonitor,
    MakePool,
    SetMembers,
    Step,
)

_NEW = "new "
"""The prefix of the id of a part to which Octavia has not given one yet."""


def pretend(observed: Balancer | None, step: Step) -> Balancer | None:
    """Return the state in Octavia after a step; new parts have no id yet."""
    if isinstance(step, MakeBalancer):
        parts = step.desired.listeners if step.with_parts else ()
        listeners = tuple(_whole(part) for part in parts)
        id_ = f"{_NEW}{step.desired.name}"
        return msgspec.structs.replace(step.desired, id=id_, status=ACTIVE, listeners=listeners)
    if isinstance(step, DropBalancer) or observed is None:
        return None
    if isinstance(step, Change) and step.collection == "loadbalancers":
        return msgspec.structs.replace(observed, fields={**observed.fields, **step.fields})
    if isinstance(step, MakeListener):
        new = msgspec.structs.replace(_whole(step.desired), pool=None)
        return msgspec.structs.replace(observed, listeners=(*observed.listeners, new))
    if isinstance(step, Drop):
        return _without(observed, step)
    listeners = tuple(_changed(listener, step) for listener in observed.listeners)
    return msgspec.structs.replace(observed, listeners=listeners)


def _whole(listener: Listener) -> Listener:
    """Return a listener that is made with all its parts."""
    pool = listener.pool and _made(listener.pool, listener)
    return msgspec.structs.replace(listener, id=f"{_NEW}{_port(listener)}", pool=pool)


def _made(pool: Pool, listener: Listener) -> Pool:
    id_ = f"{_NEW}{listener.protocol} {_port(listener)}"
    monitor = pool.monitor and msgspec.structs.replace(pool.monitor, id=id_)
    return msgspec.structs.replace(pool, id=id_, monitor=monitor, is_read=True)


def _without(observed: Balancer, step: Drop) -> Balancer:
    """Return the load balancer without a part; a pool stays when its listener goes."""
    gone = [listener for listener in observed.listeners if listener.id == step.id]
    loose = [one.pool.id for one in gone if one.pool is not None]
    return msgspec.structs.replace(
        observed,
        listeners=tuple(
            _changed(listener, step) for listener in observed.listeners if listener.id != step.id
        ),
        stray=(*(one for one in observed.stray if one != step.id), *loose),
    )


def _changed(one: Listener, step: Step) -> Listener:
    pool = one.pool
    match step:
        case Change("listeners", one.id, fields):
            is_strange = one.has_strange_pool and "default_pool_id" not in fields
            changed = {**one.fields, **fields}
            return msgspec.structs.replace(one, fields=changed, has_strange_pool=is_strange)
        case MakePool(desired, one.id):
            pool = msgspec.structs.replace(_made(desired, one), members=(), monitor=None)
        case Drop("pools", id_) if pool is not None and pool.id == id_:
            pool = None
        case _ if pool is not None:
            pool = _changed_pool(pool, step)
    return msgspec.structs.replace(one, pool=pool)


def _changed_pool(pool: Pool, step: Step) -> Pool:
    monitor = pool.monitor
    match step:
        case Change("pools", pool.id, fields):
            return msgspec.structs.replace(pool, fields={**pool.fields, **fields})
        case SetMembers(pool.id, members):
            return msgspec.structs.replace(pool, members=members)
        case MakeMonitor(desired, pool.id):
            monitor = msgspec.structs.replace(desired, id=f"{_NEW}{pool.id}")
        case Drop("healthmonitors", id_) if monitor is not None and monitor.id == id_:
            monitor = None
        case Change("healthmonitors", id_, fields) if monitor is not None and monitor.id == id_:
            monitor = msgspec.structs.replace(monitor, fields={**monitor.fields, **fields})
    return msgspec.structs.replace(pool, monitor=monitor)


def part_changes(step: Step, observed: Balancer | None) -> Iterator[PartChange]:
    """Return the lines of `proreus plan` about a step; `observed` is the state before it."""
    match step:
        case MakeBalancer(desired):
            yield PartChange("create", f"load balancer {desired.name}", _text(desired.placed))
            for listener in desired.listeners if step.with_parts else ():
                yield from _changes_of_listener(listener)
        case DropBalancer(id_):
            yield PartChange("delete", f"load balancer {id_}")
        case MakeListener(desired):
            yield PartChange("create", f"listener {_port(desired)}", _text(desired.fields))
        case MakePool(desired):
            yield PartChange("create", f"pool {desired.name}", _text(desired.fields))
        case MakeMonitor(desired):
            yield PartChange("create", f"monitor {desired.type}", _text(desired.fields))
        case SetMembers():
            yield from _changes_of_members(step, observed)
        case Change(collection, id_, fields):
            yield PartChange("change", _named(collection, id_, observed), _text(fields))
        case Drop(collection, id_):
            yield PartChange("delete", _named(collection, id_, observed))


def _changes_of_listener(listener: Listener) -> Iterator[PartChange]:
    yield PartChange("create", f"listener {_port(listener)}", _text(listener.fields))
    pool = listener.pool
    if pool is None:
        return
    yield PartChange("create", f"pool {pool.name}", _text(pool.fields))
    for member in pool.members:
        yield PartChange("create", f"member {member.address}:{member.port}", member.name)
    if pool.monitor is not None:
        yield PartChange("create", f"monitor {pool.monitor.type}", _text(pool.monitor.fields))


def _changes_of_members(step: SetMembers, observed: Balancer | None) -> Iterator[PartChange]:
    pools = (
        [listener.pool for listener in observed.listeners if listener.pool is not None]
        if observed
        else []
    )
    old = {
        (member.address, member.port): member
        for pool in pools
        if pool.id == step.pool
        for member in pool.members
    }
    new = {(member.address, member.port): member for member in step.members}
    for (address, port), one in new.items():
        part = f"member {address}:{port}"
        if (address, port) not in old:
            yield PartChange("create", part, one.name)
        elif old[address, port].key != one.key:
            yield PartChange(
                "change", part, f"subnet_id={one.subnet_id}, monitor_port={one.monitor_port}"
            )
    for address, port in old.keys() - new.keys():
        yield PartChange("delete", f"member {address}:{port}")


def _named(collection: str, id_: str, observed: Balancer | None) -> str:
    listeners = observed.listeners if observed is not None else ()
    names = {listener.id: f"listener {_port(listener)}" for listener in listeners}
    return names.get(id_, f"{collection.removesuffix('s')} {id_}")


def _port(listener: Listener) -> str:
    return f"{listener.protocol}/{listener.port}"


def _text(fields: Mapping[str, object]) -> str:
    return ", ".join(f"{key}={_value(one)}" for key, one in fields.items() if one is not None)


def _value(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
