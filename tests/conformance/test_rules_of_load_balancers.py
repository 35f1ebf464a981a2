"""For each rule about load balancers: a copy of a good provider that breaks just this one."""

import asyncio
import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import ClassVar

import msgspec
import pytest

from proreus.cloudprovider import (
    MARK_CLUSTER_UID,
    CloudError,
    ClusterIdentity,
    DeleteAnswer,
    Done,
    EnsureAnswer,
    Ensured,
    HealthCheck,
    LoadBalancer,
    LoadBalancerRef,
    NotSupported,
    OwnedObject,
    PartChange,
    Pending,
    Throttled,
)
from proreus.cloudprovider.steps import converge
from proreus.kube.objects import LoadBalancerIngress
from proreus.providers.simulated.api import Api, create, delete, update
from proreus.providers.simulated.load_balancers import SimulatedLoadBalancers, conclude
from proreus.providers.simulated.parts import Address, Listener, Observed, Part
from proreus.providers.simulated.plan import owned, plan
from proreus.providers.simulated.steps import Step
from proreus.testing.conformance import foresight, interruptions, load_balancers, ownership
from proreus.testing.conformance.rule import Status
from proreus.testing.conformance.site import CLUSTER
from proreus.testing.conformance.suite import Suite

from .broken import copy, fails, failures
from .simulated_fixture import SimulatedFixture


class Nowhere(SimulatedLoadBalancers):
    async def _ensure(self, desired: LoadBalancer) -> EnsureAnswer:
        await super()._ensure(desired)
        return Ensured()


class WritesAlways(SimulatedLoadBalancers):
    async def _ensure(self, desired: LoadBalancer) -> EnsureAnswer:
        answer = await super()._ensure(desired)
        (firewall, *_) = [
            one
            for one in await self._api.parts(name_prefix=desired.ref.name)
            if one.collection == "firewalls"
        ]
        await self._api.take(update(firewall, {"source_ranges": ["0.0.0.0/0"]}))
        return answer


class KeepsPorts(SimulatedLoadBalancers):
    async def _ensure(self, desired: LoadBalancer) -> EnsureAnswer:
        observed = owned(desired.ref, await self._api.parts(name_prefix=desired.ref.name))

        def steps(observed: Observed) -> tuple[Step, ...]:
            planned = plan(desired, observed, self._region)
            only_ports = all(step.call.name == "listeners.delete" for step in planned)
            return () if only_ports else planned

        return conclude(desired, await converge(observed, steps, self._take), self._region)


class IgnoresRanges(SimulatedLoadBalancers):
    async def _ensure(self, desired: LoadBalancer) -> EnsureAnswer:
        return await super()._ensure(
            msgspec.structs.replace(desired, source_ranges={"IPv4": ("0.0.0.0/0",)})
        )


class IgnoresAffinity(SimulatedLoadBalancers):
    async def _ensure(self, desired: LoadBalancer) -> EnsureAnswer:
        return await super()._ensure(msgspec.structs.replace(desired, affinity_seconds=None))


class IgnoresHealth(SimulatedLoadBalancers):
    async def _ensure(self, desired: LoadBalancer) -> EnsureAnswer:
        return await super()._ensure(msgspec.structs.replace(desired, health_check=HealthCheck()))


class IgnoresNodePorts(SimulatedLoadBalancers):
    async def _ensure(self, desired: LoadBalancer) -> EnsureAnswer:
        frontends = tuple(
            msgspec.structs.replace(one, node_port=22000 + one.port) for one in desired.frontends
        )
        return await super()._ensure(msgspec.structs.replace(desired, frontends=frontends))


