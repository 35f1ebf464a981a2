"""Find what Services have at addresses, whoever balances them. Pure.

Nodes send what comes for an address in a Service's spec or status to that Service's pods.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address

from proreus.cloudprovider.addresses import family_of, plain_address
from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.names import default_load_balancer_name
from proreus.cloudprovider.ownership import Owner, cluster_ips, pods_refusal, refusal
from proreus.kube.objects import KubeObject, LoadBalancerIngress, ObjectMeta, Service
from proreus.providers.azure.balancing.annotations import PREFIX, additional_in
from proreus.providers.azure.balancing.desired import (
    RULE_PROTOCOLS,
    each_port,
    ports_by_protocol,
)
from proreus.providers.azure.balancing.parts import Claim, Job, Scene

_AT_NODES = f"{PREFIX}azure-disable-load-balancer-floating-ip"
_INTERNAL = f"{PREFIX}azure-load-balancer-internal"
DENIES = f"{PREFIX}azure-deny-all-except-load-balancer-source-ranges"

Port = tuple[str, int]
"""A port, behind the word of Azure's security rules for its protocol."""


def claims(services: Iterable[KubeObject], jobs: Sequence[Job]) -> Mapping[str, list[Claim]]:
    """Return what Services have at addresses, by address.

    Args:
        services: The cluster's Services.
        jobs: The Services of the pass, which count as the pass has them.
    """
    known = {one.metadata.uid: one for one in services if isinstance(one, Service)}
    for job in jobs:
        if job.lb is None:
            known.pop(job.ref.uid, None)
        else:
            known[job.ref.uid] = job.lb.service
    found: dict[str, list[Claim]] = {}
    for service in known.values():
        for address, claim in _of(service):
            found.setdefault(address, []).append(claim)
    return found


def check_shown(job: Job, address: str, scene: Scene, what: str) -> None:
    """Refuse an address inside that another namespace's Service has, or that is one of pods.

    Nothing has that of its status while the load balancer is made anew. Of cluster IPs and pods
    Azure knows nothing: a subnet may have the same addresses.

    Raises:
        InvalidRequest: Another one has it; `what` says for what the Service asks for it.
    """
    if reason := shown_refusal(job, address, scene) or _pods_refusal(job, address, scene):
        raise InvalidRequest(f"{what} cannot be had: {reason}")


def shown_refusal(job: Job, address: str, scene: Scene) -> str:
    """Return why a Service may not have an address inside that others have; "" if it may."""
    found = [one for one in _of_others(job, address, scene) if one.is_opened or one.is_inside]
    return _refusal(job, address, scene, found)


def check_given(job: Job, addresses: Iterable[str], scene: Scene) -> None:
    """Refuse another namespace's cluster IP, or a pod's address, which Azure has given by itself.

    Raises:
        InvalidRequest: Another one has it; names the remedy.
    """
    for address in map(plain_address, addresses if job.options.internal else ()):
        found = [one for one in _of_others(job, address, scene) if one.is_inside]
        if reason := _refusal(job, address, scene, found) or _pods_refusal(job, address, scene):
            raise InvalidRequest(
                f"{address}, which Azure has given, cannot be had: {reason}: name a subnet with"
                " addresses that nothing has inside the cluster"
            )


def check_ports(job: Job, address: str, scene: Scene) -> None:
    """Refuse ports of an address that another namespace's Service has by its status and spec.

    Those who share one have each their ports, also while the load balancer is made anew. Where both
    have the address already, Azure's rules tell whose the port is.

    Raises:
        InvalidRequest: Another one has a port; names it.
    """
    for claim in (one for one in _of_others(job, address, scene) if one.is_opened):
        theirs = list(each_port(claim.asked))
        for protocol, port in asked_ports(job):
            if is_open_with((protocol, port), theirs):
                raise InvalidRequest(
                    f"spec.ports: port {port} of {address} is that of a Service of the"
                    f" namespace {claim.namespace}: give another port or address"
                )


def is_open_with(port: Port, others: Iterable[Port]) -> bool:
    """Tell whether a port is one of others, or a rule of the security group would let in to both.

    That of SCTP does, for which Azure has no word: it lets in all protocols.
    """
    protocol, number = port
    return any(one == number and (of == protocol or "*" in {of, protocol}) for of, one in others)


def asked_ports(job: Job) -> list[Port]:
    """Return the ports that a Service asks for, each with Azure's word for its protocol."""
    ports = job.lb.service.spec.ports if job.lb is not None else ()
    return [(RULE_PROTOCOLS.get(one.protocol, "*"), one.port) for one in ports]


