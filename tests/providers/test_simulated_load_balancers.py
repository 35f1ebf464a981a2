"""Load balancers of the provider `simulated`: convergence, crashes, deletion, no stray calls."""

import socket
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import MARK_SERVICE_UID
from proreus.cloudprovider.load_balancers import Done, Ensured, Host, LoadBalancer, Pending
from proreus.kube.objects import PortStatus
from proreus.providers.simulated.load_balancers import SimulatedLoadBalancers
from proreus.testing.simulated import Fault, FaultMode, SimulatedCloudProcess

from .simulated_site import CLUSTER, Killed, Mortal, desired_lb, machines, provider, service


@pytest.fixture
async def balancers(cloud: SimulatedCloudProcess) -> AsyncIterator[SimulatedLoadBalancers]:
    started = await provider(cloud)
    assert isinstance(started.load_balancers, SimulatedLoadBalancers)
    yield started.load_balancers
    await started.close()


async def ensured(balancers: SimulatedLoadBalancers, desired: LoadBalancer) -> Ensured:
    answer = (await balancers.ensure([desired]))[desired.ref.uid]
    assert isinstance(answer, Ensured), answer
    return answer


async def deleted(balancers: SimulatedLoadBalancers, desired: LoadBalancer) -> None:
    (answer,) = (await balancers.delete([desired.ref])).values()
    assert isinstance(answer, Done), answer


def writes(counts: dict[str, int]) -> dict[str, int]:
    reads = {"resources.list", "instances.batch_get"}
    return {operation: count for operation, count in counts.items() if operation not in reads}


async def test_a_service_gets_all_its_parts_and_then_costs_one_read(
    cloud: SimulatedCloudProcess, balancers: SimulatedLoadBalancers
) -> None:
    desired = desired_lb(
        await cloud.admin.create(machines(3)),
        service("web", ("TCP", 80, 30080), ("UDP", 53, 30053)),
    )
    answer = await ensured(balancers, desired)
    (address,) = await cloud.admin.parts("address")
    assert [(one.ip, one.ip_mode, one.ports) for one in answer.ingress] == [
        (address["address"], "Proxy", ())
    ]
    assert answer.rejected == {}
    (balancer,) = await cloud.admin.parts("load_balancer")
    assert len(balancer["targets"]) == 3
    assert balancer["health_check"] == {"port": 10256, "path": "/healthz"}
    listeners = await cloud.admin.parts("listener")
    assert {(one["protocol"], one["port"], one["target_port"]) for one in listeners} == {
        ("TCP", 80, 30080),
        ("UDP", 53, 30053),
    }
    (firewall,) = await cloud.admin.parts("firewall")
    assert firewall["source_ranges"] == ["0.0.0.0/0"]
    assert all(
        part["tags"][MARK_SERVICE_UID] == desired.ref.uid for part in await cloud.admin.parts()
    )
    await cloud.admin.clear_calls()
    assert await ensured(balancers, desired) == answer
    assert await cloud.admin.counts() == {"resources.list": 1}


async def test_changed_hosts_cost_one_read_and_only_the_difference(
    cloud: SimulatedCloudProcess, balancers: SimulatedLoadBalancers
) -> None:
    created = await cloud.admin.create(machines(4))
    await ensured(balancers, desired_lb(created[:3]))
    await cloud.admin.clear_calls()
    desired = desired_lb(created[1:])
    await balancers.update_hosts([desired])
    assert await cloud.admin.counts() == {
        "resources.list": 1,
        "load_balancers.add_targets": 1,
        "load_balancers.remove_targets": 1,
    }
    (balancer,) = await cloud.admin.parts("load_balancer")
    assert {t["instance_id"] for t in balancer["targets"]} == {one.id for one in created[1:]}


async def test_a_changed_service_changes_its_parts_in_place(
    cloud: SimulatedCloudProcess, balancers: SimulatedLoadBalancers
) -> None:
    first = await ensured(balancers, desired_lb((), service("web", ("TCP", 80, 1), ("TCP", 81, 2))))
    changed = service(
        "web",
        ("TCP", 80, 3),
        ("TCP", 82, 4),
        load_balancer_source_ranges=("10.0.0.0/8",),
        session_affinity="ClientIP",
        external_traffic_policy="Local",
        health_check_node_port=31000,
    )
    await cloud.admin.clear_calls()
    assert (await ensured(balancers, desired_lb((), changed))).ingress == first.ingress
    assert writes(await cloud.admin.counts()) == {
        "load_balancers.update": 1,
        "firewalls.update": 1,
        "listeners.update": 1,
        "listeners.delete": 1,
        "listeners.create": 1,
    }
    (balancer,) = await cloud.admin.parts("load_balancer")
    assert balancer["affinity_seconds"] == 10800
    assert balancer["health_check"] == {"port": 31000, "path": "/healthz"}
    await cloud.admin.clear_calls()
    await ensured(balancers, desired_lb((), changed))
    assert writes(await cloud.admin.counts()) == {}


