"""Nodes and their agents: what they get of them, and when one counts as gone."""

import asyncio
import socket
import time
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import Instance, InstanceState, NotFound, Ownership
from proreus.controllers.kubelet_serving.plan import GROUP, SIGNER, USER, Observed, plan
from proreus.controllers.kubelet_serving.signing_request import read
from proreus.kube.objects import (
    TAINT_UNINITIALIZED,
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
    NodeAddress,
    ObjectMeta,
    Taint,
)
from proreus.testing import objects
from proreus.testing.controlplane.certificates import signing_request

from .emulator import HANGS, LOST, Cluster
from .site import describe, node, one, started
from .world import Status

ATTRIBUTES = {"rack": "r 1", "level": 10.0, "ports": (1000, 1500), "machine": "c5.large"}
NODES = "[Nodes]\ntype-attribute = machine\nlabel-attribute = rack\nlabel-attribute = level\n"


def both(address: str) -> tuple[NodeAddress, ...]:
    return NodeAddress("InternalIP", address), NodeAddress("ExternalIP", address)


async def test_a_node_gets_what_its_agent_tells(mesos: Cluster) -> None:
    agent = mesos.world.add("N1.example", attributes=ATTRIBUTES, region="eu", zone="eu-a")
    sections = f"{NODES}label-attribute = ports\nlabel-attribute = missing\n"
    async with started(mesos.config(sections=sections)) as provider:
        assert await one(provider, node("n1.example")) == Instance(
            provider_id=f"mesos://{agent.id}",
            name="N1.example",
            instance_type="c5.large",
            zone="eu-a",
            region="eu",
            addresses=both(agent.ip),
            additional_labels={"mesos.proreus/rack": "r-1", "mesos.proreus/level": "10"},
        )


async def test_without_our_sections_nodes_get_no_labels_of_attributes(mesos: Cluster) -> None:
    agent = mesos.world.add("n1", attributes=ATTRIBUTES)
    async with started(mesos.config()) as provider:
        found = await one(provider, node("n1"))
    assert found == Instance(f"mesos://{agent.id}", "n1", addresses=both(agent.ip))


async def test_all_nodes_take_one_call(mesos: Cluster) -> None:
    nodes = [node(f"n{number}", mesos.world.add(f"n{number}")) for number in range(300)]
    async with started(mesos.config()) as provider:
        mesos.forget_calls()
        found = await describe(provider, *nodes)
        assert all(isinstance(answer, Instance) for answer in found.values())
        assert len(found) == 300
    assert mesos.calls == {"GET_AGENTS": 1}


@pytest.mark.parametrize(
    ("hostname", "ip", "expected"),
    [("n1", "10.0.0.1", "10.0.0.1"), ("10.0.0.9", "10.0.0.1", "10.0.0.9"), ("n1", "fd00::1", "fd00::1")],
)  # fmt: skip
async def test_the_address_is_the_host_name_or_that_of_the_process(
    mesos: Cluster, hostname: str, ip: str, expected: str
) -> None:
    mesos.world.add(hostname, ip)
    async with started(mesos.config()) as provider:
        found = await one(provider, node(hostname))
    assert isinstance(found, Instance)
    assert found.addresses == both(expected)


async def test_addresses_of_dns_are_asked_for_once_a_minute(
    mesos: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"n1": ["192.0.2.7", "192.0.2.8"]}
    asked: list[str] = []

    def look_up(host: str, *_: object, **__: object) -> list[object]:
        asked.append(host)
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(0, 0, 0, "", (address, 0)) for address in known[host]]

    for name in ("n1", "n2", "10.0.0.9"):
        mesos.world.add(name)
    async with started(mesos.config(sections="[Nodes]\naddresses = dns\n")) as provider:
        monkeypatch.setattr("proreus.providers.mesos.addresses.socket.getaddrinfo", look_up)
        nodes = [node(name) for name in ("n1", "n2", "10.0.0.9")]
        found = await describe(provider, *nodes)
        assert isinstance(found["n1"], Instance)
        assert found["n1"].addresses == both("192.0.2.7")
        assert "addresses = agent" in str(found["n2"])
        assert isinstance(found["10.0.0.9"], Instance)
        await describe(provider, *nodes)
    assert sorted(asked) == ["n1", "n2", "n2"]  # side by side


