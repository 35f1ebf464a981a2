"""Decide by their tags which security groups and Elastic IP addresses a Service may name.

What the load balancer has already is not asked about, so what works stays.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.identity import MARK_SERVICE
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.mark_forms import owner_of
from proreus.cloudprovider.ownership import Owner, Tenants, refusal
from proreus.providers.aws.annotations import PREFIX, Options
from proreus.providers.aws.identity import (
    TAG_SERVICE,
    ClusterTags,
    Described,
    Place,
    owning_clusters,
    tags_of,
)

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

_OFFICIAL: Final = re.compile(
    r"Security group for Kubernetes .*\((?P<namespace>[^/()]+)/(?P<service>[^/()]+)\)"
)
"""The official manager's description of a load balancer's group; it cannot be changed."""


def owners_of(described: Described, cluster: ClusterTags) -> tuple[Owner, ...]:
    """Return the owners that marks on a security group or an address name; () without any. Pure.

    The official manager's tag of a cluster is a mark if its value is `owned`; this cluster's tag
    names no Service. Groups of that manager name their Service in the description.

    Args:
        described: The object as EC2 describes it.
        cluster: The tags by which objects are known to be this cluster's.
    """
    tags = tags_of(described)
    service = tags.get(MARK_SERVICE) or tags.get(TAG_SERVICE) or ""
    namespace, _, name = service.partition("/")
    if not service and (found := _OFFICIAL.fullmatch(str(described.get("Description") or ""))):
        namespace, name = found["namespace"], found["service"]
    known = msgspec.structs.replace(owner_of(tags) or Owner(), namespace=namespace, service=name)
    if known.cluster_uid or not cluster.is_anothers(tags):
        return (known,) if known != Owner() else ()
    # Ids in tags are not names of clusters: this one is not compared with any.
    ids = owning_clusters(tags)
    return tuple(msgspec.structs.replace(known, cluster_uid=id_, cluster="") for id_ in ids)


class Named:
    """A check of the objects that annotations name, before a load balancer gets them."""

    def __init__(self, api: "Api", place: Place, tenants: Tenants) -> None:
        """Keep the client of AWS, and `tenants`, by which Services may name objects."""
        self._api = api
        self._cluster = place.tags
        self._tenants = tenants

    async def check(
        self, ref: LoadBalancerRef, options: Options, *, groups: Collection[str], is_new: bool
    ) -> None:
        """Refuse security groups and addresses that belong to others.

        Args:
            ref: The Service.
            options: The options that its annotations choose.
            groups: The security groups that the load balancer has.
            is_new: Whether the load balancer is to be made; it is given addresses only then.

        Raises:
            InvalidRequest: Objects belong to others; names them all.
            CloudError: AWS does not answer, or does not know one of them.
        """
        given = {
            name: [id_ for id_ in ids if id_ not in groups]
            for name, ids in (
                ("security-groups", options.security_groups),
                ("extra-security-groups", options.extra_security_groups),
            )
        }
        problems: list[str] = []
        if ids := sorted({id_ for new in given.values() for id_ in new}):
            found = await self._api.pages(
                "ec2", "DescribeSecurityGroups", "SecurityGroups", GroupIds=ids
            )
            by_id = {group["GroupId"]: group for group in found}
            for name, new in given.items():
                problems += self._wrong(ref, name, new, by_id)
        if is_new and options.allocations:
            answer = await self._api.call(
                "ec2", "DescribeAddresses", AllocationIds=list(options.allocations)
            )
            by_id = {address["AllocationId"]: address for address in answer["Addresses"]}
            problems += self._wrong(ref, "eip-allocations", options.allocations, by_id)
        if problems:
            raise InvalidRequest("; ".join(problems))

    def _wrong(
        self,
        ref: LoadBalancerRef,
        annotation: str,
        ids: Iterable[str],
        found: Mapping[str, Mapping[str, Any]],
    ) -> list[str]:
        problems = []
        for id_ in ids:
            owners = owners_of(found.get(id_, {}), self._cluster)
            names = (id_, str(found.get(id_, {}).get("PublicIp", "")))
            if problem := refusal(owners, ref, self._tenants, names):
                problems.append(f"annotation {PREFIX}{annotation}: {id_}: {problem}")
        return problems
