"""Decide what a Service needs of the cloud: the verbs, and the choice between them. Pure."""

import hashlib
from collections.abc import Collection, Mapping

import msgspec

from proreus.cloudprovider.desired import load_balancer_ref
from proreus.cloudprovider.errors import CloudError, ImplementedElsewhere
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    Done,
    EndpointTarget,
    EnsureAnswer,
    Ensured,
    Host,
    LoadBalancer,
    LoadBalancerRef,
    Pending,
    withdraws,
)
from proreus.cloudprovider.ports import Key, ports_of
from proreus.controllers.service.conditions import (
    ELSEWHERE,
    ConditionState,
    is_shown,
    readiness,
    shows_one,
)
from proreus.controllers.service.intake import (
    ANNOTATION_CLOUD_IN_USE,
    AS_GO,
    Classes,
    has_finalizer,
    is_moved,
    is_noted,
    is_of_others,
    is_to_have,
    needs_cleanup,
)
from proreus.kube.objects import LoadBalancerIngress, ObjectMeta, Service

IP_MODE_VIP = "VIP"
CONFIRM_SECONDS = 10.0
"""Seconds for which a cloud must show no load balancer of a Service that has an address."""

# kubectl's own copy of the object: it repeats the spec and changes with labels too.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NOT_COMPARED = frozenset({_LAST_APPLIED, ANNOTATION_CLOUD_IN_USE})


class Fingerprint(msgspec.Struct, frozen=True):
    """The digest by which desired load balancers are compared, and the hosts, which it leaves out.

    The hosts are shared by many Services, so keeping them costs less than a digest.
    """

    digest: str
    hosts: tuple[Host, ...]
    endpoints: tuple[EndpointTarget, ...]


class Memory(msgspec.Struct, frozen=True):
    """The memory of what this process has asked the cloud for about a load balancer.

    `last` is the desired state last reached, or None if none was or the outcome is unknown;
    `written` the annotations that we set on the Service because the cloud asked for them,
    `condition` what its condition should be. A write that was lost shows by the Service differing
    from these. `requested_hosts` are the hosts last sent to the cloud, whatever the result, or
    None. `missing_since` is the time in seconds since which `delete` finds nothing, or None.
    `withdrawn` says that it has left an address: from then on `ref` tells its address, and not the
    status. `made` says that this process has asked for it, or found it as desired when it started.
    `ports` are those that it had when that was so last, or None; but for those that it has `lost`
    since to another Service.
    """

    ref: LoadBalancerRef
    last: Fingerprint | None = None
    written: Mapping[str, str] = {}
    condition: ConditionState | None = None
    requested_hosts: tuple[Host, ...] | None = None
    missing_since: float | None = None
    withdrawn: bool = False
    made: bool = False
    ports: frozenset[Key] | None = None
    lost: frozenset[Key] = frozenset()


class Ensure(msgspec.Struct, frozen=True):
    """The step to call `ensure`; `edited`: the desired state differs from the one last reached."""

    desired: LoadBalancer
    edited: bool = False


class UpdateHosts(msgspec.Struct, frozen=True):
    """The step to call `update_hosts`: nothing but the hosts differs."""

    desired: LoadBalancer


class Refuse(msgspec.Struct, frozen=True):
    """The decision to call nothing: no load balancer can be computed; the condition says why."""

    error: CloudError


class Delete(msgspec.Struct, frozen=True):
    """The step to call `delete`. The key is planned again after it: there may be a new Service."""

    ref: LoadBalancerRef


class Nothing(msgspec.Struct, frozen=True):
    """The decision to call nothing: everything is as desired."""


Verb = Ensure | UpdateHosts | Refuse | Delete | Nothing


def decide(
    service: Service | None,
    memory: Memory | None,
    desired: LoadBalancer | CloudError | None,
    *,
    cluster: ClusterIdentity,
    classes: Classes = AS_GO,
) -> Verb:
    """Decide what a Service needs now.

    Args:
        service: The newest object, or None if it is gone.
        memory: The memory of the load balancer of this key, also of a former Service with it.
        desired: The load balancer that `service` should have; None if it cannot be computed yet
            or should not exist.
        cluster: The cluster, for the name of a load balancer that is not remembered.
        classes: The load balancer classes that are ours.
    """
    if memory and (service is None or service.metadata.uid != memory.ref.uid):
        # The former Service comes first: its load balancer may hold ports and addresses.
        return Delete(msgspec.structs.replace(memory.ref, service=None))
    if service is None:
        return Nothing()
    if not is_to_have(service, classes):
        is_due = memory is not None or needs_cleanup(service, classes)
        newest = load_balancer_ref(service, cluster)
        if is_of_others(service, classes) or is_moved(service, classes):
            newest = msgspec.structs.replace(newest, last_ingress=())
        return Delete(_newest_ref(newest, memory)) if is_due else Nothing()
    if isinstance(desired, CloudError):
        return Refuse(desired)
    if desired is None:
        return Nothing()
    if memory is not None and memory.withdrawn:
        desired = msgspec.structs.replace(desired, ref=_newest_ref(desired.ref, memory))
    return _compare(service, memory, desired, classes)


