"""Our own webhooks in a manager's process, and the API server that asks them."""

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from proreus.kube.client import Client
from proreus.kube.errors import NotFound
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import Resource
from proreus.testing.controlplane.certificates import Authority
from proreus.testing.ports import free_port

from .site import Site

GROUP: Final = "admissionregistration.k8s.io"
NO_FINALIZERS: Final = Patch(PatchType.MERGE, {"metadata": {"finalizers": None}})
CONFIGURATIONS: Final = {
    kind: Resource(GROUP, "v1", f"{kind.lower()}s", kind, namespaced=False, type=dict[str, Any])
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
}

LABELLING: Final = {
    "name": "persistentvolume-label.proreus.test",
    "rules": [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["persistentvolumes"],
            "operations": ["CREATE"],
            "scope": "Cluster",
        }
    ],
}


class WebhookSite:
    """A certificate and a port for managers that serve webhooks, one after the other."""

    def __init__(self, site: Site, directory: Path) -> None:
        self._site = site
        self._authority = Authority()
        certificate, key = self._authority.serving()
        (directory / "tls.crt").write_bytes(certificate)
        (directory / "tls.key").write_bytes(key)
        self._port = free_port()
        self.flags = (
            "--webhooks=persistentvolume-label,persistentvolumeclaim-resize",
            "--webhook-bind-address=127.0.0.1",
            f"--webhook-secure-port={self._port}",
            f"--webhook-tls-cert-file={directory / 'tls.crt'}",
            f"--webhook-tls-private-key-file={directory / 'tls.key'}",
        )

    def address(self, path: str) -> dict[str, str]:
        """Where the API server finds a webhook, and by whose certificate it knows it."""
        return {
            "url": f"https://127.0.0.1:{self._port}{path}",
            "caBundle": base64.b64encode(self._authority.certificate).decode(),
        }

    @asynccontextmanager
    async def configured(self, kind: str, webhook: Mapping[str, Any]) -> AsyncIterator[None]:
        """Let the API server ask a webhook while the body runs."""
        name = webhook["name"]
        settings = {
            "clientConfig": self.address(f"/{name.partition('.')[0]}"),
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30,
            **webhook,
        }
        client, resource = self._site.client, CONFIGURATIONS[kind]
        await client.create(resource, {"metadata": {"name": name}, "webhooks": [settings]})
        try:
            yield
        finally:
            await client.delete(resource, name)


async def cleared(client: Client, *resources: Resource[Any]) -> None:
    """Delete all objects of cluster-wide resources, with finalizers that nobody removes here."""
    for resource in resources:
        for one in (await client.list(resource)).items:
            name = one.metadata.name
            with suppress(NotFound):  # what was to be deleted goes with its last finalizer
                await client.patch(resource, name, NO_FINALIZERS)
                await client.delete(resource, name)
