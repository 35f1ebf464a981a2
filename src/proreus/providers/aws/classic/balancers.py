"""Ensure and delete classic load balancers of Services."""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.identity import MARK_FINGERPRINT
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
from proreus.cloudprovider.waits import Twice
from proreus.kube.objects import LoadBalancerIngress
from proreus.providers.aws import rules
from proreus.providers.aws.access import Access, classic_access
from proreus.providers.aws.annotations import Options
from proreus.providers.aws.classic import plan
from proreus.providers.aws.classic.apply import take
from proreus.providers.aws.classic.observe import observe
from proreus.providers.aws.classic.parts import Attributes, Balancer, Desired, Observed
from proreus.providers.aws.groups import HostGroups
from proreus.providers.aws.identity import TAG_SERVICE, Place, pairs_of
from proreus.providers.aws.listeners import classic_health_check, classic_listeners
from proreus.providers.aws.names import targets_of
from proreus.providers.aws.own_groups import DesiredGroup, Group, OwnGroups, users_of_groups
from proreus.providers.aws.rules import HOST_RULE, rules_part_changes
from proreus.providers.aws.subnets import Subnet, Subnets
from proreus.providers.aws.tenants import Named

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api
    from proreus.providers.aws.config import Global

_ASK_AGAIN: Final = 5.0


