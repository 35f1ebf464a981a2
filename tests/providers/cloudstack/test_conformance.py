"""The conformance suite on the provider `cloudstack`."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import pytest

from proreus.cloudprovider import CloudProvider, LoadBalancerRef
from proreus.testing.conformance import Answer, CloudFixture, Conformance
from proreus.testing.controlplane.certificates import Authority

from .emulator.server import Emulator, served
from .site import cloud

_LIMIT = (
    b'{"listvirtualmachinesresponse": {"uuidList": [], "errorcode": 429, "cserrorcode": 9999,'
    b' "errortext": "The given user has reached his/her account api limit, please retry after'
    b' [120000] ms."}}'
)


class CloudStackFixture(CloudFixture):
    """The emulator with one isolated network. Proxies speak TLS, as a CloudStack should."""

    page_size = 5
    timeout = 60.0
    patience = 30.0
    marks_routes = False
    throttled = Answer(429, _LIMIT)
    in_vpc = False

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        self.emulator = await self._stack.enter_async_context(served(Emulator()))
        self.emulator.page = self.page_size
        self.world = self.emulator.world
        tier = self.world.add_network(vpc=True, cidr="10.2.0.0/16")
        self._vpc = self.world.networks[tier]["vpcid"]
        self._network = tier if self.in_vpc else self.world.add_network()
        self.world.add_addresses("203.0.113.1", 50)
        self._ids: dict[str, str] = {}
        self.endpoint = self.emulator.url
        self.authority = Authority()
        self._directory = self._stack.enter_context(TemporaryDirectory())
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
        sections = f"[Route]\nvpc-id = {self._vpc}\n[Client]\ntimeout = {self.timeout}s\nca-file = {self._ca}\n"
        text = self.emulator.config(sections=sections)
        return cloud(text.replace(self.emulator.url, endpoint))

    async def create_machines(self, names: Sequence[str]) -> None:
        made = self.world.add_machines(names, self._network)
        self._ids |= dict(zip(names, made, strict=True))

    async def remove_machine(self, name: str) -> None:
        self.world.remove_machine(self._ids.pop(name))

    async def stop_machine(self, name: str) -> None:
        self.world.machines[self._ids[name]]["state"] = "Stopped"

    async def objects(self) -> Mapping[str, object]:
        """Addresses that are taken, rules with their members, firewall rules; all with tags."""
        world = self.world
        kinds = {"ips": "PublicIpAddress", "rules": "LoadBalancer", "firewall": "FirewallRule"}
        kinds["acl_items"] = "NetworkACL"
        found: dict[str, object] = {}
        for kind, type_ in kinds.items():
            for id_, one in getattr(world, kind).items():
                if one["state"] != "Free":
                    tags = dict(world.tags.get((type_, id_), {}))
                    found[id_] = dict(one), tags, sorted(world.members.get(id_, []))
        return found

    async def remove_object(self, id_: str) -> None:
        world = self.world
        if id_ in world.ips:
            world.release(id_)
        for kind in ("rules", "firewall", "acl_items"):
            if id_ in getattr(world, kind):
                world.remove(kind, id_)
        world.members.pop(id_, None)

    async def create_foreign(self, ref: LoadBalancerRef) -> None:
        """The name holds the uid: so a rule of another uid, on an address of its own."""
        (ip, *_) = (one for one in self.world.ips.values() if one["state"] == "Free")
        place = {"vpcid": self._vpc} if self.in_vpc else {}
        ip |= {"state": "Allocated", "associatednetworkid": self._network, **place}
        id_ = self.world.new_id()
        other = ref.name[:-4] + "0000"
        self.world.rules[id_] = {
            "id": id_, "name": f"{other}-tcp-8080", "description": "", "publicipid": ip["id"],
            "publicip": ip["ipaddress"], "publicport": "8080", "privateport": "30080",
            "protocol": "tcp", "algorithm": "roundrobin", "networkid": self._network,
            "state": "Active", "cidrlist": "0.0.0.0/0", "zoneid": ip["zoneid"],
        }  # fmt: skip


class VPCFixture(CloudStackFixture):
    """The same in a tier of a VPC, where access lists let clients in."""

    in_vpc = True


class TestCloudStack(Conformance):
    fixture = CloudStackFixture


@pytest.mark.long
class TestInVPC(Conformance):
    fixture = VPCFixture
