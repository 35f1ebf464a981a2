"""Decide which addresses a load balancer may have, keeps and gives up. Pure."""

from collections.abc import Collection, Iterable
from typing import Final

from proreus.cloudprovider.addresses import family_of
from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.ownership import (
    Tenants,
    inside_refusal,
    kept_by_name,
    pods_refusal,
    refusal,
    shown_by_others,
)
from proreus.cloudprovider.refused import Refused
from proreus.kube.objects import KubeObject, LoadBalancerIngress
from proreus.providers.gce.balancing import naming
from proreus.providers.gce.balancing.annotations import SUBNET
from proreus.providers.gce.balancing.desired import Desired
from proreus.providers.gce.balancing.parts import EXTERNAL, INTERNAL, IPV6, Address, Kind, Rule
from proreus.providers.gce.balancing.steps import Observed, without
from proreus.providers.gce.errors import ADDRESS_IN_USE
from proreus.providers.gce.names import last_part, path_in

PREFIX: Final = 96
"""The length of the range of IPv6 that a forwarding rule has."""


def check(
    desired: Desired,
    observed: Observed,
    ref: LoadBalancerRef,
    tenants: Tenants,
    *,
    services: Iterable[KubeObject] = (),
) -> None:
    """Refuse an address that the Service cannot have.

    Args:
        desired: The desired state.
        observed: The observed state.
        ref: The Service.
        tenants: The section [Tenants] of the cloud-config.
        services: The cluster's Services.

    Raises:
        InvalidRequest: The address is wrong; names the field and the remedy.
    """
    asked = desired.requested_address
    want = desired.first_of(family_of(asked))
    if want is None:
        return
    rule, reserved = observed.rule(want.name), observed.reserved.get(want.family)
    if rule is not None and rule.ip == asked:
        return
    shown, problem = shown_by_others(asked, ref, services), ""
    if desired.internal and reserved is None:
        # Any free address of the subnetwork will do.
        problem = refusal(shown, ref, tenants, (asked,)) if shown else ""
    elif reserved is None:
        problem = "it is not reserved in the region: reserve it, or leave the field out"
    elif want.network_tier not in {"", reserved.network_tier}:
        problem = (
            f"it is of the network tier {reserved.network_tier}, and the Service of"
            f" {want.network_tier}: change the annotation cloud.google.com/network-tier"
        )
    elif others := _others(reserved, desired):
        problem = f"{others[0]} has it"
    else:
        owners = [one for one in (naming.owner_in(reserved.description),) if one is not None]
        problem = refusal([*owners, *shown], ref, tenants, (asked, reserved.name))
    if desired.internal:
        problem = problem or pods_refusal(asked, ref, tenants, desired.pods)
    if problem:
        raise InvalidRequest(f"spec.loadBalancerIP: {asked}: {problem}")


def shown_of(
    desired: Desired,
    observed: Observed,
    ref: LoadBalancerRef,
    tenants: Tenants,
    services: Iterable[KubeObject],
) -> tuple[LoadBalancerIngress, ...]:
    """Return what a Service shows: the addresses of its forwarding rules.

    Args:
        desired: The desired state.
        observed: The observed state.
        ref: The Service.
        tenants: The section [Tenants] of the cloud-config.
        services: The cluster's Services.

    Raises:
        InvalidRequest: Google has given one that others have inside the cluster; names the remedy.
    """
    rules = filter(None, (observed.rule(one.name) for one in desired.rules))
    found, services = list(dict.fromkeys(one.ip for one in rules)), tuple(services)
    for ip in found if desired.internal else ():
        if why := inside_refusal(ip, ref, tenants, services, desired.pods):
            raise InvalidRequest(
                f"{ip}, which Google has given, cannot be had: {why}: name a subnetwork with"
                " addresses that nothing has inside the cluster"
            )
    return tuple(LoadBalancerIngress(ip=ip) for ip in found)


def check_subnetworks(
    desired: Desired,
    observed: Observed,
    own: Collection[str],
    ref: LoadBalancerRef,
    tenants: Tenants,
) -> None:
    """Refuse a subnetwork that the Service names and may not use; what it uses it goes on using.

    Args:
        desired: The desired state.
        observed: The observed state.
        own: The paths of the cluster's own subnetworks, which every Service may use.
        ref: The Service.
        tenants: The section [Tenants] of the cloud-config.

    Raises:
        InvalidRequest: The cloud-config does not let the Service name it.
    """
    used = {path_in(one.subnetwork) for one in observed.rules()}
    for path in {path_in(one.subnetwork) for one in desired.rules} - used - {"", *own}:
        name = last_part(path)
        if problem := refusal((), ref, tenants, (name,)):
            raise InvalidRequest(f"the annotation {SUBNET}: {name}: {problem}")


