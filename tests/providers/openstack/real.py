"""A project on real services, for tests of their own.

`make openstack-up` starts the services; without them `project` skips.
"""

import asyncio
import os
import time
from typing import Any

import msgspec
import pytest
from openstack.exceptions import SDKException

from labs.openstack import running, seed
from proreus.cloudprovider import Pending
from proreus.cloudprovider.instances import Instance
from proreus.kube.objects import Node
from proreus.providers.openstack import OpenStackCloud

from .wire import node, of, shown

PATIENCE = 300


def project(name: str) -> "Real":
    """A project of that name, which neither another module nor another process uses.

    Without services the tests are skipped.
    """
    if running() is None:
        pytest.skip("no OpenStack runs on this machine: make openstack-up starts one")
    own = f"{name}-{os.getpid()}"
    seed.project(own)
    return Real(own)


async def hosts(provider: OpenStackCloud, ids: list[str]) -> list[Node]:
    """The nodes of these servers."""
    assert provider.instances is not None
    made = []
    for name, one in (await provider.instances.describe(of(ids))).items():
        assert isinstance(one, Instance), one
        made.append(node(name, one.provider_id, *(address for _, address in shown(one))))
    return made


async def settled(verb: Any, what: Any) -> Any:
    """Ask until Octavia has done it."""
    end = time.monotonic() + PATIENCE
    while True:
        (answer,) = (await verb([what])).values()
        if not isinstance(answer, Pending):
            return answer
        assert time.monotonic() < end, answer
        if answer.withdrawn:
            what = msgspec.structs.replace(what, last_ingress=())
        await asyncio.sleep(0.2)


class Real:
    """A project, with openstacksdk's own resources, which the provider does not use."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.api = seed.connect(seed.USER, name)
        self.network = self.api.network.find_network("private")
        self.router = self.api.network.find_router("router")
        flavors = {one.name: one.id for one in self.api.compute.flavors()}
        self.flavor = flavors["m1.k8s"]
        self.config = seed.cloud_config(name) + f"[Route]\nrouter-id = {self.router.id}\n"

    async def servers(self, name: str, count: int = 1) -> list[str]:
        """Start servers, and wait until they run; their ids."""
        return await asyncio.to_thread(self._servers, name, count)

    def _servers(self, name: str, count: int) -> list[str]:
        body = {
            "name": name,
            "flavorRef": self.flavor,
            "imageRef": "70a599e0-31e7-49b7-b260-868f441e862b",
            "networks": [{"uuid": self.network.id}],
            "min_count": count,
            "max_count": count,
        }
        answer = self.api.compute.post("/servers", json={"server": body})
        assert answer.status_code == 202, answer.text
        names = f"^{name}(-[0-9]+)?$"
        self._until(lambda: [one.status for one in self.found(names)] == ["ACTIVE"] * count)
        return [str(one.id) for one in self.found(names)]

    def found(self, names: str) -> list[Any]:
        return list(self.api.compute.servers(details=True, name=names))

    def _until(self, done: Any) -> None:
        end = time.monotonic() + PATIENCE
        while not self._is(done):
            assert time.monotonic() < end, "it does not come"
            time.sleep(0.5)

    @staticmethod
    def _is(done: Any) -> bool:
        try:
            return bool(done())
        except SDKException:  # a page begins after what was deleted meanwhile
            return False

    async def until(self, done: Any) -> None:
        await asyncio.to_thread(self._until, done)

    def status(self, id_: str) -> str:
        return str(self.api.compute.get_server(id_).status)

    def ports(self, id_: str) -> list[Any]:
        return list(self.api.network.ports(device_id=id_))

    def routes(self) -> list[dict[str, str]]:
        found = self.api.network.get_router(self.router.id).routes or []
        return sorted(found, key=lambda one: str(one["destination"]))

    def balancers(self) -> list[Any]:
        return list(self.api.load_balancer.load_balancers())

    def trunk(self, parent: str) -> str:
        """Make a port a trunk, with a port of another network in it; its address."""
        api = self.api.network
        network = api.create_network(name="below")
        api.create_subnet(network_id=network.id, ip_version=4, cidr="10.2.0.0/24")
        port = api.create_port(network_id=network.id)
        tagged = {"port_id": port.id, "segmentation_type": "vlan", "segmentation_id": 101}
        api.create_trunk(name="trunk", port_id=parent, sub_ports=[tagged])
        return str(port.fixed_ips[0]["ip_address"])

    def _without_balancers(self) -> bool:
        there = self.balancers()
        for one in there:
            if not one.provisioning_status.startswith("PENDING"):
                self.api.load_balancer.delete_load_balancer(one.id, cascade=True)
        return not there

    def _without_servers(self) -> bool:
        """Delete all that are shown: the pages of a list lack some while others go."""
        there = list(self.api.compute.servers())
        for one in there:
            if one.task_state != "deleting":
                self.api.compute.delete_server(one.id)
        return not there

    def clean(self) -> None:
        self._until(self._without_balancers)
        self.api.network.update_router(self.router.id, routes=[])
        for address in self.api.network.ips():
            self.api.network.delete_ip(address.id)
        for one in self.api.network.trunks():
            self.api.network.delete_trunk(one.id)
        for network in self.api.network.networks(name="below"):
            for port in self.api.network.ports(network_id=network.id):
                self.api.network.delete_port(port.id)
            self.api.network.delete_network(network.id)
        self._until(self._without_servers)
        for group in self.api.network.security_groups():
            if group.name != "default":
                self.api.network.delete_security_group(group.id)
