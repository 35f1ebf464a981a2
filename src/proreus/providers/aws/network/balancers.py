"""Network load balancers of Services: wish, observe, plan, apply."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from proreus.cloudprovider.converge import converge
from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.load_balancers import (
    Done,
    Ensured,
    LoadBalancer,
    LoadBalancerRef,
    Pending,
)
from proreus.kube.objects import LoadBalancerIngress
from proreus.providers.aws import rules
from proreus.providers.aws.annotations import PREFIX, Asked
from proreus.providers.aws.groups import HostGroups
from proreus.providers.aws.identity import TAG_SERVICE, Place
from proreus.providers.aws.listeners import port_mappings
from proreus.providers.aws.names import targets_of
from proreus.providers.aws.network import plan
from proreus.providers.aws.network.apply import take
from proreus.providers.aws.network.observe import NETWORK, find_balancer, observe
from proreus.providers.aws.network.parts import (
    DUALSTACK,
    Actual,
    Placed,
    Wish,
)
from proreus.providers.aws.subnets import Subnet, Subnets

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api
    from proreus.providers.aws.config import Global

_ASK_AGAIN: Final = 5.0
_ACTIVE: Final = "active"
_IPV4, _IPV6 = "IPv4", "IPv6"


class NetworkBalancers:
    """Makes, changes and deletes network load balancers."""

    def __init__(
        self,
        api: "Api",
        place: Place,
        settings: "Global",
        *,
        subnets: Subnets,
        hosts: HostGroups | None,
    ) -> None:
        """Speak through `api`; `hosts` is None to leave the groups of hosts alone."""
        self._api = api
        self._place = place
        self._settings = settings
        self._subnets = subnets
        self._hosts = hosts

    async def ensure(self, wanted: LoadBalancer, asked: Asked) -> Ensured | Pending:
        """Bring it to what is wished.

        Raises:
            CloudError: It cannot be, or AWS refuses.
        """
        subnets = await self._subnets.choose(asked.subnets, internal=asked.internal)
        targets, rejected = targets_of(wanted.hosts)
        wish = wish_of(wanted, asked, self._place, self._settings, subnets)
        described = await find_balancer(self._api, wish.name)
        if described is not None and described["Type"] != NETWORK:
            raise CloudError(f"{wish.name} is a load balancer of type {described['Type']}")
        actual = await observe(
            self._api,
            described,
            prefix=plan.target_group_prefix(*wish.service),
            names=[plan.target_group_name(wish, one) for one in wish.mappings],
        )
        actual = ours(actual, wanted.ref, self._place)
        plan.check(wish, actual)
        actual = await converge(
            actual, lambda now: plan.plan(wish, now), partial(take, self._api, wish)
        )
        balancer = actual.balancer
        if balancer is None:
            raise CloudError(f"{wish.name} is gone again")
        if self._hosts is not None:
            refused = await self._hosts.allow_network(
                wish.name,
                wish.targets - actual.refused.keys(),
                rules.of_network(
                    wish.name,
                    wish.mappings,
                    [one for ranges in wanted.source_ranges.values() for one in ranges],
                    [cidr for one in subnets for cidr in (one.v4, one.v6) if cidr],
                ),
            )
            actual = msgspec.structs.replace(actual, refused={**actual.refused, **refused})
        ingress = (LoadBalancerIngress(hostname=balancer.dns_name),)
        if balancer.state != _ACTIVE:
            return Pending(_ASK_AGAIN, f"load balancer {wish.name} is {balancer.state}", ingress)
        refused_nodes = {
            node: actual.refused[id_] for node, id_ in targets.items() if id_ in actual.refused
        }
        return Ensured(ingress, {**rejected, **refused_nodes})

    async def delete(self, gone: LoadBalancerRef) -> Done:
        """Delete every part, and the rules in the groups of hosts.

        Raises:
            CloudError: AWS refuses.
        """
        described = await find_balancer(self._api, gone.name)
        if described is not None and described["Type"] != NETWORK:
            described = None
        prefix = plan.target_group_prefix(gone.namespace, gone.service_name)
        actual = await observe(self._api, described, prefix=prefix, names=("",))
        actual = ours(actual, gone, self._place)
        await converge(actual, plan.delete_steps, partial(take, self._api, None))
        if self._hosts is not None:
            await self._hosts.allow_network(gone.name, (), frozenset())
        return Done(found=actual != Actual())


def wish_of(
    wanted: LoadBalancer,
    asked: Asked,
    place: Place,
    settings: "Global",
    subnets: Sequence[Subnet],
) -> Wish:
    """What there is to be. Pure.

    Raises:
        InvalidRequest: It cannot be; names the field.
    """
    addresses = asked.allocations or asked.private_addresses
    if addresses and len(addresses) != len(subnets):
        name = "eip-allocations" if asked.allocations else "private-ipv4-addresses"
        raise InvalidRequest(
            f"annotation {PREFIX}{name}: give one for each subnet; there are {len(subnets)}"
        )
    is_dual = _IPV6 in wanted.families
    if is_dual and not all(one.v6 for one in subnets):
        without = ", ".join(one.id for one in subnets if not one.v6)
        raise InvalidRequest(f"spec.ipFamilies: IPv6 needs subnets with it, unlike {without}")
    ref = wanted.ref
    tags = {**asked.tags, TAG_SERVICE: ref.key, **wanted.marks}
    return Wish(
        name=ref.name,
        cluster=place.tags.id,
        service=(ref.namespace, ref.service_name),
        tags={one["Key"]: one["Value"] for one in place.tags.new(tags)},
        scheme=asked.scheme,
        address_type=DUALSTACK if is_dual else "ipv4",
        target_type="ipv4" if _IPV4 in wanted.families else "ipv6",
        vpc=place.vpc,
        placed=tuple(_placed(asked, n, one) for n, one in enumerate(subnets)),
        groups=asked.security_groups,
        mappings=port_mappings(wanted, asked, settings),
        targets=frozenset(targets_of(wanted.hosts)[0].values()),
        attributes=_attributes(asked),
        target_attributes=_target_attributes(asked),
    )


def _placed(asked: Asked, number: int, subnet: Subnet) -> Placed:
    return Placed(
        subnet.id,
        subnet.zone,
        asked.allocations[number] if asked.allocations else "",
        asked.private_addresses[number] if asked.private_addresses else "",
    )


def _attributes(asked: Asked) -> dict[str, str]:
    found = {
        "load_balancing.cross_zone.enabled": str(asked.cross_zone).lower(),
        "access_logs.s3.enabled": str(asked.access_log is not None).lower(),
    }
    if asked.access_log is not None:
        found["access_logs.s3.bucket"] = asked.access_log.bucket
        found["access_logs.s3.prefix"] = asked.access_log.prefix
    return found


def _target_attributes(asked: Asked) -> dict[str, str]:
    proxy = {"proxy_protocol_v2.enabled": "true"} if asked.proxy_protocol else {}
    return {**proxy, **asked.target_attributes}


def ours(actual: Actual, ref: LoadBalancerRef, place: Place) -> Actual:
    """What there is without target groups that were not made for this Service. Pure.

    Raises:
        CloudError: The load balancer of that name was not made for it.
    """
    balancer = actual.balancer
    if balancer is not None and not place.made_for(ref, balancer.tags):
        raise CloudError(f"the load balancer {balancer.name} has tags of another owner: look at it")
    groups = (one for one in actual.target_groups if place.made_for(ref, one.tags))
    return msgspec.structs.replace(actual, target_groups=tuple(groups))