def check_other_scheme(
    desired: Desired,
    observed: Observed,
    former: Rule,
    ref: LoadBalancerRef,
    tenants: Tenants,
    *,
    services: Iterable[KubeObject],
) -> None:
    """Refuse an address that the Service cannot have once it is internal or external instead.

    The former load balancer goes before the new one is made, and is not to go for nothing.

    Raises:
        InvalidRequest: The address is wrong; names the field and the remedy.
    """
    asked = desired.requested_address
    if asked and former.ip == asked:
        kind = "an external" if desired.internal else "an internal"
        raise InvalidRequest(
            f"spec.loadBalancerIP: {asked}: it is the address of {kind} load balancer, which the"
            " Service is to have no more: leave the field out, or give another address"
        )
    check(desired, without(observed, (Kind.RULE,)), ref, tenants, services=services)


def lacks_shown(
    desired: Desired, observed: Observed, ref: LoadBalancerRef, services: Iterable[KubeObject]
) -> bool:
    """Tell whether a Service's status shows an address that nothing keeps for it.

    Whoever comes next may get it from Google. Inside, nobody else may name what the Service names,
    so that stays until another one shows it, or Google shows who else has it. Outside, a Service
    can have only what is reserved, and what is not may be any project's.
    """
    used = {one.ip for one in observed.rules()}
    held = (one for one in observed.parts.values() if isinstance(one, Address))
    kept = {one.address for one in (*held, *observed.reserved.values())}
    lost = {one.address for one in observed.reserved.values() if _others(one, desired)}
    named = kept_by_name(ref, services) if desired.internal else set[str]()
    kept = (kept | named) - lost
    return not (used | kept).issuperset(desired.last_addresses)


def is_taken(error: CloudError, desired: Desired, first: Rule | None) -> bool:
    """Tell whether Google says that something else has the address that a Service names and shows.

    No reservation shows an internal one of a machine. While the Service's own first forwarding rule
    has it, others may only be in the way of the second one.
    """
    asked = desired.requested_address
    is_in_use = isinstance(error, Refused) and error.code in ADDRESS_IN_USE
    has_it = first is not None and first.ip == asked
    return is_in_use and not has_it and asked in desired.last_addresses


def is_still_free(desired: Desired, reserved: Address | None) -> bool:
    """Tell whether the Service may use again a reserved address that its status shows.

    It is free if somebody has reserved it, so that it stays, and no mark and no user but the
    Service's other forwarding rules says that it is another's.
    """
    if reserved is None or _others(reserved, desired):
        return False
    owner = naming.owner_in(reserved.description)
    if owner is None:
        return True
    return owner.key == desired.service and owner.cluster_uid in {"", desired.cluster_uid}


def is_within_reach(desired: Desired, family: str, reserved: Address) -> bool:
    """Tell whether a reserved address means to the Service what its value says.

    Networks may have the same ranges: an internal address is one of its subnetwork.
    """
    want = desired.first_of(family)
    if want is None or not desired.internal:
        return reserved.address_type != INTERNAL
    return reserved.address_type == INTERNAL and _is_of_subnetwork(want, reserved.subnetwork)


def _others(reserved: Address, desired: Desired) -> list[str]:
    """Return the names of what has an address and is none of the load balancer's rules."""
    users, name = map(last_part, reserved.users), desired.name
    if desired.subset is not None:
        return [one for one in users if one not in desired.subset.names.rules.values()]
    return [one for one in users if one != name and not one.startswith(f"{name}-")]


def held(desired: Desired, name: str, rule: Rule) -> Address:
    """Return the reservation by which a Service keeps the address of a forwarding rule."""
    return Address(
        name=name,
        description=naming.described_as_held(desired.service, desired.cluster_uid),
        address=rule.ip,
        address_type=INTERNAL if desired.internal else EXTERNAL,
        subnetwork=rule.subnetwork if desired.internal else "",
        network_tier="" if desired.internal else rule.network_tier,
        prefix_length=PREFIX if rule.family == IPV6 else 0,
    )


def keeps_address(desired: Desired, want: Rule, rule: Rule) -> bool:
    """Tell whether the next forwarding rule keeps the address of this one."""
    if rule.load_balancing_scheme != want.load_balancing_scheme:
        return False
    if desired.requested_of(want.family) not in {"", rule.ip}:
        return False
    if not _is_of_subnetwork(want, rule.subnetwork):
        return False
    return not desired.is_tier_given or rule.network_tier == want.network_tier


def is_useless(desired: Desired, want: Rule, reserved: Address) -> bool:
    """Tell whether the address reserved before cannot serve the desired forwarding rule."""
    if desired.requested_of(want.family) not in {"", reserved.address}:
        return True
    if desired.internal != (reserved.address_type == INTERNAL):
        return True
    if desired.internal:
        return not _is_of_subnetwork(want, reserved.subnetwork)
    return desired.is_tier_given and reserved.network_tier != want.network_tier


def _is_of_subnetwork(want: Rule, subnetwork: str) -> bool:
    asked = path_in(want.subnetwork)
    return not asked or asked == path_in(subnetwork)
