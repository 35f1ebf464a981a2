"""List the rights that the manager's service accounts need."""

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from proreus.app import readonly
from proreus.app.clouds.config import needs_of
from proreus.app.doctor.options import DoctorOptions
from proreus.app.election import locks
from proreus.app.rights import roles
from proreus.cloudprovider import CloudError, ConfigError
from proreus.controllers.table import select
from proreus.kube.client import Client
from proreus.kube.errors import KubeError


class Need(msgspec.Struct, frozen=True, order=True):
    """One verb on a resource (with its subresource), for an account of kube-system.

    `namespace` "" means all namespaces, `name` "" every object.
    """

    account: str
    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""


def needs(options: DoctorOptions, needed: frozenset[str]) -> tuple[Need, ...]:
    """Return the rights that the manager and its controllers' accounts need.

    Args:
        options: The flags.
        needed: The caches that the provider needs.
    """
    return tuple(sorted(set(_needs(options, needed))))


def _needs(options: DoctorOptions, needed: frozenset[str]) -> Iterator[Need]:
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
        needs=needed,
    )
    for role in all_roles:
        for rule in role.rules:
            for verb in rule.verbs:
                for name in rule.names or ("",):
                    yield Need(role.account, rule.group, rule.resource, verb, role.namespace, name)


async def needed_caches(options: DoctorOptions, client: Client) -> frozenset[str]:
    """Return the caches that the provider needs; none if the provider is unknown.

    If the cloud-config cannot be read, the caches that every cloud-config needs.
    """
    if not options.cloud_provider:
        return frozenset()
    try:
        return (await readonly.configured(options, client)).needs
    except (CloudError, KubeError):  # reported as a finding about the cloud
        with suppress(ConfigError):
            return needs_of(options.cloud_provider)
        return frozenset()
