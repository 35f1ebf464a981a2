"""Claims grow, or do not, alike by Kubernetes' own plug-in and by the webhook without it."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from proreus.kube.errors import StatusError
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import STORAGE_CLASSES, Resource
from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from .site import Site, set_up
from .webhook_site import NO_FINALIZERS, WebhookSite

CLAIMS: Final = Resource(
    "",
    "v1",
    "persistentvolumeclaims",
    "PersistentVolumeClaim",
    namespaced=True,
    type=dict[str, Any],
)
WEBHOOK: Final = {
    "name": "persistentvolumeclaim-resize.proreus.test",
    "rules": [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["persistentvolumeclaims"],
            "operations": ["UPDATE"],
            "scope": "Namespaced",
        }
    ],
}
NOT_BOUND: Final = "Only bound persistent volume claims can be expanded"
NOT_EXPANDABLE: Final = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc"
    " must support resize"
)


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


@pytest.fixture
async def without_plug_in(tmp_path: Path) -> AsyncIterator[Site]:
    """A site whose API server does not look at claims itself."""
    disabled = "--disable-admission-plugins=ServiceAccount,PersistentVolumeClaimResize"
    async with (
        ControlPlane(extra_apiserver_args=(disabled,)) as plane,
        set_up(plane, tmp_path) as site,
    ):
        yield site


async def judge(claims: Claims) -> None:
    """Try every case; each answer is the plug-in's."""
    gold = await claims.make(claims.gold)
    assert await claims.refusal(gold, "2Gi") == ""
    assert await claims.refusal(gold, "2048Mi") == ""
    annotated = await claims.make(None, annotation=claims.gold)
    assert await claims.refusal(annotated, "1.5Gi") == ""
    for name, expected in (
        (await claims.make(claims.silver), NOT_EXPANDABLE),
        (await claims.make(""), NOT_EXPANDABLE),
        (await claims.make("no-such-class"), NOT_EXPANDABLE),
        (await claims.make(None, annotation=claims.silver), NOT_EXPANDABLE),
    ):
        refused = await claims.refusal(name, "2Gi")
        assert refused.startswith("403: "), refused
        assert refused.endswith(expected), (name, refused)
        assert await claims.refusal(name, "1Gi") == ""
    for phase in ("Pending", "Lost"):  # newer API servers themselves refuse it, before all plug-ins
        refused = await claims.refusal(await claims.make(claims.gold, phase=phase), "2Gi")
        assert NOT_BOUND in refused or "for bound claims" in refused, refused


async def test_the_plug_in_judges_so(site: Site) -> None:
    claims = Claims(site)
    await claims.make_classes()
    try:
        silver = await claims.make(claims.silver)

        async def knows_classes() -> bool:
            return bool(await claims.refusal(silver, "2Gi"))

        await until("the plug-in knows the classes", knows_classes)
        await judge(claims)
    finally:
        await claims.clear()


async def test_the_webhook_judges_as_the_plug_in_does(
    without_plug_in: Site, tmp_path: Path
) -> None:
    site, claims = without_plug_in, Claims(without_plug_in)
    await claims.make_classes()
    webhooks = WebhookSite(site, tmp_path)
    silver = await claims.make(claims.silver)
    async with (
        site.lone_manager(*webhooks.flags),
        webhooks.configured("ValidatingWebhookConfiguration", WEBHOOK),
    ):
        sizes = iter(range(2, 10_000))

        async def is_asked() -> bool:
            return "admission webhook" in await claims.refusal(silver, f"{next(sizes)}Gi")

        await until("the webhook is asked", is_asked)
        await judge(claims)
    assert await claims.refusal(silver, "20000Gi") == ""  # nobody looks
