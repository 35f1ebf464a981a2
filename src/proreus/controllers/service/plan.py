"""What a Service needs of the cloud: the verbs, and the decision between them. Pure."""

import hashlib
from collections.abc import Collection, Mapping

import msgspec

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
)
from proreus.cloudprovider.wanted import ref
from proreus.controllers.service.conditions import ELSEWHERE, Says, is_said, readiness
from proreus.controllers.service.intake import (
    AS_GO,
    Classes,
    has_finalizer,
    is_to_have,
    needs_cleanup,
)
from proreus.kube.objects import LoadBalancerIngress, ObjectMeta, Service

IP_MODE_VIP = "VIP"
CONFIRM_SECONDS = 10.0
"""A cloud must show nothing of a load balancer for so long, if the Service has its address."""

# kubectl's own copy of the object: it repeats the spec and changes with labels too.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Fingerprint(msgspec.Struct, frozen=True):
    """What one wish is told from another by: a digest of all but its hosts, and the hosts.

    The hosts are shared by many Services, so keeping them costs less than a digest.
    """

    wish: str
    hosts: tuple[Host, ...]
    endpoints: tuple[EndpointTarget, ...]


class Memory(msgspec.Struct, frozen=True):
    """What this process knows of a load balancer that it has asked the cloud for.

    `last` is the wish last fulfilled, or None if none was or the outcome is unknown; `written`
    the annotations that we set on the Service because the cloud asked for them, `says` what its
    condition is to say. A write that was lost shows by the Service not agreeing with these.
    `asked` are the hosts last asked for, whatever came of it, or None. `missed` is the time in
    seconds since which `delete` finds nothing of it, or None.
    """

    ref: LoadBalancerRef
    last: Fingerprint | None = None
    written: Mapping[str, str] = {}
    says: Says | None = None
    asked: tuple[Host, ...] | None = None
    missed: float | None = None


class Ensure(msgspec.Struct, frozen=True):
    """Call `ensure`; `edited`: because the wish differs from the one last fulfilled."""

    wanted: LoadBalancer
    edited: bool = False


class UpdateHosts(msgspec.Struct, frozen=True):
    """Call `update_hosts`: nothing but the hosts differs."""

    wanted: LoadBalancer


class Refuse(msgspec.Struct, frozen=True):
    """Call nothing: no wish can be made, and the Service is told why."""

    error: CloudError


class Delete(msgspec.Struct, frozen=True):
    """Call `delete`. The key has to be planned again after it, as there may be a new Service."""

    ref: LoadBalancerRef


class Nothing(msgspec.Struct, frozen=True):
    """Everything is right."""


Verb = Ensure | UpdateHosts | Refuse | Delete | Nothing


def decide(
    service: Service | None,
    memory: Memory | None,
    wanted: LoadBalancer | CloudError | None,
    *,
    cluster: ClusterIdentity,
    classes: Classes = AS_GO,
) -> Verb:
    """Decide what a Service needs now.

    Args:
        service: The newest object, or None if it is gone.
        memory: What is known of the load balancer of this key, also of a former Service.
        wanted: The wish for `service`; None while it cannot be computed or is not wanted.
        cluster: For the name of a load balancer that is not remembered.
        classes: Which classes are ours.
    """
    if memory and (service is None or service.metadata.uid != memory.ref.uid):
        # The former Service comes first: its load balancer may hold ports and addresses.
        return Delete(msgspec.structs.replace(memory.ref, service=None))
    if service is None:
        return Nothing()
    if not is_to_have(service, classes):
        is_due = memory is not None or needs_cleanup(service, classes)
        return Delete(_newest_ref(ref(service, cluster), memory)) if is_due else Nothing()
    if isinstance(wanted, CloudError):
        return Refuse(wanted)
    return _compare(service, memory, wanted) if wanted else Nothing()


def fingerprint(wanted: LoadBalancer, written: Collection[str] = ()) -> Fingerprint:
    """Digest a wish.

    Of the Service count its identity, spec and annotations without the keys in `written`; its
    version, labels, finalizers and status change without anybody asking for anything else.
    """
    meta = wanted.service.metadata
    annotations = {
        name: value
        for name, value in meta.annotations.items()
        if name not in written and name != _LAST_APPLIED
    }
    asked = Service(
        metadata=ObjectMeta(
            name=meta.name, namespace=meta.namespace, uid=meta.uid, annotations=annotations
        ),
        spec=wanted.service.spec,
    )
    wish = msgspec.structs.replace(
        wanted,
        ref=msgspec.structs.replace(wanted.ref, last_ingress=(), service=None),
        service=asked,
        hosts=(),
        endpoints=(),
    )
    return Fingerprint(_digest(wish), wanted.hosts, wanted.endpoints)


