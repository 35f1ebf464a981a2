"""Plan which instances join and leave pools, instance groups and groups of endpoints. Pure."""

from collections.abc import Iterator
from typing import Final

import msgspec

from proreus.providers.gce.balancing.desired import Desired
from proreus.providers.gce.balancing.hosts import by_zone, mistaken
from proreus.providers.gce.balancing.parts import Backend, BackendService, Group, Kind
from proreus.providers.gce.balancing.steps import Observed, Step, hosts, insert
from proreus.providers.gce.balancing.subsets.choice import chosen
from proreus.providers.gce.names import Machine, zone_in
from proreus.providers.gce.place import Place

MOST_AT_ONCE: Final = 1000
"""Instances that one call adds to a target pool or an instance group, or removes."""
MOST_ENDPOINTS_AT_ONCE: Final = 500
"""The same for groups of endpoints."""
_NOT_IN: Final = "it comes into no group with the others"


def member_steps(
    kind: Kind, name: str, desired: frozenset[Machine], observed: frozenset[Machine]
) -> Iterator[Step]:
    """Plan who joins and who leaves a pool or a group."""
    most = MOST_ENDPOINTS_AT_ONCE if kind is Kind.ENDPOINTS else MOST_AT_ONCE
    for machines, adds in ((desired - observed, True), (observed - desired, False)):
        if machines:
            yield hosts(kind, name, tuple(sorted(machines)[:most]), adds=adds)


def without_strangers(desired: Desired, observed: Observed) -> Observed:
    """Return the groups of zones, closed to instances that Nodes may name by mistake, or by a lie.

    Google refuses all for one of another subnetwork, or in the group of another load balancer, and
    the first one of a group decides for all others. Those that are in already stay.
    """
    refused = {one: mistaken(one, _NOT_IN) for one in desired.strange - observed.grouped()}
    return msgspec.structs.replace(observed, refused={**observed.refused, **refused})


def group_steps(machines: frozenset[Machine], observed: Observed) -> tuple[Step, ...]:
    """Return the steps that make the instance groups of all zones as desired."""
    groups, steps = observed.groups(), list[Step]()
    zones = by_zone(machines)
    for zone in sorted({*zones, *groups}):
        wanted = zones.get(zone, frozenset()) - observed.refused.keys()
        group = groups.get(zone)
        if group is None:
            steps.append(insert(Kind.GROUP, Group(zone)))
        else:
            steps += member_steps(Kind.GROUP, zone, wanted, group.machines)
    return tuple(steps)


def endpoint_steps(desired: Desired, observed: Observed) -> Iterator[Step]:
    """Plan the groups of endpoints of a subset of the nodes, in each zone that has nodes.

    The group of a zone without nodes stays, empty, as officially: nodes may come back.
    """
    if desired.subset is None:
        return
    groups = observed.groups()
    zones = by_zone(
        chosen(
            desired.machines - observed.refused.keys(),
            observed.grouped(),
            desired.service,
            local=not desired.shares_check,
        )
    )
    for zone in sorted({*by_zone(desired.machines), *groups}):
        group = groups.get(zone)
        if group is None:
            yield insert(Kind.ENDPOINTS, msgspec.structs.replace(desired.subset.group, name=zone))
        else:
            wanted = zones.get(zone, frozenset())
            yield from member_steps(Kind.ENDPOINTS, zone, wanted, group.machines)


def with_groups(
    backend: BackendService, desired: Desired, observed: Observed, place: Place
) -> BackendService:
    """Return the desired backend service with the groups of zones, as far as they are there.

    Instance groups are those of the zones that have hosts; groups of endpoints are its own. What it
    leads to already is there, although a list may leave out a zone that Google does not reach.
    """
    before = observed.backend(backend.name)
    zones = set(observed.groups())
    if before is not None:
        urls = [one.group for one in before.backends]
        end = f"/{desired.group_kind}/{desired.group}"
        zones |= {zone_in(url) for url in urls if url.endswith(end)}
    if desired.subset is None:
        zones &= by_zone(desired.machines).keys()
    groups = tuple(
        Backend(place.url(place.in_zone(zone, desired.group_kind, desired.group)))
        for zone in sorted(zones)
    )
    return msgspec.structs.replace(backend, backends=groups)
