"""What the tests of the provider `gce` share: cloud-configs, a context and a started provider."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from proreus.cloudprovider.calls import CallHooks
from proreus.cloudprovider.config import read
from proreus.cloudprovider.context import Context
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.kube.objects import Node
from proreus.providers.gce import GCECloud
from proreus.providers.gce.config import GCEConfig
from proreus.providers.gce.identity import NEED
from proreus.testing import objects

from ..surroundings import Clock, Events, Objects  # noqa: TID252 - pytest imports tests by path
from .cloud.server import Gce
from .cloud.world import PROJECT, ZONES

CLUSTER = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-000000000001")
PATIENT = "[Client]\ntimeout = 300s\noperation-timeout = 300s\n"
"""The machine of the tests may stand still for a while."""


def config_text(gce: Gce, extra: str = "", sections: str = PATIENT) -> str:
    """An official file that sends every call to the emulator."""
    return f"[global]\napi-endpoint = {gce.api}\nmultizone = true\n{extra}\n{sections}"


def context(
    hooks: CallHooks | None = None,
    events: Events | None = None,
    clock: Clock | None = None,
    **listers: Any,
) -> Context:
    return Context(
        CLUSTER,
        now=clock or Clock(),
        events=events or Events(),
        listers={NEED: Objects(), "nodes": Objects(), "services": Objects(), **listers},
        hooks=hooks,
    )


@asynccontextmanager
async def started(text: str, with_: Context | None = None) -> AsyncIterator[GCECloud]:
    """A started provider with this cloud-config."""
    provider = GCECloud(read(text, GCEConfig, source="gce.conf"))
    try:
        await provider.start(with_ or context())
        yield provider
    finally:
        await provider.close()


def node(name: str, provider_id: str = "", **labels: str) -> Node:
    return objects.node(name, provider_id, labels=labels)


def node_of(name: str, zone: str = ZONES[0]) -> Node:
    return node(name, f"gce://{PROJECT}/{zone}/{name}")
