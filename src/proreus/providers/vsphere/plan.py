"""Decide which machine a Node is, and what proves that its machine is gone. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import NotFound
from proreus.cloudprovider.lookups import swapped
from proreus.providers.vsphere.arrivals import Seen
from proreus.providers.vsphere.machines import Machine, Proof, Snapshot, described
from proreus.providers.vsphere.names import Target
from proreus.providers.vsphere.soap import Ref


class Match(msgspec.Struct, frozen=True):
    """A machine, and the name of the vCenter that shows it."""

    vcenter: str
    machine: Machine


class Unproven(msgspec.Struct, frozen=True):
    """The answer that no vCenter shows the machine of a Node; it may still exist.

    Attributes:
        uuid: The BIOS UUID in the provider id; "" without one.
        others: The other UUIDs that the Node's kubelet reports: of another machine, or that UUID in
            the other byte order.
    """

    uuid: str
    others: tuple[str, ...] = ()


class Lone(msgspec.Struct, frozen=True):
    """The answer that a machine that is off is the only one shown with a Node's UUID.

    It may be a replica of one in a datacenter that is not configured: the indexes of whole vCenters
    tell.

    Attributes:
        found: The machine.
        vcenters: The names of the vCenters whose indexes tell; none for all.
    """

    found: Match
    vcenters: tuple[str, ...] = ()


class Replaced(msgspec.Struct, frozen=True):
    """The answer that another machine than before has a Node's UUID: perhaps a replica of it.

    Attributes:
        found: The machine that has the UUID now.
        former: The former machine; its reference tells whether it is gone.
    """

    found: Match
    former: Seen


_UUID: Final = "uuid"
_ON: Final = "poweredOn"
_MOST_NAMED: Final = 5

Shown = Mapping[str, Snapshot | CloudError]
"""What each vCenter shows, or why it does not tell."""


class Index:
    """The machines of all vCenters by the keys that find them."""

    def __init__(self, shown: Shown) -> None:
        """Index the machines."""
        self.failed = {name: one for name, one in shown.items() if isinstance(one, CloudError)}
        self.of: dict[tuple[str, str], list[Match]] = {}
        for vcenter, snapshot in shown.items():
            if not isinstance(snapshot, CloudError):
                for machine in snapshot.machines.values():
                    self._add(Match(vcenter, machine))

    def _add(self, match: Match) -> None:
        machine = match.machine
        for kind, key in (
            (_UUID, machine.uuid),
            ("name", machine.host_name.lower()),
            ("address", machine.address.lower()),
        ):
            if key:
                self.of.setdefault((kind, key), []).append(match)


def match(
    target: Target, index: Index, node: str, told: Iterable[str] = ()
) -> Match | Unproven | NotFound | CloudError:
    """Return the machine of a Node.

    A provider id is all that counts where there is one. Else the UUID that the kubelet reports goes
    first, in both byte orders, then the name. A machine of that name with another UUID than the
    kubelet reports is another one, such as of another cluster; and a Node whose kubelet runs on
    another machine than its provider id says is not gone with that.

    While a vCenter does not answer, its machine may be the right one, and what another one shows a
    replica: only one that is in the Node's own vCenter, or runs under its name, is surely the
    Node's, and nothing is known by a name alone.

    Args:
        target: The keys that the Node gives.
        index: The machines that the vCenters show.
        node: The Node's name.
        told: The name of the vCenter where the Node's machine was seen last, and of the one that
            its label names.
    """
    if target.problem:
        return InvalidRequest(target.problem)
    uuids = (target.uuid,) if target.uuid else target.system_uuids
    keys = [(_UUID, uuid) for uuid in uuids]
    if not target.uuid:
        keys += [("name", target.dns_name), ("address", target.address)]
    for key in keys:
        if not (found := index.of.get(key)):
            continue
        one = _only(found, node)
        if isinstance(one, Match) and (problem := _strange(one, target)):
            one = IdentityConflict(problem)
        if not index.failed or (key[0] == _UUID and _is_sure(one, node, told)):
            return one
    if index.failed:
        return _unknown(index.failed)
    for uuid in target.system_uuids if target.uuid else ():
        if found := index.of.get((_UUID, uuid)):
            names = ", ".join(sorted(described(one.machine) for one in found))
            return IdentityConflict(
                f"no vCenter shows the machine {target.uuid} of the provider id, but the one that"
                f" the kubelet reports, {names}: delete the Node, so that it is made anew, and give"
                " its kubelet no --provider-id of its own"
            )
    is_told = target.uuid or target.system_uuids
    return Unproven(target.uuid, target.system_uuids) if is_told else NotFound()


def _strange(one: Match, target: Target) -> str:
    """Return why a machine is another one than the Node's kubelet runs on, or ""."""
    reported, found = target.system_uuids, f"{described(one.machine)} in vCenter {one.vcenter}"
    is_told = bool(target.uuid) and one.machine.power == _ON
    own = {one.machine.uuid, swapped(one.machine.uuid)}
    if not (reported and one.machine.uuid) or not own.isdisjoint(reported) or is_told:
        return ""
    if target.uuid:
        return (
            f"{found}, the machine of the provider id, is not running, but the kubelet reports"
            f" another one, {reported[-1]}: delete the Node, so that it is made anew"
        )
    return (
        f"{found} has the Node's name or address, and the UUID {one.machine.uuid}, but its kubelet"
        f" reports {reported[-1]}, of a machine that no vCenter shows: name that machine's"
        " datacenter in the cloud-config, or let the user read it"
    )


