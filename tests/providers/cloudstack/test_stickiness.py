"""Session affinity by CloudStack: stickiness policies of load balancer rules."""

from typing import Any

import pytest

from proreus.cloudprovider import Done
from proreus.kube.objects import ClientIPConfig, SessionAffinityConfig

from .emulator.server import LOST, Emulator
from .emulator.world import Json
from .lb_site import HTTP, HTTPS, NAME, UID, LBSite, lb_site

READ = "listLBStickinessPolicies"


def sticky(seconds: int) -> dict[str, Any]:
    config = SessionAffinityConfig(ClientIPConfig(seconds))
    return {"session_affinity": "ClientIP", "session_affinity_config": config}


def policies(site: LBSite) -> dict[str, Json]:
    """The policies by their rules' names."""
    rules = site.world.rules
    return {rules[one["lbruleid"]]["name"]: one for one in site.world.policies.values()}


async def test_client_ip_binds_clients_for_the_time_that_the_service_asks_for(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired(HTTP, HTTPS, **sticky(600)))
        made = policies(site)
        assert made.keys() == {f"{NAME}-tcp-80", f"{NAME}-tcp-443"}
        for one in made.values():
            assert one["methodname"] == "SourceBased"
            assert one["params"] == {"expire": "600s"}
            assert UID in one["description"]
        # The official manager knows the algorithm alone.
        assert {one["algorithm"] for one in site.rules().values()} == {"source"}


async def test_a_changed_time_makes_the_policy_anew_and_leaves_the_rule(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired(**sticky(600)))
        rules = set(site.world.rules)
        told = await site.preview(site.desired(**sticky(30)))
        assert [(one.action, one.part.split()[0]) for one in told] == [
            ("delete", "stickiness"), ("create", "stickiness"),
        ]  # fmt: skip
        await site.made(site.desired(**sticky(30)))
        assert set(site.world.rules) == rules
        ((_, policy),) = policies(site).items()
        assert policy["params"] == {"expire": "30s"}


async def test_without_affinity_no_policy_is_left_and_none_is_asked_for(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired(**sticky(600)))
        await site.made(site.desired())
        assert not site.world.policies
        assert {one["algorithm"] for one in site.rules().values()} == {"roundrobin"}
        emulator.calls.clear()
        await site.made(site.desired())
        assert not emulator.calls[READ]


async def test_at_rest_the_policies_of_each_rule_are_read_and_nothing_is_written(
    emulator: Emulator,
) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired(**sticky(600)))
        emulator.calls.clear()
        await site.made(site.desired(**sticky(600)))
    assert emulator.calls[READ] == 1
    assert all(command.startswith("list") for command in emulator.calls)


async def test_a_policy_that_somebody_else_has_made_is_left_alone(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired())
        ((rule, _),) = site.world.rules.items()
        theirs = {"id": site.world.new_id(), "lbruleid": rule, "methodname": "LbCookie"}
        site.world.policies[theirs["id"]] = {**theirs, "name": "mine", "params": {}}
        for wanted in (sticky(600), {}):
            await site.made(site.desired(**wanted))
            assert site.world.policies.keys() == {theirs["id"]}


async def test_the_official_managers_rule_gets_the_policy_in_place(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        ip = site.give("203.0.113.7")
        rule = site.official_rule(ip, f"{NAME}-tcp-80", 80, 30080, algorithm="source")
        await site.made(site.desired(shown="203.0.113.7", **sticky(600)))
        assert site.world.rules.keys() == {rule}
        assert policies(site).keys() == {f"{NAME}-tcp-80"}


@pytest.mark.parametrize(
    "methods",
    [
        "[]",
        '[{"methodname":"SourceBased","paramlist":[{"paramname":"holdtime"}]}]',
        "no JSON",
    ],
)
async def test_where_the_network_has_no_such_method_the_algorithm_serves_alone(
    emulator: Emulator, methods: str
) -> None:
    async with lb_site(emulator) as site:
        capability = [{"name": "SupportedStickinessMethods", "value": methods}]
        services = [{"name": "Lb", "capability": capability}, {"name": "Firewall"}]
        site.world.networks[site.network]["service"] = services
        await site.made(site.desired(**sticky(600)))
        assert {one["algorithm"] for one in site.rules().values()} == {"source"}
        assert not site.world.policies
        assert not emulator.calls[READ]


async def test_an_answer_that_is_lost_leaves_one_policy(emulator: Emulator) -> None:
    async with lb_site(emulator) as site:
        await site.made(site.desired())
        emulator.fail("createLBStickinessPolicy", LOST, after_effect=True)
        assert isinstance(await site.ensure(site.desired(**sticky(600))), Exception)
        await site.made(site.desired(**sticky(600)))
        assert len(site.world.policies) == 1


async def test_policies_go_with_their_rules(emulator: Emulator) -> None:
    emulator.world.works = 0.05
    async with lb_site(emulator) as site:
        desired = site.desired(**sticky(600))
        await site.made(desired)
        assert isinstance(await site.deleted(desired), Done)
        assert not site.world.policies
        assert site.is_empty()
