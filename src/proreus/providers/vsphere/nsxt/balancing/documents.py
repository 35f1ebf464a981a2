"""Write the objects of a load balancer, and compare them with what there is. Pure.

A `Want` holds the fields that matter. Whatever else an object has, such as an algorithm that an
operator has chosen, stays when it is changed.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from proreus.providers.vsphere.nsxt.balancing.parts import (
    CLASS,
    IP_POOL,
    PORT,
    TITLES,
    Desired,
    Part,
    Port,
    members_of,
    tags_of,
)
from proreus.providers.vsphere.nsxt.operations import (
    ALLOCATIONS,
    GROUPS,
    MONITORS,
    PERSISTENCE,
    POOLS,
    SERVERS,
    SERVICES,
    Document,
    Place,
)

_LONGEST_NAME: Final = 255
_BY: Final = "created by proreus"
AUTO_MAP: Final = {"type": "LBSnatAutoMap"}
NO_SNAT: Final = {"type": "LBSnatDisabled"}


class Want(msgspec.Struct, frozen=True):
    """The desired state of a part of a load balancer.

    Attributes:
        place: The place of the part in the policy API.
        key: The port that the part is for, or "".
        fields: The fields that are compared; the value None means that a field must be absent.
        tags: The tags that are compared.
        fresh: Further fields that the part is given when it is made, and that are not compared.
    """

    place: Place
    key: str
    fields: Mapping[str, Any]
    tags: Mapping[str, str]
    fresh: Mapping[str, Any] = {}

    @property
    def title(self) -> str:
        """The name of the part in messages."""
        return f"{TITLES[self.place.kind]} {self.key}".strip()


def service_want(desired: Desired, tags: Mapping[str, str]) -> Want:
    """Return the load balancer service of the cluster."""
    cluster = desired.ref.cluster.name
    return Want(
        Place(SERVICES),
        "",
        {"connectivity_path": desired.gateway, "size": desired.size, "enabled": True},
        tags,
        {
            "display_name": _cut(f"cluster:{cluster}"),
            "description": f"virtual server pool for cluster {cluster} {_BY}",
        },
    )


def allocation_want(desired: Desired, pool: str, address: str) -> Want:
    """Return the allocation of an address, or of any address of the pool."""
    fields = {"allocation_ip": address} if address else {}
    return Want(Place(ALLOCATIONS, pool), "", fields, desired.tags)


def monitor_want(desired: Desired, port: Port) -> Want:
    """Return the monitor of a port."""
    return Want(
        Place(MONITORS),
        port.key,
        port.check or {},
        {**desired.tags, PORT: port.key},
        {
            "display_name": _cut(f"{_name(desired)}:{port.node_port}"),
            "description": f"monitor for {_whose(desired)}, port {port.node_port} {_BY}",
        },
    )


def persistence_want(desired: Desired) -> Want:
    """Return the profile by which a client stays with a host."""
    return Want(
        Place(PERSISTENCE),
        "",
        {"resource_type": "LBSourceIpPersistenceProfile", "timeout": desired.affinity},
        desired.tags,
        {
            "display_name": _cut(_name(desired)),
            "description": f"persistence profile for {_whose(desired)} {_BY}",
        },
    )


def group_want(desired: Desired) -> Want:
    """Return the group of addresses from where clients may come."""
    expression = {
        "resource_type": "IPAddressExpression",
        "ip_addresses": sorted(desired.ranges),
    }
    return Want(
        Place(GROUPS),
        "",
        {"expression": [expression]},
        desired.tags,
        {
            "display_name": _cut(_name(desired)),
            "description": f"source ranges for {_whose(desired)} {_BY}",
        },
    )


def pool_want(desired: Desired, port: Port, monitor: str) -> Want:
    """Return the pool of a port; `monitor` is the path of its monitor, or ""."""
    members = [
        {
            "admin_state": "ENABLED",
            "display_name": _cut(f"{desired.ref.cluster.name}:{node}"),
            "ip_address": address,
        }
        for address, node in sorted(desired.members.items())
    ]
    return Want(
        Place(POOLS),
        port.key,
        {
            "members": members,
            "active_monitor_paths": [monitor] if monitor else [],
            "snat_translation": AUTO_MAP if desired.snat else NO_SNAT,
        },
        {**desired.tags, PORT: port.key},
        {
            "display_name": _cut(_name(desired)),
            "description": f"pool for {_whose(desired)} {_BY}",
        },
    )


class References(msgspec.Struct, frozen=True):
    """The parts to which a virtual server refers.

    Attributes:
        service: The path of the load balancer service.
        address: The IP address of the virtual server.
        pool: The path of the pool.
        persistence: The path of the persistence profile, or "".
        group: The path of the group of clients, or "".
    """

    service: str
    address: str
    pool: str
    persistence: str = ""
    group: str = ""


def server_want(desired: Desired, port: Port, to: References) -> Want:
    """Return the virtual server of a port."""
    access = {"action": "ALLOW", "enabled": True, "group_path": to.group} if to.group else None
    return Want(
        Place(SERVERS),
        port.key,
        {
            "enabled": True,
            "ip_address": to.address,
            "ports": [str(port.port)],
            "default_pool_member_ports": [str(port.node_port)],
            "application_profile_path": port.profile,
            "pool_path": to.pool,
            "lb_service_path": to.service,
            "lb_persistence_profile_path": to.persistence or None,
            "access_list_control": access,
        },
        {**desired.tags, PORT: port.key},
        {
            "display_name": _cut(_name(desired)),
            "description": f"virtual server for {_whose(desired)} {_BY}",
        },
    )


def with_class(want: Want, class_name: str, pool: str) -> Want:
    """Return a new virtual server's want with the tags of its class, which it keeps for good."""
    return msgspec.structs.replace(want, tags={**want.tags, CLASS: class_name, IP_POOL: pool})


