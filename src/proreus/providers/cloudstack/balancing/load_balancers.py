"""The capability `LoadBalancers` of the provider `cloudstack`.

A load balancer is a public address with a rule for each port, and what lets clients reach them: the
address' firewall, or the access list of a VPC's tier. Commands are jobs: what is not done within a
moment is answered with `Pending`.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import MARK_FINGERPRINT, ClusterIdentity, OwnedObject
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
from proreus.cloudprovider.names import default_load_balancer_name
from proreus.cloudprovider.ports import Key, Ports
from proreus.cloudprovider.recorded import Record, desired_digest
from proreus.cloudprovider.steps import converge
from proreus.cloudprovider.waits import Missed, Working, showing_only
from proreus.kube.objects import (
    IP_MODE_PROXY,
    KubeObject,
    LoadBalancerIngress,
    Service,
    vip_addresses,
)
from proreus.providers.cloudstack.api import Api, Described
from proreus.providers.cloudstack.balancing import documents, owners
from proreus.providers.cloudstack.balancing.annotations import ASSOCIATED, Options, read_options
from proreus.providers.cloudstack.balancing.claims import Claims
from proreus.providers.cloudstack.balancing.commands import Commands
from proreus.providers.cloudstack.balancing.desired import (
    Placed,
    check,
    check_move,
    check_network,
    check_place,
    desired_balancer,
    placed,
)
from proreus.providers.cloudstack.balancing.elsewhere import check_elsewhere
from proreus.providers.cloudstack.balancing.parts import Address, Desired, Observed, Rule
from proreus.providers.cloudstack.balancing.plan import deletion, plan
from proreus.providers.cloudstack.balancing.preview import after, part_changes
from proreus.providers.cloudstack.balancing.reading import Reader
from proreus.providers.cloudstack.config import CloudStackConfig
from proreus.providers.cloudstack.instances import Machines
from proreus.providers.cloudstack.machines import id_of
from proreus.providers.cloudstack.names import parsed
from proreus.providers.cloudstack.works import Works

_MOST_STEPS = 1000
"""More than the rules that an address has room for."""


class _Case(msgspec.Struct, frozen=True):
    """A Service: its desired and its observed load balancer.

    Attributes:
        desired: The desired load balancer.
        observed: The observed load balancer.
        place: Where its hosts are.
        described: The Service's rules, as CloudStack describes them.
    """

    desired: Desired
    observed: Observed
    place: Placed
    described: Sequence[Described]


class _Record:
    """The record of what a Service's rules were made from, which is a tag on one of them."""

    def __init__(
        self, ref: LoadBalancerRef, described: Sequence[Described], commands: Commands
    ) -> None:
        self.kept = Record(owners.record_of(described), self._write)
        self._ref = ref
        self._tagged = [id_of(one) for one in described if MARK_FINGERPRINT in owners.tags_of(one)]
        self._commands = commands

    async def remove(self) -> None:
        """Take the tag from all rules that have it."""
        if self._tagged:
            keys = (MARK_FINGERPRINT,)
            await self._commands.untag(self._ref, "LoadBalancer", self._tagged, keys)
            self._tagged = []

    async def _write(self, _: str) -> None:
        await self.remove()


