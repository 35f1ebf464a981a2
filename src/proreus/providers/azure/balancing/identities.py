"""Put no machine into a pool, nor take one out, that is not the one of its Node.

A kubelet can name any machine of the subscription on its Node, such as one of another service. Its
network interface, or the model of its whole scale set, would be changed.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from proreus.cloudprovider.errors import (
    CloudError,
    IdentityConflict,
    InvalidRequest,
)
from proreus.cloudprovider.instances import Instance, InstanceAnswer, NotFound
from proreus.cloudprovider.load_balancers import Host
from proreus.cloudprovider.lookups import attempt
from proreus.cloudprovider.ownership import EVERY_NAMESPACE
from proreus.kube.objects import Node, NodeSpec, ObjectMeta
from proreus.providers.azure.api import Arm, Resource
from proreus.providers.azure.balancing.annotations import FAMILIES
from proreus.providers.azure.balancing.homes import ADDRESSES
from proreus.providers.azure.balancing.observation import is_hidden
from proreus.providers.azure.balancing.parts import Job, Scene, State
from proreus.providers.azure.balancing.pools import filled, hosts
from proreus.providers.azure.config import PoolType
from proreus.providers.azure.ids import PREFIX, MachineId, machine_id
from proreus.providers.azure.instances import BATCH, AzureInstances
from proreus.providers.azure.machines import node_name, part, properties
from proreus.providers.azure.reading import Questions

KEPT: Final = 30.0
"""Seconds for which an address is a machine's that Azure has shown there.

Azure gives that of a deleted machine to the next one, maybe another cluster's, which needs longer
than this until it is a node to which anybody lets clients in. For so long a machine also has the
name that Azure has shown: the next one with its id may have another.
"""
_REMEDY: Final = "start the kubelet with the --provider-id of its own machine, or none"


class Identities:
    """A memory of the machines that have the names of their Nodes, and of their addresses."""

    def __init__(self, arm: Arm) -> None:
        """Keep the client of Azure."""
        self._arm = arm
        self._instances = AzureInstances(arm)
        self._proven: dict[tuple[str, MachineId], float] = {}
        self._addresses: dict[tuple[str, str, str], float] = {}

    async def checked(self, jobs: Sequence[Job], state: State, scene: Scene) -> State:
        """Return the state with the Nodes whose machines are not theirs, or may not be.

        Azure is only asked about machines that would come into a pool or leave it and whose name is
        not in their id, and about each once in `KEPT`; and about those whose address would come
        into a pool of addresses, or into the security group. What is there stays there.

        Raises:
            CloudError: Azure does not tell what a machine is called.
        """
        beside = namesakes(scene)
        found = await self._addressed(jobs, state, scene, beside)
        if scene.place.config.pools is not PoolType.NODE_IP:
            now = self._arm.context.uptime()
            self._proven = {one: at for one, at in self._proven.items() if now - at < KEPT}
            joining, leaving = _moving(jobs, state, scene)
            found |= {name: beside[name] for name, _ in joining if name in beside}
            moving = set(filter(_is_unproven, joining | leaving)) - self._proven.keys()
            asked = {
                (name, id_)
                for name, id_ in moving
                if name not in found and id_.resource not in state.refused
            }
            found |= await self._named(asked, now)
        return state.having(strangers=found)

    async def _named(self, new: Collection[tuple[str, MachineId]], now: float) -> dict[str, str]:
        """Return why machines are not those of Nodes, by the Nodes' names."""
        ids = [id_ for _, id_ in new]
        async with Questions(self._arm, ids, {}) as questions:
            answers = await asyncio.gather(*(attempt(questions.machine, id_) for id_ in ids))
        strangers = {}
        for (name, id_), answer in zip(new, answers, strict=True):
            if reason := _problem(answer) or refusal_of(name.lower(), _names(answer)):
                strangers[name] = reason
            else:
                self._proven[name, id_] = now
        return strangers

    async def _addressed(
        self, jobs: Sequence[Job], state: State, scene: Scene, beside: Mapping[str, str]
    ) -> dict[str, str]:
        """Return why addresses are not those of Nodes' machines, by the Nodes' names."""
        now = self._arm.context.uptime()
        self._addresses = {one: at for one, at in self._addresses.items() if now - at < KEPT}
        wanted: dict[str, set[str]] = {}
        named: dict[str, Node] = {}
        strangers = {}
        for host, address in _opening(jobs, state, scene):
            if host.node in beside:
                strangers[host.node] = beside[host.node]
            elif (host.node, host.provider_id, address) not in self._addresses:
                wanted.setdefault(host.node, set()).add(address)
                spec = NodeSpec(provider_id=host.provider_id)
                named[host.node] = Node(metadata=ObjectMeta(name=host.node), spec=spec)
        nodes = list(named.values())
        for start in range(0, len(nodes), BATCH):
            part_ = nodes[start : start + BATCH]
            found = await attempt(self._instances.describe, part_)
            if isinstance(found, CloudError):
                # So it is if none of them could be looked up.
                found = dict.fromkeys((one.metadata.name for one in part_), found)
            for name, answer in found.items():
                id_ = named[name].spec.provider_id
                if reason := _problem(answer) or _strange(name, wanted[name], answer):
                    strangers[name] = reason
                else:
                    self._addresses |= {(name, id_, one): now for one in wanted[name]}
        return strangers


