"""What a project has, and what a cluster shows of it, by the ids that OpenStack gives."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from openstack.exceptions import NotFoundException

from proreus.kube.requests import SERVICES

from .stage import Stage

Picture = dict[str, str]

_BALANCER: Final = (
    "name",
    "description",
    "vip_address",
    "vip_port_id",
    "vip_subnet_id",
    "provider",
)
_LISTENER: Final = (
    "name", "protocol", "protocol_port", "default_pool_id", "connection_limit", "insert_headers",
    "timeout_client_data", "timeout_member_connect", "timeout_member_data", "timeout_tcp_inspect",
)  # fmt: skip
_POOL: Final = ("name", "protocol", "lb_algorithm", "session_persistence", "health_monitor_id")
_MEMBER: Final = ("name", "address", "protocol_port", "subnet_id", "monitor_port")
_MONITOR: Final = (
    "name", "type", "delay", "timeout", "max_retries", "max_retries_down", "url_path",
    "http_method", "expected_codes",
)  # fmt: skip
_FLOATING: Final = ("floating_ip_address", "port_id", "fixed_ip_address")
_EVERYONE: Final[tuple[list[str] | None, ...]] = (["0.0.0.0/0"], [], None)
"""All mean the same to Octavia."""


async def picture(stage: Stage) -> Picture:
    """Everything but tags and descriptions, which both managers write in their own way."""
    services = (await stage.site.client.list(SERVICES, "default")).items
    found = await asyncio.to_thread(_whole, stage)
    for one in services:
        if one.metadata.name != "kubernetes":
            where = f"service {one.metadata.name}"
            ingress = [
                f"{at.ip}{at.hostname} {at.ip_mode}" for at in one.status.load_balancer.ingress
            ]
            found[f"{where}/ingress"] = ", ".join(ingress)
            for key, value in one.metadata.annotations.items():
                found[f"{where}/annotation {key}"] = value
    for name, node in (await stage.site.nodes()).items():
        addresses = [f"{one.type} {one.address}" for one in node.status.addresses]
        found[f"node {name}/addresses"] = ", ".join(addresses)
        found[f"node {name}/provider id"] = node.spec.provider_id
        for key, value in node.metadata.labels.items():
            found[f"node {name}/label {key}"] = value
    return found


def _whole(stage: Stage) -> Picture:
    """All parts; once more if some went away while they were looked at."""
    while True:
        try:
            return dict(_parts(stage))
        except NotFoundException:
            continue


def _parts(stage: Stage) -> Iterator[tuple[str, str]]:
    balancing, network = stage.real.api.load_balancer, stage.real.api.network
    for one in balancing.load_balancers():
        yield from _fields(f"balancer {one.id}", one, _BALANCER)
        yield f"balancer {one.id}/status", one.provisioning_status
    for one in balancing.listeners():
        yield from _fields(f"listener {one.id}", one, _LISTENER)
        allowed = None if one.allowed_cidrs in _EVERYONE else sorted(one.allowed_cidrs)
        yield f"listener {one.id}/allowed", _text(allowed)
    for pool in balancing.pools():
        yield from _fields(f"pool {pool.id}", pool, _POOL)
        for one in balancing.members(pool.id):
            yield from _fields(f"pool {pool.id}/member {one.id}", one, _MEMBER)
    for one in balancing.health_monitors():
        yield from _fields(f"monitor {one.id}", one, _MONITOR)
    for one in network.ips():
        yield from _fields(f"floating {one.id}", one, _FLOATING)
    for route in stage.real.routes():
        yield f"route {route['destination']}", route["nexthop"]
    for name, id_ in stage.ids.items():
        pairs = [
            pair["ip_address"]
            for one in network.ports(device_id=id_)
            for pair in one.allowed_address_pairs
        ]
        yield f"node {name}/pairs", _text(sorted(pairs))


def _fields(where: str, of: Any, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        yield f"{where}/{name}", _text(getattr(of, name))


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def ids(found: Picture) -> set[str]:
    """The ids of all that OpenStack has made."""
    kinds = ("balancer ", "listener ", "pool ", "monitor ", "floating ")
    return {key.rpartition("/")[0] for key in found if key.startswith(kinds)}
