"""Find what Services have at addresses, whoever balances them. Pure.

Nodes send what comes for an address in a Service's spec or status to that Service's pods.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address

from proreus.cloudprovider.addresses import plain_address
from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.names import default_load_balancer_name
from proreus.cloudprovider.ownership import Owner, cluster_ips, refusal
from proreus.kube.objects import KubeObject, ObjectMeta, Service
from proreus.providers.azure.balancing.annotations import PREFIX, additional_in
from proreus.providers.azure.balancing.desired import RULE_PROTOCOLS, ports_by_protocol
from proreus.providers.azure.balancing.parts import Claim, Job, Scene

_AT_NODES = f"{PREFIX}azure-disable-load-balancer-floating-ip"
_INTERNAL = f"{PREFIX}azure-load-balancer-internal"
_DENIES = f"{PREFIX}azure-deny-all-except-load-balancer-source-ranges"


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
    """Refuse an address inside that another namespace's Service has by its status.

    Nothing has it while the load balancer is made anew.

    Raises:
        InvalidRequest: Another one has it; `what` says for what the Service asks for it.
    """
    uid = job.ref.cluster.uid
    owners = [Owner(uid, namespace=one.namespace) for one in _of_others(job, address, scene)]
    tenants = scene.place.config.tenants
    if owners and (reason := refusal(owners, job.ref, tenants, (address,))):
        raise InvalidRequest(f"{what} cannot be had: {reason}")


def check_ports(job: Job, address: str, scene: Scene) -> None:
    """Refuse ports of a public IP that another namespace's Service has by its status and spec.

    Those who share one have each their ports, also while the load balancer is made anew. Where both
    have the address already, Azure's rules tell whose the port is.

    Raises:
        InvalidRequest: Another one has a port; names it.
    """
    for claim in _of_others(job, address, scene):
        for protocol, port in asked_ports(job):
            if port in claim.asked.get(protocol, ()):
                raise InvalidRequest(
                    f"spec.ports: port {port} of {address} is that of a Service of the"
                    f" namespace {claim.namespace}: give another port or address"
                )


def asked_ports(job: Job) -> list[tuple[str, int]]:
    """Return the ports that a Service asks for, each with Azure's word for its protocol."""
    ports = job.lb.service.spec.ports if job.lb is not None else ()
    return [(RULE_PROTOCOLS.get(one.protocol, "*"), one.port) for one in ports]


def _of_others(job: Job, address: str, scene: Scene) -> list[Claim]:
    """Return the claims of other namespaces whose status shows an address; none if ours does."""
    if any(point.ip == address for point in job.ref.last_ingress):
        return []
    claims = scene.claims.get(address, ())
    return [one for one in claims if one.is_opened and one.namespace != job.ref.namespace]


def denies_at_nodes(services: Iterable[KubeObject], jobs: Sequence[Job]) -> bool:
    """Tell whether a Service asks that others than its clients are denied at nodes' addresses.

    One of another manager may have that; those of the pass cannot.

    Args:
        services: The cluster's Services.
        jobs: The Services of the pass.
    """
    uids = {job.ref.uid for job in jobs}
    others = (one.metadata for one in services if one.metadata.uid not in uids)
    return any(_is_true(one, _AT_NODES) and _is_true(one, _DENIES) for one in others)


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
    shown = set(map(plain_address, (*cluster_ips(service), *spec.external_ips)))
    shown |= {plain_address(point.ip) for point in status.ingress}
    asked = {*additional_in(service)} if spec.type == "LoadBalancer" else set[str]()
    opened = {plain_address(point.ip) for point in status.ingress}
    for address in (shown | asked) - {"", "None"}:
        is_opened = address in opened
        yield address, _claim(service, is_shown=address in shown, is_opened=is_opened)


def _claim(service: Service, *, is_shown: bool, is_opened: bool) -> Claim:
    meta, ports = service.metadata, service.spec.ports
    words = [RULE_PROTOCOLS.get(one.protocol, "*") for one in ports]
    asked = ports_by_protocol(zip(words, (one.port for one in ports), strict=True))
    at_nodes = ports_by_protocol(zip(words, (one.node_port for one in ports), strict=True))
    return Claim(
        default_load_balancer_name(meta.uid),
        meta.namespace,
        at_nodes if _is_true(meta, _AT_NODES) else asked,
        asked,
        is_shown,
        _is_true(meta, _DENIES),
        is_opened,
    )
