"""Load balancers of a provider that works on an emulated cloud, asked for until they are there."""

import asyncio
from typing import Any

import msgspec

from proreus.cloudprovider import (
    CloudProvider,
    Ensured,
    LoadBalancer,
    LoadBalancers,
    PartChange,
    Pending,
)


class Balancing:
    """A provider with load balancers; a cloud's own site adds what it is asked for."""

    pause = 0.05
    """The longest pause, in seconds, before a cloud that works is asked again."""

    provider: CloudProvider

    @property
    def balancers(self) -> LoadBalancers:
        assert self.provider.load_balancers is not None
        return self.provider.load_balancers

    async def wait(self, pending: Pending) -> None:
        """Let the cloud go on with its work."""
        await asyncio.sleep(min(pending.after, self.pause))

    async def ensure(self, desired: LoadBalancer) -> Any:
        return (await self.balancers.ensure([desired]))[desired.ref.uid]

    async def settled(self, desired: LoadBalancer) -> Any:
        """The answer, once the cloud has done all."""
        while isinstance(answer := await self.ensure(desired), Pending):
            await self.wait(answer)
        return answer

    async def answers(self, desired: LoadBalancer) -> list[Any]:
        """All answers until it is pending no more, in a cloud that goes on by itself."""
        found = [await self.ensure(desired)]
        while isinstance(found[-1], Pending):
            await asyncio.sleep(0.1)
            found.append(await self.ensure(desired))
        return found

    async def made(self, desired: LoadBalancer) -> Ensured:
        """Ensured, once the cloud has done all."""
        answer = await self.settled(desired)
        assert isinstance(answer, Ensured), answer
        return answer

    async def deleted(self, desired: LoadBalancer) -> Any:
        """The answer, once the cloud has deleted all; the address leaves the status if it is to."""
        ref = desired.ref
        while True:
            answer = (await self.balancers.delete([ref]))[ref.uid]
            if not isinstance(answer, Pending):
                return answer
            if answer.withdrawn:
                ref = msgspec.structs.replace(ref, last_ingress=())
            await self.wait(answer)

    async def preview(self, desired: LoadBalancer) -> list[PartChange]:
        previews: Any = self.balancers
        found = (await previews.preview([desired]))[desired.ref.uid]
        assert not isinstance(found, Exception), found
        return list(found)
