"""The command `proreus status`, asking the API server and asking a manager."""

import asyncio
import json
import socket
from typing import Any

from proreus.testing import programs
from proreus.testing.waiting import until

from .site import Site


async def status(*flags: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the command."""
    return await asyncio.wait_for(programs.run("proreus", "status", *flags), 60)


def free_port() -> int:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        return port


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
