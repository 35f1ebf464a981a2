"""Azure's own SDK for Python works on the emulator, pages, operations and refusals included."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from ..packages import installed  # noqa: TID252 - pytest imports tests by path
from ..tls import server_tls  # noqa: TID252
from .emulator import seed
from .emulator.identity import CLIENT, SECRET, TENANT
from .emulator.server import Emulator, served
from .emulator.store import GROUP, SUBSCRIPTION

pytestmark = pytest.mark.long

SDK = (
    "azure-identity==1.27.0",
    "azure-mgmt-compute==39.0.0",
    "azure-mgmt-network==33.1.0",
    "azure-mgmt-resourcegraph==8.0.1",
)
"""Azure's packages; with what they need they take 97 MB."""


async def test_the_sdk_makes_lists_and_deletes(tmp_path: Path) -> None:
    packages = await installed("azure-sdk", SDK)
    azure = Emulator()
    seed.seed(azure.store)
    seed.scale_set(azure.store, "pool")
    for number in range(3):
        seed.set_machine(azure.store, "pool", number)
        seed.machine(azure.store, f"node-{number}")
    azure.page, azure.works = 2, 1
    context, ca = server_tls(tmp_path)
    async with served(azure, tls=context):
        arguments = (azure.url, str(ca), SUBSCRIPTION, GROUP, TENANT, CLIENT, SECRET)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).with_name("sdk_client.py")),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": str(packages),
                "REQUESTS_CA_BUNDLE": str(ca),
                "SSL_CERT_FILE": str(ca),
            },
        )
        said, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    assert json.loads(said) == {
        "address": "20.50.0.1",
        "state": "Succeeded",
        "rules": ["r"],
        "listed": ["sdk"],
        "frontendPort": "LoadBalancingRuleIdleTimeoutInvalid",
        "protocol": "InvalidRequestFormat",
        "in use": "PublicIPAddressCannotBeDeleted",
        "gone": "ResourceNotFound",
        "machines": ["node-0", "node-1", "node-2"],
        "rows": ["pool_0", "pool_1", "pool_2"],
        "queried": [[2, 3, "true"], [1, 3, ""]],
        "language": "InvalidQuery",
        "states": ["PowerState/running"] * 3 + ["ProvisioningState/succeeded"] * 3,
    }