def _is_sure(one: Match | IdentityConflict, node: str, told: Iterable[str]) -> bool:
    """Tell whether no vCenter that failed to answer could have the Node's machine instead."""
    if isinstance(one, IdentityConflict):
        return False
    return next(iter(told), "") == one.vcenter or _runs_as(one, node)


def _runs_as(one: Match, node: str) -> bool:
    return one.machine.power == _ON and one.machine.host_name.lower() == node.lower()


def _only(found: Sequence[Match], node: str) -> Match | IdentityConflict:
    """Return the only machine; of copies the one that runs under the Node's name.

    The reason: replicas and restored backups have the UUID of what they were made from.
    """
    running = [one for one in found if _runs_as(one, node)]
    for some in (found, running):
        if len(some) == 1:
            return some[0]
    names = ", ".join(sorted(f"{described(one.machine)} in {one.vcenter}" for one in found))
    return IdentityConflict(
        f"{len(found)} virtual machines have this node's UUID, host name or address: {names};"
        " change or remove all but one"
    )


def _unknown(failed: Mapping[str, CloudError]) -> CloudError:
    names = ", ".join(sorted(failed))
    first = failed[min(failed)]
    return CloudError(f"it is not known whether vCenter {names} has the machine: {first}")


def trusted(
    one: Match,
    node: str,
    seen: Sequence[Seen],
    told: Iterable[str],
    unreadable: Sequence[tuple[str, str]],
) -> Match | Lone | Replaced | CloudError:
    """Return the machine with the UUID of a Node's provider id if it is surely not a replica.

    Replicas and restored backups have the UUID of what they were made from, and are off. Each is
    the only one with it while the machine itself cannot be read, is hidden by a lost right, or is
    in a datacenter that is not configured. In another vCenter than the machine was in it counts for
    nothing: nodes there cannot vouch for it that the machine is gone.

    Args:
        one: The only machine with the UUID.
        node: The Node's name.
        seen: The machines that were the Node's, the last one last: that a copy is off, which has
            run in another one's place, says nothing of that one.
        told: As for `match`.
        unreadable: The vCenters and names of machines whose configuration cannot be read.
    """
    told = tuple(told)
    if _runs_as(one, node):
        return one
    is_on, home = one.machine.power == _ON, next(iter(told), one.vcenter)
    if not is_on and home != one.vcenter:
        return CloudError(
            f"{described(one.machine)} in vCenter {one.vcenter} is not running, and may be a"
            f" replica: the machine of this node was in vCenter {home}, which does not show it"
        )
    others = [it for it in seen if (it.vcenter, it.ref) != (one.vcenter, one.machine.ref)]
    if others and (others[-1] is seen[-1] or not is_on):
        return Replaced(one, others[-1])
    if is_on or (seen and seen[-1].is_sure):
        return one
    lone = Lone(one, (one.vcenter,) if told else ())
    if seen:
        return lone
    return CloudError(_may_be(one.machine.uuid, unreadable)) if unreadable else lone


def remembered(one: Match, node: str, seen: Seen | None, at: int, *, is_alone: bool) -> Seen:
    """Return what is remembered of the machine that was found for a Node.

    Args:
        one: The machine.
        node: The Node's name.
        seen: What was remembered before.
        at: The round in which it was found.
        is_alone: Whether the indexes of whole vCenters know no other machine with its UUID.
    """
    now = Seen(one.vcenter, one.machine.ref, is_alone or _runs_as(one, node), at)
    was_sure = seen == msgspec.structs.replace(now, is_sure=True, at=seen.at if seen else at)
    return msgspec.structs.replace(now, is_sure=now.is_sure or was_sure)


def alone(one: Lone, known: Mapping[str, Collection[Ref] | CloudError]) -> Match | CloudError:
    """Return the machine that is off if the indexes of whole vCenters know no other with its UUID.

    Args:
        one: The machine.
        known: The machines with its UUID by the index of each vCenter that was asked.
    """
    failed = {name: it for name, it in known.items() if isinstance(it, CloudError)}
    if failed:
        return _unknown(failed)
    found = one.found
    others = [
        f"{ref} in vCenter {name}"
        for name, refs in known.items()
        if not isinstance(refs, CloudError)
        for ref in refs
        if (name, ref) != (found.vcenter, found.machine.ref)
    ]
    if not others:
        return found
    return CloudError(
        f"{described(found.machine)} in vCenter {found.vcenter} is not running, and may be a"
        f" replica of {', '.join(sorted(others))}, which is not in the cloud-config's datacenters:"
        " name that datacenter there, or move the machine back"
    )


