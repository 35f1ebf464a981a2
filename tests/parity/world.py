"""The world of one script: its objects and machines, and what steps do to them."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from ipaddress import IPv6Network
from secrets import token_hex
from typing import Any, Final, TypeVar
from uuid import uuid4

import msgspec

from proreus.cloudprovider.names import default_load_balancer_name
from proreus.kube.errors import (
    AlreadyExists,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import EVENTS, NODES, SERVICES, Request, Resource
from proreus.testing.kubelet import node_body
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ..apiserver.site import Site  # noqa: TID252 - pytest imports tests by path
from .picture import Cast, Seen

PATIENCE: Final = 180.0
"""Seconds to wait for what must come: many scripts wait at the same time. It only ends hangs."""
POLL: Final = 0.1
NAMESPACE: Final = "default"
CLUSTER_CIDRS: Final = ("10.128.0.0/9", "fd00:10::/32")
T = TypeVar("T")
Step = Callable[["World"], Awaitable[None]]


class World:
    """What a script acts on. Names are the script's own: each object gets its prefix."""

    def __init__(
        self, site: Site, name: str, number: int, routes: Mapping[str, str], *, speaks: bool
    ) -> None:
        """Nothing is there yet.

        Args:
            site: The API server and the cloud, which all scripts share.
            name: The script's.
            number: No other script has it; its pod CIDRs are made from it.
            routes: The tags by which the manager knows its routes.
            speaks: Whether the manager says on a node that it cannot initialise it.
        """
        self.site = site
        self.cloud = site.cloud.admin
        self.cast = Cast(name)
        self.machines: dict[str, Instance] = {}
        self.routes = routes
        self.speaks = speaks
        self._number = number

    def full(self, here: str) -> str:
        """The whole name of an object."""
        return f"{self.cast.name}-{here}"

    def cidr(self, number: int, family: int = 4) -> str:
        """A pod CIDR of this script; 0 is the first."""
        text = (
            f"10.{128 + self._number}.{number}.0/24"
            if family == 4
            else str(IPv6Network(f"fd00:10:{self._number:x}:{number:x}::/64"))
        )
        self.cast.cidrs[text] = f"<CIDR {number} IPv{family}>"
        return text

    # Machines

    def unborn(self, here: str, *, of_name: str = "", **fields: Any) -> Instance:
        """A machine that the cloud does not have yet."""
        fields = {"zone": "sim-1a", "type": "sim.large", **fields}
        made = Instance(
            name=self.full(of_name or here),
            id=f"i-{token_hex(6)}",
            region="sim-1",
            system_uuid=str(uuid4()),
            **fields,
        )
        self.machines[here] = made
        self.cast.machines[made.id] = here
        return made

    async def born(self, here: str) -> None:
        """Let the cloud have it."""
        wanted = self.machines[here]
        (self.machines[here],) = await self.cloud.create([wanted])
        if not wanted.addresses:
            # The cloud has chosen them.
            self.cast.words |= {
                one.address: f"<{one.type} of {here}>"
                for one in self.machines[here].addresses
                if one.type != "Hostname"  # the machine's name, which is known
            }

    def provider_id(self, here: str) -> str:
        """The provider id of a machine."""
        return f"simulated://sim-1/{self.machines[here].id}"

    # Objects

    async def register(self, here: str, body: dict[str, Any]) -> None:
        """Create a Node."""
        await self._create("node", NODES, here, body)

    def node_body(self, here: str, *, ready: str = "True") -> dict[str, Any]:
        """The Node of a machine as its kubelet registers it; Ready at once, if not told else."""
        body = node_body(self.machines[here], now=datetime.now(UTC))
        body["status"]["conditions"][-1].update(type="Ready", status=ready)
        return body

    async def create_service(self, here: str, body: dict[str, Any]) -> None:
        """Create a Service."""
        await self._create("service", SERVICES, here, body, NAMESPACE)

    async def _create(
        self,
        kind: str,
        resource: Resource[Any],
        here: str,
        body: dict[str, Any],
        namespace: str = "",
    ) -> None:
        written = {**body, "metadata": {**body.get("metadata", {}), "name": self.full(here)}}
        number = 1 + sum(one[:2] == (kind, here) for one in self.cast.uids.values())
        self.cast.written[kind, here] = written
        with contextlib.suppress(AlreadyExists):  # by a try that was not answered
            await patiently(lambda: self.site.client.create(resource, written, namespace))
        made = await self.raw(kind, here)
        if made is not None:
            self.cast.uids[made["metadata"]["uid"]] = (kind, here, number)

    async def patch(self, kind: str, here: str, body: object, subresource: str = "") -> None:
        """Change an object, as users do."""
        resource, namespace = (NODES, "") if kind == "node" else (SERVICES, NAMESPACE)
        type_ = PatchType.STRATEGIC if kind == "node" else PatchType.MERGE
        await patiently(
            lambda: self.site.client.patch(
                resource, self.full(here), Patch(type_, body), namespace, subresource=subresource
            )
        )

    async def delete(self, kind: str, here: str) -> None:
        """Delete an object."""
        resource, namespace = (NODES, "") if kind == "node" else (SERVICES, NAMESPACE)
        await patiently(lambda: self.site.client.delete(resource, self.full(here), namespace))

    async def raw(self, kind: str, here: str) -> dict[str, Any] | None:
        """An object with all that the API server has of it, or None."""
        path = (
            NODES.path(name=self.full(here))
            if kind == "node"
            else SERVICES.path(NAMESPACE, self.full(here))
        )
        try:
            return await patiently(
                lambda: self.site.client.send(Request("GET", path), dict[str, Any])
            )
        except NotFound:
            return None

    async def when(self, kind: str, here: str, holds: Callable[[dict[str, Any]], object]) -> None:
        """Wait until something is true of an object."""

        async def is_so() -> bool:
            found = await self.raw(kind, here)
            return found is not None and bool(holds(found))

        await until(f"{self.full(here)} is as the script waits for", is_so, PATIENCE)

    async def gone(self, kind: str, here: str) -> None:
        """Wait until an object is gone."""

        async def is_gone() -> bool:
            return await self.raw(kind, here) is None

        await until(f"{self.full(here)} is gone", is_gone, PATIENCE)

    async def told(self, here: str, reason: str) -> None:
        """Wait for an event about an object."""
        selector = f"involvedObject.name={self.full(here)},reason={reason}"

        async def is_told() -> bool:
            found = await patiently(
                lambda: self.site.client.list(EVENTS, NAMESPACE, field_selector=selector)
            )
            return bool(found.items)

        await until(f"{reason} is told about {self.full(here)}", is_told, PATIENCE)

    # Parts

    async def parts(self, here: str, kind: str) -> list[dict[str, Any]]:
        """The parts of a kind that the Services of this name have."""
        uids = [uid for uid, one in self.cast.uids.items() if one[:2] == ("service", here)]
        names = tuple(default_load_balancer_name(uid) for uid in uids)
        return [one for one in await self.cloud.parts(kind) if one["name"].startswith(names)]

    async def part(self, here: str, kind: str) -> str:
        """The id of the one part of a kind."""
        (found,) = await self.parts(here, kind)
        return str(found["id"])


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Ask again where an API server that has much to do does not answer in time."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await call()
        except (ServerError, TooManyRequests, Unreachable):
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(POLL)


async def look(site: Site) -> Seen:
    """See all there is."""

    async def items(resource: Resource[Any]) -> tuple[dict[str, Any], ...]:
        path = resource.path(NAMESPACE if resource.namespaced else "")
        answer = await patiently(lambda: site.client.send(Request("GET", path), dict[str, Any]))
        return tuple(answer["items"])

    return Seen(
        nodes=await items(NODES),
        services=await items(SERVICES),
        events=await items(EVENTS),
        machines=tuple(msgspec.to_builtins(one) for one in await site.cloud.admin.instances()),
        parts=tuple(await site.cloud.admin.parts()),
    )
