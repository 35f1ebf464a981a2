"""Read masters' descriptions of agents, and convert them to Kubernetes' terms. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from proreus.cloudprovider.addresses import is_address
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import Instance, InstanceState
from proreus.cloudprovider.names import LABEL_VALUE
from proreus.kube.objects import NodeAddress
from proreus.providers.mesos.masters import MasterInfo
from proreus.providers.mesos.names import provider_id

LABEL_PREFIX: Final = "mesos.proreus/"
"""The prefix of the labels that are made of attributes."""

_DOWN: Final = "DOWN"

ADDRESS_TYPES: Final = ("InternalIP", "ExternalIP")
"""The types under which the one address of an agent is given, as officially."""


class NoSuchHost(CloudError):
    """The error that DNS says that it has no address of an agent's host name."""


class Id(msgspec.Struct, frozen=True):
    """An id of Mesos."""

    value: str


class Text(msgspec.Struct, frozen=True):
    """The value of an attribute that is a text."""

    value: str = ""


class Scalar(msgspec.Struct, frozen=True):
    """The value of an attribute that is a number."""

    value: float = 0.0


class Attribute(msgspec.Struct, frozen=True):
    """An attribute; of its other kinds, ranges and sets, nothing is read."""

    name: str
    text: Text | None = None
    scalar: Scalar | None = None


class Name(msgspec.Struct, frozen=True):
    """The name of a zone or a region."""

    name: str = ""


class FaultDomain(msgspec.Struct, frozen=True):
    """The fault domain of an agent."""

    region: Name = Name()
    zone: Name = Name()


class Domain(msgspec.Struct, frozen=True):
    """The domain of an agent."""

    fault_domain: FaultDomain = FaultDomain()


class AgentInfo(msgspec.Struct, frozen=True):
    """`AgentInfo`: how an agent describes itself."""

    id: Id
    hostname: str
    attributes: tuple[Attribute, ...] = ()
    domain: Domain = Domain()


class Agent(msgspec.Struct, frozen=True):
    """An agent that a master knows.

    Attributes:
        agent_info: The agent's description of itself.
        active: Whether it is connected and not deactivated.
        pid: The address of the agent's process, such as `slave(1)@10.0.0.5:5051`.
        deactivated: Whether an operator has taken it out of service.
    """

    agent_info: AgentInfo
    active: bool = False
    pid: str = ""
    deactivated: bool = False

    @property
    def id(self) -> str:
        """The agent's id."""
        return self.agent_info.id.value

    @property
    def host(self) -> str:
        """The agent's host name in small letters."""
        return self.agent_info.hostname.lower()


class Listed(msgspec.Struct, frozen=True):
    """The answer of GET_AGENTS: agents, and those that have not come back since a failover."""

    agents: tuple[Agent, ...] = ()
    recovered_agents: tuple[AgentInfo, ...] = ()

    def all(self) -> tuple[Agent, ...]:
        """Return all agents; those not back since a failover have neither address nor state."""
        return (*self.agents, *(Agent(info) for info in self.recovered_agents))


class AgentsAnswer(msgspec.Struct, frozen=True):
    """The whole answer of GET_AGENTS."""

    get_agents: Listed


class GetMaster(msgspec.Struct, frozen=True):
    """The answer of GET_MASTER."""

    master_info: MasterInfo


class MasterAnswer(msgspec.Struct, frozen=True):
    """The whole answer of GET_MASTER."""

    get_master: GetMaster


class Flag(msgspec.Struct, frozen=True):
    """A flag of a master's command line."""

    name: str
    value: str = ""


class GetFlags(msgspec.Struct, frozen=True):
    """The answer of GET_FLAGS."""

    flags: tuple[Flag, ...]


class FlagsAnswer(msgspec.Struct, frozen=True):
    """The whole answer of GET_FLAGS."""

    get_flags: GetFlags


class Admitted(msgspec.Struct, frozen=True):
    """An agent of the registry."""

    info: AgentInfo


class AdmittedList(msgspec.Struct, frozen=True):
    """The agents of the registry that are in the cluster."""

    slaves: tuple[Admitted, ...] = ()


class Marked(msgspec.Struct, frozen=True):
    """An agent of the registry that is marked unreachable or gone."""

    id: Id


class MarkedList(msgspec.Struct, frozen=True):
    """Agents of the registry that are unreachable, or gone."""

    slaves: tuple[Marked, ...] = ()


class RegistryMaster(msgspec.Struct, frozen=True):
    """The master that wrote the registry last."""

    info: MasterInfo


