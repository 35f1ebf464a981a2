"""Tell which machines came after another one was last seen: only those may be that one. Pure.

A machine that is registered anew, such as with a host that is removed and added again, gets another
reference, and no vCenter gives one twice. So what was there beside a machine is another one.
"""

from collections.abc import Iterable, Mapping

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.providers.vsphere.machines import Machine, Proof, Snapshot
from proreus.providers.vsphere.soap import Ref


class Seen(msgspec.Struct, frozen=True):
    """The machine that was the last one found for a Node.

    Attributes:
        vcenter: The name of the vCenter that showed it.
        ref: Its reference.
        is_sure: Whether it has run under the Node's name, or was known to have no replica.
        at: The round in which it was found (`Arrivals.note`); 0 if only an index knew it.
    """

    vcenter: str
    ref: Ref
    is_sure: bool = False
    at: int = 0


class Arrivals:
    """The rounds in which the machines that are there were shown first."""

    def __init__(self) -> None:
        """Begin with no round."""
        self._round = 0
        self._first: dict[str, Mapping[Ref, int]] = {}

    def note(self, shown: Mapping[str, Snapshot | CloudError]) -> int:
        """Note which machines the vCenters show now; return the number of this round."""
        self._round += 1
        for name, snapshot in shown.items():
            if not isinstance(snapshot, CloudError):
                before = self._first.get(name, {})
                self._first[name] = {ref: before.get(ref, self._round) for ref in snapshot.machines}
        return self._round

    def since(
        self,
        known: Iterable[Seen],
        machines: Iterable[tuple[str, Machine]],
        former: Iterable[Seen] = (),
    ) -> list[tuple[str, str]]:
        """Return the vCenters and names of those machines that may be one that was seen before.

        Args:
            known: The sightings of that one; without any all machines may be it.
            machines: The machines, each with the name of its vCenter.
            former: The last sightings of those in whose place that one has run: each may be one of
                the machines, too.
        """
        last = min([max((one.at for one in known), default=0), *(one.at for one in former)])
        return [
            (vcenter, one.name)
            for vcenter, one in machines
            if self._first.get(vcenter, {}).get(one.ref, last + 1) > last
        ]


def in_indexes(uuids: Iterable[str], proofs: Mapping[str, Proof | CloudError]) -> tuple[Seen, ...]:
    """Return the machines that indexes of whole vCenters know by one of these UUIDs."""
    given = {name: one for name, one in proofs.items() if isinstance(one, Proof)}
    return tuple(
        Seen(name, ref)
        for uuid in uuids
        for name, proof in given.items()
        for ref in proof.found.get(uuid, ())
    )
