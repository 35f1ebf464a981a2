"""The capability `LoadBalancers` of the provider `baidu`.

A load balancer is one of BLB with a listener for each port, and a public address (EIP) bound to it
unless it is internal. Making and binding take a while: until then the answer is `Pending`.
"""

import functools
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from proreus.cloudprovider.errors import CloudError, InvalidRequest, RetryAfter
from proreus.cloudprovider.first_come import FirstCome
from proreus.cloudprovider.identity import ClusterIdentity, OwnedObject
from proreus.cloudprovider.listers import Lister
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    Done,
    EnsureAnswer,
    Ensured,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    PartChange,
    nodes_with_pods,
)
from proreus.cloudprovider.lookups import Recent, check_nodes_shown
from proreus.cloudprovider.mark_forms import owned_object
from proreus.cloudprovider.ownership import inside_refusal
from proreus.cloudprovider.recorded import Record, desired_digest
from proreus.cloudprovider.routes import pods_by_cidr
from proreus.cloudprovider.steps import converge, preview_plan, take_round
from proreus.cloudprovider.waits import Missed, Twice, Working, has_left, showing_only
from proreus.kube.objects import IP_MODE_PROXY, KubeObject, LoadBalancerIngress, Service
from proreus.providers.baidu.api import Api
from proreus.providers.baidu.balancing import documents, owners, steps
from proreus.providers.baidu.balancing.annotations import (
    ADDED_EIP,
    ADDED_ID,
    PREFIX,
    Options,
    given_balancer,
    read_options,
)
from proreus.providers.baidu.balancing.desired import (
    Place,
    check,
    check_bound,
    check_eip,
    check_given,
    check_private,
    check_subnet,
    check_sure,
    desired_balancer,
    is_in_use,
    placed,
    subnet_for,
)
from proreus.providers.baidu.balancing.parts import Balancer, Desired, Observed
from proreus.providers.baidu.balancing.plan import deletion, plan
from proreus.providers.baidu.balancing.reading import Case, Reader, Wish
from proreus.providers.baidu.balancing.work import Work
from proreus.providers.baidu.config import BaiduConfig
from proreus.providers.baidu.instances import Machines
from proreus.providers.baidu.names import parsed


class _Case(msgspec.Struct, frozen=True):
    """A Service: its desired and observed load balancer, and where its hosts are."""

    desired: Desired
    observed: Observed
    place: Place
    doubt: str = ""
    """The load balancer that may serve something else, which a second look must not show either."""
    is_unmarked: bool = False
    """Whether the load balancer is one that the Service names and that has no mark of it yet."""


