"""Assign addresses of pools to load balancers. Pure.

`assign` is asked once for each Service, with what all the others have:

    result = assign(request, Occupied(taken, addresses_of_machines), pools)
    if isinstance(result, Refused): raise result.error

Addresses that a Service asks for by name come first, then those that it has, then the first free
one of the pools in their order.

An address serves several Services of one namespace if all of them carry the same sharing key and
no port twice. Those of several namespaces share what the pool lets them, or have shared already,
but none that nodes announce where one of both has `externalTrafficPolicy: Local`.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.kube.objects import LoadBalancerIngress
from proreus.providers.local.addresses import (
    Address,
    Pool,
    contains,
    family_of,
    parse,
    range_text,
)
from proreus.providers.local.asked import (
    ANNOTATION_ADDRESSES,
    ANNOTATION_POOL,
    ANNOTATION_SHARING_KEY,
    Request,
)
from proreus.providers.local.kept import is_decided, selects, serves_namespace
from proreus.providers.local.taken import Occupied, Taken


class Assigned(msgspec.Struct, frozen=True):
    """The assigned addresses in the order of the families; at least one."""

    addresses: tuple[str, ...]

    @property
    def ingress(self) -> tuple[LoadBalancerIngress, ...]:
        """The addresses as a Service's status shows them: kube-proxy takes their packets, too."""
        return tuple(LoadBalancerIngress(ip=one, ip_mode="VIP") for one in self.addresses)


class Refused(msgspec.Struct, frozen=True):
    """The refusal of an address, with the field to blame and the remedy in one sentence.

    `may_pass` is whether other Services are in the way: one that is deleted makes room.
    """

    reason: str
    may_pass: bool = False

    @property
    def error(self) -> CloudError:
        """The error to answer: only an `InvalidRequest` is not tried again by itself."""
        return CloudError(self.reason) if self.may_pass else InvalidRequest(self.reason)


def assign(request: Request, occupied: Occupied, pools: Sequence[Pool]) -> Assigned | Refused:
    """Choose the addresses of a load balancer.

    Args:
        request: The addresses that the Service asks for.
        occupied: The addresses of all Services, and addresses that are in use otherwise: of the
            latter a Service keeps one that it has (kube-proxy may put it on this very machine).
        pools: The pools in the order of preference.
    """
    try:
        requested = _by_family(request)
        choice = _Choice(request, occupied, _eligible(request, pools))
        found = [
            choice.requested(requested[family], pools)
            if family in requested
            else choice.free(family)
            for family in request.families
        ]
    except _Impossible as problem:
        return Refused(str(problem), problem.may_pass)
    given = tuple(str(one) for one in found if one is not None)
    if not given or (request.all_families and len(given) < len(request.families)):
        short = [family for family, one in zip(request.families, found, strict=True) if one is None]
        return choice.exhausted(short)
    return Assigned(given)


