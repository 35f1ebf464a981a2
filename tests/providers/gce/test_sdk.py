"""Google's own SDKs for Python work on the emulator: both of them, pages and refusals included."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from ..packages import installed  # noqa: TID252 - pytest imports tests by path
from .cloud.server import Gce
from .cloud.world import PROJECT, REGION, ZONES
from .lb_site import KINDS
from .test_federation import Workload

pytestmark = pytest.mark.long

SDK = (
    "google-api-python-client==2.202.0",
    "google-auth[requests]==2.62.2",
    "google-auth-httplib2==0.4.4",
    "google-cloud-compute==1.56.0",
)
"""Google's packages; with what they need they take 235 MB."""


async def test_both_sdks_get_a_token_and_make_list_and_delete(gce: Gce, tmp_path: Path) -> None:
    packages = await installed("google-sdk", SDK)
    workload = Workload(gce, tmp_path)
    workload.token.write_text(gce.tokens.workload)  # google-auth takes the line's end for a part
    gce.run("node-1", "node-2")
    gce.world.latency = 0.05
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("sdk_client.py")),
        *(gce.endpoint, PROJECT, REGION, ZONES[0]),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": str(packages),
            "GOOGLE_APPLICATION_CREDENTIALS": str(workload.file),
            "GOOGLE_CLOUD_PROJECT": PROJECT,
            "GOOGLE_API_USE_CLIENT_CERTIFICATE": "false",
            "NO_PROXY": "127.0.0.1",
        },
    )
    said, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    answered = json.loads(said)
    assert answered.pop("v6").startswith("2600:1900:1:2:")
    assert answered == {
        "credentials": "Credentials",
        "unreserved": "400 invalid",
        "in use": "400 resourceInUseByAnotherResource",
        "again": "409 alreadyExists",
        "rules": "tcp,udp",
        "pages": "2",
        "stale": "412 conditionNotMet",
        "inside": "400 invalid",
        "status": "RUNNING",
        "instances": "node-1,node-2",
        "missing": "NotFound",
        "source": "0.0.0.0/0",
        "deleted": "DONE",
        "attached again": "BadRequest",
        "endpoints": "node-1",
        "size": "1",
        "detached": "DONE",
    }
    assert not any(map(gce.names, KINDS))
