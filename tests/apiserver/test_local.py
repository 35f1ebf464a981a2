"""The provider `local` in a manager: nodes follow the inventory."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import yaml

from proreus.kube.objects import (
    CONDITION_LOAD_BALANCER_READY,
    LABEL_INSTANCE_TYPE,
    LABEL_REGION,
    LABEL_ZONE,
    TAINT_SHUTDOWN,
    NodeAddress,
    Service,
    condition,
    has_taint,
)
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES, SERVICES
from proreus.providers.local.bgp.plan import candidates
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Address, Instance
from proreus.testing.waiting import until

from .site import CONDITION, Site

QUICK = ("--node-monitor-period=200ms", "--node-deletion-interval=600ms")


def machine(name: str, address: str = "10.1.1.1") -> Instance:
    """What the kubelet knows of its machine."""
    return Instance(id=name, name=name, addresses=(Address("InternalIP", address),))


def manager(site: Site, directory: Path, text: str, *flags: str, **more: Any) -> ManagerProcess:
    """A manager with the provider."""
    file = directory / "local.yaml"
    file.write_text(dedent(text))
    return site.lone_manager("--cloud-provider=local", f"--cloud-config={file}", *flags, **more)


class Inventory:
    """A file that is edited."""

    def __init__(self, path: Path, *names: str) -> None:
        self.path = path
        self.machines: dict[str, dict[str, Any]] = {}
        for name in names:
            self.say(name, addresses=[f"10.1.1.{len(self.machines) + 1}"])

    def say(self, name: str, **fields: Any) -> None:
        self.machines[name] = {"name": name, **self.machines.get(name, {}), **fields}
        content = {"machines": list(self.machines.values())}
        self.path.write_text(yaml.safe_dump({"defaults": {"zone": "rack-1"}, **content}))


async def taint(site: Site, name: str) -> None:
    async def there() -> bool:
        return has_taint(await site.existing(name), TAINT_SHUTDOWN)

    await until(f"{name} is shut down", there)


async def said(site: Site, name: str, words: str) -> None:
    async def is_said() -> bool:
        state = condition((await site.existing(name)).status.conditions, CONDITION)
        return state is not None and words in state.message

    await until(f"{name} says {words}", is_said)


async def test_nodes_follow_the_inventory_while_it_can_be_read(site: Site, tmp_path: Path) -> None:
    inventory = Inventory(tmp_path / "machines.yaml", "a", "b", "c", "d", "e")
    inventory.say("a", id="SN-1", type="metal", labels={"rack": "r1"})
    await site.register([machine(name) for name in inventory.machines])
    text = f"{{region: home, instances: {{inventory: {inventory.path}}}}}"
    async with manager(site, tmp_path, text, *QUICK):
        nodes = await site.initialised(*inventory.machines)
        assert nodes["a"].spec.provider_id == "local://SN-1"
        assert nodes["a"].status.addresses == (
            NodeAddress("InternalIP", "10.1.1.1"),
            NodeAddress("Hostname", "a"),
        )
        labels = nodes["a"].metadata.labels
        shown = [labels[name] for name in (LABEL_REGION, LABEL_ZONE, LABEL_INSTANCE_TYPE, "rack")]
        assert shown == ["home", "rack-1", "metal", "r1"]

        await site.silence("a", "b")
        inventory.say("a", state="stopped")
        await taint(site, "a")
        inventory.say("b", state="gone")
        await site.gone("b")

        whole = inventory.path.read_text()
        inventory.path.write_text(whole[: len(whole) // 2] + "\n  - {")
        await site.register([machine("f")])
        await said(site, "f", "machines.yaml")
        assert "The inventory has mistakes" in (tmp_path / "manager.log").read_text()
        assert (await site.nodes()).keys() == {"a", "c", "d", "e", "f"}
        inventory.say("f", addresses=["10.1.1.6"])
        await site.initialised("f")


async def test_no_speaker_announces_a_node_for_a_service_that_is_refused(
    site: Site, tmp_path: Path
) -> None:
    """Another balancer, such as that of k3s, has left the node's address in the status."""
    text = """
        instances: {enabled: false}
        routes: {enabled: false}
        gateway: {enabled: false}
        pools: {default: {addresses: [10.1.1.0/28]}}
        bgp: {as: 64512, peers: {rack: {address: 10.9.0.1, as: 64513}}}
    """
    await site.register_node(machine("one"), ready=True)
    address = {"status": {"addresses": [{"type": "InternalIP", "address": "10.1.1.1"}]}}
    await site.client.patch(NODES, "one", Patch(PatchType.MERGE, address), subresource="status")
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    asked = {"proreus.io/load-balancer-ips": "203.0.113.1"}
    made = {"metadata": {"name": "web", "annotations": asked}, "spec": spec}
    await site.client.create(SERVICES, made, "default")
    left = {"status": {"loadBalancer": {"ingress": [{"ip": "10.1.1.1"}]}}}
    await site.client.patch(
        SERVICES, "web", Patch(PatchType.MERGE, left), "default", subresource="status"
    )
    async with manager(site, tmp_path, text, "--controllers=service"):

        async def refused() -> Service | None:
            found = await site.service("web")
            state = condition(found.status.conditions, CONDITION_LOAD_BALANCER_READY)
            return found if state is not None and "in no pool" in state.message else None

        service = await until("the Service is refused", refused)
        assert not candidates([service], {}, None)
