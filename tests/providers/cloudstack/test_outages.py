"""What a Service has outlives half lists, failures in the middle, and moves of others."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from proreus.cloudprovider.errors import CloudError, InvalidRequest, Throttled
from proreus.cloudprovider.identity import MARK_SERVICE_UID
from proreus.cloudprovider.load_balancers import LoadBalancer, Pending

from .emulator.commands import _COMMANDS
from .emulator.refusals import Refusal
from .emulator.server import LOST, Emulator
from .emulator.world import World
from .lb_site import HTTP, HTTPS, NAME, UID, LBSite, lb_site
from .site import started
from .test_load_balancers import forwarded

JOB = "queryAsyncJobResult"
OTHER_UID = "5e000000-0000-4000-8000-0000000000b2"


@pytest.mark.parametrize("vpc", [False, True])
async def test_rules_stay_in_their_network_while_a_list_shows_only_hosts_of_another(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, *, vpc: bool
) -> None:
    async with lb_site(emulator, vpc=vpc) as site:
        far = site.world.add_machines(["far"], site.world.add_network(vpc=vpc))
        (point,) = (await site.made(site.desired())).ingress
        desired = site.desired(ids=[*site.machines, *far], shown=point.ip)
        rules = dict(site.world.rules)
    answered = emulator._answer

    def hiding(command: str, parameters: Any) -> dict[str, Any]:
        found = answered(command, parameters)
        if command == "listVirtualMachines":
            found["virtualmachine"] = [one for one in found["virtualmachine"] if one["id"] in far]
            found["count"] = 1
        return found

    monkeypatch.setattr(emulator, "_answer", hiding)
    async with started(emulator) as site.provider:
        answer = await site.made(desired)
    assert answer.ingress == (point,)
    assert answer.rejected.keys() == {"node-3"}
    assert site.world.rules.keys() == rules.keys()
    assert site.rules()[f"{NAME}-tcp-80"]["members"] == set(site.machines)


async def test_rules_outlive_the_last_host_of_their_network(emulator: Emulator) -> None:
    """An address of an isolated network cannot go with them into another one."""
    async with lb_site(emulator) as site:
        far = site.world.add_machines(["far"], site.world.add_network())
        (point,) = (await site.made(site.desired())).ingress
        refused = await site.settled(site.desired(ids=far, shown=point.ip))
        assert isinstance(refused, CloudError)
        assert set(site.rules()) == {f"{NAME}-tcp-80"}
        (again,) = (await site.made(site.desired(ids=[*far, *site.machines]))).ingress
        assert again == point


@pytest.mark.parametrize(
    ("what", "fields", "is_kept"),
    [
        ("as it was", {}, True),
        ("released", {"state": "Free"}, False),
        ("of one machine now", {"isstaticnat": True}, False),
        ("of another network now", {"associatednetworkid": UID}, False),
    ],
)
async def test_a_service_keeps_an_address_that_it_does_not_name_any_more(
    emulator: Emulator, what: str, fields: dict[str, Any], *, is_kept: bool
) -> None:
    """Its only rule has gone, and the next one could not be made."""
    async with lb_site(emulator) as site:
        id_ = site.give("203.0.113.7")
        await site.made(site.desired(load_balancer_ip="203.0.113.7"))
        desired = site.desired(HTTPS, shown="203.0.113.7", mode="Proxy")
        emulator.fail("createLoadBalancerRule")
        assert isinstance(await site.settled(desired), CloudError)
        assert not site.rules()
        site.world.ips[id_] |= fields
        new = [line.part for line in await site.preview(desired) if line.action == "create"]
        assert (new[0] == f"rule {NAME}-tcp-443") is is_kept, what


async def test_an_address_of_the_status_on_which_others_have_rules_now_is_left_to_them(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        site.give("203.0.113.7")
        theirs = site.desired(uid=OTHER_UID, namespace="bank", load_balancer_ip="203.0.113.7")
        await site.made(theirs)
        lines = await site.preview(site.desired(HTTPS, shown="203.0.113.7", mode="Proxy"))
        assert lines[0].part == "public address 203.0.113.1"


@pytest.mark.parametrize("asked", [{}, {"proxy-protocol": "true"}])
@pytest.mark.parametrize("use", ["official rules", "port forwarding", "nothing yet"])
async def test_an_address_that_was_acquired_for_a_service_is_theirs_who_acquire_it_next(
    emulator: Emulator, use: str, asked: dict[str, str]
) -> None:
    """Somebody has released it by hand, and the Service never named it; its status shows it."""
    async with lb_site(emulator) as site:
        (point,) = (await site.made(site.desired(asked=asked))).ingress
        site.world.release(site.address(point.ip)["id"])
        theirs = site.give(point.ip)
        if use == "official rules":
            site.official_rule(theirs, f"a{'0' * 31}-tcp-8080", 8080, 30090)
        elif use == "port forwarding":
            forwarded(site, theirs)
        rules, firewall = dict(site.world.rules), dict(site.world.firewall)
        next_ = site.desired(asked=asked, shown=point.ip, mode=point.ip_mode)
        (again,) = (await site.made(next_)).ingress
        assert again.ip != point.ip
        there = {id_ for id_, one in site.world.rules.items() if one["publicip"] == point.ip}
        assert there == rules.keys()
        assert firewall.items() <= site.world.firewall.items()
        assert not site.world.tags.get(("PublicIpAddress", theirs))


@pytest.mark.parametrize("named", ["", "203.0.113.7"])
async def test_an_address_that_is_a_machines_by_now_is_shown_no_more_by_who_had_it(
    emulator: Emulator, named: str
) -> None:
    """Nodes would lead that one's clients here: it takes no rule, and static NAT no load balancer.

    Somebody has deleted the rules by hand before.
    """
    async with lb_site(emulator) as site:
        (point,) = (await site.made(site.desired(load_balancer_ip=named))).ingress
        moved = site.desired(shown=point.ip, load_balancer_ip=named)
        site.world.rules.clear()
        site.world.firewall.clear()
        emulator.fail("createLoadBalancerRule")
        kept = await site.settled(moved)
        assert isinstance(kept, CloudError)
        assert not kept.disowns
        site.world.ips[site.address(point.ip)["id"]]["isstaticnat"] = True
        emulator.fail("associateIpAddress", times=100)
        left = (await site.answers(moved))[-1]
        assert isinstance(left, CloudError)
        assert left.disowns
        emulator.failures.clear()
        (again,) = (await site.made(site.desired())).ingress
        assert again.ip != point.ip
        assert site.allocated() == {point.ip, again.ip}
        assert not site.world.tags.get(("PublicIpAddress", site.address(point.ip)["id"]))


async def test_what_is_in_the_former_project_keeps_a_service_that_has_more_in_the_next(
    emulator: Emulator,
) -> None:
    project = emulator.world.add_project("shop")
    async with lb_site(emulator) as site:
        made = site.desired()
        await site.made(made)
        async with lb_site(emulator, owner=project) as moved:
            await moved.made(moved.desired())
            answer = await moved.deleted(moved.desired())
            assert isinstance(answer, CloudError)
            assert "is in the account main" in str(answer)


def acquired_by_hand(site: LBSite) -> tuple[str, str]:
    """Somebody acquires the first address that was asked for; the address and its id."""
    log = site.emulator.log
    address = next(one["ipaddress"] for name, one in log if name == "associateIpAddress")
    return address, site.give(address)


async def check_it_is_theirs(site: LBSite, desired: LoadBalancer, address: str, id_: str) -> None:
    """The Service is made with the address only if it names it, and never marks it as its own."""
    (point,) = (await site.made(desired)).ingress
    assert (point.ip == address) is bool(desired.requested_address)
    assert not site.world.tags.get(("PublicIpAddress", id_))


async def check_it_goes_to_who_acquires_it(site: LBSite, desired: LoadBalancer) -> None:
    """By hand, after a job that was to acquire it for the Service has failed unheard."""
    address, id_ = acquired_by_hand(site)
    assert isinstance(await site.settled(desired), CloudError)
    await check_it_is_theirs(site, desired, address, id_)
    await site.deleted(desired)
    assert site.allocated() == {address}


def failing_late(site: LBSite) -> Any:
    """Jobs of CloudStack of which one that acquires an address fails, and frees it, after a while."""
    work = site.world.work

    def begun(command: str, effect: Any, **told: Any) -> Any:
        if command != "associateIpAddress":
            return work(command, effect, **told)

        def refuse() -> None:
            site.world.release(told["id"])
            raise Refusal(530, "Failed to assign IP address")

        site.world.works = 1.2
        answer = work(command, refuse, **told)
        site.world.works = 0.0
        return answer

    return begun


@pytest.mark.parametrize("asked", ["", "203.0.113.7"])
@pytest.mark.parametrize("is_made", [True, False])
@pytest.mark.parametrize("is_throttled", [True, False])
async def test_an_address_that_a_slow_job_failed_to_acquire_is_whose_acquires_it_next(
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    *,
    is_made: bool,
    is_throttled: bool,
) -> None:
    """Somebody has acquired it by hand, and has made nothing of it yet."""
    async with lb_site(emulator) as site:
        desired = site.desired(load_balancer_ip=asked)
        if is_throttled:
            emulator.fail("deleteTags", 429, "too many requests, retry after [10] ms")
        with monkeypatch.context() as patched:
            patched.setattr(site.world, "work", failing_late(site))
            assert isinstance(await site.settled(desired), CloudError)
        address, id_ = acquired_by_hand(site)
        if is_made:
            await check_it_is_theirs(site, desired, address, id_)
        await site.deleted(desired)
        assert site.allocated() == {address}
        assert not any(site.world.tags.values())


@pytest.mark.parametrize("asked", ["", "203.0.113.7"])
@pytest.mark.parametrize("code", [429, 432, 531])
@pytest.mark.parametrize("is_throttled", [True, False])
async def test_an_address_that_the_role_may_not_acquire_is_whose_acquires_it_by_hand(
    emulator: Emulator, asked: str, code: int, *, is_throttled: bool
) -> None:
    """An administrator acquires it, for the Service that names it or for something else."""
    async with lb_site(emulator) as site:
        desired = site.desired(load_balancer_ip=asked)
        emulator.fail("associateIpAddress", code, "not available, retry after [10] ms")
        if is_throttled:
            emulator.fail("deleteTags", 429, "too many requests, retry after [10] ms")
        assert isinstance(await site.settled(desired), CloudError)
        address, id_ = acquired_by_hand(site)
        await check_it_is_theirs(site, desired, address, id_)
        await site.deleted(desired)
        assert site.allocated() == {address}


@pytest.mark.parametrize("asked", ["", "203.0.113.7"])
async def test_a_job_that_could_not_be_asked_for_once_is_asked_for_again(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """It fails then, and somebody acquires the address by hand."""
    async with lb_site(emulator) as site:
        desired = site.desired(load_balancer_ip=asked)
        with monkeypatch.context() as patched:
            patched.setattr(site.world, "work", failing_late(site))
            assert isinstance(await site.ensure(desired), Pending)
            emulator.fail(JOB, 429, "retry after [1] ms", times=4)
            assert isinstance(await site.ensure(desired), Throttled)
            await asyncio.sleep(1.3)
            site.world.advance()
        await check_it_goes_to_who_acquires_it(site, desired)


@pytest.mark.parametrize("asked", ["", "203.0.113.7"])
async def test_a_job_for_which_a_verb_had_no_time_left_is_asked_for_again(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """It fails then, and somebody acquires the address by hand."""
    async with lb_site(emulator) as site:
        desired = site.desired(load_balancer_ip=asked)
        with monkeypatch.context() as patched:
            patched.setattr(site.world, "work", failing_late(site))
            verb = asyncio.create_task(site.ensure(desired))
            while [name for name, _ in emulator.log[-2:]] != ["associateIpAddress", JOB]:
                await asyncio.sleep(0.01)
            verb.cancel()
            with pytest.raises(asyncio.CancelledError):
                await verb
            await asyncio.sleep(1.3)
            site.world.advance()
        await check_it_goes_to_who_acquires_it(site, desired)


async def test_an_address_is_the_service_s_although_nobody_may_ask_whether_it_was_acquired(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lb_site(emulator) as site:
        work = site.world.work

        def silenced(command: str, effect: Any, **told: Any) -> Any:
            if command == "associateIpAddress":
                emulator.fail(JOB, 432, "not available for the account")
            return work(command, effect, **told)

        with monkeypatch.context() as patched:
            patched.setattr(site.world, "work", silenced)
            assert isinstance(await site.settled(site.desired()), CloudError)
        (point,) = (await site.made(site.desired())).ingress
        marks = site.world.tags["PublicIpAddress", site.address(point.ip)["id"]]
        assert marks[MARK_SERVICE_UID] == UID
        await site.deleted(site.desired())
        assert site.is_empty()


@pytest.mark.parametrize("is_deleted", [False, True], ids=["changed", "deleted"])
async def test_a_rule_that_cannot_go_closes_no_port_that_another_service_has_there_by_then(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, *, is_deleted: bool
) -> None:
    """CloudStack gives a port away as soon as the deletion of its rule has begun."""
    async with lb_site(emulator) as site:
        ip, work = "203.0.113.7", site.world.work
        site.give(ip)
        await site.made(site.desired(HTTP, HTTPS, load_balancer_ip=ip))
        left = site.desired(HTTPS, load_balancer_ip=ip, shown=ip)

        def failing(command: str, effect: Any, **told: Any) -> Any:
            def refuse() -> None:
                raise Refusal(530, "Unable to find a running virtual router for the network")

            return work(command, refuse if command == "deleteLoadBalancerRule" else effect, **told)

        monkeypatch.setattr(site.world, "work", failing)
        leave = site.deleted if is_deleted else site.settled
        assert isinstance(await leave(left), CloudError)
        theirs = site.desired(uid=OTHER_UID, namespace="bank", load_balancer_ip=ip)
        await site.made(theirs)
        opened = [one for one in site.world.firewall.values() if one["startport"] == 80]
        assert len(opened) == 1
        monkeypatch.setattr(site.world, "work", work)
        await leave(left)
        assert [one for one in site.world.firewall.values() if one["startport"] == 80] == opened
        assert set(site.rules()) == {
            f"{theirs.ref.name}-tcp-80",
            *(() if is_deleted else (f"{NAME}-tcp-443",)),
        }


@pytest.mark.parametrize("names_another", [True, False])
async def test_a_refused_service_claims_no_address_that_was_not_acquired_for_it(
    emulator: Emulator, *, names_another: bool
) -> None:
    """The request for it had no answer, and no effect; days later somebody acquires it by hand."""
    async with lb_site(emulator) as site:
        ip = "203.0.113.7"
        desired = refused = site.desired(load_balancer_ip=ip)
        emulator.fail("associateIpAddress", LOST)
        assert isinstance(await site.settled(desired), CloudError)
        assert any(site.world.tags.values())
        if names_another:
            refused = site.desired(load_balancer_ip="198.51.100.1")
        else:
            site.give(ip, associatednetworkid=site.world.add_network())
        for _ in range(2):
            assert isinstance(await site.settled(refused), InvalidRequest)
        assert not any(site.world.tags.values())
        site.world.release(site.address(ip)["id"])
        theirs = site.give(ip)
        if not names_another:
            await check_it_is_theirs(site, desired, ip, theirs)
        await site.deleted(refused)
        assert site.allocated() == {ip}


async def test_a_refused_service_claims_an_address_as_long_as_it_is_being_acquired(
    emulator: Emulator,
) -> None:
    """No answer came, and it belongs to no network yet; it would be left behind without a claim."""
    async with lb_site(emulator) as site:
        ip = "203.0.113.7"
        desired = site.desired(load_balancer_ip=ip)
        emulator.fail("associateIpAddress", LOST)
        assert isinstance(await site.settled(desired), CloudError)
        acquired = site.address(ip)
        acquired |= {"state": "Allocating", "allocated": "2026"}
        refused = site.desired(load_balancer_ip="198.51.100.1")
        for _ in range(2):
            assert isinstance(await site.settled(refused), InvalidRequest)
        site.give(ip)
        await site.deleted(refused)
        assert not site.allocated()


@pytest.mark.parametrize("named", ["", "203.0.113.7"])
async def test_the_address_that_cloudstack_says_to_have_acquired_is_shown(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """Before 4.14 none can be named (apache/cloudstack, pull request 3775): any is acquired."""
    associate = _COMMANDS["associateIpAddress"]

    def any_one(world: World, asked: Mapping[str, str]) -> Any:
        return associate(world, {key: one for key, one in asked.items() if key != "ipaddress"})

    monkeypatch.setitem(cast("Any", _COMMANDS), "associateIpAddress", any_one)
    async with lb_site(emulator) as site:
        for uid in (UID, OTHER_UID):
            before = site.allocated()
            desired = site.desired(uid=uid, load_balancer_ip=named)
            (point,) = (await site.made(desired)).ingress
            assert before | {point.ip} == site.allocated() > before
        assert not any("proreus/claim" in str(one) for one in site.world.tags.values())
