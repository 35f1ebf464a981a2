"""The capability `LoadBalancers` of the provider `aws`, for classic and network load balancers."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from proreus.cloudprovider.adapters import per_service
from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    Done,
    EnsureAnswer,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    LoadBalancers,
    PartChange,
    Pending,
)
from proreus.cloudprovider.lookups import check_nodes_shown
from proreus.cloudprovider.recorded import desired_digest
from proreus.kube.objects import LoadBalancerIngress, Service
from proreus.providers.aws import annotations
from proreus.providers.aws.annotations import PREFIX, Kind, Options
from proreus.providers.aws.classic.balancers import ClassicBalancers
from proreus.providers.aws.classic.observe import exists
from proreus.providers.aws.groups import HostGroups
from proreus.providers.aws.identity import Place
from proreus.providers.aws.listeners import check
from proreus.providers.aws.lookup import by_id
from proreus.providers.aws.names import CLASSIC_HOST, NETWORK_HOST, instance_id
from proreus.providers.aws.network.balancers import NetworkBalancers
from proreus.providers.aws.network.observe import find_balancer
from proreus.providers.aws.network.steps import NETWORK
from proreus.providers.aws.own_groups import OwnGroups
from proreus.providers.aws.owned import list_owned
from proreus.providers.aws.subnets import Subnets
from proreus.providers.aws.tenants import Named

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api
    from proreus.providers.aws.config import AWSConfig


def load_balancers(
    api: "Api", place: Place, config: "AWSConfig", *, confirm: float
) -> LoadBalancers:
    """Make the capability; changes of rules in groups of hosts take turns.

    `confirm` is the provider's.
    """
    verbs = Verbs(api, place, config, confirm=confirm)
    return per_service(
        verbs.ensure,
        verbs.delete,
        host_policy=host_policy,
        list_owned=partial(list_owned, api),
        fingerprint=verbs.fingerprint,
        preview=verbs.preview,
    )


def host_policy(service: Service) -> HostPolicy:
    """Return the choice of hosts by the annotation `target-node-labels`. Pure.

    Raises:
        ImplementedElsewhere: The AWS Load Balancer Controller serves this Service.
        InvalidRequest: An annotation is wrong.
    """
    options = annotations.read(service.metadata.annotations)
    families = ("IPv4", "IPv6") if options.kind is Kind.NETWORK else ("IPv4",)
    # "" is any value, as officially.
    selector = {label: value or None for label, value in options.target_labels.items()}
    return HostPolicy(selector=selector, families=families)


class Verbs:
    """The verbs of `LoadBalancers` for one Service at a time."""

    def __init__(self, api: "Api", place: Place, config: "AWSConfig", *, confirm: float) -> None:
        """Keep the client of AWS, and the settings; `confirm` is the provider's."""
        self._api = api
        self._inputs = (config.global_, config.tenants, place)
        # The uids of Services whose load balancers were seen to go.
        self._going: set[str] = set()
        settings, named = config.global_, Named(api, place, config.tenants)
        hosts = None
        if not settings.disable_security_group_ingress:
            hosts = HostGroups(api, place, confirm=confirm)
        subnets, own_groups = Subnets(api, place), OwnGroups(api, place, confirm=confirm)
        self._classic = ClassicBalancers(
            api,
            place,
            settings,
            subnets=subnets,
            hosts=hosts,
            named=named,
            own_groups=own_groups,
            confirm=confirm,
        )
        self._network = NetworkBalancers(
            api, place, settings, subnets=subnets, hosts=hosts, named=named, own_groups=own_groups
        )

    async def ensure(self, lb: LoadBalancer) -> EnsureAnswer:
        """Make or change a Service's load balancer, of the kind that its annotations ask for.

        Raises:
            CloudError: The Service asks for something impossible, or AWS refuses.
        """
        options = await self._check(lb)
        made_from = partial(self._made_from, lb, options)
        if options.kind is Kind.CLASSIC:
            return await self._classic.ensure(lb, options, made_from)
        return await self._network.ensure(lb, options, made_from)

    async def preview(self, lb: LoadBalancer) -> Sequence[PartChange]:
        """Return what `ensure` would change.

        Raises:
            CloudError: The Service asks for something impossible, or AWS does not answer.
        """
        options = await self._check(lb)
        if options.kind is Kind.CLASSIC:
            return await self._classic.preview(lb, options)
        return await self._network.preview(lb, options)

    def fingerprint(self, lb: LoadBalancer) -> str:
        """Return the digest that is recorded on a load balancer that is as desired. No I/O.

        Raises:
            InvalidRequest: An annotation is wrong.
        """
        options = annotations.read(lb.service.metadata.annotations)
        return self._made_from(lb, options, lb.ref.last_ingress)

    def _made_from(
        self, lb: LoadBalancer, options: Options, ingress: Sequence[LoadBalancerIngress]
    ) -> str:
        return desired_digest(lb, options, self._inputs, ingress=ingress)

    async def _check(self, lb: LoadBalancer) -> Options:
        """Read what the annotations ask for, and refuse what cannot be.

        Raises:
            CloudError: The Service asks for something impossible, or AWS does not answer.
        """
        options = annotations.read(lb.service.metadata.annotations)
        await self._check_kind(lb, options.kind)
        check(lb, options)
        return options

    async def delete(self, ref: LoadBalancerRef) -> DeleteAnswer:
        """Delete what was made for the Service, of both kinds, whatever its annotations say now.

        Raises:
            CloudError: AWS refuses; or shows neither a load balancer of a Service that has an
                address nor a machine of the cluster's nodes, as that of another account does.
        """
        answers = (await self._classic.delete(ref), await self._network.delete(ref))
        for answer in answers:
            if isinstance(answer, Pending):
                self._going.add(ref.uid)
                return answer
        found = any(isinstance(answer, Done) and answer.found for answer in answers)
        if ref.last_ingress and not found and ref.uid not in self._going:
            nodes = self._api.context.listers["nodes"].all()
            await check_nodes_shown(nodes, instance_id, partial(by_id, self._api))
        self._going.discard(ref.uid)
        return Done(found=found)

    async def _check_kind(self, lb: LoadBalancer, kind: Kind) -> None:
        """Refuse another kind of load balancer than the Service has already.

        The host name in the status tells it. While there is none, AWS is asked: an attempt before
        the annotation was changed may have made one.

        Raises:
            InvalidRequest: The annotation has changed.
            CloudError: AWS does not answer.
        """
        other = CLASSIC_HOST if kind is Kind.NETWORK else NETWORK_HOST
        for point in lb.ref.last_ingress:
            if point.hostname and other.fullmatch(point.hostname):
                raise _cannot_change(point.hostname)
        if lb.ref.last_ingress:
            return
        name = lb.ref.name
        if kind is Kind.NETWORK:
            if await exists(self._api, name):
                raise _cannot_change(name)
        elif (found := await find_balancer(self._api, name)) and found["Type"] == NETWORK:
            raise _cannot_change(name)


def _cannot_change(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"annotation {PREFIX}type: the load balancer {name} cannot become one of another kind; "
        "undo the change, or delete the Service and create it again"
    )
