"""Fills an emulator with what a cluster has before its manager starts: network and machines."""

import json
import string
import uuid
from typing import Any

from .store import GROUP, LOCATION, Resource, Store, compute, network

NIC_OF_SET = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces"
VNET = network("virtualNetworks", "vnet")
SUBNET = f"{VNET}/subnets/nodes"
_DIGITS = string.digits + string.ascii_lowercase


def resource(kind: str, id_: str, properties: dict[str, Any], **more: Any) -> Resource:
    return {
        "id": id_,
        "name": id_.rpartition("/")[2],
        "type": kind,
        "location": LOCATION,
        "properties": {"provisioningState": "Succeeded", **properties},
        **more,
    }


def seed(store: Store) -> None:
    """A network with a subnet of both families, a security group and a route table."""
    prefixes = ["10.0.0.0/16", "fd00:10::/64"]
    store.put(
        resource(
            "Microsoft.Network/virtualNetworks",
            VNET,
            {"addressSpace": {"addressPrefixes": ["10.0.0.0/8", "fd00:10::/48"]}},
        )
    )
    for name in ("nodes", "apps"):
        number = 0 if name == "nodes" else 9
        store.put(
            resource(
                "Microsoft.Network/virtualNetworks/subnets",
                f"{VNET}/subnets/{name}",
                {
                    "addressPrefixes": prefixes
                    if not number
                    else ["10.9.0.0/24", "fd00:10:0:9::/64"],
                    "privateLinkServiceNetworkPolicies": "Disabled" if number else "Enabled",
                },
            )
        )
    store.put(
        resource(
            "Microsoft.Network/networkSecurityGroups",
            network("networkSecurityGroups", "nsg"),
            {"securityRules": []},
        )
    )
    store.put(
        resource("Microsoft.Network/routeTables", network("routeTables", "routes"), {"routes": []})
    )


def _configurations(store: Store, nic: str, families: tuple[str, ...]) -> list[Resource]:
    subnet = store.of[SUBNET.lower()]
    found = []
    for number, family in enumerate(families):
        id_ = f"{nic}/ipConfigurations/ipconfig{number + 1}"
        address = store.private_address(subnet, family, "", id_.lower())
        properties = {
            "primary": not number,
            "privateIPAddress": address,
            "privateIPAddressVersion": family,
            "privateIPAllocationMethod": "Dynamic",
            "subnet": {"id": SUBNET},
        }
        found.append({"name": f"ipconfig{number + 1}", "id": id_, "properties": properties})
    return found


def view(power: str = "running") -> Resource:
    return {
        "platformFaultDomain": 1,
        "platformUpdateDomain": 0,
        "statuses": [
            {"code": "ProvisioningState/succeeded", "level": "Info"},
            {"code": f"PowerState/{power}", "level": "Info"},
        ],
    }


def machine(
    store: Store,
    name: str,
    *,
    zone: str = "1",
    set_: str = "",
    families: tuple[str, ...] = ("IPv4",),
) -> str:
    """Start a machine, alone or in a scale set of the mode Flexible; return its id."""
    id_, nic = compute("virtualMachines", name), network("networkInterfaces", f"{name}-nic")
    properties: dict[str, Any] = {
        "vmId": str(uuid.uuid4()),
        "hardwareProfile": {"vmSize": "Standard_D2s_v5"},
        "osProfile": {"computerName": name},
        "networkProfile": {"networkInterfaces": [{"id": nic, "properties": {"primary": True}}]},
        "instanceView": view(),
    }
    if set_:
        properties["virtualMachineScaleSet"] = {"id": compute("virtualMachineScaleSets", set_)}
    zones = {"zones": [zone]} if zone else {}
    store.put(
        resource(
            "Microsoft.Network/networkInterfaces",
            nic,
            {
                "ipConfigurations": _configurations(store, nic, families),
                "primary": True,
                "virtualMachine": {"id": id_},
                "macAddress": "00-0D-3A-00-00-01",
            },
        )
    )
    store.put(resource("Microsoft.Compute/virtualMachines", id_, properties, **zones))
    return id_


