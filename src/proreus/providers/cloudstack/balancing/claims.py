"""Read which Services claim addresses, by tags on networks."""

from collections.abc import Collection, Sequence

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.listers import Lister
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.ownership import Owner, shown_addresses, shown_by_others
from proreus.kube.objects import KubeObject, Service
from proreus.providers.cloudstack.api import Api, Described
from proreus.providers.cloudstack.balancing import documents, owners
from proreus.providers.cloudstack.balancing.parts import Network


class Claims:
    """A reader of claims, with a memory of those that prove nothing."""

    def __init__(self, api: Api, services: Lister[KubeObject]) -> None:
        """Keep the client of CloudStack, and all Services; begin without any refusal."""
        self._api = api
        self._services = services
        self._refused: set[tuple[str, str]] = set()
        self._idle: dict[str, str] = {}

    def tried(self, ref: LoadBalancerRef, ip: str, *, is_refused: bool) -> None:
        """Note that an address is being acquired for a Service, or that CloudStack has refused it.

        A claim on what was refused proves nothing, as long as it cannot be removed.
        """
        if is_refused:
            self._refused.add((ref.uid, ip))
        else:
            self._refused.discard((ref.uid, ip))

    def note_refusal(
        self, ref: LoadBalancerRef, network: Network, ip: str, here: Collection[Described]
    ) -> None:
        """Note that a refused Service claims an address, which was surely not acquired for it.

        It is free, or shows that it is somebody else's, and nobody acquires it just now: so a
        request to acquire it that had no answer had no effect. The claim would last as long as the
        refusal, and make the Service's what somebody acquires meanwhile.

        Args:
            ref: The Service.
            network: The network that has the claim.
            ip: The address.
            here: What CloudStack shows of it in the network's zone.
        """
        may_be_ours = (
            documents.is_bare(one, network) or one.get("state") == documents.ALLOCATING
            for one in here
        )
        if here and not any(may_be_ours):
            self._refused.add((ref.uid, ip))
            self._idle[ref.uid] = network.id

    def idle(self, ref: LoadBalancerRef) -> str:
        """Return once the network from which a Service's claim is to be removed, or ""."""
        return self._idle.pop(ref.uid, "")

    async def is_proof(self, ref: LoadBalancerRef, network: Network, ip: str) -> bool:
        """Tell whether a Service's claim proves that an address without marks is the Service's.

        Raises:
            CloudError: CloudStack gives no usable answer.
        """
        return (ref.uid, ip) not in self._refused and not await self.by_others(ref, network, ip)

    def left(self, ref: LoadBalancerRef, free: Sequence[str]) -> Sequence[str]:
        """Return those free addresses that no other Service has by its status.

        What another one has somebody has released by hand, and it is acquired anew. Of a Service
        whose status shows a host name its spec tells the address.

        Raises:
            CloudError: None is left.
        """
        shown = {
            address
            for one in self._services.all()
            if isinstance(one, Service)
            and one.metadata.uid != ref.uid
            and one.metadata.deletion_timestamp is None
            for address in shown_addresses(one)
        }
        left = [ip for ip in free if ip not in shown]
        if free and not left:
            raise CloudError(
                f"no public address is free: {free[0]} is another Service's by its status, and is"
                " acquired anew: add addresses, or name another one in spec.loadBalancerIP"
            )
        return left

    async def of(self, ref: LoadBalancerRef) -> tuple[str, str]:
        """Return the network with a Service's claim, and the claimed address; "" without.

        Raises:
            CloudError: CloudStack gives no usable answer.
        """
        asked = {"key": owners.claim_key(ref), "resourcetype": "Network"}
        for one in await self._api.listed("listTags", "tag", asked):
            if ip := owners.claimed(str(one.get("value", "")), ref):
                return str(one.get("resourceid", "")), ip
        return "", ""

    async def by_others(
        self, ref: LoadBalancerRef, network: Network, ip: str, *, is_free: bool = False
    ) -> list[Owner]:
        """Return the other Services that claim an address which rules of a network can be on.

        The tiers of a VPC share its addresses, so a claim on any of them counts. An address that is
        free is also that of another namespace's Service whose status shows it: somebody has
        released it by hand, and it is acquired anew.

        Raises:
            CloudError: CloudStack gives no usable answer.
        """
        claims = [*network.claims.items()]
        if network.vpc:
            tiers = await self._api.listed("listNetworks", "network", {"vpcid": network.vpc})
            claims += [
                claim for one in tiers for claim in owners.claims_of(owners.tags_of(one)).items()
            ]
        shown = shown_by_others(ip, ref, self._services.all()) if is_free else []
        return [*owners.claimants(claims, ref, ip), *shown]
