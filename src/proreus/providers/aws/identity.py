"""Find the cluster's id, region and VPC, in the cloud-config or by this machine."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from proreus.cloudprovider.errors import CloudError, ConfigError
from proreus.cloudprovider.identity import MARK_CLUSTER_UID
from proreus.providers.aws.config import Global

if TYPE_CHECKING:
    from proreus.cloudprovider.load_balancers import LoadBalancerRef
    from proreus.providers.aws.api import Api
    from proreus.providers.aws.metadata import Metadata

TAG_CLUSTER = "kubernetes.io/cluster/"
"""Prefix of the tag on what a cluster uses; its id follows, the value is `owned` or `shared`."""
TAG_LEGACY = "KubernetesCluster"
"""The older tag; its value is the cluster's id."""
TAG_SERVICE = "kubernetes.io/service-name"
"""The tag on the parts of a load balancer; its value is namespace and name of the Service."""
OWNED = "owned"
"""The tag's value on what lives and dies with the cluster."""
SHARED = "shared"
"""The tag's value on what others use, too, and nobody here deletes."""

Described = Mapping[str, Any]
"""An object as AWS describes it, with its `Tags`."""


def pairs_of(values: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags or attributes as AWS takes them. Pure."""
    return [{"Key": key, "Value": value} for key, value in values.items()]


def tags_of(described: Described) -> dict[str, str]:
    """Return the tags of an AWS object by key."""
    return {tag["Key"]: tag.get("Value", "") for tag in described.get("Tags") or ()}


def owning_clusters(tags: Mapping[str, str]) -> list[str]:
    """Return the ids of the clusters that own an object, by its tags."""
    owned = (key for key, value in tags.items() if value == OWNED)
    ids = [key.removeprefix(TAG_CLUSTER) for key in owned if key.startswith(TAG_CLUSTER)]
    legacy = tags.get(TAG_LEGACY)
    return ids or ([legacy] if legacy else [])


class ClusterTags(msgspec.Struct, frozen=True):
    """The tags by which AWS objects are known to be this cluster's.

    Attributes:
        id: The cluster's id; "" if there is none: then every object counts as the cluster's own.
        is_legacy: Whether the id comes from the older tag; new objects then carry that tag as well.
    """

    id: str
    is_legacy: bool = False

    @property
    def key(self) -> str:
        """The key of the cluster's tag."""
        return f"{TAG_CLUSTER}{self.id}"

    def has(self, tags: Mapping[str, str]) -> bool:
        """Tell whether an object with these tags is the cluster's, owned or shared."""
        return not self.id or self.key in tags or tags.get(TAG_LEGACY) == self.id

    def owns(self, tags: Mapping[str, str]) -> bool:
        """Tell whether an object with these tags lives and dies with the cluster."""
        if not self.id:
            return False
        value = tags.get(self.key)
        return value == OWNED or (value is None and tags.get(TAG_LEGACY) == self.id)

    def is_anothers(self, tags: Mapping[str, str]) -> bool:
        """Tell whether an object with these tags is another cluster's, and not this one's, too."""
        return not self.has(tags) and bool(owning_clusters(tags))

    def mine(self, described: Iterable[Described]) -> list[Described]:
        """Return those objects that carry the cluster's tag."""
        return [object_ for object_ in described if self.has(tags_of(object_))]

    def new(self, extra: Mapping[str, str]) -> dict[str, str]:
        """Return the tags for an object that is made for the cluster."""
        tags = dict(extra)
        if self.id:
            tags[self.key] = OWNED
            if self.is_legacy:
                tags[TAG_LEGACY] = self.id
        return tags


class Place(msgspec.Struct, frozen=True):
    """The region, VPC and tags of the cluster.

    Attributes:
        region: The region, such as us-east-1.
        vpc: The id of the cluster's VPC; "" if nothing names it.
        subnet: The id of a subnet of the VPC, for load balancers where no subnet is tagged; or "".
        tags: The tags by which objects are known to be the cluster's.
    """

    region: str
    vpc: str
    subnet: str
    tags: ClusterTags

    def made_for(self, ref: "LoadBalancerRef", tags: Mapping[str, str]) -> bool:
        """Tell whether an object with these tags was made for the Service. Pure.

        The official manager, too, tags every part of a load balancer with cluster and Service. Our
        mark tells clusters apart that have both alike: one is a copy of the other.
        """
        return (
            tags.get(TAG_SERVICE) == ref.key
            and self.tags.has(tags)
            and tags.get(MARK_CLUSTER_UID, ref.cluster.uid) == ref.cluster.uid
        )


async def find_region(settings: Global, metadata: "Metadata") -> str:
    """Return the configured region, or else this machine's.

    Raises:
        CloudError: Neither region is known.
    """
    if settings.configured_region:
        return settings.configured_region
    region = await metadata.get("placement/region")
    if not region:
        raise CloudError(
            "the instance metadata service names no region: give Region in [Global] of the"
            " cloud-config"
        )
    return region


async def find_place(settings: Global, api: "Api", metadata: "Metadata") -> Place:
    """Return region, VPC and tags by the cloud-config; what it leaves out, by this machine.

    Raises:
        CloudError: This machine cannot be asked, or is not an instance of this account.
        ConfigError: The tags of this machine name more than one cluster.
    """
    tags = ClusterTags(settings.cluster_id, is_legacy=bool(settings.kubernetes_cluster_tag))
    if settings.is_elsewhere:
        return Place(api.region, settings.vpc, settings.subnet_id, tags)
    here = await _this_machine(api, metadata)
    return Place(
        region=api.region,
        vpc=settings.vpc or str(here.get("VpcId", "")),
        subnet=settings.subnet_id or str(here.get("SubnetId", "")),
        tags=tags if tags.id else cluster_of(tags_of(here)),
    )


async def _this_machine(api: "Api", metadata: "Metadata") -> Described:
    id_ = await metadata.get("instance-id")
    if not id_:
        raise CloudError(
            "the instance metadata service names no instance: give VPC, SubnetID and"
            " KubernetesClusterID in [Global] of the cloud-config"
        )
    found = await api.pages("ec2", "DescribeInstances", "Reservations", InstanceIds=[id_])
    instances = [instance for reservation in found for instance in reservation["Instances"]]
    if len(instances) != 1:
        raise CloudError(
            f"this machine, {id_}, is not an instance of the credential's account: use a credential"
            " of its account, or give VPC, SubnetID and KubernetesClusterID in [Global] of the"
            " cloud-config"
        )
    return dict(instances[0])


def cluster_of(tags: Mapping[str, str]) -> ClusterTags:
    """Return the cluster that the tags of an instance name; its id is "" if they name none.

    Raises:
        ConfigError: The tags name more than one cluster.
    """
    ids = {key.removeprefix(TAG_CLUSTER) for key in tags if key.startswith(TAG_CLUSTER)}
    legacy = tags.get(TAG_LEGACY, "")
    if len(ids | ({legacy} if legacy else set())) > 1:
        named = ", ".join(sorted({*ids, legacy} - {""}))
        problem = (
            f"the tags of the instance on which this runs name several clusters ({named}): give"
            " KubernetesClusterID in [Global] of the cloud-config, or remove the tags of others"
        )
        raise ConfigError((problem,))
    return ClusterTags(next(iter(ids), legacy), is_legacy=bool(legacy))