def scale_set(store: Store, name: str, mode: str = "Uniform") -> str:
    """Make a scale set without machines; return its id."""
    id_ = compute("virtualMachineScaleSets", name)
    model = {
        "name": "nic",
        "properties": {
            "primary": True,
            "ipConfigurations": [
                {"name": "ipconfig1", "properties": {"primary": True, "subnet": {"id": SUBNET}}}
            ],
        },
    }
    properties = {
        "orchestrationMode": mode,
        "virtualMachineProfile": {
            "osProfile": {"computerNamePrefix": name},
            "networkProfile": {"networkInterfaceConfigurations": [model]},
        },
    }
    sku = {"name": "Standard_D4s_v5", "tier": "Standard", "capacity": 0}
    store.put(resource("Microsoft.Compute/virtualMachineScaleSets", id_, properties, sku=sku))
    return id_


def computer_name(set_: str, number: int) -> str:
    """The name that Azure gives a machine of a scale set: six digits to the base 36."""
    digits = ""
    while number or len(digits) < 6:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return f"{set_}{digits}"


def set_machine(store: Store, set_: str, number: int, *, zone: str = "2", name: str = "") -> str:
    """Start a machine of a scale set of the mode Uniform; return its name."""
    id_ = f"{compute('virtualMachineScaleSets', set_)}/virtualMachines/{number}"
    nic = f"{id_}/networkInterfaces/nic"
    computer = name or computer_name(set_, number)
    configurations = _configurations(store, nic, ("IPv4",))
    model = {
        "name": "nic",
        "properties": {
            "primary": True,
            "ipConfigurations": [
                {"name": "ipconfig1", "properties": {"primary": True, "subnet": {"id": SUBNET}}}
            ],
        },
    }
    properties = {
        "vmId": str(uuid.uuid4()),
        "osProfile": {"computerName": computer},
        "hardwareProfile": {},
        "networkProfile": {"networkInterfaces": [{"id": nic}]},
        "networkProfileConfiguration": {"networkInterfaceConfigurations": [model]},
        "instanceView": view(),
    }
    sku = {"name": "Standard_D4s_v5", "tier": "Standard"}
    zones = {"zones": [zone]} if zone else {}
    one = resource(
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines", id_, properties,
        sku=sku, instanceId=str(number), **zones,
    )  # fmt: skip
    one["name"] = f"{set_}_{number}"
    store.put(one)
    store.put(
        resource(
            NIC_OF_SET,
            nic,
            {"ipConfigurations": configurations, "primary": True, "virtualMachine": {"id": id_}},
        )
    )
    return computer


def remove_machine(store: Store, id_: str) -> None:
    """Destroy a machine, with its interfaces."""
    found = store.of[id_.lower()]
    for one in found["properties"]["networkProfile"]["networkInterfaces"]:
        store.delete(one["id"])
    store.delete(id_)


def twin(store: Store, machine: str, group: str) -> str:
    """Move a machine, or its scale set, with its interface: another of its name may be made."""
    machine = str(store.of[machine.lower()]["id"])
    if "/virtualMachineScaleSets/" in machine:
        set_, sign, end = machine.partition("/virtualMachines/")
        return f"{move(store, set_, group)}{sign}{end}"
    nic = str(
        store.of[machine.lower()]["properties"]["networkProfile"]["networkInterfaces"][0]["id"]
    )
    there, card = move(store, machine, group), move(store, nic, group)
    network_ = store.of[there.lower()]["properties"]["networkProfile"]
    network_["networkInterfaces"][0]["id"] = card
    store.of[card.lower()]["properties"]["virtualMachine"]["id"] = there
    return there


def move(store: Store, id_: str, group: str) -> str:
    """Move a machine or a scale set with all below it to another resource group; return its id.

    What is moved works on, and keeps its `vmId`; its interfaces may stay where they are.
    """
    store.groups.add(group.lower())
    start, sign, end = id_.partition(f"/resourceGroups/{GROUP}/")
    new = f"{start}/resourceGroups/{group}/{end}"
    assert sign
    for key, one in list(store.of.items()):
        if key == id_.lower() or key.startswith(f"{id_.lower()}/"):
            store.delete(key)
            store.put(json.loads(json.dumps(one).replace(id_, new)))
    return new