@pytest.mark.parametrize(
    ("status", "deactivated", "expected"),
    [
        (Status.CONNECTED, False, InstanceState.RUNNING),
        (Status.CONNECTED, True, InstanceState.STOPPED),
        (Status.DISCONNECTED, False, InstanceState.UNKNOWN),
        (Status.DISCONNECTED, True, InstanceState.STOPPED),
        (Status.RECOVERED, False, InstanceState.UNKNOWN),
        (Status.UNREACHABLE, False, InstanceState.UNKNOWN),
    ],
)
async def test_the_state_of_an_agent(
    mesos: Cluster, status: Status, *, deactivated: bool, expected: InstanceState
) -> None:
    agent = mesos.world.add("n1")
    agent.status, agent.deactivated = status, deactivated
    async with started(mesos.config()) as provider:
        found = await one(provider, node("n1", agent))
    assert isinstance(found, Instance)
    assert found.state is expected


async def test_an_agent_that_has_not_come_back_since_a_failover_keeps_its_node(
    mesos: Cluster,
) -> None:
    agent = mesos.world.add("n1", attributes=ATTRIBUTES, region="eu", zone="eu-a")
    async with started(mesos.config(sections=NODES)) as provider:
        before = await one(provider, node("n1", agent))
        mesos.elect(1, agents_return=False)
        found = await one(provider, node("n1", agent))
    assert isinstance(before, Instance)
    assert isinstance(found, Instance)
    assert (found.zone, found.instance_type, found.additional_labels) == (
        before.zone, before.instance_type, before.additional_labels,
    )  # fmt: skip
    assert found.addresses == ()


@pytest.mark.parametrize(
    ("status", "expected"),
    [(Status.GONE, NotFound(tombstone=True)), (Status.REMOVED, NotFound())],
)
async def test_an_agent_is_gone_once_mesos_says_so(
    mesos: Cluster, status: Status, expected: NotFound
) -> None:
    agent = mesos.world.add("n1")
    mesos.world.add("n2")
    async with started(mesos.config()) as provider:
        agent.status = status
        mesos.forget_calls()
        assert await one(provider, node("n1", agent)) == expected
    # The second list is read with the registry, from the master that leads then.
    assert mesos.calls == {"GET_AGENTS": 2, "GET_MASTER": 1, "registry": 1}


async def test_an_agent_that_mesos_may_have_forgotten_is_not_gone(mesos: Cluster) -> None:
    agent, other = mesos.world.add("n1"), mesos.world.add("n2")
    agent.status, other.status = Status.UNREACHABLE, Status.REMOVED
    nodes = node("n1", agent), node("n2", other)
    async with started(mesos.config()) as provider:
        await describe(provider, *nodes)
        agent.status = Status.REMOVED
        found = await describe(provider, *nodes)
        # When it was listed last is not known, nor whether the other one ever was there.
        assert "forgotten" in str(found["n1"])
        assert "forgotten" in str(found["n2"])
    agent.status = Status.CONNECTED
    async with started(mesos.config()) as provider:
        agent.status = Status.UNREACHABLE
        await describe(provider, *nodes)
        agent.status = Status.REMOVED
        assert "forgotten" in str(await one(provider, nodes[0]))
        agent.status = Status.CONNECTED
        await describe(provider, *nodes)
        agent.status = Status.REMOVED
        assert await one(provider, nodes[0]) == NotFound()


