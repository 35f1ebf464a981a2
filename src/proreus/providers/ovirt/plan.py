"""Decide which machine a Node is, and what proves that its machine is gone. Pure."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import InstanceState, NotFound
from proreus.providers.ovirt.machines import Machine, described, state_of
from proreus.providers.ovirt.names import Target


class Unproven(msgspec.Struct, frozen=True):
    """The answer that no search shows the machine of a Node; it may still exist.

    Attributes:
        id: The machine's id, by the provider id; "" without one.
        others: The other ids that the machine of the Node's kubelet may have: the UUIDs that it
            reports of another one, or the id in the other byte order.
    """

    id: str
    others: tuple[str, ...] = ()


class Index:
    """Machines by the keys that find them.

    Attributes:
        by_id: All known machines, by id.
        listed: The machines that the search of the cloud-config finds, by id.
        by_fqdn: The machines of `listed` by the domain name that the guest reports.
        by_name: The machines of `listed` by their own name.
    """

    def __init__(self, listed: Iterable[Machine], looked_up: Iterable[Machine] = ()) -> None:
        """Index the machines.

        Args:
            listed: The machines that the search of the cloud-config finds.
            looked_up: The machines that were looked up by the ids in provider ids.
        """
        self.listed = {one.id: one for one in listed}
        self.by_id = {one.id: one for one in looked_up} | self.listed
        self.by_fqdn: dict[str, list[Machine]] = {}
        self.by_name: dict[str, list[Machine]] = {}
        for one in self.listed.values():
            if one.fqdn:
                self.by_fqdn.setdefault(one.fqdn.lower(), []).append(one)
            self.by_name.setdefault(one.name.lower(), []).append(one)


def match(target: Target, index: Index, search: str) -> Machine | Unproven | NotFound | CloudError:
    """Return the machine of a Node.

    A provider id is all that counts where there is one. Else the UUID that the kubelet reports
    goes first, then the domain name that the guest reports, then the machine's name. A machine of
    that name with another id than the kubelet reports is another one, such as of another cluster;
    and a Node whose kubelet runs on another machine than its provider id says is not gone with
    that.

    Args:
        target: The keys that the Node gives.
        index: The machines to match with.
        search: The search of the cloud-config, or "".
    """
    if target.problem:
        return InvalidRequest(target.problem)
    if target.id:
        return index.by_id.get(target.id) or _missing(target, index)
    for uuid in target.system_uuids:
        if uuid in index.listed:
            return index.listed[uuid]
    for known in (index.by_fqdn, index.by_name):
        if found := known.get(target.name):
            return _own(_only(found, target.name), target)
    if search and not index.listed:
        return CloudError(
            f"the search of the cloud-config ([Filters] vms), {search!r}, finds no machine at all;"
            " that is how the engine answers a search that it cannot read, too: try it in its web"
            " page"
        )
    return Unproven("", target.system_uuids) if target.system_uuids else NotFound()


def _missing(target: Target, index: Index) -> Unproven | IdentityConflict:
    """Return the answer about a machine that no search shows."""
    others = (*target.system_uuids, *target.turned)
    for uuid in others:
        if uuid in index.by_id:
            return _elsewhere(target.id, index.by_id[uuid])
    return Unproven(target.id, others)


def _elsewhere(id_: str, other: Machine) -> IdentityConflict:
    return IdentityConflict(
        f"no search shows the machine {id_} of the provider id, but the one that the kubelet"
        f" reports, {described(other)}: delete the Node, so that it is made anew, and give its"
        " kubelet no --provider-id of its own"
    )


def _hidden(other: Machine) -> IdentityConflict:
    return IdentityConflict(
        f"the search of the cloud-config ([Filters] vms) does not find {described(other)}, which is"
        " the machine by the UUID that the Node's kubelet reports: let it find that machine"
    )


def _own(found: Machine | IdentityConflict, target: Target) -> Machine | IdentityConflict:
    """Return the machine of a Node's name, unless its kubelet surely runs on another one."""
    if not isinstance(found, Machine) or not target.system_uuids:
        return found
    return IdentityConflict(
        f"{described(found)} has the name {target.name}, but the Node's kubelet reports the UUID"
        f" {target.system_uuids[-1]}, which is no machine's that the search of the cloud-config"
        " finds ([Filters] vms): let it find that machine, or rename one of the two"
    )


def _only(found: Sequence[Machine], name: str) -> Machine | IdentityConflict:
    """Return the only machine, or the only one that runs: a copy has the name of its original."""
    running = [one for one in found if state_of(one) is InstanceState.RUNNING]
    for some in (found, running):
        if len(some) == 1:
            return some[0]
    names = ", ".join(sorted(map(described, found)))
    return IdentityConflict(
        f"{len(found)} virtual machines are called {name}: {names}; rename or remove all but one"
    )


def gone(one: Unproven, direct: Mapping[str, Machine | CloudError | None]) -> NotFound | CloudError:
    """Return the answer about a Node whose machine no search shows.

    Args:
        one: The machine, and the other one on which the Node's kubelet may run.
        direct: The answers at the machines' own URLs, or of a search that has shown one.
    """
    for id_ in one.others:
        if isinstance(other := direct[id_], Machine):
            return _elsewhere(one.id, other) if one.id else _hidden(other)
    answers = [absence(id_, direct[id_]) for id_ in filter(None, (one.id, *one.others))]
    return next((known for known in answers if isinstance(known, CloudError)), NotFound())


def absence(id_: str, direct: Machine | CloudError | None) -> NotFound | CloudError:
    """Return the answer about a machine that no search shows: gone if its own URL says so, too.

    Args:
        id_: The machine's id.
        direct: The answer at the machine's own URL; None if the engine says that there is no such
            machine.
    """
    if direct is None:
        return NotFound()
    if isinstance(direct, CloudError):
        return CloudError(f"it is not known whether the machine {id_} exists: {direct}")
    return CloudError(f"{described(direct)} exists, although a search by its id does not find it")
