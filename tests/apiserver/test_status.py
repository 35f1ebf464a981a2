"""The command `proreus status`, asking the API server and asking a manager."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from proreus.app.doctor.observed import PODS
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import ENDPOINT_SLICES, SERVICES
from proreus.testing import programs
from proreus.testing.ports import free_port
from proreus.testing.waiting import until

from .read_only import existing
from .site import Site


async def status(*flags: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the command."""
    return await asyncio.wait_for(programs.run("proreus", "status", *flags), 60)


async def test_it_shows_nodes_services_and_who_leads(site: Site) -> None:
    await site.join("good")
    await site.create_service("pending")
    async with site.manager("--controllers=cloud-node"):
        await site.initialised("good")
        code, shown, _ = await status(f"--kubeconfig={site.plane.kubeconfig}", "--once", "--all")

    assert code == 0
    assert "NODES      1  1 ready" in shown
    assert "good" in shown
    assert "default/pending" in shown
    assert "LEASE      cloud-controller-manager: " in shown
    assert "give --url" in shown


SPEAKER: Final[dict[str, Any]] = {
    "metadata": {"labels": {"app.kubernetes.io/component": "bgp-speaker"}},
    "spec": {"containers": [{"name": "bgp-speaker", "image": "proreus"}]},
}


async def test_it_shows_what_bgp_speakers_announce(site: Site, tmp_path: Path) -> None:
    await site.join("one", "two")
    ensured = {
        "type": "LoadBalancerReady",
        "status": "True",
        "reason": "Ensured",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    async with AsyncExitStack() as stack:
        for name, ready in (("one", "True"), ("two", "False")):
            meta = {**SPEAKER["metadata"], "name": f"speaker-{name}"}
            body = {"metadata": meta, "spec": {**SPEAKER["spec"], "nodeName": name}}
            await stack.enter_async_context(existing(site.client, PODS, body, "default"))
            said = {"conditions": [{"type": "Ready", "status": ready}]}
            patch = Patch(PatchType.MERGE, {"status": said})
            await site.client.patch(PODS, meta["name"], patch, "default", "status")
        for name, ip in (("web", "192.0.2.65"), ("far", "198.51.100.1")):
            await site.create_service(name)
            shown_at = {"loadBalancer": {"ingress": [{"ip": ip}]}, "conditions": [ensured]}
            patch = Patch(PatchType.MERGE, {"status": shown_at})
            await site.client.patch(SERVICES, name, patch, "default", "status")
            slice_ = {
                "metadata": {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.0.0.1"]}],
                "ports": [],
            }
            of_slices = existing(site.client, ENDPOINT_SLICES, slice_, "default")
            await stack.enter_async_context(of_slices)
        asked = (f"--kubeconfig={site.plane.kubeconfig}", "--once")
        _, without, _ = await status(*asked)
        config = tmp_path / "local.yaml"
        config.write_text("pools: {default: {addresses: [192.0.2.64/27]}}")
        _, shown, _ = await status(*asked, f"--cloud-config={config}")
        config.write_text("pools: 1")
        code, _, refused = await status(*asked, f"--cloud-config={config}")

    assert "SPEAKER    one: announces 192.0.2.65, 198.51.100.1\n" in without
    assert "SPEAKER    one: announces 192.0.2.65\n" in shown
    assert "SPEAKER    two: its pod is Pending; is to announce 192.0.2.65\n" in shown
    assert code == 2
    assert "pools" in refused


async def test_a_manager_knows_more(site: Site) -> None:
    await site.join("good")
    port = free_port()
    serving = ("--bind-address=127.0.0.1", f"--secure-port={port}", "--status-page")
    asked = (
        f"--kubeconfig={site.plane.kubeconfig}",
        f"--url=https://127.0.0.1:{port}",
        "--insecure-skip-tls-verify",
    )
    async with site.lone_manager("--controllers=cloud-node", *serving):
        await site.initialised("good")

        async def known() -> dict[str, Any] | None:
            code, shown, _ = await status(*asked, "--json")
            found: dict[str, Any] = json.loads(shown) if code == 0 else {}
            return found if found.get("nodes") else None

        found = await until("the manager answers", known)
        _, table, _ = await status(*asked, "--once")

    assert [(row["name"], row["state"]) for row in found["nodes"]] == [("good", "ready")]
    assert found["inside"]["cloud"]["calls"]["ok"] >= 1
    assert found["inside"]["deletions"] == {"waiting": 0, "held": 0, "unproven": 0, "unknown": []}
    assert "0 held by the breaker" in table


async def test_what_cannot_be_asked_is_an_error(site: Site) -> None:
    nobody = f"--url=https://127.0.0.1:{free_port()}"
    code, shown, error = await status(f"--kubeconfig={site.plane.kubeconfig}", nobody, "--once")
    assert (code, shown) == (1, "")
    assert "the request to" in error

    code, _, error = await status("--interval=often", "--rows=3")
    assert code == 2
    assert "--interval: 'often'" in error
    assert "unknown flag --rows" in error
