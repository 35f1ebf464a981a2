"""The vendor's SDK for Go beside ours: each reads, uses and deletes what the other has made."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from proreus.cloudprovider import Done

from .. import managers  # noqa: TID252 - pytest imports tests by path
from .emulator.server import Emulator
from .lb_site import HTTP, NAME, LBSite, lb_site

pytestmark = pytest.mark.long
MODULE: Final = Path(__file__).parent / "sdk"
CLUSTER: Final = "cce-5f3k2n8a"


@pytest.fixture
async def program(tmp_path: Path) -> Path:
    return await managers.build(MODULE, tmp_path, CGO_ENABLED="0")


async def told(program: Path, emulator: Emulator, verb: str, **given: Any) -> Any:
    """What the program answers to a command."""
    command = json.dumps({"verb": verb, "cluster": CLUSTER, **given})
    keys = [emulator.key, emulator.secret, *([emulator.token] if emulator.token else [])]
    process = await asyncio.create_subprocess_exec(
        str(program), emulator.url, *keys,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, problem = await process.communicate(command.encode())
    assert process.returncode == 0, problem.decode()
    return json.loads(out.decode().splitlines()[-1])


def place(site: LBSite) -> Mapping[str, Any]:
    return {
        "service": "shop/web", "vpc": site.vpc, "subnet": site.subnet, "hosts": site.machines,
        "ports": {"80": HTTP.node_port},
    }  # fmt: skip


@pytest.mark.parametrize("token", ["", "planted-token-0001"])
async def test_a_service_moves_from_the_official_way_to_ours_and_nothing_is_made_anew(
    program: Path, emulator: Emulator, token: str
) -> None:
    emulator.rights = None
    emulator.token = token
    emulator.world.settle = 0.05
    async with lb_site(emulator) as site:
        made = await told(program, emulator, "ensure", **place(site))
        emulator.calls.clear()
        answer = await site.made(site.desired(shown=made["eip"]))
        assert [point.ip for point in answer.ingress] == [made["eip"]]
        assert set(emulator.world.balancers) == {made["id"]}
        writes = {one for one in emulator.calls if not one.startswith(("list", "get"))}
        assert writes == {"updateLoadBalancer"}
        assert isinstance(await site.deleted(site.desired(shown=made["eip"])), Done)
        assert site.is_empty()


async def test_a_service_moves_back_and_is_deleted_the_official_way(
    program: Path, emulator: Emulator
) -> None:
    emulator.rights = None
    async with lb_site(emulator) as site:
        answer = await site.made(site.desired())
        shown = await told(program, emulator, "show", **place(site))
        assert shown["balancer"]["name"] == NAME
        assert shown["balancer"]["publicIp"] == answer.ingress[0].ip
        assert [one["backendPort"] for one in shown["listeners"]] == [HTTP.node_port]
        assert shown["tcp"] == 1
        assert {one["instanceId"] for one in shown["servers"]} == set(site.machines)
        assert [one["eip"] for one in shown["eips"]] == [answer.ingress[0].ip]
        await told(program, emulator, "delete", **place(site))
        assert site.is_empty()


async def test_the_sdk_reads_machines_volumes_subnets_and_routes_by_its_types(
    program: Path, emulator: Emulator
) -> None:
    emulator.rights = None
    site = LBSite(emulator, 7)
    assert await told(program, emulator, "instances") == [f"node-{n}" for n in range(1, 8)]
    machine = await told(program, emulator, "instance", id=site.machines[0])
    assert (machine["spec"], machine["vpcId"]) == ("bcc.g5.c2m8", site.vpc)
    volume = await told(program, emulator, "volume", id=emulator.world.add_volume("cn-bj-b"))
    assert volume["zoneName"] == "cn-bj-b"
    (subnet,) = await told(program, emulator, "subnets", vpc=site.vpc)
    assert subnet["subnetId"] == site.subnet
    (rule,) = await told(
        program, emulator, "route", vpc=site.vpc, cidr="172.16.1.0/24", id=site.machines[0]
    )
    assert rule["nexthopId"] == site.machines[0]
