"""A small cluster that lives its life while calls of its manager are spoilt.

Machines become nodes with blocks and routes, Services get load balancers, are edited and followed
by the hosts; then the machines go, and then the Services. Each node and each Service can have a
fault of its own, so that one life tries many. Whatever befalls the manager, the end must be the
same, and nothing may be made twice on the way.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_network
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

from proreus.cloudprovider.identity import MARK_SERVICE
from proreus.kube import config
from proreus.kube.errors import NotFound
from proreus.kube.objects import (
    TAINT_OUT_OF_SERVICE,
    TAINT_SHUTDOWN,
    Node,
    Service,
    condition,
    has_taint,
)
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import PERSISTENT_VOLUMES, SERVICES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.demo.narrator import running
from proreus.testing.manager import ManagerProcess, cloud_config
from proreus.testing.objects import service_body
from proreus.testing.simulated import Address, Instance, Settings
from proreus.testing.waiting import until

from ..apiserver import serving_requests  # noqa: TID252 - pytest imports tests by path
from ..apiserver.rights import MANAGERS  # noqa: TID252 - pytest imports tests by path
from ..apiserver.site import (  # noqa: TID252 - pytest imports tests by path
    Site,
    all_of,
    is_initialised,
    names,
    set_up,
)
from ..apiserver.webhook_site import cleared  # noqa: TID252 - pytest imports tests by path
from . import volumes
from .relay import Act, Call, Script, relay

T = TypeVar("T")

PATIENCE: Final = 240.0
"""Seconds that a part of a life may take; it only ends hangs."""
ANCHORS: Final = 3
"""Nodes that stay, whose answers bear witness that the cloud looks in the right place."""
CLUSTER: Final = "10.244.0.0/16"
FLAGS: Final = (
    "--controllers=*,kubelet-serving,pvlabel,ssh-keys",
    "--ssh-user=core",
    "--allocate-node-cidrs",
    "--cidr-allocator-type=IPAMFromCluster",
    f"--cluster-cidr={CLUSTER}",
    "--node-cidr-mask-size=24",
    "--node-monitor-period=500ms",
    "--node-deletion-interval=1s",
    "--node-deletion-breaker=1",
    "--node-status-update-frequency=1s",
    "--node-out-of-service-taint",
    "--node-out-of-service-grace=1s",
)
ANSWER_TIME: Final = 5
"""Seconds that the manager gives the cloud for an answer."""
LOG_TAIL: Final = 8000
PARTS: Final = ("address", "load_balancer", "listener", "firewall")


class World:
    """The cluster, and what is known of it.

    Attributes:
        script: What befalls the manager's calls.
        manager: The manager; it is started again when it ends, as a kubelet would.
        machines: Every machine that was ever started, by name.
    """

    def __init__(self, site: Site, manager: ManagerProcess, script: Script) -> None:
        self.site = site
        self.client = site.client
        self.admin = site.cloud.admin
        self.manager = manager
        self.script = script
        self.machines: dict[str, Instance] = {}
        self.lost: set[str] = set()
        self.restarts = 0
        self._strikes = asyncio.Lock()
        script.strike = self._kill

    async def keep(self) -> None:
        """Start the manager whenever it does not run."""
        while True:
            await self.manager.start()
            await self.manager.wait()
            self.restarts += 1

    async def _kill(self) -> None:
        async with self._strikes:
            await self.manager.kill()

    async def when(self, what: str, attempt: Callable[[], Awaitable[T | None]]) -> T:
        """Try until the answer is true, with the patience that many faults at once need."""
        return await until(what, attempt, PATIENCE)

    # The parts of a life

    async def join(self, *added: str) -> None:
        """Start machines, and wait until they are nodes with all that belongs to them."""
        await self.register(*added)
        await self.joined(*added)

    async def register(self, *added: str) -> None:
        """Start machines whose kubelets register their nodes and are ready."""
        machines = await self.start(*added)
        await self.site.register(machines)
        await volumes.make_for_each(self.site, machines)
        await all_of(serving_requests.ask_as_machine(self.site, machine) for machine in machines)

    async def start(self, *added: str) -> Sequence[Instance]:
        """Start machines; they are no nodes yet."""
        machines = await self.site.machines(*added)
        for machine in machines:
            self.machines[machine.name] = machine
            self.script.owners[machine.id] = machine.name
        return machines

    async def joined(self, *added: str) -> None:
        """Wait until these are nodes with all that belongs to them."""

        async def have_all() -> bool:
            nodes = await self.site.nodes()
            approved = await serving_requests.all_approved(self.site)
            return all(
                name in nodes and is_complete(nodes[name]) and name in approved for name in added
            ) and await volumes.all_labelled(self.site, [self.machines[name] for name in added])

        await self.when(f"{', '.join(added[:3])}... are nodes", have_all)
        await self.check_blocks()

    async def have_key(self) -> None:
        """Wait until all machines that are there have one SSH key, the same."""

        async def have_it() -> bool:
            found = {one.name: one.ssh_keys for one in await self.admin.instances()}
            keys = {found[name] for name in self.machines.keys() - self.lost}
            return len(keys) == 1 and len(keys.pop()) == 1

        await self.when("the machines have the SSH key", have_it)

    async def serve(self, *added: str) -> None:
        """Create Services, and wait for their load balancers."""
        await self.create(*added)
        await self.ready(*added, ports={80, 81}, ranges={"127.0.0.0/8"})

    async def create(self, *added: str) -> None:
        """Create Services of type LoadBalancer."""
        ports = [_port(80), _port(81)]
        for name in added:
            body = service_body(name, ports=ports, loadBalancerSourceRanges=["127.0.0.0/8"])
            await self.client.create(SERVICES, body, "default")

    async def edit(self, *edited: str) -> None:
        """Change ports and source ranges of Services, and wait until the cloud has them."""
        await self.change(*edited, port=82)
        await self.ready(*edited, ports={80, 82}, ranges={"127.1.0.0/16"})

    async def change(self, *changed: str, port: int) -> None:
        """Give Services another second port and other source ranges."""
        ports = [_port(80), _port(port)]
        spec = {"ports": ports, "loadBalancerSourceRanges": ["127.1.0.0/16"]}
        patch = Patch(PatchType.MERGE, {"spec": spec})
        for name in changed:
            await self.client.patch(SERVICES, name, patch, "default")

    async def readdress(self, *moved: str) -> None:
        """Change addresses of machines, and wait until nodes and load balancers have them."""
        wanted: dict[str, str] = {}
        for name in moved:
            kept = self.machines[name]
            last = kept.addresses[0].address.rpartition(".")[2]
            address = f"10.99.{len(wanted)}.{last}"
            wanted[name] = address
            addresses = (Address("InternalIP", address), *kept.addresses[1:])
            await self.admin.change(kept.id, addresses=addresses)

        async def have_them() -> bool:
            nodes = await self.site.nodes()
            return all(
                wanted[name] in {one.address for one in nodes[name].status.addresses}
                for name in moved
            )

        await self.when("the nodes have their new addresses", have_them)
        ids = {self.machines[name].id: address for name, address in wanted.items()}

        async def are_targets() -> bool:
            balancers = await self.admin.parts("load_balancer")
            return all(
                ids.get(one["instance_id"], one["address"]) == one["address"]
                for balancer in balancers
                for one in balancer["targets"]
            )

        await self.when("the load balancers have the new addresses", are_targets)

    async def stop(self, *stopped: str) -> None:
        """Shut machines down, and wait until their nodes say so and are out of service."""
        for name in stopped:
            await self.admin.stop(self.machines[name].id)
        await self.site.silence(*stopped)

        async def say_so() -> bool:
            nodes = await self.site.nodes()
            return all(
                has_taint(nodes[name], taint)
                for name in stopped
                for taint in (TAINT_SHUTDOWN, TAINT_OUT_OF_SERVICE)
            )

        await self.when("the nodes are said to be shut down and out of service", say_so)

    async def lose(self, *lost: str) -> None:
        """End machines, and wait until nothing is left of their nodes."""
        self.lost.update(lost)
        for name in lost:
            await self.admin.delete(self.machines[name].id)
        for name in lost:
            # One that was silent before may be gone by now.
            with contextlib.suppress(NotFound):
                await self.site.silence(name)

        async def are_gone() -> bool:
            return not set(lost) & (await self.site.nodes()).keys()

        await self.when("the nodes are gone", are_gone)
        ids = {self.machines[name].id for name in lost}

        async def have_no_routes() -> bool:
            return not ids & {one["instance_id"] for one in await self.admin.parts("route")}

        await self.when("the routes are gone", have_no_routes)

    async def delete(self, *deleted: str) -> None:
        """Delete Services, and wait until nothing is left of them."""
        await self.ask_for_deletion(*deleted)
        await self.nothing_left(*deleted)

    async def ask_for_deletion(self, *deleted: str) -> None:
        """Delete Services; they go when their finalizers do."""
        for name in deleted:
            await self.client.delete(SERVICES, name, "default")

    # What must be

    async def ready(self, *asked: str, ports: set[int], ranges: set[str]) -> None:
        """Wait until Services have exactly the load balancers that they ask for."""

        async def are_ready() -> bool:
            services = {s.metadata.name: s for s in (await self.client.list(SERVICES)).items}
            parts = self.by_service(await self.admin.parts())
            hosts = {self.machines[name].id for name in await self.site.nodes()}
            return all(
                says_ready(services[name]) and fits(parts.get(name, []), ports, ranges, hosts)
                for name in asked
            )

        await self.when(f"{', '.join(asked[:3])}... are served", are_ready)

    async def nothing_left(self, *deleted: str) -> None:
        """Wait until Services and all parts in the cloud that were theirs are gone."""

        async def is_so() -> bool:
            services = {s.metadata.name for s in (await self.client.list(SERVICES)).items}
            parts = self.by_service(await self.admin.parts())
            return not set(deleted) & (services | parts.keys())

        await self.when(f"nothing is left of {', '.join(deleted[:3])}...", is_so)

    def by_service(self, parts: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
        """The parts in the cloud by the name of their Service."""
        found: dict[str, list[dict[str, Any]]] = {}
        for part in parts:
            if mark := part["tags"].get(MARK_SERVICE):
                found.setdefault(mark.rpartition("/")[2], []).append(part)
        return found

    async def check_blocks(self) -> None:
        """No two nodes have blocks that overlap; each node's route leads to its machine."""
        nodes = (await self.site.nodes()).values()
        blocks = sorted(ip_network(c) for node in nodes for c in node.spec.pod_cidrs)
        assert not [pair for pair in pairwise(blocks) if pair[0].overlaps(pair[1])]
        wanted = {n.spec.pod_cidr: self.machines[n.metadata.name].id for n in nodes}
        routes = {one["destination"]: one for one in await self.admin.parts("route")}
        assert {name: routes[name]["instance_id"] for name in wanted} == wanted

    def check_history(self, lost: Iterable[str], *, edits: int = 1) -> None:
        """No part was made twice for anybody; no Node was deleted but those that were lost.

        A create that is repeated finds what the first made, and is answered with 200. Each edit
        of a Service gives it a new port.
        """
        once = {"addresses", "load_balancers", "firewalls", "routes"}
        twice = {
            (owner, what): count
            for (owner, what), count in self.script.made.items()
            if count > (1 if what.removeprefix("POST ") in once else 2 + edits)
        }
        assert not twice
        assert self.deleted_nodes() <= set(lost)

    def deleted_nodes(self) -> set[str]:
        """The nodes that the manager deleted, or tried to."""
        return {call.owner for call in self.script.seen if call.what == "DELETE nodes"}

    async def live(self, nodes: Sequence[str], services: Sequence[str]) -> None:
        """A whole life."""
        told = Told(self)
        await self.join(*nodes)
        told.say("joined")
        await self.serve(*services)
        told.say("served")
        await self.edit(*services)
        told.say("edited")
        await self.readdress(*nodes)
        told.say("moved")
        await self.stop(*nodes)
        await self.have_key()
        told.say("stopped")
        await self.lose(*nodes)
        told.say("lost")
        await self.ready(*services, ports={80, 82}, ranges={"127.1.0.0/16"})
        await self.delete(*services)
        told.say("deleted")
        assert (await self.site.nodes()).keys() == self.machines.keys() - self.lost
        await self.check_blocks()
        self.check_history(self.lost)


