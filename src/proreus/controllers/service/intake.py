"""Decide which Services are ours, and which events can change anything for them. Pure.

The predicates are those of the Go service controller, but for three points: classes may be
owned by flag, a Service of somebody else's class is never cleaned up, and an object that goes
on needing cleanup is not enqueued again by each of its updates (that would defeat the backoff).
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from proreus.cloudprovider.desired import LABEL_SERVICE_NAME, hosts, is_host
from proreus.cloudprovider.load_balancers import Host, HostPolicy
from proreus.controllers.service.conditions import CONDITION, Reason, current_reason
from proreus.controllers.settings import Settings
from proreus.kube.objects import FINALIZER_LOAD_BALANCER, EndpointSlice, Node, Service, condition

TYPE_LOAD_BALANCER = "LoadBalancer"

SLICES_BY_SERVICE = "service"
"""The name of the index of EndpointSlices by the key of their Service."""

QUIET_SECONDS: Final = 0.75
"""Seconds without a node change after which the changes are handled."""

QUIET_LIMIT: Final = 10.0
"""Seconds after the first node change after which the changes are handled in any case."""

ANNOTATION_CLOUD_IN_USE: Final = "proreus.io/cloud-in-use"
"""The annotation that names the cloud of a Service's load balancer, where there are several.

It is set before the finalizer, and goes after it.
"""

UNDECIDED: Final = "undecided"
"""The name of what answers for nodes and Services that no single cloud is responsible for."""

CONDITION_CLOUD: Final = "LoadBalancerCloud"
"""The condition of a Service whose message names that cloud, too."""

_ANY_HOST = HostPolicy()


class Classes(msgspec.Struct, frozen=True):
    """The values of `spec.loadBalancerClass` that are ours; `classless`: also Services without.

    `left_finalizers` are those of the official manager, which go with ours. `cloud` is the name of
    the cloud where there are several.
    """

    owned: frozenset[str] = frozenset()
    classless: bool = True
    left_finalizers: tuple[str, ...] = ()
    cloud: str = ""


def classes_of(
    settings: Settings, left_finalizers: tuple[str, ...] = (), cloud: str = ""
) -> Classes:
    """Return the classes that the settings name, with the finalizers that go with ours."""
    owned = frozenset(settings.load_balancer_classes)
    return Classes(owned, settings.classless_load_balancers, left_finalizers, cloud)


AS_GO = Classes()
"""The default, as in Go: only Services without a class."""


def wants(service: Service, classes: Classes = AS_GO) -> bool:
    """Tell whether the spec asks us for a load balancer; true also while being deleted."""
    return service.spec.type == TYPE_LOAD_BALANCER and _is_our_class(service, classes)


def is_to_have(service: Service, classes: Classes = AS_GO) -> bool:
    """Tell whether the Service should have a load balancer now and is not being deleted."""
    return service.metadata.deletion_timestamp is None and wants(service, classes)


def is_of_others(service: Service, classes: Classes = AS_GO) -> bool:
    """Tell whether another implementation serves the Service now, and so owns its status."""
    return service.spec.type == TYPE_LOAD_BALANCER and not wants(service, classes)


def has_finalizer(service: Service) -> bool:
    """Tell whether our finalizer keeps the Service until its load balancer is gone."""
    return FINALIZER_LOAD_BALANCER in service.metadata.finalizers


def cloud_in_status(service: Service) -> str:
    """Return the cloud that the Service's status names, which its owner cannot write; or ""."""
    found = condition(service.status.conditions, CONDITION_CLOUD)
    return found.message if found is not None else ""


def noted_cloud(service: Service) -> str:
    """Return the cloud that the Service's status names, or else its annotation; or ""."""
    return cloud_in_status(service) or service.metadata.annotations.get(ANNOTATION_CLOUD_IN_USE, "")


def is_recorded(service: Service, classes: Classes) -> bool:
    """Tell whether the Service says that it is this cloud's; with one cloud it need not."""
    annotation = service.metadata.annotations.get(ANNOTATION_CLOUD_IN_USE)
    return classes.cloud in {"", annotation, cloud_in_status(service)}


def is_moved(service: Service, classes: Classes) -> bool:
    """Tell whether the address in the status is of another of several clouds: no proof in ours."""
    return bool(classes.cloud) and cloud_in_status(service) not in {"", classes.cloud}


def is_noted(service: Service, classes: Classes) -> bool:
    """Tell whether annotation and status both say so."""
    annotation = service.metadata.annotations.get(ANNOTATION_CLOUD_IN_USE)
    return not classes.cloud or classes.cloud == annotation == cloud_in_status(service)


