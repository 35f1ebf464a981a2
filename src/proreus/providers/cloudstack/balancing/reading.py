"""Observe the load balancer of a Service: rules, addresses, and openings for clients."""

import asyncio
import zlib
from collections.abc import Collection, Iterable

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import MARK_CLUSTER_UID, MARK_SERVICE_UID, ClusterIdentity
from proreus.cloudprovider.listers import Lister
from proreus.cloudprovider.load_balancers import LoadBalancer, LoadBalancerRef
from proreus.cloudprovider.lookups import attempt
from proreus.cloudprovider.ownership import Tenants, refusal
from proreus.cloudprovider.waits import Working
from proreus.kube.objects import KubeObject
from proreus.providers.cloudstack.api import Api, Described
from proreus.providers.cloudstack.balancing import desired, documents, owners
from proreus.providers.cloudstack.balancing.adoption import Adoption
from proreus.providers.cloudstack.balancing.claims import Claims
from proreus.providers.cloudstack.balancing.parts import (
    Address,
    Network,
    Observed,
    Opening,
    Rule,
)
from proreus.providers.cloudstack.machines import id_of

_GOING = "Releasing"


class Reader:
    """A reader of load balancers and their parts."""

    def __init__(
        self, api: Api, tenants: Tenants, claims: Claims, services: Lister[KubeObject]
    ) -> None:
        """Keep the client, what Services may name, the reader of claims, and all Services."""
        self._api = api
        self._tenants = tenants
        self._claims = claims
        self._adoption = Adoption(self.users, self._addresses, services)
        self._reserved: dict[str, str] = {}

    async def rules(self, ref: LoadBalancerRef) -> list[Described]:
        """Return the rules that belong to a Service, sorted by name.

        Raises:
            CloudError: CloudStack gives no usable answer.
        """
        found = await self._rules({"keyword": ref.name})
        ours = [one for one in found if owners.verdict_of(one, ref).is_ours]
        return sorted(ours, key=lambda one: (str(one.get("name")), id_of(one)))

    async def all_rules(self) -> list[Described]:
        """Return all rules of the account or project, whoever owns them."""
        return await self._rules({})

    async def with_members(self, found: Iterable[Described], ref: LoadBalancerRef) -> list[Rule]:
        """Read the machines of each of these rules, by one request a rule.

        Raises:
            CloudError: CloudStack gives no usable answer.
        """
        found = list(found)
        listed = await asyncio.gather(
            *(
                self._api.members(
                    "listLoadBalancerRuleInstances", "loadbalancerruleinstance", str(one["id"])
                )
                for one in found
            )
        )
        return [
            documents.rule(one, ref, map(id_of, members))
            for one, members in zip(found, listed, strict=True)
        ]

    async def network(self, id_: str) -> Network:
        """Read a network.

        Raises:
            CloudError: The network does not exist, or CloudStack gives no usable answer.
        """
        found = await self._api.listed("listNetworks", "network", {"id": id_})
        if not found:
            raise CloudError(f"there is no network {id_} in this account or project")
        return documents.network(found[0])

    async def owned_addresses(self, cluster: ClusterIdentity) -> list[Described]:
        """Return the addresses with a cluster's tag."""
        return await self._addresses(_tag(MARK_CLUSTER_UID, cluster.uid))

    async def observe(self, lb: LoadBalancer, rules: list[Rule], network: Network) -> Observed:
        """Observe the load balancer of a Service in a network.

        Raises:
            InvalidRequest: The Service names an address that it cannot have.
            CloudError: CloudStack gives no usable answer.
        """
        own = await self._own(lb.ref)
        claim = owners.claimed(network.claims.get(lb.ref.uid, ""), lb.ref)
        try:
            address = await self._address(lb, rules, network, own, claim)
        except InvalidRequest:
            here = await attempt(self._named, claim, network.zone) if claim else ()
            if not isinstance(here, CloudError):
                self._claims.note_refusal(lb.ref, network, claim, here)
            raise
        spare = [one for one in own if address is None or id_of(one) != address.id]
        acl = {"aclid": network.acl}
        return Observed(
            rules=tuple([await self._with_policies(one, lb, network) for one in rules]),
            address=address,
            claim=claim,
            openings=tuple(
                await self._openings(address.id)
                if network.has_firewall and address is not None and address.id
                else ()
            ),
            items=tuple(await self._items(lb.ref, acl) if network.acl else ()),
            spare=tuple([await self._spare(lb.ref, one, rules) for one in spare]),
        )

    async def observe_rest(
        self, ref: LoadBalancerRef, rules: list[Rule], *, waits: bool = True
    ) -> tuple[Observed, str]:
        """Observe all that is deleted with a Service; return also the network with its claim.

        Raises:
            Working: CloudStack releases the Service's address, and `waits` says to wait for that.
            CloudError: CloudStack gives no usable answer.
        """
        own = {id_of(one): one for one in await self._own(ref)}
        if waits and any(one.get("state") == _GOING for one in own.values()):
            raise Working("CloudStack releases the public address")
        network, claim = await self._claims.of(ref)
        if claim and network:
            for claimed in await self._claimed(ref, claim, network):
                own.setdefault(id_of(claimed), claimed)
        keys = {(one.address, one.key) for one in rules if not one.is_going}
        openings = [
            (address, one)
            for address in sorted({one.address for one in rules})
            for one in await self._openings(address)
        ]
        of_rules = sorted({one.address for one in rules} - own.keys())
        adopted = [await self._adoption.adopted(ref, rules, address) for address in of_rules]
        observed = Observed(
            rules=tuple(rules),
            address=next((one for one in adopted if one is not None), None),
            claim=claim,
            openings=tuple(one for address, one in openings if (address, one.key) in keys),
            items=tuple([one for one in await self._items(ref, {}) if one.is_ours]),
            spare=tuple([await self._spare(ref, one, rules) for one in own.values()]),
        )
        return observed, network

    async def everywhere(self, ref: LoadBalancerRef) -> list[tuple[str, Described]]:
        """Return the kind and description of what a Service has in the account and all projects.

        Raises:
            CloudError: CloudStack gives no usable answer.
        """
        rules, addresses = await asyncio.gather(
            self._rules({"keyword": ref.name}, everywhere=True),
            self._addresses(_tag(MARK_SERVICE_UID, ref.uid), everywhere=True),
        )
        return [
            *(("load balancer rule", one) for one in rules if owners.verdict_of(one, ref).is_ours),
            *(("public address", one) for one in addresses if owners.has_tags_of(one, ref)),
        ]

    async def users(self, address: str, rules: Collection[Rule]) -> list[Described]:
        """Return all rules on an address but these, whoever owns them."""
        mine = {one.id for one in rules}
        return [one for one in await self._rules({"publicipid": address}) if id_of(one) not in mine]

    async def is_in_use(self, address: str) -> bool:
        """Tell whether an address is a machine's, or has any rule, such as one of port forwarding.

        Older releases of CloudStack do not tell of rules. There the address' firewall tells of
        those that clients can reach; in a VPC, which has none, nothing does.

        Raises:
            CloudError: CloudStack gives no usable answer.
        """
        found = await self._addresses({"id": address})
        if all("hasrules" in one or documents.is_kept(one) for one in found):
            return any(one.get("hasrules") or documents.is_kept(one) for one in found)
        return bool(await self._firewall(address))

    async def address(self, id_: str) -> Described | None:
        """Return an address that is acquired; None if it is not."""
        return next(iter(await self._addresses({"id": id_})), None)

    def forget(self, uid: str) -> None:
        """Forget the address that was chosen for a Service."""
        self._reserved.pop(uid, None)

    async def _address(
        self,
        lb: LoadBalancer,
        rules: list[Rule],
        network: Network,
        own: list[Described],
        claim: str,
    ) -> Address | None:
        if rules:
            return await self._in_use(lb.ref, rules, own)
        requested = lb.requested_address
        usable = (one for one in own if not one.get("isstaticnat"))  # which takes no rules
        marked = sorted(usable, key=lambda one: (one.get("ipaddress") != requested, id_of(one)))
        if marked:
            first = marked[0]
            return Address(str(first["ipaddress"]), id_of(first), is_ours=True)
        if requested:
            return await self._requested(lb, network, claim)
        return (
            await self._used_before(lb, network, claim)
            or await self._claimed_before(lb.ref, network, claim)
            or await self._free(lb.ref, network)
        )

    async def _in_use(
        self, ref: LoadBalancerRef, rules: list[Rule], own: list[Described]
    ) -> Address:
        """Return the address that the Service's rules are on.

        Raises:
            CloudError: CloudStack does not show it: the Service would lose it from its status.
        """
        id_ = rules[0].address
        for one in own:
            if id_of(one) == id_:
                return Address(str(one["ipaddress"]), id_, is_ours=True)
        adopted = await self._adoption.adopted(ref, rules, id_)
        if adopted is not None:
            return adopted
        found = await self._addresses({"id": id_})
        if not found:
            raise CloudError(
                f"CloudStack shows the rule {rules[0].id}, but not its public address {id_}"
            )
        return Address(str(found[0]["ipaddress"]), id_)

    async def _requested(self, lb: LoadBalancer, network: Network, claim: str) -> Address:
        ip = lb.requested_address
        found = await self._named(ip)
        if not found:
            raise InvalidRequest(
                f"spec.loadBalancerIP: CloudStack has no public address {ip} for this account or"
                " project"
            )
        here = [one for one in found if documents.is_in_zone(one, network.zone)]
        if not here:
            raise InvalidRequest(
                f"spec.loadBalancerIP: {ip} is an address of the zone {found[0].get('zonename')},"
                f" and the nodes' network {network.id} is in another"
            )
        one, names = here[0], (id_of(here[0]), ip)
        is_free = one.get("state") == documents.FREE
        others = await self._claims.by_others(lb.ref, network, ip, is_free=is_free)
        why = refusal(others, lb.ref, self._tenants, names) if others else ""
        if not why and is_free:
            return Address(ip)
        if not why and claim == ip and await self._is_acquired(lb.ref, network, one):
            return Address(ip, id_of(one))
        if not why and not documents.is_usable_in(one, network):
            raise InvalidRequest(
                f"spec.loadBalancerIP: {ip} is not an address of the nodes' network {network.id}"
            )
        whose = owners.owners_of(one) or await self._adoption.by_others(lb.ref, id_of(one), ip)
        if why := why or refusal(whose, lb.ref, self._tenants, names):
            raise InvalidRequest(f"spec.loadBalancerIP: {ip} cannot be used: {why}")
        if one.get("isstaticnat"):
            raise InvalidRequest(f"spec.loadBalancerIP: {ip} is one machine's, by static NAT")
        # Whatever an old claim says: somebody else has acquired it.
        return Address(ip, id_of(one), is_shared=claim == ip)

    async def _used_before(self, lb: LoadBalancer, network: Network, claim: str) -> Address | None:
        """Return the address in the Service's status if somebody else had acquired it before.

        The Service named it once, and names it no more. Its last rule is gone, such as where the
        next one could not be made, and with it all that says so; but the status does.
        """
        ref = lb.ref
        for ip in sorted(desired.shared_before(lb) - {claim}):
            for one in await self._named(ip, network.zone):
                is_left = one.get("state") in {documents.FREE, _GOING} or one.get("isstaticnat")
                if is_left or not documents.is_usable_in(one, network):
                    continue
                there = [one, *await self.users(id_of(one), ())]
                of_them = [owner for each in there for owner in owners.owners_of(each)]
                of_them += await self._claims.by_others(ref, network, ip)
                if not refusal(of_them, ref, self._tenants, (id_of(one), ip)):
                    return Address(ip, id_of(one))
        return None

    async def _claimed_before(
        self, ref: LoadBalancerRef, network: Network, claim: str
    ) -> Address | None:
        """Return the claimed address, if it is free or has been acquired and is not in use."""
        for one in await self._named(claim, network.zone) if claim else ():
            if one.get("state") == documents.FREE:
                return Address(claim)
            if await self._is_acquired(ref, network, one):
                return Address(claim, id_of(one))
        return None

    async def _free(self, ref: LoadBalancerRef, network: Network) -> Address | None:
        """Choose a free address; None where CloudStack shows none and has to choose one itself."""
        asked = {"allocatedonly": "false", "forvirtualnetwork": "true", "state": documents.FREE}
        if network.zone:
            asked["zoneid"] = network.zone
        listed = await self._addresses(asked)
        self._reserved.pop(ref.uid, None)
        claimed = {value.rpartition("/")[2] for value in network.claims.values()}
        every = documents.free(listed, claimed | set(self._reserved.values()))
        if not (free := self._claims.left(ref, every)):
            return None
        chosen = free[zlib.crc32(ref.uid.encode()) % len(free)]
        self._reserved[ref.uid] = chosen
        return Address(chosen)

    async def _with_policies(self, rule: Rule, lb: LoadBalancer, network: Network) -> Rule:
        """Read the stickiness policies of a rule, by one request, where there may be any of ours.

        A policy of ours is only on rules that go by clients' addresses.
        """
        is_sticky = lb.affinity_seconds is not None or rule.algorithm == "source"
        if not (is_sticky and network.has_stickiness):
            return rule
        found = await self._api.members(
            "listLBStickinessPolicies", "stickinesspolicies", rule.id, by="lbruleid"
        )
        return msgspec.structs.replace(rule, policies=tuple(documents.policies(found, lb.ref)))

    async def _claimed(self, ref: LoadBalancerRef, ip: str, id_: str) -> list[Described]:
        """Return the claimed address if it was acquired for a network and has no rules yet."""
        networks = await self._api.listed("listNetworks", "network", {"id": id_})
        return [
            one
            for network in map(documents.network, networks)
            for one in await self._named(ip, network.zone)
            if await self._is_acquired(ref, network, one)
        ]

    async def _is_acquired(self, ref: LoadBalancerRef, network: Network, one: Described) -> bool:
        """Tell whether an address that a Service claims was acquired for it.

        The claim is proof, and it has no tags or rules of any kind.
        """
        if not documents.is_bare(one, network) or await self.users(id_of(one), ()):
            return False
        if "hasrules" not in one and await self._firewall(id_of(one)):
            return False
        return await self._claims.is_proof(ref, network, str(one["ipaddress"]))

    async def _spare(self, ref: LoadBalancerRef, one: Described, rules: list[Rule]) -> Address:
        is_shared = documents.is_kept(one) or bool(await self.users(id_of(one), rules))
        is_ours = owners.has_tags_of(one, ref)  # or claimed
        return Address(str(one["ipaddress"]), id_of(one), is_ours=is_ours, is_shared=is_shared)

    async def _own(self, ref: LoadBalancerRef) -> list[Described]:
        found = await self._addresses(_tag(MARK_SERVICE_UID, ref.uid))
        return [one for one in found if owners.has_tags_of(one, ref)]

    async def _named(self, ip: str, zone: str = "") -> list[Described]:
        """Return what is at an address; zones behind gateways of theirs may have the same ones."""
        found = await self._addresses({"ipaddress": ip, "allocatedonly": "false"})
        return [one for one in found if documents.is_in_zone(one, zone)]

    async def _addresses(
        self, asked: dict[str, str], *, everywhere: bool = False
    ) -> list[Described]:
        return await self._api.listed(
            "listPublicIpAddresses", "publicipaddress", asked, everywhere=everywhere
        )

    async def _rules(self, asked: dict[str, str], *, everywhere: bool = False) -> list[Described]:
        return await self._api.listed(
            "listLoadBalancerRules", "loadbalancerrule", asked, everywhere=everywhere
        )

    async def _openings(self, address: str) -> list[Opening]:
        return list(documents.openings(await self._firewall(address)))

    async def _firewall(self, address: str) -> list[Described]:
        asked = {"ipaddressid": address}
        return await self._api.listed("listFirewallRules", "firewallrule", asked)

    async def _items(self, ref: LoadBalancerRef, asked: dict[str, str]) -> list[Opening]:
        found = await self._api.listed("listNetworkACLs", "networkacl", asked)
        return list(documents.items(found, ref))


def _tag(key: str, value: str) -> dict[str, str]:
    return {"tags[0].key": key, "tags[0].value": value}
