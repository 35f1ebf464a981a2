"""What a cluster and its cloud look like, with everything by names that are the same in each run."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from proreus.kube.objects import Service
from proreus.kube.requests import SERVICES

from ...play import Judge, Picture, Play, Scenario  # noqa: TID252 - pytest imports tests by path
from ..emulator.store import Resource  # noqa: TID252
from .stage import FIXED_ADDRESS, Stage

PARTS: Final = {
    "loadBalancers": (
        "frontendIPConfigurations", "backendAddressPools", "loadBalancingRules", "probes",
    ),
    "publicIPAddresses": (),
    "networkSecurityGroups": ("securityRules",),
    "routeTables": ("routes",),
}  # fmt: skip
"""Types of resources, and which of their lists have parts with names."""
_SKIPPED: Final = frozenset({"etag", "provisioningState", "resourceGuid", "ipConfiguration"})
_UID: Final = re.compile(r"\ba[0-9a-f]{31}\b")
"""What the parts of a Service begin with, here of one that is gone."""
_CONDITIONS: Final = ("CloudInitialized", "NetworkUnavailable")


class Names:
    """Replaces what differs from run to run."""

    def __init__(self, services: Iterable[Service], addresses: Iterable[Resource]) -> None:
        """Learn what load balancers and their addresses are called."""
        self._of: dict[str, str] = {}
        for one in services:
            whole = "a" + one.metadata.uid.replace("-", "")
            self._of[whole[:32]] = f"<{one.metadata.name}>"
        for address in addresses:
            found = address["properties"].get("ipAddress", "")
            if found and found != FIXED_ADDRESS:
                self._of[found] = f"<address of {self(address['name'])}>"

    def __call__(self, value: Any) -> str:
        """The value as text: of ids the last two parts."""
        if isinstance(value, list):
            return ", ".join(sorted(self(one) for one in value))
        if isinstance(value, Mapping):
            kept = {key: one for key, one in value.items() if key not in _SKIPPED}
            return ", ".join(f"{key} {self(one)}" for key, one in sorted(kept.items()))
        text = str(value).lower()
        if text.startswith("/subscriptions/"):
            text = "/".join(text.split("/")[-2:])
        for id_ in sorted(self._of, key=len, reverse=True):
            text = re.sub(rf"(?<![0-9.]){re.escape(id_)}(?![0-9])", self._of[id_], text)
        return _UID.sub("<gone>", text)


async def picture(stage: Stage) -> Picture:
    """Load balancers and Services."""
    listed = (await stage.site.client.list(SERVICES, "default")).items
    services = [one for one in listed if one.metadata.name != "kubernetes"]
    store = stage.azure.store
    names = Names(services, store.kind("Microsoft.Network/publicIPAddresses"))
    found: list[tuple[str, str]] = []
    for kind in ("loadBalancers", "publicIPAddresses", "networkSecurityGroups"):
        for one in store.kind(f"Microsoft.Network/{kind}"):
            found += _resource(names, kind, store.shown(one))
    for service in services:
        found += _service(names, service)
    return dict(found)


async def nodes(stage: Stage) -> Picture:
    """The nodes and routes."""
    names, store = Names((), ()), stage.azure.store
    found: list[tuple[str, str]] = []
    for one in store.kind("Microsoft.Network/routeTables"):
        found += _resource(names, "routeTables", store.shown(one))
    for name, node in (await stage.site.nodes()).items():
        for condition in node.status.conditions:
            if condition.type in _CONDITIONS:
                text = f"{condition.status} {condition.reason}"
                found.append((f"node {name}/condition {condition.type}", text))
    return dict(found)


def _resource(names: Names, kind: str, resource: Resource) -> Iterator[tuple[str, str]]:
    where = f"{kind} {names(resource['name'])}"
    yield where, names(resource.get("sku") or "there")
    for key, value in (resource.get("tags") or {}).items():
        yield f"{where}/tag {key}", names(value)
    for key, value in resource["properties"].items():
        if key in PARTS[kind]:
            for part in value:
                yield from _part(names, f"{where}/{key} {names(part['name'])}", part)
        elif key not in _SKIPPED and value not in ([], None, ""):
            yield f"{where}/{key}", names(value)


def _part(names: Names, where: str, part: Resource) -> Iterator[tuple[str, str]]:
    yield where, "there"
    for key, value in part["properties"].items():
        if key not in _SKIPPED and value not in ([], None, ""):
            yield f"{where}/{key}", names(value)


def _service(names: Names, service: Service) -> Iterator[tuple[str, str]]:
    where = f"service {service.metadata.name}"
    ingress = [one.ip for one in service.status.load_balancer.ingress]
    yield f"{where}/ingress", names(ingress)
    for finalizer in service.metadata.finalizers:
        yield f"{where}/finalizer {finalizer}", "there"
    for one in service.status.conditions:
        yield f"{where}/condition {one.type}", f"{one.status} {one.reason}"


def playing(stage: Stage, judge: Judge, settle: float = 0.0) -> Play:
    """A turn on this stage, with these pictures."""
    return Play(stage, lambda: nodes(stage), lambda: picture(stage), judge, settle)


async def play(stage: Stage, turn: Play, scenarios: Sequence[Scenario]) -> None:
    """The nodes, then the scenarios, each with an empty security group."""
    await turn.nodes()
    for scenario in scenarios:
        await turn.all((scenario,))
        stage.sweep()
