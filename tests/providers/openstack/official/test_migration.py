"""A cluster moves from the official manager to this one and back, on real services.

Seen by the ids of everything: whatever is made anew has another one.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from proreus.kube.errors import NotFound
from proreus.kube.objects import condition
from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from ...changes import Change, make  # noqa: TID252
from ..real import Real, project  # noqa: TID252
from .managers import build, official, ours
from .picture import Picture, ids, picture
from .stage import PREFIX, Stage, is_write, port, service, staged

pytestmark = [
    pytest.mark.long,
    # Of openstacksdk, by which the tests look at the cloud.
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
]

LONG: Final = 240.0
QUIET: Final = 5.0
"""Seconds without a change after which a manager is taken to be content."""
INTERNAL: Final = "service.beta.kubernetes.io/openstack-internal-load-balancer"
LOCAL: Final = {"externalTrafficPolicy": "Local"}
RANGES: Final = {"loadBalancerSourceRanges": ["192.0.2.0/24", "198.51.100.0/24"]}
STICKY: Final = {"sessionAffinity": "ClientIP"}
FIRST: Final[Mapping[str, Change]] = {
    "plain": service(port(80, 30080)),
    "names": service(port(53, 30053), port(53, 30153, "UDP")),
    "inside": Change((port(80, 30180),), {INTERNAL: "true"}, {}),
    "proxied": service(port(80, 30280), proxy_protocol="true"),
    "ranges": service(port(80, 30380), spec=RANGES),
    "near": service(port(80, 30480), port(53, 30553, "UDP"), spec=LOCAL, enable_health_monitor="true"),
    "tuned": service(
        port(80, 30580),
        spec=STICKY,
        enable_health_monitor="true",
        health_monitor_delay="10",
        health_monitor_max_retries="2",
        connection_limit="500",
        timeout_client_data="70000",
        lb_method="LEAST_CONNECTIONS",
    ),
    "headers": service(port(80, 30680), x_forwarded_for="true"),
    "named": service(port(80, 30780), hostname="www.example.org"),
    "kept": service(port(80, 30880), keep_floatingip="true"),
    "short": service(port(80, 30980)),
}  # fmt: skip


HARMLESS: Final = ("octavia PUT /v2.0/lbaas/loadbalancers/", "octavia PUT /v2.0/lbaas/listeners/")
"""Each manager writes its tags; the official one says of listeners that everyone may come."""
DESCRIBED: Final = ("neutron PUT /v2.0/floatingips/",)
"""This manager writes on floating IPs for which Service they were made, by its uid."""


@pytest.fixture(scope="module")
def real() -> Real:
    return project("official")


async def test_a_cluster_moves_from_the_official_manager_and_back_and_keeps_its_parts(
    control_plane: ControlPlane, real: Real, tmp_path: Path
) -> None:
    program = await build(tmp_path)
    async with staged(control_plane, real, tmp_path, 3) as stage:
        theirs, mine = official(stage, program), ours(stage)
        try:
            await theirs.start()
            await stage.initialised()
            await make(stage.site, FIRST, LONG)
            there = {
                **FIRST,
                "guest": await guest(stage, "plain", port(8080, 31380)),
                "brief": await guest(stage, "short", port(8080, 31480)),
            }
            await make(stage.site, {name: there[name] for name in ("guest", "brief")}, LONG)
            before = await seen(stage)
            await theirs.stop()

            mark = len(stage.proxy.log)
            await mine.start()
            await until("all are ours", lambda: are_ensured(stage, there), LONG)
            assert different(before, await seen(stage)) == []
            assert unexpected(stage, mark, *DESCRIBED) == []

            there |= {
                "plain": service(port(80, 30080), port(443, 31080)),
                "tuned": service(port(80, 31580), spec=STICKY),
                "late": service(port(80, 31180), port(53, 31253, "UDP")),
                "visitor": await guest(stage, "headers", port(8080, 31680)),
            }
            await make(
                stage.site,
                {name: there[name] for name in ("plain", "tuned", "late", "visitor")},
                LONG,
            )
            await remove(stage, there, "short", "brief")
            await until("it is as edited", lambda: is_as_desired(stage, there), LONG)
            edited = await seen(stage)
            await mine.stop()

            mark = len(stage.proxy.log)
            await theirs.start()
            await until("the official one has ensured all", ensured_again(stage, there), LONG)
            assert different(edited, await seen(stage)) == []
            assert unexpected(stage, mark) == []

            there["plain"] = service(port(443, 31080))
            there["late"] = service(port(80, 31180))
            await make(stage.site, {name: there[name] for name in ("plain", "late")}, LONG)
            await make(stage.site, {"last": service(port(80, 31780))}, LONG)
            await until(
                "it is as edited",
                lambda: is_as_desired(stage, {**there, "last": service(port(80, 31780))}),
                LONG,
            )
            await theirs.stop()

            await stage.change("last", Change())
            await mine.start()
            await until("what ours never saw before is gone", partial(is_gone, stage, "last"), LONG)
            await until("nothing of it is left", lambda: is_as_desired(stage, there), LONG)
            await mine.stop()
            await theirs.start()
            await remove(stage, there, "plain", "guest", "visitor", "headers")
            for name in there:
                await stage.change(name, Change())
            await until("only what was to be kept is left", lambda: is_empty(stage, 1), LONG)
        finally:
            await mine.stop()
            await theirs.stop()
            print(mine.output()[-6000:], (tmp_path / "official.log").read_text()[-9000:])


async def guest(stage: Stage, host: str, *ports: dict[str, Any]) -> Change:
    """A Service on the load balancer of another one."""
    annotations = (await stage.site.service(host)).metadata.annotations
    return service(*ports, load_balancer_id=annotations[f"{PREFIX}load-balancer-id"])


async def remove(stage: Stage, services: dict[str, Change], *names: str) -> None:
    """Delete Services, one after the other: of two on one load balancer, the last one takes it."""
    for name in names:
        if services.pop(name, None) is not None:
            await stage.change(name, Change())
            await until(f"{name} is gone", partial(is_gone, stage, name), LONG)


async def is_gone(stage: Stage, name: str) -> bool:
    """Whether there is no such Service."""
    try:
        await stage.site.service(name)
    except NotFound:
        return True
    return False


async def is_as_desired(stage: Stage, services: Mapping[str, Change]) -> bool:
    """Whether there are these listeners, which lead to these node ports, and no others."""
    edited = {
        (
            f"kube_service_test_default_{name}",
            one["protocol"] == "UDP",
            one["port"],
            one["nodePort"],
        )
        for name, change in services.items()
        for one in change.ports
    }
    found = await picture(stage)
    balancers = [key for key in found if re.fullmatch("balancer [^/]*/name", key)]
    used = {found[f"service {name}/annotation {PREFIX}load-balancer-id"] for name in services}
    there = set()
    for key in [key for key in found if re.fullmatch("listener [^/]*/name", key)]:
        where = key.removesuffix("/name")
        name = found[key].strip('"').split("_", 2)[2]
        pool = found[f"{where}/default_pool_id"].strip('"')
        for member in (key for key in found if re.fullmatch(f"pool {pool}/.*/protocol_port", key)):
            is_udp = found[f"{where}/protocol"] == '"UDP"'
            there.add((name, is_udp, int(found[f"{where}/protocol_port"]), int(found[member])))
    is_so = len(balancers) == len(used) and there == edited
    if not is_so:
        print(f"{len(balancers)} of {len(used)} balancers; differing: {sorted(there ^ edited)}")
    return is_so


async def seen(stage: Stage) -> Picture:
    """What there is, once nothing changes any more and nobody writes."""
    deadline = time.monotonic() + LONG
    last: tuple[Picture, int] = {}, 0
    since = time.monotonic()
    while True:
        writes = sum(map(is_write, stage.proxy.log))
        now = await picture(stage), writes
        if now != last:
            last, since = now, time.monotonic()
        if time.monotonic() - since >= QUIET:
            return last[0]
        assert time.monotonic() < deadline, "it does not come to rest"
        await asyncio.sleep(0.5)


def different(before: Picture, after: Picture) -> list[str]:
    """What is not as it was."""
    return [
        f"{key}: {before.get(key)} -> {after.get(key)}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]


def unexpected(stage: Stage, mark: int, *more: str) -> list[str]:
    """Writes since then that are more than notes on what is there."""
    writes = filter(is_write, stage.proxy.log[mark:])
    return [one for one in writes if not one.startswith((*HARMLESS, *more))]


async def are_ensured(stage: Stage, services: Mapping[str, Change]) -> bool:
    """Whether this manager has found all Services to be as they should be."""
    found = [await stage.site.service(name) for name in services]
    conditions = [condition(one.status.conditions, "LoadBalancerReady") for one in found]
    return all(one is not None and one.status == "True" for one in conditions)


def ensured_again(stage: Stage, services: Mapping[str, Change]) -> Callable[[], Awaitable[bool]]:
    """Whether the official manager has ensured all Services since now."""
    log = stage.directory / "official.log"
    start = log.stat().st_size

    async def all_named() -> bool:
        text = log.read_bytes()[start:].decode(errors="replace")
        done = set(re.findall(r'object="default/([^"]+)".*reason="EnsuredLoadBalancer"', text))
        return services.keys() <= done

    return all_named


async def is_empty(stage: Stage, kept: int) -> bool:
    """Whether nothing is left of any Service but floating addresses that were to be kept."""
    found = ids(await picture(stage))
    return len(found) == kept and all(one.startswith("floating ") for one in found)
