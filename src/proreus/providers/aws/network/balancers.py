"""Ensure and delete network load balancers of Services."""

import re
from collections.abc import Collection, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import MARK_CLUSTER_UID, MARK_FINGERPRINT, MARK_SERVICE_UID
from proreus.cloudprovider.load_balancers import (
    Done,
    EnsureAnswer,
    Ensured,
    LoadBalancer,
    LoadBalancerRef,
    PartChange,
    Pending,
)
from proreus.cloudprovider.recorded import MadeFrom, Record
from proreus.cloudprovider.steps import converge, preview_plan
from proreus.kube.objects import LoadBalancerIngress
from proreus.providers.aws import rules
from proreus.providers.aws.access import Access, network_access
from proreus.providers.aws.annotations import PREFIX, Options
from proreus.providers.aws.config import SecurityGroupMode
from proreus.providers.aws.groups import HostGroups
from proreus.providers.aws.identity import TAG_SERVICE, Place, owning_clusters, pairs_of
from proreus.providers.aws.listeners import port_mappings
from proreus.providers.aws.names import targets_of
from proreus.providers.aws.network import plan
from proreus.providers.aws.network.apply import take
from proreus.providers.aws.network.observe import (
    Described,
    find_balancer,
    find_network,
    observe,
    subnets_of,
)
from proreus.providers.aws.network.parts import (
    DUALSTACK,
    Balancer,
    Desired,
    Observed,
    Placed,
)
from proreus.providers.aws.network.steps import NETWORK
from proreus.providers.aws.own_groups import DesiredGroup, Group, OwnGroups
from proreus.providers.aws.subnets import Subnet, Subnets
from proreus.providers.aws.tenants import Named, networks_shown

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api
    from proreus.providers.aws.config import Global

_ASK_AGAIN: Final = 5.0
_ACTIVE: Final = "active"
_NAME: Final = re.compile(r"a[0-9A-Za-z]{1,31}")
"""The form of the names that load balancers of Services have."""
_IGNORED: Final = "AnnotationIgnored"
_IPV4, _IPV6 = "IPv4", "IPv6"


