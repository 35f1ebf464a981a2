"""Tell which addresses in a Service's status were given to its load balancer. Pure."""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.cloudprovider.ports import ports_of
from proreus.kube.objects import CONDITION_LOAD_BALANCER_READY, Service, condition
from proreus.providers.local.addresses import Address, parse
from proreus.providers.local.taken import Occupied

_IN_PLACE: Final = frozenset({"HostsRejected", "NoHosts"})
"""The reasons for which a load balancer is not ready that is as its Service says."""


def is_refused(service: Service) -> bool:
    """Tell whether a Service was not given what it asks for, by its condition."""
    ready = condition(service.status.conditions, CONDITION_LOAD_BALANCER_READY)
    return ready is not None and ready.status == "False" and ready.reason not in _IN_PLACE


def given(lb: LoadBalancer, machines: Collection[Address | None]) -> Iterator[str]:
    """Return the addresses in a Service's status, but for those that its nodes left there.

    A balancer on the nodes, such as that of k3s, writes their own addresses there. Once we have
    said that the load balancer is as its Service says, also without any host, an address is the
    Service's, and it is a node that claims it, as any kubelet can. But we give one of each family:
    several are those of nodes all the same, since that balancer may have come back, and the
    condition stays.

    Args:
        lb: The load balancer.
        machines: The addresses of nodes and other machines.
    """
    ready = condition(lb.service.status.conditions, CONDITION_LOAD_BALANCER_READY)
    is_ready = ready is not None and (ready.status == "True" or ready.reason in _IN_PLACE)
    shown = {text: parse(text) for one in lb.ref.last_ingress if (text := one.ip)}
    versions = Counter(one.version for one in {*shown.values()} if one is not None)
    for text, address in shown.items():
        is_alone = address is not None and versions[address.version] == 1
        if address not in machines or (is_ready and is_alone):
            yield text


def disowning(error: CloudError, lb: LoadBalancer, occupied: Occupied) -> CloudError:
    """Return the error of a Service that gets no address, and let it show none of others.

    It may share one, and ask for a port that another one has there: kube-proxy would lead that
    one's clients to it as long as its status shows the address. Or a balancer on the nodes has left
    one of theirs in the status. Once we have answered, an address is the Service's, and it is a
    node that claims it.

    Args:
        error: Why it gets none.
        lb: The load balancer.
        occupied: The addresses that others have.
    """
    shown = [parse(point.ip) for point in lb.ref.last_ingress]
    ready = condition(lb.service.status.conditions, CONDITION_LOAD_BALANCER_READY)
    is_new = ready is None or ready.status == "Unknown"
    is_machines = is_new and not occupied.machines.isdisjoint(shown)
    error.disowns = is_machines or _shows_port_of_others(lb, occupied)
    return error


def failed(error: CloudError, lb: LoadBalancer, occupied: Occupied) -> CloudError:
    """Return the error of a Service for which the kernel was not changed, to show none of others.

    It may ask for a port that another one has at the address that its status shows, and was to get
    another address.

    Args:
        error: What failed, for several Services.
        lb: The load balancer.
        occupied: The addresses that others have by the kernel as it is; nothing if it was not read.
    """
    return error.disowning() if _shows_port_of_others(lb, occupied) else error


def _shows_port_of_others(lb: LoadBalancer, occupied: Occupied) -> bool:
    shown, ports = (parse(point.ip) for point in lb.ref.last_ingress), ports_of(lb.service)
    every = (
        one
        for at in shown
        if at is not None
        for one in occupied.by_others(at, lb.ref.uid)
        if not occupied.is_past(one, at, lb.ref.uid, ports)
    )
    others = (one for one in every if not occupied.is_younger(one.uid, lb.ref.uid))
    # One that was refused asks for a port in vain; but where both were, it may have had that.
    was_refused = any(one.is_refused for one in occupied.of(lb.ref.uid))
    counts = (one for one in others if was_refused or not one.is_refused)
    return any(not ports.isdisjoint(one.ports) for one in counts)
