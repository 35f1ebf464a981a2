"""What an emulated cluster of Mesos consists of: agents, and what masters have written of them.

The states and the forms of answers are those of Apache Mesos 1.11: its operator API
(`GET_AGENTS`, `GET_MASTER`, `GET_FLAGS`), the endpoint `/state`, and the registry.
"""

import ipaddress
import time
import uuid
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

Json = dict[str, Any]
REGISTERED_AT: Final = 1_470_820_172_046_531_840


class Status(Enum):
    """What a cluster thinks of an agent."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    """Its connection is lost; for a minute or so it may come back."""
    RECOVERED = "recovered"
    """It is in the registry, and has not come back since another master leads."""
    UNREACHABLE = "unreachable"
    GONE = "gone"
    REMOVED = "removed"
    """It has said goodbye, or was unreachable for so long that it is forgotten."""


class Agent:
    """An agent on a host."""

    def __init__(self, id_: str, hostname: str, ip: str, **more: Any) -> None:
        self.id, self.hostname, self.ip = id_, hostname, ip
        self.attributes: Mapping[str, str | float | tuple[int, int]] = more.get("attributes", {})
        self.region, self.zone = more.get("region", ""), more.get("zone", "")
        self.status = Status.CONNECTED
        self.deactivated = False
        self.has_kubelet = False
        self.marked_at = 0
        """When it was marked as unreachable or gone, in nanoseconds; 0: once somebody looks."""

    @property
    def is_listed(self) -> bool:
        return self.status in {Status.CONNECTED, Status.DISCONNECTED}

    @property
    def pid(self) -> str:
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"slave(1)@{host}:5051"

    def info(self) -> Json:
        """`AgentInfo`, which is `SlaveInfo` in the registry."""
        found: Json = {
            "id": {"value": self.id},
            "hostname": self.hostname,
            "port": 5051,
            "resources": [_resource("cpus", 8.0), _resource("mem", 15360.0)],
            "attributes": [_attribute(name, value) for name, value in self.attributes.items()],
        }
        if self.zone:
            names = {"region": {"name": self.region}, "zone": {"name": self.zone}}
            found["domain"] = {"fault_domain": names}
        return found

    def mark(self) -> Json:
        """An agent of the registry that is unreachable or gone."""
        self.marked_at = self.marked_at or time.time_ns()
        return {"id": {"value": self.id}, "timestamp": {"nanoseconds": self.marked_at}}

    def described(self) -> Json:
        """An agent of GET_AGENTS."""
        return {
            "agent_info": self.info(),
            "active": self.status is Status.CONNECTED and not self.deactivated,
            "deactivated": self.deactivated,
            "version": "1.11.0",
            "pid": self.pid,
            "registered_time": {"nanoseconds": REGISTERED_AT},
            "total_resources": self.info()["resources"],
            "capabilities": [{"type": "MULTI_ROLE"}],
        }

    def summary(self) -> Json:
        """An agent of /state."""
        return {
            "id": self.id,
            "pid": self.pid,
            "hostname": self.hostname,
            "resources": {"cpus": 8.0, "mem": 15360.0, "ports": "[31000-32000]"},
            "active": self.status is Status.CONNECTED and not self.deactivated,
        }


def _resource(name: str, value: float) -> Json:
    return {"name": name, "role": "*", "type": "SCALAR", "scalar": {"value": value}}


def _attribute(name: str, value: str | float | tuple[int, int]) -> Json:
    if isinstance(value, str):
        return {"name": name, "type": "TEXT", "text": {"value": value}}
    if isinstance(value, tuple):
        ranges = {"range": [{"begin": value[0], "end": value[1]}]}
        return {"name": name, "type": "RANGES", "ranges": ranges}
    return {"name": name, "type": "SCALAR", "scalar": {"value": value}}


class MasterInfo:
    """A master, by which others know it."""

    def __init__(self, hostname: str, ip: str, port: int) -> None:
        self.id = str(uuid.uuid4())
        self.hostname, self.ip, self.port = hostname, ip, port
        self.version = "1.11.0"

    def described(self) -> Json:
        """`MasterInfo` in JSON, as it stands in ZooKeeper, too. Its `ip` is in network order."""
        packed = int.from_bytes(ipaddress.IPv4Address(self.ip).packed, "little")
        return {
            "id": self.id,
            "hostname": self.hostname,
            "ip": packed,
            "port": self.port,
            "pid": f"master@{self.ip}:{self.port}",
            "address": {"hostname": self.hostname, "ip": self.ip, "port": self.port},
            "version": self.version,
            "capabilities": [{"type": "AGENT_UPDATE"}, {"type": "AGENT_DRAINING"}],
        }


class World:
    """A cluster: its agents, and the master that wrote the registry last."""

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}
        self.cluster = ""
        self.master: MasterInfo | None = None
        self.maintenance: dict[str, Json] = {}
        """What is scheduled for the machine that an agent was on, by the agent's id."""
        self._prefix = str(uuid.uuid4())

    def add(self, hostname: str, ip: str = "", **more: Any) -> Agent:
        """Start an agent on a host."""
        number = len(self.agents)
        id_ = f"{self._prefix}-S{number}"
        address = ip or str(ipaddress.IPv4Address("10.64.0.1") + number)
        self.agents[id_] = Agent(id_, hostname, address, **more)
        return self.agents[id_]

    def on(self, hostname: str) -> Agent:
        """The last agent that was started on a host."""
        return [agent for agent in self.agents.values() if agent.hostname == hostname][-1]

    def take_down(self, agent: Agent, seconds: int | None) -> None:
        """Start the maintenance of an agent's machine (`/machine/down`): its agents are removed."""
        agent.status = Status.REMOVED
        unavailability: Json = {"start": {"nanoseconds": time.time_ns()}}
        if seconds is not None:
            unavailability["duration"] = {"nanoseconds": seconds * 10**9}
        id_ = {"hostname": agent.hostname, "ip": agent.ip}
        self.maintenance[agent.id] = {"id": id_, "mode": "DOWN", "unavailability": unavailability}

    def elect(self, master: MasterInfo) -> None:
        """Let another master lead: it knows agents from the registry until they come back."""
        self.master = master
        for agent in self.agents.values():
            if agent.is_listed:
                agent.status = Status.RECOVERED

    def reconnect(self) -> None:
        """Let all agents come back to the master that leads now."""
        for agent in self.agents.values():
            if agent.status is Status.RECOVERED:
                agent.status = Status.CONNECTED

    def listed(self) -> Json:
        """The answer of GET_AGENTS."""
        agents = self.agents.values()
        return {
            "agents": [agent.described() for agent in agents if agent.is_listed],
            "recovered_agents": [
                agent.info() for agent in agents if agent.status is Status.RECOVERED
            ],
        }

    def flags(self) -> Json:
        """The answer of GET_FLAGS: the name of the cluster only if it has one."""
        flags = {"agent_ping_timeout": "15secs", "quorum": "1", "zk_session_timeout": "10secs"}
        flags |= {"cluster": self.cluster} if self.cluster else {}
        return {"flags": [{"name": name, "value": value} for name, value in flags.items()]}

    def registry(self) -> Json:
        """What is written of agents."""
        assert self.master is not None
        by_status: dict[Status, list[Agent]] = {}
        for agent in self.agents.values():
            by_status.setdefault(agent.status, []).append(agent)
        admitted = (Status.CONNECTED, Status.DISCONNECTED, Status.RECOVERED)
        slaves = [{"info": one.info()} for status in admitted for one in by_status.get(status, ())]
        found: Json = {
            "master": {"info": self.master.described()},
            "slaves": {"slaves": slaves} if slaves else {},
        }
        if self.maintenance:
            found["machines"] = {"machines": [{"info": one} for one in self.maintenance.values()]}
        for status in (Status.UNREACHABLE, Status.GONE):
            if marked := by_status.get(status):
                found[status.value] = {"slaves": [one.mark() for one in marked]}
        return found

    def state(self) -> Json:
        """The answer of /state."""
        assert self.master is not None
        executors = [
            {"executor_id": f"e-{one.id}", "name": "Kubelet-Executor", "slave_id": one.id}
            for one in self.agents.values()
            if one.has_kubelet
        ]
        found: Json = {
            "version": "1.11.0",
            "id": self.master.id,
            "pid": f"master@{self.master.ip}:{self.master.port}",
            "hostname": self.master.hostname,
            "leader": f"master@{self.master.ip}:{self.master.port}",
            "slaves": [one.summary() for one in self.agents.values() if one.is_listed],
            "frameworks": [{"id": "f-0000", "name": "Kubernetes", "executors": executors}],
        }
        return found | ({"cluster": self.cluster} if self.cluster else {})
