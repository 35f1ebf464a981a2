"""Read Azure's descriptions of machines, their network interfaces and addresses. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from proreus.cloudprovider.addresses import family_of
from proreus.cloudprovider.instances import Instance, InstanceState
from proreus.kube.objects import NodeAddress
from proreus.providers.azure.ids import last, provider_id

Resource = Mapping[str, Any]

STOPPED: Final = frozenset({"deallocated", "deallocating", "stopped"})
"""Power states in which nothing of a machine writes to its disks any more."""
_OFF: Final = STOPPED - {"deallocating"}
_POWER: Final = "powerstate/"
_HIBERNATION: Final = "hibernationstate/"
_STATES: Final = {"running": InstanceState.RUNNING, "starting": InstanceState.RUNNING}


def properties(resource: Resource) -> Resource:
    """Return the properties of a resource; nothing if it has none."""
    found = resource.get("properties")
    return found if isinstance(found, Mapping) else {}


def part(resource: Resource, *path: str) -> Any:
    """Return what lies at a path below a resource's properties, or None."""
    found: Any = properties(resource)
    for name in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(name)
    return found


def uuid_of(machine: Resource) -> str:
    """Return the UUID of SMBIOS, as a machine's kubelet reports it; "" if Azure does not say it.

    https://azure.microsoft.com/blog/accessing-and-using-azure-vm-unique-id/
    """
    return str(part(machine, "vmId") or "").lower()


def node_name(machine: Resource) -> str:
    """Return the name that a machine's Node has: the computer's in scale sets, else the machine's.

    A machine of a scale set that has no computer's name yet has none: "".
    """
    is_in_set = "instanceId" in machine or part(machine, "virtualMachineScaleSet", "id")
    computer = part(machine, "osProfile", "computerName")
    name = computer if is_in_set else machine.get("name")
    return str(name or "").lower()


def set_of(machine: Resource) -> str:
    """Return the name of a machine's scale set or availability set, in small letters; or ""."""
    kinds = ("virtualMachineScaleSet", "availabilitySet")
    ids = (str(part(machine, kind, "id") or "") for kind in kinds)
    return next((last(id_).lower() for id_ in ids if id_), "")


def state(machine: Resource, view: Resource | None) -> InstanceState:
    """Return the state of a machine.

    Args:
        machine: The machine.
        view: The machine's instance view, with the power state.
    """
    provisioning = str(part(machine, "provisioningState") or "").lower()
    if provisioning == "deleting":
        return InstanceState.TERMINATING
    power = _code(view, _POWER)
    if power in STOPPED:
        is_settled = provisioning == "succeeded"
        return InstanceState.STOPPED if is_settled else InstanceState.UNKNOWN
    return _STATES.get(power, InstanceState.UNKNOWN)


def is_powered_off(machine: Resource, view: Resource | None) -> bool:
    """Tell whether a machine is stopped or deallocated, and not hibernated.

    Azure shows a hibernated machine as deallocated, with a second status that says so.
    """
    is_stopped = state(machine, view) is InstanceState.STOPPED
    return is_stopped and _code(view, _POWER) in _OFF and not _code(view, _HIBERNATION)


def may_sleep(machine: Resource, view: Resource | None) -> bool:
    """Tell whether a machine that is off by this view can be hibernated: the whole view tells."""
    can_sleep = bool(part(machine, "additionalCapabilities", "hibernationEnabled"))
    return can_sleep and _code(view, _POWER) in STOPPED


def _code(view: Resource | None, kind: str) -> str:
    """Return the code that the instance view shows for a kind of state; "" without one."""
    statuses = (view or {}).get("statuses") or ()
    codes = (str(one.get("code", "")).lower() for one in statuses)
    return next((code.removeprefix(kind) for code in codes if code.startswith(kind)), "")


def zone(machine: Resource, view: Resource | None) -> str:
    """Return a machine's zone: that of the region, or else its fault domain; "" if unknown."""
    zones = machine.get("zones") or ()
    if zones:
        return f"{region(machine)}-{zones[0]}".lower()
    domain = (view or {}).get("platformFaultDomain")
    return "" if domain is None else str(domain)


def region(machine: Resource) -> str:
    """Return a machine's region."""
    return str(machine.get("location", "")).lower()


def instance_type(machine: Resource) -> str:
    """Return a machine's size."""
    size = part(machine, "hardwareProfile", "vmSize") or (machine.get("sku") or {}).get("name")
    return str(size or "")


def interface_ids(machine: Resource) -> list[str]:
    """Return the ids of a machine's network interfaces, the primary one first."""
    found = [
        one
        for one in part(machine, "networkProfile", "networkInterfaces") or ()
        if isinstance(one, Mapping) and one.get("id")
    ]
    ordered = sorted(found, key=lambda one: not (one.get("properties") or {}).get("primary"))
    return [str(one["id"]) for one in ordered]


def ip_configurations(interface: Resource) -> list[Resource]:
    """Return the IP configurations of an interface, the primary one first."""
    found = [one for one in part(interface, "ipConfigurations") or () if isinstance(one, Mapping)]
    return sorted(found, key=lambda one: not properties(one).get("primary"))


def primary_configurations(interface: Resource) -> dict[str, Resource]:
    """Return the IP configuration of each family that carries a node's traffic."""
    found: dict[str, Resource] = {}
    for one in ip_configurations(interface):
        address = str(properties(one).get("privateIPAddress") or "")
        version = properties(one).get("privateIPAddressVersion") or family_of(address) or "IPv4"
        found.setdefault(str(version), one)
    return found


def public_ids(interface: Resource) -> Iterator[str]:
    """Return the ids of the public addresses of an interface."""
    for one in primary_configurations(interface).values():
        if public := (properties(one).get("publicIPAddress") or {}).get("id"):
            yield str(public)


def addresses(name: str, interface: Resource, public: Mapping[str, str]) -> tuple[NodeAddress, ...]:
    """Return a node's addresses in the official order: internal, its name, external.

    Args:
        name: The node's name.
        interface: The primary network interface.
        public: The public addresses by the ids of their resources, in small letters.
    """
    configurations = primary_configurations(interface).values()
    private = [str(properties(one).get("privateIPAddress") or "") for one in configurations]
    external = [public.get(id_.lower(), "") for id_ in public_ids(interface)]
    return (
        *(NodeAddress("InternalIP", one) for one in private if one),
        NodeAddress("Hostname", name),
        *(NodeAddress("ExternalIP", one) for one in external if one),
    )


def instance(
    machine: Resource, view: Resource | None, interface: Resource, public: Mapping[str, str]
) -> Instance:
    """Return what the framework is to know of a machine."""
    name = node_name(machine)
    return Instance(
        provider_id=provider_id(str(machine["id"])),
        name=name,
        instance_type=instance_type(machine),
        zone=zone(machine, view),
        region=region(machine),
        addresses=addresses(name, interface, public),
        state=state(machine, view),
        powered_off=is_powered_off(machine, view),
    )


def by_id(resources: Sequence[Resource]) -> dict[str, Resource]:
    """Return resources by their ids in small letters; resources without an id are left out."""
    return {str(one["id"]).lower(): one for one in resources if one.get("id")}
