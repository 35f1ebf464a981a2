"""Choose the subnets of a load balancer: one in each availability zone.

Annotated subnets go before found ones. Found are those of the VPC with the cluster's tag, public
for a public load balancer; of several in a zone the one whose role tag says so, then the one with
the cluster's tag, then the first by id, as the official manager chooses. A role tag alone suffices,
but not on a subnet that is another cluster's. Nor is one found that another namespace has reserved.
"""

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.mark_forms import owner_of
from proreus.cloudprovider.ownership import Standing, standing
from proreus.providers.aws.annotations import PREFIX
from proreus.providers.aws.identity import ClusterTags, Place, tags_of

if TYPE_CHECKING:
    from proreus.cloudprovider.load_balancers import LoadBalancerRef
    from proreus.providers.aws.api import Api

TAG_PUBLIC: Final = "kubernetes.io/role/elb"
"""The tag of a subnet for public load balancers."""
TAG_INTERNAL: Final = "kubernetes.io/role/internal-elb"
"""The tag of a subnet for internal load balancers."""

_FIELD: Final = f"annotation {PREFIX}subnets"
_ZONES: Final = "availability-zone"
_KEPT: Final = 60.0

Described = Mapping[str, Any]
"""An object as EC2 describes it."""


class Subnet(msgspec.Struct, frozen=True):
    """A subnet; `v6` is its IPv6 range, "" without one."""

    id: str
    zone: str
    vpc: str
    v4: str = ""
    v6: str = ""
    tags: Mapping[str, str] = {}
    public: bool = False


def subnets_of(subnets: Iterable[Described], tables: Sequence[Described]) -> tuple[Subnet, ...]:
    """Return the subnets that EC2 describes, each with what route tables say of it. Pure."""
    return tuple(_subnet(subnet, tables) for subnet in subnets)


def _subnet(described: Described, tables: Sequence[Described]) -> Subnet:
    v6 = next(
        (
            one["Ipv6CidrBlock"]
            for one in described.get("Ipv6CidrBlockAssociationSet") or ()
            if one.get("Ipv6CidrBlockState", {}).get("State") == "associated"
        ),
        "",
    )
    return Subnet(
        id=described["SubnetId"],
        zone=described["AvailabilityZone"],
        vpc=described["VpcId"],
        v4=described.get("CidrBlock", ""),
        v6=v6,
        tags=tags_of(described),
        public=_is_public(described["SubnetId"], described["VpcId"], tables),
    )


def _is_public(subnet: str, vpc: str, tables: Sequence[Described]) -> bool:
    """Tell whether a subnet's route table, or else the VPC's main one, leads to the internet."""

    def associated(table: Described, **what: object) -> bool:
        associations = table.get("Associations") or ()
        return any(what.items() <= association.items() for association in associations)

    own = [table for table in tables if associated(table, SubnetId=subnet)]
    main = [table for table in tables if table["VpcId"] == vpc and associated(table, Main=True)]
    return any(
        (route.get("GatewayId") or "").startswith("igw-")
        for table in own or main
        for route in table.get("Routes") or ()
    )


def is_reserved(subnet: Subnet, ref: "LoadBalancerRef") -> bool:
    """Tell whether a mark reserves a subnet for another namespace or cluster. Pure."""
    owner = owner_of(subnet.tags)
    return owner is not None and standing(owner, ref) is Standing.FOREIGN


def usable_zones(zones: Iterable[Described]) -> frozenset[str]:
    """Return the zones of a region that can be used: not local and wavelength zones. Pure."""
    return frozenset(zone["ZoneName"] for zone in zones if zone.get("ZoneType", _ZONES) == _ZONES)


