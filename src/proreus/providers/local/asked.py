"""Read which addresses Services ask for, and which they have. Pure."""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from proreus.cloudprovider.listers import Lister
from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.cloudprovider.ports import ports_of
from proreus.kube.objects import KubeObject, Service, has_local_traffic
from proreus.providers.local.addresses import Address
from proreus.providers.local.given import given, is_refused
from proreus.providers.local.taken import Port, Taken

ANNOTATION_ADDRESSES: Final = "proreus.io/load-balancer-ips"
"""The addresses that a Service asks for, comma-separated, at most one of each family."""
ANNOTATION_POOL: Final = "proreus.io/address-pool"
"""The pool that a Service's addresses are to come from."""
ANNOTATION_SHARING_KEY: Final = "proreus.io/allow-shared-ip"
"""Services of a namespace with the same key may have the same address, on different ports."""

_ALIASES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        ANNOTATION_ADDRESSES: (
            "metallb.io/loadBalancerIPs",
            "metallb.universe.tf/loadBalancerIPs",
            "kube-vip.io/loadbalancerIPs",
        ),
        ANNOTATION_POOL: ("metallb.io/address-pool", "metallb.universe.tf/address-pool"),
        ANNOTATION_SHARING_KEY: (
            "metallb.io/allow-shared-ip",
            "metallb.universe.tf/allow-shared-ip",
        ),
    }
)
"""The annotations of other balancers for bare metal that count as ours, by ours."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses that a Service asks for.

    Attributes:
        uid: The Service's uid.
        namespace: Its namespace.
        labels: Its labels.
        namespace_labels: Those of its namespace; None: they are not known.
        ports: Every protocol and port of it.
        families: The families, the preferred one first; the Service gets one address of each.
        all_families: Whether the request is refused where one of the families has no address.
        requested: The addresses that it asks for by name.
        pool: The name of the pool that it asks for, or "".
        sharing_key: The key for sharing addresses; see `ANNOTATION_SHARING_KEY`.
        current: The addresses that it has, the ones of the kernel before those of its status.
        is_narrow: Whether only the nodes that run its pods are to announce them.
    """

    uid: str
    namespace: str
    ports: frozenset[Port]
    labels: Mapping[str, str] = MappingProxyType({})
    namespace_labels: Mapping[str, str] | None = None
    families: tuple[str, ...] = ("IPv4",)
    all_families: bool = False
    requested: tuple[str, ...] = ()
    pool: str = ""
    sharing_key: str = ""
    current: tuple[str, ...] = ()
    is_narrow: bool = False


def request_for(
    lb: LoadBalancer,
    current: Iterable[str] = (),
    namespaces: Lister[KubeObject] | None = None,
    machines: Collection[Address | None] = (),
    *,
    by_nodes: bool = False,
) -> Request:
    """Return what the Service behind a load balancer asks for.

    Args:
        lb: The desired load balancer, as the framework describes it.
        current: The addresses that the Service has in the kernel; those of its status are added.
        namespaces: The namespaces, if pools are kept for some by their labels.
        machines: The addresses of nodes and other machines.
        by_nodes: Whether nodes announce addresses.
    """
    service, ref = lb.service, lb.ref
    namespace = namespaces.get(ref.namespace) if namespaces is not None else None
    return Request(
        uid=ref.uid,
        namespace=ref.namespace,
        labels=service.metadata.labels,
        namespace_labels=namespace.metadata.labels if namespace is not None else None,
        ports=ports_of(service),
        families=lb.families,
        all_families=service.spec.ip_family_policy == "RequireDualStack",
        requested=_requested(service),
        pool=annotation(service, ANNOTATION_POOL),
        sharing_key=annotation(service, ANNOTATION_SHARING_KEY),
        current=tuple(dict.fromkeys((*current, *given(lb, machines)))),
        is_narrow=by_nodes and has_local_traffic(service),
    )


def taken_by(services: Iterable[Service], *, by_nodes: bool = False) -> tuple[Taken, ...]:
    """Return the addresses that Services have by their status; for `by_nodes` see `request_for`."""
    return tuple(
        Taken(
            address=one.ip,
            uid=service.metadata.uid,
            service=f"{service.metadata.namespace}/{service.metadata.name}",
            ports=ports_of(service),
            sharing_key=annotation(service, ANNOTATION_SHARING_KEY),
            is_refused=is_refused(service),
            is_narrow=by_nodes and has_local_traffic(service),
        )
        for service in services
        for one in service.status.load_balancer.ingress
        if one.ip
    )


def taken_for(request: Request, service: str, addresses: Iterable[str]) -> tuple[Taken, ...]:
    """Return what a Service has once it has been assigned addresses; its key is for messages."""
    return tuple(
        Taken(
            address=address,
            uid=request.uid,
            service=service,
            ports=request.ports,
            sharing_key=request.sharing_key,
            is_narrow=request.is_narrow,
        )
        for address in addresses
    )


def annotation(service: Service, name: str) -> str:
    """Return the value of an annotation of ours or of one with the same meaning, or ""."""
    for each in (name, *_ALIASES[name]):
        if value := service.metadata.annotations.get(each, "").strip():
            return value
    return ""


def _requested(service: Service) -> tuple[str, ...]:
    text = annotation(service, ANNOTATION_ADDRESSES) or service.spec.load_balancer_ip
    return tuple(part.strip() for part in text.split(",") if part.strip())
