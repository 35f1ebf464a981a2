"""Take load balancers down: whole ones, and what is left of one in another scheme."""

from collections.abc import Collection, Iterable
from typing import Final

from proreus.cloudprovider.errors import RetryAfter
from proreus.cloudprovider.load_balancers import Done, LoadBalancerRef
from proreus.cloudprovider.steps import converge
from proreus.providers.gce.balancing.annotations import EXTERNAL_ELSEWHERE, INTERNAL_ELSEWHERE
from proreus.providers.gce.balancing.apply import Applier
from proreus.providers.gce.balancing.desired import Desired
from proreus.providers.gce.balancing.finding import is_marked, is_ours
from proreus.providers.gce.balancing.leftovers import forms_beside, leftovers
from proreus.providers.gce.balancing.observe import Observer
from proreus.providers.gce.balancing.parts import INTERNAL, Form, Kind, Rule
from proreus.providers.gce.balancing.plan import deletion
from proreus.providers.gce.balancing.shared import SharedParts
from proreus.providers.gce.balancing.steps import Observed, without
from proreus.providers.gce.balancing.subsets.names import names_of

_ELSEWHERE: Final = {INTERNAL_ELSEWHERE, *EXTERNAL_ELSEWHERE}
_KEPT: Final = (Kind.RULE, Kind.ADDRESS)
"""Kinds of parts that the controller of backend services calls by the same names as we do."""
_SOON: Final = 2.0


class Removal:
    """The deletions of load balancers."""

    def __init__(
        self,
        observer: Observer,
        applier: Applier,
        shared: SharedParts,
        forms: tuple[Form, ...],
    ) -> None:
        """Keep how parts are read and deleted, and the forms that this manager makes."""
        self._observer = observer
        self._applier = applier
        self._shared = shared
        self._forms = forms

    async def of_service(self, ref: LoadBalancerRef) -> Done:
        """Delete all parts of a Service, then what no other load balancer needs any more.

        Raises:
            CloudError: Google refuses.
        """
        rule = await self._observer.find(Kind.RULE, ref.name)
        if rule is not None and not is_ours(rule, ref):
            return Done(found=False)
        # Who has a subset has nothing else: that went before.
        if rule is None and await self.of_subset(ref):
            return Done()
        is_theirs = rule is not None and rule.is_elsewhere
        kept = _KEPT if is_theirs else ()
        return Done(found=await self.whole(ref, kept, None if is_theirs else rule))

    async def has_left(self, ref: LoadBalancerRef) -> bool:
        """Tell whether a Service shows an address without a forwarding rule that has it.

        Raises:
            CloudError: Google gives no usable answer.
        """
        if not ref.last_ingress:
            return False
        every = (
            await self._observer.everything(ref.name),
            await self._observer.subset(names_of(ref)),
        )
        return not any(one.rules() for one in every)

    async def everything(self, ref: LoadBalancerRef, first: Rule | None) -> Observed:
        """Read all that there may be of the load balancer that a forwarding rule belongs to.

        Raises:
            CloudError: Google gives no usable answer.
        """
        if first is not None and first.form is Form.SUBSET:
            return await self._observer.everything_of_subset(names_of(ref), first)
        return await self._observer.everything(ref.name, first)

    async def of_other_scheme(self, ref: LoadBalancerRef, first: Rule) -> None:
        """Delete the Service's load balancer in the other scheme (internal or external).

        Raises:
            CloudError: Google refuses.
        """
        if first.form is Form.SUBSET:
            await self.of_subset(ref)
        else:
            await self.whole(ref, (), first)

    async def leftovers(self, ref: LoadBalancerRef, desired: Desired) -> None:
        """Delete what a process left that ended while the load balancer changed its scheme.

        Without a forwarding rule nothing else tells that there is anything.

        Raises:
            CloudError: Google refuses.
        """
        if desired.subset is None:
            await self.of_subset(ref)
        observed = await self._observer.everything(ref.name)
        if observed.rule(ref.name) is not None:
            raise RetryAfter(f"the forwarding rule {ref.name} has just appeared", after=_SOON)
        await self._delete(leftovers(desired, observed, self._forms))
        await self._sweep(forms_beside(desired, self._forms), ref)

    async def of_subset(self, ref: LoadBalancerRef) -> bool:
        """Delete all parts of a load balancer with a subset of the nodes, if there are any of ours.

        While a finalizer of the controller that officially makes these is on the Service, they are
        its: what it gives external Services has the same names. Of a Service that is gone nobody
        knows that, nor whether there is another one of its name, whose parts are called alike: then
        only our labels prove anything.

        Raises:
            CloudError: Google refuses.
        """
        service = ref.service
        if service is not None and _ELSEWHERE & set(service.metadata.finalizers):
            return False
        names = names_of(ref)
        seen = await self._observer.subset(names)
        rules = seen.rules()
        if not seen.parts and Form.SUBSET not in self._forms:
            return False
        if not all(is_ours(one, ref) for one in rules):
            return False
        if service is None and not any(is_marked(one, ref) for one in rules):
            return False
        groups = await self._observer.endpoints(names, partial=False)
        observed = seen.with_parts(groups.parts)
        if not observed.parts:
            return False
        await self._delete(observed, names.own)
        await self._shared.sweep(Form.SUBSET, names)
        return True

    async def whole(
        self, ref: LoadBalancerRef, kept: Collection[Kind] = (), first: Rule | None = None
    ) -> bool:
        """Delete all parts of both kinds but those to keep; return whether there were any.

        Raises:
            CloudError: Google refuses.
        """
        observed = without(await self._observer.everything(ref.name, first), kept)
        await self._delete(observed)
        seen = {Form.POOL} if observed.pool(ref.name) is not None else set[Form]()
        if (backend := observed.backend(ref.name)) is not None:
            is_internal = backend.load_balancing_scheme == INTERNAL
            seen.add(Form.INTERNAL if is_internal else Form.EXTERNAL)
        if first is not None:
            seen.add(first.form)
        # A process that ended here before has left no clue which form it was.
        await self._sweep(seen or self._forms, ref)
        return bool(observed.parts)

    async def _delete(self, observed: Observed, group: str = "") -> None:
        await converge(observed, deletion, lambda _, step: self._applier.take(step, group))

    async def _sweep(self, forms: Iterable[Form], ref: LoadBalancerRef) -> None:
        for form in forms:
            await self._shared.sweep(form, names_of(ref))
