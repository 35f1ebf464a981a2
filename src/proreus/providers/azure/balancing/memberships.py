"""Change the pools that a network interface is in, in the documents that list them. Pure."""

from collections.abc import Collection, Iterable, Sequence

from proreus.providers.azure.balancing.documents import copied, named_ids
from proreus.providers.azure.balancing.parts import Document
from proreus.providers.azure.machines import Resource, part, primary_configurations, properties

_POOLS = "loadBalancerBackendAddressPools"


def with_pools(interface: Resource, add: Iterable[str], drop: Iterable[str]) -> Document | None:
    """Return an interface, or a scale set's model of one, with pools added and others removed.

    Return None if nothing changes. A pool whose name ends in `-ipv6` is of that family.
    """
    document = copied(interface)
    by_family = primary_configurations(document)
    for pool in add:
        family = "IPv6" if pool.lower().endswith("-ipv6") else "IPv4"
        configuration = by_family.get(family)
        if configuration is None or pool.lower() in named_ids(configuration, _POOLS):
            continue
        found = properties(configuration).get(_POOLS) or []
        _set(configuration, [*found, {"id": pool}])
    gone = {pool.lower() for pool in drop}
    for configuration in by_family.values():
        found = properties(configuration).get(_POOLS) or []
        kept = [one for one in found if str(one.get("id", "")).lower() not in gone]
        if len(kept) < len(found):
            _set(configuration, kept)
    return document if document != interface else None


def _set(configuration: Resource, pools: Sequence[object]) -> None:
    found = properties(configuration)
    assert isinstance(found, dict)  # noqa: S101 - it is a copy's
    found[_POOLS] = list(pools)


def other_balancer(interface: Resource, pool: str, own: Collection[str]) -> str:
    """Return the load balancer of the same kind that already has an interface; "" if none has.

    Azure takes an interface into one public and one internal load balancer. The end of its name
    tells the kind of another cluster's; the cluster's own, in small letters, are one of each kind.
    """
    is_internal = pool.lower().partition("/backendaddresspools/")[0].endswith("-internal")
    for configuration in primary_configurations(interface).values():
        for known in named_ids(configuration, _POOLS):
            other = known.partition("/backendaddresspools/")[0]
            if other not in own and other.endswith("-internal") is is_internal:
                return other
    return ""


def model_interfaces(set_: Resource) -> list[Resource]:
    """Return the interfaces in the model of a scale set, the primary one first."""
    found = part(set_, "virtualMachineProfile", "networkProfile", "networkInterfaceConfigurations")
    return sorted(found or (), key=lambda one: not properties(one).get("primary"))


def model_pools(set_: Resource) -> list[str]:
    """Return the ids of the pools that the model of a scale set names, in small letters."""
    return [
        pool
        for one in model_interfaces(set_)[:1]
        for configuration in primary_configurations(one).values()
        for pool in named_ids(configuration, _POOLS)
    ]
