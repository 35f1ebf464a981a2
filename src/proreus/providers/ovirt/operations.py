"""The table of all requests that the provider may send to an engine; others are not sent.

The guide's table of rights is made from it, and what stands in for an engine in tests refuses
everything else.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

ANYONE: Final = "none"
READER: Final = "ReadOnlyAdmin"
"""The role of the engine that may log in and see everything, and change nothing."""


class Operation(msgspec.Struct, frozen=True):
    """A request: its method, its path below /ovirt-engine, and the role that it needs."""

    method: str
    path: str
    role: str


OPERATIONS: Final[Mapping[str, Operation]] = {
    "sso.token": Operation("POST", "/sso/oauth/token", ANYONE),
    "sso.revoke": Operation("POST", "/services/sso-logout", ANYONE),
    "api.get": Operation("GET", "/api", READER),
    "vms.list": Operation("GET", "/api/vms", READER),
    "vms.get": Operation("GET", "/api/vms/{id}", READER),
    "clusters.list": Operation("GET", "/api/clusters", READER),
    "datacenters.list": Operation("GET", "/api/datacenters", READER),
    "instancetypes.list": Operation("GET", "/api/instancetypes", READER),
}
"""Requests by the names that they have in logs and metrics."""
