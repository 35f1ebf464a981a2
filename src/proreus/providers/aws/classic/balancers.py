"""Classic load balancers of Services: wish, observe, plan, apply."""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

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
from proreus.cloudprovider.steps import converge, foresee
from proreus.kube.objects import LoadBalancerIngress
from proreus.providers.aws import rules
from proreus.providers.aws.annotations import Asked
from proreus.providers.aws.classic import plan
from proreus.providers.aws.classic.apply import take
from proreus.providers.aws.classic.observe import observe
from proreus.providers.aws.classic.parts import Actual, Attributes, Wish
from proreus.providers.aws.classic.preview import pretend, told
from proreus.providers.aws.groups import Access, HostGroups, classic_access, told_changes
from proreus.providers.aws.identity import TAG_SERVICE, Place, pairs_of
from proreus.providers.aws.listeners import classic_health_check, classic_listeners
from proreus.providers.aws.names import targets_of
from proreus.providers.aws.own_groups import Group, GroupWish, OwnGroups
from proreus.providers.aws.rules import HOST_RULE
from proreus.providers.aws.subnets import Subnet, Subnets
from proreus.providers.aws.tenants import Named

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api
    from proreus.providers.aws.config import Global

_ASK_AGAIN: Final = 5.0


class ClassicBalancers:
    """Makes, changes and deletes classic load balancers."""

    def __init__(
        self,
        api: "Api",
        place: Place,
        settings: "Global",
        *,
        subnets: Subnets,
        hosts: HostGroups | None,
        named: Named,
    ) -> None:
        """Speak through `api`; `hosts` is None to leave the groups of hosts alone."""
        self._api = api
        self._place = place
        self._settings = settings
        self._subnets = subnets
        self._hosts = hosts
        self._named = named
        self._own_groups = OwnGroups(api, place.vpc)

    async def ensure(self, wanted: LoadBalancer, asked: Asked, made_from: MadeFrom) -> EnsureAnswer:
        """Bring it to what is wished, and record that.

        Raises:
            CloudError: It cannot be, or AWS refuses.
        """
        wish, before = await self._prepare(wanted, asked)
        tags = before.balancer.tags if before.balancer is not None else {}
        record = Record(tags.get(MARK_FINGERPRINT, ""), partial(self._mark, wish.name))
        actual = await converge(
            before,
            lambda now: plan.plan(wish, now),
            partial(take, self._api, self._own_groups, wish),
            before=record.clear,
        )
        balancer = actual.balancer
        if balancer is None:
            raise CloudError(f"{wish.name} is gone again")
        groups = plan.groups_of(wish, actual)
        targets, rejected = targets_of(wanted.hosts)
        refused = dict(actual.refused)
        if self._hosts is not None:
            refused |= await self._hosts.allow(_access(wish, actual), record.clear)
        ingress = (LoadBalancerIngress(hostname=balancer.dns_name),)
        if _idle(actual, groups) is not None:
            await record.clear()
        if left := await self._let_go(actual, _former(before, groups), keep=groups):
            return Pending(_ASK_AGAIN, left, ingress)
        refused_nodes = {node: refused[id_] for node, id_ in targets.items() if id_ in refused}
        answer = Ensured(ingress, {**rejected, **refused_nodes})
        if not answer.rejected:
            # Hosts that were rejected are to be tried again with each look at all Services.
            await record.keep(made_from(ingress))
        return answer

    async def preview(self, wanted: LoadBalancer, asked: Asked) -> Sequence[PartChange]:
        """What `ensure` would change.

        Raises:
            CloudError: It cannot be, or AWS does not answer.
        """
        wish, before = await self._prepare(wanted, asked)
        steps, then = foresee(
            before,
            lambda now: plan.plan(wish, now),
            lambda now, step: pretend(now, step, wish),
        )
        found = [change for step in steps for change in told(step, wish)]
        groups = plan.groups_of(wish, then)
        if self._hosts is not None:
            found += told_changes((await self._hosts.foresee(_access(wish, then)))[0])
            if former := _given(_former(before, groups), then) - await self._used_groups(wish.name):
                found += told_changes(await self._hosts.naming(former, HOST_RULE))
        found += await self._own_groups.foresee_let_go(_idle(then, groups), self._hosts)
        return found

    async def _prepare(self, wanted: LoadBalancer, asked: Asked) -> tuple[Wish, Actual]:
        """What there is to be, and what there is.

        Raises:
            CloudError: It cannot be, or AWS does not answer.
        """
        subnets = await self._subnets.choose(asked.subnets, internal=asked.internal)
        wish = wish_of(wanted, asked, self._place, self._settings, subnets)
        before = await self._observe(
            wanted.ref, with_policies=wish.proxy_protocol or bool(wish.tls_policy)
        )
        plan.check(wish, before)
        have = before.balancer.groups if before.balancer is not None else ()
        await self._named.check(wanted.ref, asked, groups=have, is_new=before.balancer is None)
        return wish, before

    async def _mark(self, name: str, made_from: str) -> None:
        """Write the record; no record is an empty one, which needs no right to take tags away."""
        tags = pairs_of({MARK_FINGERPRINT: made_from})
        await self._api.call("elb", "AddTags", LoadBalancerNames=[name], Tags=tags)

    async def delete(self, gone: LoadBalancerRef) -> Done | Pending:
        """Delete it, its security group, and the rules in the groups of hosts.

        Raises:
            CloudError: AWS refuses.
        """
        actual = await self._observe(gone, with_policies=False)
        balancer = actual.balancer
        if balancer is not None:
            # Given groups are known from the load balancer alone: their rules go before it.
            await self._forget_given(balancer.groups, actual, beside=balancer.name)
            await self._api.call("elb", "DeleteLoadBalancer", LoadBalancerName=balancer.name)
        if left := await self._let_go(actual, (), keep=()):
            return Pending(_ASK_AGAIN, left)
        return Done(found=balancer is not None or actual.group is not None)

    async def _observe(self, ref: LoadBalancerRef, *, with_policies: bool) -> Actual:
        """Everything of the Service's.

        Raises:
            CloudError: AWS does not answer, or the load balancer is somebody else's.
        """
        balancer, group = await asyncio.gather(
            observe(self._api, ref.name, with_policies=with_policies),
            self._own_groups.find(group_name(ref.name), ref),
        )
        if balancer is not None and not self._place.made_for(ref, balancer.tags):
            raise CloudError(f"the load balancer {ref.name} has tags of another owner: look at it")
        return Actual(balancer, group)

    async def _let_go(
        self, actual: Actual, former: Collection[str], *, keep: Collection[str]
    ) -> str:
        """Delete the own group unless it is to be kept; what there is to wait for, or "".

        `former` are groups that the load balancer had.
        """
        await self._forget_given(former, actual)
        return await self._own_groups.let_go(_idle(actual, keep), self._hosts)

    async def _forget_given(
        self, groups: Collection[str], actual: Actual, beside: str = ""
    ) -> None:
        """Take away the rules made for given groups, but for those that others use, too."""
        given = _given(groups, actual)
        if given and self._hosts is not None:
            await self._hosts.forget_given(given, partial(self._used_groups, beside))

    async def _used_groups(self, beside: str) -> set[str]:
        """The security groups of all classic load balancers but for one."""
        found = await self._api.pages("elb", "DescribeLoadBalancers", "LoadBalancerDescriptions")
        return {
            group
            for one in found
            if one["LoadBalancerName"] != beside
            for group in one.get("SecurityGroups") or ()
        }


