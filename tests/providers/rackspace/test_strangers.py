"""The emulator is spoken to by clients that are not ours: libcloud, and gophercloud of Go."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from libcloud.common.types import InvalidCredsError
from libcloud.loadbalancer.base import Algorithm, Member
from libcloud.loadbalancer.drivers.rackspace import (
    RackspaceAccessRule,
    RackspaceAccessRuleType,
    RackspaceConnectionThrottle,
    RackspaceHTTPHealthMonitor,
    RackspaceLBDriver,
)

from proreus.cloudprovider.instances import Instance

from .. import managers  # noqa: TID252 - pytest imports tests by path
from .emulator.server import REGION, Emulator
from .site import SCHEME, describe, node, started
from .test_volumes import ID, volume

SPEAKER = Path(__file__).parent / "stranger" / "speaker"


def driver(emulator: Emulator) -> RackspaceLBDriver:
    """Libcloud's driver of Cloud Load Balancers, with the patience of a test."""
    made = RackspaceLBDriver(
        emulator.username, emulator.key, secure=False, region=REGION.lower(),
        ex_force_auth_url=f"{emulator.url}/identity", ex_force_auth_version="2.0_apikey",
    )  # fmt: skip
    made.connection.poll_interval = 0.05
    return made


def live(emulator: Emulator) -> dict[str, Any]:
    """The life of a load balancer in all that libcloud can do with it; what it was shown."""
    cloud = driver(emulator)
    members = [Member(None, "10.180.0.2", 8080)]
    made = cloud.create_balancer("by libcloud", members, "http", 80, Algorithm.ROUND_ROBIN)
    made = _settled(cloud, made)
    made = cloud.update_balancer(made, algorithm=Algorithm.RANDOM)
    made.attach_member(Member(None, "10.180.0.3", 8080))
    made = _settled(cloud, made)
    rules = [
        RackspaceAccessRule(rule_type=RackspaceAccessRuleType.ALLOW, address="192.0.2.0/24"),
        RackspaceAccessRule(rule_type=RackspaceAccessRuleType.DENY, address="0.0.0.0/0"),
    ]
    cloud.ex_create_balancer_access_rules(made, rules)
    monitor = RackspaceHTTPHealthMonitor(
        type="HTTP", delay=10, timeout=5, attempts_before_deactivation=2, path="/",
        status_regex="^2", body_regex=".*",
    )  # fmt: skip
    made = cloud.ex_update_balancer_health_monitor(made, monitor)
    made = cloud.ex_enable_balancer_session_persistence(made)
    throttle = RackspaceConnectionThrottle(
        min_connections=0, max_connections=100, max_connection_rate=0, rate_interval_seconds=1
    )
    made = cloud.ex_update_balancer_connection_throttle(made, throttle)
    shown = cloud.get_balancer(made.id)
    found = {
        "port": shown.port, "ip": shown.ip, "members": len(shown.list_members()),
        "access": sorted(str(rule.address) for rule in cloud.ex_balancer_access_list(shown)),
        "monitor": shown.extra["healthMonitor"].type,
        "persistence": shown.extra["sessionPersistenceType"],
        "throttle": shown.extra["connectionThrottle"].max_connections,
    }  # fmt: skip
    made = cloud.ex_destroy_balancer_access_rules(made, shown.extra["accessList"])
    made = cloud.ex_disable_balancer_health_monitor(made)
    made = cloud.ex_disable_balancer_session_persistence(made)
    made = cloud.ex_disable_balancer_connection_throttle(made)
    cloud.ex_balancer_detach_members(made, shown.extra["members"])
    cloud.destroy_balancer(_settled(cloud, made))
    return found


def _settled(cloud: RackspaceLBDriver, balancer: Any) -> Any:
    for _ in range(200):
        found = cloud.get_balancer(balancer.id)
        if found.state == 0:
            return found
    raise AssertionError(found)


async def test_libcloud_puts_a_load_balancer_through_all_that_it_can(emulator: Emulator) -> None:
    emulator.clb.works = 0.02
    found = await asyncio.to_thread(live, emulator)
    (one,) = emulator.clb.by_id.values()
    assert found == {
        "port": 80, "ip": found["ip"], "members": 2, "access": ["0.0.0.0/0", "192.0.2.0/24"],
        "monitor": "HTTP", "persistence": "HTTP_COOKIE", "throttle": 100,
    }  # fmt: skip
    assert one["status"] == "PENDING_DELETE"
    assert one["algorithm"] == "RANDOM"
    for part in (
        "accessList",
        "healthMonitor",
        "sessionPersistence",
        "connectionThrottle",
        "nodes",
    ):
        assert not one[part], part


async def test_a_wrong_key_of_libcloud_is_refused(emulator: Emulator) -> None:
    cloud = driver(emulator)
    emulator.key = "another"
    with pytest.raises(InvalidCredsError):
        await asyncio.to_thread(cloud.list_balancers)


@pytest.mark.long
async def test_gophercloud_looks_servers_up_as_the_in_tree_provider_did(
    emulator: Emulator, tmp_path: Path
) -> None:
    program = await managers.build(SPEAKER, tmp_path, CGO_ENABLED="0")
    (id_,) = emulator.add_servers(["node-1"])
    emulator.add_servers(["node-1"], status="SHUTOFF")
    emulator.page = 1
    emulator.volumes = {ID: {**volume(ID, "data"), "attachments": [], "size": 75}}
    flags = {
        "auth-url": f"{emulator.url}/identity/v2.0/", "username": emulator.username,
        "api-key": emulator.key, "region": REGION, "server": "node-1",
    }  # fmt: skip
    arguments = (f"--{name}={value}" for name, value in flags.items())
    process = await asyncio.create_subprocess_exec(
        str(program), *arguments, stdout=asyncio.subprocess.PIPE
    )
    text, _ = await process.communicate()
    assert process.returncode == 0
    told = {line["what"]: line["value"] for line in map(json.loads, text.splitlines())}
    assert told["by name"] == [id_]
    assert told["all"] == 2
    assert told["server"]["addresses"]["private"] == [{"addr": "10.180.0.2", "version": 4}]
    assert told["absent"] == 404
    async with started(emulator) as provider:
        ours = (await describe(provider, node("node-1")))["node-1"]
    assert isinstance(ours, Instance)
    assert ours.provider_id == f"{SCHEME}{told['by name'][0]}"
    assert ours.addresses[0].address == told["server"]["addresses"]["private"][0]["addr"]
    assert told["volumes"] == ["data"]