def needs_cleanup(service: Service, classes: Classes = AS_GO) -> bool:
    """Tell whether the Service's finalizer waits for us, or an address that nobody else takes away.

    Other implementations use the same finalizer: on a Service of their class it is theirs. Where it
    was taken from a Service that is being deleted, and something else keeps that, its status would
    show the address for as long, whatever cloud it is of.
    """
    is_going = service.metadata.deletion_timestamp is not None and wants(service, classes)
    if has_finalizer(service):
        return is_going or service.spec.type != TYPE_LOAD_BALANCER
    return is_going and bool(service.status.load_balancer.ingress)


def needs_update(old: Service | None, new: Service | None, classes: Classes = AS_GO) -> bool:
    """Tell whether the event may need a verb; `old` None is an add, `new` None a removal."""
    if old is None or new is None:
        present = new or old
        return present is not None and (wants(present, classes) or needs_cleanup(present, classes))
    if needs_cleanup(old, classes) != needs_cleanup(new, classes):
        return True
    if wants(old, classes) != wants(new, classes):
        return True
    return wants(new, classes) and (_desires_other(old, new) or _lost_something(old, new))


def nodes_changed(old: Node | None, new: Node | None) -> bool:
    """Tell whether the event can change the hosts of any Service, whatever its policy.

    Heartbeats cannot, nor can any change of a node that is no host before and after.
    """
    if old is not None and new is not None and _read_of_hosts(old) == _read_of_hosts(new):
        return False
    before, after = _is_any_host(old), _is_any_host(new)
    return before != after or (after and _as_host(old) != _as_host(new))


def service_keys(slice_: EndpointSlice) -> tuple[str, ...]:
    """Return the key of the Service that an EndpointSlice belongs to, if any."""
    name = slice_.metadata.labels.get(LABEL_SERVICE_NAME)
    return (f"{slice_.metadata.namespace}/{name}",) if name else ()


def slices_by_service(slices: Iterable[EndpointSlice]) -> dict[str, list[EndpointSlice]]:
    """Return EndpointSlices by the keys of their Services."""
    found: dict[str, list[EndpointSlice]] = {}
    for one in slices:
        for key in service_keys(one):
            found.setdefault(key, []).append(one)
    return found


def quiet_time(since_first: float, *, is_urgent: bool) -> float:
    """Return the seconds to wait for more node changes, `since_first` after the first.

    There is no wait at all while a Service `is_urgent`: it has no host, so waiting prolongs an
    outage.
    """
    return 0.0 if is_urgent else max(0.0, min(QUIET_SECONDS, QUIET_LIMIT - since_first))


def is_hostless(service: Service) -> bool:
    """Tell whether the Service's load balancer exists but has no host yet."""
    return current_reason(service) == Reason.NO_HOSTS


def _is_our_class(service: Service, classes: Classes) -> bool:
    name = service.spec.load_balancer_class
    return classes.classless if name is None else name in classes.owned


def _desires_other(old: Service, new: Service) -> bool:
    """Tell whether the desired load balancer may differ; labels do not count, as in Go."""
    return (
        old.spec != new.spec
        or old.metadata.annotations != new.metadata.annotations
        or old.metadata.uid != new.metadata.uid
        or (old.metadata.deletion_timestamp is None) != (new.metadata.deletion_timestamp is None)
    )


def _lost_something(old: Service, new: Service) -> bool:
    """Tell whether somebody removed what we wrote: finalizer, condition or an address."""
    present = new.status.load_balancer.ingress
    return (
        (has_finalizer(old) and not has_finalizer(new))
        or any(ingress not in present for ingress in old.status.load_balancer.ingress)
        or (_has_condition(old) and not _has_condition(new))
    )


def _has_condition(service: Service) -> bool:
    return condition(service.status.conditions, CONDITION) is not None


def _read_of_hosts(node: Node) -> tuple[object, ...]:
    """Return the fields of a node that `hosts` reads; most events leave them as they were."""
    meta = node.metadata
    return (
        meta.name,
        meta.deletion_timestamp,
        meta.labels,
        node.spec.provider_id,
        node.spec.taints,
        node.status.addresses,
    )


def _is_any_host(node: Node | None) -> bool:
    return node is not None and is_host(node, _ANY_HOST.selector)


def _as_host(node: Node | None) -> tuple[tuple[Host, ...], object]:
    """Return a host as any policy could see it; equal values give equal hosts."""
    selected = hosts((node,), _ANY_HOST, _ANY_HOST.families) if node is not None else ()
    return selected, node.metadata.labels if node is not None else None
