"""Refuse load balancers that this gateway cannot serve, and clusters that it is not for. Pure."""

from collections.abc import Mapping
from typing import Final

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.providers.local.config import Gateway
from proreus.providers.local.plan import State

_PROTOCOLS: Final = frozenset({"TCP", "UDP", "SCTP"})


def check(state: State, lb: LoadBalancer, gateway: Gateway) -> None:
    """Refuse a load balancer that this gateway, with what its kernel has, cannot serve.

    Raises:
        InvalidRequest: The Service asks for something impossible; names every field that does.
        CloudError: Another cluster is in the way.
    """
    if problems := unforwarded(lb):
        raise InvalidRequest("; ".join(problems))
    uid, cluster = lb.ref.uid, lb.ref.cluster.uid
    existing = state.balancers.get(uid)
    if existing is not None and existing.cluster != cluster:
        raise CloudError(
            f"this gateway has a load balancer of another cluster for a Service of the same uid"
            f" {uid}: delete that one, or create this Service again"
        )
    admit(state, cluster, gateway)


def check_routed(state: State, uid: str, routed: Mapping[str, CloudError]) -> None:
    """Refuse a load balancer with an address to which somebody else has a route.

    Raises:
        CloudError: The address is among those of `routed`; its error.
    """
    for address in state.balancers[uid].addresses.values():
        if address in routed:
            raise routed[address]


def unforwarded(lb: LoadBalancer) -> tuple[str, ...]:
    """Return every port of a load balancer that the kernel does not forward, with the reason."""
    return tuple(
        f"spec.ports {frontend.port}/{frontend.protocol}: only TCP, UDP and SCTP are forwarded"
        for frontend in lb.frontends
        if frontend.protocol not in _PROTOCOLS
    )


def others(state: State, cluster: str, gateway: Gateway) -> str:
    """Return what is wrong with other clusters' load balancers on a gateway; "" if nothing.

    The set that shows a machine alive, and the shares of VRRP, are of the whole machine: a manager
    with either would answer for the other cluster's addresses, or give them up. Without both,
    clusters leave one another alone.
    """
    found = sorted({one.cluster for one in state.balancers.values()} - {cluster})
    if not found or not (gateway.hold or gateway.vrrp.enabled):
        return ""
    return (
        "this gateway has load balancers of another cluster, whose namespace kube-system has the"
        f" uid {' or '.join(found)}: with gateway hold or vrrp a machine serves one cluster only."
        " Give each cluster gateways of its own; or, if the other one is no more, run 'nft delete"
        f" table inet {gateway.nft_table}' on this machine and restart the manager"
    )


def is_anothers(state: State, cluster: str, gateway: Gateway) -> bool:
    """Tell whether a gateway is another cluster's alone.

    The cluster that was there first goes on, and so does each of two that both have load balancers
    there, from before they were refused: to stop would cost either its traffic.
    """
    is_here = any(one.cluster == cluster for one in state.balancers.values())
    return not is_here and others(state, cluster, gateway) != ""


def admit(state: State, cluster: str, gateway: Gateway) -> None:
    """Refuse a cluster whose gateway is another's.

    Raises:
        CloudError: The kernel has load balancers of another cluster, and none of this one.
    """
    if is_anothers(state, cluster, gateway):
        raise CloudError(others(state, cluster, gateway))


def emptied(state: State, cluster: str, gateway: Gateway) -> State:
    """Return the state without its load balancers, which must all be of one cluster.

    Raises:
        CloudError: There are load balancers of another cluster.
    """
    if problem := others(state, cluster, gateway):
        raise CloudError(problem)
    return State()
