"""The chart's account may do what the manager does: not one request of a full life is refused."""

import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import yaml

from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess, cloud_config
from proreus.testing.waiting import until

from ..apiserver.life import begun  # noqa: TID252 - pytest imports tests by path
from ..apiserver.site import Site, set_up  # noqa: TID252
from .apply import Cluster
from .charts import NAMESPACE, Programs, arguments, only

PREFIX: Final = f"system:serviceaccount:{NAMESPACE}:"
SCRAPER: Final = "scraper"


@pytest.fixture
async def site(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    async with set_up(control_plane, tmp_path) as site:
        yield site


@pytest.fixture
def port() -> Iterator[int]:
    """A free port that only a manager which shares it gets."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def values(port: int, more: dict[str, Any]) -> dict[str, Any]:
    """What makes every controller run, on this machine."""
    return {
        "cloudConfig": {"content": "stands in for the Secret"},
        "securePort": port,
        "args": {
            "allocate-node-cidrs": True,
            "bind-address": "127.0.0.1",
            "cluster-cidr": "172.17.0.0/16",
            "configure-cloud-routes": True,
            "node-deletion-confirmations": 1,
            "node-monitor-period": "500ms",
            "permit-port-sharing": True,
            "v": 2,
            **more,
        },
        "metrics": {"readers": [{"name": SCRAPER, "namespace": NAMESPACE}]},
    }


async def token(cluster: Cluster, account: str) -> str:
    """A token of a service account, as a pod of it gets one."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    body = {"kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    given: str = (await cluster.create(path, body))["status"]["token"]
    return given


async def rights_count(cluster: Cluster, objects: list[dict[str, Any]]) -> None:
    """Wait until the API server's authorizer knows the roles and bindings: it learns by watches."""
    roles = {
        (one["kind"], one["metadata"]["name"]): one["rules"] for one in objects if "rules" in one
    }
    for binding in (one for one in objects if "roleRef" in one):
        ref = binding["roleRef"]
        for account in binding["subjects"]:
            for rule in roles[ref["kind"], ref["name"]]:
                spec = {
                    "user": f"system:serviceaccount:{account['namespace']}:{account['name']}",
                    **attributes(rule, binding["metadata"].get("namespace", "")),
                }

                async def is_allowed(spec: dict[str, Any] = spec) -> bool:
                    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
                    body = {"kind": "SubjectAccessReview", "spec": spec}
                    return bool((await cluster.create(path, body))["status"]["allowed"])

                await until(f"the right {spec} counts", is_allowed)


def attributes(rule: dict[str, Any], namespace: str) -> dict[str, Any]:
    """One thing that a rule allows, as a SubjectAccessReview asks."""
    verb = rule["verbs"][0]
    if "nonResourceURLs" in rule:
        return {"nonResourceAttributes": {"path": rule["nonResourceURLs"][0], "verb": verb}}
    resource, _, subresource = rule["resources"][0].partition("/")
    asked = {
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "namespace": namespace,
        "name": rule.get("resourceNames", [""])[0],
        "verb": verb,
    }
    return {"resourceAttributes": asked}


def manager(site: Site, args: list[str], bearer: str, directory: Path) -> ManagerProcess:
    """The manager with the chart's command line; the pod's files lie elsewhere here."""
    kubeconfig = yaml.safe_load(site.plane.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] = {"token": bearer}
    (directory / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    (directory / "cloud.conf").write_text(cloud_config(site.cloud))
    mounted = "--cloud-config=/etc/proreus/cloud-config/cloud.conf"
    assert mounted in args
    here = {mounted: f"--cloud-config={directory / 'cloud.conf'}"}
    return ManagerProcess(
        *(here.get(arg, arg) for arg in args),
        f"--kubeconfig={directory / 'kubeconfig'}",
        log=directory / "manager.log",
    )


async def live(site: Site) -> None:
    """Give every controller something to do, and wait until it is done."""
    leaver = await begun(site)
    await site.cloud.admin.stop(leaver.id)

    async def is_shut_down() -> bool:
        taints = (await site.existing("b")).spec.taints or ()
        return any(taint.key == "node.cloudprovider.kubernetes.io/shutdown" for taint in taints)

    await until("the stopped machine's node is tainted", is_shut_down)
    await site.cloud.admin.delete(leaver.id)
    await site.gone("b")
    await site.register_node(leaver)  # which nothing can initialise


async def scrape(port: int, bearer: str) -> str:
    """What Prometheus gets."""
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {bearer}"}) as session,
        session.get(f"https://127.0.0.1:{port}/metrics", ssl=False) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return await answer.text()


def audited(site: Site) -> list[tuple[str, str, int]]:
    """Account, request and answer of everything that the namespace's accounts have asked."""
    with site.plane.audit_log.open("rb") as log:
        log.seek(site._audit_start)
        lines = [json.loads(line) for line in log if line.endswith(b"\n")]
    return [
        (
            line["user"]["username"].removeprefix(PREFIX),
            f"{line['verb']} {line['requestURI']}",
            line["responseStatus"]["code"],
        )
        for line in lines
        if line["stage"] == "ResponseComplete" and line["user"]["username"].startswith(PREFIX)
    ]


@pytest.mark.parametrize(
    ("more", "others"),
    [
        pytest.param({}, set(), id="all in one"),
        pytest.param(
            {"leader-elect-per-controller": True, "use-service-account-credentials": True},
            {"node-controller", "route-controller", "service-controller"},
            id="each controller its own",
        ),
    ],
)
async def test_the_chart_s_account_suffices_for_every_controller(
    site: Site,
    programs: Programs,
    tmp_path: Path,
    *,
    port: int,
    more: dict[str, Any],
    others: set[str],
) -> None:
    objects = programs.render(**values(port, more))
    account = only(objects, "ServiceAccount")["metadata"]["name"]
    scraper = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": SCRAPER, "namespace": NAMESPACE},
    }
    async with Cluster.of(site.plane) as cluster:
        await cluster.apply([scraper, *objects])
        await rights_count(cluster, objects)
        bearer = await token(cluster, account)
        async with manager(site, arguments(objects), bearer, tmp_path) as process:
            await live(site)
            scraper_token = await token(cluster, SCRAPER)

            async def is_counted() -> bool:
                return "proreus_nodes_uninitialized 1.0" in await scrape(port, scraper_token)

            await until("the node without a machine is counted", is_counted)
            assert process.is_running, process.output()
        asked = audited(site)
    assert {who for who, _, _ in asked} == {account, *others}
    assert [one for one in asked if one[2] in {401, 403}] == []
