"""The capability `LoadBalancers` of the provider `openstack`: one in Octavia for each family.

A verb does one thing at most and answers `Pending` while Octavia works on it. A load balancer is
found by the tag with its Service's uid, or as the official manager's by its name and the address
in the Service's status; then it is given our tags.

A Service may use a load balancer that was not made for it: another Service's of its namespace, or
one that somebody has made by hand (`cloudprovider.ownership`). There it has listeners of its own
and changes nothing else; the load balancer goes with the last Service, if it was made for one.

A verb changes a load balancer only if nobody has changed it since the verb looked (`turns`). So
Services that share a load balancer need not wait for one another's verbs.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError, RetryAfter
from proreus.cloudprovider.identity import ClusterIdentity, OwnedObject
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    Done,
    EnsureAnswer,
    Ensured,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    PartChange,
    Pending,
)
from proreus.cloudprovider.names import default_load_balancer_name
from proreus.cloudprovider.ownership import Owner
from proreus.cloudprovider.recorded import Record, desired_digest
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.waits import Missed, Waits, Working
from proreus.kube.objects import LoadBalancerIngress, Service
from proreus.providers.nova.machines import Described, id_of
from proreus.providers.openstack.config import OpenStackConfig
from proreus.providers.openstack.octavia import owners
from proreus.providers.openstack.octavia.addresses import Addresses, Check, Placed
from proreus.providers.openstack.octavia.annotations import PREFIX, Options, read_options, selector
from proreus.providers.openstack.octavia.cases import Cases, broken, is_needed
from proreus.providers.openstack.octavia.desired import family_of, ingress_of, is_alone, of_family
from proreus.providers.openstack.octavia.networks import Networks
from proreus.providers.openstack.octavia.octavia import Octavia, is_immutable
from proreus.providers.openstack.octavia.parts import Balancer
from proreus.providers.openstack.octavia.plan import (
    ACTIVE,
    ERROR,
    Broken,
    Change,
    MakeBalancer,
    Step,
    Wait,
    departure,
    is_last,
)
from proreus.providers.openstack.octavia.preview import part_changes, pretend
from proreus.providers.openstack.octavia.records import (
    before,
    by_balancer,
    hosts_of,
    valid,
    written,
)
from proreus.providers.openstack.octavia.security_groups import SecurityGroups
from proreus.providers.openstack.octavia.turns import Turn, Turns
from proreus.providers.openstack.octavia.withdrawal import Withdrawal

_ID: Final = f"{PREFIX}load-balancer-id"
_ADDRESS: Final = f"{PREFIX}load-balancer-address"
_DELETES: Final = "Octavia deletes the load balancer"
_MOST_STEPS: Final = 1000
"""The most steps of a preview: more than the parts that a load balancer can have."""

PACE: Final = tuple(min(1.5**times, 15.0) for times in range(8))
"""Seconds until Octavia is asked again whether it is ready; an amphora takes a minute or two."""


class OctaviaLoadBalancers:
    """The verbs of `LoadBalancers` for one Service at a time."""

    def __init__(
        self,
        octavia: Octavia,
        networks: Networks,
        groups: SecurityGroups,
        config: OpenStackConfig,
        check: Check,
        *,
        confirm: float,
    ) -> None:
        """Keep the clients, the cloud-config, `check` of the account, the provider's `confirm`."""
        self._octavia = octavia
        self._groups = groups
        self._settings = config.load_balancer
        self._classes = config.load_balancer_class
        self._cases = Cases(octavia, networks, config)
        self._inputs = (config.load_balancer, config.tenants)
        self._addresses = Addresses(networks, internal=self._settings.internal_lb)
        self._turns = Turns()
        self._withdrawal = Withdrawal(octavia, networks, check)
        # By the Service's uid: the load balancers that were seen to go, and are not deleted yet.
        self._going: dict[str, set[str]] = {}
        self._waits = Waits(PACE)
        self._missed = Missed(confirm)
        self._has_left = partial(self._addresses.has_left, self._cases.found, self._missed, check)

    def host_policy(self, service: Service) -> HostPolicy:
        """Choose nodes by labels, if the Service or the cloud-config names any."""
        return HostPolicy(selector(service.metadata.annotations, self._settings.node_selector))

    async def ensure(self, lb: LoadBalancer) -> EnsureAnswer:
        """Take one step for each family's load balancer; record the digest after the last."""
        try:
            return await self._ensure(lb)
        except CloudError as error:
            if not isinstance(error, RetryAfter) and await self._has_left(lb.ref, error):
                raise error.disowning() from error.__cause__
            raise

    async def _ensure(self, lb: LoadBalancer) -> EnsureAnswer:
        options = read_options(lb.service.metadata.annotations, self._settings, self._classes)
        with self._turns.begin() as turn:
            made = [await self._ensure_family(lb, options, family, turn) for family in lb.families]
            waiting = [one for one in made if isinstance(one, Pending)]
            if waiting:
                return waiting[0]
            done = [one for one in made if isinstance(one, _Made)]
            subnets = {one.family: one.members for one in done}
            ingress = tuple(one.ingress for one in done)
            pending = await self._groups.ensure(lb, subnets, done[0].record.clear)
            if pending is not None:
                return msgspec.structs.replace(pending, ingress=ingress)
            if any(one.record.is_cleared for one in done):
                # That was a change of the load balancer, so Octavia takes no other one now.
                return self._waits.pending(
                    lb.ref.uid, "Octavia changes the load balancer", is_moving=True
                )
            answer = Ensured(ingress=ingress, annotations=done[0].annotations)
            made_from = self._made_from(lb, options, answer.annotations, answer.ingress)
            for one in done:
                await one.record.keep(made_from)
        return answer

    async def preview(self, lb: LoadBalancer) -> Sequence[PartChange]:
        """Return what `ensure` would change."""
        options = read_options(lb.service.metadata.annotations, self._settings, self._classes)
        found: list[PartChange] = []
        subnets: dict[str, str] = {}
        for family in lb.families:
            every = await self._cases.found(lb.ref)
            case = await self._cases.find(lb, options, family, every, at_work=True)
            subnets[family] = case.members
            mine = [one for one in every if family_of(one) == family]
            surplus = await self._cases.surplus(mine, lb.ref)
            found += (PartChange("delete", f"load balancer {one.id}") for one in surplus)
            observed = case.observed
            for _ in range(_MOST_STEPS):
                step, observed = await self._cases.next_step(lb, options, case, observed)
                if step is None:
                    break
                if isinstance(step, Wait):
                    detail = f"Octavia works on it ({step.status})"
                    found.append(PartChange("change", f"load balancer {case.desired.name}", detail))
                    break
                found += part_changes(step, observed)
                observed = pretend(observed, step)
            placed = Placed(family, case.found, observed, case.subnet)
            found += await self._addresses.foresee(lb, options, placed)
        return [*found, *await self._groups.foresee(lb, subnets)]

    def fingerprint(self, lb: LoadBalancer) -> str:
        """Return the fingerprint that `list_owned` shows for each family if all is as desired."""
        annotations = lb.service.metadata.annotations
        options = read_options(annotations, self._settings, self._classes)
        made_from = self._made_from(lb, options, annotations, lb.ref.last_ingress)
        return _joined([made_from for _ in lb.families])

    def _made_from(
        self,
        lb: LoadBalancer,
        options: Options,
        annotations: Mapping[str, str],
        ingress: Sequence[LoadBalancerIngress],
    ) -> str:
        """Digest all that decides what the load balancers are like."""
        written = [annotations.get(name, "") for name in (_ID, _ADDRESS)]
        read = msgspec.structs.replace(options, adopted="")
        return desired_digest(lb, read, written, self._inputs, ingress=ingress)

    async def delete(self, ref: LoadBalancerRef) -> DeleteAnswer:
        """Delete what was made for a Service, once its address is withdrawn.

        The floating IPs go first, since nothing leads to them afterwards.
        """
        if ref.last_ingress:
            return await self._withdraw(ref)
        with self._turns.begin() as turn:
            found = await self._cases.found(ref)
            pairs = [(one, await self._octavia.observe(one, ref)) for one in found]
            steps = [
                (observed.id, step)
                for one, observed in pairs
                if (step := self._delete_step(one, observed, ref)) is not None
            ]
            if steps:
                self._going.setdefault(ref.uid, set()).update(id_ for id_, _ in steps)
                self._gone(ref, {id_: step for id_, step in steps if isinstance(step, Wait)})
            if steps and all(isinstance(step, Wait) for _, step in steps):
                return self._waits.pending(ref.uid, _DELETES)
            gone = [
                one
                for one, observed in pairs
                if observed.status in {ACTIVE, ERROR} and not is_needed(one, observed, ref)
            ]
            await self._addresses.delete(ref, gone, turn)
            for id_, step in steps:
                if isinstance(step, Broken):
                    raise broken(id_)
                if not isinstance(step, Wait) and await self._take(step, id_, (), turn):
                    self._gone(ref, {id_: step})
        if steps:
            return self._waits.pending(ref.uid, _DELETES, is_moving=True)
        self._waits.done(ref.uid)
        if (pending := await self._groups.remove(ref)) is not None:
            return pending
        self._cases.forget(ref.uid)
        # What has not got its last step may only be missing in the list; addresses prove nothing.
        return Done(found=self._going.pop(ref.uid, None) == set())

    def _gone(self, ref: LoadBalancerRef, steps: Mapping[str, Step]) -> None:
        """Note load balancers that need no further step, since their deletion has been sent."""
        self._going[ref.uid] -= {id_ for id_, step in steps.items() if is_last(step)}

    async def _withdraw(self, ref: LoadBalancerRef) -> Pending:
        """Mark all objects of the Service, so that they are found without its address."""
        with self._turns.begin() as turn:
            found = await self._cases.found(ref)
            try:
                self._missed.check(ref, is_there=bool(found))
            except Working as working:
                return self._waits.answer(ref.uid, working)
            await self._cases.check_project(found, ref)
            awaited = await self._withdrawal.mark(ref, found, turn)
        if awaited:
            return self._waits.pending(ref.uid, awaited)
        return Pending(0.0, _DELETES, withdrawn=True)

    def _delete_step(self, lb: Described, observed: Balancer, ref: LoadBalancerRef) -> Step | None:
        """Return the next step to delete the load balancer, or to leave it to others, or None."""
        if is_needed(lb, observed, ref):
            return departure(observed, owners.without(lb, ref))
        return self._cases.delete_step(observed)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """List the load balancers and security groups with the cluster's tag.

        Of a load balancer that was not made in the cluster, its Services have the listeners.
        """
        found = await self._cases.owned(cluster)
        users = [(one, user) for one in found for user in owners.users(one, cluster)]
        refs = [_ref(cluster, user) for _, user in users]
        # While Octavia works on it the list may still show members that are going.
        records = [
            owners.record_of(one, cluster.uid, ref.uid)
            if one.get("provisioning_status") == ACTIVE
            else ""
            for (one, _), ref in zip(users, refs, strict=True)
        ]
        pools = by_balancer(await self._octavia.pools()) if any(records) else {}
        made_from: dict[str, list[str]] = {}
        for (one, _), ref, record in zip(users, refs, records, strict=True):
            every = pools.get(id_of(one), ())
            hosts = hosts_of(pool for pool in every if owners.is_part_of(pool, one, ref))
            made_from.setdefault(ref.uid, []).append(valid(record, hosts))
        balancers = []
        for one, user in users:
            is_made_here = owners.is_made_in(one, cluster)
            kind = "load balancer" if is_made_here else "listeners of load balancer"
            shown = _joined(made_from[user.service_uid])
            balancers.append(
                OwnedObject(
                    kind,
                    id_of(one),
                    user.key,
                    user.service_uid,
                    fingerprint=shown,
                    recorded=bool(shown),
                )
            )
        return [*balancers, *await self._groups.owned(cluster)]

    async def _ensure_family(
        self, lb: LoadBalancer, options: Options, family: str, turn: Turn
    ) -> "_Made | Pending":
        every = await self._cases.found(lb.ref)
        mine = [one for one in every if family_of(one) == family]
        for one in await self._cases.surplus(mine, lb.ref):
            step = self._cases.delete_step(one)
            if step is not None and not isinstance(step, Wait | Broken):
                await self._take(step, one.id, (), turn)
        case = await self._cases.find(lb, options, family, every)
        try:
            self._missed.check(of_family(lb.ref, family), is_there=case.found is not None)
        except Working as working:
            return self._waits.answer(lb.ref.uid, working)
        step, observed = await self._cases.next_step(lb, options, case, case.observed)
        id_ = observed.id if observed is not None else ""
        if isinstance(step, Wait):
            text = f"Octavia works on load balancer {id_} ({step.status})"
            # One that is being made has an address of its own.
            is_left = step.status == "PENDING_CREATE" and await self._has_left(lb.ref)
            return self._waits.pending(lb.ref.uid, text, withdrawn=is_left)
        if step is not None:
            if case.found is not None and observed is not None:
                step = before(step, case.found, observed, lb.ref)
            # Octavia makes several at one port, so a port is taken in turns, too.
            await self._take(step, id_ or options.port_id, case.tags, turn)
            what = "makes" if isinstance(step, MakeBalancer) else "changes"
            text = f"Octavia {what} the load balancer"
            return self._waits.pending(lb.ref.uid, text, is_moving=True)
        self._waits.done(lb.ref.uid)
        if case.found is None or observed is None:
            raise CloudError("the load balancer was deleted while it was being changed")
        record = self._record(lb.ref, case.found, observed, turn)
        placed = Placed(family, case.found, observed, case.subnet)
        address = await self._addresses.ensure(lb, options, placed, turn, record.clear)
        is_ours = is_alone(case.found, observed.others, lb.ref.cluster)
        point = ingress_of(options, self._settings, address, is_ours=is_ours)
        await self._cases.check_given(lb, options, case.found, point)
        return _Made(family, case.members, point, {_ID: id_, _ADDRESS: address}, record)

    def _record(
        self, ref: LoadBalancerRef, described: Described, observed: Balancer, turn: Turn
    ) -> Record:
        """Return the record on a load balancer; it counts for its present members only."""

        async def write(made_from: str) -> None:
            record = written(made_from, observed.hosts) if made_from else ""
            tags = owners.recorded(owners.tags_of(described), ref, record)
            step = Change("loadbalancers", observed.id, {"tags": tags})
            with turn.change(observed.id):
                try:
                    await self._octavia.take(step, observed.id, ())
                except Refused as error:
                    if is_immutable(error):
                        raise RetryAfter(str(error), after=PACE[0]) from error
                    raise

        record = owners.record_of(described, ref.cluster.uid, ref.uid)
        return Record(valid(record, observed.hosts), write)

    async def _take(self, step: Step, id_: str, tags: Sequence[str], turn: Turn) -> bool:
        """Take a step; return False if Octavia still works on the load balancer."""
        try:
            with turn.change(id_):
                await self._octavia.take(step, id_, tags)
        except Refused as error:
            if not is_immutable(error):
                raise
            return False
        return True


class _Made(msgspec.Struct, frozen=True):
    """A load balancer of a family that is as desired.

    Attributes:
        family: IPv4 or IPv6.
        members: The subnet of its members.
        ingress: The addresses that the status is to show.
        annotations: The annotations that the framework is to write.
        record: The record on the load balancer.
    """

    family: str
    members: str
    ingress: LoadBalancerIngress
    annotations: Mapping[str, str]
    record: Record


def _ref(cluster: ClusterIdentity, user: Owner) -> LoadBalancerRef:
    """Make a reference to the load balancer of a Service that is known by its tags alone."""
    uid = user.service_uid
    name = default_load_balancer_name(uid)
    return LoadBalancerRef(cluster, user.namespace, user.service, uid, name)


def _joined(records: Sequence[str]) -> str:
    """Join the records on all load balancers of a Service; "" if one has none."""
    return ",".join(sorted(records)) if all(records) else ""