async def test_masters_that_remove_agents_that_they_do_not_reach_do_not_say_what_is_gone(
    mesos: Cluster,
) -> None:
    """As those before 1.1 do (high-availability-framework-guide.md of Mesos 1.0.4)."""
    for master in mesos.masters:
        master.info.version = "1.0.4"
    agent, former = mesos.world.add("n1"), mesos.world.add("n2")
    nodes = node("n1", agent), node("n2", former)
    async with started(mesos.config()) as provider:
        await describe(provider, *nodes)
        agent.status = Status.REMOVED
        assert "may still run" in str(await one(provider, nodes[0]))
        # Nor do masters of today know what an older one has removed, be it unseen.
        agent.status = Status.CONNECTED
        await describe(provider, *nodes)
        agent.status = former.status = Status.REMOVED
        for master in mesos.masters:
            master.info.version = "1.1.0"
        found = await describe(provider, *nodes)
        assert all("may still run" in str(answer) for answer in found.values())
        agent.status = Status.CONNECTED
        await describe(provider, *nodes)
        agent.status = Status.REMOVED
        assert await one(provider, nodes[0]) == NotFound()


async def test_a_machine_that_is_down_for_maintenance_is_not_gone(mesos: Cluster) -> None:
    """Its agents are removed then (maintenance.md of Mesos), and it comes back."""
    agent, other = mesos.world.add("N1.example"), mesos.world.add("n2")
    nodes = node("n1.example", agent), node("n2", other)
    async with started(mesos.config()) as provider:
        await describe(provider, *nodes)
        mesos.world.take_down(agent, 3600)
        mesos.world.take_down(other, None)
        found = await describe(provider, *nodes)
        assert "maintenance" in str(found["n1.example"])
        assert found["n2"] == NotFound()  # that one is away for ever
        # It is up again before its kubelet and its agent are.
        mesos.world.maintenance.clear()
        assert "may still run" in str(await one(provider, nodes[0]))
        agent.status = Status.CONNECTED
        assert isinstance(await one(provider, nodes[0]), Instance)
        agent.status = Status.REMOVED
        assert await one(provider, nodes[0]) == NotFound()


@pytest.mark.parametrize("ahead", [0, 3600])
@pytest.mark.parametrize("is_seen", [True, False])
async def test_clocks_of_masters_do_not_tell_how_long_mesos_remembers(
    mesos: Cluster, ahead: int, *, is_seen: bool
) -> None:
    """One may go an hour before the manager's, or that one be set back meanwhile."""
    agent = mesos.world.add("n1")
    age = "[Nodes]\nregistry-max-agent-age = 1s\n"
    async with started(mesos.config(sections=age)) as provider:
        await one(provider, node("n1", agent))
        agent.status = Status.UNREACHABLE
        agent.marked_at = time.time_ns() + ahead * 10**9
        if is_seen:
            await one(provider, node("n1", agent))
        await asyncio.sleep(1.1)
        agent.status = Status.REMOVED
        assert "forgotten" in str(await one(provider, node("n1", agent)))


@pytest.mark.parametrize("status", [403, 404, 500, LOST, 200])
async def test_without_the_registry_no_agent_is_gone(mesos: Cluster, status: int) -> None:
    agent = mesos.world.add("n1")
    rest = mesos.world.add("n2")
    agent.status = Status.GONE
    async with started(mesos.config()) as provider:
        mesos.fail("registry", status, times=4, body=b"{}")
        found = await describe(provider, node("n1", agent), node("n2", rest))
    assert isinstance(found["n1"], CloudError)
    assert isinstance(found["n2"], Instance)


async def test_a_principal_that_may_not_read_the_registry_is_told(mesos: Cluster) -> None:
    agent = mesos.world.add("n1")
    agent.status = Status.REMOVED
    mesos.forbidden = {"registry"}
    async with started(mesos.config()) as provider:
        assert "let the principal read /registrar(1)/registry" in str(
            await one(provider, node("n1", agent))
        )


async def test_a_registry_that_the_leader_has_not_written_proves_nothing(mesos: Cluster) -> None:
    agent = mesos.world.add("n1")
    agent.status = Status.REMOVED
    async with started(mesos.config()) as provider:
        mesos.world.master = mesos.masters[2].info
        assert "not read from the leading master" in str(await one(provider, node("n1", agent)))


