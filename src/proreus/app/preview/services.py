"""Preview the changes of load balancers and their Services. Pure."""

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
from proreus.cloudprovider.desired import desired_load_balancer
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

Previewed = Sequence[PartChange] | CloudError
"""The changes that the provider previews for one load balancer, or why it cannot."""

_SIGNS = {"create": "+", "change": "~", "delete": "-"}


class Due(msgspec.Struct, frozen=True):
    """A Service and the verb that it needs."""

    service: Service
    verb: Verb

    @property
    def desired(self) -> LoadBalancer | None:
        """The load balancer to preview, if the verb has one."""
        return self.verb.desired if isinstance(self.verb, Ensure | UpdateHosts) else None


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

    Recorded fingerprints are not believed: a preview finds out what somebody has changed by hand,
    and only reads.

    Args:
        services: All Services.
        nodes: The nodes as they will be.
        slices: All EndpointSlices, where the provider needs them.
        cloud: The provider's load balancers, for hooks without I/O.
        owned: The cloud objects with our marks; None if the cloud cannot list them.
        cluster: Which cluster this is.
        classes: The load balancer classes that are ours.
    """
    by_slices = tuple(slices)
    observed = None if owned is None else drift.fingerprints(owned, drift.EVERY_TURN)
    result = []
    for service in services:
        desired = _desired(service, nodes, by_slices, cloud=cloud, cluster=cluster, classes=classes)
        memory = None
        if isinstance(desired, LoadBalancer) and observed is not None:
            memory = drift.adopted(desired, cloud.fingerprint(desired), observed)
        verb = decide(service, memory, desired, cluster=cluster, classes=classes)
        result.append(Due(service, verb))
    return tuple(result)


def _desired(
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
        return desired_load_balancer(service, nodes, cloud.host_policy(service), cluster, slices)
    except CloudError as exc:
        return exc


def changes(
    all_due: Iterable[Due],
    previews: Mapping[str, Previewed],
    owned: Sequence[OwnedObject] | None,
    now: datetime,
) -> Iterator[Change]:
    """Return what the verbs change in the cloud and on the Services.

    Args:
        all_due: The work that is due for each Service.
        previews: The provider's previews by uid; a Service without one cannot be shown in detail.
        owned: The cloud objects with our marks; None if the cloud cannot list them.
        now: The time for conditions.
    """
    for item in all_due:
        match item.verb:
            case Ensure() | UpdateHosts():
                yield from _ensured(
                    item.service, item.verb, previews.get(item.verb.desired.ref.uid), now
                )
            case Refuse(error):
                change = answers.refuse(item.service, error, now)
                yield from _service(item.service, _conditions(change.status))
            case Delete(ref):
                yield from _deleted(item.service, ref.uid, owned)


def unforeseen(all_due: Iterable[Due], previews: Mapping[str, Previewed]) -> Iterator[str]:
    """Name the load balancers for which the provider has no preview."""
    for item in all_due:
        if item.desired is not None and isinstance(
            previews.get(item.desired.ref.uid), NotSupported | None
        ):
            yield (
                f"load-balancer/{key(item.service)} is ensured; the provider cannot say what that "
                "changes"
            )


def _ensured(
    service: Service, verb: Ensure | UpdateHosts, preview: Previewed | None, now: datetime
) -> Iterator[Change]:
    if isinstance(preview, CloudError) and not isinstance(preview, NotSupported):
        change = answers.after_ensure(service, preview, now, verb=verb)
        yield from _service(service, (*_finalizer(service), *_conditions(change.status)))
        return
    parts = () if preview is None or isinstance(preview, NotSupported) else preview
    if parts:
        is_new = all(part.action == "create" for part in parts)
        yield Change(
            f"load-balancer/{key(service)}",
            "create" if is_new and not service.status.load_balancer.ingress else "change",
            tuple(_line(part) for part in parts),
        )
    state = conditions.condition_to_write(
        service, conditions.readiness(verb.desired.hosts, {}), now
    )
    before = conditions.current_condition(service)
    if (
        preview is parts
        and not parts
        and before
        and before.reason == conditions.Reason.HOSTS_REJECTED
    ):
        state = None  # A preview tells nothing of rejected hosts: those of before are so still.
    lines = list(_finalizer(service))
    if state is not None:
        lines.append(f"~ condition {state.type}={state.status} ({state.reason}): {state.message}")
    if not service.status.load_balancer.ingress:
        lines.append("+ status.loadBalancer: the address that the cloud gives")
    yield from _service(service, lines)


def _deleted(service: Service, uid: str, owned: Sequence[OwnedObject] | None) -> Iterator[Change]:
    parts = tuple(f"- {obj.kind} {obj.id}" for obj in owned or () if obj.service_uid == uid)
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
        f"~ condition {entry['type']}={entry['status']} ({entry['reason']}): {entry['message']}"
        for entry in status.get("conditions", ())
        if "status" in entry
    )


def _line(part: PartChange) -> str:
    detail = f": {part.detail}" if part.detail else ""
    return f"{_SIGNS[part.action]} {part.part}{detail}"
