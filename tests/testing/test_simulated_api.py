"""The simulated cloud's API as its specification says, against the real process."""

import asyncio
from typing import Any

import aiohttp
import pytest

from proreus.testing.simulated import (
    AdminError,
    Fault,
    FaultMode,
    Instance,
    SimulatedCloudProcess,
)

from .conftest import Speak


async def made(speak: Speak, collection: str, name: str, **fields: object) -> dict[str, Any]:
    status, part = await speak("POST", collection, {"name": name, **fields})
    assert status == 201, part
    return part


async def balancer(speak: Speak, name: str = "web") -> dict[str, Any]:
    address = await made(speak, "addresses", name)
    return await made(speak, "load_balancers", name, address_id=address["id"])


def machines(count: int) -> list[Instance]:
    return [Instance(name=f"node-{n}", zone="a", type="small") for n in range(count)]


async def test_a_list_comes_in_pages_that_hold_every_instance_once(
    cloud: SimulatedCloudProcess, speak: Speak
) -> None:
    created = await cloud.admin.create(machines(7))
    seen: list[str] = []
    token = ""
    sizes = []
    while True:
        status, page = await speak("GET", f"instances?page_size=3&page_token={token}")
        assert status == 200
        sizes.append(len(page["instances"]))
        seen += [one["id"] for one in page["instances"]]
        token = page["next_page_token"]
        if not token:
            break
    assert sizes == [3, 3, 1]
    assert sorted(seen) == sorted(one.id for one in created)


async def test_an_instance_shows_all_it_has(cloud: SimulatedCloudProcess, speak: Speak) -> None:
    (one,) = await cloud.admin.create([Instance(name="n", labels={"rack": "r1"}, tags={"t": "1"})])
    status, shown = await speak("GET", f"instances/{one.id}")
    assert status == 200
    assert (shown["region"], shown["labels"], shown["tags"]) == (
        "sim-1",
        {"rack": "r1"},
        {"t": "1"},
    )
    assert [a["type"] for a in shown["addresses"]] == [
        "InternalIP",
        "ExternalIP",
        "InternalDNS",
        "Hostname",
    ]


async def test_pod_cidrs_belong_to_one_instance_until_they_are_released_or_it_ends(
    cloud: SimulatedCloudProcess, speak: Speak
) -> None:
    first, second = await cloud.admin.create(machines(2))

    async def change(one: Instance, verb: str, *cidrs: str) -> tuple[int, list[str]]:
        path = f"instances/{one.id}/pod_cidrs:{verb}"
        status, answer = await speak("POST", path, {"pod_cidrs": cidrs})
        return status, answer["pod_cidrs"] if status == 200 else [answer["error"]["code"]]

    both = ["10.0.0.0/24", "fd00::/64"]
    assert await change(first, "assign", both[0]) == (200, both[:1])
    assert await change(first, "assign", *both) == (200, both)
    assert await change(second, "assign", "10.0.0.128/25") == (409, ["Conflict"])
    assert await change(second, "assign", "10.0.1.1/24") == (400, ["BadRequest"])
    assert await change(first, "release", both[0], "10.7.0.0/24") == (200, both[1:])
    assert await change(second, "assign", "10.0.0.128/25") == (200, ["10.0.0.128/25"])
    _, shown = await speak("GET", f"instances/{first.id}")
    assert shown["pod_cidrs"] == both[1:]
    await cloud.admin.configure(tombstone=60.0)
    await cloud.admin.delete(first.id)
    assert await change(first, "release", both[1]) == (404, ["NotFound"])
    assert await change(second, "assign", both[1]) == (200, ["10.0.0.128/25", both[1]])


async def test_bulk_read_names_what_is_missing(cloud: SimulatedCloudProcess, speak: Speak) -> None:
    first, second = await cloud.admin.create(machines(2))
    absent = "i-000000000000"
    status, answer = await speak(
        "POST", "instances:batchGet", {"ids": [first.id, absent], "names": [second.name, "nobody"]}
    )
    assert status == 200
    assert {one["id"] for one in answer["instances"]} == {first.id, second.id}
    assert (answer["missing_ids"], answer["missing_names"]) == ([absent], ["nobody"])


async def test_one_malformed_id_refuses_the_whole_bulk_read(
    cloud: SimulatedCloudProcess, speak: Speak
) -> None:
    (one,) = await cloud.admin.create(machines(1))
    status, answer = await speak("POST", "instances:batchGet", {"ids": [one.id, "i-oops"]})
    assert status == 400
    assert "i-oops" in answer["error"]["message"]