def _access(wish: Wish, actual: Actual) -> Access:
    """What it needs of the groups of its hosts."""
    return classic_access(
        plan.groups_of(wish, actual)[0],
        wish.targets - actual.refused.keys(),
        is_own=wish.own is not None,
    )


def _idle(actual: Actual, keep: Collection[str]) -> Group | None:
    """The group that was made for it, unless it is to be kept."""
    group = actual.group
    return group if group is not None and group.id not in keep else None


def _former(before: Actual, groups: Collection[str]) -> set[str]:
    """The groups that it had and has no more."""
    return set(before.balancer.groups) - set(groups) if before.balancer is not None else set()


def _given(groups: Collection[str], actual: Actual) -> set[str]:
    """Those that were not made for it."""
    return set(groups) - ({actual.group.id} if actual.group is not None else set())


def group_name(name: str) -> str:
    """The name of the security group of a load balancer: the official one."""
    return f"k8s-elb-{name}"


def wish_of(
    wanted: LoadBalancer,
    asked: Asked,
    place: Place,
    settings: "Global",
    subnets: Sequence[Subnet],
) -> Wish:
    """What there is to be. Pure."""
    ref = wanted.ref
    listeners = classic_listeners(wanted, asked)
    given = asked.security_groups or tuple(filter(None, (settings.elb_security_group,)))
    ranges = [one for family in wanted.source_ranges.values() for one in family]
    own = GroupWish(
        name=group_name(ref.name),
        description=f"Clients of the load balancer {ref.name} of the Service {ref.key}",
        rules=rules.of_classic(listeners, ranges),
    )
    tags = {**asked.tags, TAG_SERVICE: ref.key, **wanted.marks}
    return Wish(
        name=ref.name,
        tags={one["Key"]: one["Value"] for one in place.tags.new(tags)},
        scheme=asked.scheme,
        subnets={one.id: one.zone for one in subnets},
        own=None if given else own,
        groups=tuple(dict.fromkeys((*given, *asked.extra_security_groups))),
        listeners=listeners,
        health=classic_health_check(wanted, asked, settings),
        targets=frozenset(targets_of(wanted.hosts)[0].values()),
        attributes=_attributes(asked),
        proxy_protocol=asked.proxy_protocol,
        tls_policy=asked.tls_policy,
    )


def _attributes(asked: Asked) -> Attributes:
    log: dict[str, Any] = {"Enabled": False}
    if asked.access_log is not None:
        log = {
            "Enabled": True,
            "S3BucketName": asked.access_log.bucket,
            "S3BucketPrefix": asked.access_log.prefix,
            "EmitInterval": asked.access_log.interval,
        }
    draining: dict[str, Any] = {"Enabled": asked.draining is not None}
    if asked.draining is not None:
        draining["Timeout"] = asked.draining
    return {
        "AccessLog": log,
        "ConnectionDraining": draining,
        "ConnectionSettings": {"IdleTimeout": asked.idle_timeout},
        "CrossZoneLoadBalancing": {"Enabled": asked.cross_zone},
    }
