"""Decide to whom a cloud object belongs, and whether a Service may name it. Pure.

`verdict` says whether there is proof that an object was made for a Service. Without it nothing is
changed and nothing deleted.

With annotations and `spec.loadBalancerIP` a Service names objects that were not made for it:
another Service's load balancer, a kept address, a given security group. One rule for all clouds:

* An object without an owner's mark may be named, as with the official managers, and is never
  deleted.
* So may one of the same namespace of the same cluster.
* The mark of another namespace's Service, or of another cluster, refuses; the message names it.

A provider asks before a Service begins to use an object, and never about one that it uses already:
what works stays, and a refusal takes nothing away. The section [Tenants] of a cloud-config may be
stricter, and may let single namespaces name single objects.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from proreus.cloudprovider.addresses import parsed_address, parsed_network
from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.identity import MARK_CLUSTER_UID, MARK_SERVICE_UID, ClusterIdentity
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.names import default_load_balancer_name
from proreus.cloudprovider.routes import node_of_pods
from proreus.kube.objects import KubeObject, Service

EVERY_NAMESPACE: Final = "*"
"""The word for any namespace in the allow-list."""


class Owner(msgspec.Struct, frozen=True):
    """The cluster and the Service that a mark on an object names; "" where the mark is silent.

    Attributes:
        cluster_uid: The UID of the cluster's namespace kube-system.
        cluster: The value of `--cluster-name`, the only thing that marks of official managers say
            of a cluster.
        namespace: The Service's namespace.
        service: The Service's name.
        service_uid: The Service's UID.
    """

    cluster_uid: str = ""
    cluster: str = ""
    namespace: str = ""
    service: str = ""
    service_uid: str = ""

    @property
    def key(self) -> str:
        """The Service as namespace/name; "" if the mark names none."""
        return f"{self.namespace}/{self.service}" if self.namespace else ""

    def __str__(self) -> str:
        name = self.key or self.service_uid
        service = f"the Service {name} of " if name else ""
        if self.cluster_uid and self.cluster:
            return f"{service}the cluster {self.cluster} ({self.cluster_uid})"
        cluster = self.cluster or self.cluster_uid
        return f"{service}the cluster {cluster}" if cluster else f"{service}an unknown cluster"


class Standing(StrEnum):
    """The relation of an object's owner to a Service."""

    SELF = "self"
    NEIGHBOUR = "neighbour"
    """Another Service of the namespace, or the cluster as a whole."""
    FOREIGN = "foreign"


class Naming(StrEnum):
    """The setting that says which objects a Service may name beside those in the allow-list."""

    UNMARKED = "unmarked"
    """A Service may name objects without an owner's mark, and those of its namespace."""
    SAME_NAMESPACE = "same-namespace"
    """A Service may name only objects of its namespace."""
    LISTED = "listed"
    """None."""


class Tenants(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Tenants] of a cloud-config: which cloud objects Services may name.

    Attributes:
        named_objects: Which objects Services may name besides those in `allow`.
        allow: Objects that a namespace may name, whoever owns them: `namespace=id`, or `*=id` for
            all namespaces, one per line. An IP address is its own id.
    """

    named_objects: Naming = Naming.UNMARKED
    allow: tuple[str, ...] = ()

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if not all(namespace and object_ for namespace, object_ in self._listed()):
            yield "allow: give namespace=id or *=id, one per line"

    def lists(self, namespace: str, names: Iterable[str]) -> bool:
        """Tell whether an object with one of these names is in the allow-list for a namespace."""
        called = set(names)
        return any(
            listed in {namespace, EVERY_NAMESPACE} and object_ in called
            for listed, object_ in self._listed()
        )

    def _listed(self) -> list[tuple[str, str]]:
        pairs = (line.partition("=") for line in self.allow)
        return [(namespace.strip(), object_.strip()) for namespace, _, object_ in pairs]


def are_marks_of(marks: Mapping[str, str], ref: LoadBalancerRef) -> bool:
    """Tell whether marks prove that an object was made for this Service of this cluster. Pure."""
    proof = {MARK_CLUSTER_UID: ref.cluster.uid, MARK_SERVICE_UID: ref.uid}
    return proof.items() <= marks.items()


def standing(owner: Owner, ref: LoadBalancerRef) -> Standing:
    """Return how the owner of an object is related to a Service.

    A mark that names a Service but not its namespace is another's, unless it has the Service's uid.
    """
    if is_of_another_cluster(owner, ref.cluster):
        return Standing.FOREIGN
    if owner.service_uid == ref.uid:
        return Standing.SELF
    if owner.namespace == ref.namespace or not (owner.namespace or owner.service_uid):
        return Standing.NEIGHBOUR
    return Standing.FOREIGN


def is_of_another_cluster(owner: Owner, cluster: ClusterIdentity) -> bool:
    """Tell whether a mark is another cluster's; a name counts where there is no uid."""
    if owner.cluster_uid:
        return owner.cluster_uid != cluster.uid
    return bool(owner.cluster) and owner.cluster != cluster.name


