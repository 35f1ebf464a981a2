"""Plays the script on the real services: `python -m tests.providers.openstack.record`.

`recorded.json` is what they answer. It needs a cloud that runs (`make openstack-up`), and is to be
run again when the script changes.
"""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import aiohttp

from labs.openstack import running, seed
from labs.openstack.settings import PASSWORD, url

from .real import Real, project
from .script import PREFIX, SCRIPT
from .stage import Play, Stage

RECORDED: Final = Path(__file__).parent / "recorded.json"
"""The answers of the real services."""

_FLOATING = 2
_GROUPS = 2  # that of every project is one
_BALANCERS = 2


async def record() -> dict[str, Any]:
    """The answers of the cloud that runs."""
    room = project(PREFIX)
    await asyncio.to_thread(room.clean)
    try:
        stage = await _stage(room)
        async with aiohttp.ClientSession() as http:
            play = Play(stage, http)
            await play.all(SCRIPT)
            return play.answers
    finally:
        await asyncio.to_thread(room.clean)


async def _stage(room: Real) -> Stage:
    servers = await room.servers(PREFIX, 3)
    return await asyncio.to_thread(_prepared, room, servers)


def _prepared(room: Real, servers: list[str]) -> Stage:
    """Three servers, the last one stopped, and little room for more."""
    named = {one.name: one.id for one in room.found(f"^{PREFIX}-")}
    ordered = [named[f"{PREFIX}-{n}"] for n in (1, 2, 3)]
    assert sorted(ordered) == sorted(servers)
    room.api.compute.stop_server(ordered[2])
    room._until(lambda: room.status(ordered[2]) == "SHUTOFF")
    mine = room.api.current_project_id
    admin = seed.connect("admin", "admin")
    admin.network.update_quota(mine, floatingip=_FLOATING, security_group=_GROUPS)
    admin.load_balancer.update_quota(mine, load_balancers=_BALANCERS)
    ports = [room.ports(id_)[0] for id_ in ordered]
    public = room.api.network.find_network("public")
    subnets = {
        one.ip_version: one.id for one in room.api.network.subnets(network_id=room.network.id)
    }
    names = {
        "user": seed.USER,
        "password": PASSWORD,
        "own": room.name,
        "provider": "proreus",
        "project": mine,
        "revoked": _revoked(room),
        "network": room.network.id,
        "router": room.router.id,
        "flavor": room.flavor,
        "public": public.id,
        "public_subnet": public.subnet_ids[0],
        "subnet4": subnets[4],
        "subnet6": subnets[6],
    }
    for n, (server, port) in enumerate(zip(ordered, ports, strict=True), 1):
        address = next(one["ip_address"] for one in port.fixed_ips if "." in one["ip_address"])
        names |= {f"server{n}": server, f"port{n}": port.id, f"address{n}": address}
    return Stage(url("keystone", "/v3"), names)


def _revoked(room: Real) -> str:
    """A token that was good."""
    token = str(seed.connect(seed.USER, room.name).auth_token)
    headers = {"X-Subject-Token": token, "X-Auth-Token": token}
    answer = room.api.identity.delete("/auth/tokens", headers=headers)
    assert answer.status_code == 204, answer.text
    return token


def main() -> None:
    """Write the file."""
    if running() is None:
        raise SystemExit("no OpenStack runs on this machine: make openstack-up starts one")
    answers = asyncio.run(record())
    RECORDED.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
    print(f"{len(answers)} answers in {RECORDED}")


if __name__ == "__main__":
    main()
