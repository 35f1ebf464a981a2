"""A cluster on AWS moves from the official manager to this one and back, and keeps its parts."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import pytest
from botocore.exceptions import ClientError

from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from ....apiserver.site import PATIENCE  # noqa: TID252 - pytest imports tests by path
from ....parity.compare import surprises  # noqa: TID252
from ...changes import Change, make  # noqa: TID252
from ...play import Picture, port  # noqa: TID252
from ..strict.process import StrictAWS  # noqa: TID252
from .expected import MEANT
from .managers import build, official, ours
from .picture import nodes, picture, playing
from .scenarios import ARN, HTTP, HTTPS, LOCAL, RANGES, classic, nlb
from .stage import Stage, staged

pytestmark = pytest.mark.long

QUIET: Final = 4.0
"""Seconds without a write after which a manager is taken to be content."""
FIRST: Final[Mapping[str, Change]] = {
    "plain": classic(HTTP),
    "many": classic(
        port(80, 30180),
        port(443, 30543),
        ssl_cert=ARN,
        ssl_ports="443",
        backend_protocol="http",
        cross_zone_load_balancing_enabled="true",
        connection_idle_timeout="90",
        additional_resource_tags="team=a",
    ),
    "proxied": classic(port(80, 30280), spec=RANGES, proxy_protocol="*"),
    "network": nlb(port(80, 30380), port(443, 30743)),
    "near": nlb(port(80, 30480), spec=LOCAL, target_group_attributes="preserve_client_ip.enabled=false"),
    "names": nlb(port(53, 30053, "UDP"), internal="true"),
    "short": nlb(port(80, 30580)),
    "old": classic(port(80, 30680)),
}  # fmt: skip
HARMLESS: Final = {"elasticloadbalancing.AddTags", "elb.AddTags", "elbv2.AddTags", "ec2.CreateTags"}

LEFT: Final = "<group nodes>/rule icmp 3-4 from "
"""What the official manager leaves when its last load balancers go side by side."""


async def test_a_cluster_moves_from_the_official_manager_and_back_and_keeps_its_parts(
    control_plane: ControlPlane, aws: StrictAWS, tmp_path: Path
) -> None:
    program = await build(tmp_path)
    async with staged(control_plane, aws, tmp_path) as stage:
        theirs, mine = official(stage, program), ours(stage)
        try:
            await theirs.start()
            await stage.initialised()
            await make(stage.site, FIRST)
            before, ids, machines = await seen(stage), parts(stage), await nodes(stage)
            await theirs.stop()

            aws.calls()
            await mine.start()
            await until("all are ours", lambda: are_ready(stage))
            after = await seen(stage)
            found = surprises("services", before, after, MEANT)
            assert found == [], "\n".join(found)
            assert surprises("nodes", machines, await nodes(stage), MEANT) == []
            assert set(writes(aws)) <= HARMLESS
            assert parts(stage) == ids

            await stage.change("network", nlb(port(80, 30380), port(443, 30743), port(8443, 30843)))
            await stage.change("plain", classic(HTTP, HTTPS))
            await stage.change("short", Change())
            await stage.change("old", Change())
            await make(stage.site, {"late": classic(port(80, 30980))})
            edited, ids, machines = await seen(stage), parts(stage), await nodes(stage)
            await mine.stop()

            aws.calls()
            await theirs.start()
            await until("the official one has looked at all", looked(stage))
            found = surprises("services", await seen(stage), edited, MEANT)
            assert found == [], "\n".join(found)
            assert [one for one in writes(aws) if is_new_or_gone(one)] == []
            assert parts(stage) == ids
            assert await nodes(stage) == machines

            for name in (*FIRST, "late"):
                if name not in {"short", "old"}:
                    await stage.change(name, Change())
            deadline = time.monotonic() + PATIENCE
            while (rest := await left(stage)) and time.monotonic() < deadline:
                await asyncio.sleep(1)
            assert rest == []
        finally:
            await mine.stop()
            await theirs.stop()
            print(mine.output()[-4000:], (tmp_path / "official.log").read_text()[-8000:])


async def seen(stage: Stage) -> Picture:
    """What there is, once nothing changes any more."""
    return await playing(stage, lambda *_: True, QUIET).picture()


def parts(stage: Stage) -> dict[str, str]:
    """What AWS made for load balancers: their ids, and where clients find them."""
    found = {}
    for old in stage.classic.describe_load_balancers()["LoadBalancerDescriptions"]:
        found[old["LoadBalancerName"]] = old["DNSName"]
    for one in stage.elb.describe_load_balancers()["LoadBalancers"]:
        arn = one["LoadBalancerArn"]
        found[arn] = one["DNSName"]
        for listener in stage.elb.describe_listeners(LoadBalancerArn=arn)["Listeners"]:
            found[listener["ListenerArn"]] = arn
    for group in stage.elb.describe_target_groups()["TargetGroups"]:
        found[group["TargetGroupArn"]] = group["TargetGroupName"]
    for one in stage.network.ec2.describe_security_groups()["SecurityGroups"]:
        found[one["GroupId"]] = one["GroupName"]
    return found


def writes(aws: StrictAWS) -> list[str]:
    """The calls of the manager that were no questions."""
    return [one for one in aws.calls() if not one.split(".")[1].startswith(("Describe", "Get"))]


def is_new_or_gone(call: str) -> bool:
    """Whether the call makes or deletes something, or takes hosts off.

    The official manager makes the policy of the PROXY protocol each time; there is one all the time.
    """
    verbs = ("Create", "Delete", "Deregister")
    is_one = call.split(".")[1].startswith(verbs)
    return is_one and call not in {"ec2.CreateTags", "elb.CreateLoadBalancerPolicy"}


async def are_ready(stage: Stage) -> bool:
    """Whether this manager has found all Services to be as they should be."""
    found = await picture(stage)
    ready = [value for key, value in found.items() if key.endswith("condition LoadBalancerReady")]
    return ready == ["True Ensured"] * len(FIRST)


def looked(stage: Stage) -> Callable[[], Awaitable[bool]]:
    """Whether the official manager has begun to ensure all Services since now."""
    log = stage.directory / "official.log"
    start = log.stat().st_size
    names = {*FIRST, "late"} - {"short", "old"}

    async def all_named() -> bool:
        text = log.read_bytes()[start:].decode(errors="replace")
        return all(f"EnsureLoadBalancer(test, default, {name}," in text for name in names)

    return all_named


async def left(stage: Stage) -> list[str]:
    """What is there that was not before there were Services."""
    try:
        found = await picture(stage)
    except ClientError as error:  # a load balancer went away while the picture was taken
        return [str(error)]
    before = ("<group nodes>/description", "<group nodes>/tag ", LEFT)
    return [key for key in found if not key.startswith(before)]
