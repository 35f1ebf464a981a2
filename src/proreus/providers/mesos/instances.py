"""Describe the agents of a Mesos cluster, all of them in one call."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import structs

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import Instance, InstanceAnswer, NotFound, Ownership
from proreus.cloudprovider.lookups import attempt, each
from proreus.kube.objects import TAINT_UNINITIALIZED, Node, has_taint
from proreus.providers.mesos.addresses import Addresses
from proreus.providers.mesos.agents import Agent, instance
from proreus.providers.mesos.api import Api
from proreus.providers.mesos.config import MesosConfig
from proreus.providers.mesos.masters import MasterInfo
from proreus.providers.mesos.names import ownership, target
from proreus.providers.mesos.plan import (
    Index,
    Sightings,
    Unlisted,
    absence,
    hidden,
    is_resting,
    match,
    others,
    resolved,
)

BATCH: Final = 1000
"""Nodes in one `describe`: it costs the same however many there are."""
LOOKUPS: Final = 8
"""Addresses that are looked up at once."""


class MesosInstances:
    """The capability `Instances` of the provider `mesos`."""

    def __init__(
        self,
        api: Api,
        config: MesosConfig,
        addresses: Addresses,
        *,
        clock: Callable[[], float],
    ) -> None:
        """Keep the client of the masters and what the cloud-config says of nodes.

        Args:
            api: The client of the masters.
            config: The cloud-config.
            addresses: The source of agents' addresses.
            clock: The seconds of a clock that does not jump, and goes on while the machine sleeps.
        """
        self._clock = clock
        self._sightings = Sightings(config.nodes.registry_max_agent_age)
        self._api = api
        self._nodes = config.nodes
        self._addresses = addresses
        self._age = config.mesos_cloud.state_cache_ttl.total_seconds()
        self._turn = asyncio.Lock()
        self._index = Index(())
        self._began: float | None = None
        self._marks = False

    @property
    def batch_size(self) -> int:
        """The most nodes that one `describe` takes."""
        return BATCH

    def owns(self, node: Node) -> Ownership:
        """Tell whether a node is of Mesos: its provider id has that form, and names no cluster."""
        return ownership(node)

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Look nodes up: one call, and three more where an agent is missing.

        Raises:
            CloudError: No leading master tells which agents there are.
        """
        began = asyncio.get_running_loop().time()
        targets = {node.metadata.name: target(node) for node in nodes}
        index = await self._listed(began - self._age)
        found = {name: match(one, index) for name, one in targets.items()}
        if any(isinstance(one, Unlisted | NotFound) for one in found.values()):
            # An agent is only missing in a list that was asked for after it was looked for.
            index = await self._listed(began)
            found = {name: match(one, index) for name, one in targets.items()}
        answers: dict[str, InstanceAnswer] = {
            name: one for name, one in found.items() if isinstance(one, NotFound | CloudError)
        }
        answers |= await self._prove(nodes, found)
        agents = [
            (node, one) for node in nodes if isinstance(one := found[node.metadata.name], Agent)
        ]
        answers |= await each(agents, _name, self._described, LOOKUPS)
        return answers

    async def _listed(self, since: float) -> Index:
        """Return the agents as listed at time `since` of the loop's clock, or later."""
        async with self._turn:
            if self._began is None or self._began < since:
                began = asyncio.get_running_loop().time()
                now = self._clock()
                if not self._marks:
                    master = await attempt(self._api.master)
                    self._marks = isinstance(master, MasterInfo) and master.marks_unreachable
                self._index = Index(await self._api.agents())
                self._sightings.listed(self._index.by_id.values(), now)
                if not self._marks:
                    self._sightings.forget()
                self._began = began
            return self._index

    async def _prove(
        self, nodes: Sequence[Node], found: Mapping[str, object]
    ) -> Mapping[str, InstanceAnswer]:
        """Ask the leader and its registry about agents that are not listed, if there are any."""
        missing = {name: one.id for name, one in found.items() if isinstance(one, Unlisted)}
        # One that waits to be initialised may have no agent yet.
        nameless = [
            node
            for node in nodes
            if isinstance(found[node.metadata.name], NotFound)
            and not has_taint(node, TAINT_UNINITIALIZED)
        ]
        if not (missing or nameless):
            return {}
        proof = await attempt(self._api.prove)
        if isinstance(proof, CloudError):
            return dict.fromkeys((*missing, *(one.metadata.name for one in nameless)), proof)
        seen = self._sightings
        self._marks = proof.master.marks_unreachable
        if not self._marks:
            # Nor does the next master know what this one has removed.
            seen.forget()
        seen.unreachable(proof.registry.unreachable.slaves)
        by_name, now = {node.metadata.name: node for node in nodes}, self._clock()
        for name, id_ in missing.items():
            seen.named(id_, by_name[name])
        # Of all agents: one that is not asked about now may be once its machine is up again.
        resting = {
            id_ for name, id_ in missing.items() if is_resting(by_name[name], id_, proof, seen)
        }
        seen.forget(resting | seen.on(proof.registry.resting))
        running = others(proof, seen)
        if missing or any(map(seen.of_host, nameless)):
            known = await each(proof.agents, _id, self._addresses.every, LOOKUPS)
            running = resolved(running, known)
        proof = structs.replace(proof, running=running)
        return {
            name: absence(by_name[name], id_, proof, seen, now) for name, id_ in missing.items()
        } | {
            one.metadata.name: problem
            for one in nameless
            if (problem := hidden(one, proof, seen, now)) is not None
        }

    async def _described(self, matched: tuple[Node, Agent]) -> Instance | CloudError:
        node, agent = matched
        return instance(
            agent,
            address=await self._addresses.of(agent),
            is_new=has_taint(node, TAINT_UNINITIALIZED),
            type_attribute=self._nodes.type_attribute,
            label_attributes=self._nodes.label_attribute,
        )


def _name(matched: tuple[Node, Agent]) -> str:
    return matched[0].metadata.name


def _id(agent: Agent) -> str:
    return agent.id
