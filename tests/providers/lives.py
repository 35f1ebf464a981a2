"""The life of a cluster on a cloud, as far as it is the same on all clouds.

A cloud's own `Life` starts and ends machines, and tells what load balancers it has; its `live` says
in which order things happen, and what goes wrong meanwhile.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from proreus.kube.objects import Node, Service
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES, SERVICES
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ..apiserver.site import Site, all_of, is_initialised  # noqa: TID252 - pytest imports tests by path

T = TypeVar("T")

HTTP: Final = {"name": "http", "port": 80}
HTTPS: Final = {"name": "https", "port": 443}
LOOKS: Final = 5
"""Calls with keys that show less, after which a Node would be gone if they counted."""


class ClusterLife:
    """A cluster with one manager.

    Attributes:
        site: Its API server.
        ids: The ids of machines by the names of their nodes.
    """

    def __init__(self, site: Site, patience: float) -> None:
        self.site = site
        self.ids: dict[str, str] = {}
        self._patience = patience

    async def until(self, what: str, attempt: Callable[[], Awaitable[T | None]]) -> T:
        return await until(what, attempt, self._patience)

    # What happens

    async def register(self, ids: Mapping[str, str], *, with_cidrs: bool = False) -> list[str]:
        """Let the kubelets of machines register ready nodes, with pod CIDRs or without."""
        self.ids |= ids
        await all_of(
            self.site.register_node(
                Instance(name=name, id=id_),
                ready=True,
                **({"podCIDR": cidr, "podCIDRs": [cidr]} if with_cidrs else {}),
            )
            for number, (name, id_) in enumerate(ids.items())
            for cidr in [f"10.{64 + number // 256}.{number % 256}.0/24"]
        )
        return list(ids)

    async def serve(
        self,
        count: int,
        service: Callable[[int], Mapping[str, Any]] = lambda _: {},
        *,
        first: int = 0,
    ) -> None:
        """Make Services with one port; `service` has more of each by its number."""
        await all_of(
            self.site.client.create(SERVICES, _body(number, **service(number)), "default")
            for number in range(first, first + count)
        )

    async def edit(self, count: int, **spec: object) -> None:
        """Give each Service a port more, and what else `spec` has."""
        change = Patch(PatchType.MERGE, {"spec": {"ports": [HTTP, HTTPS], **spec}})
        await all_of(
            self.site.client.patch(SERVICES, _name(number), change, "default")
            for number in range(count)
        )

    async def end(self, services: int, nodes: Iterable[str] = ()) -> None:
        """Delete all Services, then nodes."""
        await all_of(
            self.site.client.delete(SERVICES, _name(number), "default")
            for number in range(services)
        )
        await all_of(self.site.client.delete(NODES, name) for name in nodes)

    # What there is to be seen

    def is_right(self, name: str, node: Node) -> bool:
        """Whether an initialised node has what the cloud says of its machine."""
        return node.spec.provider_id.endswith(self.ids[name])

    async def initialised(self, names: Sequence[str]) -> None:
        """Wait until there are these nodes and no others, all of them initialised."""

        async def are_initialised() -> bool:
            nodes = await self.site.nodes()
            return nodes.keys() == set(names) and all(
                self.is_right(name, node) and is_initialised(node) for name, node in nodes.items()
            )

        await self.until("the nodes are initialised", are_initialised)

    async def services(self) -> tuple[Service, ...]:
        """All Services; that of the API server is one of them."""
        return (await self.site.client.list(SERVICES, "default")).items

    async def shown(self) -> set[str]:
        """The addresses that Services show, or host names."""
        return {
            point.ip or point.hostname
            for service in await self.services()
            for point in service.status.load_balancer.ingress
        }

    async def empty(self, is_left: Callable[[], object]) -> None:
        """Wait until no Service is there but the API server's, and nothing is left in the cloud."""

        async def is_empty() -> bool:
            return len(await self.services()) == 1 and not is_left()

        await self.until("nothing is left", is_empty)

    async def outlive_less(self, names: Sequence[str], calls: Callable[[], int]) -> None:
        """See that no Node goes while the cloud, with the keys of now, shows less than there is.

        Args:
            names: All nodes; the first one falls silent.
            calls: Counts the calls that ask the cloud for machines.
        """
        before = calls()
        await self.site.silence(names[0])

        async def looked() -> bool:
            return calls() > before + LOOKS

        await self.until("the manager has looked with the keys that show less", looked)
        assert (await self.site.nodes()).keys() == set(names)


def _name(number: int) -> str:
    return f"web-{number}"


def _body(
    number: int, annotations: Mapping[str, str] | None = None, **spec: object
) -> dict[str, Any]:
    return {
        "metadata": {"name": _name(number), "annotations": annotations or {}},
        "spec": {"type": "LoadBalancer", "ports": [HTTP], **spec},
    }
