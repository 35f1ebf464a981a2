"""The conformance suite on the load balancers and routes of NSX-T."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from proreus.cloudprovider import CloudProvider, LoadBalancerRef
from proreus.testing.conformance import Answer, CloudFixture, Conformance
from proreus.testing.controlplane.certificates import Authority

from .emulator import world
from .emulator.server import Emulator, served
from .site import MANAGED, cloud

_KINDS = (
    "lb-services",
    "lb-virtual-servers",
    "lb-pools",
    "lb-monitor-profiles",
    "lb-persistence-profiles",
    "groups",
    "ip-allocations",
)
_LIMIT = b"Client 'admin' exceeded request rate of 100 per second."


class NsxtFixture(CloudFixture):
    """The emulator without a vCenter: nodes are invented."""

    lacks = frozenset({"instances"})
    page_size = 5
    timeout = 60.0
    patience = 30.0
    throttled = Answer(429, _LIMIT, {"Retry-After": "120"})

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        directory = self._stack.enter_context(TemporaryDirectory())
        self.authority = Authority()
        self.nsxt: Emulator = await self._stack.enter_async_context(
            served(Path(directory), self.authority)
        )
        self.nsxt.page = self.page_size
        # Somebody who takes an allocation away leaves its address in use for that long.
        world.add_pool(
            self.nsxt, "quick", "Quick", addresses="10.20.40.1-10.20.40.99", ip_release_delay=0
        )
        self.endpoint = self.nsxt.url
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def provider(self, endpoint: str) -> CloudProvider:
        host = endpoint.removeprefix("https://")
        text = MANAGED.replace("VIP pool", "Quick") + self.nsxt.config(host=host)
        return cloud(f"{text}\n[Client]\ntimeout = {self.timeout}s\n")

    async def objects(self) -> Mapping[str, object]:
        """Everything of load balancers that is not of the system."""
        return {
            str(one["path"]): dict(one)
            for kind in _KINDS
            for one in self.nsxt.of(kind)
            if not one["_system_owned"]
        }

    async def remove_object(self, id_: str) -> None:
        self.nsxt.remove(id_)

    async def create_foreign(self, ref: LoadBalancerRef) -> None:
        name = f"cluster:{ref.cluster.name}:{ref.key}"
        tags = [
            {"scope": "owner", "tag": "vsphere-cloud-controller-manager"},
            {"scope": "cluster", "tag": ref.cluster.name},
            {"scope": "service", "tag": ref.key},
            {"scope": "port", "tag": "TCP/80"},
        ]
        for kind in ("lb-pools", "lb-monitor-profiles", "lb-virtual-servers"):
            self._foreign(kind, name, tags)

    def _foreign(self, kind: str, name: str, tags: list[dict[str, str]]) -> None:
        bodies: dict[str, dict[str, object]] = {
            "lb-pools": {},
            "lb-monitor-profiles": {"resource_type": "LBTcpMonitorProfile", "monitor_port": 30080},
            "lb-virtual-servers": {
                "ip_address": "10.20.40.99",
                "ports": ["80"],
                "application_profile_path": "/infra/lb-app-profiles/default-tcp-lb-app-profile",
                "pool_path": "/infra/lb-pools/foreign",
            },
        }
        self.nsxt.put(f"/infra/{kind}/foreign", display_name=name, tags=tags, **bodies[kind])


class TestNsxt(Conformance):
    fixture = NsxtFixture