class ClassicBalancers:
    """The verbs for classic load balancers."""

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
        confirm: float,
    ) -> None:
        """Keep the client of AWS; `hosts` is None to leave the groups of hosts alone.

        `confirm` is the provider's.
        """
        self._api = api
        self._place = place
        self._settings = settings
        self._subnets = subnets
        self._hosts = hosts
        self._named = named
        self._confirm = confirm
        self._own_groups = own_groups
        self._lacking = Twice(confirm)
        # By the Service's uid: given groups that were exchanged, and still have rules.
        self._former: dict[str, set[str]] = {}

    async def ensure(self, lb: LoadBalancer, options: Options, made_from: MadeFrom) -> EnsureAnswer:
        """Make or change the load balancer to be as desired, and record that.

        Raises:
            CloudError: The Service asks for something impossible, or AWS refuses.
        """
        desired, before, doubtful = await self._prepare(lb, options)
        tags = before.balancer.tags if before.balancer is not None else {}
        record = Record(tags.get(MARK_FINGERPRINT, ""), partial(self._mark, desired.name))
        observed = await converge(
            before,
            lambda observed: plan.plan(desired, observed),
            partial(take, self._api, self._own_groups),
            before=record.clear,
        )
        balancer = observed.balancer
        if balancer is None:
            raise CloudError(f"{desired.name} was deleted while it was being made")
        groups = plan.groups_of(desired, observed)
        targets, rejected = targets_of(lb.hosts)
        refused = dict(observed.refused)
        if self._hosts is not None:
            refused |= await self._hosts.allow(_access(desired, observed), record.clear)
        ingress = (LoadBalancerIngress(hostname=balancer.dns_name),)
        if _idle(observed, groups) is not None:
            await record.clear()
        former = self._former.get(lb.ref.uid, set()) - set(groups) | _former(before, groups)
        self._former[lb.ref.uid] = former
        if left := await self._let_go(desired.name, observed, former, keep=groups):
            return Pending(_ASK_AGAIN, left, ingress)
        del self._former[lb.ref.uid]
        if doubtful:
            ids = ", ".join(sorted(doubtful))
            reason = f"subnets which the load balancer has are looked for once more: {ids}"
            return Pending(self._confirm, reason, ingress)
        refused_nodes = {node: refused[id_] for node, id_ in targets.items() if id_ in refused}
        answer = Ensured(ingress, {**rejected, **refused_nodes})
        if not answer.rejected:
            # Hosts that were rejected are to be tried again with each look at all Services.
            await record.keep(made_from(ingress))
        return answer

    async def preview(self, lb: LoadBalancer, options: Options) -> Sequence[PartChange]:
        """Return what `ensure` would change.

        Raises:
            CloudError: The Service asks for something impossible, or AWS does not answer.
        """
        desired, before, _ = await self._prepare(lb, options, at_once=True)
        lines, expected = preview_plan(before, lambda observed: plan.plan(desired, observed))
        found = list(lines)
        groups = plan.groups_of(desired, expected)
        if self._hosts is not None:
            found += await self._hosts.preview(_access(desired, expected))
            given = _given(_former(before, groups), expected)
            if former := given - (await users_of_groups(self._api, desired.name)).keys():
                found += rules_part_changes(await self._hosts.naming(former, HOST_RULE))
        idle = _idle(expected, groups)
        found += await self._own_groups.foresee_let_go(idle, self._hosts, desired.name)
        return found

    async def _prepare(
        self, lb: LoadBalancer, options: Options, *, at_once: bool = False
    ) -> tuple[Desired, Observed, frozenset[str]]:
        """Return the desired and the observed state, and subnets that may have to go.

        A subnet that is found no more, or without the way to the internet, may be there: so it goes
        only if a second look shows the same, unless `at_once` is set.

        Raises:
            CloudError: The Service asks for something impossible, or AWS does not answer.
        """
        before = await self._observe(
            lb.ref, with_policies=options.proxy_protocol or bool(options.tls_policy)
        )
        is_internal, uid = options.internal, lb.ref.uid
        there = before.balancer.subnets if before.balancer is not None else frozenset()
        choose = partial(self._subnets.choose, lb.ref, internal=is_internal, used=there)
        subnets = await choose(options.subnets)
        doubtful: frozenset[str] = frozenset()
        if not (options.subnets or at_once):
            lacking = there - {one.id for one in subnets}
            sure = {
                id_ for id_ in there if self._lacking.is_sure(f"{uid}/{id_}", is_so=id_ in lacking)
            }
            if sure:
                subnets = await choose((), anew=True)
            doubtful = there - sure - {one.id for one in subnets}
        desired = desired_of(lb, options, self._place, self._settings, subnets)
        if doubtful:
            zones = {**dict.fromkeys(doubtful, ""), **desired.subnets}
            desired = msgspec.structs.replace(desired, subnets=zones)
        plan.check(desired, before)
        await self._named.check(
            lb.ref,
            options,
            used=_used(before.balancer),
            subnets=subnets,
            is_new=before.balancer is None,
        )
        return desired, before, doubtful

    async def _mark(self, name: str, made_from: str) -> None:
        """Write the record as a tag; an empty one clears it, which needs no further right."""
        tags = pairs_of({MARK_FINGERPRINT: made_from})
        await self._api.call("elb", "AddTags", LoadBalancerNames=[name], Tags=tags)

    async def delete(self, ref: LoadBalancerRef) -> Done | Pending:
        """Delete a load balancer, its security group, and the rules in the groups of hosts.

        Raises:
            CloudError: AWS refuses.
        """
        observed = await self._observe(ref, with_policies=False)
        balancer = observed.balancer
        former = self._former.pop(ref.uid, set())
        if balancer is not None:
            # Given groups are known from the load balancer alone: their rules go before it.
            given = {*balancer.groups, *former}
            if left := await self._forget_given(given, observed, beside=balancer.name):
                self._former[ref.uid] = former
                return Pending(self._confirm, left)
            await self._api.call("elb", "DeleteLoadBalancer", LoadBalancerName=balancer.name)
        if left := await self._let_go(ref.name, observed, (), keep=()):
            return Pending(_ASK_AGAIN, left)
        return Done(found=balancer is not None or observed.group is not None)

    async def _observe(self, ref: LoadBalancerRef, *, with_policies: bool) -> Observed:
        """Read everything that AWS has of a Service's load balancer.

        Raises:
            CloudError: AWS does not answer, or the load balancer is somebody else's.
        """
        balancer, group = await asyncio.gather(
            observe(self._api, ref.name, with_policies=with_policies),
            self._own_groups.find(plan.group_name(ref.name), ref),
        )
        if balancer is not None and not self._place.made_for(ref, balancer.tags):
            raise CloudError(
                f"the load balancer {ref.name} has tags of another owner: delete it, or "
                "correct its tags"
            )
        return Observed(balancer, group)

    async def _let_go(
        self, name: str, observed: Observed, former: Collection[str], *, keep: Collection[str]
    ) -> str:
        """Delete the own group of a load balancer unless it is kept; return the reason to wait.

        `former` are groups that the load balancer had.
        """
        if left := await self._forget_given(former, observed):
            return left
        idle = _idle(observed, keep)
        return await self._own_groups.let_go(idle, self._hosts, name)

    async def _forget_given(
        self, groups: Collection[str], observed: Observed, beside: str = ""
    ) -> str:
        """Revoke rules made for given groups, but for those that others use, too.

        Returns:
            The reason to wait, or "".
        """
        given = _given(groups, observed)
        if not given or self._hosts is None:
            return ""
        used = partial(users_of_groups, self._api, beside)
        left = await self._hosts.forget_given(given, used, beside)
        ids = ", ".join(sorted(left))
        return f"whether others use security groups is looked up once more: {ids}" if left else ""


