"""Make the capability `LoadBalancers` for a cloud in which a load balancer is a single object."""

import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from proreus.cloudprovider.adapters import per_service
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.identity import (
    MARK_SERVICE,
    MARK_SERVICE_UID,
    ClusterIdentity,
    OwnedObject,
)
from proreus.cloudprovider.load_balancers import (
    Done,
    EnsureAnswer,
    Ensured,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    LoadBalancers,
    PartChange,
    Pending,
)
from proreus.cloudprovider.ownership import are_marks_of
from proreus.kube.objects import LoadBalancerIngress, Service

T = TypeVar("T", bound=msgspec.Struct)

ASK_AGAIN: Final = 5.0
"""Seconds until an object without an address is read again."""


class Objects(Protocol[T]):
    """The four calls for objects whose unique names we choose, as `Collection` has them."""

    async def find(self, name: str) -> T | None:
        """Return the object of that name; None if there is none."""

    async def create(self, desired: T) -> T:
        """Make an object, and return it as the cloud shows it."""

    async def replace(self, name: str, desired: T) -> T:
        """Replace the object of that name, and return it as the cloud shows it."""

    async def delete(self, name: str) -> None:
        """Delete the object of that name; one that is gone already is no error."""


def per_object(
    objects: Objects[T],
    plan: Callable[[LoadBalancer], tuple[T, Mapping[str, str]]],
    *,
    kind: str,
    name: Callable[[T], str],
    marks: Callable[[T], Mapping[str, str]],
    ingress: Callable[[T], Sequence[LoadBalancerIngress]],
    chosen: Collection[str],
    list_marked: Callable[[ClusterIdentity], Awaitable[Iterable[T]]],
    host_policy: Callable[[Service], HostPolicy] = lambda _: HostPolicy(),
) -> LoadBalancers:
    """Make the capability `LoadBalancers` for a cloud whose load balancers are one object each.

    Its name is `LoadBalancerRef.name`. It is made with our marks, changed where it is not as
    planned, and neither changed nor deleted without them. `preview` and `fingerprint` follow from
    the same plan.

    Args:
        objects: Finds, creates, changes and deletes the cloud's objects.
        plan: Returns the desired object, with `LoadBalancer.marks` on it, and the reasons for nodes
            that cannot be its targets, by their names. Raises `InvalidRequest` for what the cloud
            cannot do. Pure.
        kind: The cloud's word for such an object.
        name: Returns the name of an object. Pure.
        marks: Returns the marks on an object, decoded if the cloud needs other forms. Pure.
        ingress: Returns the addresses at which an object is reached; nothing while it has none yet.
            Pure.
        chosen: The fields of the object that the cloud chooses; all others are compared.
        list_marked: Lists the objects with the marks of a cluster, on all pages.
        host_policy: Which nodes are hosts; by default all, in both families.
    """
    verbs = _Verbs(objects, plan, kind, name, marks, ingress, frozenset(chosen), list_marked)
    return per_service(
        verbs.ensure,
        verbs.delete,
        host_policy=host_policy,
        list_owned=verbs.list_owned,
        fingerprint=verbs.fingerprint,
        preview=verbs.preview,
    )


class _Verbs(msgspec.Struct, Generic[T], frozen=True):
    """The verbs of the capability that `per_object` makes, with its arguments as fields."""

    objects: Objects[T]
    plan: Callable[[LoadBalancer], tuple[T, Mapping[str, str]]]
    kind: str
    name: Callable[[T], str]
    marks: Callable[[T], Mapping[str, str]]
    ingress: Callable[[T], Sequence[LoadBalancerIngress]]
    chosen: Collection[str]
    list_marked: Callable[[ClusterIdentity], Awaitable[Iterable[T]]]

    async def ensure(self, lb: LoadBalancer) -> EnsureAnswer:
        desired, rejected = self.plan(lb)
        name = lb.ref.name
        observed = await self.objects.find(name)
        if observed is None:
            observed = await self.objects.create(desired)
        elif self._differing(observed, desired, lb.ref):
            observed = await self.objects.replace(name, desired)
        ingress = tuple(self.ingress(observed))
        if not ingress:
            return Pending(ASK_AGAIN, f"{self.kind} {name} has no address yet")
        return Ensured(ingress, rejected)

    async def preview(self, lb: LoadBalancer) -> Sequence[PartChange]:
        desired, _ = self.plan(lb)
        part = f"{self.kind} {lb.ref.name}"
        observed = await self.objects.find(lb.ref.name)
        if observed is None:
            return (PartChange("create", part),)
        differing = self._differing(observed, desired, lb.ref)
        return (PartChange("change", part, ", ".join(differing)),) if differing else ()

    async def delete(self, ref: LoadBalancerRef) -> Done:
        observed = await self.objects.find(ref.name)
        is_ours = observed is not None and are_marks_of(self.marks(observed), ref)
        if is_ours:
            await self.objects.delete(ref.name)
        return Done(found=is_ours)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        return [self._owned(found) for found in await self.list_marked(cluster)]

    def fingerprint(self, lb: LoadBalancer) -> str:
        planned, rejected = self.plan(lb)
        # Nothing in the cloud shows which nodes are rejected: only `ensure` tells that.
        return "" if rejected else self._digest(planned)

    def _owned(self, observed: T) -> OwnedObject:
        marks = self.marks(observed)
        return OwnedObject(
            kind=self.kind,
            id=self.name(observed),
            service=marks.get(MARK_SERVICE, ""),
            service_uid=marks.get(MARK_SERVICE_UID, ""),
            fingerprint=self._digest(observed),
            addresses=tuple(point.ip or point.hostname for point in self.ingress(observed)),
        )

    def _differing(self, observed: T, desired: T, ref: LoadBalancerRef) -> list[str]:
        """Return the names of the fields that are to be changed.

        Raises:
            CloudError: The object is not ours.
        """
        if not are_marks_of(self.marks(observed), ref):
            raise CloudError(
                f"the {self.kind} {ref.name} exists without the marks of this Service: delete it"
                " in the cloud if nobody needs it, and a new one is made"
            )
        now, then = self._comparable(observed), self._comparable(desired)
        return [field for field in then if now[field] != then[field]]

    def _digest(self, object_: T) -> str:
        # Maps may have keys that are no strings, and their order does not matter.
        plain = msgspec.to_builtins(self._comparable(object_), str_keys=True, order="deterministic")
        text = msgspec.json.encode(plain, order="deterministic")
        return hashlib.sha256(text).hexdigest()

    def _comparable(self, object_: T) -> dict[str, object]:
        fields = msgspec.structs.asdict(object_).items()
        return {field: value for field, value in fields if field not in self.chosen}
