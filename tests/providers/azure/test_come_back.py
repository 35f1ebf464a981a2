"""Public IPs that a Service has left, or come back to: who has them, and who deletes them."""

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .balancing import addresses, delete, ensure, machines, name_of, service
from .emulator.server import Emulator
from .emulator.store import network
from .site import context, started
from .test_additional import HTTPS
from .test_former import USERS

INSIDE = {"azure-load-balancer-internal": "true"}


async def test_a_public_ip_stays_with_the_service_that_has_come_back_to_it(
    azure: Emulator,
) -> None:
    """Whoever goes last deletes it; Azure lets him if nothing has it at that moment."""
    nodes, services = machines(azure), Objects()
    name = f"kubernetes-{name_of(service(1).metadata.uid)}"
    listed = {"tenants": {"allow": [f"bank={name}"]}}
    guest = service(2, {"azure-pip-name": name}, HTTPS, namespace="bank")
    async with started(azure, context(nodes=nodes, services=services), **listed) as provider:
        shown = (await ensure(provider, nodes, service(1)))["web-1"]
        await ensure(provider, nodes, guest)
        services.by_key = {"shop/web-1": service(1, INSIDE), "bank/web-2": guest}
        await ensure(provider, nodes, service(1, INSIDE))
        assert addresses(azure)[name]["tags"][USERS] == "bank/web-2"
        back = service(1, {"azure-pip-name": name}, ingress=shown)
        services.by_key["shop/web-1"] = back
        assert await ensure(provider, nodes, back) == {"web-1": shown}
        azure.store.delete(network("loadBalancers", "kubernetes"))
        free = azure.store.of[network("publicIPAddresses", name).lower()]
        free["properties"].pop("ipConfiguration", None)
        await delete(provider, guest)
        assert addresses(azure)[name]["tags"][USERS] == "shop/web-1"
