"""Decide which machine a Node is, what proves that it is gone, which addresses to read. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import Instance, InstanceState, NotFound
from proreus.kube.objects import Node, NodeAddress
from proreus.providers.photon.documents import Named, Vm
from proreus.providers.photon.machines import DELETED, STARTED, in_order, state_of
from proreus.providers.photon.names import Target, provider_id

AGE: Final = 900.0
"""Seconds for which addresses are kept of a machine that does not change: a lease may, unseen."""
EMPTY_AGE: Final = 10.0
"""Seconds for which it counts that a machine reports none: VMware Tools start after a kubelet."""
ABSENT_AGE: Final = 30.0
"""Seconds for which it counts that a machine has other addresses than one that is looked for."""
REFRESHES: Final = 10
"""The most machines whose addresses are read anew because they are old, at a time."""

Addresses = tuple[NodeAddress, ...]


class Known(msgspec.Struct, frozen=True):
    """The addresses of a machine.

    Attributes:
        vm: The machine as it was shown when they were read.
        addresses: The addresses.
        at: When it was begun to read them.
        failed: When they could not be read anew since; None if that did not happen.
    """

    vm: Vm
    addresses: Addresses
    at: float
    failed: float | None = None

    @property
    def tried(self) -> float:
        """The time of the last try to read them, which makes them no younger if it has failed."""
        return self.at if self.failed is None else self.failed


class Due(msgspec.Struct, frozen=True):
    """The machines whose addresses have to be read.

    Attributes:
        needed: The machines whose addresses are not known at all.
        old: The machines whose known addresses serve until they are read again.
    """

    needed: tuple[Vm, ...]
    old: tuple[Vm, ...]


class Shown(msgspec.Struct, frozen=True):
    """The answers of Photon Controller about the machines that were looked up.

    Attributes:
        by_id: The machines by the ids that were asked about; None if Photon Controller says that
            one is gone.
        by_name: The machines by the names that were asked about.
        all: All machines of the project, where Nodes are called by addresses; else nothing.
    """

    by_id: Mapping[str, Vm | CloudError | None]
    by_name: Mapping[str, Sequence[Vm] | CloudError]
    all: Sequence[Vm] = ()


def due(
    machines: Collection[Vm],
    known: Mapping[str, Known],
    now: float,
    *,
    age: float | None = None,
) -> Due:
    """Return the machines whose addresses have to be read: new, changed, or not read for long.

    Args:
        machines: The machines as Photon Controller lists them.
        known: What is known of their addresses, by their ids.
        now: The seconds of a clock that is never set.
        age: The age in seconds of addresses that do not serve at all any more; None if all do.
    """
    needed, old = [], []
    for vm in machines:
        if vm.state != STARTED:
            continue
        before = known.get(vm.id)
        is_too_old = before is not None and age is not None and now - before.at >= age
        if before is None or before.vm.shape != vm.shape or is_too_old:
            needed.append(vm)
        elif not before.addresses:
            if now - before.tried >= EMPTY_AGE:
                needed.append(vm)
        elif now - before.tried >= AGE:
            old.append((before.tried, vm.id, vm))
    return Due(tuple(needed), tuple(vm for _, _, vm in sorted(old)[:REFRESHES]))


def match(
    target: Target, shown: Shown, networks: Mapping[str, Addresses | CloudError]
) -> Vm | NotFound | CloudError:
    """Return the machine of a Node.

    Args:
        target: The keys that the Node gives.
        shown: The answers of Photon Controller.
        networks: The addresses by the machine's id, or the error that says why they are not known.
    """
    if target.problem:
        return InvalidRequest(target.problem)
    if target.id:
        return _by_id(shown.by_id[target.id])
    if target.address:
        return _by_address(target.address, shown.all, networks)
    found = shown.by_name[target.name]
    return found if isinstance(found, CloudError) else _only(found, target.name)


def _by_id(vm: Vm | CloudError | None) -> Vm | NotFound | CloudError:
    if isinstance(vm, CloudError):
        return vm
    if vm is None:
        return NotFound()
    return NotFound(tombstone=True) if vm.state == DELETED else vm


def _only(found: Sequence[Vm], called: str) -> Vm | NotFound | IdentityConflict:
    live = [vm for vm in found if vm.state != DELETED]
    if len(live) > 1:
        ids = ", ".join(sorted(vm.id for vm in live))
        return IdentityConflict(
            f"{len(live)} machines of the project are called {called} or have that address: {ids};"
            " rename or delete all but one"
        )
    return live[0] if live else NotFound()


def _by_address(
    address: str, machines: Sequence[Vm], networks: Mapping[str, Addresses | CloudError]
) -> Vm | NotFound | CloudError:
    """Find a machine by its address; absent only if the addresses of all machines are known."""
    found, unknown = [], []
    for vm in machines:
        if vm.state == DELETED:
            continue
        addresses = networks.get(vm.id, ())
        if isinstance(addresses, CloudError) or not addresses:
            unknown.append(vm)
        elif any(one.address == address for one in addresses):
            found.append(vm)
    if found or not unknown:
        return _only(found, address)
    first = min(unknown, key=lambda vm: (vm.name, vm.id))
    reason = networks.get(first.id)
    because = reason if isinstance(reason, CloudError) else f"it is {first.state}, and reports none"
    return CloudError(
        f"no machine has the address {address}, but {len(unknown)} have unknown addresses, such as"
        f" {first.name} ({first.id}): {because}"
    )


def instance(node: Node, vm: Vm, found: Addresses | CloudError) -> Instance | CloudError:
    """Make the framework's `Instance`, or say why there is none yet.

    A Node that has addresses keeps them while its machine reports none: the machine is off, or its
    VMware Tools are. A Node that has none waits for them.

    Args:
        node: The Node.
        vm: The Node's machine.
        found: The machine's addresses, or the error that says why they are not known.
    """
    state = state_of(vm.state)
    before = tuple(one for one in node.status.addresses if one.type != "Hostname")
    if not before and state is InstanceState.RUNNING:
        if isinstance(found, CloudError):
            return found
        if not found:
            return CloudError(
                f"the machine {vm.name} ({vm.id}) has no address yet: it is {vm.state}, and VMware"
                " Tools in it report none"
            )
    shown = () if isinstance(found, CloudError) else in_order(found, before)
    return Instance(
        provider_id=node.spec.provider_id or provider_id(vm.id),
        name=vm.name,
        addresses=shown,
        state=state,
    )


def chosen(kind: str, wanted: str, place: str, shown: Sequence[Named]) -> str | CloudError:
    """Return the id of the tenant or project that the cloud-config means, by id or by name.

    Args:
        kind: "tenant" or "project", the key in the cloud-config.
        wanted: The value in the cloud-config.
        place: The name of the place that was searched, for messages.
        shown: The tenants or projects that exist.
    """
    by_id = [one.id for one in shown if one.id == wanted]
    by_name = sorted({one.id for one in shown if one.name == wanted})
    found = by_id[:1] or by_name
    if len(found) == 1:
        return found[0]
    if found:
        return CloudError(
            f"[Global] {kind}: {len(found)} are called {wanted} in {place}: {', '.join(found)};"
            " give the id of one"
        )
    names = ", ".join(sorted(one.name for one in shown)) or "none"
    return CloudError(f"[Global] {kind}: there is no {wanted} in {place}, only: {names}")
