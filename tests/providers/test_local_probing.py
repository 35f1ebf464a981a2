"""What probes of the provider `local` prove where machines are in several networks."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest

from proreus.cloudprovider import Instance, InstanceAnswer, InstanceState, NotFound
from proreus.kube.objects import Node
from proreus.providers.local import LocalCloud
from proreus.providers.local.config import (
    Gateway,
    InstancesConfig,
    LocalConfig,
    Probing,
    Unreachable,
)

from .local_site import context, node
from .traffic import CLIENT, NODES, Lab, run

ONE, TWO = (addresses[0] for addresses in NODES.values())


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with ExitStack() as stack:
        yield Lab(stack)


async def of_silent(*nodes: Node) -> InstanceAnswer:
    """What is said of the Node `silent`; nobody listens at the port, so a machine refuses."""
    probing = Probing(
        ports=(9,), timeout=timedelta(seconds=0.3), threshold=1, unreachable=Unreachable.GONE
    )
    config = LocalConfig(instances=InstancesConfig(probing=probing), gateway=Gateway(enabled=False))
    cloud = LocalCloud(config)
    await cloud.start(context())
    assert cloud.instances is not None
    said = await cloud.instances.describe(nodes)
    await cloud.close()
    return said["silent"]


async def test_machines_behind_a_broken_network_are_not_gone_while_another_network_works(
    lab: Lab,
) -> None:
    """Whether a machine in that, or what a kubelet says is its machine, such as a pod here."""
    silent, beside = node("silent", ONE, is_ready=False), node("beside", TWO)
    lab.unplug("one")
    assert await of_silent(silent, beside) == NotFound()
    lab.unplug("two")
    for others in ((CLIENT,), (CLIENT, TWO)):
        said = await of_silent(silent, beside, node("elsewhere", *others))
        assert isinstance(said, Instance), said
        assert said.state is InstanceState.UNKNOWN


async def test_machines_are_not_gone_whose_network_is_sought_behind_another_networks_router(
    lab: Lab,
) -> None:
    """With an interface its route is lost; then the default router has what comes for it."""
    run("ip", "link", "set", "nodes0", "down")
    run("ip", "route", "add", "default", "via", CLIENT)
    said = await of_silent(node("silent", ONE, is_ready=False), node("beside", CLIENT))
    assert isinstance(said, Instance), said
    assert said.state is InstanceState.UNKNOWN