@pytest.mark.parametrize("status", [Status.REMOVED, Status.GONE])
async def test_another_agent_on_the_host_may_be_the_same_machine(
    mesos: Cluster, status: Status
) -> None:
    """Of a machine whose agent has lost its directory the former agent is marked as gone, too."""
    agent = mesos.world.add("n1")
    async with started(mesos.config()) as provider:
        agent.status = status
        other = mesos.world.add("n1")
        found = await one(provider, node("n1", agent))
    assert isinstance(found, IdentityConflict)
    assert other.id in str(found)


@pytest.mark.parametrize("status", [Status.REMOVED, Status.GONE])
async def test_an_unreachable_agent_on_the_host_may_be_the_same_machine(
    mesos: Cluster, status: Status
) -> None:
    """An agent with a new id loses its masters; its machine goes on."""
    agent = mesos.world.add("n1")
    async with started(mesos.config()) as provider:
        await one(provider, node("n1", agent))
        agent.status = status
        other = mesos.world.add("n1")
        assert isinstance(await one(provider, node("n1", agent)), IdentityConflict)
        other.status = Status.UNREACHABLE
        found = await one(provider, node("n1", agent))
        assert isinstance(found, IdentityConflict)
        assert other.id in str(found)


async def test_where_an_unreachable_agent_is_only_its_node_says_to_a_new_manager(
    mesos: Cluster,
) -> None:
    agent, other = mesos.world.add("n1"), mesos.world.add("n2")
    agent.status, other.status = Status.GONE, Status.UNREACHABLE
    async with started(mesos.config()) as provider:
        found = await one(provider, node("n1", agent))
        assert type(found) is CloudError
        assert other.id in str(found)
        assert isinstance(await one(provider, node("n2", other)), Instance)
        assert await one(provider, node("n1", agent)) == NotFound(tombstone=True)


async def test_another_agent_on_the_host_is_known_where_the_node_has_another_name(
    mesos: Cluster,
) -> None:
    """A kubelet with --provider-id may call its Node as it likes."""
    agent = mesos.world.add("n1.example.org", "10.64.9.9")
    async with started(mesos.config()) as provider:
        assert isinstance(await one(provider, node("worker", agent)), Instance)
        agent.status = Status.REMOVED
        other = mesos.world.add("n1.example.org", "10.64.9.10")
        found = await one(provider, node("worker", agent))
        assert isinstance(found, IdentityConflict)
        assert other.id in str(found)
        other.status = Status.REMOVED
        assert await one(provider, node("worker", agent)) == NotFound()
        # The machine has another host name now, and the address that the Node has.
        moved = mesos.world.add("n2.example.org", "10.64.9.9")
        addresses = (NodeAddress("InternalIP", "10.64.9.9"),)
        named = objects.node("worker", f"mesos://{agent.id}", addresses=addresses)
        found = await one(provider, named)
        assert isinstance(found, IdentityConflict)
        assert moved.id in str(found)


@pytest.mark.parametrize("is_new", [False, True])
async def test_another_agent_on_the_host_is_known_where_dns_tells_addresses_of_nodes(
    mesos: Cluster, monkeypatch: pytest.MonkeyPatch, *, is_new: bool
) -> None:
    """The Node then has another address than its agent's process; the host got another name.

    A manager that began after the agent was lost (`is_new`) has not seen where that was.
    """

    def look_up(host: str, *_: object, **__: object) -> list[object]:
        if not host.startswith("n"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(0, 0, 0, "", ("192.0.2.7", 0))]

    monkeypatch.setattr("proreus.providers.mesos.addresses.socket.getaddrinfo", look_up)
    agent = mesos.world.add("n1.example.org", "10.64.9.9")
    mesos.world.add("elsewhere", "10.64.9.8")
    named = objects.node("worker", f"mesos://{agent.id}", addresses=both("192.0.2.7"))
    dns = mesos.config(sections="[Nodes]\naddresses = dns\n")
    async with started(dns) as provider:
        assert isinstance(await one(provider, named), Instance)
        agent.status = Status.GONE
        if is_new:
            moved = mesos.world.add("n2.example.org", "10.64.9.10")
            async with started(dns) as later:
                found = await one(later, named)
        else:
            moved = mesos.world.add("m1.example.org", "10.64.9.9")
            found = await one(provider, named)
        assert isinstance(found, IdentityConflict)
        assert moved.id in str(found)
        moved.status = Status.REMOVED
        assert await one(provider, named) == NotFound(tombstone=True)


