"""List the rights that the manager's service accounts need. Pure but for the provider."""

from collections.abc import Iterator

import msgspec

from proreus.app.clouds.config import needs_of
from proreus.app.doctor.options import DoctorOptions
from proreus.app.election import locks
from proreus.app.rights import roles
from proreus.cloudprovider import ConfigError
from proreus.controllers.table import select


class Need(msgspec.Struct, frozen=True, order=True):
    """One verb on a resource (with its subresource), for an account of kube-system.

    `namespace` "" is all of them, `name` "" is every object.
    """

    account: str
    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""


def needs(options: DoctorOptions) -> tuple[Need, ...]:
    """Return the rights that the manager and its controllers' accounts need."""
    return tuple(sorted(set(_needs(options))))


def _needs(options: DoctorOptions) -> Iterator[Need]:
    chosen, _ = select(options.controllers)
    leases = locks(
        options.leader_elect_resource_name,
        chosen,
        None,
        per_controller=options.leader_elect_per_controller,
    )
    all_roles = roles(
        options,
        chosen=chosen,
        leases=[lease.name for lease in leases],
        needs=_caches(options),
    )
    for role in all_roles:
        for rule in role.rules:
            for verb in rule.verbs:
                for name in rule.names or ("",):
                    yield Need(role.account, rule.group, rule.resource, verb, role.namespace, name)


def _caches(options: DoctorOptions) -> frozenset[str]:
    """Return the caches that the provider needs; none if the provider is unknown."""
    if not options.cloud_provider:
        return frozenset()
    try:
        return needs_of(options.cloud_provider)
    except ConfigError:  # reported as a finding about the cloud
        return frozenset()
