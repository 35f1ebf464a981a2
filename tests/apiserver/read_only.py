"""Commands that only look, run as a user who may only read."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from proreus.kube.client import Client
from proreus.kube.errors import AlreadyExists, NotFound
from proreus.kube.requests import Request, Resource
from proreus.testing import programs
from proreus.testing.manager import cloud_config
from proreus.testing.waiting import until

from .site import PATIENCE, Site

_RBAC: Final = "rbac.authorization.k8s.io"
CLUSTER_ROLES = Resource(
    _RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False, type=dict[str, Any]
)
BINDINGS = Resource(
    _RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False, type=dict[str, Any]
)
READS: Final = ("get", "list")
REVIEWS: Final = "subjectaccessreviews"


class Ran(msgspec.Struct, frozen=True):
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its standard output, decoded."""
        return msgspec.json.decode(self.out)


class Reader:
    """A user who may only read, and the commands of this user."""

    def __init__(self, site: Site, user: str, directory: Path) -> None:
        self.site = site
        self.user = user
        self._kubeconfig = site.plane.kubeconfig_for(user)
        self._config = directory / f"{user}.conf"
        self.token()

    def token(self, token: str = "") -> None:
        """Use another token for the cloud."""
        self._config.write_text(cloud_config(self.site.cloud, token=token))

    async def run(self, command: str, *flags: str) -> Ran:
        """Run `proreus COMMAND FLAGS` to its end; a command may have several words."""
        ran = programs.run(
            "proreus",
            *command.split(),
            f"--kubeconfig={self._kubeconfig}",
            "--cloud-provider=simulated",
            f"--cloud-config={self._config}",
            *flags,
        )
        return Ran(*await asyncio.wait_for(ran, 2 * PATIENCE))

    def check_only_read(self) -> None:
        """Fail if anything but reads and access reviews was asked of the API server, or refused."""
        audited = self.site.audit(self.user)
        others = [
            (one.verb, one.object_ref.resource, one.response_status.code)
            for one in audited
            if one.response_status.code == 403
            or not (one.verb in READS or one.object_ref.resource == REVIEWS)
        ]
        assert audited, "the audit log has nothing of this user"
        assert not others


@asynccontextmanager
async def reader(site: Site, user: str, directory: Path) -> AsyncIterator[Reader]:
    """A reader whose role ends with the test."""
    rules = [
        {
            "apiGroups": ["", "apps", "coordination.k8s.io", "discovery.k8s.io"],
            "resources": [
                "nodes", "services", "endpointslices", "namespaces", "events", "leases",
                "deployments", "daemonsets", "pods", "persistentvolumes", "configmaps",
            ],
            "verbs": list(READS),
        },
        {"apiGroups": ["authorization.k8s.io"], "resources": [REVIEWS], "verbs": ["create"]},
    ]  # fmt: skip
    subject = {"apiGroup": _RBAC, "kind": "User", "name": user}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(granted(site.client, f"test-{user}", rules, subject))
        await until(f"{user} may read", lambda: _may_read(site.client, user))
        yield Reader(site, user, directory)


async def _may_read(client: Client, user: str) -> bool:
    """Whether the API server knows the role already; the user is not seen to ask."""
    attributes = {"resource": "nodes", "verb": "list"}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    path = f"/apis/authorization.k8s.io/v1/{REVIEWS}"
    request = Request("POST", path, body=msgspec.json.encode(body), content_type="application/json")
    answer = await client.send(request, dict[str, Any])
    return bool(answer["status"]["allowed"])


@asynccontextmanager
async def granted(
    client: Client, name: str, rules: Sequence[Mapping[str, Any]], subject: Mapping[str, str]
) -> AsyncIterator[None]:
    """A ClusterRole and its binding, for as long as a test lasts."""
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
    bodies: dict[Resource[Any], dict[str, Any]] = {
        CLUSTER_ROLES: {"metadata": {"name": name}, "rules": list(rules)},
        BINDINGS: {"metadata": {"name": name}, "roleRef": role, "subjects": [dict(subject)]},
    }
    async with AsyncExitStack() as stack:
        for resource, body in bodies.items():
            await stack.enter_async_context(existing(client, resource, body))
        yield


@asynccontextmanager
async def existing(
    client: Client, resource: Resource[Any], body: Mapping[str, Any], namespace: str = ""
) -> AsyncIterator[None]:
    """An object, for as long as a test lasts."""
    name = body["metadata"]["name"]
    try:
        await client.create(resource, body, namespace)
    except AlreadyExists:  # what a test that was killed has left
        await _remove(client, resource, name, namespace)
        await client.create(resource, body, namespace)
    try:
        yield
    finally:
        await _remove(client, resource, name, namespace)


async def _remove(client: Client, resource: Resource[Any], name: str, namespace: str) -> None:
    path = resource.named_path(namespace, name)
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    try:
        await client.send(
            Request(
                "DELETE", path, body=msgspec.json.encode(body), content_type="application/json"
            ),
            dict[str, Any],
        )
    except NotFound:
        return
