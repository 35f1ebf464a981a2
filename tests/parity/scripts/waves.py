"""All scripts, and which are played together."""

from typing import Final

from . import faults, hosts, lifecycle, nodes, routes, services
from .script import Wave

WAVES: Final = (
    Wave("lasting", routes.LASTING, lasting=True),
    Wave("nodes", (*nodes.SCRIPTS, *lifecycle.SCRIPTS, *routes.SCRIPTS), quick=True),
    Wave("services", services.SCRIPTS, nodes=2, quick=True),
    Wave("hosts", hosts.SCRIPTS, quick=True),
    *(Wave(one.name, (one,)) for one in (*lifecycle.APART, *faults.SCRIPTS)),
)
NAMES: Final = tuple(one.name for wave in WAVES for one in wave.scripts)