class NetworkBalancers:
    """The verbs for network load balancers."""

    def __init__(
        self,
        api: "Api",
        place: Place,
        settings: "Global",
        *,
        subnets: Subnets,
        hosts: HostGroups | None,
        named: Named,
        own_groups: OwnGroups,
    ) -> None:
        """Keep the client of AWS; `hosts` is None to leave the groups of hosts alone."""
        self._api = api
        self._place = place
        self._settings = settings
        self._subnets = subnets
        self._hosts = hosts
        self._named = named
        self._own_groups = own_groups
        self._makes_groups = settings.nlb_security_group_mode is SecurityGroupMode.MANAGED

    async def ensure(self, lb: LoadBalancer, options: Options, made_from: MadeFrom) -> EnsureAnswer:
        """Make or change the load balancer to be as desired, and record that.

        Raises:
            CloudError: The Service asks for something impossible, or AWS refuses.
        """
        desired, observed, subnets = await self._prepare(lb, options)
        targets, rejected = targets_of(lb.hosts)
        if warning := plan.warning(desired, observed):
            self._api.context.events.event(lb.service, "Warning", _IGNORED, warning)
        record = _record(self._api, observed.balancer)
        observed = await converge(
            observed,
            lambda observed: plan.plan(desired, observed),
            partial(take, self._api, self._own_groups),
            before=record.clear,
        )
        balancer = observed.balancer
        if balancer is None:
            raise CloudError(f"{desired.name} was deleted while it was being made")
        refused = dict(observed.refused)
        if self._hosts is not None:
            refused |= await self._hosts.allow(
                self._access(lb, desired, observed, subnets), record.clear
            )
        ingress = (LoadBalancerIngress(hostname=balancer.dns_name),)
        if balancer.state != _ACTIVE:
            return Pending(_ASK_AGAIN, f"load balancer {desired.name} is {balancer.state}", ingress)
        if idle := _idle(observed):
            await record.clear()
        if left := await self._own_groups.let_go(idle, self._hosts, desired.name):
            return Pending(_ASK_AGAIN, left, ingress)
        refused_nodes = {node: refused[id_] for node, id_ in targets.items() if id_ in refused}
        answer = Ensured(ingress, {**rejected, **refused_nodes})
        if not answer.rejected and not warning:
            # Both are to be said again with each look at all Services.
            await record.keep(made_from(ingress), partial(_mark, self._api, balancer.arn))
        return answer

    async def preview(self, lb: LoadBalancer, options: Options) -> Sequence[PartChange]:
        """Return what `ensure` would change.

        Raises:
            CloudError: The Service asks for something impossible, or AWS does not answer.
        """
        desired, observed, subnets = await self._prepare(lb, options)
        lines, expected = preview_plan(observed, lambda observed: plan.plan(desired, observed))
        found = list(lines)
        if self._hosts is not None:
            access = self._access(lb, desired, expected, subnets)
            found += await self._hosts.preview(access)
        idle = _idle(expected)
        found += await self._own_groups.foresee_let_go(idle, self._hosts, desired.name)
        return found

    async def _prepare(
        self, lb: LoadBalancer, options: Options
    ) -> tuple[Desired, Observed, Sequence[Subnet]]:
        """Return the desired state, the observed one, and the subnets.

        Raises:
            CloudError: The Service asks for something impossible, or AWS does not answer.
        """
        described = await find_network(self._api, lb.ref.name)
        used = subnets_of(described)
        choose = partial(self._subnets.choose, lb.ref, internal=options.internal, used=used)
        subnets = await choose(options.subnets)
        desired = desired_of(lb, options, self._place, self._settings, subnets)
        names = [plan.target_group_name(desired, mapping) for mapping in desired.mappings]
        observed = await self._observe(lb.ref, described, names, with_group=self._makes_groups)
        plan.check(desired, observed)
        await self._named.check(
            lb.ref,
            options,
            used=_used(observed, options),
            subnets=subnets,
            is_new=observed.balancer is None,
        )
        if not self._makes_groups and not _has_own_group(observed):
            desired = msgspec.structs.replace(desired, own=None)
        return desired, observed, subnets

    async def delete(self, ref: LoadBalancerRef) -> Done | Pending:
        """Delete every part of a load balancer, and the rules in the groups of hosts.

        Raises:
            CloudError: AWS refuses.
        """
        described = await find_network(self._api, ref.name)
        whole = await self._observe(ref, described, ("",), with_group=True)
        observed = _without_namesake(whole, ref)
        await converge(observed, plan.delete_steps, partial(take, self._api, self._own_groups))
        if self._hosts is not None:
            await self._hosts.allow(network_access(ref.name, (), frozenset(), self._living))
        if left := await self._own_groups.let_go(observed.group, self._hosts, ref.name):
            return Pending(_ASK_AGAIN, left)
        return Done(found=observed != Observed())

    async def _observe(
        self,
        ref: LoadBalancerRef,
        described: Described | None,
        names: Collection[str],
        *,
        with_group: bool,
    ) -> Observed:
        """Read everything that AWS has of a Service, whose load balancer was found.

        Raises:
            CloudError: AWS does not answer, or the load balancer is somebody else's.
        """
        prefix = plan.target_group_prefix(ref.namespace, ref.service_name)
        observed = await observe(self._api, described, prefix=prefix, names=names)
        observed = ours(observed, ref, self._place)
        if not with_group and (observed.balancer is None or not observed.balancer.groups):
            return observed
        group = await self._own_groups.find(plan.group_name(ref), ref)
        return msgspec.structs.replace(observed, group=group)

    def _access(
        self, lb: LoadBalancer, desired: Desired, observed: Observed, subnets: Sequence[Subnet]
    ) -> Access:
        """Return the rules that clients and health checks need in the groups of hosts."""
        ranges = [cidr for subnet in subnets for cidr in (subnet.v4, subnet.v6) if cidr]
        return network_access(
            desired.name,
            desired.targets - observed.refused.keys(),
            rules.of_network(desired.name, desired.mappings, _ranges(lb), ranges),
            self._living,
        )

    async def _living(self, names: Collection[str]) -> frozenset[str]:
        """Return which network load balancers with names of ours there are in the VPC.

        A list may lack some, so those that Services show, which stay, are asked for by name, too.

        Args:
            names: Others that are asked for by name if the list lacks them.

        Raises:
            CloudError: AWS does not answer.
        """
        found = await self._api.pages("elbv2", "DescribeLoadBalancers", "LoadBalancers")
        listed = {
            str(one["LoadBalancerName"])
            for one in found
            if one["Type"] == NETWORK and one.get("VpcId") == self._place.vpc
        }
        services = self._api.context.listers["services"].all()
        staying = (one for one in services if one.metadata.deletion_timestamp is None)
        shown = filter(_NAME.fullmatch, chain.from_iterable(map(networks_shown, staying)))
        asked = sorted({*names, *shown} - listed)
        alone = [one for one in asked if await find_balancer(self._api, one)]
        return frozenset((*filter(_NAME.fullmatch, listed), *alone))


def _without_namesake(observed: Observed, ref: LoadBalancerRef) -> Observed:
    """Return what AWS has, without target groups of another Service of the same name.

    Such as the next one, when what is left over of a former one is deleted.
    """
    groups = tuple(
        one for one in observed.target_groups if one.tags.get(MARK_SERVICE_UID, ref.uid) == ref.uid
    )
    return msgspec.structs.replace(observed, target_groups=groups)


def _used(observed: Observed, options: Options) -> frozenset[str]:
    """Return what a load balancer has of all that annotations can name."""
    balancer = observed.balancer
    if balancer is None:
        return frozenset()
    # One that was made without groups gets none.
    groups = balancer.groups or options.security_groups
    certificates = (listener.certificate for listener in observed.listeners)
    bucket = balancer.attributes.get("access_logs.s3.bucket", "")
    return frozenset((*groups, *balancer.zones.values(), *certificates, bucket))


