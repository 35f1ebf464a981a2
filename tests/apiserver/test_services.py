"""Load balancers of Services: what users see in the API server, and what is in the cloud."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from proreus.kube.objects import Service
from proreus.testing.controlplane import ControlPlane
from proreus.testing.simulated import Fault, FaultMode
from proreus.testing.waiting import until

from .service_site import (
    FINALIZER,
    ServiceSite,
    answers,
    ask,
    kind,
    port,
    refuses,
    said,
    service_site,
    written_at,
)

MAKING = {
    "resources.list": 1,
    "addresses.create": 1,
    "load_balancers.create": 1,
    "firewalls.create": 1,
    "listeners.create": 1,
    "load_balancers.add_targets": 1,
}
"""What a new load balancer with one port costs."""

UNMAKING = {
    "resources.list": 2,
    "listeners.delete": 1,
    "firewalls.delete": 1,
    "load_balancers.delete": 1,
    "addresses.delete": 1,
}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ServiceSite]:
    async with service_site(control_plane, tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="module")
async def site(shared: ServiceSite) -> AsyncIterator[ServiceSite]:
    """A site with two nodes that tests leave as they are."""
    await shared.mark()
    yield shared
    await shared.tidy()


async def test_a_service_gets_a_load_balancer_that_works(site: ServiceSite) -> None:
    name = await site.create()

    address = await site.ready(name)

    assert await answers(address) in {"node-1", "node-2"}
    service = await site.get(name)
    assert FINALIZER in service.metadata.finalizers
    assert said(service) == ("True", "Ensured", "Ensured load balancer")
    (point,) = service.status.load_balancer.ingress
    assert (point.ip, point.ip_mode, point.hostname) == (address, "Proxy", "")
    assert await site.calls() == MAKING
    assert await site.hosts(service) == {"node-1", "node-2"}
    assert await site.events(service, settle="EnsuredLoadBalancer") == [
        ("Normal", "EnsuringLoadBalancer"),
        ("Normal", "EnsuredLoadBalancer"),
    ]


async def test_there_is_one_write_before_the_first_call_and_one_after_the_last(
    site: ServiceSite,
) -> None:
    name = await site.create()
    service = await site.when_said(name, "Ensured")
    await site.events(service, settle="EnsuredLoadBalancer")

    before, after = await site.when_written(name, 2)

    times = [call.time for call in await site.cloud.admin.calls()]
    assert {kind(before), kind(after)} == {("patch", "status", 200)}
    assert written_at(before) < min(times) <= max(times) < written_at(after)


async def test_edited_ports_are_followed_and_keep_the_address(site: ServiceSite) -> None:
    name = await site.create()
    address = await site.ready(name)
    await answers(address)
    await site.mark()

    await site.edit(name, spec={"ports": [port(80), port(8081)]})
    await answers(address, 8081)
    await site.edit(name, spec={"ports": [port(8081)]})
    await refuses(address, 80)

    assert await answers(address, 8081)
    service = await site.when_said(name, "Ensured")
    assert service.status.load_balancer.ingress[0].ip == address
    listeners = [one for one in await site.parts(service) if one["kind"] == "listener"]
    assert [one["port"] for one in listeners] == [8081]
    assert await site.calls() == {
        "resources.list": 2,
        "listeners.create": 1,
        "listeners.delete": 1,
    }
    assert site.writes(name) == []  # it was ready, and is


async def test_an_edit_is_reported_by_an_event_each_time(site: ServiceSite) -> None:
    name = await site.create()
    address = await site.ready(name)

    for number in (81, 82):
        await site.edit(name, spec={"ports": [port(number)]})
        await answers(address, number)

    service = await site.get(name)

    async def told() -> bool:
        found = await site.events(service)
        return found.count(("Normal", "EnsuredLoadBalancer")) == 3

    await until("three events", told)
    assert set(await site.events(service)) == {
        ("Normal", "EnsuringLoadBalancer"),
        ("Normal", "EnsuredLoadBalancer"),
    }


async def test_source_ranges_are_enforced(site: ServiceSite) -> None:
    inside, outside = "127.9.9.9", "127.8.8.8"
    name = await site.create()
    address = await site.ready(name)
    assert await answers(address, source=outside)

    await site.edit(name, spec={"loadBalancerSourceRanges": ["127.9.0.0/16"]})
    await refuses(address, source=outside)
    assert await answers(address, source=inside)

    key = "service.beta.kubernetes.io/load-balancer-source-ranges"
    await site.edit(
        name,
        spec={"loadBalancerSourceRanges": None},
        metadata={"annotations": {key: "127.8.0.0/16"}},
    )
    assert await answers(address, source=outside)
    assert not await ask(address, source=inside)

    await site.edit(name, metadata={"annotations": {key: None}})
    assert await answers(address, source=inside)


async def test_another_type_takes_the_load_balancer_away_and_back_again(site: ServiceSite) -> None:
    name = await site.create()
    first = await site.ready(name)
    await answers(first)
    service = await site.get(name)

    await site.edit(name, spec={"type": "ClusterIP"})
    plain = await site.when(name, lambda one: FINALIZER not in one.metadata.finalizers)

    assert plain.status.load_balancer.ingress == ()
    assert said(plain) == ("", "", "")
    assert await site.is_empty()
    assert not await ask(first)
    assert (await site.events(service, settle="DeletedLoadBalancer"))[2:] == [
        ("Normal", "DeletingLoadBalancer"),
        ("Normal", "DeletedLoadBalancer"),
    ]

    await site.mark()
    await site.edit(name, spec={"type": "LoadBalancer"})
    second = await site.ready(name)
    assert await answers(second)
    assert await site.calls() == MAKING


async def test_a_deleted_service_leaves_nothing(site: ServiceSite) -> None:
    name = await site.create()
    address = await site.ready(name)
    await answers(address)
    service = await site.get(name)
    await site.mark()

    await site.delete(name)
    await site.gone(name)

    assert await site.is_empty()
    assert not await ask(address)
    assert await site.calls() == UNMAKING
    assert [kind(one) for one in await site.when_written(name, 1)] == [("patch", "status", 200)]
    assert (await site.events(service, settle="DeletedLoadBalancer"))[-2:] == [
        ("Normal", "DeletingLoadBalancer"),
        ("Normal", "DeletedLoadBalancer"),
    ]


async def test_what_a_load_balancer_is_not_made_from_costs_nothing(site: ServiceSite) -> None:
    name, other = await site.create(), await site.create()
    await site.ready(name)
    address = await site.ready(other)
    await site.mark()

    await site.edit(name, metadata={"labels": {"a": "b"}})
    await site.edit(name, metadata={"labels": {"a": None, "c": "d"}})
    # What comes behind it has been worked off, so the labels have been, too.
    await site.edit(other, spec={"ports": [port(81)]})
    await answers(address, 81)

    assert await site.calls() == {
        "resources.list": 1,
        "listeners.create": 1,
        "listeners.delete": 1,
    }
    assert site.writes() == []


async def test_an_edit_that_changes_nothing_in_the_cloud_costs_one_read(site: ServiceSite) -> None:
    name = await site.create()
    await site.ready(name)
    await site.mark()

    await site.edit(name, metadata={"annotations": {"example.com/unknown": "x"}})

    async def looked() -> bool:
        return bool(await site.calls())

    await until("the cloud is looked at", looked)
    await site.events(await site.get(name), settle="EnsuredLoadBalancer")
    assert await site.calls() == {"resources.list": 1}
    assert site.writes(name) == []


async def test_a_restart_reads_once_and_writes_nothing(site: ServiceSite) -> None:
    names = [await site.create() for _ in range(3)]
    services = [await site.when_said(name, "Ensured") for name in names]
    for service in services:
        await site.events(service, settle="EnsuredLoadBalancer")
    await site.mark()

    await site.restart()

    async def looked() -> bool:
        return bool(await site.calls())

    await until("the load balancers are looked at", looked)
    fence = await site.create()
    await site.when_said(fence, "Ensured")
    assert await site.calls() == {**MAKING, "resources.list": 2}  # one for all, one for the new
    assert {one.object_ref.name for one in site.writes()} == {fence}
    assert [len(await site.events(one)) for one in services] == [2, 2, 2]


async def test_a_class_is_somebody_elses(site: ServiceSite) -> None:
    theirs = await site.create(loadBalancerClass="example.com/other")
    ours = await site.create()

    await site.ready(ours)

    service = await site.get(theirs)
    assert service.metadata.finalizers == ()
    assert said(service) == ("", "", "")
    assert await site.parts(service) == []
    assert await site.calls() == MAKING
    assert site.writes(theirs) == []
    await site.delete(theirs)
    assert await site.find(theirs) is None


async def test_a_class_can_be_owned_by_flag(site: ServiceSite) -> None:
    flags = site.manager.flags
    await site.restart(
        "--load-balancer-classes=example.com/ours", "--classless-load-balancers=false"
    )
    try:
        classless = await site.create()
        ours = await site.create(loadBalancerClass="example.com/ours")

        address = await site.ready(ours)

        assert await answers(address)
        assert (await site.get(classless)).metadata.finalizers == ()
        await site.delete(ours)
        await site.gone(ours)
        assert await site.is_empty()
        await site.delete(classless)
    finally:
        site.manager.flags = flags
        await site.restart()


async def test_local_traffic_is_checked_at_its_own_port(site: ServiceSite) -> None:
    await site.cloud.admin.configure(health_interval=0.2)
    name = await site.create(externalTrafficPolicy="Local")
    address = await site.ready(name)
    service = await site.get(name)

    check = (await site.part(service, "load_balancer"))["health_check"]
    assert check == {"port": service.spec.health_check_node_port, "path": "/healthz"}
    assert await answers(address)

    await site.edit(name, spec={"externalTrafficPolicy": "Cluster"})

    async def is_kube_proxys() -> bool:
        balancer = await site.part(service, "load_balancer")
        return bool(balancer["health_check"] == {"port": 10256, "path": "/healthz"})

    await until("kube-proxy is asked", is_kube_proxys)
    assert await answers(address)


async def test_a_slow_cloud_is_pending_and_no_warning(site: ServiceSite) -> None:
    await site.cloud.admin.configure(provision_delay=2.5)
    name = await site.create()

    pending = await site.when_said(name, "Provisioning", "provisioning")
    assert said(pending)[0] == "False"
    assert pending.status.load_balancer.ingress == ()
    address = await site.ready(name)

    assert await answers(address)
    events = await site.events(pending, settle="EnsuredLoadBalancer")
    assert {kind for kind, _ in events} == {"Normal"}
    assert events[0] == ("Normal", "EnsuringLoadBalancer")
    assert events[-1] == ("Normal", "EnsuredLoadBalancer")
    assert (await site.calls())["load_balancers.create"] == 1


async def test_a_failing_cloud_is_reported_once_and_recovers(site: ServiceSite) -> None:
    await site.cloud.admin.inject(
        Fault(FaultMode.ERROR, operation="load_balancers.create", count=2)
    )
    name = await site.create()

    failed = await site.when_said(name, "CloudError", "injected failure")
    assert said(failed)[0] == "False"
    assert FINALIZER in failed.metadata.finalizers
    address = await site.ready(name)  # after the second failure, too

    assert await answers(address)
    events = await site.events(failed, settle="EnsuredLoadBalancer")
    assert events == [
        ("Normal", "EnsuringLoadBalancer"),
        ("Warning", "SyncLoadBalancerFailed"),
        ("Normal", "EnsuredLoadBalancer"),
    ]
    assert len(await site.when_written(name, 3)) == 3  # nothing for the second failure


async def test_a_throttling_cloud_is_called_again_at_the_time_it_gave(site: ServiceSite) -> None:
    await site.cloud.admin.inject(
        Fault(FaultMode.THROTTLE, operation="addresses.create", count=1, retry_after=2)
    )
    name = await site.create()

    failed = await site.when_said(name, "Throttled", "injected throttling")
    address = await site.ready(name)

    assert await answers(address)
    events = await site.events(failed, settle="EnsuredLoadBalancer")
    assert events.count(("Warning", "SyncLoadBalancerFailed")) == 1
    tries = [
        call for call in await site.cloud.admin.calls() if call.operation == "addresses.create"
    ]
    assert [call.status for call in tries] == [429, 201]
    assert tries[1].time - tries[0].time >= 2
    await site.restart()  # the next test's manager knows of no quota


async def test_a_cloud_that_hangs_is_a_timeout(site: ServiceSite) -> None:
    other = await site.create()
    beside = await site.ready(other)
    await site.cloud.admin.inject(Fault(FaultMode.HANG, operation="load_balancers.create", count=1))
    name = await site.create()
    await site.when_said(name, "Provisioning")

    await site.edit(other, spec={"ports": [port(81)]})
    assert await answers(beside, 81)  # nobody waits for it
    await site.when_said(name, "CallTimeout")
    address = await site.ready(name)

    assert await answers(address)
    events = await site.events(await site.get(name), settle="EnsuredLoadBalancer")
    assert events.count(("Warning", "SyncLoadBalancerFailed")) == 1


async def test_a_cut_answer_makes_no_second_load_balancer(site: ServiceSite) -> None:
    await site.cloud.admin.inject(
        Fault(FaultMode.CUT_AFTER, operation="load_balancers.create", count=1)
    )
    name = await site.create()

    await site.when_said(name, "CloudError")
    address = await site.ready(name)

    assert await answers(address)
    assert len(await site.cloud.admin.parts("load_balancer")) == 1
    assert len(await site.cloud.admin.parts("address")) == 1


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (
            {"ports": [port(80), port(81, protocol="SCTP")]},
            "spec.ports 81/SCTP: the simulated cloud forwards only TCP and UDP",
        ),
        (
            {"allocateLoadBalancerNodePorts": False},
            "spec.ports 80/TCP: it has no node port: set spec.allocateLoadBalancerNodePorts to true",
        ),
        ({"loadBalancerIP": "192.0.2.1"}, "spec.loadBalancerIP"),
        ({"ipFamilies": ["IPv6"]}, "spec.ipFamilies is IPv6"),
    ],
    ids=["protocol", "node-port", "address", "family"],
)
async def test_what_cannot_be_is_named_once_and_a_correction_helps(
    site: ServiceSite, spec: dict[str, Any], named: str
) -> None:
    name = await site.create(**spec)

    refused = await site.when_said(name, "InvalidRequest", named)

    events = await site.events(refused, settle="SyncLoadBalancerFailed")
    assert events.count(("Warning", "SyncLoadBalancerFailed")) == 1
    if "ipFamilies" not in spec:  # those are immutable
        await site.edit(
            name,
            spec={
                "ports": [port(80)],
                "allocateLoadBalancerNodePorts": True,
                "loadBalancerIP": None,
            },
        )
        assert await answers(await site.ready(name))
    await site.delete(name)
    await site.gone(name)
    assert await site.is_empty()


async def test_both_protocols_on_one_port(site: ServiceSite) -> None:
    ports = [port(80), {**port(80), "name": "udp", "protocol": "UDP"}]
    name = await site.create(ports=ports)

    assert await answers(await site.ready(name))

    parts = await site.parts(await site.get(name))
    assert {(p["protocol"], p["port"]) for p in parts if p["kind"] == "listener"} == {
        ("TCP", 80),
        ("UDP", 80),
    }


async def test_a_finalizer_that_a_user_takes_away_comes_back(site: ServiceSite) -> None:
    name = await site.create()
    await site.ready(name)

    await site.edit(name, metadata={"finalizers": None})

    await site.when(name, lambda one: FINALIZER in one.metadata.finalizers, "has its finalizer")
    assert await answers(await site.ready(name))


async def test_a_status_that_a_user_wipes_is_repaired(site: ServiceSite) -> None:
    name = await site.create()
    address = await site.ready(name)
    await site.mark()

    await site.wipe(name, "/status/loadBalancer/ingress", "/status/conditions")

    assert await site.ready(name) == address
    assert "load_balancers.create" not in await site.calls()


async def test_a_service_deleted_without_its_finalizer_leaves_nothing(site: ServiceSite) -> None:
    name = await site.create()
    await site.ready(name)

    await site.delete_by_force(name)

    await until("nothing is left in the cloud", site.is_empty)


async def test_a_service_deleted_while_its_load_balancer_is_pending_leaves_nothing(
    site: ServiceSite,
) -> None:
    await site.cloud.admin.configure(provision_delay=3600)
    name = await site.create()
    await site.when_said(name, "Provisioning", "provisioning")

    await site.delete(name)
    await site.gone(name)

    assert await site.is_empty()


KINDS = ("address", "load_balancer", "firewall", "listener")
MAKING_STEPS = (
    *(f"{step}.create" for step in ("addresses", "load_balancers", "firewalls", "listeners")),
    "load_balancers.add_targets",
)


@pytest.mark.parametrize("mode", [FaultMode.ERROR, FaultMode.CUT_AFTER])
async def test_a_service_deleted_after_a_failure_at_any_step_leaves_nothing(
    site: ServiceSite, mode: FaultMode
) -> None:
    services: list[Service] = []
    for step in MAKING_STEPS:
        await site.cloud.admin.inject(Fault(mode, operation=step, count=0))
        name = await site.create()
        services.append(await site.when_said(name, "CloudError"))
        await site.cloud.admin.clear_faults()
        await site.delete(name)
        await site.gone(name)

        assert await site.is_empty(), step

    for service in services:
        events = await site.events(service, settle="DeletedLoadBalancer")
        assert events.count(("Warning", "SyncLoadBalancerFailed")) == 1


async def test_a_deletion_that_fails_is_reported_and_goes_on(site: ServiceSite) -> None:
    services = {doomed: await site.when_said(await site.create(), "Ensured") for doomed in KINDS}

    for doomed, service in services.items():
        name = service.metadata.name
        part = await site.part(service, doomed)
        fault = Fault(FaultMode.ERROR, operation="*.delete", target=part["id"], count=2)
        await site.cloud.admin.inject(fault)
        await site.delete(name)
        failed = await site.when_said(name, "DeleteCloudError", "injected failure")
        assert FINALIZER in failed.metadata.finalizers

    for service in services.values():
        await site.gone(service.metadata.name)
        events = await site.events(service, settle="DeletedLoadBalancer")
        assert events.count(("Warning", "DeleteLoadBalancerFailed")) == 1
        assert events.count(("Normal", "DeletingLoadBalancer")) == 1
    assert await site.is_empty()


async def test_a_service_made_anew_under_its_name_gets_a_load_balancer_of_its_own(
    site: ServiceSite,
) -> None:
    name = await site.create()
    address = await site.ready(name)
    await answers(address)
    old = await site.get(name)

    await site.delete_by_force(name)
    await site.create(name)
    new = await site.when_said(name, "Ensured")

    assert await answers(new.status.load_balancer.ingress[0].ip)

    async def old_is_gone() -> bool:
        return not await site.parts(old)

    await until("the old parts are gone", old_is_gone)
    kinds = sorted(one["kind"] for one in await site.parts(new))
    assert kinds == ["address", "firewall", "listener", "load_balancer"]


async def test_a_service_edited_while_it_is_made_ends_as_it_was_last_asked_for(
    site: ServiceSite,
) -> None:
    await site.cloud.admin.configure(latency=0.2)
    name = await site.create()
    await site.when_said(name, "Provisioning")
    for number in range(81, 86):
        await site.edit(name, spec={"ports": [port(number)]})
        await asyncio.sleep(0.1)

    address = await site.ready(name)
    assert await answers(address, 85)

    async def is_alone() -> bool:
        parts = await site.parts(await site.get(name))
        return [p["port"] for p in parts if p["kind"] == "listener"] == [85]

    await until("only the last port is left", is_alone)
