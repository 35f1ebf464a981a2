"""Put no machine into a pool, nor take one out, that is not the one of its Node.

A kubelet can name any machine of the subscription on its Node, such as one of another service. Its
network interface, or the model of its whole scale set, would be changed.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from proreus.cloudprovider.errors import CloudError, Unauthenticated
from proreus.cloudprovider.lookups import attempt
from proreus.providers.azure.api import Arm, Resource
from proreus.providers.azure.balancing.parts import Job, Scene, State
from proreus.providers.azure.config import PoolType
from proreus.providers.azure.ids import PREFIX, MachineId, machine_id
from proreus.providers.azure.machines import node_name
from proreus.providers.azure.reading import Questions

_REMEDY: Final = "start the kubelet with the --provider-id of its own machine, or none"


class Identities:
    """A memory of the machines that have the names of their Nodes."""

    def __init__(self, arm: Arm) -> None:
        """Keep the client of Azure."""
        self._arm = arm
        self._proven: set[tuple[str, MachineId]] = set()

    async def checked(self, jobs: Sequence[Job], state: State, scene: Scene) -> State:
        """Return the state with the reasons why machines cannot come into pools, nor leave them.

        Azure is only asked about machines that would come into one or leave it and whose name is
        not in their id, and about each once. Those that are in a pool stay there.

        Raises:
            CloudError: Azure does not tell what a machine is called.
        """
        if scene.place.config.pools is PoolType.NODE_IP:
            return state
        new = _moving(jobs, state, scene) - self._proven
        ids = [id_ for _, id_ in new]
        async with Questions(self._arm, ids, {}) as questions:
            answers = await asyncio.gather(*(attempt(questions.machine, id_) for id_ in ids))
        refused = {}
        for (name, id_), answer in zip(new, answers, strict=True):
            if isinstance(answer, Unauthenticated):
                refused[id_.resource] = str(answer)
            elif isinstance(answer, CloudError):
                raise answer
            elif reason := refusal_of(name, answer):
                refused[id_.resource] = reason
            else:
                self._proven.add((name, id_))
        return state.having(refused={**state.refused, **refused})


def refusal_of(name: str, machine: Resource | None) -> str:
    """Return why a machine is not that of a Node of this name; "" if it is. Pure.

    Nodes may be called by domain names that begin with the machine's.
    """
    if machine is None:
        return "Azure has no such machine"
    names = {node_name(machine), str(machine.get("name") or "").lower()} - {""}
    if names.isdisjoint({name, name.partition(".")[0]}):
        return f"its machine is called {' or '.join(sorted(names))}: {_REMEDY}"
    return ""


def _moving(jobs: Sequence[Job], state: State, scene: Scene) -> set[tuple[str, MachineId]]:
    """Return the hosts in no pool yet, and the nodes in one that are no hosts.

    Those are left out whose machines' ids have their names.
    """
    own = {scene.place.balancer_id(name).lower() for name in scene.place.balancers}
    pools = (one for pool, one in state.members.items() if pool.partition("/backend")[0] in own)
    there = frozenset[str]().union(*pools)
    hosts = {
        id_.resource: host.node
        for job in jobs
        for host in (job.lb.hosts if job.lb is not None else ())
        if host.node not in scene.excluded and (id_ := machine_id(host.provider_id))
    }
    staying = hosts.keys() & there
    known = {one: name for one, name in scene.nodes.items() if one in there}
    found = set()
    for resource, node in {**known, **hosts}.items():
        id_, name = machine_id(f"{PREFIX}{resource}"), node.lower()
        if id_ is None or resource in staying:
            continue
        if id_.set or id_.name not in {name, name.partition(".")[0]}:
            found.add((name, id_))
    return found