def _record(api: "Api", balancer: Balancer | None) -> Record:
    if balancer is None:
        return Record("", partial(_mark, api, ""))
    shown = balancer.tags.get(MARK_FINGERPRINT, "")
    return Record(shown, partial(_mark, api, balancer.arn))


async def _mark(api: "Api", arn: str, made_from: str) -> None:
    """Write the record as a tag; an empty one clears it, which needs no further right."""
    tags = pairs_of({MARK_FINGERPRINT: made_from})
    await api.call("elbv2", "AddTags", ResourceArns=[arn], Tags=tags)


def _idle(observed: Observed) -> Group | None:
    """Return the own group that the load balancer has no more, since another was given."""
    return observed.group if not _has_own_group(observed) else None


def _has_own_group(observed: Observed) -> bool:
    group, balancer = observed.group, observed.balancer
    return group is not None and balancer is not None and group.id in balancer.groups


def _ranges(lb: LoadBalancer) -> list[str]:
    return [one for ranges in lb.source_ranges.values() for one in ranges]


def desired_of(
    lb: LoadBalancer,
    options: Options,
    place: Place,
    settings: "Global",
    subnets: Sequence[Subnet],
) -> Desired:
    """Compute the desired load balancer, as AWS should have it. Pure.

    Raises:
        InvalidRequest: The Service asks for something impossible; names the field.
    """
    addresses = options.allocations or options.private_addresses
    if addresses and len(addresses) != len(subnets):
        name = "eip-allocations" if options.allocations else "private-ipv4-addresses"
        raise InvalidRequest(
            f"annotation {PREFIX}{name}: give one for each of the {len(subnets)} subnets"
        )
    is_dual = _IPV6 in lb.families
    if is_dual and not all(subnet.v6 for subnet in subnets):
        without = ", ".join(subnet.id for subnet in subnets if not subnet.v6)
        raise InvalidRequest(
            f"spec.ipFamilies: IPv6 needs subnets with an IPv6 range: there is none in {without}"
        )
    ref, mappings = lb.ref, port_mappings(lb, options, settings)
    own = DesiredGroup(
        name=plan.group_name(ref),
        description=f"Clients of the load balancer {ref.name} of the Service {ref.key}",
        rules=rules.of_managed(mappings, _ranges(lb)),
    )
    tags = {**options.tags, TAG_SERVICE: ref.key, **lb.marks}
    return Desired(
        name=ref.name,
        cluster=place.tags.id,
        service=(ref.namespace, ref.service_name),
        tags=place.tags.new(tags),
        scheme=options.scheme,
        address_type=DUALSTACK if is_dual else "ipv4",
        # Without, one with IPv6 addresses takes no listener of UDP.
        source_nat=is_dual and any("UDP" in mapping.protocol for mapping in mappings),
        target_type="ipv4" if _IPV4 in lb.families else "ipv6",
        vpc=place.vpc,
        placed=tuple(_placed(options, n, one) for n, one in enumerate(subnets)),
        own=None if options.security_groups else own,
        groups=options.security_groups,
        mappings=mappings,
        targets=frozenset(targets_of(lb.hosts)[0].values()),
        attributes=_attributes(options),
        target_attributes=_target_attributes(options),
    )


def _placed(options: Options, number: int, subnet: Subnet) -> Placed:
    return Placed(
        subnet.id,
        subnet.zone,
        options.allocations[number] if options.allocations else "",
        options.private_addresses[number] if options.private_addresses else "",
    )


def _attributes(options: Options) -> dict[str, str]:
    found = {
        "load_balancing.cross_zone.enabled": str(options.cross_zone).lower(),
        "access_logs.s3.enabled": str(options.access_log is not None).lower(),
    }
    if options.access_log is not None:
        found["access_logs.s3.bucket"] = options.access_log.bucket
        found["access_logs.s3.prefix"] = options.access_log.prefix
    return found


def _target_attributes(options: Options) -> dict[str, str]:
    proxy = {"proxy_protocol_v2.enabled": "true"} if options.proxy_protocol else {}
    return {**proxy, **options.target_attributes}


def ours(observed: Observed, ref: LoadBalancerRef, place: Place) -> Observed:
    """Return what AWS has, without target groups that were not made for this Service. Pure.

    Where this cluster has no id, one that no listener uses is another's if it has the tag of any
    cluster, unless it has our mark, too.

    Raises:
        CloudError: The load balancer of that name was not made for the Service.
    """
    balancer = observed.balancer
    if balancer is not None and not place.made_for(ref, balancer.tags):
        raise CloudError(
            f"the load balancer {balancer.name} has tags of another owner: delete "
            "it, or correct its tags"
        )
    used = {listener.target_group for listener in observed.listeners}
    groups = (
        target_group
        for target_group in observed.target_groups
        if place.made_for(ref, target_group.tags)
        and (
            place.tags.id
            or target_group.arn in used
            or MARK_CLUSTER_UID in target_group.tags
            or not owning_clusters(target_group.tags)
        )
    )
    return msgspec.structs.replace(observed, target_groups=tuple(groups))
