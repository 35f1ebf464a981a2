"""What happens to Services while a cluster moves from one manager to another."""

from collections.abc import Mapping
from typing import Any

import msgspec

from proreus.kube.errors import NotFound
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import SERVICES
from proreus.testing.waiting import until

from ..apiserver.site import PATIENCE, Site  # noqa: TID252 - pytest imports tests by path


class Change(msgspec.Struct, frozen=True):
    """What happens to a Service: it is made or is to be so; without ports it is deleted."""

    ports: tuple[Mapping[str, Any], ...] = ()
    annotations: Mapping[str, str | None] = {}
    spec: Mapping[str, Any] = {}


async def happen(site: Site, name: str, change: Change) -> None:
    """Let this happen to a Service."""
    body = {
        "metadata": {"name": name, "annotations": change.annotations},
        "spec": {"ports": change.ports, **change.spec},
    }
    if not change.ports:
        await site.client.delete(SERVICES, name, "default")
        return
    try:
        await site.service(name)
    except NotFound:
        body["spec"]["type"] = "LoadBalancer"
        await site.client.create(SERVICES, body, "default")
    else:
        await site.client.patch(SERVICES, name, Patch(PatchType.MERGE, body), "default")


async def make(site: Site, changes: Mapping[str, Change], patience: float = PATIENCE) -> None:
    """Make or edit Services, and wait for their addresses."""
    for name, change in changes.items():
        await happen(site, name, change)

    async def have_addresses() -> bool:
        found = [await site.service(name) for name in changes]
        return all(one.status.load_balancer.ingress for one in found)

    await until("the Services have addresses", have_addresses, patience)