def begun(memory: Memory | None, verb: Ensure | UpdateHosts | Delete) -> Memory:
    """What is known once the cloud is asked: there may be parts, so the name must be kept.

    Until an answer says otherwise the outcome is unknown, so the next verb is no `UpdateHosts`.
    """
    written = memory.written if memory else {}
    if isinstance(verb, Delete):
        return Memory(verb.ref, None, written, missed=memory.missed if memory else None)
    newest = _newest_ref(verb.wanted.ref, memory)
    return Memory(newest, None, written, asked=verb.wanted.hosts)


def after(memory: Memory, verb: Ensure | UpdateHosts, answer: EnsureAnswer) -> Memory:
    """What is known after the answer; `memory` is what `begun` gave.

    An answer that is no success leaves the outcome open.
    """
    if isinstance(answer, ImplementedElsewhere):
        return Memory(memory.ref, fingerprint(verb.wanted), {}, ELSEWHERE, memory.asked)
    if not isinstance(answer, Ensured):
        return memory
    written = dict(answer.annotations)
    if isinstance(verb, UpdateHosts):
        written = {**memory.written, **written}
    ingress = stated_ingress(verb, answer)
    return Memory(
        memory.ref
        if ingress is None
        else msgspec.structs.replace(memory.ref, last_ingress=ingress),
        fingerprint(verb.wanted, written),
        written,
        readiness(verb.wanted.hosts, answer.rejected),
        memory.asked,
    )


def has_new_hosts(memory: Memory | None, wanted: LoadBalancer) -> bool:
    """Whether the hosts differ from those last asked for.

    If not, a change of nodes is none for this load balancer, and must not cut the backoff of
    one that fails.
    """
    return memory is None or memory.asked != wanted.hosts


def believed(memory: Memory, answer: DeleteAnswer, now: float) -> tuple[Memory, DeleteAnswer]:
    """What is known after an answer to `delete`, and what that answer is taken for.

    A Service that has an address has had a load balancer. A listing without it may lag or lie, so
    there must be two, and time between them.

    Args:
        memory: What `begun` gave.
        answer: The provider's.
        now: In seconds, of any clock that only goes forward.
    """
    if not isinstance(answer, Done) or answer.found or not memory.ref.last_ingress:
        return memory, answer
    since = now if memory.missed is None else memory.missed
    left = CONFIRM_SECONDS - (now - since)
    if left <= 0:
        return memory, answer
    stated = ", ".join(point.ip or point.hostname for point in memory.ref.last_ingress)
    text = f"the cloud shows nothing of it, though the Service has the address {stated}"
    return msgspec.structs.replace(memory, missed=since), Pending(left, f"{text}: looking again")


def is_gone(answer: DeleteAnswer) -> bool:
    """Whether nothing of the load balancer is left, or nothing of it was ours to delete."""
    return isinstance(answer, Done | ImplementedElsewhere)


def doubted(memory: Memory) -> Memory:
    """What is known once the cloud shows something else than the wish: it is to be ensured."""
    return msgspec.structs.replace(memory, last=None)


def stated_ingress(
    verb: Ensure | UpdateHosts, answer: Ensured
) -> tuple[LoadBalancerIngress, ...] | None:
    """The ingress points for the status, or None to leave them as they are.

    `update_hosts` need not repeat them: an empty answer does not take the address away.
    """
    if isinstance(verb, UpdateHosts) and not answer.ingress:
        return None
    return with_ip_mode(answer.ingress)


def with_ip_mode(ingress: tuple[LoadBalancerIngress, ...]) -> tuple[LoadBalancerIngress, ...]:
    """The ingress points with `ipMode`, required with `ip` and forbidden without (KEP-1860)."""
    return tuple(
        msgspec.structs.replace(point, ip_mode=(point.ip_mode or IP_MODE_VIP) if point.ip else None)
        for point in ingress
    )


def _compare(service: Service, memory: Memory | None, wanted: LoadBalancer) -> Verb:
    if memory is None or memory.last is None:
        return Ensure(wanted)
    present = fingerprint(wanted, memory.written)
    if present.wish != memory.last.wish:
        return Ensure(wanted, edited=True)
    if not _shows(service, memory):
        return Ensure(wanted)
    return Nothing() if present == memory.last else UpdateHosts(wanted)


def _shows(service: Service, memory: Memory) -> bool:
    """Whether finalizer, condition, annotations and status are as we left them."""
    annotations = service.metadata.annotations
    return (
        has_finalizer(service)
        and memory.says is not None
        and is_said(service, memory.says)
        and all(annotations.get(name) == value for name, value in memory.written.items())
        and (
            memory.says == ELSEWHERE
            or service.status.load_balancer.ingress == memory.ref.last_ingress
        )
    )


def _newest_ref(newest: LoadBalancerRef, memory: Memory | None) -> LoadBalancerRef:
    """The newest name; a status that was emptied meanwhile does not lose the last address.

    The API server itself empties it when the Service's type changes.
    """
    if memory is None or newest.last_ingress:
        return newest
    return msgspec.structs.replace(newest, last_ingress=memory.ref.last_ingress)


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()
