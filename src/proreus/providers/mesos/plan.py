"""Decide which agent a Node is, and what proves that its agent is gone. Pure."""

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta

import msgspec

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import Instance, InstanceState, NotFound
from proreus.kube.objects import TAINT_UNINITIALIZED, Node, has_taint
from proreus.providers.mesos.agents import (
    LABEL_PREFIX,
    Agent,
    MachineId,
    Marked,
    NoSuchHost,
    Registry,
    own_address,
)
from proreus.providers.mesos.masters import MasterInfo
from proreus.providers.mesos.names import Target


class Unlisted(msgspec.Struct, frozen=True):
    """The answer that no agent of this id is listed; the registry tells what became of it."""

    id: str


class Place(msgspec.Struct, frozen=True):
    """The place where an agent runs.

    Attributes:
        host: Its host name in small letters.
        addresses: Its IP addresses; none where Mesos does not tell them, which is so of agents that
            have not come back since a failover.
    """

    host: str = ""
    addresses: frozenset[str] = frozenset()


class Proof(msgspec.Struct, frozen=True):
    """The answers of one leading master that tell which agents there are, read in this order.

    Attributes:
        master: The leading master.
        agents: All agents that it lists.
        registry: The registry, the record of agents that the master keeps through restarts.
        running: The agents that run, or may run (`others`).
    """

    master: MasterInfo
    agents: tuple[Agent, ...]
    registry: Registry
    running: Mapping[str, Place | None] = {}

    @property
    def is_of_leader(self) -> bool:
        """Whether the registry was read from the leading master."""
        keeper = self.registry.master
        return keeper is not None and keeper.info.id == self.master.id


class Index:
    """Agents by their ids and host names."""

    def __init__(self, agents: Iterable[Agent]) -> None:
        """Index the agents."""
        self.by_id: dict[str, Agent] = {}
        self.by_host: dict[str, list[Agent]] = {}
        for agent in agents:
            self.by_id[agent.id] = agent
            self.by_host.setdefault(agent.host, []).append(agent)


def match(target: Target, index: Index) -> Agent | Unlisted | NotFound | CloudError:
    """Return the agent of a Node: by its provider id, or else by its name.

    A host can have several agents, such as one that has not been missed yet and the one that was
    started in its place: then the only active one counts.
    """
    if target.problem:
        return InvalidRequest(target.problem)
    if target.id:
        return index.by_id.get(target.id) or Unlisted(target.id)
    found = index.by_host.get(target.host, [])
    active = [agent for agent in found if agent.active]
    for some in (found, active):
        if len(some) == 1:
            return some[0]
    if not found:
        return NotFound()
    ids = ", ".join(sorted(agent.id for agent in found))
    return IdentityConflict(
        f"{len(found)} agents run on the host {target.host}: {ids}; start the kubelet with"
        " --provider-id, or remove all agents but one"
    )


def place_of(agent: Agent) -> Place:
    """Return the place where an agent runs, as a master describes it."""
    return Place(agent.host, frozenset({own_address(agent)} - {""}))


def place_of_node(node: Node) -> Place:
    """Return the place where a Node's agent should run, as the Node says it."""
    addresses = frozenset(one.address for one in node.status.addresses)
    return Place(node.metadata.name.lower(), addresses)


