"""The emulated NSX manager is as the vendor documents the real one."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from .client import Client, basic, connected
from .emulator.errors import EXHAUSTED, UNKNOWN
from .emulator.limits import LIMITS
from .emulator.schema import MODEL, PREFIX, fields, operations, problems
from .emulator.server import Emulator, Fault, served
from .emulator.world import GATEWAY, POOL, add_pool

Json = dict[str, Any]

TCP = "/infra/lb-app-profiles/default-tcp-lb-app-profile"
UDP = "/infra/lb-app-profiles/default-udp-lb-app-profile"
ALLOCATIONS = f"/infra/ip-pools/{POOL}/ip-allocations"
GROUP = "/infra/domains/default/groups/office"
SERVER: Json = {"ip_address": "10.20.30.1", "ports": ["80"], "application_profile_path": TCP}
MONITOR: Json = {"resource_type": "LBTcpMonitorProfile", "monitor_port": 30080}
ROUTE: Json = {"network": "10.244.1.0/24", "next_hops": [{"ip_address": "192.168.0.11"}]}
TAG: Json = {"scope": "owner", "tag": "us"}


def allocations(number: int) -> str:
    return f"{ALLOCATIONS}/a{number}"


async def realized(client: Client, path: str) -> list[Json]:
    answer = await client.good("GET", "/infra/realized-state/realized-entities", intent_path=path)
    found: list[Json] = answer["results"]
    return found


async def address(client: Client, path: str) -> str:
    (entity,) = await realized(client, path)
    return next(
        (
            one["values"][0]
            for one in entity["extended_attributes"]
            if one["key"] == "allocation_ip"
        ),
        "",
    )


def within(given: Any, found: Any) -> bool:
    """Whether what is given is in what is found, which may have defaults besides."""
    if isinstance(given, dict):
        return all(within(value, found.get(key)) for key, value in given.items())
    if isinstance(given, list):
        return len(given) == len(found) and all(map(within, given, found))
    return bool(given == found)


# Form


async def test_an_object_has_its_defaults_and_what_the_manager_says_of_it(client: Client) -> None:
    made = await client.good(
        "PUT", "/infra/lb-pools/a", {"members": [{"ip_address": "10.0.0.1"}], "tags": [TAG]}
    )
    unique = made["unique_id"]
    times = {made.pop(f"_{one}_time") for one in ("create", "last_modified")}
    assert len(times) == 1
    assert made == {
        "resource_type": "LBPool", "id": "a", "display_name": "a", "tags": [TAG],
        "members": [
            {"ip_address": "10.0.0.1", "admin_state": "ENABLED", "backup_member": False, "weight": 1}
        ],
        "algorithm": "ROUND_ROBIN", "min_active_members": 1, "tcp_multiplexing_enabled": False,
        "tcp_multiplexing_number": 6, "path": "/infra/lb-pools/a", "relative_path": "a",
        "parent_path": "/infra", "remote_path": "", "unique_id": unique, "realization_id": unique,
        "owner_id": made["owner_id"], "marked_for_delete": False, "overridden": False,
        "_system_owned": False, "_protection": "NOT_PROTECTED", "_create_user": "admin",
        "_last_modified_user": "admin", "_revision": 0,
    }  # fmt: skip
    assert await client.good("GET", "/infra/lb-pools/a") == {
        **made, "_create_time": max(times), "_last_modified_time": max(times),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("lb-pools/a", {"member": []}, "member is unknown to LBPool"),
        ("lb-pools/a", {"members": [{"port": "80"}]}, "members[0].ip_address is missing"),
        ("lb-pools/a", {"members": [{"ip_address": "10.0.0.300"}]}, "members[0].ip_address is no ip"),
        ("lb-pools/a", {"members": [{"ip_address": "10.0.0.3", "weight": 0}]}, "less than minimum 1"),
        ("lb-pools/a", {"members": {}}, "members is no list"),
        ("lb-pools/a", {"algorithm": "RANDOM"}, "algorithm must be one of"),
        ("lb-pools/a", {"min_active_members": "1"}, "min_active_members is no integer"),
        ("lb-pools/a", {"min_active_members": True}, "min_active_members is no integer"),
        ("lb-pools/a", {"snat_translation": {"type": "LBSnat"}}, "snat_translation.type must be one of"),
        ("lb-pools/a", {"snat_translation": {"type": "LBSnatIpPool"}}, "ip_addresses is missing"),
        ("lb-pools/a", {"tags": [{"scope": "s" * 129}]}, "tags[0].scope exceeds maximum length 128"),
        ("lb-pools/a", {"tags": [{"tag": "t" * 257}]}, "tags[0].tag exceeds maximum length 256"),
        ("lb-pools/a", {"tags": [TAG] * 31}, "tags is greater than maximum 30"),
        ("lb-pools/a", {"display_name": "d" * 256}, "display_name exceeds maximum length 255"),
        ("lb-pools/a", {"description": "d" * 1025}, "description exceeds maximum length 1024"),
        ("lb-pools/a", {"id": "b"}, "id b is not that of the path"),
        ("lb-pools/a", {"resource_type": "LBService"}, "resource_type must be LBPool"),
        ("lb-virtual-servers/a", {}, "application_profile_path is missing"),
        ("lb-virtual-servers/a", {**SERVER, "ports": ["0"]}, "ports is no port-or-range"),
        ("lb-virtual-servers/a", {**SERVER, "ports": ["90-80"]}, "ports is no port-or-range"),
        ("lb-virtual-servers/a", {**SERVER, "ports": []}, "ports is less than minimum 1"),
        ("lb-virtual-servers/a", {**SERVER, "access_list_control": {}}, "action is missing"),
        ("lb-services/a", {"size": "HUGE"}, "size must be one of"),
        ("lb-monitor-profiles/a", {"monitor_port": 80}, "resource_type must be one of"),
        ("lb-monitor-profiles/a", {**MONITOR, "monitor_port": 65536}, "greater than maximum 65535"),
        ("lb-monitor-profiles/a", {**MONITOR, "resource_type": "LBUdpMonitorProfile"}, "send is missing"),
        (f"ip-pools/{POOL}/ip-allocations/a", {"allocation_ip": "x"}, "allocation_ip is no ip"),
        ("tier-1s/t1/static-routes/a", {"network": "10.0.0.0/8"}, "next_hops is missing"),
        ("tier-1s/t1/static-routes/a", {**ROUTE, "network": "10.0.0.1/8"}, "network is no address"),
        ("tier-1s/t1/static-routes/a", {**ROUTE, "next_hops": []}, "next_hops is less than minimum 1"),
        (
            "domains/default/groups/a",
            {"expression": [{"resource_type": "IPAddressExpression", "ip_addresses": ["x"]}]},
            "expression[0].ip_addresses is no address-or-block-or-range: x",
        ),
    ],
)  # fmt: skip
async def test_a_body_of_another_form_is_refused(
    client: Client, path: str, body: Json, said: str
) -> None:
    for method in ("PUT", "PATCH"):
        status, _, message = await client.bad(method, f"/infra/{path}", body)
        assert status == 400
        assert said in message
    assert (await client.bad("GET", f"/infra/{path}"))[0] == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("lb-monitor-profiles/a", {"resource_type": "LBHttpMonitorProfile", "monitor_port": 30256}),
        ("lb-monitor-profiles/a", {"resource_type": "LBUdpMonitorProfile", "send": "a", "receive": "b"}),
        ("lb-persistence-profiles/a", {"resource_type": "LBSourceIpPersistenceProfile", "timeout": 10800}),
        ("lb-app-profiles/a", {"resource_type": "LBFastTcpProfile", "idle_timeout": 60}),
        ("lb-services/a", {"connectivity_path": GATEWAY, "size": "DLB"}),
        ("lb-pools/a", {"snat_translation": {"type": "LBSnatIpPool", "ip_addresses": [{"ip_address": "10.0.0.1"}]}}),
        ("lb-pools/a", {"snat_translation": {"type": "LBSnatDisabled"}, "description": None}),
        ("lb-pools/a", {"member_group": {"group_path": GROUP, "port": 80}}),
        ("lb-virtual-servers/a", {**SERVER, "ports": ["80-90", "443"], "ip_address": "fd00::1"}),
        (
            "lb-virtual-servers/a",
            {**SERVER, "access_list_control": {"action": "ALLOW", "group_path": GROUP, "enabled": True}},
        ),
        ("segments/a", {"connectivity_path": GATEWAY, "admin_state": "UP"}),
        ("tier-1s/t1/static-routes/fd00:1:2_64", {**ROUTE, "tags": [TAG] * 30}),
    ],
)  # fmt: skip
async def test_a_body_of_the_right_form_is_taken_and_shown_again(
    client: Client, path: str, body: Json
) -> None:
    addresses = ["192.0.2.0/24", "198.51.100.1", "203.0.113.1-203.0.113.9"]
    expression = [{"resource_type": "IPAddressExpression", "ip_addresses": addresses}]
    await client.good("PUT", GROUP, {"expression": expression})
    made = await client.good("PUT", f"/infra/{path}", body)
    assert within(body, made)
    assert await client.good("GET", f"/infra/{path}") == made
    again = await client.good("PUT", f"/infra/{path}", made)
    assert again["_revision"] == 1
    assert within(body, again)


async def test_all_problems_of_a_body_are_told_at_once(client: Client) -> None:
    _, _, message = await client.bad("PUT", "/infra/lb-virtual-servers/a", {"x": 1, "ports": "80"})
    assert message.count(",") == 3


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/infra/lb-pool", 404),
        ("GET", "/infra/lb-pools/a%2Fb", 404),
        ("POST", "/infra/lb-pools/a", 405),
        ("GET", "/infra/lb-pools?colour=red", 400),
        ("GET", "/infra/lb-pools?page_size=1001", 400),
        ("GET", "/infra/lb-pools?page_size=ten", 400),
        ("GET", "/infra/lb-pools?sort_ascending=maybe", 400),
        ("GET", "/infra/realized-state/realized-entities", 400),
        ("GET", "/search/query", 400),
    ],
)
async def test_what_is_no_operation_or_parameter_is_refused(
    client: Client, method: str, path: str, status: int
) -> None:
    assert (await client.send(method, path))[0] == status


# Writing


async def test_a_put_needs_the_current_revision(client: Client) -> None:
    path = "/infra/lb-services/a"
    first = await client.good("PUT", path, {"description": "1"})
    assert first["_revision"] == 0
    assert (await client.bad("PUT", path, {"description": "2"}))[:2] == (412, 604)
    second = await client.good("PUT", path, {**first, "description": "2"})
    assert second["_revision"] == 1
    status, code, message = await client.bad("PUT", path, {**first, "description": "3"})
    assert (status, code) == (412, 604)
    assert "Fetch the latest copy of the object and retry" in message
    assert (await client.good("GET", path))["description"] == "2"


async def test_a_put_with_a_revision_does_not_create(client: Client) -> None:
    status, code, _ = await client.bad("PUT", "/infra/lb-services/a", {"_revision": 0})
    assert (status, code) == (404, 500090)


async def test_a_patch_needs_no_revision_and_replaces_the_whole_object(client: Client) -> None:
    path = "/infra/lb-services/a"
    assert await client.good("PATCH", path, {"size": "LARGE", "description": "x"}) == {}
    assert await client.good("PATCH", path, {"description": "y"}) == {}
    found = await client.good("GET", path)
    assert (found["size"], found["description"], found["_revision"]) == ("SMALL", "y", 1)


async def test_a_partial_patch_leaves_what_it_does_not_name(nsxt: Emulator, client: Client) -> None:
    nsxt.store.partial = True
    path = "/infra/lb-services/a"
    await client.good("PATCH", path, {"size": "LARGE", "tags": [TAG, TAG]})
    await client.good("PATCH", path, {"tags": [TAG]})
    found = await client.good("GET", path)
    assert (found["size"], found["tags"]) == ("LARGE", [TAG])


async def test_what_the_manager_writes_is_ignored_in_a_request(client: Client) -> None:
    body = {"path": "/infra/x", "_create_user": "me", "marked_for_delete": True, "unique_id": "1"}
    made = await client.good("PUT", "/infra/lb-services/a", body)
    assert made["path"] == "/infra/lb-services/a"
    assert made["_create_user"] == "admin"
    assert not made["marked_for_delete"]


async def test_an_object_does_not_become_one_of_another_type(client: Client) -> None:
    made = await client.good("PUT", "/infra/lb-monitor-profiles/a", MONITOR)
    other = {"resource_type": "LBIcmpMonitorProfile", "_revision": made["_revision"]}
    assert (await client.bad("PUT", "/infra/lb-monitor-profiles/a", other))[:2] == (400, UNKNOWN)


# References


@pytest.mark.parametrize(
    ("path", "body", "invalid"),
    [
        ("lb-virtual-servers/a", {**SERVER, "pool_path": "/infra/lb-pools/x"}, "/infra/lb-pools/x"),
        ("lb-virtual-servers/a", {**SERVER, "pool_path": TCP}, TCP),
        ("lb-virtual-servers/a", {**SERVER, "application_profile_path": "x"}, "x"),
        ("lb-virtual-servers/a", {**SERVER, "lb_service_path": "/infra/lb-services/x"}, "/infra/lb-services/x"),
        ("lb-pools/a", {"active_monitor_paths": ["/infra/lb-monitor-profiles/x"]}, "/infra/lb-monitor-profiles/x"),
        ("lb-services/a", {"connectivity_path": "/infra/tier-1s/x"}, "/infra/tier-1s/x"),
        ("tier-1s/x/static-routes/a", ROUTE, "/infra/tier-1s/x"),
        ("ip-pools/x/ip-allocations/a", {}, "/infra/ip-pools/x"),
    ],
)  # fmt: skip
async def test_a_reference_to_what_is_not_there_is_refused(
    client: Client, path: str, body: Json, invalid: str
) -> None:
    assert await client.bad("PUT", f"/infra/{path}", body) == (
        400, 500012, f"The path=[{invalid}] is invalid",
    )  # fmt: skip


async def test_what_is_referred_to_is_not_deleted(client: Client) -> None:
    monitor, pool, server, service = (
        f"/infra/lb-{one}/a" for one in ("monitor-profiles", "pools", "virtual-servers", "services")
    )
    await client.good("PUT", monitor, MONITOR)
    await client.good("PUT", pool, {"active_monitor_paths": [monitor]})
    await client.good("PUT", service, {"connectivity_path": GATEWAY})
    await client.good("PUT", server, {**SERVER, "pool_path": pool, "lb_service_path": service})
    for used, by in ((monitor, pool), (pool, server), (service, server), (GATEWAY, service)):
        status, code, message = await client.bad("DELETE", used)
        assert (status, code) == (400, 500030)
        assert message == (
            f"The object path=[{used}] cannot be deleted as either it has children or it is being"
            f" referenced by other objects path=[{by}]."
        )
    for one in (server, pool, monitor, service, GATEWAY):
        assert await client.good("DELETE", one) == {}
        assert (await client.bad("GET", one))[:2] == (404, 600)


async def test_force_deletes_what_is_referred_to(client: Client) -> None:
    await client.good("PUT", "/infra/lb-pools/a", {})
    await client.good(
        "PUT", "/infra/lb-virtual-servers/a", {**SERVER, "pool_path": "/infra/lb-pools/a"}
    )
    await client.good("DELETE", "/infra/lb-pools/a", force="true")
    assert (await client.bad("GET", "/infra/lb-pools/a"))[0] == 404


async def test_what_has_children_is_not_deleted(client: Client) -> None:
    await client.good("PUT", allocations(1), {})
    await client.good("PUT", f"{GATEWAY}/static-routes/a", ROUTE)
    for path in (f"/infra/ip-pools/{POOL}", GATEWAY):
        assert (await client.bad("DELETE", path))[:2] == (400, 500030)


async def test_what_the_system_owns_is_not_deleted(client: Client) -> None:
    assert (await client.bad("DELETE", TCP))[:2] == (400, UNKNOWN)


async def test_deleting_what_is_not_there_is_an_error(client: Client) -> None:
    status, code, message = await client.bad("DELETE", "/infra/lb-pools/a")
    assert (status, code) == (404, 600)
    assert "/infra/lb-pools/a could not be found" in message


async def test_the_path_of_what_is_marked_for_deletion_cannot_be_used(
    nsxt: Emulator, client: Client
) -> None:
    nsxt.store.purges, now = 5.0, 100.0
    nsxt.now = lambda: now
    path = f"{GATEWAY}/static-routes/a"
    await client.good("PUT", path, ROUTE)
    await client.good("DELETE", path)
    assert (await client.bad("GET", path))[0] == 404
    assert (await client.bad("PUT", path, ROUTE))[:2] == (400, 500045)
    routes = f"{GATEWAY}/static-routes"
    assert (await client.good("GET", routes))["results"] == []
    marked = await client.good("GET", routes, include_mark_for_delete_objects="true")
    assert [one["marked_for_delete"] for one in marked["results"]] == [True]
    found = await client.good("GET", "/search/query", query="resource_type:StaticRoutes")
    assert [one["marked_for_delete"] for one in found["results"]] == [True]
    now = 105.0
    assert (await client.good("PUT", path, ROUTE))["_revision"] == 0
    found = await client.good("GET", "/search/query", query="resource_type:StaticRoutes")
    assert [one["marked_for_delete"] for one in found["results"]] == [False]


# Rules


async def test_a_gateway_has_one_load_balancer_service(client: Client) -> None:
    await client.good("PUT", "/infra/lb-services/a", {"connectivity_path": GATEWAY})
    status, _, message = await client.bad(
        "PUT", "/infra/lb-services/b", {"connectivity_path": GATEWAY}
    )
    assert status == 400
    assert "/infra/lb-services/a" in message


async def test_virtual_servers_share_an_address_with_other_ports_or_protocols(
    client: Client,
) -> None:
    place = "/infra/lb-virtual-servers"
    await client.good("PUT", f"{place}/a", SERVER)
    await client.good("PUT", f"{place}/b", {**SERVER, "ports": ["81"]})
    await client.good("PUT", f"{place}/c", {**SERVER, "application_profile_path": UDP})
    status, _, message = await client.bad("PUT", f"{place}/d", {**SERVER, "ports": ["70-80"]})
    assert status == 400
    assert f"{place}/a" in message


async def test_a_service_has_as_many_virtual_servers_as_its_size_allows(client: Client) -> None:
    service = "/infra/lb-services/a"
    await client.good("PUT", service, {"connectivity_path": GATEWAY})
    for number in range(21):
        body = {**SERVER, "ports": [str(number + 1)], "lb_service_path": service}
        status, _ = await client.send("PATCH", f"/infra/lb-virtual-servers/{number}", body)
        assert status == (200 if number < 20 else 400)


async def test_a_next_hop_is_of_the_family_of_its_route(client: Client) -> None:
    body = {**ROUTE, "network": "fd00::/64"}
    assert (await client.bad("PUT", f"{GATEWAY}/static-routes/a", body))[0] == 400


# Lists and searches


async def test_lists_come_in_pages_with_a_cursor_but_the_last(
    nsxt: Emulator, client: Client
) -> None:
    nsxt.page = 2
    for number in range(5):
        await client.good("PUT", f"/infra/lb-pools/{number}", {"display_name": str(9 - number)})
    found: list[str] = []
    cursors: list[str] = []
    query: dict[str, str] = {}
    while True:
        answer = await client.good("GET", "/infra/lb-pools", **query)
        found += [one["id"] for one in answer["results"]]
        # The vendor: "set only on first page".
        assert answer.get("result_count") == (None if query else 5)
        if "cursor" not in answer:
            break
        cursors.append(answer["cursor"])
        query = {"cursor": answer["cursor"]}
    assert found == ["4", "3", "2", "1", "0"]
    assert len(cursors) == 2
    first = await client.good("GET", "/infra/lb-pools", page_size="1", sort_ascending="false")
    assert [one["id"] for one in first["results"]] == ["0"]
    assert (await client.bad("GET", "/infra/lb-pools", cursor="x"))[0] == 400


async def test_an_ip_pool_tells_its_usage(client: Client) -> None:
    await client.good("PUT", allocations(1), {})
    (pool,) = (await client.good("GET", "/infra/ip-pools"))["results"]
    assert pool["pool_usage"] == {
        "total_ips": 10, "available_ips": 9, "requested_ip_allocations": 1,
        "allocated_ip_allocations": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("resource_type:StaticRoutes", "ab"),
        ("resource_type:staticroutes AND tags.tag:one", "a"),
        (r"tags.scope:vsphere.k8s.io\/cluster-name AND tags.tag:one", "a"),
        (r"tags.scope:vsphere.k8s.io\/cluster\-name AND NOT tags.tag:one", "b"),
        (r"resource_type:StaticRoutes AND (id:a OR display_name:nam?)", "ab"),
        (r"network:10.244.*", "ab"),
        (r'network:"10.244.1.0/24"', "ab"),
        (r"next_hops.ip_address:192.168.0.11 AND id:b", "b"),
        # A tag's scope and its value are found apart.
        (r"tags.scope:other AND tags.tag:two", "b"),
        (r"tags.tag:thre*", ""),
        ("marked_for_delete:false AND id:a", "a"),
    ],
)
async def test_a_search_finds(client: Client, query: str, found: str) -> None:
    scope = "vsphere.k8s.io/cluster-name"
    one, two = {"scope": scope, "tag": "one"}, {"scope": scope, "tag": "two"}
    routes = f"{GATEWAY}/static-routes"
    await client.good("PUT", f"{routes}/a", {**ROUTE, "tags": [one]})
    other = [two, {"scope": "other", "tag": "x"}]
    await client.good("PUT", f"{routes}/b", {**ROUTE, "tags": other, "display_name": "name"})
    answer = await client.good("GET", "/search/query", query=query)
    assert "".join(sorted(one["id"] for one in answer["results"])) == found
    assert answer["result_count"] == len(found)
    assert answer["cursor"] == str(len(found))


@pytest.mark.parametrize(
    "query", ["", "a", "id:", "(id:a", "id:a)", "id:a/b", "id:a:b", "id:a AND", 'id:"a', "id:[a"]
)
async def test_a_search_without_sense_is_refused(client: Client, query: str) -> None:
    assert (await client.bad("GET", "/search/query", query=query))[0] == 400


async def test_a_search_comes_in_pages_and_may_be_late(nsxt: Emulator, client: Client) -> None:
    nsxt.search_lag, now = 2.0, 100.0
    nsxt.now = lambda: now
    for id_ in "abc":
        await client.good("PUT", f"{GATEWAY}/static-routes/{id_}", ROUTE)
    query = {"query": "resource_type:StaticRoutes", "page_size": "2"}
    assert (await client.good("GET", "/search/query", **query))["results"] == []
    now = 102.0
    first = await client.good("GET", "/search/query", **query)
    second = await client.good("GET", "/search/query", **query, cursor=first["cursor"])
    assert [one["id"] for one in (*first["results"], *second["results"])] == ["a", "b", "c"]


# Realization


async def test_an_allocation_gets_its_address_later(nsxt: Emulator, client: Client) -> None:
    nsxt.realization.works, now = 2.0, 100.0
    nsxt.now = lambda: now
    path = allocations(1)
    await client.good("PATCH", path, {"tags": [TAG]})
    assert "allocation_ip" not in await client.good("GET", path)
    (entity,) = await realized(client, path)
    assert (entity["state"], entity["extended_attributes"]) == ("UNREALIZED", [])
    now = 102.0
    (entity,) = await realized(client, path)
    assert (entity["state"], entity["intent_paths"]) == ("REALIZED", [path])
    assert await address(client, path) == "10.20.30.1"
    assert "allocation_ip" not in await client.good("GET", path)


async def test_an_exhausted_pool_is_an_alarm_and_a_released_address_stays_in_use_for_a_while(
    nsxt: Emulator, client: Client
) -> None:
    now = 100.0
    nsxt.now = lambda: now
    for number in range(10):
        await client.good("PUT", allocations(number), {})
    await client.good("PUT", allocations(10), {})
    (entity,) = await realized(client, allocations(10))
    assert entity["state"] == "ERROR"
    (alarm,) = entity["alarms"]
    assert alarm["message"] == (
        f"IpAddressPool path=[/infra/ip-pools/{POOL}] is exhausted, no free IPs available for"
        " allocation."
    )
    assert alarm["error_details"]["error_code"] == EXHAUSTED
    freed = await address(client, allocations(3))
    await client.good("DELETE", allocations(3))
    await client.good("DELETE", allocations(10))
    now = 219.0
    await client.good("PUT", allocations(11), {})
    assert await address(client, allocations(11)) == ""
    await client.good("DELETE", allocations(11))
    now = 220.0
    await client.good("PUT", allocations(12), {})
    assert await address(client, allocations(12)) == freed


async def test_a_pool_releases_addresses_as_soon_as_it_says(nsxt: Emulator, client: Client) -> None:
    add_pool(nsxt, "one", "one", addresses="10.9.9.9", ip_release_delay=0)
    for id_ in "ab":
        path = f"/infra/ip-pools/one/ip-allocations/{id_}"
        await client.good("PUT", path, {})
        assert await address(client, path) == "10.9.9.9"
        await client.good("DELETE", path)


@pytest.mark.parametrize(
    ("asked", "state"), [("10.20.30.7", "REALIZED"), ("10.20.30.1", "ERROR"), ("10.9.9.9", "ERROR")]
)
async def test_an_allocation_may_ask_for_a_free_address(
    client: Client, asked: str, state: str
) -> None:
    await client.good("PUT", allocations(1), {})
    made = await client.good("PUT", allocations(2), {"allocation_ip": asked})
    assert made["allocation_ip"] == asked
    (entity,) = await realized(client, allocations(2))
    assert entity["state"] == state


async def test_a_test_says_what_is_realized_never_or_with_an_alarm(
    nsxt: Emulator, client: Client
) -> None:
    routes = f"{GATEWAY}/static-routes"
    nsxt.realization.never.add(f"{routes}/a")
    nsxt.realization.broken[f"{routes}/b"] = "no edge"
    states = {}
    for id_ in "abc":
        await client.good("PATCH", f"{routes}/{id_}", ROUTE)
        (entity,) = await realized(client, f"{routes}/{id_}")
        states[id_] = entity["state"]
    assert states == {"a": "UNREALIZED", "b": "ERROR", "c": "REALIZED"}


async def test_an_intent_that_is_not_there_has_no_realized_entities(client: Client) -> None:
    assert (
        await client.bad("GET", "/infra/realized-state/realized-entities", intent_path="/infra/x")
    )[:2] == (400, 500012)


# Who asks


async def test_a_session_needs_its_cookie_and_its_token(nsxt: Emulator, client: Client) -> None:
    assert (await client.login("admin", "wrong"))[0] == 403
    assert (await client.login("admin", nsxt.sessions.users["admin"]))[0] == 200
    await client.good("GET", "/infra/lb-pools")
    whole = dict(client.headers)
    del client.headers["X-XSRF-TOKEN"]
    assert (await client.bad("GET", "/infra/lb-pools"))[:2] == (403, 98)
    client.headers = {"X-XSRF-TOKEN": whole["X-XSRF-TOKEN"]}
    assert (await client.bad("GET", "/infra/lb-pools"))[:2] == (403, 403)
    client.headers = whole
    await client.good("POST", "/api/session/destroy")
    assert (await client.bad("GET", "/infra/lb-pools"))[:2] == (403, 403)


async def test_an_idle_session_ends(nsxt: Emulator, client: Client) -> None:
    now = 0.0
    nsxt.now = lambda: now
    await client.login("admin", nsxt.sessions.users["admin"])
    for now in (1799.0, 3598.0):  # noqa: B007 - the clock of the emulator reads it
        await client.good("GET", "/infra/lb-pools")
    now = 5398.0
    assert (await client.bad("GET", "/infra/lb-pools"))[:2] == (403, 403)


async def test_wrong_passwords_lock_an_account(nsxt: Emulator, client: Client) -> None:
    good = client.headers
    client.headers = basic("admin", "wrong")
    for _ in range(5):
        assert (await client.bad("GET", "/infra/lb-pools"))[:2] == (403, 403)
    client.headers = good
    assert (await client.bad("GET", "/infra/lb-pools"))[:2] == (403, 403)
    nsxt.sessions.locked.clear()
    await client.good("GET", "/infra/lb-pools")


async def test_a_remote_user_says_so(nsxt: Emulator, client: Client) -> None:
    nsxt.sessions.users["ann@corp"] = "p"
    nsxt.sessions.remote.add("ann@corp")
    client.headers = basic("ann@corp", "p")
    assert (await client.bad("GET", "/infra/lb-pools"))[0] == 403
    client.headers = basic("ann@corp", "p", "Remote")
    await client.good("GET", "/infra/lb-pools")


async def test_a_principal_identity_comes_with_its_certificate(
    nsxt: Emulator, tmp_path: Path
) -> None:
    files = tmp_path / "client.pem", tmp_path / "client.key"
    for file, content in zip(files, nsxt.authority.client("ccm", ()), strict=True):
        file.write_bytes(content)
    async with connected(nsxt, (str(files[0]), str(files[1]))) as client:
        client.headers = {}
        assert (await client.bad("GET", "/infra/lb-pools"))[0] == 403
        nsxt.sessions.register("ccm", files[0].read_bytes())
        made = await client.good("PUT", "/infra/lb-pools/a", {})
    assert made["_create_user"] == "ccm"


async def test_who_may_only_read_does_not_write(nsxt: Emulator, client: Client) -> None:
    nsxt.sessions.readers.add("admin")
    await client.good("GET", "/infra/lb-pools")
    assert (await client.bad("PUT", "/infra/lb-pools/a", {}))[:2] == (403, 289)


async def test_without_its_authority_nobody_trusts_it(nsxt: Emulator) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(nsxt.url)


# What goes wrong


async def test_a_client_has_a_rate(nsxt: Emulator, client: Client) -> None:
    nsxt.rate = 3
    answers = await asyncio.gather(*(client.send("GET", "/infra/lb-pools") for _ in range(9)))
    refused = [answer for status, answer in answers if status == 429]
    assert len(refused) >= 3
    assert refused[0] == {
        "error_code": "102", "module_name": "common-services",
        "error_message": "Client 'admin' exceeded request rate of 3 per second",
    }  # fmt: skip


async def test_a_client_has_a_limit_of_requests_at_once(nsxt: Emulator, client: Client) -> None:
    nsxt.concurrency = 2
    nsxt.fail(Fault("LIST lb-pools", status=0, seconds=0.2, times=2))
    answers = await asyncio.gather(*(client.send("GET", "/infra/lb-pools") for _ in range(3)))
    assert sorted(status for status, _ in answers) == [200, 200, 503]
    assert nsxt.most_at_once == 3


@pytest.mark.parametrize("after", [False, True], ids=["before", "after the effect"])
async def test_a_request_fails_as_often_as_told(
    nsxt: Emulator, client: Client, *, after: bool
) -> None:
    fault = Fault("PUT lb-*", status=503, times=2, after_effect=after, target="/a")
    nsxt.fail(fault)
    await client.good("PUT", "/infra/lb-pools/b", {})
    assert (await client.bad("PUT", "/infra/lb-pools/a", {}))[0] == 503
    assert ("/infra/lb-pools/a" in nsxt.store.objects) == after
    assert nsxt.unspent() == [fault]
    assert (await client.bad("PUT", "/infra/lb-pools/a", {}))[0] == (412 if after else 503)
    assert nsxt.calls["PUT lb-pools"] == 3


async def test_a_login_fails_when_told(nsxt: Emulator, client: Client) -> None:
    nsxt.fail(Fault("session create", status=503))
    password = nsxt.sessions.users["admin"]
    assert (await client.login("admin", password))[0] == 503
    assert nsxt.sessions.count == 0
    assert (await client.login("admin", password))[0] == 200
    assert nsxt.sessions.count == 1
    assert nsxt.calls["session create"] == 2


async def test_a_connection_is_lost_when_told(nsxt: Emulator, client: Client) -> None:
    nsxt.fail(Fault("PATCH lb-pools", lost=True, after_effect=True))
    with pytest.raises(aiohttp.ClientError):
        await client.send("PATCH", "/infra/lb-pools/a", {})
    assert "/infra/lb-pools/a" in nsxt.store.objects
    await client.good("GET", "/infra/lb-pools/a")


async def test_somebody_else_changes_objects(nsxt: Emulator, client: Client) -> None:
    made = await client.good("PUT", "/infra/lb-pools/a", {})
    with nsxt.changing("/infra/lb-pools/a") as one:
        one["algorithm"] = "IP_HASH"
    assert (await client.bad("PUT", "/infra/lb-pools/a", made))[0] == 412
    nsxt.remove("/infra/lb-pools/a")
    assert nsxt.of("lb-pools") == []


async def test_each_has_a_certificate_of_the_given_authority(
    nsxt: Emulator, tmp_path: Path
) -> None:
    async with served(tmp_path, nsxt.authority) as other, connected(nsxt) as client:
        await client.good("GET", "/infra/lb-pools")
        async with connected(other) as second:
            await second.good("GET", "/infra/lb-pools")
        assert other.calls == nsxt.calls


# The model


def kinds(type_: str) -> Iterator[str]:
    name = type_.rpartition(":")[2]
    if name not in {"string", "integer", "boolean", "number", "object"}:
        yield name


def test_the_recorded_model_is_whole() -> None:
    types = MODEL["types"]
    named = {
        name
        for operation in MODEL["operations"]
        for part in ("body", "answer") if part in operation
        for name in kinds(operation[part])
    } | {
        name
        for one in types.values()
        for field, said in one.items() if field != "extends"
        for name in kinds(said["type"])
    }  # fmt: skip
    assert named <= types.keys()
    assert {"LBTcpMonitorProfile", "LBSnatAutoMap", "LBSourceIpPersistenceProfile"} <= types.keys()


async def test_answers_are_of_the_types_of_the_model(nsxt: Emulator, client: Client) -> None:
    add_pool(nsxt, "one", "one", addresses="10.9.9.9")
    pool, route = "/infra/lb-pools/a", f"{GATEWAY}/static-routes/a"
    monitor = "/infra/lb-monitor-profiles/default-tcp-lb-monitor"
    await client.good(
        "PUT",
        pool,
        {"members": [{"ip_address": "10.0.0.1"}], "tags": [TAG], "active_monitor_paths": [monitor]},
    )
    await client.good("PUT", "/infra/lb-services/a", {"connectivity_path": GATEWAY})
    await client.good("PUT", "/infra/lb-virtual-servers/a", {**SERVER, "pool_path": pool})
    await client.good("PUT", "/infra/segments/a", {"connectivity_path": GATEWAY})
    await client.good("PUT", GROUP, {})
    await client.good("PUT", route, ROUTE)
    for id_ in "ab":
        await client.good("PUT", f"/infra/ip-pools/one/ip-allocations/{id_}", {})
    asked = {
        "GET realized-entities": {"intent_path": "/infra/ip-pools/one/ip-allocations/b"},
        "GET query": {"query": "id:*"},
    }
    ids = {"domain_id": "default", "tier1_id": "t1", "ip_pool_id": "one"}
    reads = [one for one in operations() if one.method == "GET"]
    for operation in reads:
        path = operation.path.removeprefix(PREFIX)
        kind = operation.name.partition(" ")[2]
        for name in re.findall(r"\{(\w+)\}", path):
            id_ = ids.get(name) or min(str(one["id"]) for one in nsxt.of(kind))
            path = path.replace(f"{{{name}}}", id_)
        answer = await client.good("GET", path, **asked.get(operation.name, {}))
        assert answer.get("results", ["one"]), path
        assert problems(operation.answer, answer) == [], path
    assert len(reads) > 25


def test_the_notes_of_fields_are_of_fields_that_there_are() -> None:
    unknown = [
        f"{name}.{field}"
        for name, notes in LIMITS.items()
        for field in notes
        if field not in fields(name)
    ]
    assert unknown == []