class CloudStackLoadBalancers:
    """The verbs of `LoadBalancers` for one Service at a time."""

    def __init__(
        self,
        api: Api,
        machines: Machines,
        config: CloudStackConfig,
        nodes: Lister[KubeObject],
        services: Lister[KubeObject],
        *,
        confirm: float,
    ) -> None:
        """Keep the client of CloudStack, machines, the config, all nodes and all Services.

        `confirm` is the provider's.
        """
        self._api = api
        self._machines = machines
        self._nodes = nodes
        self._ports = Ports(services)
        self._inputs = (config.tenants,)
        claims = Claims(api, services)
        self._reader = Reader(api, config.tenants, claims, services)
        self._hosts = Recent(machines.by_id)
        self._works = Works(api)
        self._missed = Missed(confirm)
        self._commands = Commands(api, self._works, self._reader, claims, self._hosts)
        self._deleted: set[str] = set()

    def host_policy(self, service: Service) -> HostPolicy:
        """Choose the nodes with ready pods where only these may get traffic; IPv4 only."""
        return nodes_with_pods(service, "IPv4")

    async def ensure(self, lb: LoadBalancer) -> EnsureAnswer:
        """Make or change the load balancer; record the digest after the last change."""
        options = read_options(lb.service.metadata.annotations)
        try:
            await self._commands.settle(lb.ref, is_deletion=False)
            return await self._ensure(lb, options)
        except Working as working:
            return self._works.waits.answer(lb.ref.uid, working)

    async def preview(self, lb: LoadBalancer) -> Sequence[PartChange]:
        """Return what `ensure` would change."""
        case = await self._case(lb, read_options(lb.service.metadata.annotations))
        found: list[PartChange] = []
        observed = case.observed
        for _ in range(_MOST_STEPS):
            steps = plan(case.desired, observed)
            if not steps:
                break
            for step in steps:
                found += part_changes(step, observed)
                observed = after(observed, step)
        return found

    def fingerprint(self, lb: LoadBalancer) -> str:
        """Return the fingerprint that `list_owned` shows if all is as desired."""
        options = read_options(lb.service.metadata.annotations)
        return desired_digest(lb, options, self._inputs)

    async def delete(self, ref: LoadBalancerRef) -> DeleteAnswer:
        """Delete what was made for a Service."""
        try:
            await self._commands.settle(ref, is_deletion=True)
            return await self._delete(ref)
        except Working as working:
            return self._works.waits.answer(ref.uid, working)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """List rules and addresses with the cluster's marks; one rule shows the fingerprint."""
        found = [
            owned_object("public address", id_of(one), owners.tags_of(one))
            for one in await self._reader.owned_addresses(cluster)
        ]
        by_service: dict[str, list[Described]] = {}
        for one in await self._reader.all_rules():
            uids = {of.service_uid for of in owners.owners_of(one) if of.cluster_uid == cluster.uid}
            if len(uids) == 1:
                by_service.setdefault(uids.pop(), []).append(one)
        for uid, described in by_service.items():
            rules = [documents.rule(one, _ref(cluster, uid), ()) for one in described]
            self._ports.note(uid, _ports(rules))
            made_from, _, shown = owners.record_of(described).partition(".")
            is_valid = bool(shown) and shown == documents.visible(rules)
            service = owners.service_of(described)
            found += [
                OwnedObject(
                    "load balancer rule",
                    one.id,
                    service,
                    uid,
                    fingerprint=made_from if is_valid else "",
                    recorded=is_valid,
                )
                for one in rules
            ]
        return found

    async def _ensure(self, lb: LoadBalancer, options: Options) -> EnsureAnswer:
        async with self._missed.doubting(lb.ref):
            case = await self._case(lb, options)
        self._missed.check(lb.ref, is_there=_is_there(lb, case.observed))
        record = _Record(lb.ref, case.described, self._commands)
        take = functools.partial(self._commands.take, lb.ref, case.desired.network)
        steps = functools.partial(plan, case.desired)
        with showing_only(lb.ref, _held(lb.ref, case.observed)):
            observed = await converge(case.observed, steps, take, before=record.kept.clear)
        self._ports.note(lb.ref.uid, _ports(observed.rules))
        address = observed.address or Address("")
        ingress = (_ingress(options, address),)
        is_named = address.is_ours and address.ip == lb.requested_address
        answer = Ensured(ingress, case.place.rejected, {ASSOCIATED: "true"} if is_named else {})
        made_from = desired_digest(lb, options, self._inputs, ingress=ingress)
        await self._keep(lb.ref, observed, record, made_from)
        self._reader.forget(lb.ref.uid)
        self._works.waits.done(lb.ref.uid)
        return answer

    async def _case(self, lb: LoadBalancer, options: Options) -> _Case:
        version = await self._api.version()
        check(lb, options, version)
        described = await self._reader.rules(lb.ref)
        rules = await self._reader.with_members(described, lb.ref)
        self._ports.note(lb.ref.uid, _ports(rules))
        ids = {parsed(host.provider_id) for host in lb.hosts} - {None}
        machines = await self._hosts.find([id_ for id_ in ids if id_])
        place = placed(lb, machines, rules)
        check_place(place)
        network = await self._reader.network(place.network)
        check_network(network)
        former = {one.network for one in rules}
        if former and network.id not in former:
            check_move(await self._reader.network(min(former)), network)
        desired = desired_balancer(lb, options, place, network, version)
        try:
            observed = await self._reader.observe(lb, rules, network)
        except InvalidRequest as error:
            # Only who has neither rules nor an address is refused the one that is named.
            is_left = bool(vip_addresses(lb.ref.last_ingress))
            raise error.disowning() if is_left else error from None
        if observed.address is not None:
            self._check_ports(lb, observed.address, rules)
        return _Case(desired, observed, place, described)

    def _check_ports(self, lb: LoadBalancer, address: Address, rules: Iterable[Rule]) -> None:
        """Refuse ports that another Service had, and still asks for.

        Raises:
            CloudError: A port is another's; names it.
        """

        def asks(service: Service) -> bool:
            shown = {point.ip for point in service.status.load_balancer.ingress}
            return address.ip in {*shown, service.spec.load_balancer_ip}

        own, uid = {*_ports(rules)}, lb.ref.uid
        for one in lb.frontends:
            key = one.protocol, one.port
            other = self._ports.holder(uid, address.id, key, asks)
            if other is not None and (address.id, key) not in own:
                raise CloudError(
                    f"port {one.port} of {address.ip} is that of the Service"
                    f" {other.metadata.namespace}/{other.metadata.name}, whose rule is made anew:"
                    " give another port or address"
                )

    async def _keep(
        self, ref: LoadBalancerRef, observed: Observed, record: "_Record", made_from: str
    ) -> None:
        """Tag the first rule with the record of what the Service's rules were made from."""
        bearer = min(one.id for one in observed.rules)

        async def write(value: str) -> None:
            await record.remove()  # where nothing had to be changed it is still there
            await self._commands.tag(ref, "LoadBalancer", (bearer,), {MARK_FINGERPRINT: value})

        await record.kept.keep(f"{made_from}.{documents.visible(observed.rules)}", write)

    async def _delete(self, ref: LoadBalancerRef) -> DeleteAnswer:
        described = await self._reader.rules(ref)
        rules = [documents.rule(one, ref, ()) for one in described]
        waits = not self._works.waits.has_waited(ref.uid)
        observed, network = await self._reader.observe_rest(ref, rules, waits=waits)
        if deletion(observed, network):
            self._deleted.add(ref.uid)
        take = functools.partial(self._commands.take, ref, None)
        await converge(observed, lambda now: deletion(now, network), take)
        await check_elsewhere(self._reader, ref, self._api.project)
        was_there = ref.uid in self._deleted
        if ref.last_ingress and not was_there:
            await check_nodes_shown(self._nodes.all(), parsed, self._machines.by_id)
        self._deleted.discard(ref.uid)
        self._ports.forget(ref.uid)
        self._reader.forget(ref.uid)
        self._works.waits.done(ref.uid)
        return Done(found=was_there)


