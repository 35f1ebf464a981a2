"""Take the steps of a plan: each is one call, or waiting until NSX-T is ready for one."""

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.listers import Lister
from proreus.cloudprovider.load_balancers import LoadBalancerRef, Pending
from proreus.cloudprovider.operations import finished
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.waits import Working
from proreus.kube.objects import KubeObject
from proreus.providers.vsphere.nsxt.api import Api
from proreus.providers.vsphere.nsxt.balancing.owners import others_with
from proreus.providers.vsphere.nsxt.balancing.parts import Observed, Part
from proreus.providers.vsphere.nsxt.balancing.reading import Reader
from proreus.providers.vsphere.nsxt.balancing.steps import Delete, Put, Step, Wait
from proreus.providers.vsphere.nsxt.errors import BAD_PATH, is_busy
from proreus.providers.vsphere.nsxt.operations import ALLOCATIONS, SERVICES, Place

PATIENCE: Final = 2.0
"""Seconds for which the address of a new allocation is waited for, which takes one or so."""

After = Callable[[Observed], Observed]


class Work:
    """The work on load balancers. What Services share is changed by one of them at a time."""

    def __init__(self, api: Api, reader: Reader, services: Lister[KubeObject]) -> None:
        """Keep the client, the reader, and all Services."""
        self._api = api
        self._reader = reader
        self._services = services
        self._turn = asyncio.Lock()

    async def take(self, ref: LoadBalancerRef, observed: Observed, step: Step) -> After:
        """Take a step; return a function from the state observed before it to the state after it.

        Raises:
            Working: NSX-T works on the step, or is busy with another change.
            CloudError: NSX-T refuses, or does not answer.
        """
        call = step.call
        if isinstance(call, Wait):
            raise Working(call.reason)
        try:
            if call.place.kind == SERVICES:
                return await self._shared(ref, observed, call, step)
            return await self._sent(ref, observed, call, step)
        except Refused as error:
            # Another Service's end may have taken the load balancer service away meanwhile.
            is_away = error.code == BAD_PATH and Place(SERVICES).path in error.text
            if is_busy(error) or is_away:
                raise Working(f"NSX-T is busy: {error}") from error
            raise

    async def check(self, ref: LoadBalancerRef, allocation: Part, observed: Observed) -> None:
        """Delete an allocation that gets no address, or that of another namespace or cluster.

        The one would hold the next address that gets free. The other is of a Service whose own
        allocation is missing: somebody has deleted it, and NSX-T has let go of the address.

        Raises:
            CloudError: It is deleted; the message says why there is no address.
        """
        failure = allocation.failure
        if others := others_with(allocation.address, ref, self._services.all(), observed.others):
            failure = f"{allocation.address} belongs to {others[0]}, which has lost its allocation"
        if failure:
            await self._api.delete(allocation.place, allocation.id)
            raise CloudError(no_address(failure))

    async def _sent(
        self, ref: LoadBalancerRef, observed: Observed, call: Put | Delete, step: Step
    ) -> After:
        if isinstance(call, Delete):
            await self._api.delete(call.place, call.id)
            return step.after
        document = await self._api.put(call.place, call.id, call.document)
        part = Part(call.place, call.id, document)
        if call.place.kind == ALLOCATIONS:
            answer = await finished(lambda: self._reader.address(part), patience=PATIENCE)
            if isinstance(answer, Pending):
                raise Working(answer.reason)
            part = answer
            await self.check(ref, part, observed)
        return lambda before: _shown(step.after(before), part)

    async def _shared(
        self, ref: LoadBalancerRef, observed: Observed, call: Put | Delete, step: Step
    ) -> After:
        """Make or delete the load balancer service, unless another Service changes that."""
        async with self._turn:
            found = await self._reader.service(ref.cluster)
            if isinstance(call, Put) and found is not None:
                return lambda before: replace(before, service=found)
            is_free = found is not None and not found.users and found.part.id == call.id
            if isinstance(call, Delete) and not is_free:
                return lambda before: replace(before, service=None)
            return await self._sent(ref, observed, call, step)


def no_address(failure: str) -> str:
    """Return in words that the IP pool gives no address, and why."""
    return f"the IP pool of NSX-T gives the Service no address: {failure}"


def _shown(observed: Observed, part: Part) -> Observed:
    """Return the observed state with a part as NSX-T has answered it, in its new revision."""
    service = observed.service
    if part.kind == SERVICES and service is not None:
        return replace(observed, service=replace(service, part=part))
    return replace(
        observed,
        parts=tuple(
            part if (one.place, one.id) == (part.place, part.id) else one for one in observed.parts
        ),
    )
