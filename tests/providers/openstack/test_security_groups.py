"""Security groups of Services on the wire: made, followed, repaired, and taken away."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from proreus.cloudprovider import Ensured, InvalidRequest, OwnedObject, Pending
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.load_balancers import Done
from proreus.kube.objects import ServicePort

from .balancing import SUBNET, SUBNET_V6, Balancing, known
from .groups_wire import GroupsWire
from .wire import CLUSTER, Json, neutron, said, served, started, uuid

CIDR, CIDR_V6 = "10.0.0.0/16", "2001:db8::/64"
NAME = "lb-sg-uid-web-shop-web"
HTTP = ("IPv4", "tcp", 30080, CIDR)
WRITES = ("_create", "_update", "_delete", "_tag")


class Guarded(Balancing):
    """The cloud with two hosts, and groups."""

    def __init__(self) -> None:
        super().__init__()
        self.wire.good_tokens.add("token-2")
        for subnet, cidr in ((SUBNET, CIDR), (SUBNET_V6, CIDR_V6)):
            self.octavia.subnets[subnet]["cidr"] = cidr

    @property
    def groups(self) -> GroupsWire:
        return self.octavia.groups

    def text(self, *, managed: bool = True, more: str = "") -> str:
        value = str(managed).lower()
        return self.wire.config(
            sections=f"[LoadBalancer]\nmanage-security-groups = {value}\n{more}"
        )

    def attached(self) -> dict[str, list[str]]:
        """The groups of each port: by the name for ours."""
        names = {id_: one["name"] for id_, one in self.groups.of.items()}
        names[uuid(1000)] = "default"
        return {
            port["id"]: [names.get(one, one) for one in port["security_groups"]]
            for port in self.wire.ports
        }

    def written(self) -> list[str]:
        return sorted(name for name in self.wire.asked if name.endswith(WRITES))


@pytest.fixture
async def site() -> AsyncIterator[Guarded]:
    made = Guarded()
    async with served(made.wire):
        yield made


async def test_load_balancers_are_let_in_at_the_ports_of_hosts_and_nowhere_else(
    site: Guarded,
) -> None:
    async with started(site.text()) as provider:
        assert isinstance(await site.ensure(provider, site.service()), Ensured)
        assert provider.load_balancers is not None
        owned = await provider.load_balancers.list_owned(CLUSTER)
    made = site.groups.only()
    assert made["name"] == NAME
    assert "proreus/service-uid=uid-web" in made["tags"]
    assert site.groups.lets_in() == {HTTP}
    assert site.attached() == {"p-1": ["default", NAME], "p-2": ["default", NAME]}
    assert OwnedObject("security group", made["id"], "shop/web", "uid-web") in owned


async def test_what_is_as_desired_costs_two_reads_and_no_write(site: Guarded) -> None:
    async with started(site.text()) as provider:
        made = await site.ensure(provider, site.service())
        service = known(site.service(), *(one.ip for one in made.ingress))
        site.wire.asked.clear()
        await site.ensure(provider, service)
    assert site.written() == []
    assert site.wire.asked["security_group_list"] == site.wire.asked["port_list"] == 1
    assert site.wire.asked["subnet_get"] == 0


async def test_both_families_are_let_in_by_one_group(site: Guarded) -> None:
    dual = site.service(ip_families=("IPv4", "IPv6"))
    async with started(site.text()) as provider:
        await site.ensure(provider, dual)
        assert site.groups.lets_in() == {HTTP, ("IPv6", "tcp", 30080, CIDR_V6)}
        await site.ensure(provider, site.service())
    assert site.groups.lets_in() == {HTTP}


async def test_the_group_follows_ports_and_hosts(site: Guarded) -> None:
    dns = ServicePort(53, "dns", protocol="UDP", node_port=30053)
    async with started(site.text()) as provider:
        await site.ensure(provider, site.service())
        await site.ensure(provider, site.service(ports=(dns,)), nodes=1)
        assert site.groups.lets_in() == {("IPv4", "udp", 30053, CIDR)}
        assert site.attached() == {"p-1": ["default", NAME], "p-2": ["default"]}
        site.wire.asked.clear()
        await site.ensure(provider, site.service(ports=(dns,)))
    assert site.attached() == {"p-1": ["default", NAME], "p-2": ["default", NAME]}
    assert site.wire.asked["port_update"] == 1


async def test_clients_of_ovn_come_with_their_own_addresses(site: Guarded) -> None:
    service = site.service(load_balancer_source_ranges=("192.0.2.0/24",))
    async with started(site.text(more="lb-provider = ovn\n")) as provider:
        await site.ensure(provider, service)
    assert site.groups.lets_in() == {("IPv4", "tcp", 30080, "192.0.2.0/24")}


async def test_a_group_of_the_official_manager_is_taken_over(site: Guarded) -> None:
    old = site.groups.add(NAME)
    site.groups.add_rule(old, protocol="tcp", port_range_min=30080, port_range_max=30080,
                         remote_ip_prefix=CIDR)  # fmt: skip
    kept = old["security_group_rules"][-1]["id"]
    site.wire.port("p-1")["security_groups"] = [uuid(1000), old["id"]]
    async with started(site.text()) as provider:
        await site.ensure(provider, site.service())
    assert site.groups.only()["id"] == old["id"]
    assert [one["id"] for one in old["security_group_rules"]] == [kept]
    assert site.attached() == {"p-1": ["default", NAME], "p-2": ["default", NAME]}
    assert site.wire.asked["security_group_rule_create"] == 0


async def test_a_group_of_another_cluster_is_left_alone(site: Guarded) -> None:
    """Of which this one is a copy, so that its Services have the same uids."""
    other = site.groups.add(NAME, tags=["proreus/cluster-uid=another"])
    before = dict(other)
    async with started(site.text()) as provider:
        await site.ensure(provider, site.service())
        assert len(site.groups.of) == 2
        assert isinstance(await site.delete(provider, site.service()), Done)
    assert site.groups.only() == before


async def test_a_second_group_of_the_name_goes(site: Guarded) -> None:
    """It was made by a request that had no answer."""
    async with started(site.text()) as provider:
        await site.ensure(provider, site.service())
        first = site.groups.only()["id"]
        twin = site.groups.add(NAME)
        site.wire.port("p-1")["security_groups"].append(twin["id"])
        await site.ensure(provider, site.service())
    assert site.groups.only()["id"] == first
    assert site.attached() == {"p-1": ["default", NAME], "p-2": ["default", NAME]}


async def test_a_neutron_without_tags_is_no_hindrance(site: Guarded) -> None:
    site.groups.has_tags = False
    async with started(site.text()) as provider:
        assert isinstance(await site.ensure(provider, site.service()), Ensured)
        assert provider.load_balancers is not None
        owned = await provider.load_balancers.list_owned(CLUSTER)
        assert {one.kind for one in owned} == {"load balancer"}
        assert isinstance(await site.delete(provider, site.service()), Done)
    assert site.groups.of == {}


async def test_a_port_that_somebody_else_changes_meanwhile_is_asked_about_again(
    site: Guarded,
) -> None:
    site.wire.fail("port_update", neutron(412, "RevisionNumberConstraintFailed", "changed"))
    async with started(site.text()) as provider:
        assert isinstance(await site.ensure(provider, site.service()), Ensured)
    assert site.attached() == {"p-1": ["default", NAME], "p-2": ["default", NAME]}
    assert site.wire.asked["port_update"] == 3


async def test_rules_that_came_meanwhile_are_no_error(site: Guarded) -> None:
    dns = ServicePort(53, "dns", protocol="UDP", node_port=30053)
    both = site.service(ports=(dns, *site.service().spec.ports))
    site.wire.fail("security_group_rule_create", neutron(409, "SecurityGroupRuleExists", "there"))
    async with started(site.text()) as provider:
        assert isinstance(await site.ensure(provider, both), Ensured)
    assert site.groups.lets_in() == {HTTP, ("IPv4", "udp", 30053, CIDR)}


async def test_a_full_quota_is_reported_and_nothing_that_is_open_is_closed(site: Guarded) -> None:
    moved = site.service(ports=(ServicePort(80, "http", node_port=31111),))
    full = neutron(409, "OverQuota", "Quota exceeded for resources: ['security_group_rule'].")
    async with started(site.text()) as provider:
        await site.ensure(provider, site.service())
        site.wire.fail("security_group_rule_create", full)
        told = await site.ensure(provider, moved)
    assert isinstance(told, CloudError)
    assert "security_group_rule" in str(told)
    assert site.groups.lets_in() == {HTTP}


async def test_a_project_without_room_for_a_group_is_reported(site: Guarded) -> None:
    site.groups.most = 0
    async with started(site.text()) as provider:
        told = await site.ensure(provider, site.service())
    assert isinstance(told, CloudError)
    assert "OverQuota" in str(told)


async def test_a_port_without_port_security_is_left_alone(site: Guarded) -> None:
    site.wire.port("p-1").update(port_security_enabled=False, security_groups=[])
    async with started(site.text()) as provider:
        assert isinstance(await site.ensure(provider, site.service()), Ensured)
    assert site.attached() == {"p-1": [], "p-2": ["default", NAME]}


async def test_one_port_that_fails_does_not_keep_the_group_from_others(site: Guarded) -> None:
    site.wire.fail("port_update", neutron(409, "SecurityGroupConflict", "not stateful"))
    async with started(site.text()) as provider:
        told = await site.ensure(provider, site.service())
    assert isinstance(told, CloudError)
    assert sorted(map(len, site.attached().values())) == [1, 2]


async def test_the_group_goes_with_the_service_though_the_load_balancer_is_gone(
    site: Guarded,
) -> None:
    async with started(site.text()) as provider:
        await site.ensure(provider, site.service())
        site.octavia.remove(site.octavia.only("loadbalancers")["id"])
        assert await site.delete(provider, site.service()) == Done(found=False)
    assert site.groups.of == {}
    assert site.attached() == {"p-1": ["default"], "p-2": ["default"]}


async def test_a_group_in_use_is_tried_again(site: Guarded) -> None:
    async with started(site.text()) as provider:
        await site.ensure(provider, site.service())
        site.octavia.remove(site.octavia.only("loadbalancers")["id"])
        site.wire.fail("security_group_delete", neutron(409, "SecurityGroupInUse", "in use"))
        assert provider.load_balancers is not None
        ref = site.desired(provider, site.service()).ref
        floating_first = await provider.load_balancers.delete([ref])
        assert isinstance(floating_first[ref.uid], Pending)
        assert isinstance(await site.delete(provider, site.service()), Done)
    assert site.groups.of == {}


async def test_groups_are_deleted_when_they_are_no_longer_managed(site: Guarded) -> None:
    others = site.groups.add("mine")
    async with started(site.text()) as provider:
        await site.ensure(provider, site.service())
    async with started(site.text(managed=False)) as provider:
        assert isinstance(await site.ensure(provider, site.service()), Ensured)
        assert site.groups.only() is others
        site.wire.asked.clear()
        assert isinstance(await site.ensure(provider, site.service()), Ensured)
    assert site.wire.asked["security_group_list"] == 0
    assert site.attached() == {"p-1": ["default"], "p-2": ["default"]}


async def test_a_neutron_without_security_groups_is_no_hindrance(site: Guarded) -> None:
    site.groups.is_there = False
    async with started(site.text(managed=False)) as provider:
        assert isinstance(await site.ensure(provider, site.service()), Ensured)
        assert isinstance(await site.delete(provider, site.service()), Done)


@pytest.mark.parametrize("answer", [{}, {"message": "no such page"}])
async def test_a_404_that_is_not_neutrons_is_no_absence(site: Guarded, answer: Json) -> None:
    async with started(site.text()) as provider:
        await site.ensure(provider, site.service())
        site.octavia.remove(site.octavia.only("loadbalancers")["id"])
        site.wire.fail("security_group_list", said(404, answer))
        assert isinstance(await site.delete(provider, site.service()), CloudError)
        assert isinstance(await site.delete(provider, site.service()), Done)
    assert site.groups.of == {}


async def test_an_unknown_subnet_is_requested_in_the_error(site: Guarded) -> None:
    async with started(site.text()) as provider:
        await site.ensure(provider, site.service())
        site.octavia.only("loadbalancers")["vip_subnet_id"] = None
        told: Any = await site.ensure(provider, site.service())
    assert isinstance(told, InvalidRequest)
    assert "member-subnet-id" in str(told)


async def test_lost_answers_leave_neither_two_groups_nor_a_closed_port(site: Guarded) -> None:
    operations = (
        "security_group_list", "security_group_create", "security_group_tag",
        "security_group_rule_create", "security_group_rule_delete", "port_list", "port_update",
        "subnet_get",
    )  # fmt: skip
    async with started(site.text()) as provider:
        await site.ensure(provider, site.service())
        site.groups.remove(site.groups.only()["id"])
    for operation in operations:
        site.wire.fail(operation, web.Response(status=502, text="<html>"))
    async with started(site.text()) as provider:
        answers = [await site.ensure(provider, site.service()) for _ in operations]
        answers.append(await site.ensure(provider, site.service()))
    assert not any(site.wire.failures.values())
    assert isinstance(answers[-1], Ensured)
    assert site.groups.lets_in() == {HTTP}
    assert site.attached() == {"p-1": ["default", NAME], "p-2": ["default", NAME]}
