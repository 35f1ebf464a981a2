"""What the tests of the provider `simulated` share: desired load balancers, a context that can die, a site."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from proreus.cloudprovider.calls import CallHooks, CallRecord
from proreus.cloudprovider.context import Context
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import HostPolicy, LoadBalancer
from proreus.kube.objects import (
    Node,
    Service,
    ServicePort,
)
from proreus.providers.simulated import SimulatedCloud
from proreus.providers.simulated.config import Global, SimulatedConfig
from proreus.testing import objects
from proreus.testing.simulated import Instance, SimulatedCloudProcess

CLUSTER = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-000000000001")
POLICY = HostPolicy(families=("IPv4",))
REGION = "sim-1"


class Killed(BaseException):
    """The process is gone: no code of it may run on, so this is no Exception."""


class NoEvents:
    """The provider records none."""

    def event(self, ref: Any, type_: str, reason: str, message: str, /) -> None:
        raise AssertionError(f"an event: {reason}")


class Mortal:
    """Counts calls; the process dies at call `kill_at`, before or after its effect."""

    def __init__(self, kill_at: int = 0, *, before_effect: bool = True) -> None:
        self.calls: list[str] = []
        self._kill_at = kill_at
        self._before_effect = before_effect

    def before(self, service: str, operation: str, *, read: bool) -> None:
        if self._kill_at and len(self.calls) >= self._kill_at:
            raise Killed
        self.calls.append(f"{service}.{operation}")
        if self._before_effect and len(self.calls) == self._kill_at:
            raise Killed

    def after(self, record: CallRecord) -> None:
        if self._kill_at and len(self.calls) >= self._kill_at:
            raise Killed


async def provider(
    cloud: SimulatedCloudProcess, hooks: CallHooks | None = None, **settings: Any
) -> SimulatedCloud:
    """A started provider. The caller closes it."""
    given = {"endpoint": cloud.endpoint, "region": REGION, "token": cloud.token} | settings
    made = SimulatedCloud(SimulatedConfig(Global(**given)))
    context = Context(
        CLUSTER,
        now=lambda: datetime.now(UTC),
        events=NoEvents(),
        listers={},
        hooks=hooks,
    )
    await made.start(context)
    return made


def node(
    name: str, provider_id: str = "", *, uuid: str = "", address: str = "", uid: str = ""
) -> Node:
    return objects.node(
        name,
        provider_id,
        uid=uid or f"uid-{name}",
        addresses=[address] if address else [],
        system_uuid=uuid,
    )


def node_of(machine: Instance) -> Node:
    return node(
        machine.name,
        f"simulated://{REGION}/{machine.id}",
        uuid=machine.system_uuid,
        address=machine.addresses[0].address,
    )


def service(
    name: str = "web",
    *ports: tuple[str, int, int],
    number: int = 1,
    **spec: Any,
) -> Service:
    """A Service with (protocol, port, node port) each."""
    return objects.service(
        name,
        uid=f"{number:08d}-0000-4000-8000-00000000005e",
        ports=tuple(
            ServicePort(port, f"p{port}", protocol, node_port)
            for protocol, port, node_port in ports or (("TCP", 80, 30080),)
        ),
        ip_families=("IPv4",),
        **spec,
    )


def desired_lb(machines: Iterable[Instance] = (), of: Service | None = None) -> LoadBalancer:
    return desired_load_balancer(
        of or service(), [node_of(one) for one in machines], POLICY, CLUSTER
    )


def machines(count: int, first: int = 0) -> Sequence[Instance]:
    return [
        Instance(name=f"node-{n}", zone=f"zone-{n % 3}", type="small", labels={"rack": f"r{n}"})
        for n in range(first, first + count)
    ]
