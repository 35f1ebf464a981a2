"""Read descriptions of load balancers, listeners and addresses. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.names import digest_of
from proreus.providers.baidu.balancing import owners
from proreus.providers.baidu.balancing.annotations import same_scheduler
from proreus.providers.baidu.balancing.parts import BOUND, Balancer, Eip, Listener

Described = Mapping[str, Any]

_OF_ITSELF: Final = frozenset({"listenerPort", "listenerType", "backendPort", "scheduler"})


def balancer(
    described: Described, listeners: Iterable[Described] = (), servers: Iterable[Described] = ()
) -> Balancer:
    """Read a load balancer, with its listeners and back ends."""
    return Balancer(
        id=str(described["blbId"]),
        name=str(described.get("name") or ""),
        address=str(described.get("address") or ""),
        public_ip=str(described.get("publicIp") or ""),
        status=str(described.get("status") or "").lower(),
        vpc=str(described.get("vpcId") or ""),
        mark=owners.read_mark(str(described.get("desc") or "")),
        listeners=tuple(sorted(map(listener, listeners), key=lambda one: one.key)),
        members=frozenset(str(one["instanceId"]) for one in servers),
    )


def listener(described: Described) -> Listener:
    """Read a listener."""
    return Listener(
        protocol=str(described.get("listenerType") or "").upper(),
        port=int(described["listenerPort"]),
        node_port=int(described.get("backendPort") or 0),
        scheduler=same_scheduler(str(described.get("scheduler") or "")),
        settings={key: value for key, value in described.items() if key not in _OF_ITSELF},
    )


def eip(described: Described, *, is_ours: bool, is_tagged: bool) -> Eip:
    """Read a public address."""
    return Eip(
        ip=str(described["eip"]),
        status=str(described.get("status") or "").lower(),
        holder=str(described.get("instanceId") or ""),
        megabits=int(described.get("bandwidthInMbps") or 0),
        payment=str(described.get("paymentTiming") or ""),
        billing=str(described.get("billingMethod") or ""),
        is_ours=is_ours,
        is_tagged=is_tagged,
    )


def eips(
    listed: Iterable[Described],
    balancers: Iterable[Described],
    ref: LoadBalancerRef,
    requested: str,
    bought: Collection[str],
    *,
    cluster_id: str,
) -> list[Eip]:
    """Return the addresses that belong to a Service, or that it names.

    Args:
        listed: All public addresses.
        balancers: The load balancers that are the Service's.
        ref: The Service.
        requested: The address that it names, or "".
        bought: Addresses that were bought for it a moment ago.
        cluster_id: The cluster's id in the cloud-config.
    """
    by_id = {str(one["blbId"]): one for one in balancers}
    recorded = {owners.read_mark(str(one.get("desc") or "")).eip for one in by_id.values()}
    found = []
    for one in listed:
        ip, holder = str(one["eip"]), by_id.get(str(one.get("instanceId") or ""))
        is_bought = ip in bought and not owners.tagged_owners(one)
        is_tagged = is_bought or owners.has_tags_of(one, ref)
        is_free = not one.get("instanceId")
        is_official = ip in recorded and (
            owners.has_official_name(one, ref, cluster_id) if is_free else holder is not None
        )
        if holder is not None:
            is_new = owners.is_officially_bought(holder, one, ref, cluster_id)
            is_official = (is_official or is_new) and ip != requested
        if is_tagged or is_official or holder is not None or ip == requested:
            found.append(eip(one, is_ours=is_tagged or is_official, is_tagged=is_tagged))
    return found + _unlisted(by_id.values(), found)


def _unlisted(balancers: Iterable[Described], found: Iterable[Eip]) -> list[Eip]:
    """Return addresses that load balancers show but that the list of addresses lacks."""
    known = {one.ip for one in found}
    shown = {str(one.get("publicIp") or ""): str(one["blbId"]) for one in balancers}
    return [Eip(ip, BOUND, id_) for ip, id_ in shown.items() if ip and ip not in known]


def visible(one: Balancer) -> str:
    """Return a digest of what a listing shows of a load balancer."""
    return digest_of((one.id, "\0", one.name, "\0", one.address, "\0", one.public_ip))
