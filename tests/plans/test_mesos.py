"""Which agent of Mesos a Node is, and what proves that it is gone: tables."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec import structs

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import Instance, InstanceState, NotFound
from proreus.kube.objects import TAINT_UNINITIALIZED, Node, Taint
from proreus.providers.mesos.agents import (
    Admitted,
    AdmittedList,
    Agent,
    AgentInfo,
    Id,
    Machine,
    MachineId,
    MachineInfo,
    MachineList,
    Marked,
    MarkedList,
    NoSuchHost,
    Registry,
    RegistryMaster,
    Unavailability,
)
from proreus.providers.mesos.masters import MasterInfo
from proreus.providers.mesos.names import Target
from proreus.providers.mesos.plan import (
    Index,
    Place,
    Proof,
    Sightings,
    Unlisted,
    absence,
    hidden,
    match,
    others,
    resolved,
)
from proreus.testing import objects

LEADER = MasterInfo("m-1", version="1.11.0")
MASTER = RegistryMaster(LEADER)
OTHER = RegistryMaster(MasterInfo("m-2"))
NOW = 1000.0
LATER = NOW + 1
DAY = 24 * 3600.0
WEEK = timedelta(weeks=1)
NODE = objects.node("n1", "mesos://a-S0")


def info(id_: str, host: str = "n1") -> AgentInfo:
    return AgentInfo(Id(id_), host)


def agent(id_: str, host: str = "n1", *, active: bool = True) -> Agent:
    return Agent(info(id_, host), active)


def answer(node: Node, proof: Proof, seen: Sightings) -> Instance | NotFound | CloudError:
    """The answer about the agent a-S0 of a Node."""
    known = structs.replace(proof, running=others(proof, seen))
    return absence(node, "a-S0", known, seen, NOW)


def admitted(*agents: AgentInfo) -> AdmittedList:
    return AdmittedList(tuple(Admitted(one) for one in agents))


def marked(*ids: str) -> MarkedList:
    return MarkedList(tuple(Marked(Id(one)) for one in ids))


def seen_until(time: float | None) -> Sightings:
    """Sightings of the agent a-S0, which Mesos cannot have forgotten until this time."""
    sightings = Sightings(timedelta())
    if time is not None:
        sightings.listed([agent("a-S0")], time)
    return sightings


@pytest.mark.parametrize(
    ("target", "agents", "expected"),
    [
        (Target(id="a-S0"), [agent("a-S0"), agent("a-S1", "n2")], "a-S0"),
        (Target(id="a-S0"), [agent("a-S1", "a-S0")], Unlisted("a-S0")),
        (Target(host="n1"), [agent("a-S0", "N1"), agent("a-S1", "n2")], "a-S0"),
        (Target(host="n1"), [agent("a-S1", "n2")], NotFound()),
        (Target(host="n1"), [agent("a-S0", active=False)], "a-S0"),
        (Target(host="n1"), [agent("a-S0", active=False), agent("a-S1")], "a-S1"),
        (Target(host="n1"), [agent("a-S0"), agent("a-S1")], IdentityConflict),
        (Target(host="n1"), [agent(i, active=False) for i in ("a-S0", "a-S1")], IdentityConflict),
        (Target(problem="no id"), [agent("a-S0")], InvalidRequest),
    ],
)
def test_the_agent_of_a_node(
    target: Target, agents: Sequence[Agent], expected: str | object | type[CloudError]
) -> None:
    found = match(target, Index(agents))
    if isinstance(expected, type):
        assert type(found) is expected
    elif isinstance(expected, str):
        assert isinstance(found, Agent)
        assert found.id == expected
    else:
        assert found == expected


def test_agents_of_one_host_are_all_named() -> None:
    found = match(Target(host="n1"), Index([agent("a-S1"), agent("a-S0")]))
    assert "a-S0, a-S1" in str(found)


@pytest.mark.parametrize(
    ("agents", "registry", "expected"),
    [
        # An operator has marked it as gone.
        ([], Registry(MASTER, gone=marked("a-S1", "a-S0")), NotFound(tombstone=True)),
        ([agent("b-S0", "n2")], Registry(MASTER, gone=marked("a-S0")), NotFound(tombstone=True)),
        # But the machine may have a new agent.
        ([agent("b-S0")], Registry(MASTER, gone=marked("a-S0")), IdentityConflict),
        # Nothing is known of it any more.
        ([], Registry(MASTER), NotFound()),
        ([agent("b-S0", "n2")], Registry(MASTER, admitted(info("c-S0", "n3"))), NotFound()),
        ([], Registry(MASTER, gone=marked("a-S1")), NotFound()),
        # It has come back meanwhile.
        ([], Registry(MASTER, admitted(info("a-S0"))), CloudError),
        ([agent("a-S0")], Registry(MASTER), CloudError),
        # Another agent is on its host: perhaps the same machine.
        ([agent("b-S0", "N1")], Registry(MASTER), IdentityConflict),
        ([], Registry(MASTER, admitted(info("b-S0", "n1"))), IdentityConflict),
        # The registry is another master's, or none.
        ([], Registry(OTHER, gone=marked("a-S0")), CloudError),
        ([], Registry(None), CloudError),
    ],
)  # fmt: skip
def test_what_became_of_an_agent_that_is_not_listed(
    agents: Sequence[Agent], registry: Registry, expected: object
) -> None:
    proof = Proof(LEADER, tuple(agents), registry)
    found = answer(objects.node("n1", "mesos://a-S0"), proof, seen_until(LATER))
    if isinstance(expected, type):
        assert type(found) is expected
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("listed", "named", "expected"),
    [
        # It was seen on the same host, or with the Node's address, before it was unreachable.
        ([Agent(info("b-S0", "N1"))], None, IdentityConflict),
        ([Agent(info("b-S0", "10.0.0.1"))], None, IdentityConflict),
        # It was seen elsewhere.
        ([Agent(info("b-S0", "10.0.0.2"))], None, NotFound),
        # Another Node says where it is, or what it is called.
        ([], objects.node("10.0.0.2", addresses=["10.0.0.2"]), NotFound),
        ([], objects.node("n1", addresses=["10.0.0.2"]), IdentityConflict),
        # It was never seen, or only by the name of its host.
        ([], None, CloudError),
        ([Agent(info("b-S0", "n2"))], None, CloudError),
    ],
)
@pytest.mark.parametrize("registry", [Registry(gone=marked("a-S0")), Registry()])
def test_an_unreachable_agent_may_be_on_the_host(
    listed: Sequence[Agent], named: Node | None, expected: type[object], registry: Registry
) -> None:
    """Of such an agent the registry tells the id alone."""
    seen = Sightings(WEEK)
    seen.listed([agent("a-S0"), *listed], NOW)
    proof = Proof(LEADER, (), structs.replace(registry, master=MASTER, unreachable=marked("b-S0")))
    seen.unreachable([Marked(Id("b-S0"))])
    if named is not None:
        seen.named("b-S0", named)
    node = objects.node("n1", "mesos://a-S0", addresses=["10.0.0.1"])
    assert type(answer(node, proof, seen)) is expected


def test_an_agent_that_is_not_back_since_a_failover_is_where_it_was() -> None:
    node = objects.node("worker", "mesos://a-S0", addresses=["10.0.0.1"])
    seen, registry = Sightings(WEEK), Registry(MASTER, admitted(info("b-S0", "n2")))
    seen.listed([agent("a-S0")], NOW)
    proof = Proof(LEADER, (Agent(info("b-S0", "n2")),), registry)
    # Mesos does not tell its address, which may be the Node's.
    assert type(answer(node, proof, seen)) is CloudError
    for address, expected in (("10.0.0.2", NotFound), ("10.0.0.1", IdentityConflict)):
        there = Agent(info("b-S0", "n2"), pid=f"slave(1)@{address}:5051")
        seen.listed([there], NOW)
        seen.listed([Agent(info("b-S0", "n2"))], NOW)
        assert type(answer(node, proof, seen)) is expected
    # One that has another name since it was seen may have another address, too.
    seen.listed([Agent(info("b-S0", "n3"), pid="slave(1)@10.0.0.2:5051")], NOW)
    assert type(answer(node, proof, seen)) is CloudError


def test_of_an_agent_that_is_not_unreachable_no_node_says_where_it_is() -> None:
    seen = Sightings(WEEK)
    seen.named("a-S0", objects.node("n1"))
    assert seen.place("a-S0") is None


@pytest.fixture
def unreachable() -> Proof:
    return Proof(LEADER, (), Registry(MASTER, unreachable=marked("a-S0")))


def test_of_an_unreachable_agent_nothing_is_known_and_its_node_keeps_what_it_has(
    unreachable: Proof,
) -> None:
    labels = {"mesos.proreus/rack": "r1", "other": "x"}
    node = objects.node("n1", "mesos://a-S0", labels=labels)
    found = answer(node, unreachable, seen_until(LATER))
    assert found == Instance(
        "mesos://a-S0",
        additional_labels={"mesos.proreus/rack": "r1"},
        state=InstanceState.UNKNOWN,
    )


def test_an_unreachable_agent_does_not_initialise_a_node(unreachable: Proof) -> None:
    taints = (Taint(TAINT_UNINITIALIZED, "NoSchedule"),)
    node: Node = objects.node("n1", "mesos://a-S0", taints=taints)
    assert type(answer(node, unreachable, seen_until(LATER))) is CloudError


@pytest.mark.parametrize(
    ("proof", "remembered", "is_gone"),
    [
        (Proof(LEADER, (), Registry(MASTER)), LATER, True),
        (Proof(LEADER, (), Registry(MASTER)), None, True),
        (Proof(LEADER, (), Registry(MASTER, gone=marked("a-S0"))), LATER, True),
        (Proof(LEADER, (), Registry(MASTER, unreachable=marked("a-S0"))), LATER, False),
        (Proof(LEADER, (), Registry(MASTER, unreachable=marked("a-S0"))), None, False),
        (Proof(LEADER, (), Registry(MASTER, unreachable=marked("a-S7"))), LATER, False),
        (Proof(LEADER, (), Registry()), None, False),
        (Proof(MasterInfo("m-2", version="1.11.0"), (), Registry(MASTER)), None, False),
        (Proof(MasterInfo("m-1", version="1.0.4"), (), Registry(MASTER)), None, False),
    ],
)
def test_no_agent_of_a_host_is_listed_that_may_have_one(
    proof: Proof, remembered: float | None, *, is_gone: bool
) -> None:
    seen = seen_until(remembered)
    known = structs.replace(proof, running=others(proof, seen))
    assert (hidden(objects.node("n1"), known, seen, NOW) is None) is is_gone


@pytest.mark.parametrize(
    ("remembered", "expected"), [(LATER, NotFound), (NOW, CloudError), (None, CloudError)]
)
def test_what_mesos_may_have_forgotten_is_not_gone(
    remembered: float | None, expected: type[object]
) -> None:
    node = objects.node("n1", "mesos://a-S0")
    found = answer(node, Proof(LEADER, (), Registry(MASTER)), seen_until(remembered))
    assert type(found) is expected


@pytest.mark.parametrize(
    ("mode", "duration", "host", "is_gone"),
    [
        ("DOWN", {"nanoseconds": 1}, "N1", False),
        ("DOWN", {"nanoseconds": 1}, "n2", True),
        ("DOWN", None, "N1", True),
        ("DRAINING", {"nanoseconds": 1}, "N1", True),
    ],
)
def test_an_agent_is_not_gone_whose_machine_is_down_for_maintenance_that_ends(
    mode: str, duration: dict[str, int] | None, host: str, *, is_gone: bool
) -> None:
    away = Machine(MachineInfo(MachineId(host), mode, Unavailability(duration)))
    registry = Registry(MASTER, machines=MachineList((away,)))
    found = answer(NODE, Proof(LEADER, (), registry), seen_until(LATER))
    assert found == NotFound() if is_gone else "maintenance" in str(found)


@pytest.mark.parametrize("version", ["1.0.4", ""])
def test_an_agent_is_not_gone_that_is_unknown_to_a_master_that_marks_none_unreachable(
    version: str,
) -> None:
    leader = MasterInfo("m-1", version=version)
    found = answer(NODE, Proof(leader, (), Registry(RegistryMaster(leader))), seen_until(LATER))
    assert isinstance(found, CloudError)
    assert "before Mesos 1.1" in str(found)


@pytest.mark.parametrize("ids", [None, ["a-S0"], ["a-S1"]])
def test_what_mesos_forgets_at_once_is_not_remembered_for_long(ids: list[str] | None) -> None:
    seen = seen_until(LATER)
    seen.forget(ids)
    found = answer(NODE, Proof(LEADER, (), Registry(MASTER)), seen)
    assert isinstance(found, NotFound if ids == ["a-S1"] else CloudError)


def test_the_agents_on_machines_are_known_by_their_places() -> None:
    seen = Sightings(WEEK)
    seen.listed([agent("a-S0"), agent("b-S0", "n2")], NOW)
    assert seen.on([MachineId("N1"), MachineId("", "192.0.2.9")]) == {"a-S0"}
    assert seen.on([MachineId()]) == set()


def test_how_long_mesos_remembers() -> None:
    sightings = Sightings(WEEK)
    assert sightings.until("a-S0") is None
    sightings.listed([agent("a-S0"), agent("a-S1", "N2")], NOW)
    places = [sightings.place(id_) for id_ in ("a-S0", "a-S1", "a-S2")]
    assert places == [Place("n1"), Place("n2"), None]
    assert sightings.until("a-S0") == NOW + 7 * DAY
    # How long it is still remembered then another clock would tell; where it was is known.
    sightings.unreachable([Marked(Id("a-S0"))])
    sightings.listed([agent("a-S1", "n2")], NOW + 8 * DAY)
    assert (sightings.until("a-S0"), sightings.place("a-S0")) == (None, Place("n1"))
    # What is forgotten, and was not shut down, may run there until another one does.
    sightings.unreachable([])
    sightings.listed([agent("a-S1", "n2")], NOW + 8 * DAY)
    assert (sightings.until("a-S0"), sightings.place("a-S0")) == (None, Place("n1"))
    sightings.listed([agent("a-S1")], NOW + 8 * DAY)
    assert (sightings.until("a-S0"), sightings.place("a-S0")) == (None, None)
    assert sightings.until("a-S1") == NOW + 15 * DAY


def test_the_places_of_agents_have_the_addresses_that_their_nodes_get() -> None:
    there, lost = Place("n1", frozenset({"10.0.0.1"})), Place("n2")
    running = {
        "a-S1": there,
        "a-S2": lost,
        "a-S3": None,
        "a-S4": there,
        "a-S5": there,
        "a-S7": there,
    }
    known: dict[str, tuple[str, ...] | CloudError] = {
        "a-S1": ("192.0.2.1", "192.0.2.8"), "a-S2": ("192.0.2.2",), "a-S3": ("192.0.2.3",),
        "a-S4": (),
        "a-S5": NoSuchHost("DNS does not know it"), "a-S6": ("192.0.2.6",),
        "a-S7": CloudError("DNS does not answer"), "a-S8": CloudError("DNS does not answer"),
    }  # fmt: skip
    assert resolved(running, known) == running | {
        "a-S1": Place("n1", frozenset({"10.0.0.1", "192.0.2.1", "192.0.2.8"})),
        "a-S2": Place("n2", frozenset({"192.0.2.2"})),
        "a-S7": None,
    }
