"""Tell which addresses in a Service's status were given to its load balancer. Pure."""

from collections.abc import Collection, Iterator

from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.kube.objects import CONDITION_LOAD_BALANCER_READY, condition
from proreus.providers.local.addresses import Address, parse


def given(lb: LoadBalancer, machines: Collection[Address | None]) -> Iterator[str]:
    """Return the addresses in a Service's status, but for those that its nodes left there.

    A balancer on the nodes, such as that of k3s, writes their own addresses there. Once we have
    said that the load balancer is ready, all are the Service's, and it is a node that claims one of
    them, as any kubelet can.

    Args:
        lb: The load balancer.
        machines: The addresses of nodes and other machines.
    """
    ready = condition(lb.service.status.conditions, CONDITION_LOAD_BALANCER_READY)
    is_ready = ready is not None and ready.status == "True"
    for one in lb.ref.last_ingress:
        if one.ip and (is_ready or parse(one.ip) not in machines):
            yield one.ip
