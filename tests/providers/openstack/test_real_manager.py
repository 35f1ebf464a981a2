"""A whole manager on real services: nodes, routes and Services, while OpenStack fails.

`make openstack-up` starts the services; without them these tests are not collected. The manager
sees them through a proxy by which requests fail or lose their answer.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from openstack.exceptions import SDKException

from labs.openstack import Cloud, seed
from labs.openstack.cloud import OCTAVIA_WORKER
from labs.openstack.proxy import Fault, Proxy
from labs.openstack.settings import url
from proreus.kube.objects import condition
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES, SERVICES
from proreus.providers.openstack.octavia.annotations import PREFIX
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ...apiserver.site import Site, is_initialised, set_up  # noqa: TID252 - pytest imports tests by path
from .real import Real, project

# Of openstacksdk, by which the tests look at the cloud.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")

T = TypeVar("T")

CLUSTER = "manager"
FLAGS = (
    "--cloud-provider=openstack",
    f"--cluster-name={CLUSTER}",
    "--configure-cloud-routes=true",
    "--cluster-cidr=10.64.0.0/16",
    "--node-monitor-period=1s",
    "--node-deletion-interval=2s",
    "--route-reconciliation-period=2s",
)
BALANCING = """
[LoadBalancer]
lb-provider = proreus
create-monitor = true
"""
HTTP = {"name": "http", "port": 80}
DNS = {"name": "dns", "port": 53, "protocol": "UDP"}
MORE = {"name": "more", "port": 8080}
SPECS: tuple[dict[str, Any], ...] = (
    {"ports": [HTTP]},
    {"ports": [HTTP, DNS]},
    {"ports": [HTTP], "ipFamilyPolicy": "RequireDualStack"},
    {"ports": [HTTP], "externalTrafficPolicy": "Local"},
    {"ports": [DNS], "loadBalancerSourceRanges": ["192.0.2.0/24"]},
    {"ports": [HTTP], "sessionAffinity": "ClientIP"},
)
"""What Services are like, by turns."""
SHARED = 9000
"""The port of a Service that shares the load balancer of the first one."""
INTERNAL = {"service.beta.kubernetes.io/openstack-internal-load-balancer": "true"}
"""Of every seventh."""

_BALANCERS = "octavia/v2.0/lbaas/loadbalancers"
_ROUTER = "neutron/v2.0/routers/[^/]+"

# What goes wrong. A lost answer had its effect.
WHILE_MADE = (
    Fault("POST", _BALANCERS, lost=True, after_effect=True),
    Fault("POST", _BALANCERS),
    Fault("GET", _BALANCERS, status=429),
    Fault("POST", "neutron/v2.0/floatingips", lost=True, after_effect=True),
    Fault("GET", "neutron/v2.0/ports", status=503),
    Fault("PUT", "neutron/v2.0/ports/[^/]+", times=2),
    Fault("PUT", f"{_ROUTER}/add_extraroutes", lost=True, after_effect=True),
    Fault("GET", "nova/v2.1/servers/detail", status=503),
)
WHILE_CHANGED = (
    Fault("POST", "octavia/v2.0/lbaas/listeners", lost=True, after_effect=True),
    Fault("POST", "octavia/v2.0/lbaas/pools"),
    Fault("PUT", "octavia/v2.0/lbaas/pools/[^/]+/members", lost=True, after_effect=True),
    Fault("GET", f"{_ROUTER}", status=503),
    Fault("PUT", f"{_ROUTER}/remove_extraroutes", lost=True, after_effect=True),
)
WHILE_DELETED = (
    Fault("DELETE", f"{_BALANCERS}/[^/]+", lost=True, after_effect=True),
    Fault("DELETE", f"{_BALANCERS}/[^/]+", status=503),
    Fault("DELETE", "neutron/v2.0/floatingips/[^/]+", lost=True, after_effect=True),
    Fault("PUT", f"{_ROUTER}/remove_extraroutes"),
)


class Life:
    """A cluster whose machines, routes and load balancers are in OpenStack."""

    def __init__(
        self, site: Site, real: Real, proxy: Proxy, directory: Path, patience: float
    ) -> None:
        self.site = site
        self.real = real
        self.proxy = proxy
        self._patience = patience
        self._file = directory / "cloud.conf"
        text = real.config.replace(url("keystone", "/v3"), proxy.auth_url)
        self._file.write_text(text + BALANCING)
        self.ids: dict[str, str] = {}
        self._addresses: dict[str, set[str]] = {}

    def manager(self) -> ManagerProcess:
        return self.site.lone_manager(*FLAGS, f"--cloud-config={self._file}")

    async def until(self, what: str, attempt: Callable[[], Awaitable[T | None]]) -> T:
        return await until(what, attempt, self._patience)

    # What happens

    async def join(self, count: int) -> list[str]:
        """Start servers; their kubelets register ready nodes, the first without a pod CIDR."""
        await self.real.servers("node", count)
        self.ids = await asyncio.to_thread(
            lambda: {one.name: one.id for one in self.real.found("^node-")}
        )
        ports = await asyncio.to_thread(lambda: list(self.real.api.network.ports()))
        for name, id_ in self.ids.items():
            of_server = [port for port in ports if port.device_id == id_]
            self._addresses[name] = {
                fixed["ip_address"] for port in of_server for fixed in port.fixed_ips
            }
        await _all(
            self.site.register_node(Instance(name=name, id=id_), ready=True, **_cidr(number))
            for number, (name, id_) in enumerate(self.ids.items())
        )
        return list(self.ids)

    async def leave(self, names: Sequence[str]) -> None:
        """Delete servers, and let their kubelets fall silent."""
        for name in names:
            await asyncio.to_thread(self.real.api.compute.delete_server, self.ids[name])
        await self.site.silence(*names)

    async def serve(self, numbers: Iterable[int]) -> None:
        """Make Services of all kinds, by turns."""
        for number in numbers:
            body = {
                "metadata": {
                    "name": f"web-{number}",
                    "annotations": INTERNAL if number % 7 == 6 else {},
                },
                "spec": {"type": "LoadBalancer", **_spec(number)},
            }
            await self.site.client.create(SERVICES, body, "default")

    async def share(self) -> None:
        """Make a Service that uses the load balancer of the first one."""
        owner = (await self.site.service("web-0")).metadata.annotations[f"{PREFIX}load-balancer-id"]
        body = {
            "metadata": {"name": "guest", "annotations": {f"{PREFIX}load-balancer-id": owner}},
            "spec": {"type": "LoadBalancer", "ports": [{"name": "http", "port": SHARED}]},
        }
        await self.site.client.create(SERVICES, body, "default")

    async def edit(self, count: int) -> None:
        """Give each Service a port more, and let only some clients in."""
        for number in range(count):
            ports = [*_spec(number)["ports"], MORE]
            spec = {"ports": ports, "loadBalancerSourceRanges": ["198.51.100.0/24"]}
            change = Patch(PatchType.MERGE, {"spec": spec})
            await self.site.client.patch(SERVICES, f"web-{number}", change, "default")

    async def quota(self, balancers: int) -> None:
        """Let the project have so many load balancers, where -1 is any number, and many groups."""

        def change() -> None:
            admin = seed.connect("admin", "admin")
            mine = self.real.api.current_project_id
            answer = admin.load_balancer.put(
                f"/lbaas/quotas/{mine}", json={"quota": {"loadbalancer": balancers}}
            )
            assert answer.status_code == 202, answer.text
            many = {"quota": {"security_group": -1, "security_group_rule": -1}}
            answer = admin.network.put(f"/quotas/{mine}", json=many)
            assert answer.status_code == 200, answer.text

        await asyncio.to_thread(change)

    # What there is to be seen

    async def initialised(self, names: Sequence[str]) -> None:
        async def are_initialised() -> bool:
            nodes = await self.site.nodes()
            return nodes.keys() == set(names) and all(
                one.spec.provider_id == f"openstack:///{self.ids[name]}"
                and is_initialised(one)
                and self._addresses[name] <= {address.address for address in one.status.addresses}
                and one.metadata.labels.get("node.kubernetes.io/instance-type") == "m1.k8s"
                for name, one in nodes.items()
            )

        await self.until("the nodes are initialised", are_initialised)

    async def routed(self, names: Iterable[str]) -> None:
        """Wait until these nodes, and no others, have a route, and may send from it."""
        numbers = {name: number for number, name in enumerate(self.ids)}
        wanted = {
            cidr: self._addresses[name]
            for name in names
            for cidr in _cidr(numbers[name]).get("podCIDRs", ())
        }

        async def are_routed() -> bool:
            routes = await asyncio.to_thread(self.real.routes)
            found = {one["destination"]: one["nexthop"] for one in routes}
            return (
                found.keys() == wanted.keys()
                and len(routes) == len(found)
                and all(found[cidr] in wanted[cidr] for cidr in found)
                and await asyncio.to_thread(self._pairs) == sorted(wanted)
            )

        await self.until(f"there are {len(wanted)} routes", are_routed)

    def _pairs(self) -> list[str]:
        return sorted(
            pair["ip_address"]
            for port in self.real.api.network.ports()
            for pair in port.allowed_address_pairs
        )

    async def served(
        self,
        count: int,
        machines: Iterable[str],
        *more: dict[str, Any],
        is_shared: bool = False,
    ) -> None:
        """Wait until every Service has its load balancers, with these nodes as members."""
        hosts = set[str]().union(*(self._addresses[name] for name in machines))
        wanted = {}
        for number in range(count):
            ports = [*_spec(number)["ports"], *more]
            listeners = {(one.get("protocol", "TCP"), one["port"]) for one in ports}
            if is_shared and number == 0:
                listeners.add(("TCP", SHARED))
            for version in (4, 6) if "ipFamilyPolicy" in _spec(number) else (4,):
                members = {one for one in hosts if _version(one) == version}
                wanted[f"web-{number}", version] = listeners, members

        async def are_served() -> bool:
            services = (await self.site.client.list(SERVICES, "default")).items
            shown = {one.metadata.name for one in services if says(one) == "Ensured"}
            if len(shown) < count + is_shared:
                return False
            try:
                return await asyncio.to_thread(self._served) == wanted
            except (KeyError, SDKException):  # one goes while it is looked at
                return False

        await self.until(f"{count} Services are served", are_served)

    def _served(self) -> Mapping[tuple[str, int], tuple[set[tuple[str, int]], set[str]]]:
        """Listeners and members of every load balancer, by its Service and IP version."""
        api = self.real.api.load_balancer
        ports = {one.id: (one.protocol, one.protocol_port) for one in api.listeners()}
        found = {}
        for one in self.real.balancers():
            answer = api.get(f"/lbaas/loadbalancers/{one.id}/status")
            listeners = answer.json()["statuses"]["loadbalancer"]["listeners"]
            members = [
                {member["address"] for pool in listener["pools"] for member in pool["members"]}
                for listener in listeners
            ]
            if any(these != members[0] for these in members) or not members:
                continue
            service = f"web-{one.name.partition('_web-')[2]}".partition("_")[0]
            key = service, _version(one.vip_address)
            found[key] = {ports[listener["id"]] for listener in listeners}, members[0]
        return found

    async def one_says(self, words: str) -> None:
        """Wait until the condition of any Service says these words."""

        async def is_said() -> bool:
            services = (await self.site.client.list(SERVICES, "default")).items
            found = [condition(one.status.conditions, CONDITION) for one in services]
            return any(one is not None and words in one.message for one in found)

        await self.until(f"a Service says {words}", is_said)

    async def says(self, name: str, *words: str) -> None:
        """Wait until the condition of a Service says these words."""

        async def is_said() -> bool:
            found = condition((await self.site.service(name)).status.conditions, CONDITION)
            return found is not None and all(word in found.message for word in words)

        await self.until(f"{name} says {words}", is_said)

    def left(self) -> list[str]:
        """All that there is of load balancers and routes."""
        api, network = self.real.api.load_balancer, self.real.api.network
        groups = [one for one in network.security_groups() if one.name != "default"]
        listed = (
            api.load_balancers(), api.listeners(), api.pools(), api.health_monitors(),
            network.ips(), groups,
        )  # fmt: skip
        parts = [f"{type(one).__name__} {one.name}" for found in listed for one in found]
        return [*parts, *self._pairs(), *(str(one) for one in self.real.routes())]

    async def empty(self) -> None:
        async def is_empty() -> bool:
            services = (await self.site.client.list(SERVICES, "default")).items
            return len(services) == 1 and not await asyncio.to_thread(self.left)

        await self.until("nothing is left", is_empty)


CONDITION = "LoadBalancerReady"


def says(service: Any) -> str:
    found = condition(service.status.conditions, CONDITION)
    return found.reason if found else ""


def _spec(number: int) -> dict[str, Any]:
    return SPECS[number % len(SPECS)]


def _cidr(number: int) -> dict[str, Any]:
    cidr = f"10.64.{number}.0/24"
    return {"podCIDR": cidr, "podCIDRs": [cidr]} if number else {}


def _version(address: str) -> int:
    return ipaddress.ip_address(address).version


async def _all(work: Iterable[Awaitable[object]]) -> None:
    await asyncio.gather(*work)


@contextmanager
def without_worker() -> Iterator[None]:
    """Octavia's worker is killed, and is started again afterwards."""
    cloud = Cloud()
    cloud.kill(OCTAVIA_WORKER)
    try:
        yield
    finally:
        cloud.restart(OCTAVIA_WORKER)