class BaiduLoadBalancers:
    """The verbs of `LoadBalancers` for one Service at a time."""

    def __init__(
        self,
        api: Api,
        machines: Machines,
        config: BaiduConfig,
        nodes: Lister[KubeObject],
        services: Lister[KubeObject],
        *,
        confirm: float,
    ) -> None:
        """Keep the client of the cloud, machines, the cloud-config, all nodes and all Services.

        `confirm` is the provider's.
        """
        self._machines = machines
        self._nodes = nodes
        self._services = services
        self._config = config
        self._inputs = (config.cluster_id, config.subnet_id, config.vpc_id, config.tenants)
        self._reader = Reader(api, config, services)
        self._hosts = Recent(machines.by_id)
        self._work = Work(api, self._hosts)
        self._first = FirstCome(api.context.uptime)
        self._missed = Missed(confirm)
        self._left = Missed(confirm)
        self._unused = Twice(confirm)
        self._deleted: set[str] = set()

    def host_policy(self, service: Service) -> HostPolicy:
        """Choose the nodes with ready pods where only these may get traffic; IPv4 only."""
        return nodes_with_pods(service, "IPv4")

    async def ensure(self, lb: LoadBalancer) -> EnsureAnswer:
        """Make or change the load balancer; record the digest after the last change."""
        options = read_options(lb.service.metadata.annotations)
        try:
            return await self._ensure(lb, options)
        except Working as working:
            return self._work.waits.answer(lb.ref.uid, working)

    async def preview(self, lb: LoadBalancer) -> Sequence[PartChange]:
        """Return what `ensure` would change."""
        case = await self._case(lb, read_options(lb.service.metadata.annotations))
        lines, _ = preview_plan(case.observed, functools.partial(plan, case.desired))
        return lines

    def fingerprint(self, lb: LoadBalancer) -> str:
        """Return the fingerprint that `list_owned` shows if all is as desired."""
        options = read_options(lb.service.metadata.annotations)
        return desired_digest(lb, options, self._inputs)

    async def delete(self, ref: LoadBalancerRef) -> DeleteAnswer:
        """Delete what was made for a Service."""
        try:
            return await self._delete(ref)
        except Working as working:
            return self._work.waits.answer(ref.uid, working)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """List load balancers and addresses with the cluster's marks."""
        found = []
        for one in map(documents.balancer, await self._reader.balancers()):
            if one.mark.cluster_uid != cluster.uid:
                continue
            made_from, _, shown = one.mark.made.partition(".")
            is_valid = bool(shown) and shown == documents.visible(one)
            found.append(
                OwnedObject(
                    "load balancer",
                    one.id,
                    service=one.mark.service,
                    service_uid=one.mark.service_uid,
                    fingerprint=made_from if is_valid else "",
                    recorded=is_valid,
                )
            )
        for address in await self._reader.eips():
            of = owners.tagged_owners(address)
            if [one.cluster_uid for one in of] == [cluster.uid]:
                owned = owned_object("public address", str(address["eip"]), owners.tags_of(address))
                found.append(replace(owned, fingerprint="", recorded=False))
        return found

    async def _ensure(self, lb: LoadBalancer, options: Options) -> EnsureAnswer:
        uid = lb.ref.uid
        async with self._left.doubting(lb.ref, self._check_account):
            case = await self._case(lb, options)
        self._left.check(lb.ref, is_there=True)
        self._work.check_shown(uid, case.observed)
        is_there = case.observed.balancer is not None or bool(case.observed.spare)
        self._missed.check(lb.ref, is_there=is_there)
        if case.doubt:
            raise Working(f"whether the {case.doubt} serves something else is looked up once more")
        record = self._record(uid, case.observed.balancer)
        next_steps = functools.partial(plan, case.desired)
        take = functools.partial(self._work.take, uid, bare=case.desired.bare)
        if case.is_unmarked:
            await self._claim(lb, options)
            raise Working("whose mark the load balancer has is read before it is changed")
        with showing_only(lb.ref, case.observed.held):
            observed = await converge(case.observed, next_steps, take, before=record.clear)
        balancer = observed.balancer
        if balancer is None:
            raise CloudError("the load balancer was deleted meanwhile")
        ids = {host.node: parsed(host.provider_id) or "" for host in lb.hosts}
        refused = {
            node: observed.refused[one] for node, one in ids.items() if one in observed.refused
        }
        answer = _answer(options, balancer, observed, {**case.place.rejected, **refused})
        with showing_only(lb.ref, observed.held):
            self._check_inside(lb.ref, balancer, answer.ingress)
        made_from = desired_digest(lb, options, self._inputs, ingress=answer.ingress)
        shown = documents.visible(_as_listed(balancer, observed))
        await record.keep(f"{made_from}.{shown}", functools.partial(self._write, uid, balancer))
        self._work.done(uid)
        return answer

    def _check_inside(
        self, ref: LoadBalancerRef, balancer: Balancer, ingress: Sequence[LoadBalancerIngress]
    ) -> None:
        """Refuse a private address that others have inside the cluster.

        Raises:
            InvalidRequest: Another one has it; names the remedy.
        """
        pods = pods_by_cidr(self._nodes.all())
        services, tenants = tuple(self._services.all()), self._config.tenants
        for ip in (point.ip for point in ingress if point.ip == balancer.address):
            if why := inside_refusal(ip, ref, tenants, services, pods):
                raise InvalidRequest(
                    f"{ip}, which the {balancer.title} has, cannot be had: {why}: name a subnet"
                    " with addresses that nothing has inside the cluster, and make the Service anew"
                )

    async def _claim(self, lb: LoadBalancer, options: Options) -> None:
        """Mark a load balancer that a Service names, unless another one has done so meanwhile.

        A request may take its time: the mark of one that came second would replace the first one's,
        which has begun to work by that.

        Raises:
            Working: Another Service is about to mark it.
            CloudError: It is another's by now; or the cloud refuses, or does not answer.
        """
        take = functools.partial(self._work.take, lb.ref.uid)
        try:
            with self._first.begin(lb.ref.uid, options.given):
                case = await self._case(lb, options)
                if case.is_unmarked and not case.doubt:
                    await take_round(case.observed, plan(case.desired, case.observed), take)
        except RetryAfter as error:
            raise Working(str(error)) from error

    async def _check_account(self) -> None:
        await check_nodes_shown(self._nodes.all(), parsed, self._machines.by_id)

    async def _case(self, lb: LoadBalancer, options: Options) -> _Case:
        check(lb, options)
        wish = Wish(options.given, "" if options.internal else lb.requested_address)
        case = await self._reader.observe(lb.ref, wish, self._work.made(lb.ref.uid))
        try:
            return await self._judged(lb, options, case)
        except InvalidRequest as error:
            is_left = has_left(lb.ref, case.observed.held)
            raise error.disowning() if is_left else error from None

    async def _judged(self, lb: LoadBalancer, options: Options, case: Case) -> _Case:
        """Return what is desired beside what is observed, if the cloud can have it."""
        uid, balancer = lb.ref.uid, case.observed.balancer
        ids = {parsed(host.provider_id) for host in lb.hosts}
        machines = await self._hosts.find([id_ for id_ in ids if id_])
        vpc = balancer.vpc if balancer is not None else self._config.vpc_id
        place = placed(lb, machines, vpc)
        subnet = await self._subnet(options, place) if balancer is None else ""
        desired = desired_balancer(lb, options, self._config, place, subnet)
        doubt = ""
        if balancer is not None:
            nodes = placed(lb, machines, self._config.vpc_id)
            home = nodes.vpc if nodes.is_sure else ""
            is_new = options.given and not (
                case.is_proven or is_in_use(balancer, desired, home, ids)
            )
            if is_new:
                check_sure(nodes)
            found = check_given(balancer, desired, home) if is_new else ""
            is_sure = self._unused.is_sure(f"{uid}/{balancer.id}", is_so=bool(is_new and not found))
            if found:
                # One that serves something else holds no address for the Service.
                rest = replace(case.observed, balancer=None)
                error = InvalidRequest(found)
                raise error.disowning() if has_left(lb.ref, rest.held) else error
            if options.given:
                check_private(balancer, desired, nodes)
            doubt = balancer.title if is_new and not is_sure else ""
            bound = case.observed.bound_to(balancer.id)
            check_eip(bound, options)
            check_bound(balancer, bound, desired)
        is_unmarked = balancer is not None and bool(options.given) and not case.is_proven
        return _Case(desired, case.observed, place, doubt, is_unmarked)

    async def _subnet(self, options: Options, place: Place) -> str:
        if not place.vpc:
            raise CloudError(
                "no VPC is known for the load balancer: no node of the Service has a machine, or"
                " their machines are in several: give VpcId in the cloud-config"
            )
        check_sure(place)
        subnet = subnet_for(options, self._config, place)
        is_asked = bool(options.subnet or self._config.subnet_id)
        subnets = await self._reader.subnets(place.vpc)
        return check_subnet(subnet, subnets, place.vpc, is_asked=is_asked)

    def _record(self, uid: str, balancer: Balancer | None) -> Record:
        """Return the record in the description of the observed load balancer."""

        async def write(value: str) -> None:
            if balancer is not None:
                await self._write(uid, balancer, value)

        return Record(balancer.mark.made if balancer is not None else "", write)

    async def _write(self, uid: str, balancer: Balancer, value: str) -> None:
        mark = replace(balancer.mark, made=value)
        await self._work.send(uid, steps.renaming(balancer, balancer.name, mark))

    async def _delete(self, ref: LoadBalancerRef) -> DeleteAnswer:
        uid = ref.uid
        observed = await self._reader.observe_rest(ref, self._work.made(uid))
        self._work.check_shown(uid, observed)
        spec = ref.service.spec if ref.service is not None else None
        requested = spec.load_balancer_ip if spec is not None else ""
        next_steps = functools.partial(
            _deletion,
            ref,
            requested=requested,
            given=_given(ref.service),
            is_kept=_is_kept(ref.service),
        )
        if next_steps(observed):
            self._deleted.add(uid)
        elif ref.last_ingress and uid not in self._deleted:
            await self._check_account()
        await converge(observed, next_steps, functools.partial(self._work.take, uid))
        was_there = uid in self._deleted
        self._deleted.discard(uid)
        self._work.done(uid)
        return Done(found=was_there)


