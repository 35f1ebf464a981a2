"""Which agent of Mesos a Node is, and what proves that it is gone: tables."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import Instance, InstanceState, NotFound
from proreus.kube.objects import TAINT_UNINITIALIZED, Node, Taint
from proreus.providers.mesos.agents import (
    Admitted,
    AdmittedList,
    Agent,
    AgentInfo,
    Id,
    Marked,
    MarkedList,
    Registry,
    RegistryMaster,
    TimeInfo,
)
from proreus.providers.mesos.masters import MasterInfo
from proreus.providers.mesos.names import Target
from proreus.providers.mesos.plan import Index, Proof, Sightings, Unlisted, absence, match
from proreus.testing import objects

MASTER = RegistryMaster(MasterInfo("m-1"))
OTHER = RegistryMaster(MasterInfo("m-2"))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=1)
WEEK = timedelta(weeks=1)


def info(id_: str, host: str = "n1") -> AgentInfo:
    return AgentInfo(Id(id_), host)


def agent(id_: str, host: str = "n1", *, active: bool = True) -> Agent:
    return Agent(info(id_, host), active)


def admitted(*agents: AgentInfo) -> AdmittedList:
    return AdmittedList(tuple(Admitted(one) for one in agents))


def marked(*ids: str) -> MarkedList:
    return MarkedList(tuple(Marked(Id(one)) for one in ids))


def seen_until(time: datetime | None) -> Sightings:
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
        ([], Registry(MASTER, gone=marked("a-S1"), unreachable=marked("a-S2")), NotFound()),
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
    proof = Proof("m-1", tuple(agents), registry)
    found = absence(objects.node("n1", "mesos://a-S0"), "a-S0", proof, seen_until(LATER), NOW)
    if isinstance(expected, type):
        assert type(found) is expected
    else:
        assert found == expected


@pytest.fixture
def unreachable() -> Proof:
    return Proof("m-1", (), Registry(MASTER, unreachable=marked("a-S0")))


def test_of_an_unreachable_agent_nothing_is_known_and_its_node_keeps_what_it_has(
    unreachable: Proof,
) -> None:
    labels = {"mesos.proreus/rack": "r1", "other": "x"}
    found = absence(
        objects.node("n1", "mesos://a-S0", labels=labels),
        "a-S0",
        unreachable,
        seen_until(LATER),
        NOW,
    )
    assert found == Instance(
        "mesos://a-S0",
        additional_labels={"mesos.proreus/rack": "r1"},
        state=InstanceState.UNKNOWN,
    )


def test_an_unreachable_agent_does_not_initialise_a_node(unreachable: Proof) -> None:
    taints = (Taint(TAINT_UNINITIALIZED, "NoSchedule"),)
    node: Node = objects.node("n1", "mesos://a-S0", taints=taints)
    assert type(absence(node, "a-S0", unreachable, seen_until(LATER), NOW)) is CloudError


@pytest.mark.parametrize(
    ("remembered", "expected"), [(LATER, NotFound), (NOW, CloudError), (None, CloudError)]
)
def test_what_mesos_may_have_forgotten_is_not_gone(
    remembered: datetime | None, expected: type[object]
) -> None:
    node = objects.node("n1", "mesos://a-S0")
    seen = seen_until(remembered)
    found = absence(node, "a-S0", Proof("m-1", (), Registry(MASTER)), seen, NOW)
    assert type(found) is expected


def test_how_long_mesos_remembers() -> None:
    sightings = Sightings(WEEK)
    assert sightings.until("a-S0") is None
    sightings.listed([agent("a-S0"), agent("a-S1", "N2")], NOW)
    assert [sightings.host(id_) for id_ in ("a-S0", "a-S1", "a-S2")] == ["n1", "n2", ""]
    assert sightings.until("a-S0") == NOW + WEEK
    # It is remembered from when it was marked as unreachable, however late we hear of that.
    day = NOW + timedelta(days=1)
    sightings.unreachable([Marked(Id("a-S0"), TimeInfo(int(day.timestamp()) * 10**9))])
    assert sightings.until("a-S0") == day + WEEK
    sightings.listed([agent("a-S1")], NOW + timedelta(days=8))
    assert (sightings.until("a-S0"), sightings.host("a-S0")) == (None, "")
    assert sightings.until("a-S1") == NOW + timedelta(days=8) + WEEK
