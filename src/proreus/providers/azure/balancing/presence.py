"""Make no load balancer in the place of one that may be there.

A load balancer is written whole, so that one would lose the rules of all Services that are not in
the pass.
"""

import asyncio
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from typing import Final

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.load_balancers import Pending
from proreus.cloudprovider.refused import Refused
from proreus.providers.azure.absences import Absences
from proreus.providers.azure.api import Waiting
from proreus.providers.azure.balancing import marks
from proreus.providers.azure.balancing.desired import is_of
from proreus.providers.azure.balancing.documents import named_ids
from proreus.providers.azure.balancing.parts import Job, Scene, State
from proreus.providers.azure.balancing.steps import DeleteBalancer, PutBalancer, Step
from proreus.providers.azure.balancing.work import Change, Work
from proreus.providers.azure.machines import ip_configurations, part

_POOLS: Final = "loadBalancerBackendAddressPools"


class Presence:
    """A memory of the load balancers that were there."""

    def __init__(self, confirm: float) -> None:
        """Begin with none; see `Absences`."""
        self._absences = Absences(confirm)

    def check(self, state: State, scene: Scene, now: float) -> None:
        """Let nothing be made in the place of a load balancer that may be there.

        Args:
            state: The observed state.
            scene: The facts that do not change within the pass.
            now: The time in seconds, on any clock that only goes forward.

        Raises:
            Waiting: One that was there, or that other objects name, is not shown now.
        """
        if doubted := self.doubted(state, scene, now):
            name, left = doubted
            text = f"Azure does not show the load balancer {name}, which was there: it is asked"
            raise Waiting(Pending(left, f"{text} again before another one is made"))

    def doubted(self, state: State, scene: Scene, now: float) -> tuple[str, float] | None:
        """Return a load balancer that may be there though it is not shown, and for how long.

        Args:
            state: The observed state.
            scene: The facts that do not change within the pass.
            now: The time in seconds, on any clock that only goes forward.
        """
        known = named(state, scene)
        for name, one in state.balancers.items():
            if one is not None:
                self._absences.shown(name)
            elif left := self._absences.doubt(name, now, is_known=name in known):
                return name, left
        return None

    async def take(
        self, work: Work, jobs: Sequence[Job], scene: Scene, state: State, step: Step
    ) -> Change:
        """Take a step, and note which load balancers are there after it.

        Args:
            work: The writes of the pass.
            jobs: The Services of the pass.
            scene: The facts that do not change within the pass.
            state: The observed state.
            step: The step.

        Raises:
            Waiting: It would make a public load balancer that other Services may be on.
            CloudError: Azure refuses the step, or does not answer.
        """
        call = step.call
        if isinstance(call, PutBalancer) and _may_be_used(call.name, jobs, state, scene):
            now = asyncio.get_running_loop().time()
            if left := self._absences.doubt(call.name, now, is_known=True):
                text = f"Azure does not show the load balancer {call.name}, but other Services show"
                raise Waiting(Pending(left, f"{text} public addresses: it is asked again"))
        try:
            change = await work.take(state, step)
        except CloudError as error:
            # It may be there, unless Azure has refused it.
            if isinstance(call, PutBalancer) and not isinstance(error, Refused):
                self._absences.shown(call.name)
            raise
        if isinstance(call, PutBalancer):
            self._absences.shown(call.name)
        elif isinstance(call, DeleteBalancer):
            self._absences.deleted(call.name)
        return change


def named(state: State, scene: Scene) -> frozenset[str]:
    """Return the load balancers that other objects tell of, by name. Pure.

    Addresses and interfaces say which one they are in. Where pools name addresses, of an internal
    one nothing in Azure does: that Services show private addresses tells that there is one.
    """
    ids = set(_users(state))
    place = scene.place
    return frozenset(
        name
        for name, internal in place.balancers.items()
        if place.balancer_id(name).lower() in ids or (internal and scene.is_reached_inside)
    )


def _may_be_used(name: str, jobs: Sequence[Job], state: State, scene: Scene) -> bool:
    """Tell whether a public load balancer that is not shown may be that of others than the jobs.

    Their public IPs may be in resource groups that only they name. Nothing else tells of it where
    pools name addresses, or the machines of scale sets of the mode Uniform.
    """
    if state.balancers.get(name) is not None or scene.place.balancers[name]:
        return False
    bases = {job.ref.name for job in jobs}
    read = {part(one, "ipAddress") for one in state.addresses.values()}
    others = (
        address
        for address, found in scene.claims.items()
        for one in found
        if one.is_opened and not one.is_beside and one.base not in bases
    )
    return any(one not in read and ip_address(one).is_global for one in others)


def _users(state: State) -> Iterator[str]:
    """Return the ids of load balancers that other objects name, in small letters."""
    for address in state.addresses.values():
        user = str((part(address, "ipConfiguration") or {}).get("id", "")).lower()
        yield user.partition("/frontendipconfigurations/")[0]
    for interface in state.interfaces.values():
        for configuration in ip_configurations(interface):
            for pool in named_ids(configuration, _POOLS):
                yield pool.partition("/backendaddresspools/")[0]


def is_there(job: Job, state: State) -> bool:
    """Tell whether anything of a Service is there, by its names and marks."""
    parts = ("frontendIPConfigurations", "loadBalancingRules", "probes")
    names = (
        str(one["name"])
        for balancer in state.balancers.values()
        for field in parts
        for one in part(balancer or {}, field) or ()
    )
    has_part = any(is_of(name, job.ref) for name in names)
    return has_part or any(
        marks.verdict_on(one, job.ref).is_ours for one in state.addresses.values()
    )