def _strange(name: str, addresses: Collection[str], answer: Resource | InstanceAnswer) -> str:
    """Return why a machine with its addresses is not that of a Node; "" if it is."""
    shown = {one.address for one in answer.addresses} if isinstance(answer, Instance) else set()
    if reason := refusal_of(name.lower(), _names(answer)):
        return reason
    missing = ", ".join(sorted(set(addresses) - shown))
    return f"Azure does not show {missing} at its machine" if missing else ""


def _problem(answer: Resource | InstanceAnswer | None) -> str:
    """Return why Azure tells nothing of a machine; "" if it does.

    Raises:
        CloudError: It may tell soon.
    """
    if isinstance(answer, InvalidRequest | IdentityConflict):
        return str(answer)
    if isinstance(answer, CloudError) and is_hidden(answer):
        return str(answer)
    if isinstance(answer, CloudError):
        raise answer
    return "Azure has no such machine" if answer is None or isinstance(answer, NotFound) else ""


def _names(answer: Resource | InstanceAnswer | None) -> set[str]:
    """Return what a machine and its computer are called."""
    if isinstance(answer, Instance):
        found = machine_id(answer.provider_id)
        return {answer.name, found.name if found is not None and not found.set else ""} - {""}
    if not isinstance(answer, Mapping):
        return set()
    return {node_name(answer), str(answer.get("name") or "").lower()} - {""}


def _opening(jobs: Sequence[Job], state: State, scene: Scene) -> Iterator[tuple[Host, str]]:
    """Return the hosts whose addresses would come into pools, or the security group.

    So are those of which several have one address, of which only one can be right. In a pool that
    somebody else has filled there may be anybody's addresses, and somebody may have put one into
    the pool of the other kind of load balancer. With several load balancers a node is behind some
    of them only.
    """
    config = scene.place.config
    by_address = config.pools is PoolType.NODE_IP
    several = bool(config.multiple_standard_load_balancer_configurations)
    own = {scene.place.pool_name(family).lower() for family in FAMILIES}
    there = {
        (several or scene.place.balancers[name], str(properties(one).get("ipAddress")))
        for name, balancer in state.balancers.items()
        for pool in part(balancer or {}, "backendAddressPools") or ()
        if str(pool["name"]).lower() in own
        for one in properties(pool).get(ADDRESSES) or ()
    }
    claims = Counter(address for _, address in _claimed(jobs, scene)) if by_address else Counter()
    for job in jobs:
        at_nodes = job.options.guards and not job.options.floats and state.group is not None
        for family in job.lb.families if job.lb is not None else ():
            for host in hosts([job], scene, family):
                address = host.addresses[family][0]
                is_unknown = at_nodes and address not in scene.own_addresses
                is_there = (several or job.options.internal, address) in there
                is_moving = by_address and (not is_there or claims[address] > 1)
                if is_unknown or is_moving:
                    yield host, address


def _claimed(jobs: Sequence[Job], scene: Scene) -> set[tuple[str, str]]:
    """Return the addresses that hosts would have in pools, each with the name of its node."""
    return {
        (host.node, host.addresses[family][0])
        for family in FAMILIES
        for host in hosts(jobs, scene, family)
    }


def refusal_of(name: str, names: Collection[str]) -> str:
    """Return why a machine is not that of a Node of this name; "" if it is. Pure.

    Nodes may be called by domain names that begin with the machine's.
    """
    if {name, name.partition(".")[0]}.isdisjoint(names):
        return f"its machine is called {' or '.join(sorted(names)) or 'nothing yet'}: {_REMEDY}"
    return ""


def namesakes(scene: Scene) -> dict[str, str]:
    """Return why machines in another resource group than most may be others', by Node. Pure.

    Names are unique in a group only: those of another cluster may be called alike. Where half of
    the Nodes' machines are outside of the cluster's group, that says nothing.
    """
    config, known = scene.place.config, dict[str, str]()
    for resource, name in scene.nodes.items():
        if (id_ := machine_id(f"{PREFIX}{resource}")) is not None:
            known[name] = id_.group
    own = config.resource_group.lower()
    other = {
        name: group
        for name, group in known.items()
        if group != own and not config.tenants.lists(EVERY_NAMESPACE, (group,))
    }
    return {
        name: f"its machine is in the resource group {group}, while most are in {own}, where others"
        f" may have their names: if it is the node's, give *={group} in tenants of the cloud-config"
        for name, group in (other.items() if 2 * len(other) < len(known) else ())
    }


_Machines = set[tuple[str, MachineId]]
"""Machines, each with the name of its Node."""


def _moving(jobs: Sequence[Job], state: State, scene: Scene) -> tuple[_Machines, _Machines]:
    """Return the hosts that would come into a pool, and the nodes in it that are no hosts.

    Who is in another pool, such as an operator's own, may be anybody's machine.
    """
    joining, leaving = _Machines(), _Machines()
    for pool, family, live in filled(jobs, scene):
        members = state.members.get(pool.lower(), frozenset())
        every = hosts(live, scene, family)
        found = ((host.node, machine_id(host.provider_id)) for host in every)
        wanted = {(node, id_) for node, id_ in found if id_ is not None}
        joining |= {one for one in wanted if one[1].resource not in members}
        left = (members & scene.nodes.keys()) - {id_.resource for _, id_ in wanted}
        ids = ((scene.nodes[one], machine_id(f"{PREFIX}{one}")) for one in left)
        leaving |= {(node, id_) for node, id_ in ids if id_ is not None}
    return joining, leaving


def _is_unproven(one: tuple[str, MachineId]) -> bool:
    """Tell whether a machine's id does not have the name of its Node."""
    name, id_ = one
    return bool(id_.set or refusal_of(name.lower(), {id_.name}))