def _deletion(
    ref: LoadBalancerRef, observed: Observed, *, requested: str, given: str, is_kept: bool
) -> Sequence[steps.Step]:
    return deletion(ref, observed, requested, given=given, is_kept=is_kept)


def _given(service: Service | None) -> str:
    """Return the load balancer that annotations name, or "": it is spared by a deletion."""
    return "" if service is None else given_balancer(service.metadata.annotations)


def _is_kept(service: Service | None) -> bool:
    """Tell whether an annotation says that the load balancer is spared by a deletion."""
    if service is None:
        return False
    return service.metadata.annotations.get(f"{PREFIX}load-balancer-reserve-lb") == "true"


def _as_listed(balancer: Balancer, observed: Observed) -> Balancer:
    """Return a load balancer as the next list shows it."""
    bound = observed.bound_to(balancer.id)
    return replace(balancer, public_ip=bound.ip if bound is not None else "")


def _answer(
    options: Options, balancer: Balancer, observed: Observed, rejected: Mapping[str, str]
) -> Ensured:
    bound = observed.bound_to(balancer.id)
    ip = balancer.address if options.internal or bound is None else bound.ip
    point = LoadBalancerIngress(ip=ip, ip_mode=IP_MODE_PROXY if options.http else None)
    written = {}
    if not balancer.mark.is_given:
        written[ADDED_ID] = balancer.id
    if bound is not None and bound.is_ours and not options.internal:
        written[ADDED_EIP] = bound.ip
    return Ensured((point,), rejected, written)