def _ports(rules: Iterable[Rule]) -> Iterator[tuple[str, Key]]:
    """Return the ports of addresses that rules have, by the ids of these."""
    there = (one for one in rules if one.address and not one.is_going)
    return ((one.address, (one.key[0].upper(), one.port)) for one in there)


def _ref(cluster: ClusterIdentity, uid: str) -> LoadBalancerRef:
    """Make a reference to the load balancer of a Service that is known by its UID alone."""
    return LoadBalancerRef(cluster, "", "", uid, default_load_balancer_name(uid))


def _is_there(lb: LoadBalancer, observed: Observed) -> bool:
    """Tell whether a Service has rules, or an address that it gets again."""
    has_address = observed.address is not None and observed.address.is_ours
    is_named = bool(lb.requested_address) and not _is_others(lb.ref, observed)
    return bool(observed.rules) or has_address or is_named


def _is_others(ref: LoadBalancerRef, observed: Observed) -> bool:
    """Tell whether somebody else has by now what the status shows as the Service's own address.

    It has neither marks nor rules of the Service, and others have ports there.
    """
    own = observed.address
    if own is None or not own.id or own.is_ours or observed.rules:
        return False
    is_claimed = observed.claim == own.ip and not own.is_shared
    return not is_claimed and own.ip in vip_addresses(ref.last_ingress)


def _held(ref: LoadBalancerRef, observed: Observed) -> set[str]:
    """Return the addresses that a Service has; rules do not show the one that they leave.

    A spare one that others use, such as a machine by static NAT, is theirs.
    """
    own = observed.address or Address("")
    if any(one.address != own.id for one in observed.rules):
        return {point.ip for point in ref.last_ingress}
    kept = set[str]() if _is_others(ref, observed) else {own.ip}
    return kept | {one.ip for one in observed.spare if not one.is_shared}


def _ingress(options: Options, address: Address) -> LoadBalancerIngress:
    if options.hostname:
        return LoadBalancerIngress(hostname=options.hostname)
    # What others have at an address that was made by hand nodes must not lead to pods.
    is_proxy = options.proxy or not address.is_ours
    return LoadBalancerIngress(ip=address.ip, ip_mode=IP_MODE_PROXY if is_proxy else None)
