"""The rights that the manager's own service account needs. Pure."""

from collections.abc import Iterator

import msgspec

from proreus.app.doctor.options import DoctorOptions
from proreus.controllers.table import select


class Need(msgspec.Struct, frozen=True, order=True):
    """One verb on a resource (with its subresource); `namespace` "" is all of them."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""


def needs(options: DoctorOptions) -> tuple[Need, ...]:
    """What the manager must be allowed, each once."""
    return tuple(sorted(set(_needs(options))))


def _needs(options: DoctorOptions) -> Iterator[Need]:
    yield Need("", "namespaces", "get", name="kube-system")
    if options.leader_elect:
        place = options.leader_elect_resource_namespace
        name = options.leader_elect_resource_name
        group = "coordination.k8s.io"
        yield Need(group, "leases", "create", place)
        for verb in ("get", "update"):
            yield Need(group, "leases", verb, place, name)
    if options.use_service_account_credentials:
        return  # the controllers have accounts of their own
    for controller in select(options.controllers)[0]:
        for rule in controller.rules:
            for verb in rule.verbs:
                yield Need(rule.group, rule.resource, verb)
