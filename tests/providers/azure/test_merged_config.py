"""A whole manager on Azure whose cloud-config is a file and a Secret: both are followed."""

import base64
import json
from pathlib import Path

import pytest

from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import SECRETS
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ...apiserver.site import set_up  # noqa: TID252 - pytest imports tests by path
from .emulator import seed
from .emulator.identity import SECRET
from .site import emulated, settings

pytestmark = pytest.mark.long

FLAGS = ("--cloud-provider=azure", "--cluster-name=test", "--configure-cloud-routes=false")


def content(text: str) -> dict[str, dict[str, str]]:
    return {"data": {"cloud-config": base64.b64encode(text.encode()).decode()}}


async def told(manager: ManagerProcess, *parts: str) -> None:
    async def said() -> bool:
        return any(all(part in line for part in parts) for line in manager.output().splitlines())

    await until(f"the manager says {parts}", said)


async def test_a_secret_gives_what_the_file_leaves_out_and_both_are_followed(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with emulated() as azure, set_up(control_plane, tmp_path) as site:
        file = tmp_path / "azure.json"
        given = settings(azure.url, aadClientSecret=None, cloudConfigType="merge")
        file.write_text(json.dumps(given))
        seed.machine(azure.store, "node-1")
        await site.register_node(Instance(name="node-1", id="node-1", zone="1"), ready=True)
        flags = (*FLAGS, f"--cloud-config={file}", "--cloud-config-secret-name=cloud")
        async with site.lone_manager(*flags) as manager:
            await told(manager, "There is no cloud-config yet", "no Secret kube-system/cloud")
            body = {"metadata": {"name": "cloud"}, **content("{}")}
            await site.client.create(SECRETS, body, "kube-system")
            await told(manager, "cloud/cloud-config over", "aadClientSecret: give it")

            async def write(text: str) -> None:
                patch = Patch(PatchType.MERGE, content(text))
                await site.client.patch(SECRETS, "cloud", patch, "kube-system")

            await write(f"aadClientSecret: {SECRET}")
            await site.initialised("node-1")

            await write("aadClientSecret: [")
            await told(manager, "The new cloud-config is not used", "cloud/cloud-config:1: is not")
            await write(f"aadClientSecret: {SECRET}")
            await told(manager, "The cloud-config is back to the one in use")

            file.write_text(json.dumps({**given, "userAgent": "from-the-file"}))
            await told(manager, "The new cloud-config is in use")
            assert SECRET not in manager.output()
        await site.client.delete(SECRETS, "cloud", "kube-system")
