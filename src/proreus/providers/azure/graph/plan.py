"""Decide which Nodes the rows of Azure Resource Graph confirm. Pure.

Rows are minutes old, now and then hours, and lack what the identity may not read. So they prove
neither that a machine is gone nor that it is shut down, and no Node gets anything new from them.
Of a Node whose row says just what the Node says there is nothing to be done, whichever is older;
about every other one Azure itself is asked.

https://learn.microsoft.com/azure/governance/resource-graph/reference/supported-tables-resources
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from proreus.cloudprovider.instances import Instance, InstanceState
from proreus.kube.objects import LABEL_INSTANCE_TYPE, LABEL_REGION, LABEL_ZONE, Node
from proreus.providers.azure.ids import MachineId, last
from proreus.providers.azure.machines import by_id, instance, interface_ids, part, public_ids

Row = Mapping[str, Any]

SETS: Final = 3
"""Scale sets from which on two queries are fewer than the lists of machines and of interfaces."""

_MACHINE: Final = "microsoft.compute/virtualmachinescalesets/virtualmachines"
_INTERFACE: Final = f"{_MACHINE}/networkinterfaces"
_ADDRESS: Final = f"{_INTERFACE}/ipconfigurations/publicipaddresses"
_SEPARATOR: Final = "/virtualmachines/"
_SAFE: Final = re.compile(r"[\w./()-]+")
"""What an id may have to be written into a query: nothing that ends a string."""


def sets_of(wanted: Iterable[MachineId]) -> frozenset[str]:
    """Return the ids of the scale sets whose rows tell of these machines, as far as any do."""
    return frozenset(one.scale_set for one in wanted if one.set and _SAFE.fullmatch(one.scale_set))


def machines_query(sets: Collection[str]) -> str:
    """Write the query for the machines of scale sets, given by their ids in small letters."""
    fields = {
        "size": "tostring(sku.name)",
        "hardware": "tostring(properties.hardwareProfile.vmSize)",
        "computer": "tostring(properties.osProfile.computerName)",
        "provisioning": "tostring(properties.provisioningState)",
        "power": "tostring(properties.extended.instanceView.powerState.code)",
        "interfaces": "properties.networkProfile.networkInterfaces",
    }
    named = ", ".join(f"{name} = {path}" for name, path in fields.items())
    return _query(_MACHINE, sets, f"id, location, zones, {named}")


def interfaces_query(sets: Collection[str]) -> str:
    """Write the query for the network interfaces of machines of scale sets."""
    return _query(_INTERFACE, sets, "id, configurations = properties.ipConfigurations")


def addresses_query(sets: Collection[str]) -> str:
    """Write the query for the public addresses of machines of scale sets."""
    return _query(_ADDRESS, sets, "id, address = tostring(properties.ipAddress)")


def _query(kind: str, sets: Collection[str], fields: str) -> str:
    # In pages only what has an order is whole, and what has the column `id`.
    listed = ", ".join(f"'{one}'" for one in sorted(sets))
    return (
        f"ComputeResources | where type =~ '{kind}'"
        f" | extend set = tostring(split(tolower(id), '{_SEPARATOR}')[0])"
        f" | where set in ({listed}) | project {fields} | order by id asc"
    )


def has_public(interfaces: Iterable[Row]) -> bool:
    """Tell whether any of these rows of interfaces names a public address, which is to be read."""
    return any(list(public_ids(one)) for one in map(_interface, interfaces))


def instances(
    machines: Sequence[Row], interfaces: Sequence[Row], addresses: Sequence[Row]
) -> dict[str, Instance]:
    """Return the machines that rows describe whole, by their ids in small letters.

    Args:
        machines: The rows of `machines_query`.
        interfaces: The rows of `interfaces_query`.
        addresses: The rows of `addresses_query`.
    """
    cards = by_id(list(map(_interface, interfaces)))
    public = {str(row.get("id")).lower(): str(row.get("address") or "") for row in addresses}
    found: dict[str, Instance] = {}
    for id_, machine in by_id(list(map(_machine, machines))).items():
        card = next((cards.get(one.lower()) for one in interface_ids(machine)), None)
        if card is not None and all(public.get(one.lower()) for one in public_ids(card)):
            found[id_] = instance(machine, part(machine, "instanceView"), card, public)
    return found


def is_same(node: Node, found: Instance) -> bool:
    """Tell whether a machine is as its Node says, and runs.

    A machine in no zone has its fault domain in the place of one, which rows do not tell: then the
    zone is the one that the Node has, since no label of a zone is ever changed.
    """
    labels = node.metadata.labels
    zone = found.zone or labels.get(LABEL_ZONE)
    says = {LABEL_INSTANCE_TYPE: found.instance_type, LABEL_REGION: found.region, LABEL_ZONE: zone}
    return (
        found.state is InstanceState.RUNNING
        and found.name == node.metadata.name
        and all(value and labels.get(key) == value for key, value in says.items())
        and set(found.addresses) == set(node.status.addresses)
    )


def _machine(row: Row) -> Row:
    """Return a machine in the form in which Azure itself describes it."""
    return {
        "id": row.get("id"),
        "instanceId": last(str(row.get("id"))),
        "location": row.get("location"),
        "zones": row.get("zones"),
        "sku": {"name": row.get("size")},
        "properties": {
            "hardwareProfile": {"vmSize": row.get("hardware")},
            "osProfile": {"computerName": row.get("computer")},
            "provisioningState": row.get("provisioning"),
            "instanceView": {"statuses": [{"code": row.get("power")}]},
            "networkProfile": {"networkInterfaces": row.get("interfaces")},
        },
    }


def _interface(row: Row) -> Row:
    """Return a network interface in the form in which Azure itself describes it."""
    return {"id": row.get("id"), "properties": {"ipConfigurations": row.get("configurations")}}