async def test_a_bulk_read_over_the_limit_is_refused(
    cloud: SimulatedCloudProcess, speak: Speak
) -> None:
    await cloud.admin.configure(batch_limit=2)
    status, _ = await speak("POST", "instances:batchGet", {"names": ["a", "b", "c"]})
    assert status == 400


async def test_a_terminated_instance_vanishes_or_leaves_a_tombstone(
    cloud: SimulatedCloudProcess, speak: Speak
) -> None:
    gone, kept = await cloud.admin.create(machines(2))
    await cloud.admin.delete(gone.id)
    assert (await speak("GET", f"instances/{gone.id}"))[0] == 404
    await cloud.admin.configure(tombstone=3600)
    await cloud.admin.delete(kept.id)
    status, shown = await speak("GET", f"instances/{kept.id}")
    assert (status, shown["state"]) == (200, "terminated")
    await cloud.admin.configure(tombstone=0)
    assert (await speak("GET", f"instances/{kept.id}"))[0] == 404


async def test_machines_stop_and_start(cloud: SimulatedCloudProcess, speak: Speak) -> None:
    (one,) = await cloud.admin.create(machines(1))
    await cloud.admin.stop(one.id)
    assert (await speak("GET", f"instances/{one.id}"))[1]["state"] == "stopped"
    await cloud.admin.start(one.id)
    assert (await speak("GET", f"instances/{one.id}"))[1]["state"] == "running"


async def test_an_idempotency_token_makes_one_part(speak: Speak) -> None:
    body = {"name": "a", "idempotency_token": "once"}
    first, second = await speak("POST", "addresses", body), await speak("POST", "addresses", body)
    assert (first[0], second[0]) == (201, 200)
    assert first[1]["id"] == second[1]["id"]
    await speak("DELETE", f"addresses/{first[1]['id']}")
    assert (await speak("POST", "addresses", body))[0] == 201


async def test_names_are_unique_per_kind_unless_configured_otherwise(
    cloud: SimulatedCloudProcess, speak: Speak
) -> None:
    await balancer(speak)
    status, answer = await speak("POST", "addresses", {"name": "web"})
    assert (status, answer["error"]["code"]) == (409, "NameTaken")
    await cloud.admin.configure(unique_names=False)
    assert (await speak("POST", "addresses", {"name": "web"}))[0] == 201


async def test_a_change_needs_the_version_last_seen(speak: Speak) -> None:
    lb = await balancer(speak)
    change = {"version": lb["version"], "internal": True}
    assert (await speak("PATCH", f"load_balancers/{lb['id']}", change))[0] == 200
    status, answer = await speak("PATCH", f"load_balancers/{lb['id']}", change)
    assert (status, answer["error"]["code"]) == (409, "VersionConflict")


async def test_parts_in_use_are_not_deleted(speak: Speak) -> None:
    lb = await balancer(speak)
    listener = await made(
        speak,
        "listeners",
        "l",
        load_balancer_id=lb["id"],
        protocol="UDP",
        port=53,
        target_port=5353,
    )
    order = (
        f"addresses/{lb['address_id']}",
        f"load_balancers/{lb['id']}",
        f"listeners/{listener['id']}",
    )
    assert [(await speak("DELETE", path))[0] for path in order] == [409, 409, 200]
    assert [(await speak("DELETE", path))[0] for path in reversed(order)] == [404, 200, 200]


@pytest.mark.parametrize(
    ("collection", "body", "word"),
    [
        ("addresses", {}, "name"),
        ("addresses", {"name": "a", "colour": "red"}, "colour"),
        ("addresses", {"name": "a", "id": "addr-1"}, "id"),
        ("addresses", {"name": "a", "address": "10.0.0.1"}, "10.0.0.1"),
        ("load_balancers", {"name": "a"}, "address_id"),
    ],
)
async def test_a_bad_create_is_refused_with_the_field(
    speak: Speak, collection: str, body: dict[str, Any], word: str
) -> None:
    status, answer = await speak("POST", collection, body)
    assert status == 400
    assert word in answer["error"]["message"]


async def test_resources_are_found_by_kind_name_and_tags(speak: Speak) -> None:
    await made(speak, "addresses", "one", tags={"team": "x", "env": "a=b"})
    await made(speak, "addresses", "two", tags={"team": "x"})

    async def names(query: str) -> list[str]:
        _, answer = await speak("GET", f"resources?{query}")
        return sorted(part["name"] for part in answer["resources"])

    assert await names("tag=team%3Dx") == ["one", "two"]
    assert await names("tag=team%3Dx&tag=env%3Da%3Db") == ["one"]
    assert await names("name_prefix=tw") == ["two"]
    assert await names("kind=listener") == []


