"""Azure's own SDK for Python works on the emulator, pages, operations and refusals included."""

import asyncio
import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from ..tls import server_tls  # noqa: TID252 - pytest imports tests by path
from .emulator import seed
from .emulator.identity import CLIENT, SECRET, TENANT
from .emulator.server import Emulator, served
from .emulator.store import GROUP, SUBSCRIPTION

pytestmark = pytest.mark.long


async def test_the_sdk_makes_lists_and_deletes(tmp_path: Path) -> None:
    python = os.environ.get("PROREUS_AZURE_SDK", sys.executable)
    if python == sys.executable and importlib.util.find_spec("azure") is None:
        pytest.skip(
            "no SDK of Azure: pip install azure-identity azure-mgmt-compute azure-mgmt-network"
        )
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
            python,
            str(Path(__file__).with_name("sdk_client.py")),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "REQUESTS_CA_BUNDLE": str(ca), "SSL_CERT_FILE": str(ca)},
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
        "states": ["PowerState/running"] * 3 + ["ProvisioningState/succeeded"] * 3,
    }