async def live(life: Life, nodes: int, services: int, leaving: int) -> None:
    """Nodes come, Services are made, changed and deleted, nodes leave; then nothing is left."""
    site, proxy = life.site, life.proxy
    balancers = sum(2 if "ipFamilyPolicy" in _spec(one) else 1 for one in range(services))
    await life.quota(balancers - 1)
    Cloud().break_balancer(f"kube_service_{CLUSTER}_default_web-0")
    async with life.manager():
        proxy.fail(*WHILE_MADE)
        names = await life.join(nodes)
        await life.serve(range(services))
        await life.one_says("Quota has been met for resources: Load Balancer")
        await life.quota(-1)
        await life.initialised(names)
        await life.routed(names)
        await life.served(services, names)
        assert not proxy.unspent()
        await life.share()
        await life.served(services, names, is_shared=True)

        with without_worker():
            await life.edit(services)
            for number in range(services):
                await life.says(f"web-{number}", "Octavia works on load balancer", "PENDING_UPDATE")
        proxy.fail(*WHILE_CHANGED)
        gone, rest = names[-leaving:], names[:-leaving]
        await life.leave(gone)
        await life.initialised(rest)
        await life.routed(rest)
        await life.served(services, rest, MORE, is_shared=True)
        assert not proxy.unspent()

        proxy.fail(*WHILE_DELETED)
        for name in (*(f"web-{number}" for number in range(services)), "guest"):
            await site.client.delete(SERVICES, name, "default")
        for name in rest[1:]:  # without any node, no route is ever deleted
            await site.client.delete(NODES, name)
        await life.empty()
        assert not proxy.unspent()


@pytest.fixture
def real() -> Iterator[Real]:
    made = project(CLUSTER)
    made.clean()
    yield made
    made.clean()


async def test_nothing_is_left_of_a_life_in_which_openstack_fails(
    control_plane: ControlPlane, real: Real, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site, Proxy() as proxy:
        await live(Life(site, real, proxy, tmp_path, 300.0), nodes=8, services=7, leaving=2)


@pytest.mark.long
async def test_nothing_is_left_of_the_life_of_50_nodes_and_20_services(
    control_plane: ControlPlane, real: Real, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site, Proxy() as proxy:
        await live(Life(site, real, proxy, tmp_path, 900.0), nodes=50, services=20, leaving=6)
