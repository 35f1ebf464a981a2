"""Gather what is known of a cluster for a pass over its load balancers, from caches alone."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.listers import Lister
from proreus.cloudprovider.names import default_load_balancer_name
from proreus.cloudprovider.routes import pods_by_cidr
from proreus.kube.objects import KubeObject, Node, Service, key
from proreus.providers.azure.balancing.annotations import ANNOTATION_LINK
from proreus.providers.azure.balancing.claims import claims, denies_at_nodes, is_reached_inside
from proreus.providers.azure.balancing.desired import RULE_PROTOCOLS, Place, ports_by_protocol
from proreus.providers.azure.balancing.parts import Had, Job, Scene
from proreus.providers.azure.config import AzureConfig
from proreus.providers.azure.ids import machine_id
from proreus.providers.azure.names import group_of, is_unmanaged

_CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


def scene_of(
    config: AzureConfig,
    listers: Mapping[str, Lister[Any]],
    cluster: ClusterIdentity,
    jobs: Sequence[Job],
    had: Mapping[str, Had],
) -> Scene:
    """Gather the facts about a cluster that stay the same within a pass.

    `had` is what Services had when they were ensured last, by their UIDs.
    """
    nodes: dict[str, str] = {}
    node_addresses: dict[str, str] = {}
    excluded: set[str] = set()
    labels: dict[str, Mapping[str, str]] = {}
    nodes_ = tuple(listers["nodes"].all() if "nodes" in listers else ())
    for node in nodes_:
        if not isinstance(node, Node):
            continue
        id_ = machine_id(node.spec.provider_id)
        if id_ is not None:
            nodes[id_.resource] = node.metadata.name
        every = dict.fromkeys(one.address for one in node.status.addresses)
        node_addresses |= dict.fromkeys(every, node.metadata.name)
        labels[node.metadata.name] = node.metadata.labels
        if _is_excluded(node, config):
            excluded.add(node.metadata.name)
    has_links = False
    services = {job.ref.name: job.ref.namespace for job in jobs if job.lb is not None}
    services_ = tuple(listers["services"].all() if "services" in listers else ())
    for service in services_:
        meta = service.metadata
        services[default_load_balancer_name(meta.uid)] = meta.namespace
        has_links = has_links or ANNOTATION_LINK in meta.annotations
    for job in jobs:
        if job.lb is None:
            services.pop(job.ref.name, None)
    place = Place(config, cluster.name)
    return Scene(
        place,
        services,
        nodes,
        frozenset(excluded),
        node_addresses,
        labels,
        has_links,
        _node_ports(services_, jobs),
        claims(services_, jobs),
        is_reached_inside(services_, jobs),
        denies_at_nodes(services_, jobs),
        _namesakes(services_, jobs),
        had={default_load_balancer_name(uid): one for uid, one in had.items()},
        pods=pods_by_cidr(nodes_),
    )


def _is_excluded(node: Node, config: AzureConfig) -> bool:
    """Tell whether the official rules exclude a node from load balancers."""
    labels = node.metadata.labels
    is_control = labels.get("kubernetes.io/role") == "master" or any(
        label in labels for label in _CONTROL_PLANE
    )
    group = config.resource_group
    is_elsewhere = group_of(node, group) != group.lower()
    is_control = is_control and config.exclude_master_from_standard_lb
    return is_control or is_elsewhere or is_unmanaged(node)


def _namesakes(services: Iterable[KubeObject], jobs: Iterable[Job]) -> frozenset[str]:
    """Return the deleted Services of a pass whose namespace and name another Service has."""
    living = {key(one): one.metadata.uid for one in services}
    return frozenset(
        job.ref.name
        for job in jobs
        if job.lb is None and living.get(job.ref.key, job.ref.uid) != job.ref.uid
    )


def _node_ports(services: Iterable[KubeObject], jobs: Iterable[Job]) -> dict[str, frozenset[int]]:
    """Return the node ports of Services that are not in a pass, by Azure's words for protocols."""
    uids = {job.ref.uid for job in jobs}
    return ports_by_protocol(
        (RULE_PROTOCOLS.get(port.protocol, "*"), port.node_port)
        for service in services
        if isinstance(service, Service) and service.metadata.uid not in uids
        for port in service.spec.ports
    )
