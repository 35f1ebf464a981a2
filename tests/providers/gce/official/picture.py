"""What a cluster and its cloud look like, with everything by names that are the same in each run."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from proreus.kube.objects import Node, Service
from proreus.kube.requests import SERVICES
from proreus.providers.gce.names import path_in

from ...play import Judge, Picture, Play  # noqa: TID252 - pytest imports tests by path
from .stage import STATIC, Stage

KINDS: Final = (
    *("addresses", "backendServices", "firewalls", "forwardingRules", "healthChecks"),
    *("httpHealthChecks", "instanceGroups", "targetPools"),
)
_SKIPPED: Final = frozenset(
    {
        *("id", "creationTimestamp", "selfLink", "fingerprint", "labelFingerprint", "kind"),
        *("name", "region", "zone", "users", "status"),
    }
)
_CONDITIONS: Final = ("CloudInitialized", "NetworkUnavailable")


class Names:
    """Replaces what differs from run to run."""

    def __init__(self, services: Iterable[Service], rules: Iterable[dict[str, Any]]) -> None:
        """Learn what load balancers and their addresses are called."""
        self._of: dict[str, str] = {}
        for one in services:
            whole = "a" + one.metadata.uid.replace("-", "")
            self._of[whole[:32]] = f"<{one.metadata.name}>"
        for rule in rules:
            if rule["IPAddress"] != STATIC:
                name = self._of.get(rule["name"][:32], "<gone>")
                self._of[rule["IPAddress"]] = f"<address of {name.strip('<>')}>"

    def __call__(self, value: Any) -> str:
        """The value as text."""
        if isinstance(value, str):
            text = path_in(value) or value
        elif isinstance(value, list):
            text = ", ".join(sorted(self(one) for one in value))
        elif isinstance(value, dict):
            text = ", ".join(f"{key} {self(one)}" for key, one in sorted(value.items()))
        else:
            text = json.dumps(value)
        for id_ in sorted(self._of, key=len, reverse=True):
            text = re.sub(rf"(?<![0-9.]){re.escape(id_)}(?![0-9])", self._of[id_], text)
        return text


async def picture(stage: Stage) -> Picture:
    """Load balancers and Services."""
    listed = (await stage.site.client.list(SERVICES, "default")).items
    services = [one for one in listed if one.metadata.name != "kubernetes"]
    world = stage.gce.world
    found: list[tuple[str, str]] = []
    with world.lock:
        names = Names(services, [one for _, one in world.of("forwardingRules")])
        for kind in KINDS:
            for path, one in world.of(kind):
                zone = f" in {path.split('/')[3]}" if kind == "instanceGroups" else ""
                found += _fields(names, f"{kind} {names(one['name'])}{zone}", one)
    for service in services:
        found += _service(names, service)
    return dict(found)


async def nodes(stage: Stage) -> Picture:
    """The nodes and routes."""
    found = await stage.site.nodes()
    lines = [line for name, node in found.items() for line in _node(name, node)]
    world = stage.gce.world
    with world.lock:
        for _, one in world.of("routes"):
            fields = {key: value for key, value in one.items() if key not in _SKIPPED}
            lines.append((f"route {one['destRange']}", Names((), ())(fields)))
            lines.append((f"route {one['destRange']}/name", one["name"].split("-")[0]))
    return dict(lines)


def _fields(names: Names, where: str, resource: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield where, "there"
    for key, value in resource.items():
        if key == "labels":
            for label, text in value.items():
                yield f"{where}/label {label}", names(text)
        elif key not in _SKIPPED:
            yield f"{where}/{key}", names(value)


def _service(names: Names, service: Service) -> Iterator[tuple[str, str]]:
    where = f"service {service.metadata.name}"
    ingress = [one.ip for one in service.status.load_balancer.ingress]
    yield f"{where}/ingress", names(ingress)
    for finalizer in service.metadata.finalizers:
        yield f"{where}/finalizer {finalizer}", "there"
    for one in service.status.conditions:
        yield f"{where}/condition {one.type}", f"{one.status} {one.reason}"


def _node(name: str, node: Node) -> Iterator[tuple[str, str]]:
    where = f"node {name}"
    yield f"{where}/provider id", node.spec.provider_id
    for key, value in node.metadata.labels.items():
        if not key.startswith("kubernetes.io/"):
            yield f"{where}/label {key}", value
    for taint in node.spec.taints:
        yield f"{where}/taint {taint.key}", taint.effect
    addresses = [f"{one.type} {one.address}" for one in node.status.addresses]
    yield f"{where}/addresses", ", ".join(addresses)
    for one in node.status.conditions:
        if one.type in _CONDITIONS:
            yield f"{where}/condition {one.type}", f"{one.status} {one.reason}"


def playing(stage: Stage, judge: Judge, settle: float = 0.0) -> Play:
    """A turn on this stage, with these pictures."""
    return Play(stage, lambda: nodes(stage), lambda: picture(stage), judge, settle)
