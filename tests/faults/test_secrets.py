"""Secrets that are planted everywhere are nowhere in what real managers tell, whatever goes wrong."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import EVENTS, LEASES, NODES, SECRETS, SERVICES, Request
from proreus.testing import programs
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess, cloud_config
from proreus.testing.waiting import until

from ..apiserver.rights import (  # noqa: TID252 - pytest imports tests by path
    MANAGERS,
    SECRET,
)
from ..apiserver.site import Site, set_up  # noqa: TID252 - pytest imports tests by path
from ..apiserver.test_serving import (  # noqa: TID252 - pytest imports tests by path
    Visitor,
    held_port,
    pair,
    secure,
)

MARK: Final = "Pl4nted"
"""Part of each secret; none is a word that anything else could contain."""
TOKEN_OF_ACCOUNT: Final = "eyJ"
"""What every JSON web token begins with; the API server makes those of accounts."""
PAGES: Final = (
    "/metrics",
    "/metrics/slis",
    "/configz",
    "/status",
    "/status.json",
    "/readyz?verbose",
    "/debug/pprof/",
    "/debug/pprof/goroutine",
    "/debug/pprof/heap",
    "/debug/pprof/profile?seconds=1",
)
SEEN: Final = "LoadBalancerReady"
ASKING: Final = ("--node-status-update-frequency=1s", "-v=10", "--status-page")


@pytest.fixture
async def site(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    async with set_up(control_plane, tmp_path) as made:
        yield made


def kubeconfig(site: Site, directory: Path, name: str, group: str) -> Path:
    """A kubeconfig that works by its certificate, and holds a secret wherever it can."""
    content = yaml.safe_load(site.plane.kubeconfig_for(name, [group]).read_text())
    user = content["users"][0]["user"]
    status = {
        "token": f"{MARK}-printed",
        "clientCertificateData": base64.b64decode(user.pop("client-certificate-data")).decode(),
        "clientKeyData": base64.b64decode(user.pop("client-key-data")).decode(),
    }
    version = "client.authentication.k8s.io/v1"
    printed = directory / f"{name}.json"
    printed.write_text(
        json.dumps({"kind": "ExecCredential", "apiVersion": version, "status": status})
    )
    user["exec"] = {
        "apiVersion": version,
        "interactiveMode": "Never",
        "command": "/bin/sh",
        "args": ["-c", f'echo "{MARK}-error" >&2; cat "$1"', f"{MARK}-argument", str(printed)],
        "env": [{"name": "SECRET", "value": f"{MARK}-environment"}],
    }
    made = directory / f"{name}.yaml"
    made.write_text(yaml.safe_dump(content))
    return made


@asynccontextmanager
async def told_in(site: Site, text: str) -> AsyncIterator[None]:
    """The cloud-config is the content of a Secret for a while."""
    data = {"data": {"cloud.conf": base64.b64encode(text.encode()).decode()}}
    await site.client.create(SECRETS, {"metadata": {"name": "cloud"}, **data}, "kube-system")
    try:
        yield
    finally:
        await site.client.delete(SECRETS, "cloud", "kube-system")


async def logged(manager: ManagerProcess, text: str) -> None:
    async def written() -> bool:
        assert manager.is_running, manager.output()[-4000:]
        return text in manager.output()

    await until(f"the log has {text!r}", written)


async def said(site: Site, name: str) -> None:
    """Wait until the Service says that it has no load balancer."""

    async def says() -> bool:
        found = await site.service(name)
        return any(one.type == SEEN and one.status == "False" for one in found.status.conditions)

    await until(f"{name} says that something is wrong", says)


async def run(command: str, *flags: str) -> str:
    """All that a command of ours prints."""
    _, out, err = await asyncio.wait_for(programs.run("proreus", command, *flags), 120)
    assert out + err
    return out + err


async def objects(site: Site) -> str:
    """All that managers write to the API server."""
    texts: list[Any] = []
    for resource in (EVENTS, LEASES, NODES, SERVICES):
        path = resource.path()
        texts.append(await site.client.send(Request("GET", path), dict[str, Any]))
    return json.dumps(texts)


def check(told: dict[str, str]) -> None:
    """No place shows a secret; it is not repeated here either, nor is what surrounds it."""
    leaks = {
        place: [line.partition(MARK)[0][-80:] for line in text.splitlines() if MARK in line][:3]
        for place, text in told.items()
        if MARK in text
    }
    assert leaks == {}
    assert [place for place, text in told.items() if TOKEN_OF_ACCOUNT in text] == []
    assert [place for place, text in told.items() if "PRIVATE KEY" in text] == []


async def test_no_secret_of_configs_and_credentials_is_shown(site: Site, tmp_path: Path) -> None:
    wrong = cloud_config(site.cloud, token=f"{MARK}-cloud")
    file = tmp_path / "cloud.conf"
    file.write_text(wrong)
    us = kubeconfig(site, tmp_path, "manager", MANAGERS)
    someone = kubeconfig(site, tmp_path, "someone", "system:masters")
    told = {}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(told_in(site, wrong))
        port = stack.enter_context(held_port())
        manager = ManagerProcess(
            f"--kubeconfig={us}",
            "--cloud-provider=simulated",
            f"--cloud-config-secret={SECRET}",
            "--leader-elect=false",
            *secure(port),
            *ASKING,
            log=tmp_path / "manager.log",
        )
        await stack.enter_async_context(manager)
        await site.join("one")
        await site.create_service("web")
        await said(site, "web")
        for text in (f"{wrong}tokken = {MARK}-field\n", f'[Global\ntoken = "{MARK}-syntax\n'):
            before = manager.output().count("is not used")
            data = {"data": {"cloud.conf": base64.b64encode(text.encode()).decode()}}
            await site.client.patch(SECRETS, "cloud", Patch(PatchType.MERGE, data), "kube-system")

            async def refused(count: int = before) -> bool:
                return manager.output().count("is not used") > count

            await until("the new cloud-config is refused", refused)
        admin = Visitor(port, pair(site, "root", "system:masters"), tmp_path)
        await admin.gets("/metrics", 200, manager)
        for page in PAGES:
            status, told[page] = await admin(page)
            assert status == 200, page
        for command in ("plan", "doctor"):
            told[command] = await run(
                command,
                f"--kubeconfig={someone}",
                "--cloud-provider=simulated",
                f"--cloud-config={file}",
                "-v=10",
            )
        told["objects"] = await objects(site)
    told["log"] = manager.output()
    check(told)


async def test_no_token_of_an_account_is_shown(site: Site, tmp_path: Path) -> None:
    flag = "--use-service-account-credentials"
    manager = site.lone_manager(flag, *ASKING, token=f"{MARK}-cloud")
    async with manager:
        await site.join("one")
        await site.create_service("web")
        await said(site, "web")
        told = {"objects": await objects(site)}
    told["log"] = manager.output()
    check(told)


@pytest.mark.parametrize(
    "user",
    [
        {"token": f"{MARK}-token"},
        {"username": "somebody", "password": f"{MARK}-password"},
        {"exec": {"command": "/bin/sh", "args": ["-c", f"echo {MARK}; exit 1"]}},
        {"exec": {"command": "/bin/sh", "args": ["-c", f"echo '{{\"kind\": {MARK}'"]}},
        {"exec": {"command": f"/{MARK}", "args": []}, "token": f"{MARK}-both"},
    ],
    ids=["wrong token", "password", "failing plugin", "garbage of a plugin", "two credentials"],
)
async def test_wrong_credentials_for_the_api_server_are_not_shown(
    site: Site, tmp_path: Path, user: dict[str, Any]
) -> None:
    content = yaml.safe_load(site.plane.kubeconfig.read_text())
    if "exec" in user:
        version = "client.authentication.k8s.io/v1"
        user["exec"] |= {"apiVersion": version, "interactiveMode": "Never"}
    content["users"][0]["user"] = user
    file = tmp_path / "kubeconfig.yaml"
    file.write_text(yaml.safe_dump(content))
    (tmp_path / "cloud.conf").write_text(cloud_config(site.cloud))
    flags = (
        f"--kubeconfig={file}",
        "--cloud-provider=simulated",
        f"--cloud-config={tmp_path / 'cloud.conf'}",
        "-v=10",
    )
    check({"doctor": (await run("doctor", *flags)).replace(f"/{MARK}", "")})