async def test_deletion_leaves_nothing_and_can_be_repeated(
    cloud: SimulatedCloudProcess, balancers: SimulatedLoadBalancers
) -> None:
    desired = desired_lb(await cloud.admin.create(machines(2)))
    other = desired_lb((), service("other", number=2))
    await ensured(balancers, desired)
    await ensured(balancers, other)
    await deleted(balancers, desired)
    assert {part["tags"][MARK_SERVICE_UID] for part in await cloud.admin.parts()} == {other.ref.uid}
    assert await balancers.delete([desired.ref]) == {desired.ref.uid: Done(found=False)}


async def test_a_provisioning_load_balancer_is_pending_then_ensured(
    cloud: SimulatedCloudProcess, balancers: SimulatedLoadBalancers
) -> None:
    await cloud.admin.configure(provision_delay=0.3)
    desired = desired_lb(await cloud.admin.create(machines(1)))
    answer = (await balancers.ensure([desired]))[desired.ref.uid]
    assert isinstance(answer, Pending)
    assert answer.ingress == ()
    while isinstance(answer, Pending):
        answer = (await balancers.ensure([desired]))[desired.ref.uid]
    assert isinstance(answer, Ensured)
    counts = writes(await cloud.admin.counts())
    assert set(counts.values()) == {1}, "waiting costs reads only"


async def test_hosts_that_cannot_be_targets_are_rejected_and_block_nobody(
    cloud: SimulatedCloudProcess, balancers: SimulatedLoadBalancers
) -> None:
    good, gone = await cloud.admin.create(machines(2))
    await cloud.admin.delete(gone.id)
    desired = desired_lb([good, gone])
    strangers = (
        Host("foreign", "aws:///i-1", {"IPv4": ("10.0.0.1",)}),
        Host("bare", f"simulated://sim-1/{good.id}"),
    )
    desired = msgspec.structs.replace(desired, hosts=(*desired.hosts, *strangers))
    answer = await ensured(balancers, desired)
    assert set(answer.rejected) == {"node-1", "foreign", "bare"}
    assert answer.rejected["node-1"] == "no such instance"
    (balancer,) = await cloud.admin.parts("load_balancer")
    assert [t["instance_id"] for t in balancer["targets"]] == [good.id]


async def test_two_services_never_share_a_part(
    cloud: SimulatedCloudProcess, balancers: SimulatedLoadBalancers
) -> None:
    desired = [desired_lb((), service(f"s{n}", number=n)) for n in range(5)]
    answers = await balancers.ensure(desired)
    ips = {a.ingress[0].ip for a in answers.values() if isinstance(a, Ensured)}
    assert len(ips) == 5
    assert len(await cloud.admin.parts("load_balancer")) == 5
    assert len({balancers.group(one.ref) for one in desired}) == 5


async def test_one_failing_member_does_not_fail_the_others(
    balancers: SimulatedLoadBalancers,
) -> None:
    bad = desired_lb((), service("bad", ("SCTP", 80, 1), ("TCP", 81, 0), number=1))
    good = desired_lb((), service("good", number=2))
    answers = await balancers.ensure([bad, good])
    refused = answers[bad.ref.uid]
    assert isinstance(refused, InvalidRequest)
    assert "SCTP" in str(refused)
    assert "81/TCP" in str(refused)
    assert isinstance(answers[good.ref.uid], Ensured)


async def test_a_requested_address_is_given_or_refused_by_its_field(
    cloud: SimulatedCloudProcess, balancers: SimulatedLoadBalancers
) -> None:
    first = await ensured(balancers, desired_lb((), service("one", number=1)))
    ip = first.ingress[0].ip
    free = ip.rpartition(".")[0] + ".77"
    desired = desired_lb((), service("two", number=2, load_balancer_ip=free))
    assert (await ensured(balancers, desired)).ingress[0].ip == free
    for impossible, may_be_free_later in ((ip, True), ("192.0.2.1", False)):
        moved = desired_lb((), service("two", number=2, load_balancer_ip=impossible))
        answer = (await balancers.ensure([moved]))[moved.ref.uid]
        assert isinstance(answer, CloudError)
        assert isinstance(answer, InvalidRequest) is not may_be_free_later
        assert "loadBalancerIP" in str(answer)
    assert (await ensured(balancers, desired)).ingress[0].ip == free, "nothing was taken down"
    elsewhere = ip.rpartition(".")[0] + ".78"
    moved = desired_lb((), service("two", number=2, load_balancer_ip=elsewhere))
    assert (await ensured(balancers, moved)).ingress[0].ip == elsewhere
    addresses = [part["address"] for part in await cloud.admin.parts("address")]
    assert sorted(addresses) == sorted([ip, elsewhere]), "the old address was given back"


