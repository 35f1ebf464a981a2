"""Managers that are started as official manifests start the official ones, under the same role."""

import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proreus.kube.errors import AlreadyExists
from proreus.kube.requests import Request
from proreus.testing.manager import ManagerProcess
from proreus.testing.waiting import until

from ..official_manifests import CLOUD_CONFIG, KUBECONFIG, STARTS, Start, rules  # noqa: TID252 - tests are no package
from .site import Site
from .test_serving import held_port, secure

_RBAC = "rbac.authorization.k8s.io"
_SYSTEM = [
    {
        "apiGroups": [""],
        "resources": ["namespaces"],
        "verbs": ["get"],
        "resourceNames": ["kube-system"],
    }
]
_READER = {"apiGroup": _RBAC, "kind": "Role", "name": "extension-apiserver-authentication-reader"}


def of(cloud: str) -> list[Any]:
    """Two of the cloud's argument lists that differ most, and all of them: values of a parameter."""
    starts = [start for start in STARTS if start.cloud == cloud]
    few = sorted(starts, key=lambda start: len(start.args))
    return [
        pytest.param((few[0], few[-1]), id="two"),
        pytest.param(starts, id="all", marks=pytest.mark.long),
    ]


async def every_one_leads(
    starts: Sequence[Start],
    site: Site,
    cloud_config: str,
    directory: Path,
    environ: pytest.MonkeyPatch,
) -> None:
    """Start a manager for each argument list; all lead once they have the right that is missing.

    Each has a lease and a port of its own beside what its manifest says, since all run here.
    """
    user = directory.name
    site.may_be_refused = True
    await _grant(site, user, rules(starts[0].cloud))
    path = directory / "official.conf"
    path.write_text(cloud_config)
    kubeconfig = site.plane.kubeconfig_for(user)
    environ.setenv("KUBECONFIG", str(kubeconfig))
    lists = [
        [
            arg.replace(CLOUD_CONFIG, str(path)).replace(KUBECONFIG, str(kubeconfig))
            for arg in one.args
        ]
        for one in starts
    ]
    for arg in itertools.chain(*lists):
        flag, _, name = arg.partition("=")
        if flag == "--leader-elect-resource-namespace":
            await _create(site, "/api/v1/namespaces", {"metadata": {"name": name}})
    async with _running(lists, directory) as managers:
        for manager, port in managers:
            await _answers(manager, port, "healthz")

        async def all_wait() -> bool:
            said = "the right to get the namespace kube-system"
            return all(said in manager.output() for manager, _ in managers)

        await until("all say which right is missing", all_wait)
        await _grant(site, user, _SYSTEM, "-system")
        for manager, port in managers:
            await _answers(manager, port, "readyz")
        for manager, _ in managers:
            assert "unknown flag" not in manager.output()


@asynccontextmanager
async def _running(
    lists: Sequence[Sequence[str]], directory: Path
) -> AsyncIterator[list[tuple[ManagerProcess, int]]]:
    async with AsyncExitStack() as stack:
        found = []
        for number, args in enumerate(lists):
            port = stack.enter_context(held_port())
            lease = f"--leader-elect-resource-name=swapped-{number}"
            log = directory / f"swapped-{number}.log"
            manager = ManagerProcess(*args, *secure(port), lease, log=log)
            found.append((await stack.enter_async_context(manager), port))
        yield found


async def _answers(manager: ManagerProcess, port: int, check: str) -> None:
    async with aiohttp.ClientSession() as session:

        async def is_good() -> bool:
            assert manager.is_running, manager.output()
            try:
                async with session.get(f"https://127.0.0.1:{port}/{check}", ssl=False) as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        await until(f"{check} of {manager.flags}", is_good)


async def _grant(site: Site, user: str, rights: Sequence[dict[str, Any]], ending: str = "") -> None:
    """Give a user a ClusterRole, and what every manifest binds beside it."""
    meta = {"name": user + ending}
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": user + ending}
    bound = {"metadata": meta, "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": user}]}
    for path, body in (
        ("clusterroles", {"metadata": meta, "rules": rights}),
        ("clusterrolebindings", {**bound, "roleRef": role}),
        ("namespaces/kube-system/rolebindings", {**bound, "roleRef": _READER}),
    ):
        await _create(site, f"/apis/{_RBAC}/v1/{path}", body)


async def _create(site: Site, path: str, body: Mapping[str, Any]) -> None:
    whole = json.dumps(body).encode()
    made = Request("POST", path, body=whole, content_type="application/json")
    with suppress(AlreadyExists):
        await site.client.send(made, dict[str, Any])
