"""Whether a Service may name security groups and Elastic addresses: by their tags.

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
"""What the official manager describes the group of a load balancer with; it cannot be changed."""


def owners_of(described: Described, cluster: ClusterTags) -> tuple[Owner, ...]:
    """Whom marks on a security group or an address name; () without any. Pure.

    The official manager's tag of a cluster is a mark if it says `owned`; of this cluster it names
    no Service. Its groups name theirs in the description.

    Args:
        described: As EC2 describes it.
        cluster: How this cluster's objects are told.
    """
    tags = tags_of(described)
    service = tags.get(MARK_SERVICE) or tags.get(TAG_SERVICE) or ""
    namespace, _, name = service.partition("/")
    if not service and (found := _OFFICIAL.fullmatch(str(described.get("Description") or ""))):
        namespace, name = found["namespace"], found["service"]
    known = msgspec.structs.replace(owner_of(tags) or Owner(), namespace=namespace, service=name)
    if known.cluster_uid or not _is_foreign(tags, cluster):
        return (known,) if known != Owner() else ()
    # Ids in tags are not names of clusters: this one is not compared with any.
    ids = owning_clusters(tags)
    return tuple(msgspec.structs.replace(known, cluster_uid=one, cluster="") for one in ids)


def _is_foreign(tags: Mapping[str, str], cluster: ClusterTags) -> bool:
    return bool(cluster.id) and bool(owning_clusters(tags)) and not cluster.has(tags)


class Named:
    """Looks at what annotations name before a load balancer gets it."""

    def __init__(self, api: "Api", place: Place, tenants: Tenants) -> None:
        """Speak through `api`; what Services may name is up to `tenants`."""
        self._api = api
        self._cluster = place.tags
        self._tenants = tenants

    async def check(
        self, ref: LoadBalancerRef, asked: Options, *, groups: Collection[str], is_new: bool
    ) -> None:
        """Refuse what is another's.

        Args:
            ref: The Service.
            asked: What its annotations name.
            groups: The security groups that the load balancer has.
            is_new: Whether it is to be made; addresses are given to it then only.

        Raises:
            InvalidRequest: Names every one.
            CloudError: AWS does not answer, or knows one of them not.
        """
        given = {
            name: [one for one in ids if one not in groups]
            for name, ids in (
                ("security-groups", asked.security_groups),
                ("extra-security-groups", asked.extra_security_groups),
            )
        }
        problems: list[str] = []
        if ids := sorted({one for new in given.values() for one in new}):
            found = await self._api.pages(
                "ec2", "DescribeSecurityGroups", "SecurityGroups", GroupIds=ids
            )
            by_id = {one["GroupId"]: one for one in found}
            problems += (
                line for name, new in given.items() for line in self._wrong(ref, name, new, by_id)
            )
        if is_new and asked.allocations:
            answer = await self._api.call(
                "ec2", "DescribeAddresses", AllocationIds=list(asked.allocations)
            )
            by_id = {one["AllocationId"]: one for one in answer["Addresses"]}
            problems += self._wrong(ref, "eip-allocations", asked.allocations, by_id)
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
