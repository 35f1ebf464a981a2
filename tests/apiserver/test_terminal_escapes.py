"""What a kubelet writes in its Node does nothing to the terminal of whoever looks."""

from pathlib import Path
from typing import Any, Final

from proreus.kube.objects import ANNOTATION_PROVIDED_NODE_IP
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES
from proreus.testing import programs

from .read_only import reader
from .site import Site

SLY: Final = "\x1b]0;owned\x07\x1b[2J\nno problem found (1 node, 0 Services)\r\u202e"
"""Sets the terminal's title, clears its screen and begins a line of its own."""


async def test_no_command_passes_on_what_controls_a_terminal(site: Site, tmp_path: Path) -> None:
    meta = {"name": "sly", "annotations": {ANNOTATION_PROVIDED_NODE_IP: SLY}}
    await site.client.create(NODES, {"metadata": meta})
    said: dict[str, Any] = {"type": "Ready", "status": "False", "reason": "Sly", "message": SLY}
    body = {"status": {"conditions": [said]}}
    await site.client.patch(NODES, "sly", Patch(PatchType.MERGE, body), subresource="status")

    async with reader(site, "looker", tmp_path) as looker:
        doctor = (await looker.run("doctor")).out
        plan = (await looker.run("plan")).out
    config = f"--kubeconfig={site.plane.kubeconfig}"
    _, status, _ = await programs.run("proreus", "status", config, "--once", "--all")

    for shown in (doctor, plan, status):
        lines = shown.splitlines()
        assert all(line.isprintable() for line in lines)
        assert "no problem found (1 node, 0 Services)" not in lines
    for shown in (doctor, status):
        assert r"\x1b]0;owned\x07\x1b[2J\nno problem found" in shown