async def test_targets_that_cannot_be_are_rejected_and_the_others_added(
    cloud: SimulatedCloudProcess, speak: Speak
) -> None:
    good, ending = await cloud.admin.create(machines(2))
    await cloud.admin.change(ending.id, state="terminating")
    lb = await balancer(speak)
    address = good.addresses[0].address
    status, answer = await speak(
        "POST",
        f"load_balancers/{lb['id']}/targets:add",
        {
            "targets": [
                {"instance_id": good.id, "address": address},
                {"instance_id": ending.id, "address": ending.addresses[0].address},
                {"instance_id": "i-000000000000", "address": address},
            ]
        },
    )
    assert status == 200
    assert answer["load_balancer"]["targets"] == [{"instance_id": good.id, "address": address}]
    assert {r["instance_id"]: r["reason"] for r in answer["rejected"]} == {
        ending.id: "the instance is terminating",
        "i-000000000000": "no such instance",
    }
    _, answer = await speak(
        "POST", f"load_balancers/{lb['id']}/targets:remove", {"instance_ids": [good.id, "i-x"]}
    )
    assert answer["load_balancer"]["targets"] == []


async def test_the_route_table_has_a_limit_and_shows_blackholes(
    cloud: SimulatedCloudProcess, speak: Speak
) -> None:
    await cloud.admin.configure(route_limit=1)
    (one,) = await cloud.admin.create(machines(1))
    route = await made(speak, "routes", "r", destination="10.1.0.0/24", instance_id=one.id)
    assert route["state"] == "active"
    body = {"name": "s", "destination": "10.1.1.0/24", "instance_id": one.id}
    status, answer = await speak("POST", "routes", body)
    assert (status, answer["error"]["code"]) == (409, "LimitExceeded")
    await cloud.admin.delete(one.id)
    assert (await speak("GET", f"routes/{route['id']}"))[1]["state"] == "blackhole"


async def test_each_credential_has_its_own_quota(
    cloud: SimulatedCloudProcess, speak: Speak
) -> None:
    await cloud.admin.configure(read_rate=0.01, read_burst=2)
    answers = [(await speak("GET", "instances"))[0] for _ in range(3)]
    assert answers == [200, 200, 429]
    assert int(speak.headers["Retry-After"]) in range(90, 101)
    assert (await speak("POST", "addresses", {"name": "a"}))[0] == 201, "writes count apart"
    assert (await speak("GET", "instances", token="wrong"))[0] == 401


async def test_lists_lag_behind_but_names_and_ids_do_not(
    cloud: SimulatedCloudProcess, speak: Speak
) -> None:
    await cloud.admin.configure(list_lag=3600)
    (one,) = await cloud.admin.create(machines(1))
    address = await made(speak, "addresses", "fresh")
    assert (await speak("GET", "resources"))[1]["resources"] == []
    assert (await speak("GET", "instances"))[1]["instances"] == []
    _, bulk = await speak("POST", "instances:batchGet", {"ids": [one.id]})
    assert bulk["missing_ids"] == [one.id]
    _, by_name = await speak("GET", "resources?name_prefix=fre")
    assert [part["id"] for part in by_name["resources"]] == [address["id"]]
    assert (await speak("GET", f"addresses/{address['id']}"))[0] == 200
    await cloud.admin.configure(list_lag=0)
    assert len((await speak("GET", "resources"))[1]["resources"]) == 1


async def test_a_lagging_list_still_shows_what_was_deleted(
    cloud: SimulatedCloudProcess, speak: Speak
) -> None:
    (one,) = await cloud.admin.create(machines(1))
    await cloud.admin.configure(list_lag=3600, read_lag=3600)
    await cloud.admin.stop(one.id)
    assert (await speak("GET", f"instances/{one.id}"))[1]["state"] == "running"
    await cloud.admin.delete(one.id)
    assert [i["id"] for i in (await speak("GET", "instances"))[1]["instances"]] == [one.id]
    assert await cloud.admin.instances() == ()


