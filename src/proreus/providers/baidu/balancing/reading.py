"""Observe what the cloud has for a Service: load balancers, listeners, back ends, addresses."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.listers import Lister
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.ownership import Verdict, refusal, shown_by_others
from proreus.cloudprovider.waits import showing_only
from proreus.kube.objects import KubeObject, vip_addresses
from proreus.providers.baidu.api import Api, Described
from proreus.providers.baidu.balancing import documents, owners
from proreus.providers.baidu.balancing.annotations import ADDED_ID, PREFIX
from proreus.providers.baidu.balancing.parts import Balancer, Eip, Mark, Observed
from proreus.providers.baidu.config import BaiduConfig

_IN_USE: Final = "is bound to {holder}, which is not the Service's load balancer"
_BLB: Final = "BLB"
"""What a load balancer is called where an address is bound to it."""


class Wish(msgspec.Struct, frozen=True):
    """The load balancer and the address that a Service names.

    Attributes:
        balancer: The id of a load balancer, or "".
        address: A public address, or "".
    """

    balancer: str = ""
    address: str = ""


class Case(msgspec.Struct, frozen=True):
    """The observed state of a Service.

    Attributes:
        observed: Its load balancer and addresses.
        is_proven: Whether the load balancer is surely the Service's already.
    """

    observed: Observed
    is_proven: bool


class Made(msgspec.Struct):
    """The parts made for a Service a moment ago, which lists may not show yet.

    Attributes:
        balancer: The id of a load balancer, or "".
        eips: Public addresses.
    """

    balancer: str = ""
    eips: frozenset[str] = frozenset()


class Reader:
    """A reader of load balancers and their parts."""

    def __init__(self, api: Api, config: BaiduConfig, services: Lister[KubeObject]) -> None:
        """Keep the client of the cloud, the cloud-config, and all Services."""
        self._api = api
        self._config = config
        self._services = services

    async def balancers(self) -> list[Described]:
        """Return all load balancers of the region."""
        return await self._api.listed("listLoadBalancers", "blbList")

    async def eips(self) -> list[Described]:
        """Return all public addresses of the region."""
        return await self._api.listed("listEips", "eipList")

    async def subnets(self, vpc: str) -> list[Described]:
        """Return all subnets of a VPC."""
        return await self._api.listed("listSubnets", "subnets", vpcId=vpc)

    async def observe(self, ref: LoadBalancerRef, wish: Wish, made: Made) -> Case:
        """Observe the load balancer and the addresses of a Service.

        Args:
            ref: The Service.
            wish: The load balancer and the address that the Service names.
            made: The parts that were made for the Service a moment ago.

        Raises:
            InvalidRequest: The Service names an object that it cannot have.
            CloudError: The cloud gives no usable answer.
        """
        listed, addresses = await asyncio.gather(self.balancers(), self.eips())
        verdicts = self._verdicts(listed, ref)
        ours = [one for one in listed if verdicts[str(one["blbId"])].is_ours]
        about = [
            one
            for one in listed
            if one in ours
            or (one.get("blbId") == wish.balancer and not self._foreign(ref, one, verdicts))
        ]
        eips = self._eips(addresses, about, ref, wish.address, made)
        there = Observed(spare=tuple(map(documents.balancer, about)), eips=tuple(eips))
        with showing_only(ref, there.held):
            kept = self._kept(ref, wish, listed, ours, verdicts)
        if wish.address:
            # One that the Service names no more keeps the address of its owner.
            own = [one for one in about if one is kept or _mark(one).own != wish.address]
            elsewhere = {str(one["blbId"]) for one in listed if one not in about}
            if not ours and ref.service is not None:
                # The official manager may have made this one, under another name.
                meant = ref.service.metadata.annotations.get(ADDED_ID, "").strip()
                named = (one for one in listed if one["blbId"] == meant)
                elsewhere -= {
                    meant for one in named if owners.may_be_official(one, self._config.cluster_id)
                }
            self._check_address(ref, wish.address, addresses, own, elsewhere)
        spare = [one for one in ours if one is not kept]
        observed = Observed(
            balancer=await self._whole(kept) if kept is not None else None,
            spare=tuple([await self._emptied(one) for one in spare]),
            eips=tuple(eips),
        )
        is_proven = kept is not None and verdicts[str(kept["blbId"])].is_ours
        return Case(observed, is_proven)

    async def observe_rest(self, ref: LoadBalancerRef, made: Made) -> Observed:
        """Observe all that has to be deleted with a Service.

        Raises:
            CloudError: The cloud gives no usable answer.
        """
        listed, addresses = await asyncio.gather(self.balancers(), self.eips())
        verdicts = self._verdicts(listed, ref)
        ours = [one for one in listed if verdicts[str(one["blbId"])].is_ours]
        requested = ref.service.spec.load_balancer_ip if ref.service is not None else ""
        eips = self._eips(addresses, ours, ref, requested, made)
        return Observed(spare=tuple([await self._emptied(one) for one in ours]), eips=tuple(eips))

    def _verdicts(self, listed: Iterable[Described], ref: LoadBalancerRef) -> dict[str, Verdict]:
        """Return how load balancers are related to a Service, by their ids."""
        return owners.verdicts_of(
            listed, ref, cluster_id=self._config.cluster_id, vpc=self._config.vpc_id
        )

    def _eips(
        self,
        addresses: Iterable[Described],
        balancers: Iterable[Described],
        ref: LoadBalancerRef,
        requested: str,
        made: Made,
    ) -> list[Eip]:
        """Return the addresses that belong to a Service, or that it names."""
        return documents.eips(
            addresses, balancers, ref, requested, made.eips, cluster_id=self._config.cluster_id
        )

    def _kept(
        self,
        ref: LoadBalancerRef,
        wish: Wish,
        listed: list[Described],
        ours: list[Described],
        verdicts: dict[str, Verdict],
    ) -> Described | None:
        """Return the load balancer that the Service should use, if it is there."""
        if wish.balancer:
            return self._named(ref, wish.balancer, listed, verdicts)
        made_for_it = [one for one in ours if not _mark(one).is_given]
        # The one that says what it was made from is the one in use; of others, any.
        return min(
            made_for_it,
            key=lambda one: (
                not _mark(one).made,
                not one.get("publicIp"),
                str(one["blbId"]),
            ),
            default=None,
        )

    def _named(
        self,
        ref: LoadBalancerRef,
        id_: str,
        listed: list[Described],
        verdicts: dict[str, Verdict],
    ) -> Described:
        annotation = f"annotation {PREFIX}load-balancer-id"
        found = next((one for one in listed if one.get("blbId") == id_), None)
        if found is None:
            raise InvalidRequest(f"{annotation}: there is no load balancer {id_} in this region")
        if verdicts[id_].is_ours:
            return found
        if why := self._foreign(ref, found, verdicts):
            raise InvalidRequest(f"{annotation}: {id_} cannot be used: {why}")
        if not owners.has_room(replace(_mark(found), service="")):
            raise InvalidRequest(
                f"{annotation}: {id_} cannot be used: its description is too long for our mark:"
                " shorten it to 250 bytes"
            )
        return found

    def _foreign(
        self, ref: LoadBalancerRef, described: Described, verdicts: Mapping[str, Verdict]
    ) -> str:
        """Return why a Service may not name a load balancer; "" if it may."""
        id_ = str(described["blbId"])
        if verdicts[id_].is_ours:
            return ""
        whose = owners.owners_of(described, ref, self._config.cluster_id)
        why = refusal(whose, ref, self._config.tenants, (id_,))
        if not why and _mark(described).cluster_uid:
            why = (
                "it is another Service's, and all back ends of a load balancer serve all its ports"
            )
        return why

    def _check_address(
        self,
        ref: LoadBalancerRef,
        ip: str,
        addresses: Iterable[Described],
        balancers: Iterable[Described],
        elsewhere: Collection[str],
    ) -> None:
        found = next((one for one in addresses if one.get("eip") == ip), None)
        held = {str(one.get(field)) for one in balancers for field in ("address", "publicIp")}
        # Nodes must not lead the clients of whoever has it by now to the Service.
        is_left = ip in vip_addresses(ref.last_ingress) and ip not in held
        if found is None:
            error = InvalidRequest(
                f"spec.loadBalancerIP: there is no public address {ip} in this region: give one of"
                " the account's EIPs"
            )
            raise error.disowning() if is_left else error
        holder = str(found.get("instanceId") or "")
        if holder in {str(one["blbId"]) for one in balancers}:
            return
        whose = owners.eip_owners(found, ref, self._config.cluster_id)
        whose += shown_by_others(ip, ref, self._services.all())
        why = refusal(whose, ref, self._config.tenants, (ip,))
        if why or holder:
            why = why or f"it {_IN_USE.format(holder=holder)}"
            error = InvalidRequest(f"spec.loadBalancerIP: {ip} cannot be used: {why}")
            # A list may lack the Service's own load balancer: one that it shows is another's.
            is_machines = bool(holder) and str(found.get("instanceType") or _BLB) != _BLB
            is_others = is_machines or holder in elsewhere
            raise error.disowning() if is_left and is_others else error

    async def _whole(self, described: Described) -> Balancer:
        """Read a load balancer with its listeners and back ends, once it is there."""
        if str(described.get("status") or "").lower() == "creating":
            return documents.balancer(described)
        id_ = str(described["blbId"])
        listeners, servers = await asyncio.gather(
            self._api.listed("listListeners", "listenerList", id_),
            self._api.listed("listBackendServers", "backendServerList", id_),
        )
        return documents.balancer(described, listeners, servers)

    async def _emptied(self, described: Described) -> Balancer:
        """Read a load balancer to be deleted; one that may stay with all that it is to lose.

        Whether a load balancer without our mark stays, an annotation says, which becomes part of
        the mark.
        """
        found = documents.balancer(described)
        may_stay = found.mark.stays or not found.mark.cluster_uid
        return await self._whole(described) if may_stay else found


def _mark(described: Described) -> Mark:
    return owners.read_mark(str(described.get("desc") or ""))


def missing(made: Made, observed: Observed) -> str:
    """Return a part that was made a moment ago and is not shown yet, in words, or "". Pure."""
    balancers = {one.id for one in (observed.balancer, *observed.spare) if one is not None}
    if made.balancer and made.balancer not in balancers:
        return f"load balancer {made.balancer}"
    lacking = made.eips - {one.ip for one in observed.eips}
    return f"public address {min(lacking)}" if lacking else ""