async def test_a_port_that_cannot_be_bound_is_reported_by_port_and_tried_again(
    cloud: SimulatedCloudProcess, balancers: SimulatedLoadBalancers
) -> None:
    before = await ensured(balancers, desired_lb())
    ip = before.ingress[0].ip
    two = desired_lb((), service("web", ("TCP", 80, 30080), ("TCP", 8081, 30081)))
    with socket.socket() as taken:
        taken.bind((ip, 8081))
        taken.listen()
        answer = await ensured(balancers, two)
        assert answer.ingress[0].ports == (
            PortStatus(80, "TCP"),
            PortStatus(8081, "TCP", "simulated/ListenerFailed"),
        )
        only = desired_lb((), service("web", ("TCP", 8081, 30081)))
        failed = (await balancers.ensure([only]))[only.ref.uid]
        assert isinstance(failed, CloudError)
        assert "8081" in str(failed)
    assert (await ensured(balancers, two)).ingress[0].ports == ()


@pytest.mark.parametrize("kind", ["address", "load_balancer", "listener", "firewall"])
async def test_what_somebody_else_deletes_is_made_again(
    cloud: SimulatedCloudProcess, balancers: SimulatedLoadBalancers, kind: str
) -> None:
    desired = desired_lb(await cloud.admin.create(machines(1)))
    await ensured(balancers, desired)
    (part,) = await cloud.admin.parts(kind)
    await cloud.admin.remove(part["id"])
    await ensured(balancers, desired)
    kinds = sorted(one["kind"] for one in await cloud.admin.parts())
    assert kinds == ["address", "firewall", "listener", "load_balancer"]
    await deleted(balancers, desired)
    assert await cloud.admin.parts() == []


