"""What would be done to load balancers and their Services. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from proreus.app.preview.changes import Change
from proreus.cloudprovider import (
    CloudError,
    ClusterIdentity,
    LoadBalancer,
    LoadBalancers,
    NotSupported,
    OwnedObject,
    PartChange,
)
from proreus.cloudprovider.wanted import wanted
from proreus.controllers.service import answers, conditions, drift
from proreus.controllers.service.intake import Classes, has_finalizer, is_to_have
from proreus.controllers.service.plan import (
    Delete,
    Ensure,
    Refuse,
    UpdateHosts,
    Verb,
    decide,
)
from proreus.kube.objects import (
    FINALIZER_LOAD_BALANCER,
    EndpointSlice,
    Node,
    Service,
    key,
)
from proreus.kube.patch import Patch

Said = Sequence[PartChange] | CloudError
"""What the provider would change of one load balancer, or why it can not."""

_SIGNS = {"create": "+", "change": "~", "delete": "-"}


class Due(msgspec.Struct, frozen=True):
    """A Service and what it needs."""

    service: Service
    verb: Verb

    @property
    def wish(self) -> LoadBalancer | None:
        """What the provider is to be asked about."""
        return self.verb.wanted if isinstance(self.verb, Ensure | UpdateHosts) else None


def due(
    services: Iterable[Service],
    nodes: Sequence[Node],
    slices: Iterable[EndpointSlice],
    *,
    cloud: LoadBalancers,
    owned: Sequence[OwnedObject] | None,
    cluster: ClusterIdentity,
    classes: Classes,
) -> tuple[Due, ...]:
    """Decide as the controller does after a restart.

    Args:
        services: All of them.
        nodes: As they will be.
        slices: All EndpointSlices, where the provider needs them.
        cloud: For its hooks without I/O.
        owned: What the cloud lists as ours; None if it cannot list.
        cluster: Which cluster this is.
        classes: Which classes are ours.
    """
    by_slices = tuple(slices)
    shown = None if owned is None else drift.shown(owned)
    found = []
    for service in services:
        wish = _wish(service, nodes, by_slices, cloud=cloud, cluster=cluster, classes=classes)
        memory = None
        if isinstance(wish, LoadBalancer) and shown is not None:
            memory = drift.adopted(wish, cloud.fingerprint(wish), shown)
        verb = decide(service, memory, wish, cluster=cluster, classes=classes)
        found.append(Due(service, verb))
    return tuple(found)


def _wish(
    service: Service,
    nodes: Sequence[Node],
    slices: Sequence[EndpointSlice],
    *,
    cloud: LoadBalancers,
    cluster: ClusterIdentity,
    classes: Classes,
) -> LoadBalancer | CloudError | None:
    if not is_to_have(service, classes):
        return None
    try:
        return wanted(service, nodes, cloud.host_policy(service), cluster, slices)
    except CloudError as exc:
        return exc


def changes(
    all_due: Iterable[Due],
    said: Mapping[str, Said],
    owned: Sequence[OwnedObject] | None,
    now: datetime,
) -> Iterator[Change]:
    """What the verbs change in the cloud and on the Services.

    Args:
        all_due: What is to be done.
        said: The provider's previews by uid; without one it cannot say.
        owned: What the cloud lists as ours; None if it cannot list.
        now: The time for conditions.
    """
    for one in all_due:
        match one.verb:
            case Ensure() | UpdateHosts():
                yield from _ensured(one.service, one.verb, said.get(one.verb.wanted.ref.uid), now)
            case Refuse(error):
                told = answers.refuse(one.service, error, now)
                yield from _service(one.service, _conditions(told.status))
            case Delete(ref):
                yield from _deleted(one.service, ref.uid, owned)


def unforeseen(all_due: Iterable[Due], said: Mapping[str, Said]) -> Iterator[str]:
    """The load balancers of which the provider cannot say what it would change."""
    for one in all_due:
        if one.wish is not None and isinstance(said.get(one.wish.ref.uid), NotSupported | None):
            yield (
                f"load-balancer/{key(one.service)} is ensured; the provider cannot say what that "
                "changes"
            )


def _ensured(
    service: Service, verb: Ensure | UpdateHosts, said: Said | None, now: datetime
) -> Iterator[Change]:
    if isinstance(said, CloudError) and not isinstance(said, NotSupported):
        told = answers.after_ensure(service, said, now, verb=verb)
        yield from _service(service, (*_finalizer(service), *_conditions(told.status)))
        return
    parts = () if said is None or isinstance(said, NotSupported) else said
    if parts:
        is_new = all(one.action == "create" for one in parts)
        yield Change(
            f"load-balancer/{key(service)}",
            "create" if is_new and not service.status.load_balancer.ingress else "change",
            tuple(_line(one) for one in parts),
        )
    state = conditions.to_say(service, conditions.readiness(verb.wanted.hosts, {}), now)
    was = conditions.said(service)
    if said is parts and not parts and was and was.reason == conditions.Reason.HOSTS_REJECTED:
        state = None  # A preview tells nothing of rejected hosts: those of before are so still.
    lines = list(_finalizer(service))
    if state is not None:
        lines.append(f"~ condition {state.type}={state.status} ({state.reason}): {state.message}")
    if not service.status.load_balancer.ingress:
        lines.append("+ status.loadBalancer: the address that the cloud gives")
    yield from _service(service, lines)


def _deleted(service: Service, uid: str, owned: Sequence[OwnedObject] | None) -> Iterator[Change]:
    parts = tuple(f"- {one.kind} {one.id}" for one in owned or () if one.service_uid == uid)
    if parts or owned is None:
        yield Change(f"load-balancer/{key(service)}", "delete", parts)
    if has_finalizer(service):
        yield from _service(service, (f"- finalizer {FINALIZER_LOAD_BALANCER}",))


def _service(service: Service, lines: Sequence[str]) -> Iterator[Change]:
    if lines:
        yield Change(f"service/{key(service)}", "change", tuple(lines))


def _finalizer(service: Service) -> tuple[str, ...]:
    return () if has_finalizer(service) else (f"+ finalizer {FINALIZER_LOAD_BALANCER}",)


def _conditions(patch: Patch | None) -> tuple[str, ...]:
    status = patch.body.get("status", {}) if patch else {}
    return tuple(
        f"~ condition {one['type']}={one['status']} ({one['reason']}): {one['message']}"
        for one in status.get("conditions", ())
        if "status" in one
    )


def _line(part: PartChange) -> str:
    detail = f": {part.detail}" if part.detail else ""
    return f"{_SIGNS[part.action]} {part.part}{detail}"