class Verdict(StrEnum):
    """The relation of an object to a Service, and its proof."""

    MARKED = "marked"
    """Our marks name the Service and the cluster."""
    NAMED = "named"
    """Its name or description holds the Service's UID, and no mark speaks against it."""
    OFFICIAL = "official"
    """The official manager's marks name the Service, whose status shows the object's address."""
    UNPROVEN = "unproven"
    """Something names the Service that others can write as well."""
    FOREIGN = "foreign"
    """It is another Service's, another cluster's, or the whole cluster's."""
    UNMARKED = "unmarked"
    """Nothing says whose it is."""

    @property
    def is_ours(self) -> bool:
        """Whether the object belongs to the Service, to be changed and deleted with it."""
        return self in {Verdict.MARKED, Verdict.NAMED, Verdict.OFFICIAL}


def verdict(
    ref: LoadBalancerRef,
    *,
    owners: Iterable[Owner] = (),
    official: Iterable[Owner] = (),
    texts: Iterable[str] = (),
    addresses: Iterable[str] = (),
) -> Verdict:
    """Return how an object is related to a Service, and by which proof. Pure.

    Proof is, in this order: our marks; a name or description that holds the Service's UID; the
    official manager's marks together with the address in the Service's status. What can be guessed,
    such as a name of namespace and Service, never is. Clusters that were restored from one backup
    have Services of the same UIDs, so a mark of another cluster speaks against all proofs.

    Args:
        ref: The Service.
        owners: The owners that our marks on the object name (`owner_of`).
        official: The owners that an official manager's marks on the object name: no UIDs.
        texts: The object's names and description, where tenants cannot choose them.
        addresses: The addresses at which clients reach the object.
    """
    owners, official = tuple(owners), tuple(official)
    mine = [owner for owner in owners if standing(owner, ref) is Standing.SELF]
    if any(owner not in mine and not _is_whole_cluster(owner, ref) for owner in owners):
        return Verdict.FOREIGN
    if any(owner.cluster_uid for owner in mine):
        return Verdict.MARKED
    named = [
        owner for owner in official if owner.key == ref.key and owner.cluster == ref.cluster.name
    ]
    if len(named) < len(official):
        return Verdict.FOREIGN
    if any(_holds_uid(text, ref.uid) for text in texts):
        return Verdict.NAMED
    shown = {point.ip or point.hostname for point in ref.last_ingress}
    if named and not shown.isdisjoint(addresses):
        return Verdict.OFFICIAL
    unmarked = Verdict.FOREIGN if owners else Verdict.UNMARKED
    return Verdict.UNPROVEN if mine or named else unmarked


def _is_whole_cluster(owner: Owner, ref: LoadBalancerRef) -> bool:
    is_here = not is_of_another_cluster(owner, ref.cluster)
    return is_here and not (owner.namespace or owner.service_uid)


def _holds_uid(text: str, uid: str) -> bool:
    """Tell whether a text holds, as a whole word, a UID or the default name made of it."""
    names = (uid, default_load_balancer_name(uid)) if uid else ()
    return any(
        re.search(rf"(?<![0-9A-Za-z]){re.escape(name)}(?![0-9A-Za-z])", text) for name in names
    )


def refusal(
    owners: Iterable[Owner], ref: LoadBalancerRef, tenants: Tenants, names: Iterable[str]
) -> str:
    """Return why a Service may not begin to use an object that it names; "" if it may.

    Args:
        owners: The owners that the object's marks name.
        ref: The Service.
        tenants: The section [Tenants] of the cloud-config.
        names: The object's id, and other names for it that the allow-list may contain.
    """
    owners = tuple(owners)
    standings = {owner: standing(owner, ref) for owner in owners}
    if Standing.SELF in standings.values() or tenants.lists(ref.namespace, names):
        return ""
    for owner, found in standings.items():
        if found is Standing.FOREIGN:
            return f"it belongs to {owner}"
    if tenants.named_objects is Naming.LISTED:
        return f"the cloud-config does not list it for the namespace {ref.namespace} ([Tenants])"
    if tenants.named_objects is Naming.SAME_NAMESPACE and not owners:
        return (
            f"it has no mark of the namespace {ref.namespace}, which named-objects in [Tenants] of"
            " the cloud-config asks for"
        )
    return ""