def differs(want: Want, document: Document) -> bool:
    """Tell whether an object differs from what it should be."""
    if not want.tags.items() <= tags_of(document).items():
        return True
    return any(
        normal(field, document.get(field)) != normal(field, value)
        for field, value in want.fields.items()
    )


def written(want: Want, document: Document | None) -> dict[str, Any]:
    """Return the document that makes an object, or changes the existing one."""
    before = dict(want.fresh) if document is None else dict(document)
    body = before | dict(want.fields)
    if "members" in want.fields and document is not None:
        known = {one.get("ip_address"): one for one in members_of(document)}
        wanted = want.fields["members"]
        body["members"] = [known.get(one["ip_address"], one) for one in wanted]
    if before.get("access_list_control") and body.get("access_list_control"):
        body["access_list_control"] = before["access_list_control"] | body["access_list_control"]
    body["tags"] = with_tags(before, want.tags)
    return {key: value for key, value in body.items() if value is not None}


def with_tags(document: Document, tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return an object's tags with these added, or in the place of others of the same scopes."""
    others = [dict(one) for one in document.get("tags") or () if one.get("scope") not in tags]
    return [*others, *({"scope": scope, "tag": tag} for scope, tag in sorted(tags.items()))]


def normal(field: str, value: Any) -> Any:
    """Return a field's value without irrelevant parts and without default values."""
    if field == "members":
        return sorted(str(one.get("ip_address") or "") for one in value or ())
    if field == "expression":
        return [
            (one.get("resource_type"), sorted(one.get("ip_addresses") or ())) for one in value or ()
        ]
    if field == "snat_translation":
        return value.get("type") if value else None
    if field == "access_list_control":
        is_on = bool(value) and bool(value.get("enabled"))
        return (value.get("action"), value.get("group_path")) if is_on else None
    return value or None


def marking(part: Part, tags: Mapping[str, str]) -> dict[str, Any]:
    """Return the document that adds our marks to an object."""
    return {**part.document, "tags": with_tags(part.document, tags)}


def _name(desired: Desired) -> str:
    return f"cluster:{desired.ref.cluster.name}:{desired.ref.key}"


def _whose(desired: Desired) -> str:
    return f"cluster {desired.ref.cluster.name}, service {desired.ref.key}"


def _cut(name: str) -> str:
    return name[:_LONGEST_NAME]
