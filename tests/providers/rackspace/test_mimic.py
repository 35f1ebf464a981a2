"""The provider on Mimic, Rackspace's own mock, with a layer for what that lacks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proreus.cloudprovider import Done, Ensured, LoadBalancer, Pending
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.instances import Instance, NotFound
from proreus.kube.objects import Node
from proreus.providers.rackspace import RackspaceCloud
from proreus.providers.rackspace.balancing.annotations import PREFIX
from proreus.testing import objects

from .lb_site import HTTP, HTTPS
from .mimic import layer, program
from .site import CLUSTER, SCHEME, cloud, context, describe, node

pytestmark = pytest.mark.long

NAMES = [f"node-{number}" for number in range(30)]
CONFIG = "[Global]\nauth-url = {url}/identity/v2.0/\nusername = ccm\napi-key = key\nregion = ORD\n"


class Stage:
    """An account at Mimic with servers, and a provider before it."""

    def __init__(self, front: layer.Layer, provider: RackspaceCloud) -> None:
        self.front, self.provider = front, provider
        self.token, self.urls = "", dict[str, str]()

    async def log_in(self) -> None:
        """Get a token for the test itself, past the layer."""
        body = {"auth": {"RAX-KSKEY:apiKeyCredentials": {"username": "ccm", "apiKey": "key"}}}
        access = (await self._send("POST", f"{self.front.mimic}/identity/v2.0/tokens", body))[
            "access"
        ]
        self.token = access["token"]["id"]
        self.urls = {
            one["name"]: end["publicURL"]
            for one in access["serviceCatalog"]
            for end in one["endpoints"]
            if end["region"] == "ORD"
        }

    async def ask(self, service: str, method: str, path: str, body: Any = None) -> Any:
        """Ask Mimic itself."""
        return await self._send(method, f"{self.urls[service]}/{path}", body)

    async def _send(self, method: str, url: str, body: Any) -> Any:
        headers = {"X-Auth-Token": self.token}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, url, json=body) as response,
        ):
            return await response.json(content_type=None)

    async def nodes(self) -> list[Node]:
        """Start servers; their Nodes."""
        for name in NAMES:
            wanted = {"server": {"name": name, "imageRef": "i", "flavorRef": "general1-8"}}
            await self.ask("cloudServersOpenStack", "POST", "servers", wanted)
        found = await describe(self.provider, *map(node, NAMES))
        made = []
        for name, one in found.items():
            assert isinstance(one, Instance)
            texts = [address.address for address in one.addresses]
            made.append(objects.node(name, one.provider_id, addresses=texts))
        return made

    async def verb(self, verb: Any, what: Any, uid: str) -> Any:
        """Call a verb until it is done."""
        while isinstance(answer := (await verb([what]))[uid], Pending):
            await asyncio.sleep(0.05)
        return answer


@asynccontextmanager
async def staged(directory: Path) -> AsyncIterator[Stage]:
    async with program.running(directory) as url, layer.served(url) as front:
        provider = cloud(CONFIG.format(url=front.url))
        await provider.start(context())
        stage = Stage(front, provider)
        await stage.log_in()
        try:
            yield stage
        finally:
            await provider.close()


async def test_nodes_and_load_balancers_live_on_mimic(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        nodes = await stage.nodes()
        by_id = await describe(stage.provider, *nodes)
        assert all(isinstance(one, Instance) for one in by_id.values())
        first = by_id["node-0"]
        assert isinstance(first, Instance)
        assert [one.type for one in first.addresses][:2] == ["InternalIP", "ExternalIP"]
        assert first.instance_type == "general1-8"
        id_ = stage.front.servers[first.provider_id.removeprefix(SCHEME)]
        await stage.ask("cloudServersOpenStack", "DELETE", f"servers/{id_}")
        gone, *rest = (await describe(stage.provider, *nodes)).values()
        assert gone == NotFound()
        assert all(isinstance(one, Instance) for one in rest)

        balancers = stage.provider.load_balancers
        assert balancers is not None

        def desired(*ports: Any, of: list[Node], **spec: Any) -> LoadBalancer:
            asked = {f"{PREFIX}health-monitor": "connect"}
            service = objects.service(annotations=asked, ip_families=("IPv4",), ports=ports, **spec)
            return desired_load_balancer(service, of, balancers.host_policy(service), CLUSTER)

        made = desired(HTTP, HTTPS, of=nodes[1:])
        uid = made.ref.uid
        answer = await stage.verb(balancers.ensure, made, uid)
        assert isinstance(answer, Ensured)
        assert len(answer.rejected) == len(nodes) - 1 - 25
        shown = (await stage.ask("cloudLoadBalancers", "GET", "loadbalancers"))["loadBalancers"]
        assert sorted((one["port"], one["nodeCount"]) for one in shown) == [(80, 25), (443, 25)]

        edited = desired(
            HTTP, of=nodes[5:15], load_balancer_source_ranges=("192.0.2.0/24",),
            session_affinity="ClientIP",
        )  # fmt: skip
        again = await stage.verb(balancers.ensure, edited, uid)
        assert again.ingress == answer.ingress
        (one,) = (
            one
            for one in (await stage.ask("cloudLoadBalancers", "GET", "loadbalancers"))[
                "loadBalancers"
            ]
            if one["status"] == "ACTIVE"
        )
        assert (one["port"], one["nodeCount"]) == (80, 10)
        number = one["id"]
        monitor = await stage.ask(
            "cloudLoadBalancers", "GET", f"loadbalancers/{number}/healthmonitor"
        )
        assert monitor["healthMonitor"]["type"] == "CONNECT"

        # Mimic says that the load balancer works on a change.
        control = f"loadbalancer/{number}/attributes"
        await stage.ask("cloudLoadBalancerControl", "PATCH", control, {"status": "PENDING_UPDATE"})
        waiting = (await balancers.ensure([desired(HTTP, of=nodes[5:16])]))[uid]
        assert isinstance(waiting, Pending)
        await stage.ask("cloudLoadBalancerControl", "PATCH", control, {"status": "ACTIVE"})

        assert await stage.verb(balancers.delete, edited.ref, uid) == Done(found=True)
        left = (await stage.ask("cloudLoadBalancers", "GET", "loadbalancers"))["loadBalancers"]
        assert not [one for one in left if one["status"] != "DELETED"]
        assert stage.front.calls["mimic"] > stage.front.calls["here"]
