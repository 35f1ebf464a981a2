"""Convert BCC's description of a machine to Kubernetes' terms. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from proreus.cloudprovider.addresses import is_address
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import Instance, InstanceState
from proreus.cloudprovider.names import LABEL_VALUE
from proreus.kube.objects import NodeAddress
from proreus.providers.baidu.names import provider_id

DELETED: Final = "Deleted"
"""The state of a machine that is released for good."""
GONE: Final = frozenset({DELETED, "Recycled"})
"""States of machines that are released, or in the recycle bin."""

LABEL_BARE_METAL: Final = "baidu.proreus/bare-metal"
"""The label of Nodes whose machines BBC shows: their ids look like those of BCC."""
_IS_BARE_METAL: Final = "isBareMetal"

_STATES: Final[Mapping[str, InstanceState]] = {
    "Stopped": InstanceState.STOPPED,
    "Expired": InstanceState.STOPPED,
    "Recycled": InstanceState.TERMINATING,
    DELETED: InstanceState.TERMINATING,
    "Error": InstanceState.UNKNOWN,
}
"""All others count as running: one that starts, stops or is resized has not stopped yet. One that
is expired is off until it is paid for; one in the recycle bin can be taken out of it."""
_ZONE: Final = re.compile(r"[a-z]{2}-[a-z0-9]+-([a-z])")
_GPU: Final = "9"
"""The type of machines with GPUs; the official manager knows no other."""


def bare_metal(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return BBC's description of a machine in the terms of BCC's; it names no VPC."""
    kept = {key: described.get(key) for key in ("id", "name", "hostname", "status", "internalIp")}
    known = {"zoneName": described.get("zone"), "spec": described.get("flavorId")}
    return {**kept, **known, _IS_BARE_METAL: True}


def instance(machine: Mapping[str, Any], *, region: str, known_as: str) -> Instance | CloudError:
    """Make the framework's `Instance` from the description of a machine.

    Args:
        machine: The machine as BCC describes it.
        region: The region of the cloud-config.
        known_as: The Node's provider id, "" if it has none; it may be a bare id.
    """
    address = str(machine.get("internalIp") or "")
    if not is_address(address):
        return CloudError(
            f"the machine {machine.get('name', '')} ({machine.get('id')}) has no private address"
            " yet"
        )
    return Instance(
        provider_id=known_as or provider_id(str(machine["id"])),
        name=str(machine.get("hostname") or machine.get("name") or ""),
        instance_type=type_of(machine),
        zone=zone_of(str(machine.get("zoneName") or "")),
        region=LABEL_VALUE.clean(region),
        addresses=(NodeAddress("InternalIP", address), NodeAddress("Hostname", address)),
        additional_labels={LABEL_BARE_METAL: "true"} if machine.get(_IS_BARE_METAL) else {},
        state=state_of(machine),
        powered_off=machine.get("status") == "Stopped",
    )


def state_of(machine: Mapping[str, Any]) -> InstanceState:
    """Return the state of a machine."""
    return _STATES.get(str(machine.get("status") or ""), InstanceState.RUNNING)


def type_of(machine: Mapping[str, Any]) -> str:
    """Return the instance type: the specification, such as bcc.g5.c2m8.

    Where BCC names no specification, the type is the official manager's word for it.
    """
    found = LABEL_VALUE.clean(str(machine.get("spec") or ""))
    return found or ("GPU" if str(machine.get("instanceType")) == _GPU else "BCC")


def zone_of(name: str) -> str:
    """Return the zone as the service CCE names it: zoneA for cn-bj-a.

    The official manager labels nodes so, and volumes must be in the same zones as nodes.
    """
    found = _ZONE.fullmatch(name)
    return f"zone{found[1].upper()}" if found else LABEL_VALUE.clean(name)


def most_common(vpcs: Sequence[str]) -> str:
    """Return the VPC of more than half of the machines; "" if there is none."""
    return next((one for one in sorted(set(vpcs)) if 2 * vpcs.count(one) > len(vpcs)), "")
