"""Find zone and region of a machine by the tags above it in the inventory. Pure."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.providers.vsphere.config import Labels
from proreus.providers.vsphere.machines import Machine, described
from proreus.providers.vsphere.soap import Ref


class Marks(msgspec.Struct, frozen=True):
    """The tags of one object that name a zone or a region; "" for none."""

    zone: str = ""
    region: str = ""


def zone_of(
    machine: Machine, parents: Mapping[Ref, Ref], tagged: Mapping[Ref, Marks], labels: Labels
) -> Marks | CloudError:
    """Return zone and region of a machine.

    They are looked for from its host upwards, then from its resource pool, then from the machine
    itself through its folders: where both are found on one way. As officially, a zone further up
    counts rather than one below it as long as no region has been met, and the other way round.
    """
    for place in machine.places:
        found = Marks()
        for ref in _upwards(place, parents):
            here = tagged.get(ref, Marks())
            found = Marks(here.zone or found.zone, here.region or found.region)
            if found.zone and found.region:
                return found
    return CloudError(
        f"nothing above {described(machine)} has a tag of the category {labels.zone} and one of"
        f" {labels.region}: tag its host, cluster, datacenter or folder, or let the user read them"
    )


def _upwards(place: Ref, parents: Mapping[Ref, Ref]) -> Iterator[Ref]:
    """Yield an object of the inventory and all above it, each once, even if they form a ring."""
    seen: set[Ref] = set()
    at: Ref | None = place
    while at is not None and at not in seen:
        seen.add(at)
        yield at
        at = parents.get(at)


def merged(marks: Sequence[tuple[Ref, str, str]]) -> Mapping[Ref, Marks]:
    """Return the marks of objects, by object.

    Args:
        marks: Object, `zone` or `region`, and name. Of several names of one sort the first one in
            the alphabet counts, so that it stays the same.
    """
    found: dict[Ref, Marks] = {}
    for ref, kind, name in sorted(marks, key=lambda one: (one[0], one[1], one[2])):
        before = found.get(ref, Marks())
        if not getattr(before, kind):
            found[ref] = msgspec.structs.replace(before, **{kind: name})
    return found