def is_kept(service: Service | None, ref: LoadBalancerRef, classes: Classes = AS_GO) -> bool:
    """Tell whether the Service still wants its load balancer, and our finalizer keeps it."""
    return (
        service is not None
        and service.metadata.uid == ref.uid
        and is_to_have(service, classes)
        and has_finalizer(service)
    )


def still_ours(
    service: Service | None, memory: Memory | None, classes: Classes = AS_GO
) -> Memory | None:
    """Return the memory, or None if what it names to delete may be another manager's by now.

    While a Service is of another type it has no class, so every manager cleans up after it. Once it
    is of another's class, the other manager may have made a load balancer with the same marks. Then
    only the manager that made the former load balancer, and has not yet heard that it is gone, has
    anything left to delete.
    """
    if memory is None or service is None or service.metadata.uid != memory.ref.uid:
        return memory
    is_pending = memory.made and memory.missing_since is None
    return None if is_of_others(service, classes) and not is_pending else memory


def fingerprint(desired: LoadBalancer, written: Collection[str] = ()) -> Fingerprint:
    """Digest a desired load balancer.

    Of the Service count its identity, spec and annotations without the keys in `written`; its
    version, labels, finalizers and status change without anybody asking for anything else.
    """
    meta = desired.service.metadata
    annotations = {
        name: value
        for name, value in meta.annotations.items()
        if name not in written and name not in _NOT_COMPARED
    }
    compared = Service(
        metadata=ObjectMeta(
            name=meta.name, namespace=meta.namespace, uid=meta.uid, annotations=annotations
        ),
        spec=desired.service.spec,
    )
    hashed = msgspec.structs.replace(
        desired,
        ref=msgspec.structs.replace(desired.ref, last_ingress=(), service=None),
        service=compared,
        hosts=(),
        endpoints=(),
    )
    return Fingerprint(_digest(hashed), desired.hosts, desired.endpoints)


def inherited(memory: Memory) -> Memory:
    """Return what a controller may keep of its predecessor's memory, in the same process.

    What was asked of the cloud holds; that it was reached does not, for the cloud may be another.
    """
    kept = memory.condition if memory.condition == ELSEWHERE else None
    return msgspec.structs.replace(memory, last=None, condition=kept, requested_hosts=None)


def before_call(memory: Memory | None, verb: Ensure | UpdateHosts | Delete) -> Memory:
    """Return the memory once the cloud is called: parts may exist, so the name is kept.

    Until an answer says otherwise the outcome is unknown, so the next verb is no `UpdateHosts`.
    """
    ref = verb.ref if isinstance(verb, Delete) else _newest_ref(verb.desired.ref, memory)
    begun = msgspec.structs.replace(inherited(memory or Memory(ref)), ref=ref)
    if isinstance(verb, Delete):
        return begun
    hosts = verb.desired.hosts
    return msgspec.structs.replace(begun, requested_hosts=hosts, missing_since=None, made=True)


def after(memory: Memory, verb: Ensure | UpdateHosts, answer: EnsureAnswer) -> Memory:
    """Return the memory after the answer; `memory` is what `before_call` gave.

    An answer that is no success leaves the outcome open. An address that is withdrawn is forgotten:
    it may be another's, and is no proof of what is to be deleted.
    """
    if isinstance(answer, ImplementedElsewhere):
        kept = withdrawn(memory) if withdraws(answer) else memory
        return msgspec.structs.replace(
            kept, last=fingerprint(verb.desired), written={}, condition=ELSEWHERE
        )
    if not isinstance(answer, Ensured):
        if isinstance(answer, Pending) and answer.ingress:
            return _showing(memory, with_ip_mode(answer.ingress))
        return withdrawn(memory) if withdraws(answer) else memory
    written = dict(answer.annotations)
    if isinstance(verb, UpdateHosts):
        written = {**memory.written, **written}
    ingress = stated_ingress(verb, answer)
    if ingress is not None:
        memory = _showing(memory, ingress)
    return msgspec.structs.replace(
        memory,
        last=fingerprint(verb.desired, written),
        written=written,
        condition=readiness(verb.desired.hosts, answer.rejected),
        ports=ports_of(verb.desired.service),
        lost=frozenset(),
    )


def has_new_hosts(memory: Memory | None, desired: LoadBalancer) -> bool:
    """Tell whether the hosts differ from those last sent to the cloud.

    If they do not, a change of nodes changes nothing for this load balancer, and must not cut the
    backoff of one that fails.
    """
    return memory is None or memory.requested_hosts != desired.hosts


