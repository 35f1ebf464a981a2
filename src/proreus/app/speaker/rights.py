"""Declare what speakers ask of the API server: they read, and write nothing."""

from typing import Final

from proreus.app.rights import Role
from proreus.controllers.table import Rule

NAME: Final = "proreus-bgp-speaker"
"""The name of the speakers' service account and role."""

ROLE: Final = Role(
    NAME,
    NAME,
    (
        Rule("", "nodes", ("get", "list", "watch")),
        Rule("", "services", ("get", "list", "watch")),
        Rule("discovery.k8s.io", "endpointslices", ("get", "list", "watch")),
    ),
)
"""Their role."""
