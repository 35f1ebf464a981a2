"""The capability `LoadBalancers` of the provider `gce`.

External ones have a target pool, internal ones a backend service with the instance groups of all
zones, as the official manager makes them; external ones that ask for one have a backend service,
too. Parts are found by their names, which hold the Service's uid; the first forwarding rule carries
our marks and the record of what it was made from, as labels.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest, RetryAfter
from proreus.cloudprovider.first_come import FirstCome
from proreus.cloudprovider.identity import MARK_FINGERPRINT, ClusterIdentity, OwnedObject
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    EnsureAnswer,
    Ensured,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    PartChange,
    Pending,
    nodes_with_pods,
)
from proreus.cloudprovider.lookups import attempt
from proreus.cloudprovider.mark_forms import LABELS
from proreus.cloudprovider.recorded import Record, desired_digest
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.routes import pods_by_cidr
from proreus.cloudprovider.steps import converge, preview_plan
from proreus.kube.objects import LoadBalancerIngress, Service
from proreus.providers.gce import errors
from proreus.providers.gce.api import Api
from proreus.providers.gce.balancing import naming
from proreus.providers.gce.balancing.addresses import (
    check,
    check_other_scheme,
    check_subnetworks,
    is_taken,
    shown_of,
)
from proreus.providers.gce.balancing.annotations import (
    Options,
    asks_backend_service,
    is_internal,
    may_have_subset,
    read_options,
)
from proreus.providers.gce.balancing.apply import Applier
from proreus.providers.gce.balancing.desired import Desired, Setting, desired_parts
from proreus.providers.gce.balancing.finding import Finder
from proreus.providers.gce.balancing.hosts import (
    machines_of,
    mistaken,
    others_tags,
    strangers,
    tags_for,
)
from proreus.providers.gce.balancing.members import group_steps, without_strangers
from proreus.providers.gce.balancing.observe import Observer
from proreus.providers.gce.balancing.parts import IPV4, IPV6, Form, Kind, Rule
from proreus.providers.gce.balancing.plan import (
    deletion,
    former_form,
    leaves_shared_check,
    other_scheme,
    plan,
    wanted_form,
)
from proreus.providers.gce.balancing.removal import Removal
from proreus.providers.gce.balancing.shared import SharedParts
from proreus.providers.gce.balancing.steps import Effect, Observed, Step
from proreus.providers.gce.balancing.subsets.choice import serving
from proreus.providers.gce.balancing.subsets.desired import subset_parts
from proreus.providers.gce.balancing.subsets.names import names_of
from proreus.providers.gce.config import SKIP_GROUPS, GCEConfig
from proreus.providers.gce.identity import ClusterId
from proreus.providers.gce.names import Machine
from proreus.providers.gce.place import Place, find_subnetwork
from proreus.providers.gce.reading import Reader

_FAMILIES: Final = (IPV4, IPV6)
_OFFICIAL: Final = (Form.POOL, Form.INTERNAL)
"""The forms of load balancers that the official manager makes."""
_MOST_TRIES: Final = 5
"""Times that something shared may be taken away while one load balancer is made."""
_Wanted = tuple[Desired, dict[str, str]]
"""The desired parts, and by node why a host cannot be among them."""


class GCELoadBalancers:
    """The verbs of `LoadBalancers` for one Service at a time."""

    def __init__(
        self,
        api: Api,
        reader: Reader,
        place: Place,
        config: GCEConfig,
        *,
        cluster_id: ClusterId,
        check_ranges: tuple[str, ...],
        rbs_default: bool = False,
    ) -> None:
        """Keep the client of Google, and the project, region and network of the cluster."""
        self._api = api
        self._services = api.context.listers["services"]
        self._reader = reader
        self._place = place
        self._config = config
        self._settings = config.load_balancer
        self._cluster_id = cluster_id
        self._check_ranges = check_ranges
        self._rbs_default = rbs_default
        makes = config.load_balancer.backend_services
        self._forms = (
            *_OFFICIAL,
            *((Form.EXTERNAL,) if makes else ()),
            *((Form.SUBSET,) if self._settings.subsetting else ()),
        )
        self._observer = Observer(api, place, has_forms=makes)
        self._finder = Finder(api, self._observer, config, rbs_default=rbs_default)
        self._applier = Applier(api, place, self._observer)
        self._shared = SharedParts(
            api,
            place,
            self._observer,
            cluster_id=cluster_id,
            keeps_groups=SKIP_GROUPS in config.global_.alpha_features,
        )
        self._removal = Removal(self._observer, self._applier, self._shared, self._forms)
        self._subnetwork: str | None = place.subnetwork or None
        self._gave_up: set[str] = set()
        self._first = FirstCome(api.context.uptime)

    def host_policy(self, service: Service) -> HostPolicy:
        """Choose all nodes; IPv6 addresses only where there is a backend service, if wanted."""
        settings, internal = self._settings, is_internal(service)
        has_backend = internal or (
            settings.backend_services and (self._rbs_default or asks_backend_service(service))
        )
        families = _FAMILIES if settings.dual_stack and has_backend else (IPV4,)
        if internal and settings.subsetting:
            return nodes_with_pods(service, *families)
        return HostPolicy(families=families)

    async def ensure(self, lb: LoadBalancer) -> EnsureAnswer:
        """Make or change the parts to be as desired; record that on the forwarding rule."""
        try:
            return await self._ensure(lb)
        except RetryAfter as error:
            return Pending(error.after, str(error), withdrawn=error.disowns)

    async def _ensure(self, lb: LoadBalancer) -> EnsureAnswer:
        options = read_options(lb.service)
        first = await self._finder.first(lb, options)
        wanted = await self._desired(lb, options, first)
        try:
            with self._first.address(lb):
                return await self._made(lb, options, wanted, first)
        except CloudError as error:
            find = partial(self._finder.first, lb, options)
            is_left = is_taken(error, wanted[0], first) or await self._observer.lacks_shown(
                wanted[0], lb.ref, self._services, find
            )
            if is_left:
                self._gave_up.add(lb.ref.uid)
                raise error.disowning() from error.__cause__
            raise

    async def _made(
        self, lb: LoadBalancer, options: Options, wanted: _Wanted, first: Rule | None
    ) -> EnsureAnswer:
        desired, rejected = wanted
        record = Record(
            first.marks.get(MARK_FINGERPRINT, "") if first is not None else "",
            partial(self._mark, lb, desired.name),
        )
        left = former_form(desired, first, self._forms)
        if first is not None and other_scheme(desired, first):
            seen = await self._observer.observe(desired)
            self._check_subnets(desired, seen, lb.ref)
            tenants, services = self._config.tenants, self._services.all()
            check_other_scheme(desired, seen, first, lb.ref, tenants, services=services)
            await self._removal.of_other_scheme(lb.ref, first)
            left = first = None
        elif first is None and (lb.ref.last_ingress or lb.ref.uid in self._gave_up):
            await self._removal.leftovers(lb.ref, desired)
        observed, leaves_shared = await self._converge(lb, desired, record, first)
        rule = observed.rule(desired.name)
        if rule is None:
            raise CloudError(f"{desired.name} was deleted while it was being made")
        if leaves_shared or left is not None:
            await self._shared.sweep(left or desired.form, names_of(lb.ref))
        ingress = shown_of(desired, observed, lb.ref, self._config.tenants, self._services.all())
        refused = {
            node: observed.refused[machine]
            for node, machine in machines_of(lb.hosts, self._place)[0].items()
            if machine in observed.refused
        }
        answer = Ensured(ingress, {**rejected, **refused})
        if answer.rejected:
            # They are to be tried again with each look at all Services.
            if not LABELS.write(lb.marks).items() <= rule.labels.items():
                await self._mark(lb, desired.name, "")
            await record.clear()
        else:
            await record.keep(self._made_from(lb, options, ingress))
        self._gave_up.discard(lb.ref.uid)
        return answer

    async def _converge(
        self, lb: LoadBalancer, desired: Desired, record: Record, first: Rule | None
    ) -> tuple[Observed, bool]:
        """Take steps until none is left, again if shared parts were deleted meanwhile.

        Return the state after that, and whether the shared health check was in use before.
        """
        leaves_shared = False
        for _ in range(_MOST_TRIES):
            count = await self._shared.sweeps.count()
            observed = await self._observer.observe(desired, first)
            first = None
            leaves_shared |= leaves_shared_check(desired, observed)
            check(desired, observed, lb.ref, self._config.tenants, services=self._services.all())
            self._check_subnets(desired, observed, lb.ref)
            groups = await self._shared.ensure_groups(desired, record)
            observed = msgspec.structs.replace(
                observed.with_parts(groups.parts), refused={**observed.refused, **groups.refused}
            )
            observed = await converge(
                observed,
                lambda observed: plan(desired, observed, self._place),
                partial(self._take, lb, desired.group),
                before=record.clear,
            )
            if await self._shared.sweeps.count() == count:
                return observed, leaves_shared
        raise RetryAfter(f"{lb.ref.name}: other load balancers are being deleted", after=1.0)

    async def _take(self, lb: LoadBalancer, group: str, observed: Observed, step: Step) -> Effect:
        """Take a step; if only others may change a firewall rule, ask them to by an event."""
        del observed
        try:
            return await self._applier.take(step, group)
        except Refused as error:
            if not self._place.is_shared or not errors.is_forbidden(error):
                raise
            change = step.lines[0]
            self._api.context.events.event(
                lb.service,
                "Normal",
                "LoadBalancerManualChange",
                f"Firewall change required by security admin: {change.action} {change.part} in the"
                f" project {self._place.network_project}: {error.text}",
            )
            return step.after

    async def preview(self, lb: LoadBalancer) -> Sequence[PartChange]:
        """Return what `ensure` would change."""
        options = read_options(lb.service)
        first = await self._finder.first(lb, options)
        desired, _ = await self._desired(lb, options, first)
        observed = await self._observer.observe(desired, first)
        check(desired, observed, lb.ref, self._config.tenants, services=self._services.all())
        self._check_subnets(desired, observed, lb.ref)
        gone: tuple[PartChange, ...] = ()
        shared: tuple[PartChange, ...] = ()
        if other_scheme(desired, first):
            before = await self._removal.everything(lb.ref, first)
            gone, _ = preview_plan(before, deletion)
            kept = {key: one for key, one in observed.parts.items() if key not in before.parts}
            observed = Observed(kept)
        if desired.backend is not None and desired.subset is None:
            groups = without_strangers(desired, await self._observer.groups(desired.group))
            shared, after = preview_plan(groups, lambda seen: group_steps(desired.machines, seen))
            observed = observed.with_parts(after.parts)
        own, _ = preview_plan(observed, lambda seen: plan(desired, seen, self._place))
        return (*gone, *shared, *own)

    def fingerprint(self, lb: LoadBalancer) -> str:
        """Return the fingerprint that `list_owned` shows if all is as desired."""
        options = read_options(lb.service)
        return self._made_from(lb, options, lb.ref.last_ingress)

    def _made_from(
        self, lb: LoadBalancer, options: Options, ingress: Sequence[LoadBalancerIngress]
    ) -> str:
        inputs = (
            options,
            self._cluster_id.value(),
            self._config.global_.node_tags,
            self._check_ranges,
        )
        return desired_digest(lb, *inputs, ingress=ingress)

    async def delete(self, ref: LoadBalancerRef) -> DeleteAnswer:
        """Delete all parts, then what no other load balancer needs any more."""
        self._gave_up.discard(ref.uid)
        try:
            return await self._removal.of_service(ref)
        except CloudError as error:
            is_left = await attempt(self._removal.has_left, ref) is True
            if isinstance(error, RetryAfter):
                return Pending(error.after, str(error), withdrawn=is_left)
            if is_left:
                raise error.disowning() from error.__cause__
            raise

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """List the forwarding rules with the cluster's label."""
        return await self._finder.owned(cluster)

    async def _desired(self, lb: LoadBalancer, options: Options, first: Rule | None) -> _Wanted:
        """Return the desired parts, and by node why a host cannot be among them."""
        given = self._config.global_.node_tags
        nodes, rejected = machines_of(lb.hosts, self._place)
        nowhere = await self._reader.nowhere(nodes.values(), self._place.zones)
        rejected |= {node: nowhere[one.zone] for node, one in nodes.items() if one.zone in nowhere}
        nodes = {node: one for node, one in nodes.items() if node not in rejected}
        tags: Mapping[Machine, str] = {}
        if not given:
            read = await self._reader.tags_of(nodes.values())
            if failed := [one for one in read.values() if isinstance(one, CloudError)]:
                raise failed[0]
            tags = {key: tag for key, tag in read.items() if isinstance(tag, str)}
        every, tenants = self._api.context.listers["nodes"].all(), self._config.tenants
        strange = strangers(nodes, every, tenants, self._place.zones)
        closed = await self._closed(lb, nodes, others_tags(strange, nodes, tags))
        known = {node: machine for node, machine in nodes.items() if node not in closed}
        chosen, missing = tags_for(known, tags, given)
        missing |= closed
        if nodes and not chosen:
            raise InvalidRequest("no firewall rule can be made: " + next(iter(missing.values())))
        setting = Setting(
            self._place,
            self._cluster_id.value(),
            await self._default_subnetwork() if options.internal else self._place.subnetwork,
            self._check_ranges,
        )
        machines = {machine for node, machine in nodes.items() if node not in missing}
        has_default = self._rbs_default and self._config.load_balancer.backend_services
        makes_subsets = self._settings.subsetting and may_have_subset(lb.service)
        form = wanted_form(options, first, is_default=has_default, makes_subsets=makes_subsets)
        if form is Form.SUBSET:
            # Without the setting nobody says where pods are: health checks find out.
            chosen_here = serving(lb) if self._settings.subsetting else nodes.keys()
            machines &= {nodes[node] for node in chosen_here & nodes.keys()}
            made = subset_parts(lb, options, setting, machines, chosen)
        else:
            made = desired_parts(lb, options, setting, machines, chosen, form=form)
        them = frozenset(nodes[one] for one in strange)
        made = msgspec.structs.replace(made, strange=them, pods=pods_by_cidr(every))
        return made, {**rejected, **missing}

    async def _closed(
        self, lb: LoadBalancer, nodes: Mapping[str, Machine], tags: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the hosts for which no firewall is opened, and why: others may have their tags.

        What the Service's firewall rule has already stays; so do instances of the instance groups,
        which the backend services of all Services lead to.
        """
        there: set[str] = set()
        for name in (naming.firewall(lb.ref.name), names_of(lb.ref).own) if tags else ():
            found = await self._observer.find(Kind.FIREWALL, name)
            there.update(found.target_tags if found is not None else ())
        group = naming.instance_group(self._cluster_id.value())
        grouped = (await self._observer.groups(group)).grouped() if tags else frozenset[Machine]()
        return {
            node: mistaken(nodes[node], f"the firewall is not opened for its network tag {tag}")
            for node, tag in tags.items()
            if tag not in there and nodes[node] not in grouped
        }

    def _check_subnets(self, desired: Desired, observed: Observed, ref: LoadBalancerRef) -> None:
        own = (self._place.subnetwork, self._subnetwork or "")
        check_subnetworks(desired, observed, own, ref, self._config.tenants)

    async def _default_subnetwork(self) -> str:
        if self._subnetwork is None:
            self._subnetwork = await find_subnetwork(self._place, self._api)
        return self._subnetwork

    async def _mark(self, lb: LoadBalancer, name: str, made_from: str) -> None:
        """Write our marks and the record as labels of the forwarding rule, if there is one."""
        rule: Rule | None = await self._observer.find(Kind.RULE, name)
        if rule is None:
            return
        record = LABELS.write({MARK_FINGERPRINT: made_from})
        labels = {**rule.labels, **LABELS.write(lb.marks), **record}
        if not made_from:
            labels = {key: one for key, one in labels.items() if key not in record}
        body = {"labels": labels, "labelFingerprint": rule.label_fingerprint}
        path = f"{self._observer.path(Kind.RULE, rule.name)}/setLabels"
        await self._api.change("forwardingRules.setLabels", path, body)
