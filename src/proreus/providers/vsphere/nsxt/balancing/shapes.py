"""Digest what makes a load balancer, as desired and as a listing shows it. Pure.

Both give the same digest if, and only if, there is nothing to change, as far as a listing tells. So
nothing has to be recorded.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from proreus.cloudprovider.names import digest_of
from proreus.providers.vsphere.nsxt.balancing.documents import AUTO_MAP, NO_SNAT, normal
from proreus.providers.vsphere.nsxt.balancing.parts import Desired, Part, tags_of
from proreus.providers.vsphere.nsxt.operations import (
    ALLOCATIONS,
    MONITORS,
    PERSISTENCE,
    POOLS,
    SERVERS,
    Document,
)

_LENGTH = 16


def desired_shape(desired: Desired) -> str:
    """Return the digest of a load balancer that is as desired."""
    checks = [port.check for port in desired.ports if port.check]
    ports = [
        (
            port.key,
            [str(port.node_port)],
            port.profile,
            sorted(desired.members),
            (AUTO_MAP if desired.snat else NO_SNAT)["type"],
            _check(port.check or {}),
        )
        for port in desired.ports
    ]
    count = len(desired.ports)
    counts = (count, count, len(checks), int(desired.affinity is not None), 1)
    return _digest(ports, counts, desired.affinity, sorted(desired.ranges), desired.tags.items())


def observed_shape(
    parts: Iterable[Part],
    tags: Iterable[str],
    by_name: Collection[str] = (),
    names: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the digest of a Service's load balancer as a listing shows it.

    Args:
        parts: All objects with the marks of the Service.
        tags: The scopes (keys) of the tags that every part should have.
        by_name: The protocols whose application profiles the cloud-config gives by name.
        names: The names of these application profiles, by their paths.
    """
    by_kind: dict[str, list[Part]] = {}
    for part in parts:
        by_kind.setdefault(part.kind, []).append(part)
    by_path = {part.path: part.document for found in by_kind.values() for part in found}
    servers = by_kind.get(SERVERS, [])
    profiles = {
        one.id: names.get(path, path) if one.key.partition("/")[0] in by_name else path
        for one in servers
        for path in [str(one.document.get("application_profile_path") or "")]
    }
    ports = [_server(one, by_path, profiles[one.id]) for one in servers]
    counted = (SERVERS, POOLS, MONITORS, PERSISTENCE, ALLOCATIONS)
    counts = tuple(len(by_kind.get(kind, ())) for kind in counted)
    stuck = {_persistence(one.document, by_path) for one in servers}
    open_to = {_ranges(one.document, by_path) for one in servers}
    if len(stuck) != 1 or len(open_to) != 1:
        return ""
    scopes = set(tags)
    shown = {
        tuple(sorted((key, one) for key, one in tags_of(part.document).items() if key in scopes))
        for part in (one for found in by_kind.values() for one in found)
    }
    return _digest(ports, counts, stuck.pop(), list(open_to.pop()), *shown)


def _digest(
    ports: Iterable[tuple[Any, ...]],
    counts: tuple[int, ...],
    affinity: int | None,
    ranges: list[str],
    *tags: Iterable[tuple[str, str]],
) -> str:
    whole = (sorted(ports), counts, affinity, ranges, [sorted(one) for one in tags])
    return digest_of((repr(whole),), length=_LENGTH)


def _server(server: Part, by_path: Mapping[str, Document], profile: str) -> tuple[Any, ...]:
    document = server.document
    pool = by_path.get(str(document.get("pool_path") or ""), {})
    watched = pool.get("active_monitor_paths") or [""]
    return (
        server.key if document.get("enabled", True) else "",
        document.get("default_pool_member_ports") or [],
        profile,
        normal("members", pool.get("members")),
        normal("snat_translation", pool.get("snat_translation")) or "",
        _check(by_path.get(str(watched[0]), {})) if len(watched) == 1 else (),
    )


def _check(document: Document) -> tuple[str, ...]:
    fields = ("resource_type", "monitor_port", "request_url")
    return tuple(str(document.get(field) or "") for field in fields)


def _persistence(server: Document, by_path: Mapping[str, Document]) -> int | None:
    path = server.get("lb_persistence_profile_path")
    return by_path.get(path, {}).get("timeout", 0) if path else None


def _ranges(server: Document, by_path: Mapping[str, Document]) -> tuple[str, ...]:
    access = normal("access_list_control", server.get("access_list_control"))
    if access is None:
        return ()
    action, path = access
    expression = normal("expression", by_path.get(str(path), {}).get("expression"))
    if action != "ALLOW" or len(expression) != 1:
        return ("",)
    return tuple(expression[0][1])
