"""Claims grow, or do not, alike by Kubernetes' own plug-in and by the webhook without it."""

from pathlib import Path
from typing import Final

from proreus.testing.waiting import until

from .claims import Claims, without_plug_in
from .site import Site
from .webhook_site import WebhookSite

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


async def test_the_webhook_judges_as_the_plug_in_does(tmp_path: Path) -> None:
    async with without_plug_in(tmp_path) as site:
        await judged_by_the_webhook(site, tmp_path)


async def judged_by_the_webhook(site: Site, directory: Path) -> None:
    claims, webhooks = Claims(site), WebhookSite(site, directory)
    await claims.make_classes()
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
