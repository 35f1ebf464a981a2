"""Convert Nova's description of a server to Kubernetes' terms. Pure."""

from collections.abc import Mapping
from typing import Any

from proreus.cloudprovider.instances import InstanceState
from proreus.cloudprovider.names import LABEL_VALUE

Described = Mapping[str, Any]
"""An object as a service of OpenStack describes it."""

_STATES = {
    "DELETED": InstanceState.TERMINATING,
    "SHUTOFF": InstanceState.STOPPED,
    "SOFT_DELETED": InstanceState.TERMINATING,
    "UNKNOWN": InstanceState.UNKNOWN,
}
"""All others count as running, as officially: a paused or a rebooting server is no stopped one."""
_POWER, _TASK = "OS-EXT-STS:power_state", "OS-EXT-STS:task_state"
_SHUTDOWN = 4
"""Nova's number for a hypervisor that has no power for a server."""


def id_of(described: Described) -> str:
    """Return the id of an object of OpenStack."""
    return str(described["id"])


def state_of(server: Described) -> InstanceState:
    """Return the state of a server."""
    return _STATES.get(str(server.get("status", "")).upper(), InstanceState.RUNNING)


def is_powered_off(server: Described) -> bool:
    """Tell whether a server is shut off, its hypervisor says so too, and no task goes on.

    A policy of Nova, `os_compute_api:os-extended-status`, may hide the last two. Then nobody knows:
    a server that is being started is `SHUTOFF` until its host has said more.
    """
    if state_of(server) is not InstanceState.STOPPED or not {_POWER, _TASK} <= server.keys():
        return False
    return server[_POWER] == _SHUTDOWN and not server[_TASK]


def flavor_of(server: Described) -> tuple[str, str]:
    """Return the name of a server's flavor where Nova tells it, else "", and its id."""
    flavor = server.get("flavor") or {}
    return str(flavor.get("original_name") or ""), str(flavor.get("id") or "")


def type_of(name: str, id_: str) -> str:
    """Return the instance type: the flavor's name, or its id if no label can have that name."""
    if name and LABEL_VALUE.fits(name):
        return name
    return id_ if id_ and LABEL_VALUE.fits(id_) else LABEL_VALUE.clean(name or id_)
