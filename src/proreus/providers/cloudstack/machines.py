"""Convert CloudStack's description of a virtual machine to Kubernetes' terms. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from proreus.cloudprovider.addresses import is_address
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import Instance, InstanceState
from proreus.cloudprovider.names import LABEL_VALUE
from proreus.kube.objects import NodeAddress
from proreus.providers.cloudstack.names import provider_id

DETAILS: Final = "min,nics,servoff"
"""The parts of a machine's description that are needed; statistics of its host are costly."""
GONE: Final = frozenset({"Destroyed", "Expunging"})
"""States of machines that are deleted, or are about to be."""

_STATES: Final[Mapping[str, InstanceState]] = {
    "Stopped": InstanceState.STOPPED,
    "Shutdowned": InstanceState.STOPPED,
    "Destroyed": InstanceState.TERMINATING,
    "Expunging": InstanceState.TERMINATING,
    "Error": InstanceState.UNKNOWN,
    "Unknown": InstanceState.UNKNOWN,
}
"""All others count as running: one that starts, migrates or stops has not stopped yet."""


def id_of(described: Mapping[str, Any]) -> str:
    """Return the id of an object of CloudStack."""
    return str(described["id"]).lower()


def misplaced(described: Mapping[str, Any], project: str) -> str:
    """Return in which other project or account an object is; "" if it is in the right one."""
    there = str(described.get("projectid") or "").lower()
    if there == project:
        return ""
    names = str(described.get("project") or there), str(described.get("account") or "")
    where = f"the project {names[0]} ({there})" if there else f"the account {names[1]}"
    expected = f"the project {project}" if project else "the account itself"
    return f"is in {where}, and the cloud-config says {expected}"


def instance(
    machine: Mapping[str, Any], *, region: str, known_as: str, dual_stack: bool
) -> Instance | CloudError:
    """Make the framework's `Instance` from the description of a machine.

    It never says that a machine is powered off, for CloudStack says `Stopped` of some that run: of
    one that was stopped with `forced` (documentation of stopVirtualMachine), also by CloudStack
    itself, on a host whose agent does not answer; of one that its host left out of its reports, as
    while it was migrated by others (apache/cloudstack, issues 6798 and 3741).

    Args:
        machine: The machine as CloudStack describes it.
        region: The region of the cloud-config; "" for each machine's zone.
        known_as: The Node's provider id, "" if it has none; one machine's id may be written in
            several forms.
        dual_stack: Whether an IPv6 address is shown beside an IPv4 address.
    """
    found = tuple(dict.fromkeys(addresses(machine, dual_stack=dual_stack)))
    if not found:
        return CloudError(
            f"the machine {machine.get('name', '')} ({id_of(machine)}) has no address yet: its"
            " first NIC has none"
        )
    zone = LABEL_VALUE.clean(str(machine.get("zonename") or ""))
    return Instance(
        provider_id=known_as or provider_id(id_of(machine)),
        name=str(machine.get("name", "")),
        instance_type=type_of(str(machine.get("serviceofferingname") or "")),
        zone=zone,
        region=LABEL_VALUE.clean(region) or zone,
        addresses=found,
        state=_STATES.get(str(machine.get("state", "")), InstanceState.RUNNING),
    )


def type_of(offering: str) -> str:
    """Return the instance type: the service offering's name without all but letters and digits.

    The official manager makes the label of the instance type in the same way.
    """
    return re.sub(r"[^A-Za-z0-9]", "", offering)[:63]


def addresses(machine: Mapping[str, Any], *, dual_stack: bool) -> Iterator[NodeAddress]:
    """Return the addresses of a machine in the official order.

    That of the first NIC (the IPv6 address where it has no other), the host name if CloudStack
    shows any (to administrators, that of the hypervisor), the public address of a static NAT. In
    a cluster of both families its IPv6 address follows, to which kubelets may be bound.
    """
    nics = machine.get("nic") or ()
    first: Mapping[str, Any] = nics[0] if nics else {}
    found = [str(first.get(field) or "") for field in ("ipaddress", "ip6address")]
    usable = [one for one in found if is_address(one)]
    if not usable:
        return
    yield NodeAddress("InternalIP", usable[0])
    if machine.get("hostname"):
        yield NodeAddress("Hostname", str(machine["hostname"]))
    if is_address(public := str(machine.get("publicip") or "")):
        yield NodeAddress("ExternalIP", public)
    if dual_stack:
        yield from (NodeAddress("InternalIP", one) for one in usable[1:])


def networks_of(machine: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the ids of the networks that a machine is in, that of its first NIC first."""
    return tuple(str(nic.get("networkid") or "") for nic in machine.get("nic") or ())
