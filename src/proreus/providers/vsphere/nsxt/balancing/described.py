"""Read what NSX-T describes: whose objects are, which address an allocation has. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from proreus.cloudprovider.addresses import plain_address
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.ownership import Verdict
from proreus.providers.vsphere.nsxt.balancing import owners
from proreus.providers.vsphere.nsxt.balancing.parts import IP_POOL, Part, tags_of
from proreus.providers.vsphere.nsxt.config import LoadBalancerSection
from proreus.providers.vsphere.nsxt.operations import (
    MONITORS,
    PERSISTENCE,
    POOLS,
    SERVERS,
    SERVICES,
    Document,
    Place,
)


def chosen_service(
    services: Sequence[Document],
    section: LoadBalancerSection,
    cluster: ClusterIdentity,
    in_use: Collection[str] = (),
) -> Document | None:
    """Return the load balancer service to use; None if one is to be made. Pure.

    As officially it is the one of the cloud-config's id; or whichever is on the gateway, which can
    have only one; or the one that was made for the cluster. On another gateway what only bears
    official tags may be another cluster's of the same name: it counts if the cluster uses it.

    Args:
        services: All load balancer services.
        section: The section [LoadBalancer].
        cluster: This cluster.
        in_use: The paths of load balancer services that virtual servers of the cluster are on.

    Raises:
        CloudError: The load balancer service that the cloud-config names does not exist, or is on
            another gateway.
    """
    gateway = section.tier1_gateway_path
    if section.lb_service_id:
        found = next((one for one in services if one.get("id") == section.lb_service_id), None)
        if found is None:
            raise CloudError(
                f"LoadBalancer lb-service-id: there is no load balancer service"
                f" {section.lb_service_id!r} in NSX-T"
            )
        if gateway and found.get("connectivity_path") != gateway:
            raise CloudError(
                f"LoadBalancer lb-service-id: the load balancer service {section.lb_service_id!r}"
                f" is on {found.get('connectivity_path') or 'no gateway'}, not on the"
                f" tier1-gateway-path {gateway}"
            )
        return found
    on_gateway = [one for one in services if one.get("connectivity_path") == gateway]
    made = [
        one
        for one in services
        if owners.is_of_cluster(one, cluster)
        or (
            owners.is_adoptable_service(one, cluster, section.owner)
            and Part(Place(SERVICES), str(one["id"])).path in in_use
        )
    ]
    return min(on_gateway or made, key=lambda one: str(one["id"]), default=None)


def parts_of(
    ref: LoadBalancerRef,
    owner: str,
    listed: Mapping[str, Sequence[Document]],
    allocated: Iterable[Part] = (),
) -> list[Part]:
    """Return the virtual servers, pools, monitors and profiles that are a Service's. Pure.

    An object that only bears official tags is proven by the address at which it is reached: a pool
    by that of its virtual servers, a monitor by that of its pools. Networks apart may have the same
    addresses, and a cluster of the same name there: so virtual servers without our marks must be on
    the load balancer service that has those with marks, or all on one. Where only other parts have
    marks, the Service's own are gone: one without marks must lead to a pool with them, or be of the
    IP pool from which the address was allocated for the Service.

    Args:
        ref: The Service.
        owner: The official tag `owner` of this cluster.
        listed: All objects of the policy API, by their kinds.
        allocated: The Service's allocations.

    Raises:
        CloudError: Virtual servers without our marks are on several load balancer services.
    """
    found: list[Part] = []
    reached: dict[str, set[str]] = {}
    servers = [
        (one, owners.verdict_of(one, ref, owner, [str(one.get("ip_address") or "")]))
        for one in listed.get(SERVERS, ())
    ]
    kept = {
        Part(Place(kind), str(one["id"])).path
        for kind in (POOLS, MONITORS, PERSISTENCE)
        for one in listed.get(kind, ())
        if owners.verdict_of(one, ref, owner, ()) is Verdict.MARKED
    }
    pools: dict[str, set[str]] = {}
    for part in allocated:
        if part.is_marked and part.address:
            pools.setdefault(plain_address(part.address), set()).add(part.place.within)
    left_alone = _of_namesakes(servers, kept, pools)

    def sort_out(kind: str, refers: str) -> None:
        for document in listed.get(kind, ()):
            part = Part(Place(kind), str(document["id"]), document)
            addresses = reached.get(part.path, set())
            if kind == SERVERS:
                addresses = {str(document.get("ip_address") or "")}
            related = owners.verdict_of(document, ref, owner, addresses)
            if related.is_ours and part.path not in left_alone:
                found.append(replace(part, is_marked=related is Verdict.MARKED))
                for path in _paths(document.get(refers)):
                    reached.setdefault(path, set()).update(addresses)

    sort_out(SERVERS, "pool_path")
    sort_out(POOLS, "active_monitor_paths")
    sort_out(MONITORS, "")
    sort_out(PERSISTENCE, "")
    return found


def others_of(
    servers: Sequence[Document], own: Collection[str], pools: Collection[str], service: str
) -> list[Document]:
    """Return virtual servers of others whose addresses are surely of the Service's network. Pure.

    Args:
        servers: All virtual servers.
        own: The ids of the Service's.
        pools: The ids of the IP pools of its addresses, which virtual servers name by a tag.
        service: The path of the load balancer service, or "".
    """
    return [
        one
        for one in servers
        if one["id"] not in own
        and (
            tags_of(one).get(IP_POOL, "") in pools
            or (service and one.get("lb_service_path") == service)
        )
    ]


def _of_namesakes(
    servers: Sequence[tuple[Document, Verdict]],
    kept: Collection[str],
    pools: Mapping[str, Collection[str]],
) -> frozenset[str]:
    """Return the paths of virtual servers that may be those of a cluster of the same name.

    Args:
        servers: All virtual servers, and how each is related to the Service.
        kept: The paths of other parts that have our marks.
        pools: The IP pools in which allocations have our marks, by the addresses of these.

    Raises:
        CloudError: Nothing tells which of them are the Service's.
    """
    homes: dict[bool, dict[str, list[str]]] = {True: {}, False: {}}
    strange = set()
    apart = set()
    for one, related in servers:
        if related.is_ours:
            home = str(one.get("lb_service_path") or "")
            path = f"{Place(SERVERS).path}/{one['id']}"
            if one.get("pool_path") not in kept:
                strange.add(path)
                if related is not Verdict.MARKED and _is_of_another_pool(one, pools):
                    apart.add(path)
                    continue
            homes[related is Verdict.MARKED].setdefault(home, []).append(path)
    marked, unmarked = homes[True], homes[False]
    if marked:
        return frozenset(apart).union(*(unmarked[home] for home in unmarked.keys() - marked.keys()))
    if kept:
        return frozenset(strange)
    if len(unmarked) > 1:
        names = ", ".join(sorted(path for paths in unmarked.values() for path in paths))
        raise CloudError(
            "virtual servers on several load balancer services have the tags and the address of"
            f" the Service, as clusters of one name may have: {names}; take the tags off those that"
            " are not this cluster's"
        )
    return frozenset(apart)


def _is_of_another_pool(server: Document, pools: Mapping[str, Collection[str]]) -> bool:
    """Tell whether the address of a virtual server is allocated in other IP pools than its own."""
    own = tags_of(server).get(IP_POOL, "")
    there = pools.get(plain_address(str(server.get("ip_address") or "")), ())
    return bool(own and there) and own not in there


def _paths(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(one) for one in value or ()]


class _Attribute(msgspec.Struct, frozen=True):
    key: str = ""
    values: list[Any] = msgspec.field(default_factory=list)


def realized_address(realized: Iterable[Document]) -> tuple[str, str]:
    """Return the address that an allocation has got, or why it gets none. Pure."""
    failure = ""
    for one in realized:
        for attribute in msgspec.convert(one.get("extended_attributes") or [], list[_Attribute]):
            if attribute.key == "allocation_ip" and attribute.values:
                return str(attribute.values[0]), ""
        if one.get("state") == "ERROR":
            failure = realization_error(one)
    return "", failure


def realization_error(realized: Document) -> str:
    """Return in words why an object is not realized. Pure."""
    alarms = realized.get("alarms") or ()
    texts = [str(one.get("message") or "") for one in alarms if isinstance(one, Mapping)]
    fields = ("runtime_error", "publish_status_error", "operational_status_error")
    texts += [str(realized.get(field) or "") for field in fields]
    return "; ".join(dict.fromkeys(filter(None, texts))) or "NSX-T gives no reason"


def id_of_name(name: str, there: Sequence[Document], what: str, *, field: str = "id") -> str:
    """Return the id or path of the object of a name. Pure.

    Raises:
        CloudError: There is no object of that name, or there are several.
    """
    found = [one for one in there if one.get("display_name") == name]
    if len(found) == 1:
        return str(found[0][field])
    number = "is there several times: give its " + field if found else "is not there"
    raise CloudError(f"cloud-config: {what}, {name!r}, {number}")