def confirmed_delete(
    memory: Memory, answer: DeleteAnswer, now: float, service: Service | None = None
) -> tuple[Memory, DeleteAnswer]:
    """Return the memory after an answer to `delete`, and the answer to act on.

    A Service that has an address, or of which the condition or we know that it had one, has had a
    load balancer. A listing without it may lag or lie, so there must be two in a row, and time
    between them. An address that is withdrawn is forgotten.

    Args:
        memory: The memory that `before_call` returned.
        answer: The provider's answer.
        now: The time in seconds, on any clock that only goes forward.
        service: The Service as it was before the call, if there still was one.
    """
    if not isinstance(answer, Done) and withdraws(answer):
        return msgspec.structs.replace(withdrawn(memory), missing_since=None), answer
    if isinstance(answer, Pending) or answer == Done():
        return msgspec.structs.replace(memory, missing_since=None), answer
    points = memory.ref.last_ingress
    is_known = bool(points) or memory.withdrawn or (service is not None and shows_one(service))
    if not isinstance(answer, Done) or not is_known:
        return memory, answer
    since = now if memory.missing_since is None else memory.missing_since
    left = CONFIRM_SECONDS - (now - since)
    if left <= 0:
        return memory, answer
    stated = ", ".join(point.ip or point.hostname for point in points)
    had = f"the Service has the address {stated}" if stated else "it had one"
    text = f"the cloud shows no load balancer of the Service, though {had}"
    return msgspec.structs.replace(memory, missing_since=since), Pending(
        left, f"{text}: the cloud is asked again"
    )


def is_gone(answer: DeleteAnswer) -> bool:
    """Tell whether nothing of the load balancer is left, or nothing was ours to delete."""
    return isinstance(answer, Done | ImplementedElsewhere)


def doubted(memory: Memory) -> Memory:
    """Return the memory once the cloud shows something else: the Service must be ensured."""
    return msgspec.structs.replace(memory, last=None)


def stated_ingress(
    verb: Ensure | UpdateHosts, answer: Ensured
) -> tuple[LoadBalancerIngress, ...] | None:
    """Return the ingress points for the status, or None to leave them as they are.

    `update_hosts` need not repeat the addresses: an empty answer does not take an address away.
    """
    if isinstance(verb, UpdateHosts) and not answer.ingress:
        return None
    return with_ip_mode(answer.ingress)


def with_ip_mode(ingress: tuple[LoadBalancerIngress, ...]) -> tuple[LoadBalancerIngress, ...]:
    """Set `ipMode`, which `ip` requires and a hostname forbids (KEP-1860)."""
    return tuple(
        msgspec.structs.replace(point, ip_mode=(point.ip_mode or IP_MODE_VIP) if point.ip else None)
        for point in ingress
    )


def _without_address(desired: LoadBalancer) -> LoadBalancer:
    """Return what is desired of a cloud that has not given the address in the Service's status."""
    ref = msgspec.structs.replace(desired.ref, last_ingress=())
    return msgspec.structs.replace(desired, ref=ref)


def _compare(
    service: Service, memory: Memory | None, desired: LoadBalancer, classes: Classes
) -> Verb:
    if not is_noted(service, classes):
        return Ensure(_without_address(desired) if is_moved(service, classes) else desired)
    if memory is None or memory.last is None:
        return Ensure(desired)
    present = fingerprint(desired, memory.written)
    if present.digest != memory.last.digest:
        return Ensure(desired, edited=True)
    if not _shows(service, memory):
        return Ensure(desired)
    return Nothing() if present == memory.last else UpdateHosts(desired)


def _shows(service: Service, memory: Memory) -> bool:
    """Tell whether finalizer, condition, annotations and status are as we left them."""
    annotations = service.metadata.annotations
    return (
        has_finalizer(service)
        and memory.condition is not None
        and is_shown(service, memory.condition)
        and all(annotations.get(name) == value for name, value in memory.written.items())
        and (
            memory.condition == ELSEWHERE
            or service.status.load_balancer.ingress == memory.ref.last_ingress
        )
    )


def withdrawn(memory: Memory) -> Memory:
    """Return the memory without the address, which leaves the status."""
    return msgspec.structs.replace(_showing(memory, ()), withdrawn=True)


def _showing(memory: Memory, ingress: tuple[LoadBalancerIngress, ...]) -> Memory:
    is_left = memory.withdrawn or not set(memory.ref.last_ingress).issubset(ingress)
    ref = msgspec.structs.replace(memory.ref, last_ingress=ingress)
    return msgspec.structs.replace(memory, ref=ref, withdrawn=is_left)


def _newest_ref(newest: LoadBalancerRef, memory: Memory | None) -> LoadBalancerRef:
    """Return the newest name, with the last address if the status was emptied meanwhile.

    The API server itself empties the status when the Service's type changes. Of a load balancer
    that has left an address the status may still show that one, until the next write succeeds.
    """
    if memory is None or (newest.last_ingress and not memory.withdrawn):
        return newest
    return msgspec.structs.replace(newest, last_ingress=memory.ref.last_ingress)


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()
