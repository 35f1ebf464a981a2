"""Find zones and regions by the tags above machines and hosts in the inventory. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.providers.vsphere.config import Labels
from proreus.providers.vsphere.machines import Machine, described
from proreus.providers.vsphere.soap import Ref

_HOST: Final = "HostSystem"


class Marks(msgspec.Struct, frozen=True):
    """The tags of one object that name a zone or a region; "" for none."""

    zone: str = ""
    region: str = ""


def zone_of(
    machine: Machine, parents: Mapping[Ref, Ref], tagged: Mapping[Ref, Marks], labels: Labels
) -> Marks | CloudError:
    """Return zone and region of a machine.

    Marks are looked for from the machine's host upwards, then from its resource pool, then from the
    machine itself through its folders: where both are found on one way. As officially, a zone
    further up counts rather than one below it as long as no region has been met, and the other way
    round.
    """
    for place in machine.places:
        found = _above(place, parents, tagged)
        if found is not None:
            return found
    return CloudError(
        f"nothing above {described(machine)} has a tag of the category {labels.zone} and one of"
        f" {labels.region}: tag its host, cluster, datacenter or folder, or let the user read them"
    )


def shared_zones(
    hosts: Collection[Ref], parents: Mapping[Ref, Ref], tagged: Mapping[Ref, Marks]
) -> list[Marks]:
    """Return the zones of an object that these hosts share, such as a datastore, sorted.

    As officially, an object is in each zone that all its hosts have.

    Args:
        hosts: The hosts that can reach the object.
        parents: The parent of each object, for all hosts of the vCenter, too.
        tagged: The tags of each object.
    """
    members: dict[Marks, set[Ref]] = {}
    for host in parents:
        if host.type == _HOST and (found := _above(host, parents, tagged)) is not None:
            members.setdefault(found, set()).add(host)
    whole = (one for one in members if members[one] <= set(hosts))
    return sorted(whole, key=lambda one: (one.region, one.zone))


def _above(place: Ref, parents: Mapping[Ref, Ref], tagged: Mapping[Ref, Marks]) -> Marks | None:
    """Return zone and region by the tags of a place and those above it; None unless it has both."""
    found = Marks()
    for ref in _upwards(place, parents):
        here = tagged.get(ref, Marks())
        found = Marks(here.zone or found.zone, here.region or found.region)
        if found.zone and found.region:
            return found
    return None


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
        marks: The object, `zone` or `region`, and the name. Of several names for one object the
            first one in the alphabet counts, so that it stays the same.
    """
    found: dict[Ref, Marks] = {}
    for ref, kind, name in sorted(marks, key=lambda one: (one[0], one[1], one[2])):
        before = found.get(ref, Marks())
        if not getattr(before, kind):
            found[ref] = msgspec.structs.replace(before, **{kind: name})
    return found