def replaced(
    one: Replaced, last: str | CloudError | None, unreadable: Sequence[tuple[str, str]]
) -> Match | Lone | CloudError:
    """Return the machine that has a Node's UUID now if the one that had it before is gone.

    Args:
        one: The two machines.
        last: The UUID of the former machine now; None if its vCenter says that it is gone.
        unreadable: The vCenters and names of machines whose configuration cannot be read, and that
            came after the former one was seen: each may be it, registered anew.
    """
    if last is None:
        if one.found.machine.power == _ON:
            return one.found
        return (
            CloudError(_may_be(one.found.machine.uuid, unreadable))
            if unreadable
            else Lone(one.found)
        )
    found = f"{described(one.found.machine)} in vCenter {one.found.vcenter}"
    there = last if isinstance(last, CloudError) else f"it has the UUID {last or 'unknown'}"
    return CloudError(
        f"{found} has the UUID of this node's machine, and may be a replica of it: that was"
        f" {one.former.ref} in vCenter {one.former.vcenter}, and is not known to be gone: {there}"
    )


def absence(
    uuid: str,
    proofs: Mapping[str, Proof | CloudError],
    last: str | CloudError | None,
    unreadable: Sequence[tuple[str, str]],
) -> NotFound | CloudError:
    """Return the answer about a machine that is not shown: gone only if no vCenter knows its UUID.

    Nor may a machine be it whose configuration a vCenter cannot read, unless that one was there
    beside it when it was seen.

    Args:
        uuid: The BIOS UUID, which no inventory shows.
        proofs: The other answers of each vCenter about the UUID.
        last: The BIOS UUID of the machine that had this UUID when it was last seen; None if it is
            gone or was never seen.
        unreadable: The vCenters and names of machines whose configuration cannot be read, and of
            which each may be it.
    """
    failed = {name: one for name, one in proofs.items() if isinstance(one, CloudError)}
    given = {name: one for name, one in proofs.items() if not isinstance(one, CloudError)}
    for name, proof in given.items():
        if uuid in proof.listed:
            return CloudError(f"a new listing of vCenter {name} shows the machine {uuid} after all")
        if found := proof.found.get(uuid, ()):
            return CloudError(_elsewhere(uuid, name, found))
        if uuid not in proof.found:
            failed[name] = proof.failed.get(uuid, CloudError("its index was not asked"))
    if failed:
        return _unknown(failed)
    if last is not None:
        return CloudError(_hidden(uuid, last))
    return CloudError(_may_be(uuid, unreadable)) if unreadable else NotFound()


def _hidden(uuid: str, last: str | CloudError) -> str:
    if isinstance(last, CloudError):
        return f"the machine {uuid} is not shown any more, but may still exist: {last}"
    return (
        f"the machine that had the UUID {uuid} exists, with the UUID {last or 'unknown'}: give it"
        " its UUID back, or delete the Node"
    )


def _may_be(uuid: str, unreadable: Sequence[tuple[str, str]]) -> str:
    some = ", ".join(f"{name} in {vcenter}" for vcenter, name in unreadable[:_MOST_NAMED])
    more = f" and {len(unreadable) - _MOST_NAMED} more" if len(unreadable) > _MOST_NAMED else ""
    return (
        f"the machine {uuid} may be one whose configuration cannot be read now: {some}{more}: bring"
        " back its host or datastore, or remove it from the inventory"
    )


def _elsewhere(uuid: str, vcenter: str, found: Iterable[Ref]) -> str:
    return (
        f"vCenter {vcenter} knows the machine {uuid} ({', '.join(map(str, found))}), but not in the"
        " datacenters of the cloud-config: name the datacenter there, or move the machine back"
    )


def vcenter_of(names: Sequence[str], told: Iterable[str]) -> str:
    """Return the name of the vCenter in which a Node is looked up, its scope.

    A Node's label may name a vCenter that has left the cloud-config: no other one can say that its
    machine is gone, be it the only one that is left.

    Args:
        names: The names of all vCenters.
        told: The names of the vCenter where the Node's machine was seen last, and of the one that
            its label names; the first that exists counts.

    Raises:
        CloudError: Nothing tells which vCenter has it, or it is not in the cloud-config: then no
            other node can vouch for the answer.
    """
    told = tuple(filter(None, told))
    for name in told or names:
        if name in names and (told or len(names) == 1):
            return name
    if told:
        raise CloudError(
            f"the machine of this node was in vCenter {told[-1]}, by the Node's label, which the"
            " cloud-config does not name: name it there again, or remove the label if that vCenter"
            " is called otherwise now"
        )
    raise CloudError(
        "it is not known which vCenter has the machine of this node: none has shown it yet"
    )