class _Impossible(Exception):
    """The signal that a request cannot be met; for `may_pass` see `Refused`."""

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class _Choice:
    """The choice of addresses for one Service, among the pools that it may use."""

    def __init__(self, request: Request, occupied: Occupied, pools: Sequence[Pool]) -> None:
        self._request = request
        self._pools = pools
        self._giving = [pool for pool in pools if pool.auto_assign or pool.name == request.pool]
        self._occupied = occupied
        self._current = [parse(text) for text in request.current]

    def requested(self, address: Address, all_pools: Sequence[Pool]) -> Address:
        """Return the address that the Service asks for, if it may have it."""
        if not any(contains(pool, address) for pool in self._pools):
            raise _Impossible(_not_eligible(self._request, address, all_pools))
        if problem := self._conflict(address):
            raise _Impossible(
                f"the address {address} that the Service asks for {problem}",
                may_pass=bool(self._others(address)),
            )
        return address

    def free(self, family: str) -> Address | None:
        """Return the address that it has, or one to share, or the first that nobody has.

        Return None if no address can be given.
        """
        own = [parse(one.address) for one in self._occupied.of(self._request.uid)]
        has = self._held((*self._current, *own), self._pools)
        for address in (*has, *self._held(self._shared(), self._giving)):
            if family_of(address) == family and not self._conflict(address):
                return address
        every = (self._occupied.first_free(pool, family) for pool in self._giving)
        return next((one for one in every if one is not None), None)

    def exhausted(self, families: Sequence[str]) -> Refused:
        """Return why no address is left."""
        for family in families:
            having = [
                pool.name
                for pool in self._giving
                if any(family_of(one.first) == family for one in pool.ranges)
            ]
            if having:
                return Refused(
                    f"no free {family} address is left in the pools {', '.join(having)}: add"
                    " addresses in the cloud-config, or delete a Service of type LoadBalancer",
                    may_pass=True,
                )
        names = ", ".join(pool.name for pool in self._giving) or "none"
        return Refused(
            f"no pool that gives the Service addresses ({names}) has {' or '.join(families)}:"
            " change spec.ipFamilies, or add addresses to a pool in the cloud-config"
        )

    @staticmethod
    def _held(known: Iterable[Address | None], pools: Sequence[Pool]) -> Iterator[Address]:
        for address in known:
            if address is not None and any(contains(pool, address) for pool in pools):
                yield address

    def _shared(self) -> Iterator[Address]:
        """Return the addresses of Services with the same sharing key."""
        key = self._request.sharing_key
        return self._occupied.shared(key, self._request.uid) if key else iter(())

    def _others(self, address: Address) -> Sequence[Taken]:
        one = self._request
        return self._occupied.rivals(
            address, one.uid, one.ports, one.sharing_key, is_narrow=one.is_narrow
        )

    def _conflict(self, address: Address) -> str:
        """Return why the Service cannot have an address, or ""."""
        in_use = self._occupied.in_use
        if address in in_use and address not in self._current:
            return f"is in use by {in_use[address]}: ask for another one"
        every = (self._conflict_with(one, address) for one in self._others(address))
        return next(filter(None, every), "")

    def _conflict_with(self, one: Taken, address: Address) -> str:
        if one.is_foreign and address not in self._current:
            return f"belongs to the Service {one.service} of another cluster: ask for another one"
        if not one.sharing_key or one.sharing_key != self._request.sharing_key:
            return (
                f"belongs to the Service {one.service}: ask for another one, or give both"
                f" the same annotation {ANNOTATION_SHARING_KEY}"
            )
        if not self._may_share(address, one):
            return (
                f"belongs to the Service {one.service} of another namespace: ask for another"
                " one, or set share-across-namespaces for its pool in the cloud-config"
            )
        if self._would_narrow(address, one):
            return (
                f"belongs to the Service {one.service} of another namespace, and one of both"
                " has externalTrafficPolicy: Local: ask for another address, or set Cluster"
            )
        if common := sorted(one.ports & self._request.ports):
            protocol, port = common[0]
            return (
                f"is shared with the Service {one.service}, which has {protocol} {port} too:"
                " change one of the ports, or ask for another address"
            )
        return ""

    def _is_neighbour(self, other: Taken) -> bool:
        return other.service.partition("/")[0] == self._request.namespace

    def _would_narrow(self, address: Address, other: Taken) -> bool:
        """Tell whether one of two tenants would newly choose for both which nodes announce."""
        own = self._occupied.at(address, self._request.uid)
        was_narrow = any(one.is_narrow and not one.is_refused for one in own)
        is_known = address in self._current and (was_narrow or not self._request.is_narrow)
        either = self._request.is_narrow or other.is_narrow
        return either and not is_known and not self._is_neighbour(other)

    def _may_share(self, address: Address, other: Taken) -> bool:
        """Tell whether another Service is near enough: a tenant can guess another's key."""
        if self._is_neighbour(other) or address in self._current:
            return True
        return any(one.share_across_namespaces and contains(one, address) for one in self._pools)


def _by_family(request: Request) -> dict[str, Address]:
    found: dict[str, Address] = {}
    for text in request.requested:
        address = parse(text)
        if address is None:
            raise _Impossible(
                f"{text!r} is not an IP address: correct spec.loadBalancerIP or the annotation"
                f" {ANNOTATION_ADDRESSES}"
            )
        family = family_of(address)
        if family not in request.families:
            raise _Impossible(
                f"the Service asks for the address {address}, but has no {family}: change it or"
                " spec.ipFamilies"
            )
        if family in found:
            raise _Impossible(
                f"the Service asks for two {family} addresses, {found[family]} and {address}:"
                " leave one of them out"
            )
        found[family] = address
    return found


def _eligible(request: Request, pools: Sequence[Pool]) -> list[Pool]:
    """Return the pools that the Service may use, also those that give nothing by themselves."""
    namespace = request.namespace, request.namespace_labels
    selecting = [pool for pool in pools if selects(pool, request.labels)]
    if unknown := [pool.name for pool in selecting if not is_decided(pool, *namespace)]:
        raise _Impossible(
            f"the labels of the namespace {request.namespace} are not known, by which"
            f" namespaceSelectors of {', '.join(unknown)} in the cloud-config choose: if this"
            " lasts, let the manager list and watch namespaces",
            may_pass=True,
        )
    allowed = [pool for pool in selecting if serves_namespace(pool, *namespace)]
    if request.pool:
        named = [pool for pool in allowed if pool.name == request.pool]
        if not named:
            known = ", ".join(pool.name for pool in allowed) or "none"
            raise _Impossible(
                f"the annotation {ANNOTATION_POOL} names the pool {request.pool!r}, which the"
                f" Service may not use or which does not exist; there are {known}"
            )
        return named
    return allowed


def _not_eligible(request: Request, address: Address, pools: Sequence[Pool]) -> str:
    start = f"the address {address} that the Service asks for"
    for pool in pools:
        if contains(pool, address):
            if request.pool and pool.name != request.pool:
                return f"{start} is of the pool {pool.name}, not of {request.pool}: leave one out"
            missing = (
                "select the Service's labels"
                if serves_namespace(pool, request.namespace, request.namespace_labels)
                else f"serve the namespace {request.namespace}"
            )
            return (
                f"{start} is of the pool {pool.name}, which does not {missing}: ask for an"
                " address of another pool"
            )
    known = ", ".join(f"{range_text(one)}" for pool in pools for one in pool.ranges) or "none"
    return f"{start} is in no pool or left out of it; there are {known}"
