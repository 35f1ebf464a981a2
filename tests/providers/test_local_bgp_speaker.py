"""Speakers as processes: a real API server, real FRRs, a real router, and a client's traffic."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from textwrap import dedent
from typing import Any

import aiohttp
import pytest

from proreus.app.rights import manifests
from proreus.app.speaker.rights import NAME, ROLE
from proreus.kube.objects import LABEL_EXCLUDE_LB
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import ENDPOINT_SLICES, NODES, SERVICES, Request
from proreus.testing import programs
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess
from proreus.testing.objects import service_body
from proreus.testing.waiting import until

from ..apiserver.rights import count  # noqa: TID252 - pytest imports tests by path
from ..apiserver.site import Site, set_up  # noqa: TID252 - as above
from .bgp_fabric import PATIENCE, SHOP, WEB, Fabric
from .traffic import NODES as ADDRESSES

SPEAKERS = "tested-speakers"
CONFIG = """
    instances: {enabled: false}
    routes: {enabled: false}
    gateway: {enabled: false}
    pools: {default: {addresses: [192.0.2.65-192.0.2.66]}}
    bgp:
      as: 64512
      peers: {tor: {address: 10.9.0.1, as: 64513, connect-time: 1s, password-file: PASSWORD}}
"""


class SpeakerProcess(ManagerProcess):
    """A process of `proreus bgp-speaker`."""

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = await programs.start("proreus", "bgp-speaker", *self.flags, output=log)


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    with ExitStack() as stack:
        yield Fabric(stack)


@pytest.fixture
async def site(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    async with set_up(control_plane, tmp_path) as site:
        yield site


class Cluster:
    """A manager that assigns addresses, and a speaker for each node of the fabric."""

    def __init__(self, site: Site, fabric: Fabric, directory: Path) -> None:
        self.site = site
        self.fabric = fabric
        self._directory = directory
        self.password = directory / "password"
        self.password.write_text("first\n")
        self.config = directory / "local.yaml"
        self.configure(CONFIG)
        self.speakers: dict[str, SpeakerProcess] = {}

    def configure(self, text: str) -> None:
        self.config.write_text(dedent(text).replace("PASSWORD", str(self.password)))

    async def begin(self, stack: AsyncExitStack) -> None:
        await self._grant(stack)
        stack.push_async_callback(self._tidy)
        for name, both in ADDRESSES.items():
            addresses = [{"type": "InternalIP", "address": one} for one in both]
            body = {"metadata": {"name": name}, "status": {"addresses": addresses}}
            await self.site.client.create(NODES, body)
            await self.site.client.patch(
                NODES,
                name,
                Patch(PatchType.MERGE, {"status": body["status"]}),
                subresource="status",
            )
        for name in ADDRESSES:
            frr = self.fabric.frrs[name]
            file = self.site.plane.kubeconfig_for(f"speaker-{name}", [SPEAKERS])
            self.speakers[name] = SpeakerProcess(
                f"--kubeconfig={file}", f"--cloud-config={self.config}", f"--node-name={name}",
                f"--frr-sockets={frr.directory}", "--metrics-bind-address=0", "--period=500ms",
                "-v=2", log=self._directory / f"speaker-{name}.log",
            )  # fmt: skip
            await stack.enter_async_context(self.speakers[name])

    async def _tidy(self) -> None:
        """Delete the EndpointSlices, which nobody else does here."""
        for one in (await self.site.client.list(ENDPOINT_SLICES)).items:
            if one.metadata.namespace == "default" and one.metadata.name != "kubernetes":
                await self.site.client.delete(ENDPOINT_SLICES, one.metadata.name, "default")

    async def _grant(self, stack: AsyncExitStack) -> None:
        """Give speakers the rights that they declare until the end; wait until they count."""
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": SPEAKERS}
        made = tuple(manifests([ROLE], {NAME: subject}))
        for one in made:
            plural = {"ClusterRole": "clusterroles"}.get(one["kind"], "clusterrolebindings")
            path = f"/apis/{one['apiVersion']}/{plural}"
            body = json.dumps(one).encode()
            request = Request("POST", path, body=body, content_type="application/json")
            await self.site.client.send(request, dict[str, Any])
            undo = Request("DELETE", f"{path}/{one['metadata']['name']}")
            stack.push_async_callback(self.site.client.send, undo, dict[str, Any])
        await until("the rights count", lambda: count(self.site.client, made))

    async def serve(self, name: str, *nodes: str, policy: str = "Local", **metadata: Any) -> None:
        """Create a Service with a ready endpoint on each of these nodes."""
        body = service_body(name, metadata=metadata, externalTrafficPolicy=policy)
        await self.site.client.create(SERVICES, body, "default")
        await self.site.client.create(ENDPOINT_SLICES, self._slice(name, nodes), "default")

    async def move(self, name: str, *nodes: str) -> None:
        """Let the Service have ready endpoints on these nodes, and on no others."""
        patch = Patch(PatchType.MERGE, {"endpoints": self._slice(name, nodes)["endpoints"]})
        await self.site.client.patch(ENDPOINT_SLICES, name, patch, namespace="default")

    def _slice(self, name: str, nodes: tuple[str, ...]) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": [f"10.0.0.{number}"], "conditions": {"ready": True}, "nodeName": node}
                for number, node in enumerate(nodes, 1)
            ],
            "ports": [{"name": "http", "port": 80}],
        }

    async def address(self, name: str) -> str:
        async def given() -> str:
            found = (await self.site.service(name)).status.load_balancer.ingress
            return found[0].ip if found else ""

        return await until(f"{name} has an address", given, PATIENCE)

    async def sent(self, address: str, *nodes: str) -> None:
        await until(
            f"{address} is sent to {nodes}",
            lambda: self.fabric.hops(address) == set(nodes),
            PATIENCE,
        )

    async def says(self, node: str, words: str, *, times: int = 1) -> None:
        speaker = self.speakers[node]
        await until(f"{node} says {words}", lambda: speaker.output().count(words) >= times)

    def manager(self) -> ManagerProcess:
        return self.site.lone_manager(
            "--cloud-provider=local",
            f"--cloud-config={self.config}",
            "--controllers=service-lb-controller",
        )


@pytest.fixture
async def cluster(site: Site, fabric: Fabric, tmp_path: Path) -> AsyncIterator[Cluster]:
    fabric.route(neighbor=("password first",))
    found = Cluster(site, fabric, tmp_path)
    async with AsyncExitStack() as stack:
        await found.begin(stack)
        yield found


async def test_a_node_announces_a_service_while_it_has_endpoints(cluster: Cluster) -> None:
    async with cluster.manager():
        await cluster.serve("web", "one", "two")
        assert await cluster.address("web") == WEB
        await cluster.serve("shop", policy="Cluster")
        assert await cluster.address("shop") == SHOP
        await cluster.sent(WEB, "one", "two")
        assert cluster.fabric.answers(WEB, 30).keys() == {"one", "two"}
    # The manager has ended; nothing waits for it.
    await cluster.move("web", "two")
    await cluster.sent(WEB, "two")
    assert cluster.fabric.answers(WEB, 5) == {"two": 5}
    await cluster.says("one", "no endpoint on this node is ready")
    assert cluster.fabric.hops(SHOP) == set()
    await cluster.move("shop", "one")
    await cluster.sent(SHOP, "one", "two")
    await cluster.move("web")
    await cluster.sent(WEB)

    patch = Patch(PatchType.MERGE, {"metadata": {"labels": {LABEL_EXCLUDE_LB: ""}}})
    await cluster.site.client.patch(NODES, "one", patch)
    await cluster.sent(SHOP, "two")
    # A speaker that ends withdraws; one that is killed and starts again goes on.
    said = cluster.speakers["two"].output().count("Announcing")
    await cluster.speakers["two"].kill()
    assert cluster.fabric.hops(SHOP) == {"two"}
    await cluster.speakers["two"].start()
    await cluster.says("two", "Announcing", times=said + 1)
    assert cluster.fabric.hops(SHOP) == {"two"}
    assert await cluster.speakers["two"].stop() == 0
    await cluster.sent(SHOP)
    for name in ADDRESSES:
        asked = cluster.site.audit(f"speaker-{name}")
        assert asked
        assert not [one for one in asked if one.is_write or one.response_status.code == 403]


@pytest.mark.long
async def test_a_speaker_follows_its_files_and_its_frr(cluster: Cluster) -> None:
    async with cluster.manager():
        await cluster.serve("web", "one", "two")
        await cluster.address("web")
    await cluster.sent(WEB, "one", "two")

    # The router gets another password, then the nodes.
    cluster.fabric.route(neighbor=("password second",))
    await cluster.sent(WEB)
    cluster.password.write_text("second\n")
    await cluster.sent(WEB, "one", "two")

    # A password that is gone changes nothing, and says so; prefixes do not wait for it.
    cluster.password.unlink()
    await cluster.says("one", "No such file")
    await cluster.move("web", "one")
    await cluster.sent(WEB, "one")
    cluster.password.write_text("second\n")

    # A cloud-config that is wrong changes nothing, and says so; then it is taken over.
    before = cluster.config.read_text()
    cluster.config.write_text(before.replace("as: 64513", "as: 0"))
    await cluster.says("one", "0 is not an AS number")
    assert cluster.fabric.hops(WEB) == {"one"}
    cluster.config.write_text(
        before + "  advertisements: {all: {communities: ['64512:9']}}\n  on-shutdown: keep\n"
    )

    def communities() -> object:
        return [one.get("community", {}).get("string") for one in cluster.fabric.learned(WEB)]

    await until("the community is there", lambda: communities() == ["64512:9"], PATIENCE)

    # An FRR that starts anew is told everything again.
    cluster.fabric.frrs["one"].kill("bgpd")
    await cluster.sent(WEB)
    await cluster.says("one", "start it")
    cluster.fabric.frrs["one"].start("bgpd")
    await cluster.sent(WEB, "one")

    # With on-shutdown: keep, a speaker that ends withdraws nothing.
    assert await cluster.speakers["one"].stop() == 0
    assert cluster.fabric.hops(WEB) == {"one"}
    for speaker in cluster.speakers.values():
        assert "second" not in speaker.output()


@pytest.mark.long
async def test_health_and_metrics_say_what_routers_hear(
    site: Site, fabric: Fabric, tmp_path: Path
) -> None:
    fabric.route(neighbor=("password other",))
    cluster = Cluster(site, fabric, tmp_path)
    port = 10271
    async with AsyncExitStack() as stack:
        await cluster.begin(stack)
        one = cluster.speakers["one"]
        await one.stop()
        flags = [flag for flag in one.flags if not flag.startswith("--metrics")]
        one.flags = (*flags, f"--metrics-bind-address=127.0.0.1:{port}")
        await one.start()
        session = await stack.enter_async_context(aiohttp.ClientSession())

        async def status() -> int:
            try:
                async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    return answer.status
            except aiohttp.ClientConnectionError:
                return 0

        async def metrics() -> str:
            async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                return await answer.text()

        async def is_ready(code: int) -> None:
            async def so() -> bool:
                return await status() == code

            await until(f"readyz is {code}", so, PATIENCE)

        async def misses_the_router() -> bool:
            words = "no session is established with tor"
            return (
                await status() == 500
                and words in one.output()
                and 'proreus_bgp_session_up{peer="tor"} 0.0' in await metrics()
            )

        await until("the router is missed", misses_the_router, PATIENCE)
        fabric.route(neighbor=("password first",))
        await is_ready(200)
        async with cluster.manager():
            await cluster.serve("web", "one")
            await cluster.sent(WEB, "one")

        async def counted() -> bool:
            text = await metrics()
            return (
                'proreus_bgp_announced_prefixes{peer="tor"} 1.0' in text
                and 'proreus_bgp_addresses{announced="true"} 1.0' in text
            )

        await until("the metrics are there", counted, PATIENCE)
        code, shown, _ = await programs.run("proreus", "bgp-speaker", "--show", *one.flags)
        assert code == 0
        header, web, _, sessions, tor = (line.split() for line in shown.splitlines())
        assert header == ["ADDRESS", "ANNOUNCED", "WHY", "NOT"]
        assert web == [WEB, "yes"]
        assert sessions[:3] == ["PEER", "ADDRESS", "STATE"]
        assert tor[:5] == ["tor", "10.9.0.1", "Established", "1", "-"]