class KeepsHosts(SimulatedLoadBalancers):
    async def update_hosts(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        await self._api.parts(name_prefix=desired[0].ref.name)
        return {one.ref.uid: Ensured((LoadBalancerIngress(ip="192.0.2.1"),)) for one in desired}


class InsistsOnHosts(SimulatedLoadBalancers):
    async def _ensure(self, desired: LoadBalancer) -> EnsureAnswer:
        answer = await super()._ensure(desired)
        if isinstance(answer, Ensured) and answer.rejected:
            return CloudError(f"not all are hosts: {answer.rejected}")
        return answer


class GroupOfService(SimulatedLoadBalancers):
    def group(self, lb: LoadBalancerRef) -> Hashable:
        return lb.uid, lb.service is None


class FirstOfGroup(SimulatedLoadBalancers):
    def group(self, lb: LoadBalancerRef) -> Hashable:
        return "the one load balancer"

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        return await super().ensure(desired[:1])


class OneAtATime(SimulatedLoadBalancers):
    busy = False

    async def _ensure(self, desired: LoadBalancer) -> EnsureAnswer:
        if self.busy:
            return CloudError("busy")
        self.busy = True
        try:
            return await super()._ensure(desired)
        finally:
            self.busy = False


class KeepsAddresses(SimulatedLoadBalancers):
    async def _delete(self, gone: LoadBalancerRef) -> DeleteAnswer:
        parts = await self._api.parts(name_prefix=gone.name)
        order = ("listeners", "firewalls", "load_balancers")
        for part in sorted(
            (one for one in parts if not isinstance(one, Address)),
            key=lambda one: order.index(one.collection),
        ):
            await self._api.take(delete(part))
        return Done()


class Remembering(SimulatedLoadBalancers):
    """Remembers, beyond the process, which uids `mark` was told."""

    marked: ClassVar[set[str]] = set()


class DeletesOnce(Remembering):
    async def _delete(self, gone: LoadBalancerRef) -> DeleteAnswer:
        if gone.uid in self.marked:
            return CloudError("no such load balancer")
        answer = await super()._delete(gone)
        if isinstance(answer, Done) and gone.cluster == CLUSTER:
            self.marked.add(gone.uid)
        return answer


class AsksTheService(SimulatedLoadBalancers):
    async def _delete(self, gone: LoadBalancerRef) -> DeleteAnswer:
        return Done() if gone.service is None else await super()._delete(gone)


class TrustsItsMemory(SimulatedLoadBalancers):
    done: ClassVar[dict[str, tuple[LoadBalancer, EnsureAnswer]]] = {}

    async def _ensure(self, desired: LoadBalancer) -> EnsureAnswer:
        made_from, answer = self.done.get(desired.ref.uid, (None, None))
        if made_from == desired and answer is not None:
            await self._api.parts(name_prefix=desired.ref.name)
            return answer
        answer = await super()._ensure(desired)
        if isinstance(answer, Ensured):
            self.done[desired.ref.uid] = (desired, answer)
        return answer

    async def _delete(self, gone: LoadBalancerRef) -> DeleteAnswer:
        self.done.pop(gone.uid, None)
        return await super()._delete(gone)


class FirstPage(Api):
    async def parts(self, **filters: str | Sequence[str]) -> list[Part]:
        prefix = filters.get("name_prefix")
        if not isinstance(prefix, str):
            return await super().parts(**filters)
        everything = sorted(await super().parts(), key=lambda one: one.created)
        return [one for one in everything[:20] if one.name.startswith(prefix)]


class Doubles(Remembering):
    """After an attempt that failed, starts anew beside what that one has made."""

    numbers = itertools.count()

    async def _ensure(self, desired: LoadBalancer) -> EnsureAnswer:
        if desired.ref.uid in self.marked:
            self.marked.remove(desired.ref.uid)
            answer = await super()._ensure(desired)
            name = f"{desired.ref.name}-{next(self.numbers)}"
            await self._api.take(create("addresses", {"name": name, "tags": dict(desired.marks)}))
            return answer
        try:
            return await super()._ensure(desired)
        except CloudError:
            self.marked.add(desired.ref.uid)
            raise


class ForgetsHalfMade(Remembering):
    async def _ensure(self, desired: LoadBalancer) -> EnsureAnswer:
        answer = await super()._ensure(desired)
        self.marked.add(desired.ref.uid)
        return answer

    async def _delete(self, gone: LoadBalancerRef) -> DeleteAnswer:
        made = gone.uid in self.marked or gone.cluster != CLUSTER
        return await super()._delete(gone) if made else Done()


class TriesOnce(Remembering):
    async def _delete(self, gone: LoadBalancerRef) -> DeleteAnswer:
        if gone.uid in self.marked:
            return Done()
        try:
            return await super()._delete(gone)
        except Throttled:
            raise
        except CloudError:
            self.marked.add(gone.uid)
            raise


class Optimist(SimulatedLoadBalancers):
    async def _ensure(self, desired: LoadBalancer) -> EnsureAnswer:
        try:
            return await super()._ensure(desired)
        except CloudError as error:
            if type(error) is not CloudError:
                raise
            return Ensured((LoadBalancerIngress(ip="192.0.2.1"),))


class ListsWithoutServices(SimulatedLoadBalancers):
    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        found = await super().list_owned(cluster)
        return [msgspec.structs.replace(one, service="", service_uid="") for one in found]


class EveryCluster(SimulatedLoadBalancers):
    async def _delete(self, gone: LoadBalancerRef) -> DeleteAnswer:
        return await super()._delete(msgspec.structs.replace(gone, cluster=CLUSTER))


class DeletesByName(SimulatedLoadBalancers):
    async def _delete(self, gone: LoadBalancerRef) -> DeleteAnswer:
        answer = await super()._delete(gone)
        left = await self._api.parts(name_prefix=gone.name)
        unmarked = [one for one in left if MARK_CLUSTER_UID not in one.tags]
        await asyncio.gather(*(self._api.take(delete(one)) for one in unmarked))
        return answer


class TakesOver(SimulatedLoadBalancers):
    """Goes by the Service's uid alone, in `ensure` only."""

    async def _ensure(self, desired: LoadBalancer) -> EnsureAnswer:
        first = msgspec.structs.replace(desired.ref, cluster=CLUSTER)
        if (
            desired.ref.cluster != CLUSTER
            and owned(first, await self._api.parts(name_prefix=first.name)).parts
        ):
            marks = {**desired.marks, MARK_CLUSTER_UID: CLUSTER.uid}
            desired = msgspec.structs.replace(desired, ref=first, marks=marks)
        return await super()._ensure(desired)


class TakesAwayLater(SimulatedLoadBalancers):
    """Goes by the Service's uid alone, and deletes with the second call."""

    tried: ClassVar[set[str]] = set()

    async def _delete(self, gone: LoadBalancerRef) -> DeleteAnswer:
        if gone.cluster == CLUSTER:
            return await super()._delete(gone)
        if gone.uid not in self.tried:
            self.tried.add(gone.uid)
            return Pending(0.1, "it is withdrawn first")
        return await super()._delete(msgspec.structs.replace(gone, cluster=CLUSTER))


class ForeseesByDoing(SimulatedLoadBalancers):
    async def preview(
        self, desired: Sequence[LoadBalancer]
    ) -> Mapping[str, Sequence[PartChange] | CloudError]:
        said = await super().preview(desired)
        await self.ensure(desired)
        return said


class ForeseesNothing(SimulatedLoadBalancers):
    async def preview(
        self, desired: Sequence[LoadBalancer]
    ) -> Mapping[str, Sequence[PartChange] | CloudError]:
        return {one.ref.uid: () for one in desired}


class ForeseesAlways(SimulatedLoadBalancers):
    async def preview(
        self, desired: Sequence[LoadBalancer]
    ) -> Mapping[str, Sequence[PartChange] | CloudError]:
        return {one.ref.uid: (PartChange("change", "load balancer"),) for one in desired}


class DigestsThePortsAlone(SimulatedLoadBalancers):
    """Shows a fingerprint that tells nothing of hosts."""

    def fingerprint(self, desired: LoadBalancer) -> str:
        return ",".join(str(one.port) for one in desired.frontends)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        parts = [one for one in await self._api.parts() if isinstance(one, Listener)]
        ports = ",".join(str(one.port) for one in sorted(parts, key=lambda one: one.port))
        found = await super().list_owned(cluster)
        return [msgspec.structs.replace(one, fingerprint=ports) for one in found]


class RecordsTooEarly(SimulatedLoadBalancers):
    """Records what it is going to do, beyond the process."""

    said: ClassVar[dict[str, str]] = {}

    async def _ensure(self, desired: LoadBalancer) -> EnsureAnswer:
        self.said[desired.ref.uid] = self.fingerprint(desired)
        return await super()._ensure(desired)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        return [
            msgspec.structs.replace(one, fingerprint=self.said.get(one.service_uid, ""))
            for one in await super().list_owned(cluster)
        ]


BROKEN: dict[str, type] = {
    "ensured": Nowhere,
    "ensure-again": WritesAlways,
    "ports-changed": KeepsPorts,
    "fields-honoured": IgnoresRanges,
    "update-hosts": KeepsHosts,
    "host-gone": InsistsOnHosts,
    "group-stable": GroupOfService,
    "group-members": FirstOfGroup,
    "groups-beside": OneAtATime,
    "deleted": KeepsAddresses,
    "deleted-again": DeletesOnce,
    "deleted-without-service": AsksTheService,
    "heals": TrustsItsMemory,
    "pages-of-load-balancers": FirstPage,
    "ensure-interrupted": Doubles,
    "ensure-interrupted-then-delete": ForgetsHalfMade,
    "delete-interrupted": TriesOnce,
    "failure-told": Optimist,
    "marks-listed": ListsWithoutServices,
    "other-cluster": EveryCluster,
    "foreign-untouched": DeletesByName,
    "previewed": ForeseesAlways,
    "fingerprint-shown": DigestsThePortsAlone,
    "fingerprint-true": RecordsTooEarly,
}


def test_each_rule_has_a_broken_copy() -> None:
    rules = (*load_balancers.RULES, *interruptions.RULES, *ownership.RULES, *foresight.RULES)
    assert set(BROKEN) == {rule.id for rule in rules}


@pytest.mark.parametrize("rule", BROKEN)
async def test_a_copy_that_breaks_a_rule_fails_it(rule: str) -> None:
    assert await fails(BROKEN[rule], rule)


@pytest.mark.long
@pytest.mark.parametrize("rule", BROKEN)
async def test_a_copy_that_breaks_one_rule_fails_no_other(rule: str) -> None:
    found = await failures(BROKEN[rule])
    assert list(found) == [rule], found


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        (IgnoresAffinity, "spec.sessionAffinity"),
        (IgnoresHealth, "spec.externalTrafficPolicy"),
        (IgnoresNodePorts, "spec.ports[].nodePort"),
    ],
)
async def test_a_field_that_is_ignored_is_named(broken: type, field: str) -> None:
    found = await failures(broken, load_balancers.fields_honoured)
    assert field in found["fields-honoured"]


