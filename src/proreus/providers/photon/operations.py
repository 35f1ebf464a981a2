"""Name every request that is sent to Photon Controller, by the generation of its API. Pure.

The guide's table of rights is made from it, and the emulator in tests refuses everything else.
"""

from typing import Final

import msgspec

OPERATIONS: Final = {
    "auth.get": "/auth or /system/auth",
    "status.get": "/status or /system/status",
    "tenants.list": "/tenants",
    "projects.list": "/tenants/{id}/projects",
    "projects.get": "/projects/{id}",
    "vms.list": "/projects/{id}/vms",
    "vms.get": "/vms/{id}",
    "vms.networks": "/vms/{id}/subnets or /vms/{id}/networks",
    "tasks.get": "/tasks/{id}",
}
"""Requests by their names; all of them are GET."""


class Generation(msgspec.Struct, frozen=True):
    """A generation of the API: the prefix of its paths, and where its status and tokens are."""

    prefix: str
    status: str
    auth: str


GENERATIONS: Final = (
    Generation("/v1", "/v1/system/status", "/v1/system/auth"),
    Generation("/v1", "/v1/status", "/v1/auth"),
    Generation("", "/status", "/auth"),
)
"""From April 2017, from March 2017, and before: the newest one that answers is the right one."""

NETWORKS: Final = "subnets"
"""What the networks of a machine are called in paths since July 2016."""
FORMER_NETWORKS: Final = "networks"
"""What they were called before."""