class Told:
    """Progress, for who reads the output."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._began = time.monotonic()

    def say(self, what: str) -> None:
        """Say how far it is."""
        world = self._world
        print(
            f"{time.monotonic() - self._began:6.1f} s {what}: {len(world.script.hits)} faults, "
            f"{world.restarts} restarts, to come {len(world.script.plan)}"
        )


def is_complete(node: Node) -> bool:
    """Whether a node has all that the manager gives it."""
    network = condition(node.status.conditions, "NetworkUnavailable")
    return (
        is_initialised(node)
        and bool(node.spec.provider_id)
        and len(node.spec.pod_cidrs) == 1
        and network is not None
        and network.status == "False"
        and any(one.type == "InternalIP" for one in node.status.addresses)
    )


def says_ready(service: Service) -> bool:
    """Whether a Service says that it is served, as it is now."""
    state = condition(service.status.conditions, "LoadBalancerReady")
    return (
        state is not None and state.status == "True" and bool(service.status.load_balancer.ingress)
    )


def fits(
    parts: Sequence[dict[str, Any]], ports: set[int], ranges: set[str], hosts: set[str]
) -> bool:
    """Whether these are the parts of exactly one load balancer, with these ports and hosts."""
    if Counter(one["kind"] for one in parts) != {**dict.fromkeys(PARTS, 1), "listener": len(ports)}:
        return False
    by = {one["kind"]: one for one in parts}
    return (
        {one["port"] for one in parts if one["kind"] == "listener"} == ports
        and set(by["firewall"]["source_ranges"]) == ranges
        and {one["instance_id"] for one in by["load_balancer"]["targets"]} == hosts
    )


def _port(number: int) -> dict[str, Any]:
    """A port of a Service."""
    return {"name": f"p{number}", "port": number, "protocol": "TCP"}


@asynccontextmanager
async def world(
    plane: ControlPlane, directory: Path, *flags: str, plan: Mapping[Call, Act] | None = None
) -> AsyncIterator[World]:
    """A cluster with a manager and the nodes that stay; a plan that is for its start, too."""
    script = Script()
    script.plan = dict(plan or {})
    settings = Settings(health_interval=0, route_limit=250)
    user = config.load(str(plane.kubeconfig_for("manager", [MANAGERS])), env={})
    async with (
        set_up(plane, directory, settings) as site,
        relay("api", user.server, script, user) as api,
        relay("cloud", site.cloud.endpoint, script) as cloud,
    ):
        file = directory / "relayed.conf"
        text = cloud_config(site.cloud).replace(site.cloud.endpoint, cloud.url)
        file.write_text(f"{text}timeout = {ANSWER_TIME}\n")
        given = (f"--cloud-config={file}", f"--ssh-keyfile={directory / 'ssh-key'}")
        manager = site.lone_manager(*given, *FLAGS, *flags, api_server=api.url)
        made = World(site, manager, script)
        await serving_requests.let_kubelets_ask(site)
        await cleared(site.client, PERSISTENT_VOLUMES)
        await made.register(*names("anchor", ANCHORS))
        try:
            async with running(asyncio.create_task(made.keep())):
                await made.joined(*names("anchor", ANCHORS))
                yield made
        finally:
            print(manager.output()[-LOG_TAIL:])
            await manager.kill()  # first, or the relays would wait for their clients
            await cleared(site.client, PERSISTENT_VOLUMES)
