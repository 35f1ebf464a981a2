"""Write and read the marks on load balancers and public addresses: tags of Azure. Pure.

Ours stand beside the official ones, so that the official manager knows its own again. Names of tags
cannot have a slash.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from proreus.cloudprovider.identity import MARK_CLUSTER, MARK_CLUSTER_UID, ClusterIdentity
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.mark_forms import owner_of
from proreus.cloudprovider.ownership import Owner, Verdict, verdict
from proreus.providers.azure.machines import Resource

TAG_SERVICE: Final = "k8s-azure-service"
"""The official tag of a public address: its Services, separated by commas."""
TAG_CLUSTER: Final = "k8s-azure-cluster-name"
"""The official tag of a public address: the value of `--cluster-name`."""
TAG_DNS: Final = "k8s-azure-dns-label-service"
"""The official tag of a public address: the Service that chooses its DNS label."""
TAG_LINK_OWNER: Final = "k8s-azure-owner-service"
"""The official tag of a private link service: the Service that it was made for."""
_LEGACY: Final = {TAG_SERVICE: "service", TAG_CLUSTER: "kubernetes-cluster-name"}
_OWN: Final = "proreus_"
_LONGEST: Final = 256


def is_mark(tag: str) -> bool:
    """Tell whether a tag of this name, to Azure, says whose a resource is."""
    official = {TAG_SERVICE, TAG_CLUSTER, TAG_DNS, TAG_LINK_OWNER}
    return tag.lower() in official or tag.lower().startswith(_OWN)


def merged(*given: Mapping[str, str]) -> dict[str, str]:
    """Return all tags, of several with one name the last; to Azure letters' case makes no other."""
    found: dict[str, str] = {}
    names: dict[str, str] = {}
    for tags_ in given:
        for key, value in tags_.items():
            found[names.setdefault(key.lower(), key)] = value
    return found


def tags(resource: Resource) -> dict[str, str]:
    """Return the tags of a resource."""
    found = resource.get("tags")
    return {str(key): str(value) for key, value in found.items()} if found else {}


def written(marks: Mapping[str, str]) -> dict[str, str]:
    """Return marks as tags; a value that is too long is left out."""
    return {key.replace("/", "_"): value for key, value in marks.items() if len(value) <= _LONGEST}


def cluster_marks(cluster: ClusterIdentity) -> dict[str, str]:
    """Return the tags of resources that all Services of a cluster share."""
    return written({MARK_CLUSTER: cluster.name, MARK_CLUSTER_UID: cluster.uid})


def read(resource: Resource) -> dict[str, str]:
    """Return our marks on a resource."""
    return {
        key.replace("_", "/", 1): value
        for key, value in tags(resource).items()
        if key.startswith(_OWN)
    }


def owner(resource: Resource) -> Owner | None:
    """Return the owner that our marks on a resource name; None without any."""
    return owner_of(read(resource))


def users(address: Resource) -> list[str]:
    """Return the Services that an address' official tag names, as namespace/name."""
    text = _official(address, TAG_SERVICE)
    return [part for one in text.split(",") if (part := one.strip())]


def official_owners(address: Resource) -> list[Owner]:
    """Return the owners that the official tags on an address name."""
    cluster = _official(address, TAG_CLUSTER)
    found = []
    for user in users(address):
        namespace, _, name = user.partition("/")
        found.append(Owner(cluster=cluster, namespace=namespace, service=name))
    return found


def verdict_on(address: Resource, ref: LoadBalancerRef) -> Verdict:
    """Return how a public address is related to a Service, and by which proof.

    The official tags prove nothing without the Service's UID, which is in the name that the
    official manager gives. Another cluster of the same name can have the same tags, and the status
    of a Service shows what its annotation names as additional addresses.
    """
    own = owner(address)
    mine = [one for one in official_owners(address) if one.key == ref.key]
    return verdict(
        ref,
        owners=[own] if own is not None else (),
        official=mine,
        texts=[str(address.get("name", ""))] if mine or own is not None else (),
    )


def is_of_another_cluster(balancer: Resource, cluster: ClusterIdentity) -> bool:
    """Tell whether a load balancer has the mark of another cluster."""
    own = owner(balancer)
    return own is not None and bool(own.cluster_uid) and own.cluster_uid != cluster.uid


def joined(services: Iterable[str]) -> str:
    """Return the value of the official tag for these Services."""
    return ",".join(dict.fromkeys(services))


def _official(resource: Resource, tag: str) -> str:
    found = tags(resource)
    return found.get(tag) or found.get(_LEGACY[tag], "")