class Sightings:
    """The times until which Mesos cannot have forgotten agents, and the places where they were.

    An unreachable agent is forgotten when it was marked so for long (`--registry_max_agent_age`),
    and looks then like one that was shut down orderly. When it was marked, masters say by their own
    clocks, and these, or ours, may be wrong. So it is remembered for so long since it was listed
    here, by a clock that does not jump; and one that was seen to be unreachable not at all, until
    it is listed again. Where that one was is known until it, or another one there, is listed.
    """

    def __init__(self, max_age: timedelta) -> None:
        """Begin without any; `max_age` is how long Mesos remembers an unreachable agent."""
        self._max_age = max_age.total_seconds()
        self._until: dict[str, float] = {}
        self._unreachable: frozenset[str] = frozenset()
        self._lost: frozenset[str] = frozenset()
        self._places: dict[str, Place] = {}

    def place(self, id_: str) -> Place | None:
        """Return where this agent was seen last; None if that is not known."""
        return self._places.get(id_)

    def until(self, id_: str) -> float | None:
        """Return the time until which this agent cannot be forgotten; None if it is not known."""
        return self._until.get(id_)

    def listed(self, agents: Iterable[Agent], now: float) -> None:
        """Note agents that are in the cluster now, and drop what is of no use any more.

        Args:
            agents: The agents.
            now: The seconds of a clock that does not jump.
        """
        places = {agent.id: place_of(agent) for agent in agents}
        kept = {id_: until for id_, until in self._until.items() if until > now}
        self._until = kept | dict.fromkeys(places, now + self._max_age)
        hosts = {place.host for place in places.values()}
        self._lost = frozenset(
            id_ for id_ in self._lost - places.keys() if self._places[id_].host not in hosts
        )
        of_use = kept.keys() | self._unreachable | self._lost
        known = {id_: place for id_, place in self._places.items() if id_ in of_use}
        # An agent that has not come back since a failover is where it was.
        new = {id_: one for id_, one in places.items() if one.addresses or id_ not in known}
        self._places = known | new

    def unreachable(self, marked: Iterable[Marked]) -> None:
        """Note which agents are unreachable: each comes back, or is forgotten some day."""
        self._unreachable = frozenset(one.id.value for one in marked)
        self.forget(self._unreachable)

    def forget(self, ids: Collection[str] | None = None) -> None:
        """Drop until when agents, all or these, cannot be forgotten: Mesos forgets them at once.

        They may come back, and until then look as if they had been shut down orderly.
        """
        kept = () if ids is None else self._until.keys() - set(ids)
        self._lost |= self._until.keys() - kept
        self._until = {id_: self._until[id_] for id_ in kept}

    def on(self, machines: Iterable[MachineId]) -> frozenset[str]:
        """Return the agents that were seen on these machines last."""
        known = tuple(machines)
        return frozenset(id_ for id_, one in self._places.items() if _is_on(one, known))

    def of_host(self, node: Node) -> list[str]:
        """Return the agents that were seen last on the host that has a Node's name."""
        host = place_of_node(node).host
        return sorted(id_ for id_, one in self._places.items() if one.host == host)

    def named(self, id_: str, node: Node) -> None:
        """Note the Node of an agent that is not listed: of one never seen it says where it is."""
        if id_ in self._until or id_ in self._unreachable:
            self._places.setdefault(id_, place_of_node(node))


def others(proof: Proof, seen: Sightings) -> Mapping[str, Place | None]:
    """Return all agents that run, or may run; None for one of which nobody knows where it is.

    The registry tells of an unreachable agent no more than its id.
    """
    registry = proof.registry
    found = {one.id.value: seen.place(one.id.value) for one in registry.unreachable.slaves}
    for agent in (*(Agent(one.info) for one in registry.slaves.slaves), *proof.agents):
        place, known = place_of(agent), seen.place(agent.id)
        is_told = place.addresses or known is None or known.host != place.host
        found[agent.id] = place if is_told else known
    return found


def resolved(
    running: Mapping[str, Place | None], known: Mapping[str, Collection[str] | CloudError]
) -> Mapping[str, Place | None]:
    """Return the places of agents with the addresses that Nodes get of them, which DNS may tell.

    An agent of which DNS has none has given none to a Node. Where one is, about which DNS does not
    answer, nobody knows.

    Args:
        running: The places of agents that run, or may run.
        known: The addresses of each listed agent that its Node may have, or why there are none.
    """
    found = dict(running)
    for id_, addresses in known.items():
        place = found.get(id_)
        if not isinstance(addresses, CloudError):
            found |= {id_: Place(place.host, place.addresses | {*addresses})} if place else {}
        elif id_ in found and not isinstance(addresses, NoSuchHost):
            found[id_] = None
    return found


def absence(
    node: Node, id_: str, proof: Proof, seen: Sightings, now: float
) -> Instance | NotFound | CloudError:
    """Return the answer about an agent that is not listed.

    Mesos says that it is gone in one of two ways: an operator has marked it so, or it has left
    both the cluster and the list of those that are unreachable, and cannot have been forgotten.
    Either counts only where no other agent runs on the Node's host, which could be the same machine
    with a new id: of one that has lost its directory the former agent is marked as gone, too. A
    Node may have another name than its host, and a host get another one. Nor does it count while
    it is not known where another agent is that may run.

    Args:
        node: The agent's Node.
        id_: The agent's id.
        proof: The leading master's answers, read after the agent was missed.
        seen: The sighting of the agent before.
        now: The seconds of the clock of `seen`.
    """
    registry = proof.registry
    if not proof.is_of_leader:
        return CloudError(
            f"the agent {id_} is not listed, and the registry was not read from the leading master"
            f" {proof.master.id}: it is read again"
        )
    is_marked = any(one.id.value == id_ for one in registry.gone.slaves)
    if not is_marked and any(one.id.value == id_ for one in registry.unreachable.slaves):
        return _unreachable(node, id_)
    if id_ in proof.running:
        return CloudError(f"the agent {id_} has just come back: it is asked again")
    if conflict := _conflict(node, id_, proof.running, seen):
        return conflict
    return NotFound(tombstone=True) if is_marked else _unknown(node, id_, proof, seen, now)