@pytest.mark.parametrize(
    ("broken", "seen"),
    [(ForeseesNothing, "returns no changes"), (ForeseesByDoing, "preview wrote")],
)
async def test_a_preview_that_is_not_of_what_is_done_is_reported(broken: type, seen: str) -> None:
    found = await failures(broken, foresight.previewed)
    assert seen in found["previewed"]


class Silent(SimulatedLoadBalancers):
    """Says neither what it would do nor whether all is as desired."""

    def fingerprint(self, desired: LoadBalancer) -> str:
        return ""

    async def preview(
        self, desired: Sequence[LoadBalancer]
    ) -> Mapping[str, Sequence[PartChange] | CloudError]:
        return {one.ref.uid: NotSupported("no") for one in desired}


async def test_a_provider_without_preview_or_fingerprint_must_declare_that() -> None:
    provider = copy(Silent)
    fixture = type("Fixture", (SimulatedFixture,), {"provider_class": provider})
    rules = (foresight.previewed, foresight.fingerprint_shown)
    findings = await Suite(fixture).findings(rules)
    assert [one.status for one in findings] == [Status.NOT_OFFERED] * len(rules)
    assert "'preview'" in findings[0].remedy
    assert "'fingerprint'" in findings[1].remedy


@pytest.mark.parametrize(("broken", "verb"), [(TakesOver, "ensure"), (TakesAwayLater, "delete")])
async def test_whatever_takes_from_another_cluster_is_named(broken: type, verb: str) -> None:
    found = await failures(broken, ownership.other_cluster)
    assert found["other-cluster"].startswith(f"{verb} by another cluster changed or deleted ")


class HidesForeign(SimulatedFixture):
    """A fixture whose objects are those of the provider only."""

    async def objects(self) -> Mapping[str, object]:
        found = await super().objects()
        return {id_: one for id_, one in found.items() if MARK_CLUSTER_UID in str(one)}


class HandsOutItsOwn(SimulatedFixture):
    """A fixture whose objects change when the cloud does, as those of a cloud in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[str, dict[str, object]] = {}

    async def objects(self) -> Mapping[str, object]:
        found = await super().objects()
        for id_, one in found.items():
            self.live.setdefault(id_, {})["content"] = str(one)
        return {id_: one for id_, one in self.live.items() if id_ in found}


async def test_a_fixture_that_does_not_show_what_is_foreign_is_told_so() -> None:
    (found,) = await Suite(HidesForeign).findings([ownership.foreign_untouched])
    assert found.status is Status.FAILS
    assert "does not show what its create_foreign() has made" in found.seen


async def test_what_a_fixture_changes_afterwards_is_noticed() -> None:
    fixture = type("Fixture", (HandsOutItsOwn,), {"provider_class": copy(TakesOver)})
    (found,) = await Suite(fixture).findings([ownership.other_cluster])
    assert found.status is Status.FAILS
