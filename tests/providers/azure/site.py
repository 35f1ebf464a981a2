"""What the tests of the provider `azure` share: an emulator with a network, a started provider."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proreus.cloudprovider.calls import CallHooks
from proreus.cloudprovider.config import read
from proreus.cloudprovider.context import Context
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.kube.objects import Node
from proreus.providers.azure import AzureCloud
from proreus.providers.azure.config import AzureConfig
from proreus.testing import objects

from ..surroundings import Events, Objects  # noqa: TID252 - pytest imports tests by path
from .emulator.identity import CLIENT, SECRET, TENANT
from .emulator.seed import seed
from .emulator.server import Emulator, served
from .emulator.store import GROUP, LOCATION, SUBSCRIPTION

ROLE = json.loads((Path(__file__).parents[3] / "deploy" / "azure" / "role.json").read_text())
CLUSTER = ClusterIdentity("kubernetes", "0b5e3a1c-0000-4000-8000-000000000001")
ID = f"azure:///subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP.lower()}/providers/Microsoft.Compute"


def settings(url: str, **more: Any) -> dict[str, Any]:
    """An azure.json as the official manager has it; None takes a key out."""
    found = {
        "cloud": "AzureStackCloud",
        "resourceManagerEndpoint": url,
        "disableAzureStackCloud": True,
        "tenantId": TENANT,
        "subscriptionId": SUBSCRIPTION,
        "aadClientId": CLIENT,
        "aadClientSecret": SECRET,
        "resourceGroup": GROUP,
        "location": LOCATION,
        "vnetName": "vnet",
        "subnetName": "nodes",
        "securityGroupName": "nsg",
        "routeTableName": "routes",
        "vmType": "vmss",
        "loadBalancerSku": "standard",
        **more,
    }
    return {key: value for key, value in found.items() if value is not None}


def config(url: str, **more: Any) -> AzureConfig:
    return read(json.dumps(settings(url, **more)), AzureConfig, source="azure.json")


@asynccontextmanager
async def emulated() -> AsyncIterator[Emulator]:
    """An emulator with a network, which lets the manager do what its role has."""
    emulator = Emulator()
    emulator.actions = set(ROLE["Actions"])
    seed(emulator.store)
    async with served(emulator):
        yield emulator


def context(
    hooks: CallHooks | None = None,
    nodes: Iterable[Node] = (),
    events: Events | None = None,
    cluster: ClusterIdentity = CLUSTER,
    services: Objects | None = None,
) -> Context:
    listers = {"nodes": Objects(nodes)}
    return Context(
        cluster,
        now=lambda: datetime.now(UTC),
        events=events or Events(),
        listers=listers if services is None else {**listers, "services": services},
        hooks=hooks,
    )


@asynccontextmanager
async def started(
    emulator: Emulator, with_: Context | None = None, **more: Any
) -> AsyncIterator[AzureCloud]:
    """A started provider with this cloud-config."""
    provider = AzureCloud(config(emulator.url, **more))
    try:
        await provider.start(with_ or context())
        emulator.counted()
        yield provider
    finally:
        await provider.close()


def node(name: str, provider_id: str = "", labels: Mapping[str, str] | None = None) -> Node:
    return objects.node(name, provider_id, labels=labels or {})
