"""Print the roles of a manager with the same flags, as YAML: the command `proreus roles`."""

from collections.abc import Sequence
from typing import Any, Final

import yaml

from proreus.app import command_line, ending, flags, migration
from proreus.app.clouds.config import rights_of
from proreus.app.election import locks
from proreus.app.options import Options
from proreus.app.rights import manifests, roles
from proreus.cloudprovider import ConfigError
from proreus.controllers.table import select

PROGRAM: Final = "proreus roles"
DESCRIPTION: Final = """\
Print the service accounts, roles and bindings that the manager needs with these flags, as YAML
for kubectl apply. Without --cloud-provider they suffice for any provider; without a
--cloud-config that can be read here, for any cloud-config."""


def main(argv: Sequence[str]) -> int:
    """Print the manifests; return the exit code, 2 for a wrong command line."""
    try:
        found = objects(command_line.parse(Options, argv, PROGRAM, DESCRIPTION).options)
    except (flags.FlagError, ConfigError) as exc:
        return ending.refused(PROGRAM, exc.problems, 2)
    print(yaml.safe_dump_all(found, sort_keys=False), end="")
    return 0


def objects(options: Options, **more: Any) -> list[dict[str, Any]]:
    """Return the manifests for a manager with these flags; `more` is for `rights.manifests`.

    Raises:
        FlagError: --controllers or --cloud-config-secret is wrong.
        ConfigError: There is no such provider, or the leader migration cannot be read.
    """
    chosen, problems = select(options.controllers)
    place = options.cloud_config_secret
    if place and place.count("/") != 2:  # noqa: PLR2004 - namespace/name/key
        problems += (f"--cloud-config-secret: {place!r} is not namespace/name/key",)
    if problems:
        raise flags.FlagError(list(problems))
    moved = None
    if options.enable_leader_migration:
        moved = migration.load(options.leader_migration_config)
    leases = locks(
        options.leader_elect_resource_name,
        chosen,
        moved,
        per_controller=options.leader_elect_per_controller,
    )
    provider = {}
    if options.cloud_provider:
        provider = {"needs": rights_of(options)}
    names = [lease.name for lease in leases]
    return manifests(roles(options, chosen=chosen, leases=names, **provider), **more)
