"""The conformance suite on the provider `openstack`."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from proreus.cloudprovider import CloudProvider, LoadBalancerRef
from proreus.providers.openstack.octavia.owners import name_of
from proreus.testing.conformance import CloudFixture, Conformance
from proreus.testing.controlplane.certificates import Authority

from .octavia_wire import SINGULAR, OctaviaWire
from .wire import ROUTER, Wire, cloud, port, served

_CLOUDS = """
clouds:
  one:
    cacert: {ca}
    compute_endpoint_override: {url}/compute/v2.1
    network_endpoint_override: {url}/network
    load_balancer_endpoint_override: {url}/balancing
    auth:
      auth_url: {url}/identity
      username: ccm
      password: planted-secret
      project_name: demo
      user_domain_name: Default
      project_domain_name: Default
"""


class OpenStackFixture(CloudFixture):
    """The wire with one router; the endpoints are in a clouds.yaml, so that a proxy can be one.

    Proxies speak TLS, as an OpenStack does.
    """

    page_size = 5
    timeout = 60.0
    patience = 30.0
    marks_routes = False

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        self._wire = Wire()
        self._octavia = OctaviaWire(self._wire)
        self._octavia.works = 0
        self._octavia.subnets["s"] = {"id": "s", "ip_version": 4, "cidr": "10.0.0.0/16"}
        self._wire.more.append(self._octavia.routes)
        await self._stack.enter_async_context(served(self._wire))
        self._directory = self._stack.enter_context(TemporaryDirectory())
        self._wire.page = self.page_size
        self._wire.good_tokens = {f"token-{number}" for number in range(1000)}
        self._wire.ports.append(port("router", ROUTER, "10.0.0.1"))
        self._ids: dict[str, str] = {}
        self.endpoint = self._wire.url
        self.authority = Authority()
        self._ca = Path(self._directory) / "ca.pem"
        self._ca.write_bytes(self.authority.certificate)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def provider(self, endpoint: str) -> CloudProvider:
        file = Path(self._directory) / f"clouds-{endpoint.rpartition(':')[2]}.yaml"
        file.write_text(_CLOUDS.format(url=endpoint, ca=self._ca))
        return cloud(
            f"[Global]\nuse-clouds\nclouds-file = {file}\ncloud = one\n"
            f"[LoadBalancer]\ncreate-monitor\nmanage-security-groups\n"
            f"[Route]\nrouter-id = {ROUTER}\n[Client]\ntimeout = {self.timeout}s\n"
        )

    async def create_machines(self, names: Sequence[str]) -> None:
        for name in names:
            self._ids[name] = self._wire.add(len(self._wire.ports), name)

    async def remove_machine(self, name: str) -> None:
        id_ = self._ids.pop(name)
        del self._wire.servers[id_]
        self._wire.ports = [one for one in self._wire.ports if one["device_id"] != id_]

    async def stop_machine(self, name: str) -> None:
        self._wire.servers[self._ids[name]]["status"] = "SHUTOFF"

    async def objects(self) -> Mapping[str, object]:
        """Without what Octavia's work changes by itself."""
        hidden = {"left", "provisioning_status", "vip_port_id"}
        found: dict[str, object] = {}
        for kind in SINGULAR:
            for id_, one in self._octavia.of[kind].items():
                members = self._octavia.members.get(id_)
                found[id_] = {k: v for k, v in one.items() if k not in hidden}, members
        for id_, one in self._octavia.groups.of.items():
            ports = [port["id"] for port in self._wire.ports if id_ in port["security_groups"]]
            found[id_] = {**one, "ports": ports}
        return found

    async def remove_object(self, id_: str) -> None:
        of = self._octavia.of
        if id_ in self._octavia.groups.of:
            self._octavia.groups.remove(id_)
        if id_ in of["loadbalancers"]:
            self._octavia.remove(id_)
        pool = of["pools"].get(id_, {})
        of["healthmonitors"].pop(pool.get("healthmonitor_id") or "", None)
        for kind in SINGULAR:
            of[kind].pop(id_, None)
        for listener in of["listeners"].values():
            if listener["default_pool_id"] == id_:
                listener["default_pool_id"] = None
        for pool in of["pools"].values():
            if pool["healthmonitor_id"] == id_:
                pool["healthmonitor_id"] = None

    async def create_foreign(self, ref: LoadBalancerRef) -> None:
        given = {"name": name_of(ref), "vip_subnet_id": "s"}
        self._octavia._make_balancer(given)


class TestOpenStack(Conformance):
    fixture = OpenStackFixture