async def test_an_object_of_our_name_without_our_marks_is_left_alone(
    cloud: SimulatedCloudProcess, balancers: SimulatedLoadBalancers
) -> None:
    desired = desired_lb()
    headers = {"Authorization": f"Bearer {cloud.token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        body = {"name": desired.ref.name, "tags": {"proreus/cluster": CLUSTER.name}}
        await session.post(f"{cloud.endpoint}/v1/addresses", json=body)
    answer = (await balancers.ensure([desired]))[desired.ref.uid]
    assert isinstance(answer, CloudError)
    assert "NameTaken" in str(answer)
    await deleted(balancers, desired)
    assert len(await cloud.admin.parts()) == 1


async def test_late_lists_neither_double_nor_leak(
    cloud: SimulatedCloudProcess, balancers: SimulatedLoadBalancers
) -> None:
    await cloud.admin.configure(list_lag=3600, unique_names=False)
    desired = desired_lb()
    first = await ensured(balancers, desired)
    assert await ensured(balancers, desired) == first
    assert len(await cloud.admin.parts()) == 4
    await deleted(balancers, desired)
    assert await cloud.admin.parts() == []
    await deleted(balancers, desired)


async def test_doubles_are_cleared_away(
    cloud: SimulatedCloudProcess, balancers: SimulatedLoadBalancers
) -> None:
    await cloud.admin.configure(unique_names=False)
    desired = desired_lb()
    before = await ensured(balancers, desired)
    headers = {"Authorization": f"Bearer {cloud.token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        body = {"name": desired.ref.name, "tags": dict(desired.marks)}
        await session.post(f"{cloud.endpoint}/v1/addresses", json=body)
    assert len(await cloud.admin.parts("address")) == 2
    assert await ensured(balancers, desired) == before
    assert len(await cloud.admin.parts("address")) == 1


async def test_list_owned_shows_a_fingerprint_equal_to_that_of_the_desired(
    cloud: SimulatedCloudProcess, balancers: SimulatedLoadBalancers
) -> None:
    created = await cloud.admin.create(machines(2))
    desired = desired_lb(created, service("web", ("TCP", 443, 2), ("TCP", 80, 1)))
    await ensured(balancers, desired)
    found = await balancers.list_owned(CLUSTER)
    assert sorted(one.kind for one in found) == [
        "address",
        "firewall",
        "listener",
        "listener",
        "load_balancer",
    ]
    assert {(one.service, one.service_uid) for one in found} == {("default/web", desired.ref.uid)}
    (seen,) = [one.fingerprint for one in found if one.kind == "load_balancer"]
    assert seen == balancers.fingerprint(desired) != balancers.fingerprint(desired_lb(created[:1]))
    (firewall,) = await cloud.admin.parts("firewall")
    await cloud.admin.remove(firewall["id"])
    found = await balancers.list_owned(CLUSTER)
    assert seen not in {one.fingerprint for one in found}


@pytest.mark.parametrize("before_effect", [True, False], ids=["before", "after"])
async def test_death_at_any_call_of_ensure_leaves_nothing_that_delete_cannot_find(
    cloud: SimulatedCloudProcess, *, before_effect: bool
) -> None:
    desired = desired_lb(
        await cloud.admin.create(machines(2)),
        service("web", ("TCP", 80, 30080), ("TCP", 81, 30081)),
    )
    calls = await calls_of_ensure(cloud, desired)
    assert calls >= 7
    for number in range(1, calls + 1):
        await die(cloud, desired, number, "ensure", before_effect=before_effect)
        reborn = await provider(cloud)
        assert isinstance(reborn.load_balancers, SimulatedLoadBalancers)
        await deleted(reborn.load_balancers, desired)
        assert await cloud.admin.parts() == [], f"a leak after death at call {number}"
        await reborn.close()


@pytest.mark.parametrize("before_effect", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("verb", ["ensure", "delete"])
async def test_death_at_any_call_is_healed_by_the_next_ensure(
    cloud: SimulatedCloudProcess, verb: str, *, before_effect: bool
) -> None:
    desired = desired_lb(await cloud.admin.create(machines(2)))
    number, died = 0, True
    while died:
        number += 1
        if verb == "delete":
            await calls_of_ensure(cloud, desired, clean=False)
        died = await die(cloud, desired, number, verb, before_effect=before_effect)
        await calls_of_ensure(cloud, desired, clean=False)
        kinds = sorted(part["kind"] for part in await cloud.admin.parts())
        assert kinds == ["address", "firewall", "listener", "load_balancer"]
        reborn = await provider(cloud)
        assert isinstance(reborn.load_balancers, SimulatedLoadBalancers)
        await deleted(reborn.load_balancers, desired)
        await reborn.close()
    assert number > 5


@pytest.mark.parametrize("mode", [FaultMode.CUT_BEFORE, FaultMode.CUT_AFTER, FaultMode.ERROR])
@pytest.mark.parametrize(
    "operation",
    ["addresses.create", "load_balancers.create", "listeners.create", "firewalls.create"],
)
async def test_a_lost_answer_is_an_error_once_and_no_double(
    cloud: SimulatedCloudProcess,
    balancers: SimulatedLoadBalancers,
    mode: FaultMode,
    operation: str,
) -> None:
    await cloud.admin.configure(unique_names=False)
    await cloud.admin.inject(Fault(mode=mode, operation=operation))
    desired = desired_lb()
    assert isinstance((await balancers.ensure([desired]))[desired.ref.uid], CloudError)
    await ensured(balancers, desired)
    assert len(await cloud.admin.parts()) == 4


async def calls_of_ensure(
    cloud: SimulatedCloudProcess, desired: LoadBalancer, *, clean: bool = True
) -> int:
    """How many calls an undisturbed ensure makes."""
    seen = Mortal()
    started = await provider(cloud, seen)
    assert isinstance(started.load_balancers, SimulatedLoadBalancers)
    await ensured(started.load_balancers, desired)
    calls = len(seen.calls)
    if clean:
        await deleted(started.load_balancers, desired)
    await started.close()
    return calls


async def die(
    cloud: SimulatedCloudProcess,
    desired: LoadBalancer,
    number: int,
    verb: str,
    *,
    before_effect: bool,
) -> bool:
    """Run the verb in a provider that dies at its call `number`; whether it came so far."""
    doomed = await provider(cloud, Mortal(number, before_effect=before_effect))
    assert doomed.load_balancers is not None
    try:
        if verb == "ensure":
            await doomed.load_balancers.ensure([desired])
        else:
            await doomed.load_balancers.delete([desired.ref])
    except Killed:
        return True
    finally:
        await doomed.close()
    return False
