"""A cluster's life that gives every controller something to do."""

from proreus.kube.objects import condition
from proreus.kube.requests import SERVICES
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from .site import Site


async def begun(site: Site) -> Instance:
    """Two nodes get CIDRs and routes, and a Service a load balancer; then that goes again.

    The second node's kubelet falls silent; its machine is returned, and still runs.
    """
    (*_, leaver) = await site.join("a", "b")
    await site.initialised("a", "b")
    await site.create_service("web")

    async def is_done() -> bool:
        nodes = (await site.nodes()).values()
        networks = [condition(node.status.conditions, "NetworkUnavailable") for node in nodes]
        web = await site.service("web")
        return (
            all(node.spec.pod_cidrs for node in nodes)
            and all(network is not None and network.status == "False" for network in networks)
            and bool(web.status.load_balancer.ingress)
        )

    await until("CIDRs, routes and a load balancer", is_done)
    await site.client.delete(SERVICES, "web", "default")
    await site.silence("b")
    return leaver