async def test_another_agent_on_the_host_is_known_by_any_address_that_dns_has_of_it(
    mesos: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS gives the addresses of a host in another order each time; the Node has the first one.

    The machine lost its agent's directory before this manager began.
    """
    places = {"n1.example.org": ["192.0.2.7", "192.0.2.8"], "n2.example.org": ["192.0.2.9"]}

    def look_up(host: str, *_: object, **__: object) -> list[object]:
        return [(0, 0, 0, "", (address, 0)) for address in places[host]]

    monkeypatch.setattr("proreus.providers.mesos.addresses.socket.getaddrinfo", look_up)
    lost = mesos.world.add("n1.example.org", "192.0.2.8")
    gone = mesos.world.add("n2.example.org", "192.0.2.9")
    lost.status = gone.status = Status.GONE
    again = mesos.world.add("n1.example.org", "192.0.2.8")
    places["n1.example.org"].reverse()
    lives = objects.node("worker", f"mesos://{lost.id}", addresses=both("192.0.2.7"))
    dead = objects.node("other", f"mesos://{gone.id}", addresses=both("192.0.2.9"))
    async with started(mesos.config(sections="[Nodes]\naddresses = dns\n")) as provider:
        found = await describe(provider, lives, dead)
    conflict = found["worker"]
    assert isinstance(conflict, IdentityConflict), conflict
    assert again.id in str(conflict)
    assert found["other"] == NotFound(tombstone=True)


async def test_while_dns_does_not_answer_about_an_agent_it_may_be_on_any_host(
    mesos: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine lost its agent's directory, and got another name, of which DNS is silent now."""
    errors = {"n2.example.org": socket.EAI_AGAIN, "elsewhere": socket.EAI_NONAME}

    def look_up(host: str, *_: object, **__: object) -> list[object]:
        if host in errors:
            raise socket.gaierror(errors[host], "DNS does not tell")
        return [(0, 0, 0, "", ("192.0.2.7", 0))]

    monkeypatch.setattr("proreus.providers.mesos.addresses.socket.getaddrinfo", look_up)
    agent = mesos.world.add("n1.example.org", "10.64.9.9")
    mesos.world.add("elsewhere", "10.64.9.8")
    agent.status = Status.GONE
    moved = mesos.world.add("n2.example.org", "10.64.9.10")
    named = objects.node("worker", f"mesos://{agent.id}", addresses=both("192.0.2.7"))
    async with started(mesos.config(sections="[Nodes]\naddresses = dns\n")) as provider:
        found = await one(provider, named)
        assert type(found) is CloudError, found
        assert moved.id in str(found)
        del errors["n2.example.org"]
        assert isinstance(await one(provider, named), IdentityConflict)


async def test_what_dns_said_of_an_agent_a_moment_ago_proves_nothing(
    mesos: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine lost its agent's directory, and got the name that another one had before."""
    places = {"n1.example.org": "192.0.2.7", "n2.example.org": "192.0.2.8"}

    def look_up(host: str, *_: object, **__: object) -> list[object]:
        return [(0, 0, 0, "", (places[host], 0))]

    monkeypatch.setattr("proreus.providers.mesos.addresses.socket.getaddrinfo", look_up)
    agent = mesos.world.add("n1.example.org", "10.64.9.9")
    moved = mesos.world.add("n2.example.org", "10.64.9.10")
    named = objects.node("worker", f"mesos://{agent.id}", addresses=both("192.0.2.7"))
    async with started(mesos.config(sections="[Nodes]\naddresses = dns\n")) as provider:
        assert isinstance(await one(provider, node("n2.example.org", moved)), Instance)
        places["n2.example.org"] = "192.0.2.7"
        agent.status = Status.GONE
        found = await one(provider, named)
        assert isinstance(found, IdentityConflict), found
        assert moved.id in str(found)


async def test_no_kubelet_gets_a_certificate_by_the_id_of_an_unreachable_agent(
    mesos: Cluster,
) -> None:
    """Mesos says nothing of that agent, so a Node may say that it is there by any name."""
    agent = mesos.world.add("n1")
    agent.status = Status.UNREACHABLE
    name = "kubernetes.default.svc"
    request = CertificateSigningRequest(
        ObjectMeta("csr"),
        CertificateSigningRequestSpec(
            request=signing_request(f"{USER}{name}", [GROUP], [name]),
            signer_name=SIGNER,
            username=f"{USER}{name}",
            groups=(GROUP,),
            usages=("digital signature", "server auth"),
        ),
    )
    thief = node(name, agent)
    async with started(mesos.config()) as provider:
        answer = await one(provider, thief)
        seen = Observed(read(request.spec.request), thief, Ownership.YES, answer)
        decided = plan(request, seen, None, datetime.now(UTC))
    assert decided is not None
    assert decided.patch is None
    assert "the cloud calls the machine" in decided.refusal


@pytest.mark.parametrize("status", [Status.UNREACHABLE, Status.REMOVED])
async def test_a_node_without_a_provider_id_is_not_gone_while_an_agent_is_unreachable(
    mesos: Cluster, status: Status
) -> None:
    """Masters list none that they do not reach; with `--delete-nodes-by-name` its Node went."""
    agent = mesos.world.add("N1")
    mesos.world.add("n2")
    found = []
    async with started(mesos.config()) as provider:
        await one(provider, node("n1"))
        agent.status = status
        found.append(await one(provider, node("n1")))
    async with started(mesos.config()) as provider:
        found.append(await one(provider, node("n1")))
        agent.status = Status.UNREACHABLE
        found.append(await one(provider, node("n1")))
    expected = CloudError if status is Status.UNREACHABLE else NotFound
    assert [type(answer) for answer in found] == [expected, expected, CloudError]


async def test_nor_is_one_whose_machine_is_down_for_maintenance_or_has_just_been(
    mesos: Cluster,
) -> None:
    agent = mesos.world.add("n1")
    async with started(mesos.config()) as provider:
        await one(provider, node("n1"))
        mesos.world.take_down(agent, 3600)
        assert "maintenance" in str(await one(provider, node("n1")))
        async with started(mesos.config()) as another:
            assert "maintenance" in str(await one(another, node("n1")))
        mesos.world.maintenance.clear()
        for _ in range(2):
            assert "may still run" in str(await one(provider, node("n1")))
        agent.status = Status.CONNECTED
        await one(provider, node("n1"))
        agent.status = Status.REMOVED
        assert await one(provider, node("n1")) == NotFound()
        mesos.fail("registry", 503)
        assert isinstance(await one(provider, node("n1")), CloudError)


async def test_a_new_node_waits_for_its_agent(mesos: Cluster) -> None:
    new = objects.node("n1", taints=(Taint(TAINT_UNINITIALIZED, "NoSchedule"),))
    async with started(mesos.config()) as provider:
        mesos.forget_calls()
        assert await one(provider, new) == NotFound()
        assert mesos.calls == {"GET_AGENTS": 1}
        agent = mesos.world.add("n1")
        found = await one(provider, new)
    assert isinstance(found, Instance)
    assert found.provider_id == f"mesos://{agent.id}"


async def test_a_new_node_of_an_unreachable_agent_is_not_initialised(mesos: Cluster) -> None:
    agent = mesos.world.add("n1")
    agent.status = Status.UNREACHABLE
    taints = (Taint(TAINT_UNINITIALIZED, "NoSchedule"),)
    async with started(mesos.config()) as provider:
        found = await one(provider, objects.node("n1", f"mesos://{agent.id}", taints=taints))
    assert isinstance(found, CloudError)


async def test_a_new_node_whose_agent_has_not_come_back_waits_for_its_address(
    mesos: Cluster,
) -> None:
    """Else it would get none, for its kubelet need not report any."""
    mesos.world.add("n1").status = Status.RECOVERED
    taints = (Taint(TAINT_UNINITIALIZED, "NoSchedule"),)
    async with started(mesos.config()) as provider:
        found = await one(provider, objects.node("n1", taints=taints))
    assert isinstance(found, CloudError)


CACHED = "state-cache-ttl = 1h"


async def test_a_list_serves_as_long_as_the_cloud_config_says(mesos: Cluster) -> None:
    agent = mesos.world.add("n1")
    config = mesos.config().replace("state-cache-ttl = 0s", CACHED)
    async with started(config) as provider:
        mesos.forget_calls()
        await describe(provider, node("n1", agent))
        assert mesos.calls == {}
        # But nothing is gone, or not there yet, by an old list.
        agent.status = Status.REMOVED
        mesos.world.add("n2")
        found = await describe(provider, node("n1", agent), node("n2"))
        assert found["n1"] == NotFound()
        assert isinstance(found["n2"], Instance)


@pytest.mark.parametrize("failure", [LOST, HANGS, 503])
async def test_what_fails_while_absence_is_proved_proves_nothing(
    mesos: Cluster, failure: int
) -> None:
    agent = mesos.world.add("n1")
    agent.status = Status.REMOVED
    async with started(mesos.config("http-client-timeout = 200ms")) as provider:
        mesos.fail("GET_MASTER", failure, times=2)
        assert isinstance(await one(provider, node("n1", agent)), CloudError)


@pytest.mark.parametrize(
    ("provider_id", "expected"),
    [
        ("", Ownership.UNKNOWN),
        ("mesos://3669ea3d-c3d1-4b1e-8ba1-9a5c0e2b3b4f-S0", Ownership.YES),
        ("mesos://20150106-162714-3815890698-5050-2453-S2", Ownership.YES),
        ("mesos://", Ownership.NO),
        ("mesos://n1", Ownership.NO),
        ("mesos:///a-S0", Ownership.NO),
        ("aws:///a/i-S0", Ownership.NO),
        ("3669ea3d-S0", Ownership.NO),
    ],
)
async def test_whose_a_provider_id_is(
    mesos: Cluster, provider_id: str, expected: Ownership
) -> None:
    async with started(mesos.config()) as provider:
        assert provider.instances is not None
        of = node("n1", provider_id)
        assert provider.instances.owns(of) is expected
        if expected is Ownership.NO:
            assert isinstance(await one(provider, of), InvalidRequest)


async def test_nodes_that_fail_leave_others_alone(mesos: Cluster) -> None:
    mesos.world.add("n1")
    mesos.world.add("n2")
    mesos.world.add("n2")
    async with started(mesos.config()) as provider:
        found: Mapping[str, object] = await describe(
            provider, node("n1"), node("n2"), node("n3", "gce://x")
        )
    assert isinstance(found["n1"], Instance)
    assert isinstance(found["n2"], IdentityConflict)
    assert isinstance(found["n3"], InvalidRequest)


async def test_a_machine_that_was_down_while_others_were_asked_about_is_not_gone(
    mesos: Cluster,
) -> None:
    """Its kubelet is Ready meanwhile, and silent once the machine restarts at the end."""
    agent, other = mesos.world.add("n1"), mesos.world.add("n2")
    nodes = node("n1", agent), node("n2", other)
    async with started(mesos.config()) as provider:
        await describe(provider, *nodes)
        mesos.world.take_down(agent, 3600)
        other.status = Status.REMOVED
        await describe(provider, nodes[1])
        mesos.world.maintenance.clear()
        found = await one(provider, nodes[0])
    assert "may still run" in str(found), found
