"""Load balancers of Services, of the kind that each Service's annotations ask for."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from proreus.cloudprovider.adapters import per_service
from proreus.cloudprovider.errors import InvalidRequest, NotSupported
from proreus.cloudprovider.identity import (
    MARK_CLUSTER_UID,
    MARK_SERVICE,
    MARK_SERVICE_UID,
    ClusterIdentity,
    OwnedObject,
)
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    EnsureAnswer,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    LoadBalancers,
)
from proreus.kube.objects import Service
from proreus.providers.aws import annotations
from proreus.providers.aws.annotations import PREFIX, Kind
from proreus.providers.aws.groups import HostGroups
from proreus.providers.aws.identity import Place
from proreus.providers.aws.listeners import check
from proreus.providers.aws.network.balancers import NetworkBalancers
from proreus.providers.aws.network.observe import NETWORK, tags_by_arn
from proreus.providers.aws.subnets import Subnets

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api
    from proreus.providers.aws.config import Global

_CLASSIC_HOST: Final = re.compile(r".*\.[a-z0-9-]+\.elb\.amazonaws\.com(\.cn)?")
_NETWORK_HOST: Final = re.compile(r".*\.elb\.[a-z0-9-]+\.amazonaws\.com(\.cn)?")


def load_balancers(api: "Api", place: Place, settings: "Global") -> LoadBalancers:
    """The capability. Rules in groups of hosts are shared by all, and have turns of their own."""
    verbs = Verbs(api, place, settings)
    return per_service(
        verbs.ensure, verbs.delete, host_policy=host_policy, list_owned=verbs.list_owned
    )


def host_policy(service: Service) -> HostPolicy:
    """The nodes with the labels of `target-node-labels`. Pure.

    Raises:
        ImplementedElsewhere: The AWS Load Balancer Controller serves this Service.
        InvalidRequest: An annotation is wrong.
    """
    asked = annotations.read(service.metadata.annotations)
    families = ("IPv4", "IPv6") if asked.kind is Kind.NETWORK else ("IPv4",)
    # "" is any value, as officially.
    selector = {label: value or None for label, value in asked.target_labels.items()}
    return HostPolicy(selector=selector, families=families)


class Verbs:
    """What is done for one Service."""

    def __init__(self, api: "Api", place: Place, settings: "Global") -> None:
        """Speak through `api`."""
        self._api = api
        hosts = None if settings.disable_security_group_ingress else HostGroups(api, place)
        subnets = Subnets(api, place)
        self._network = NetworkBalancers(api, place, settings, subnets=subnets, hosts=hosts)

    async def ensure(self, wanted: LoadBalancer) -> EnsureAnswer:
        """Read what there is, then write what differs.

        Raises:
            CloudError: It cannot be, or AWS refuses.
        """
        asked = annotations.read(wanted.service.metadata.annotations)
        _check_kind(wanted, asked.kind)
        check(wanted, asked)
        if asked.kind is Kind.CLASSIC:
            raise NotSupported(f"classic load balancers are not made yet: give {PREFIX}type: nlb")
        return await self._network.ensure(wanted, asked)

    async def delete(self, gone: LoadBalancerRef) -> DeleteAnswer:
        """Delete what was made for the Service, whatever its annotations say now.

        Raises:
            CloudError: AWS refuses.
        """
        return await self._network.delete(gone)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """Every load balancer with this cluster's mark."""
        found = await self._api.pages("elbv2", "DescribeLoadBalancers", "LoadBalancers")
        arns = [one["LoadBalancerArn"] for one in found if one["Type"] == NETWORK]
        tags = await tags_by_arn(self._api, arns)
        return [
            OwnedObject(
                "load balancer",
                arn,
                service=tags[arn].get(MARK_SERVICE, ""),
                service_uid=tags[arn].get(MARK_SERVICE_UID, ""),
            )
            for arn in arns
            if tags.get(arn, {}).get(MARK_CLUSTER_UID) == cluster.uid
        ]


def _check_kind(wanted: LoadBalancer, kind: Kind) -> None:
    """Refuse another kind than the load balancer that there is; its host name tells.

    Raises:
        InvalidRequest: The annotation has changed.
    """
    other = _CLASSIC_HOST if kind is Kind.NETWORK else _NETWORK_HOST
    for point in wanted.ref.last_ingress:
        if point.hostname and other.fullmatch(point.hostname):
            raise InvalidRequest(
                f"annotation {PREFIX}type: the load balancer {point.hostname} cannot become one of "
                "another kind; take the change back, or make the Service anew"
            )
