"""What the tests of the provider `simulated` share: wishes, a context that can die, a site."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import HostPolicy, LoadBalancer
from proreus.cloudprovider.wanted import wanted
from proreus.kube.objects import (
    Node,
    NodeAddress,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
    ObjectMeta,
    Service,
    ServicePort,
    ServiceSpec,
)
from proreus.providers.simulated import SimulatedCloud
from proreus.providers.simulated.config import Settings, SimulatedConfig
from proreus.testing.simulated import Instance, SimulatedCloudProcess

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

CLUSTER = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-000000000001")
POLICY = HostPolicy(families=("IPv4",))
REGION = "sim-1"
T = TypeVar("T")


class Killed(BaseException):
    """The process is gone: no code of it may run on, so this is no Exception."""


class MortalContext:
    """Makes calls as they come, until it is killed before or after the effect of one."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.kill_at = 0
        self.kill_before_effect = True

    async def call(
        self,
        service: str,
        operation: str,
        fn: Callable[[], Awaitable[T]],
        *,
        read: bool,
        deadline: float = 30.0,
        credential: str = "",
        blocking: bool = False,
    ) -> T:
        if self.kill_at and len(self.calls) >= self.kill_at:
            raise Killed
        self.calls.append(f"{service}.{operation}")
        last = len(self.calls) == self.kill_at
        if last and self.kill_before_effect:
            raise Killed
        answer = await fn()
        if last:
            raise Killed
        return answer


async def provider(
    cloud: SimulatedCloudProcess, context: MortalContext | None = None, **settings: Any
) -> SimulatedCloud:
    """A started provider. The caller closes it."""
    given = {"endpoint": cloud.endpoint, "region": REGION, "token": cloud.token} | settings
    made = SimulatedCloud(SimulatedConfig(Settings(**given)))
    await made.start(cast("Context", context or MortalContext()))
    return made


def node(
    name: str, provider_id: str = "", *, uuid: str = "", address: str = "", uid: str = ""
) -> Node:
    addresses = (NodeAddress("InternalIP", address),) if address else ()
    return Node(
        metadata=ObjectMeta(name=name, uid=uid or f"uid-{name}"),
        spec=NodeSpec(provider_id=provider_id),
        status=NodeStatus(addresses=addresses, node_info=NodeSystemInfo(system_uuid=uuid)),
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
    return Service(
        metadata=ObjectMeta(
            name=name, namespace="default", uid=f"{number:08d}-0000-4000-8000-00000000005e"
        ),
        spec=ServiceSpec(
            type="LoadBalancer",
            ports=tuple(
                ServicePort(port, f"p{port}", protocol, node_port)
                for protocol, port, node_port in ports or (("TCP", 80, 30080),)
            ),
            ip_families=("IPv4",),
            **spec,
        ),
    )


def wish(machines: Iterable[Instance] = (), of: Service | None = None) -> LoadBalancer:
    return wanted(of or service(), [node_of(one) for one in machines], POLICY, CLUSTER)


def machines(count: int, first: int = 0) -> Sequence[Instance]:
    return [
        Instance(name=f"node-{n}", zone=f"zone-{n % 3}", type="small", labels={"rack": f"r{n}"})
        for n in range(first, first + count)
    ]