def default_subnets(
    subnets: Iterable[Subnet],
    zones: frozenset[str],
    cluster: ClusterTags,
    *,
    internal: bool,
    default: str = "",
    used: Collection[str] = (),
) -> tuple[Subnet, ...]:
    """Choose the subnets for a load balancer that names none, by id. Pure.

    Args:
        subnets: All subnets of the VPC.
        zones: The zones that may be used; see `usable_zones`.
        cluster: The tags by which the cluster's subnets are known.
        internal: Whether the load balancer has no public address.
        default: The id of a subnet to use where none has the cluster's tag.
        used: The ids of the subnets that it has.

    Raises:
        InvalidRequest: No subnet can be used.
    """
    subnets = tuple(subnets)
    role = TAG_INTERNAL if internal else TAG_PUBLIC
    # A subnet with a role is meant for the load balancers of all, unless it is another cluster's.
    usable = [
        one
        for one in subnets
        if cluster.has(one.tags)
        or (role in one.tags and (one.id in used or not cluster.is_anothers(one.tags)))
    ]
    usable = usable or [subnet for subnet in subnets if subnet.id == default]
    best: dict[str, Subnet] = {}
    for one in sorted(
        (one for one in usable if one.zone in zones and (internal or one.public)),
        key=lambda one: (role not in one.tags, not cluster.has(one.tags), one.id),
    ):
        best.setdefault(one.zone, one)
    if not best:
        kind = "internal" if internal else "public"
        raise InvalidRequest(
            f"no subnet for a {kind} load balancer: tag one in each zone with {role}, or give "
            f"{PREFIX}subnets"
        )
    return tuple(sorted(best.values(), key=lambda one: one.id))


def named_subnets(names: Sequence[str], subnets: Iterable[Subnet]) -> tuple[Subnet, ...]:
    """Return the subnets of these ids or names, in their order. Pure.

    Raises:
        InvalidRequest: A subnet does not exist, is not unique, or has the zone of another one;
            names each.
    """
    subnets = tuple(subnets)
    problems, chosen = [], []
    for name in names:
        matches = [subnet for subnet in subnets if name in {subnet.id, subnet.tags.get("Name")}]
        if len(matches) != 1:
            many = "is none" if not matches else f"are {len(matches)}"
            problems.append(f"{_FIELD}: there {many} of {name!r} in the cluster's VPC")
        chosen += matches[:1]
    zones: dict[str, str] = {}
    for one in chosen:
        first = zones.setdefault(one.zone, one.id)
        if first != one.id:
            problems.append(f"{_FIELD}: {first} and {one.id} are both in {one.zone}: leave one out")
    if problems:
        raise InvalidRequest("; ".join(problems))
    return tuple(chosen)


class Subnets:
    """A reader of subnets, zones and route tables, which keeps them for a minute."""

    def __init__(self, api: "Api", place: Place) -> None:
        """Keep the client of AWS, and the cluster's place."""
        self._api = api
        self._place = place
        self._read_at = -math.inf
        self._subnets: tuple[Subnet, ...] = ()
        self._zones: frozenset[str] = frozenset()
        self._turn = asyncio.Lock()

    async def choose(
        self,
        ref: "LoadBalancerRef",
        names: Sequence[str],
        *,
        internal: bool,
        used: Collection[str] = (),
        anew: bool = False,
    ) -> tuple[Subnet, ...]:
        """Choose the subnets of a load balancer that names these, or none.

        Args:
            ref: The Service that it is for.
            names: The ids or names of the subnets that it names.
            internal: Whether it has no public address.
            used: The ids of the subnets that it has.
            anew: Whether all is read again, though it was a moment ago.

        Raises:
            InvalidRequest: No subnet can be used, or a name is wrong.
            CloudError: AWS does not answer.
        """
        async with self._turn:
            now = self._api.context.uptime()
            if anew or now - self._read_at > _KEPT:
                await self._read()
                self._read_at = now
        if names:
            return named_subnets(names, self._subnets)
        place = self._place
        return default_subnets(
            (one for one in self._subnets if one.id in used or not is_reserved(one, ref)),
            self._zones,
            place.tags,
            internal=internal,
            default=place.subnet,
            used=used,
        )

    async def _read(self) -> None:
        here = {"Filters": [{"Name": "vpc-id", "Values": [self._place.vpc]}]}
        described, tables, zones = await asyncio.gather(
            self._api.pages("ec2", "DescribeSubnets", "Subnets", **here),
            self._api.pages("ec2", "DescribeRouteTables", "RouteTables", **here),
            self._api.call("ec2", "DescribeAvailabilityZones"),
        )
        self._subnets = subnets_of(described, tables)
        self._zones = usable_zones(zones["AvailabilityZones"])
