"""VMware's own SDK reads the same vCenter: what it sees, the provider sees."""

import asyncio
import ssl

from pyVim.connect import Disconnect, SmartConnect
from pyVmomi import vim, vmodl

from labs.vsphere.simulator import PASSWORD, USER

from .site import Site, describe, node, started


def read(vcenter: Site) -> dict[str, tuple[str, str, list[str]]]:
    """UUID, power state and addresses of all machines by host name, by pyVmomi."""
    service = SmartConnect(
        host="127.0.0.1",
        port=vcenter.gateway.port,
        user=USER,
        pwd=PASSWORD,
        sslContext=ssl.create_default_context(cafile=str(vcenter.ca_file)),
    )
    try:
        content = service.RetrieveContent()
        view = content.viewManager.CreateContainerView(
            content.rootFolder, [vim.VirtualMachine], recursive=True
        )
        query = vmodl.query.PropertyCollector
        paths = ["config.uuid", "guest.hostName", "guest.net", "runtime.powerState"]
        traversal = query.TraversalSpec(type=vim.view.ContainerView, path="view", skip=False)
        spec = query.FilterSpec(
            objectSet=[query.ObjectSpec(obj=view, skip=True, selectSet=[traversal])],
            propSet=[query.PropertySpec(type=vim.VirtualMachine, pathSet=paths)],
        )
        answer = content.propertyCollector.RetrievePropertiesEx([spec], query.RetrieveOptions())
        found = [{one.name: one.val for one in of.propSet} for of in answer.objects]
    finally:
        Disconnect(service)
    return {
        one["guest.hostName"]: (
            f"vsphere://{one['config.uuid']}",
            one["runtime.powerState"],
            [address for card in one["guest.net"] for address in card.ipAddress],
        )
        for one in found
    }


async def test_the_vendors_sdk_sees_the_same_machines(vcenter: Site) -> None:
    names = ["a", "b", "c"]
    await vcenter.simulator.create(*names)
    await vcenter.simulator.change("b", power="poweredOff")
    vcenter.gateway.restricted = False
    theirs = await asyncio.to_thread(read, vcenter)
    states = {"poweredOn": "running", "poweredOff": "stopped"}
    async with started(vcenter.config()) as provider:
        found = await describe(provider, *map(node, names))
    assert {
        name: (one.provider_id, one.state.value, [one.addresses[1].address])
        for name, one in found.items()
    } == {name: (id_, states[power], ips) for name, (id_, power, ips) in theirs.items()}