class Unavailability(msgspec.Struct, frozen=True):
    """The time for which a machine is away; without a duration it is so for ever."""

    duration: Mapping[str, Any] | None = None


class MachineId(msgspec.Struct, frozen=True):
    """The name of a machine: the host name and the address of its agents."""

    hostname: str = ""
    ip: str = ""


class MachineInfo(msgspec.Struct, frozen=True):
    """A machine for which maintenance is scheduled; its mode is `DOWN` while it goes on."""

    id: MachineId
    mode: str = ""
    unavailability: Unavailability = Unavailability()


class Machine(msgspec.Struct, frozen=True):
    """A machine of the registry."""

    info: MachineInfo


class MachineList(msgspec.Struct, frozen=True):
    """The machines of the registry for which maintenance is scheduled."""

    machines: tuple[Machine, ...] = ()


class Registry(msgspec.Struct, frozen=True):
    """The registry, from which a new leader learns which agents there are.

    Attributes:
        master: The last leading master; None in a master that has not read the registry.
        slaves: The agents in the cluster.
        unreachable: The agents that have failed their health checks and may still run.
        gone: The agents that an operator has declared gone for ever.
        machines: The machines for which maintenance is scheduled.
    """

    master: RegistryMaster | None = None
    slaves: AdmittedList = AdmittedList()
    unreachable: MarkedList = MarkedList()
    gone: MarkedList = MarkedList()
    machines: MachineList = MachineList()

    @property
    def resting(self) -> tuple[MachineId, ...]:
        """The machines that are down for maintenance, and come back by their schedule."""
        infos = (one.info for one in self.machines.machines)
        return tuple(
            one.id for one in infos if one.mode == _DOWN and one.unavailability.duration is not None
        )


def instance(
    agent: Agent,
    *,
    address: str,
    is_new: bool,
    type_attribute: str,
    label_attributes: Sequence[str],
) -> Instance | CloudError:
    """Make the framework's `Instance` from an agent.

    Args:
        agent: The agent as the master describes it.
        address: The IP address of the agent's Node; "" if it is not known.
        is_new: Whether the Node has no address yet, and must wait for one.
        type_attribute: The name of the attribute that holds the instance type, or "".
        label_attributes: The names of the attributes that become labels.
    """
    state = state_of(agent)
    if not address and (is_new or state is InstanceState.RUNNING):
        return CloudError(
            f"the agent {agent.id} on {agent.host} shows no IP address yet: {agent.pid!r}"
        )
    known = attributes(agent)
    domain = agent.agent_info.domain.fault_domain
    return Instance(
        provider_id=provider_id(agent.id),
        name=agent.agent_info.hostname,
        instance_type=known.get(type_attribute, ""),
        zone=LABEL_VALUE.clean(domain.zone.name),
        region=LABEL_VALUE.clean(domain.region.name),
        addresses=tuple(NodeAddress(kind, address) for kind in ADDRESS_TYPES) if address else (),
        additional_labels={
            f"{LABEL_PREFIX}{name}": known[name] for name in label_attributes if known.get(name)
        },
        state=state,
    )


def state_of(agent: Agent) -> InstanceState:
    """Return an agent's state.

    An agent that an operator has deactivated counts as shut down once its Node is not Ready. Of an
    agent that is only disconnected, or has not come back since a failover, the state is not known.
    """
    if agent.deactivated:
        return InstanceState.STOPPED
    return InstanceState.RUNNING if agent.active else InstanceState.UNKNOWN


def attributes(agent: Agent) -> Mapping[str, str]:
    """Return those attributes of an agent that fit in a label: texts and numbers."""
    found = {}
    for one in agent.agent_info.attributes:
        if one.text is not None:
            found[one.name] = LABEL_VALUE.clean(one.text.value)
        elif one.scalar is not None:
            found[one.name] = LABEL_VALUE.clean(f"{one.scalar.value:g}")
    return found


def own_address(agent: Agent) -> str:
    """Return the IP address of an agent: its host name if that is one, or else of its process."""
    hostname = agent.agent_info.hostname
    if is_address(hostname):
        return hostname
    host = agent.pid.rpartition("@")[2].rpartition(":")[0].strip("[]")
    return host if is_address(host) else ""


def cluster_name(answer: FlagsAnswer) -> str:
    """Return the name that a cluster was given (`--cluster`), officially "mesos" without one."""
    values = {flag.name: flag.value for flag in answer.get_flags.flags}
    return values.get("cluster") or "mesos"
