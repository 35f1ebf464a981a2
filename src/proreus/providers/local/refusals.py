"""Refuse load balancers that this gateway cannot serve, and clusters that it is not for. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.providers.local.config import Gateway
from proreus.providers.local.kernel import Observed
from proreus.providers.local.plan import State

_PROTOCOLS: Final = frozenset({"TCP", "UDP", "SCTP"})


class Claim(msgspec.Struct, frozen=True):
    """The claim of one cluster to a gateway.

    Attributes:
        cluster: The cluster's uid.
        table: The name of the nftables table.
        serves_one: Whether the gateway is for one cluster only.
    """

    cluster: str
    table: str
    serves_one: bool


def claim(cluster: str, gateway: Gateway, shown: Observed | None = None) -> Claim:
    """Return a cluster's claim to a gateway, by its own settings and those of the table's maker."""
    serves_one = bool(gateway.hold) or gateway.vrrp.enabled
    return Claim(cluster, gateway.nft_table, serves_one or (shown is not None and shown.serves_one))


def check(state: State, lb: LoadBalancer, ours: Claim) -> None:
    """Refuse a load balancer that this gateway, with what its kernel has, cannot serve.

    Raises:
        InvalidRequest: The Service asks for something impossible; names every field that does.
        CloudError: Another cluster is in the way.
    """
    if problems := unforwarded(lb):
        raise InvalidRequest("; ".join(problems))
    uid = lb.ref.uid
    existing = state.balancers.get(uid)
    if existing is not None and existing.cluster != lb.ref.cluster.uid:
        raise CloudError(
            f"this gateway has a load balancer of another cluster for a Service of the same uid"
            f" {uid}: delete that one, or create this Service again"
        )
    admit(state, ours)


def check_routed(addresses: Iterable[str], routed: Mapping[str, CloudError]) -> None:
    """Refuse addresses to one of which somebody else has a route.

    Raises:
        CloudError: The address is among those of `routed`; its error.
    """
    for address in addresses:
        if address in routed:
            raise routed[address]


def unforwarded(lb: LoadBalancer) -> tuple[str, ...]:
    """Return every port of a load balancer that the kernel does not forward, with the reason."""
    return tuple(
        f"spec.ports {frontend.port}/{frontend.protocol}: only TCP, UDP and SCTP are forwarded"
        for frontend in lb.frontends
        if frontend.protocol not in _PROTOCOLS
    )


def others(state: State, ours: Claim) -> str:
    """Return what is wrong with other clusters' load balancers on a gateway; "" if nothing.

    The set that shows a machine alive, and the shares of VRRP, are of the whole machine: a manager
    with either would answer for the other cluster's addresses, or give them up, and one without on
    such a gateway would answer for what that has left to others. Without both, clusters leave one
    another alone.
    """
    found = sorted({one.cluster for one in state.balancers.values()} - {ours.cluster})
    if not found or not ours.serves_one:
        return ""
    return (
        "this gateway has load balancers of another cluster, whose namespace kube-system has the"
        f" uid {' or '.join(found)}: with gateway hold or vrrp a machine serves one cluster only."
        " Give each cluster gateways of its own; or, if the other one is no more, run 'nft delete"
        f" table inet {ours.table}' on this machine and restart the manager"
    )


def is_anothers(state: State, ours: Claim) -> bool:
    """Tell whether a gateway is another cluster's alone.

    The cluster that was there first goes on, and so does each of two that both have load balancers
    there, from before they were refused: to stop would cost either its traffic.
    """
    is_here = any(one.cluster == ours.cluster for one in state.balancers.values())
    return not is_here and others(state, ours) != ""


def admit(state: State, ours: Claim) -> None:
    """Refuse a cluster whose gateway is another's.

    Raises:
        CloudError: The kernel has load balancers of another cluster, and none of this one.
    """
    if is_anothers(state, ours):
        raise CloudError(others(state, ours))


def emptied(state: State, ours: Claim) -> State:
    """Return the state without its load balancers, which must all be of one cluster.

    Raises:
        CloudError: There are load balancers of another cluster.
    """
    if problem := others(state, ours):
        raise CloudError(problem)
    return State()
