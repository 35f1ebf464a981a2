"""Find out which machine of Azure a Node names. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from proreus.cloudprovider.errors import IdentityConflict
from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.lookups import foreign_id, ownership_by_id, system_uuids
from proreus.kube.objects import Node
from proreus.providers.azure.ids import MachineId, machine_id
from proreus.providers.azure.machines import uuid_of

LABEL_GROUP: Final = "kubernetes.azure.com/resource-group"
"""The label with the resource group of a Node's machine, where it is not the cluster's."""
LABEL_MANAGED: Final = "kubernetes.azure.com/managed"
"""The label that is "false" on Nodes whose machines are not in Azure."""

Document = TypeVar("Document", bound=Mapping[str, Any])

_FORM: Final = (
    "azure:///subscriptions/…/resourceGroups/…/providers/Microsoft.Compute/virtualMachines/…"
)


class Target(msgspec.Struct, frozen=True):
    """The key by which a Node's machine is looked up: an id, or a name in a group, or neither.

    Attributes:
        id: The id that the provider id names.
        name: The Node's name, if it has no provider id.
        group: The resource group in which that name is looked for.
        problem: Why there is nothing to look the machine up by.
        uuids: What the machine's `vmId` may be, as its kubelet reports it.
    """

    id: MachineId | None = None
    name: str = ""
    group: str = ""
    problem: str = ""
    uuids: tuple[str, ...] = ()


def of_kubelet(found: Sequence[Document], target: Target) -> Sequence[Document]:
    """Return those machines of a Node's name on which its kubelet may run, by its UUID.

    Raises:
        IdentityConflict: There are machines of that name, and it surely runs on another one.
    """
    known = [(one, uuid_of(one)) for one in found]
    same = [one for one, uuid in known if uuid in target.uuids]
    if same or not target.uuids:
        return same or found
    left = [one for one, uuid in known if not uuid]
    if found and not left:
        raise IdentityConflict(
            f"the machine {found[0]['id']} has the name {target.name}, but the Node's kubelet"
            f" reports the UUID {target.uuids[-1]}, and that machine's is"
            f" {uuid_of(found[0])}: if the Node's own is not shown yet, it is looked for"
            f" again; if it is not in Azure, label the Node {LABEL_MANAGED}=false"
        )
    return left


def check_kubelet(machine: Mapping[str, Any], target: Target) -> None:
    """Refuse a machine of a provider id that is off, if the Node's kubelet runs on another one.

    The kubelet of a machine that takes over a name goes on with the Node of the former one.

    Raises:
        IdentityConflict: The kubelet reports the UUID of another machine.
    """
    uuid = uuid_of(machine)
    if target.id is not None and uuid and target.uuids and uuid not in target.uuids:
        raise IdentityConflict(
            f"the machine {machine['id']} of the provider id, which has the UUID {uuid}, does not"
            f" run, but the Node's kubelet reports {target.uuids[-1]}, of another machine: delete"
            " the Node, so that it is made anew"
        )


def is_unmanaged(node: Node) -> bool:
    """Tell whether a Node's labels say that its machine is not in Azure."""
    return node.metadata.labels.get(LABEL_MANAGED, "").lower() == "false"


def group_of(node: Node, group: str) -> str:
    """Return the resource group of a Node's machine, in small letters."""
    return (node.metadata.labels.get(LABEL_GROUP) or group).lower()


def target(node: Node, subscription: str, group: str) -> Target:
    """Return the key by which a Node's machine is looked up: the provider id, or else the name.

    Args:
        node: The Node.
        subscription: The subscription of the cloud-config.
        group: The resource group of the cloud-config.
    """
    text = node.spec.provider_id
    if not text:
        name = node.metadata.name.lower()
        return Target(name=name, group=group_of(node, group), uuids=system_uuids(node))
    found = machine_id(text)
    if found is None:
        return Target(problem=foreign_id(text, "Azure", _FORM))
    if found.subscription != subscription.lower():
        return Target(
            problem=f"spec.providerID {text!r} names another subscription than {subscription}, the"
            " one of the cloud-config: the manager of that subscription takes care of this node"
        )
    return Target(id=found, uuids=system_uuids(node))


def ownership(node: Node, subscription: str) -> Ownership:
    """Tell whether a Node's machine is in the subscription, as far as the Node shows."""
    if is_unmanaged(node):
        return Ownership.NO

    def is_here(provider_id: str) -> bool:
        found = machine_id(provider_id)
        return found is not None and found.subscription == subscription.lower()

    return ownership_by_id(node, is_here)


def scope(node: Node, group: str) -> str:
    """Return the resource group in whose listings a Node's machine is looked for."""
    found = machine_id(node.spec.provider_id) if node.spec.provider_id else None
    return found.group if found is not None else group_of(node, group)
