"""Admission webhooks, asked by a real API server over TLS."""

import base64
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proreus.app.flags import FlagError
from proreus.app.listening import webhook_server
from proreus.app.options import Options
from proreus.cloudprovider import (
    AdmissionRequest,
    AdmissionResponse,
    CloudProvider,
    Webhook,
)
from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.errors import NotFound, StatusError
from proreus.kube.objects import ConfigMap
from proreus.kube.requests import CONFIG_MAPS, Resource
from proreus.testing.controlplane import ControlPlane
from proreus.testing.controlplane.certificates import Authority
from proreus.testing.ports import free_port
from proreus.testing.waiting import until

GROUP = "admissionregistration.k8s.io"
CONFIGURATIONS = {
    kind: Resource(GROUP, "v1", f"{kind.lower()}s", kind, namespaced=False, type=dict)
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
}
NOWHERE = ClientConfig(server="http://127.0.0.1:1")


async def guard(request: AdmissionRequest) -> AdmissionResponse:
    """Refuse what says that it is bad."""
    assert request.object is not None
    if "bad" in request.object.get("data", {}):
        return AdmissionResponse(allowed=False, message="it says that it is bad")
    return AdmissionResponse(allowed=True, warnings=("looked at",))


async def mark(request: AdmissionRequest) -> AdmissionResponse:
    """Write down who made it."""
    patch = {"op": "add", "path": "/metadata/labels/by", "value": request.user_info.name}
    return AdmissionResponse(allowed=True, patch=(patch,))


class Guarded(CloudProvider):
    """A cloud that has nothing but webhooks."""

    name = "guarded"
    webhooks = {"guard": Webhook("/guard", guard), "mark": Webhook("/mark", mark)}  # noqa: RUF012


class World:
    """An API server that asks webhooks about the ConfigMaps of one test."""

    def __init__(self, client: Client, authority: Authority, port: int) -> None:
        self.client = client
        self.suffix = uuid.uuid4().hex[:8]
        self._ca = base64.b64encode(authority.certificate).decode()
        self._port = port

    async def configure(self, kind: str, name: str, stack: AsyncExitStack) -> None:
        """Have the API server ask the webhook of this name, until the stack ends."""
        webhook = {
            "name": f"{name}.proreus.test",
            "clientConfig": {
                "url": f"https://127.0.0.1:{self._port}/{name}",
                "caBundle": self._ca,
            },
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["configmaps"],
                    "operations": ["CREATE"],
                }
            ],
            "objectSelector": {"matchLabels": {"test": self.suffix}},
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30,
        }
        full = f"{name}-{self.suffix}"
        body = {"metadata": {"name": full}, "webhooks": [webhook]}
        await self.client.create(CONFIGURATIONS[kind], body)
        stack.push_async_callback(self.client.delete, CONFIGURATIONS[kind], full)

    async def make(self, key: str) -> ConfigMap:
        """Create a ConfigMap with this key and remove it; what it was.

        Raises:
            StatusError: It is refused.
        """
        name = f"webhooks-{uuid.uuid4().hex[:8]}"
        metadata = {"name": name, "labels": {"test": self.suffix}}
        await self.client.create(CONFIG_MAPS, {"metadata": metadata, "data": {key: ""}}, "default")
        try:
            return await self.client.get(CONFIG_MAPS, name, "default")
        finally:
            await self.client.delete(CONFIG_MAPS, name, "default")

    async def refusal(self) -> StatusError | None:
        """Why a bad one is refused, None if it is not."""
        try:
            await self.make("bad")
        except StatusError as exc:
            return None if isinstance(exc, NotFound) else exc
        return None


@asynccontextmanager
async def host(directory: Path, authority: Authority) -> AsyncIterator[int]:
    """The host with both webhooks, on a port that is free."""
    certificate, key = authority.serving()
    (directory / "tls.crt").write_bytes(certificate)
    (directory / "tls.key").write_bytes(key)
    flags: dict[str, Any] = {
        "webhooks": ("guard", "mark"),
        "webhook_bind_address": "127.0.0.1",
        "webhook_tls_cert_file": str(directory / "tls.crt"),
        "webhook_tls_private_key_file": str(directory / "tls.key"),
    }
    port = free_port()
    async with webhook_server(Options(**flags, webhook_secure_port=port), Guarded(None), NOWHERE):
        yield port


async def test_the_api_server_calls_the_webhook_and_follows_its_answer(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    authority = Authority()
    admin = config.load(str(control_plane.kubeconfig), env={})
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(admin, user_agent="test"))
        async with host(tmp_path, authority) as port:
            world = World(client, authority, port)
            await world.configure("ValidatingWebhookConfiguration", "guard", stack)
            refusal = await until("the bad one is refused", world.refusal)
            assert refusal.code == 403
            assert refusal.message.endswith("denied the request: it says that it is bad")
            assert "by" not in (await world.make("good")).metadata.labels

            await world.configure("MutatingWebhookConfiguration", "mark", stack)

            async def marked() -> str | None:
                return (await world.make("good")).metadata.labels.get("by")

            assert await until("the good one is marked", marked) == "proreus-test-admin"
        # The host is gone, and the policy says to go on without it.
        assert (await world.make("bad")).metadata.labels == {"test": world.suffix}


async def test_nothing_is_bound_unless_a_webhook_is_enabled() -> None:
    for options in (
        Options(),
        Options(webhooks=("-guard",)),
        Options(webhooks=("*",), webhook_secure_port=0),
    ):
        async with webhook_server(options, Guarded(None), NOWHERE) as port:
            assert port == 0


async def test_an_unknown_webhook_is_refused_at_the_start() -> None:
    with pytest.raises(FlagError, match=r"--webhooks: unknown webhook 'gard'.*did you mean guard"):
        async with webhook_server(Options(webhooks=("gard",)), Guarded(None), NOWHERE):
            pass