async def test_an_error_before_the_effect_leaves_nothing_and_after_it_a_part(
    cloud: SimulatedCloudProcess, speak: Speak
) -> None:
    for mode, left in ((FaultMode.CUT_BEFORE, 0), (FaultMode.CUT_AFTER, 1)):
        await cloud.admin.inject(Fault(mode=mode, operation="addresses.create"))
        with pytest.raises(aiohttp.ClientError):
            await speak("POST", "addresses", {"name": "a"})
        assert len(await cloud.admin.parts("address")) == left
    statuses = {call.status for call in await cloud.admin.calls()}
    assert statuses == {0}, "neither call had an answer"


async def test_faults_hit_by_operation_skip_and_count(
    cloud: SimulatedCloudProcess, speak: Speak
) -> None:
    await cloud.admin.inject(
        Fault(mode=FaultMode.ERROR, operation="instances.*", skip=1, count=2, status=503)
    )
    assert (await speak("POST", "addresses", {"name": "a"}))[0] == 201
    answers = [(await speak("GET", "instances"))[0] for _ in range(4)]
    assert answers == [200, 503, 503, 200]
    await cloud.admin.inject(Fault(mode=FaultMode.THROTTLE, count=0, retry_after=7))
    assert [(await speak("GET", "instances"))[0] for _ in range(2)] == [429, 429]
    assert speak.headers["Retry-After"] == "7"
    await cloud.admin.clear_faults()
    assert (await speak("GET", "instances"))[0] == 200


async def test_lists_can_lose_a_share_silently_or_by_lying(
    cloud: SimulatedCloudProcess, speak: Speak
) -> None:
    created = await cloud.admin.create(machines(4))
    ids = [one.id for one in created]
    await cloud.admin.inject(Fault(mode=FaultMode.DROP, share=0.5))
    _, answer = await speak("POST", "instances:batchGet", {"ids": ids})
    assert (len(answer["instances"]), answer["missing_ids"]) == (2, [])
    await cloud.admin.inject(Fault(mode=FaultMode.MISSING))
    _, answer = await speak("POST", "instances:batchGet", {"ids": ids})
    assert (answer["instances"], sorted(answer["missing_ids"])) == ([], sorted(ids))
    await cloud.admin.inject(Fault(mode=FaultMode.DROP))
    assert (await speak("GET", "instances"))[1] == {"instances": [], "next_page_token": ""}


async def test_a_hung_call_has_no_effect_and_garbage_is_no_json(
    cloud: SimulatedCloudProcess, speak: Speak
) -> None:
    await cloud.admin.inject(Fault(mode=FaultMode.HANG))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await speak("POST", "addresses", {"name": "a"})
    assert await cloud.admin.parts() == []
    await cloud.admin.inject(Fault(mode=FaultMode.GARBAGE))
    with pytest.raises(aiohttp.ContentTypeError):
        await speak("GET", "instances")


async def test_calls_are_counted_by_operation(cloud: SimulatedCloudProcess, speak: Speak) -> None:
    await speak("GET", "instances")
    await speak("GET", "instances/i-000000000000")
    assert await cloud.admin.counts() == {"instances.list": 1, "instances.get": 1}
    first, second = await cloud.admin.calls()
    assert (first.caller, first.status, first.read) == ("default", 200, True)
    assert (second.status, second.id) == (404, "i-000000000000")
    await cloud.admin.clear_calls()
    assert await cloud.admin.calls() == ()


async def test_the_admin_api_refuses_the_clouds_token(cloud: SimulatedCloudProcess) -> None:
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer token"}) as session:
        response = await session.get(f"{cloud.endpoint}/admin/state")
        assert response.status == 401
    with pytest.raises(AdminError, match="latency"):
        await cloud.admin.configure(latency="slow")


async def test_everything_answered_survives_kill_9(
    cloud: SimulatedCloudProcess, speak: Speak
) -> None:
    created = await cloud.admin.create(machines(3))
    body = {"name": "web", "idempotency_token": "once", "tags": {"a": "b"}}
    _, address = await speak("POST", "addresses", body)
    lb = await made(speak, "load_balancers", "web", address_id=address["id"])
    before = await cloud.admin.parts()
    endpoint = cloud.endpoint
    await cloud.kill()
    await cloud.restart()
    assert cloud.endpoint == endpoint
    assert await cloud.admin.parts() == before
    assert {one.id for one in await cloud.admin.instances()} == {one.id for one in created}
    assert (await speak("POST", "addresses", body))[0] == 200, "the token is remembered"
    assert (await speak("DELETE", f"addresses/{address['id']}"))[0] == 409, "so is the use"
    assert (await speak("DELETE", f"load_balancers/{lb['id']}"))[0] == 200
