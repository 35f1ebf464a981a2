"""Decide which objects of AWS a Service may name: by their tags, or by the cloud-config alone.

What the load balancer has already is not asked about, so what works stays.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proreus.cloudprovider.desired import load_balancer_ref
from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.identity import MARK_SERVICE
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.mark_forms import owner_of
from proreus.cloudprovider.ownership import Owner, Tenants, refusal
from proreus.kube.objects import KubeObject, Service
from proreus.providers.aws.annotations import PREFIX, Options, is_of_controller
from proreus.providers.aws.classic import plan as classic
from proreus.providers.aws.identity import (
    TAG_SERVICE,
    ClusterTags,
    Described,
    Place,
    owning_clusters,
    tags_of,
)
from proreus.providers.aws.names import NETWORK_HOST
from proreus.providers.aws.network import plan as network
from proreus.providers.aws.network.observe import find_balancer
from proreus.providers.aws.subnets import TAG_INTERNAL, TAG_PUBLIC, Subnet, is_reserved

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

_OFFICIAL: Final = re.compile(
    r"Security group for Kubernetes .*\((?P<namespace>[^/()]+)/(?P<service>[^/()]+)\)"
)
"""The official manager's description of a load balancer's group; it cannot be changed."""
_STACK: Final = "/stack"
"""The end of the tag by which others name the Service, Ingress or Gateway of an object."""
_GROUP: Final = "(group of Ingresses)"
"""What stands for the namespace of a group of Ingresses; no namespace has that name."""
_CLUSTERS: Final = ("elbv2.k8s.aws/cluster", "eks:eks-cluster-name")
"""The tags by which they name its cluster: by the same id as in tags `kubernetes.io/cluster/…`."""


def owners_of(described: Described, cluster: ClusterTags) -> tuple[Owner, ...]:
    """Return the owners that marks on a security group or an address name; () without any. Pure.

    The official manager's tag of a cluster is a mark if its value is `owned`; this cluster's tag
    names no Service. Groups of that manager name their Service in the description. What the AWS
    Load Balancer Controller or EKS Auto Mode has made names Service, Ingress or Gateway, and the
    cluster.

    Args:
        described: The object as EC2 describes it.
        cluster: The tags by which objects are known to be this cluster's.
    """
    tags = tags_of(described)
    service = tags.get(MARK_SERVICE) or tags.get(TAG_SERVICE) or _stack_in(tags)
    namespace, _, name = service.partition("/")
    if not service and (found := _OFFICIAL.fullmatch(str(described.get("Description") or ""))):
        namespace, name = found["namespace"], found["service"]
    known = msgspec.structs.replace(owner_of(tags) or Owner(), namespace=namespace, service=name)
    named = sorted({tags[key] for key in _CLUSTERS if key in tags} - {cluster.id})
    ids = [] if cluster.has(tags) else owning_clusters(tags) or named
    if known.cluster_uid or not ids:
        return (known,) if known != Owner() else ()
    # Ids in tags are not names of clusters: this one is not compared with any.
    return tuple(msgspec.structs.replace(known, cluster_uid=id_, cluster="") for id_ in ids)


def _stack_in(tags: Mapping[str, str]) -> str:
    """Return the Service, Ingress or Gateway that another controller has made an object for; or "".

    A group of Ingresses has no namespace, but a name that one may have as well.
    """
    keys = (key for key in sorted(tags) if key.endswith(_STACK) and is_of_controller(key))
    stack = next((tags[key] for key in keys), "")
    return stack if not stack or "/" in stack else f"{_GROUP}/{stack}"


class Named:
    """A check of the objects that annotations name, before a load balancer gets them."""

    def __init__(self, api: "Api", place: Place, tenants: Tenants) -> None:
        """Keep the client of AWS, and `tenants`, by which Services may name objects."""
        self._api = api
        self._cluster = place.tags
        self._subnet = place.subnet
        self._tenants = tenants
        self._services = api.context.listers["services"]

    async def check(
        self,
        ref: LoadBalancerRef,
        options: Options,
        *,
        used: Collection[str],
        subnets: Sequence[Subnet],
        is_new: bool,
    ) -> None:
        """Refuse what belongs to others, and what the cloud-config lets nobody name.

        Args:
            ref: The Service.
            options: The options that its annotations choose.
            used: What the load balancer has: ids of security groups and subnets, certificates, and
                the bucket of its access log.
            subnets: The subnets that are chosen for it.
            is_new: Whether the load balancer is to be made; it is given addresses only then.

        Raises:
            InvalidRequest: Objects belong to others; names them all.
            CloudError: AWS does not answer, or does not know one of them.
        """
        given = {
            name: [id_ for id_ in ids if id_ not in used]
            for name, ids in (
                ("security-groups", options.security_groups),
                ("extra-security-groups", options.extra_security_groups),
            )
        }
        problems = self._wrong_places(ref, options, used, subnets)
        if ids := sorted({id_ for new in given.values() for id_ in new}):
            found = await self._api.pages(
                "ec2", "DescribeSecurityGroups", "SecurityGroups", GroupIds=ids
            )
            by_id = {group["GroupId"]: group for group in found}
            for name, new in given.items():
                problems += self._wrong(ref, name, new, by_id)
        if is_new:
            problems += await self._wrong_addresses(ref, options)
        if problems:
            raise InvalidRequest("; ".join(problems))

    async def _wrong_addresses(self, ref: LoadBalancerRef, options: Options) -> list[str]:
        """Return which addresses a new load balancer may not have, and why."""
        problems = []
        if options.allocations:
            answer = await self._api.call(
                "ec2", "DescribeAddresses", AllocationIds=list(options.allocations)
            )
            by_id = {address["AllocationId"]: address for address in answer["Addresses"]}
            lost = await self._lost(ref, "eip-allocations", options.allocations)
            problems += self._wrong(ref, "eip-allocations", options.allocations, by_id, lost)
        if lost := await self._lost(ref, "private-ipv4-addresses", options.private_addresses):
            problems += self._wrong(ref, "private-ipv4-addresses", lost, {}, lost)
        return problems

    async def _lost(
        self, ref: LoadBalancerRef, annotation: str, ids: Collection[str]
    ) -> Mapping[str, Sequence[Owner]]:
        """Return whose addresses are that nothing has now, since the load balancer is missing.

        It was deleted by hand, and is made anew with the same. No status shows an address here, so
        the annotations of other namespaces' Services tell whose status shows a network load
        balancer, whoever made it. While there is one, AWS tells what it has.
        """
        found: dict[str, list[Owner]] = {}
        for one in self._services.all() if ids else ():
            meta = one.metadata
            text = meta.annotations.get(PREFIX + annotation, "")
            named = {part.strip() for part in text.split(",")}.intersection(ids)
            shown = networks_shown(one) if named and meta.namespace != ref.namespace else ()
            if not all([await find_balancer(self._api, name) for name in shown]):
                owner = Owner(ref.cluster.uid, "", meta.namespace, meta.name, meta.uid)
                for id_ in named:
                    found.setdefault(id_, []).append(owner)
        return found

    def _wrong_places(
        self,
        ref: LoadBalancerRef,
        options: Options,
        used: Collection[str],
        subnets: Sequence[Subnet],
    ) -> list[str]:
        """Return which subnets, certificate and bucket a Service may not name, and why.

        The official manager lets it name any, and of most of them nothing tells whose they are.
        """
        log = options.access_log
        named: list[tuple[str, str, str, tuple[Owner, ...]]] = [
            ("subnets", one.id, name, tuple(filter(None, (owner_of(one.tags),))))
            for name, one in zip(options.subnets, subnets, strict=False)
            if is_reserved(one, ref) or not self._is_everybodys(one)
        ]
        named.append(("ssl-cert", options.certificate, "", ()))
        named.append(("access-log-s3-bucket-name", log.bucket if log is not None else "", "", ()))
        return [
            f"annotation {PREFIX}{annotation}: {id_}: {problem}"
            for annotation, id_, name, owners in named
            if id_ and id_ not in used
            if (problem := refusal(owners, ref, self._tenants, (id_, name)))
        ]

    def _is_everybodys(self, subnet: Subnet) -> bool:
        """Tell whether a subnet is one that Services get without naming any."""
        is_ours = bool(self._cluster.id) and self._cluster.has(subnet.tags)
        is_meant = not {TAG_PUBLIC, TAG_INTERNAL}.isdisjoint(subnet.tags)
        is_meant = is_meant and not self._cluster.is_anothers(subnet.tags)
        return is_ours or is_meant or subnet.id == self._subnet

    def _owners(self, ref: LoadBalancerRef, described: Described) -> tuple[Owner, ...]:
        """Return the owners of an object by its marks, or else by the name of a group.

        The official manager puts no Service's mark on the group of a network load balancer, which
        gets ours once that is ensured.
        """
        marked, name = owners_of(described, self._cluster), described.get("GroupName")
        if marked or not name:
            return marked
        refs = (
            load_balancer_ref(one, ref.cluster)
            for one in self._services.all()
            if isinstance(one, Service)
        )
        return tuple(
            Owner(ref.cluster.uid, "", one.namespace, one.service_name, one.uid)
            for one in refs
            if name in {classic.group_name(one.name), network.group_name(one)}
        )

    def _wrong(
        self,
        ref: LoadBalancerRef,
        annotation: str,
        ids: Iterable[str],
        found: Mapping[str, Mapping[str, Any]],
        lost: Mapping[str, Sequence[Owner]] = {},
    ) -> list[str]:
        problems = []
        for id_ in ids:
            described = found.get(id_, {})
            owners = (*self._owners(ref, described), *lost.get(id_, ()))
            names = (id_, str(described.get("PublicIp", "")))
            if problem := refusal(owners, ref, self._tenants, names):
                problems.append(f"annotation {PREFIX}{annotation}: {id_}: {problem}")
        return problems


def networks_shown(service: KubeObject) -> list[str]:
    """Return the names of the network load balancers that a Service's status shows. Pure.

    Those of the AWS Load Balancer Controller count, too: it reads the same annotations.
    """
    points = service.status.load_balancer.ingress if isinstance(service, Service) else ()
    hosts = (NETWORK_HOST.fullmatch(point.hostname) for point in points)
    return [host["name"] for host in hosts if host is not None]
