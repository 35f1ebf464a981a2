"""Claims for tests of whether they may grow."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from proreus.kube.errors import StatusError
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import STORAGE_CLASSES, Resource
from proreus.testing.controlplane import ControlPlane

from .site import Site, set_up
from .webhook_site import NO_FINALIZERS

CLAIMS: Final = Resource(
    "",
    "v1",
    "persistentvolumeclaims",
    "PersistentVolumeClaim",
    namespaced=True,
    type=dict[str, Any],
)


@asynccontextmanager
async def without_plug_in(directory: Path) -> AsyncIterator[Site]:
    """A site whose API server does not look at claims itself."""
    disabled = "--disable-admission-plugins=ServiceAccount,PersistentVolumeClaimResize"
    async with (
        ControlPlane(extra_apiserver_args=(disabled,)) as plane,
        set_up(plane, directory) as site,
    ):
        yield site


class Claims:
    """Claims of one test, and the classes that they have."""

    def __init__(self, site: Site) -> None:
        self._site = site
        suffix = uuid.uuid4().hex[:8]
        self.gold, self.silver = f"gold-{suffix}", f"silver-{suffix}"

    async def make_classes(self) -> None:
        for name, grows in ((self.gold, True), (self.silver, False)):
            body = {
                "metadata": {"name": name},
                "provisioner": "disks.example",
                "allowVolumeExpansion": grows,
            }
            await self._site.client.create(STORAGE_CLASSES, body)

    async def make(self, class_: str | None, *, phase: str = "Bound", annotation: str = "") -> str:
        name = f"claim-{uuid.uuid4().hex[:8]}"
        key = "volume.beta.kubernetes.io/storage-class"
        spec: dict[str, Any] = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": "some",
        }
        if class_ is not None:
            spec["storageClassName"] = class_
        body = {
            "metadata": {"name": name, "annotations": {key: annotation} if annotation else {}},
            "spec": spec,
        }
        await self._site.client.create(CLAIMS, body, "default")
        status = {"status": {"phase": phase, "capacity": {"storage": "1Gi"}}}
        await self._site.client.patch(
            CLAIMS, name, Patch(PatchType.MERGE, status), "default", subresource="status"
        )
        return name

    async def refusal(self, name: str, size: str) -> str:
        """Change the size of a claim; why it is refused, "" if it is not."""
        body = {"spec": {"resources": {"requests": {"storage": size}}}}
        try:
            await self._site.client.patch(CLAIMS, name, Patch(PatchType.MERGE, body), "default")
        except StatusError as exc:
            return f"{exc.code}: {exc.message}"
        return ""

    async def clear(self) -> None:
        for one in (await self._site.client.list(CLAIMS, "default")).items:
            name = one["metadata"]["name"]
            await self._site.client.patch(CLAIMS, name, NO_FINALIZERS, "default")
            await self._site.client.delete(CLAIMS, name, "default")
        for name in (self.gold, self.silver):
            await self._site.client.delete(STORAGE_CLASSES, name)
