"""Answer for nodes and Services that no single cloud is responsible for.

Nodes that several clouds may have are looked for in all of these at once. A cloud that does not
answer delays these nodes only. What is contested, or is placed in a cloud that there is not, gets
an error that says so.
"""

import asyncio
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from proreus.app.clouds.plan import (
    Contested,
    Decided,
    Foreign,
    Misplaced,
    Undecided,
    found_by,
)
from proreus.app.clouds.registry import Clouds, labelled
from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    ClusterIdentity,
    DeleteAnswer,
    Done,
    EnsureAnswer,
    HostPolicy,
    IdentityConflict,
    InstanceAnswer,
    Instances,
    InvalidRequest,
    LoadBalancer,
    LoadBalancerRef,
    NotSupported,
    OwnedObject,
    Ownership,
)
from proreus.cloudprovider.lookups import system_uuids
from proreus.containment.inventory import Inventory
from proreus.controllers.service.intake import UNDECIDED
from proreus.kube.objects import Node, Service

if TYPE_CHECKING:
    from proreus.cloudprovider import Context

ASK_SECONDS: Final = 25.0
"""Seconds for which each cloud is waited for: fewer than the framework waits for all of them."""

_MOST: Final = 100
"""The most nodes that are looked for at once."""


class UndecidedCloud(CloudProvider):
    """The provider for nodes and Services of which no single cloud is responsible."""

    name: ClassVar[str] = UNDECIDED

    def __init__(self, clouds: Clouds) -> None:
        """Keep these clouds, by whose state nodes and Services are judged."""
        super().__init__(None)
        self._clouds = clouds

    async def start(self, context: "Context") -> None:
        """Set the capabilities; there is nothing to open."""
        del context
        self.answer()

    def answer(self) -> None:
        """Begin to answer for machines and load balancers."""
        self.instances = UndecidedInstances(self._clouds)
        self.load_balancers = UndecidedBalancers(self._clouds)


class UndecidedInstances:
    """The machines that any of several clouds may have."""

    def __init__(self, clouds: Clouds) -> None:
        """Keep the clouds that are asked."""
        self._clouds = clouds

    @property
    def batch_size(self) -> int:
        """The least batch size of all clouds, so that each needs one call."""
        started = [one.instances for one in self._clouds.started.values() if one is not None]
        return min([_MOST, *(one.batch_size for one in started if one is not None)])

    def owns(self, node: Node) -> Ownership:
        """Return NO if no cloud can have the node; else UNKNOWN, as it is never to be deleted."""
        is_foreign = isinstance(self._clouds.belonging(node), Foreign)
        return Ownership.NO if is_foreign else Ownership.UNKNOWN

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Ask all clouds that may have the nodes; each node's machine must be in one of them."""
        found = {node.metadata.name: self._clouds.belonging(node) for node in nodes}
        possible = {
            name: one.clouds if isinstance(one, Undecided) else () for name, one in found.items()
        }
        asked = tuple(dict.fromkeys(cloud for some in possible.values() for cloud in some))
        replies = await asyncio.gather(
            *(
                self._ask(cloud, [n for n in nodes if cloud in possible[n.metadata.name]])
                for cloud in asked
            )
        )
        by_cloud = dict(zip(asked, replies, strict=True))
        answers: dict[str, InstanceAnswer] = {}
        for node in nodes:
            name = node.metadata.name
            match found[name]:
                case Contested(text):
                    answers[name] = IdentityConflict(text)
                case Decided(cloud):
                    answers[name] = CloudError(f"the node belongs to the cloud {cloud} by now")
                case Undecided(some):
                    told = {one: by_cloud[one][name] for one in some}
                    answer = _one_of(told, system_uuids(node))
                    answers[name] = self._clouds.unmistaken(node, answer)
                case Foreign():
                    answers[name] = CloudError("the node belongs to none of the clouds by now")
        return answers

    async def _ask(self, cloud: str, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Ask one cloud; what it does not answer in time is an error."""
        provider = self._clouds.started[cloud]
        instances: Instances | None = None if provider is None else provider.instances
        if instances is None:
            error = CloudError("it has not started yet")
            return {node.metadata.name: error for node in nodes}
        # Of what was asked here nothing is kept: the next question is one about all again.
        inventory = Inventory(instances, deadline=ASK_SECONDS, on_error=lambda _error, _kind: None)
        now = asyncio.get_running_loop().time()
        observed = await inventory.get(nodes, not_before=now)
        return {name: one.answer for name, one in observed.items()}


def _one_of(answers: Mapping[str, InstanceAnswer], uuids: Collection[str]) -> InstanceAnswer:
    """Return the machine of the one cloud that has it, or the error."""
    found = found_by(answers, uuids)
    return labelled(answers[found], found) if isinstance(found, str) else found


class UndecidedBalancers:
    """The load balancers of Services for which no cloud can be chosen: there are none."""

    def __init__(self, clouds: Clouds) -> None:
        """Keep these clouds, by whose state Services are judged."""
        self._clouds = clouds

    def group(self, lb: LoadBalancerRef) -> Hashable:
        """Return a group for each Service."""
        return lb.uid

    def host_policy(self, service: Service) -> HostPolicy:
        """Say why no cloud can be chosen.

        Raises:
            InvalidRequest: Always: no cloud can be chosen.
        """
        raise InvalidRequest(self._problem(service))

    def fingerprint(self, desired: LoadBalancer) -> str:
        """Return no fingerprint, so that nothing is recorded."""
        del desired
        return ""

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """Answer with the error that says why no cloud can be chosen."""
        return {one.ref.uid: InvalidRequest(self._problem(one.service)) for one in desired}

    async def update_hosts(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """Answer with the error that says why no cloud can be chosen."""
        return await self.ensure(desired)

    async def delete(self, refs: Sequence[LoadBalancerRef]) -> Mapping[str, DeleteAnswer]:
        """Delete nothing: whatever exists is in a cloud that this manager does not have."""
        return {ref.uid: self._deleted(ref) for ref in refs}

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """Say that there is nothing to list.

        Raises:
            NotSupported: Always: there is nothing to list.
        """
        del cluster
        raise NotSupported("no cloud is responsible")

    def _deleted(self, ref: LoadBalancerRef) -> DeleteAnswer:
        if ref.service is None or not isinstance(self._clouds.place(ref.service), Misplaced):
            return Done()
        return InvalidRequest(self._problem(ref.service))

    def _problem(self, service: Service) -> str:
        found = self._clouds.place(service)
        return found.text if isinstance(found, Misplaced) else "another cloud has the Service"