def shown_by_others(
    address: str, ref: LoadBalancerRef, services: Iterable[KubeObject]
) -> list[Owner]:
    """Return the Services of other namespaces that have an address by their status, or inside.

    An address without a mark is not in use at every moment: their load balancer may be made anew.
    Of a Service whose status shows a host name only its spec tells the address. What goes to a
    cluster IP no cloud sees, but nodes go by one for it and for addresses of load balancers.
    """
    return _having(address, ref, services, lambda one: (*shown_addresses(one), *cluster_ips(one)))


def inside_refusal(
    address: str,
    ref: LoadBalancerRef,
    tenants: Tenants,
    services: Iterable[KubeObject],
    pods: Mapping[str, str],
) -> str:
    """Return why a Service may not show an address of a network; "" if it may, or does already.

    A subnet may have the addresses of cluster IPs and pods, of which the cloud knows nothing.

    Args:
        address: The address, whether the Service asks for it or the cloud gives it.
        ref: The Service.
        tenants: The section [Tenants] of the cloud-config.
        services: The cluster's Services.
        pods: The names of nodes by their pod CIDRs.
    """
    found = _having(address, ref, services, cluster_ips)
    reason = refusal(found, ref, tenants, (address,)) if found else ""
    return reason or pods_refusal(address, ref, tenants, pods)


def pods_refusal(
    address: str, ref: LoadBalancerRef, tenants: Tenants, pods: Mapping[str, str]
) -> str:
    """Return why a Service may not show an address that pods may have, as of `inside_refusal`."""
    return "" if may_show(address, ref, tenants) else of_pods(address, pods)


def may_show(address: str, ref: LoadBalancerRef, tenants: Tenants) -> bool:
    """Tell whether a Service may show an address, whatever else has it: it does, or is let."""
    return _is_shown(address, ref) or tenants.lists(ref.namespace, (address,))


def of_pods(address: str, pods: Mapping[str, str]) -> str:
    """Return whose pods may have an address, by their node's pod CIDR; "" if there are none."""
    within = parsed_network(address)
    node = node_of_pods(within, pods) if within is not None else ""
    return f"it is of the pods of the node {node}" if node else ""


def _is_shown(address: str, ref: LoadBalancerRef) -> bool:
    wanted = parsed_address(address)
    return any(parsed_address(point.ip) == wanted for point in ref.last_ingress)


def _having(
    address: str,
    ref: LoadBalancerRef,
    services: Iterable[KubeObject],
    addresses: Callable[[Service], Iterable[str]],
) -> list[Owner]:
    """Return the Services of other namespaces that have an address; none if ours shows it."""
    wanted = parsed_address(address)
    if wanted is None or _is_shown(address, ref):
        return []
    return [
        owner
        for owner, one in _of_others(ref, services)
        if wanted in map(parsed_address, addresses(one))
    ]


def cluster_ips(service: Service) -> tuple[str, ...]:
    """Return the cluster IPs of a Service, in the form in which somebody may have given them."""
    return (service.spec.cluster_ip, *service.spec.cluster_ips)


def shown_addresses(service: Service) -> Iterator[str]:
    """Return the addresses that a Service has by its status; a host name stands for its spec's."""
    for point in service.status.load_balancer.ingress:
        yield point.ip or service.spec.load_balancer_ip


def kept_by_name(ref: LoadBalancerRef, services: Iterable[KubeObject]) -> set[str]:
    """Return the addresses in a Service's status that nobody else may name, since it names them.

    That lasts only as long as the status shows them, also while nothing has them: until another
    Service shows them.
    """
    asked = parsed_address(ref.service.spec.load_balancer_ip) if ref.service is not None else None
    others = (one for one in services if isinstance(one, Service) and one.metadata.uid != ref.uid)
    shown = {parsed_address(address) for one in others for address in shown_addresses(one)}
    own = {point.ip for point in ref.last_ingress if point.ip}
    return set() if asked in {None, *shown} else {ip for ip in own if parsed_address(ip) == asked}


def named_by_others(
    annotation: str, id_: str, ref: LoadBalancerRef, services: Iterable[KubeObject]
) -> list[Owner]:
    """Return the Services of other namespaces that name an object and show a host name.

    Their load balancer may be made anew, and nothing else tells then what it is to have again.
    """
    return [
        owner
        for owner, one in _of_others(ref, services)
        if one.metadata.annotations.get(annotation, "").strip().lower() == id_.lower()
        and any(point.hostname for point in one.status.load_balancer.ingress)
    ]


def _of_others(
    ref: LoadBalancerRef, services: Iterable[KubeObject]
) -> Iterator[tuple[Owner, Service]]:
    for one in services:
        meta = one.metadata
        if isinstance(one, Service) and meta.namespace != ref.namespace:
            yield Owner(ref.cluster.uid, "", meta.namespace, meta.name, meta.uid), one