def _used(balancer: Balancer | None) -> frozenset[str]:
    """Return what a load balancer has of all that annotations can name."""
    if balancer is None:
        return frozenset()
    certificates = (listener.certificate for listener in balancer.listeners)
    bucket = balancer.attributes.get("AccessLog", {}).get("S3BucketName", "")
    return frozenset((*balancer.groups, *balancer.subnets, *certificates, bucket))


def _access(desired: Desired, observed: Observed) -> Access:
    """Return which rules the load balancer needs in the groups of its hosts."""
    return classic_access(
        plan.groups_of(desired, observed)[0],
        desired.targets - observed.refused.keys(),
        is_own=desired.own is not None,
    )


def _idle(observed: Observed, keep: Collection[str]) -> Group | None:
    """Return the group that was made for the load balancer, unless it is to be kept."""
    group = observed.group
    return group if group is not None and group.id not in keep else None


def _former(before: Observed, groups: Collection[str]) -> set[str]:
    """Return the groups that the load balancer had and has no more."""
    return set(before.balancer.groups) - set(groups) if before.balancer is not None else set()


def _given(groups: Collection[str], observed: Observed) -> set[str]:
    """Return the groups that were not made for the load balancer."""
    return set(groups) - ({observed.group.id} if observed.group is not None else set())


def desired_of(
    lb: LoadBalancer,
    options: Options,
    place: Place,
    settings: "Global",
    subnets: Sequence[Subnet],
) -> Desired:
    """Compute the desired load balancer, as AWS should have it. Pure."""
    ref = lb.ref
    listeners = classic_listeners(lb, options)
    given = options.security_groups or tuple(filter(None, (settings.elb_security_group,)))
    ranges = [one for family in lb.source_ranges.values() for one in family]
    own = DesiredGroup(
        name=plan.group_name(ref.name),
        description=f"Clients of the load balancer {ref.name} of the Service {ref.key}",
        rules=rules.of_classic(listeners, ranges),
    )
    tags = {**options.tags, TAG_SERVICE: ref.key, **lb.marks}
    return Desired(
        name=ref.name,
        tags=place.tags.new(tags),
        scheme=options.scheme,
        subnets={subnet.id: subnet.zone for subnet in subnets},
        own=None if given else own,
        groups=tuple(dict.fromkeys((*given, *options.extra_security_groups))),
        listeners=listeners,
        health=classic_health_check(lb, options, settings),
        targets=frozenset(targets_of(lb.hosts)[0].values()),
        attributes=_attributes(options),
        proxy_protocol=options.proxy_protocol,
        tls_policy=options.tls_policy,
    )


def _attributes(options: Options) -> Attributes:
    log: dict[str, Any] = {"Enabled": False}
    if options.access_log is not None:
        log = {
            "Enabled": True,
            "S3BucketName": options.access_log.bucket,
            "S3BucketPrefix": options.access_log.prefix,
            "EmitInterval": options.access_log.interval,
        }
    draining: dict[str, Any] = {"Enabled": options.draining is not None}
    if options.draining is not None:
        draining["Timeout"] = options.draining
    return {
        "AccessLog": log,
        "ConnectionDraining": draining,
        "ConnectionSettings": {"IdleTimeout": options.idle_timeout},
        "CrossZoneLoadBalancing": {"Enabled": options.cross_zone},
    }