def _of_others(job: Job, address: str, scene: Scene) -> list[Claim]:
    """Return what other namespaces have at an address; nothing if ours shows it already."""
    if _is_shown(job, address):
        return []
    return [one for one in scene.claims.get(address, ()) if one.namespace != job.ref.namespace]


def _is_shown(job: Job, address: str) -> bool:
    return any(point.ip == address for point in job.ref.last_ingress)


def _refusal(job: Job, address: str, scene: Scene, found: Iterable[Claim]) -> str:
    """Return why a Service may not have an address at which others have something, or ""."""
    owners = [Owner(job.ref.cluster.uid, namespace=one.namespace) for one in found]
    tenants = scene.place.config.tenants
    return refusal(owners, job.ref, tenants, (address,)) if owners else ""


def _pods_refusal(job: Job, address: str, scene: Scene) -> str:
    return pods_refusal(address, job.ref, scene.place.config.tenants, scene.pods)


def shown_beside(points: Iterable[LoadBalancerIngress], families: Collection[str]) -> set[str]:
    """Return the addresses that a status shows beside those of its Service's load balancer.

    These are the first of each of the Service's families.
    """
    shown = [point.ip for point in points if point.ip]
    first = {family_of(one): one for one in reversed(shown)}
    return set(shown) - {one for family, one in first.items() if family in families}


def denies_at_nodes(services: Iterable[KubeObject], jobs: Sequence[Job]) -> bool:
    """Tell whether a Service asks that others than its clients are denied at nodes' addresses.

    One of another manager may have that; those of the pass cannot.

    Args:
        services: The cluster's Services.
        jobs: The Services of the pass.
    """
    uids = {job.ref.uid for job in jobs}
    others = (one.metadata for one in services if one.metadata.uid not in uids)
    return any(_is_true(one, _AT_NODES) and _is_true(one, DENIES) for one in others)


def is_reached_inside(services: Iterable[KubeObject], jobs: Sequence[Job]) -> bool:
    """Tell whether the status of an internal Service shows a private address.

    One that becomes internal just now shows its public one.

    Args:
        services: The cluster's Services.
        jobs: The Services of the pass.
    """
    known = [one for one in services if isinstance(one, Service)]
    known += [job.lb.service for job in jobs if job.lb is not None]
    internal = (one for one in known if _is_true(one.metadata, _INTERNAL))
    shown = (point.ip for one in internal for point in one.status.load_balancer.ingress)
    return any(one and not ip_address(one).is_global for one in shown)


def _is_true(meta: ObjectMeta, annotation: str) -> bool:
    return meta.annotations.get(annotation, "").lower() == "true"


def _of(service: Service) -> Iterator[tuple[str, Claim]]:
    spec, status = service.spec, service.status.load_balancer
    inside = set(map(plain_address, cluster_ips(service)))
    shown = inside | set(map(plain_address, spec.external_ips))
    shown |= {plain_address(point.ip) for point in status.ingress}
    asked = {*additional_in(service)} if spec.type == "LoadBalancer" else set[str]()
    opened = {plain_address(point.ip) for point in status.ingress}
    beside = set(map(plain_address, shown_beside(status.ingress, spec.ip_families)))
    for address in (shown | asked) - {"", "None"}:
        yield (
            address,
            _claim(
                service,
                is_shown=address in shown,
                is_opened=address in opened,
                is_inside=address in inside,
                is_beside=address in beside,
            ),
        )


def _claim(
    service: Service, *, is_shown: bool, is_opened: bool, is_inside: bool, is_beside: bool
) -> Claim:
    meta, ports = service.metadata, service.spec.ports
    words = [RULE_PROTOCOLS.get(one.protocol, "*") for one in ports]
    asked = ports_by_protocol(zip(words, (one.port for one in ports), strict=True))
    at_nodes = ports_by_protocol(zip(words, (one.node_port for one in ports), strict=True))
    if is_opened and not is_beside:
        # Clients come to the nodes' own addresses then, and nothing lets them in to this one.
        at_nodes = {}
    return Claim(
        default_load_balancer_name(meta.uid),
        meta.namespace,
        at_nodes if _is_true(meta, _AT_NODES) else asked,
        asked,
        is_shown,
        _is_true(meta, DENIES),
        is_opened,
        is_inside,
        is_beside,
    )
