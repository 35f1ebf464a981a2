"""Whose a cloud object is, and whether a Service may name it. Pure.

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

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.identity import MARK_CLUSTER_UID, MARK_SERVICE_UID, ClusterIdentity
from proreus.cloudprovider.load_balancers import LoadBalancerRef

EVERY_NAMESPACE: Final = "*"
"""In the allow-list: any namespace."""


class Owner(msgspec.Struct, frozen=True):
    """Whom a mark on an object names; "" where the mark does not say.

    Attributes:
        cluster_uid: The UID of the cluster's namespace kube-system.
        cluster: The value of `--cluster-name`: all that marks of official managers say.
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
    """What an owner is to a Service."""

    SELF = "self"
    NEIGHBOUR = "neighbour"
    """Another Service of the namespace, or the cluster as a whole."""
    FOREIGN = "foreign"


class Naming(StrEnum):
    """Which objects a Service may name beside those in the allow-list."""

    UNMARKED = "unmarked"
    """Those without an owner's mark, and those of its namespace."""
    SAME_NAMESPACE = "same-namespace"
    """Those of its namespace."""
    LISTED = "listed"
    """None."""


class Tenants(
    ConfigSection,
    frozen=True,
    kw_only=True,
    rename={"named_objects": "named-objects", "allow": "allow"},
):
    """Section [Tenants], of ours: which cloud objects Services may name.

    Attributes:
        named_objects: Which they may name beside those in `allow`.
        allow: Objects that a namespace may name whosesoever they are: `namespace=id`, or `*=id` for
            all namespaces, one per line. An address goes by itself.
    """

    named_objects: Naming = Naming.UNMARKED
    allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse values that the fields' types let through but that are wrong.

        Raises:
            ConfigError: An entry is not of that form.
        """
        if not all(namespace and object_ for namespace, object_ in self._listed()):
            raise ConfigError(("allow: give namespace=id or *=id, one per line",))

    def lists(self, namespace: str, names: Iterable[str]) -> bool:
        """Whether an object with one of these names is in the allow-list for a namespace."""
        wanted = set(names)
        return any(
            who in {namespace, EVERY_NAMESPACE} and object_ in wanted
            for who, object_ in self._listed()
        )

    def _listed(self) -> list[tuple[str, str]]:
        pairs = (one.partition("=") for one in self.allow)
        return [(namespace.strip(), object_.strip()) for namespace, _, object_ in pairs]


def are_marks_of(marks: Mapping[str, str], ref: LoadBalancerRef) -> bool:
    """Tell whether marks prove that an object was made for this Service of this cluster. Pure."""
    proof = {MARK_CLUSTER_UID: ref.cluster.uid, MARK_SERVICE_UID: ref.uid}
    return proof.items() <= marks.items()


def standing(owner: Owner, ref: LoadBalancerRef) -> Standing:
    """What an owner is to a Service.

    A mark that names a Service but not its namespace is of another one unless it has its uid.
    """
    if is_of_another_cluster(owner, ref.cluster):
        return Standing.FOREIGN
    if owner.service_uid == ref.uid:
        return Standing.SELF
    if owner.namespace == ref.namespace or not (owner.namespace or owner.service_uid):
        return Standing.NEIGHBOUR
    return Standing.FOREIGN


def is_of_another_cluster(owner: Owner, cluster: ClusterIdentity) -> bool:
    """Whether a mark is another cluster's; a name counts where there is no uid."""
    if owner.cluster_uid:
        return owner.cluster_uid != cluster.uid
    return bool(owner.cluster) and owner.cluster != cluster.name


def refusal(
    owners: Iterable[Owner], ref: LoadBalancerRef, tenants: Tenants, names: Iterable[str]
) -> str:
    """Why a Service may not begin to use an object that it names; "" if it may.

    Args:
        owners: Whom the object's marks name.
        ref: The Service.
        tenants: The section [Tenants] of the cloud-config.
        names: The object's id, and what else it may be called in the allow-list.
    """
    owners = tuple(owners)
    stands = {one: standing(one, ref) for one in owners}
    if Standing.SELF in stands.values() or tenants.lists(ref.namespace, names):
        return ""
    for owner, one in stands.items():
        if one is Standing.FOREIGN:
            return f"it belongs to {owner}"
    if tenants.named_objects is Naming.LISTED:
        return f"the cloud-config does not list it for the namespace {ref.namespace} ([Tenants])"
    if tenants.named_objects is Naming.SAME_NAMESPACE and not owners:
        return (
            f"it has no mark of the namespace {ref.namespace}, which named-objects in [Tenants] of"
            " the cloud-config asks for"
        )
    return ""