def hidden(node: Node, proof: Proof, seen: Sightings, now: float) -> CloudError | None:
    """Return why a machine may run though no agent is listed that has a Node's name as host name.

    Masters list no agent that is unreachable, nor one that is down for maintenance.

    Args:
        node: The Node, which has no provider id.
        proof: The leading master's answers, read after the agent was missed.
        seen: The sightings of agents before.
        now: The seconds of the clock of `seen`.
    """
    answers = [absence(node, id_, proof, seen, now) for id_ in seen.of_host(node)]
    if failed := [one for one in answers if isinstance(one, CloudError)]:
        return failed[0]
    is_known = (
        proof.is_of_leader
        and proof.master.marks_unreachable
        and None not in proof.running.values()
        and not _is_on(place_of_node(node), proof.registry.resting)
        and all(isinstance(one, NotFound) for one in answers)
    )
    if is_known:
        return None
    return CloudError(
        f"Mesos lists no agent on the host {node.metadata.name}, but may have one there that is"
        " unreachable or down for maintenance, and runs; delete the Node object if it is gone"
    )


def is_resting(node: Node, id_: str, proof: Proof, seen: Sightings) -> bool:
    """Tell whether an agent was removed since its machine is down for maintenance."""
    places = place_of_node(node), seen.place(id_) or Place()
    return any(_is_on(one, proof.registry.resting) for one in places)


def _is_on(place: Place, machines: Iterable[MachineId]) -> bool:
    return any(
        (place.host and place.host == one.hostname.lower()) or one.ip in place.addresses
        for one in machines
    )


def _conflict(
    node: Node, id_: str, running: Mapping[str, Place | None], seen: Sightings
) -> CloudError | None:
    """Return the answer that others are on the host of an agent, or may be; None if none can be."""
    own, before = place_of_node(node), seen.place(id_) or Place()
    hosts = {own.host, before.host}
    addresses = own.addresses | before.addresses
    here = sorted(
        other
        for other, place in running.items()
        if place and (place.host in hosts or place.addresses & addresses)
    )
    if here:
        return IdentityConflict(
            f"the agent {id_} has been removed, but on its host there is {', '.join(here)}:"
            " delete the Node object; if that is the same machine, its kubelet makes it anew"
        )
    lost = sorted(
        other
        for other, place in running.items()
        if place is None or (own.addresses and not place.addresses)
    )
    if not lost:
        return None
    return CloudError(
        f"the agent {id_} has been removed, but its machine may have another one: of {len(lost)},"
        f" such as {lost[0]}, it is not known where they are: they are unreachable, or not back"
        " since a failover, or DNS does not answer about their names; mark as gone those that are,"
        " or delete the Node object"
    )


def _unknown(
    node: Node, id_: str, proof: Proof, seen: Sightings, now: float
) -> NotFound | CloudError:
    """Return the answer about an agent that is neither listed nor marked in the registry."""
    until = seen.until(id_)
    if is_resting(node, id_, proof, seen):
        reason = "was removed, since its machine is down for maintenance"
    elif not proof.master.marks_unreachable:
        reason = "was removed, as masters before Mesos 1.1 also do with one that they do not reach"
    elif until is None or until <= now:
        reason = "was removed, or was unreachable for so long that it is forgotten"
    else:
        return NotFound()
    return CloudError(
        f"Mesos does not know the agent {id_}: it {reason}, and may still run; delete the Node"
        " object if it is gone"
    )


def _unreachable(node: Node, id_: str) -> Instance | CloudError:
    """Return an instance that says only that the agent has not gone: nothing else is known.

    Its Node keeps what it has, so the labels that are ours are said again. Its name is not: it
    would count as Mesos' word for it, by which a kubelet gets a serving certificate.
    """
    if has_taint(node, TAINT_UNINITIALIZED):
        return CloudError(f"the agent {id_} is unreachable: Mesos does not say where it is")
    labels = node.metadata.labels
    return Instance(
        provider_id=node.spec.provider_id,
        additional_labels={
            key: value for key, value in labels.items() if key.startswith(LABEL_PREFIX)
        },
        state=InstanceState.UNKNOWN,
    )
