"""The chart's webhooks: who is asked about what, by which certificate, and what if nobody answers."""

import base64
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509

from proreus.app import flags
from proreus.app.options import Options
from proreus.app.roles import objects
from proreus.kube.errors import StatusError
from proreus.kube.objects import LABEL_ZONE, PersistentVolume
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import PERSISTENT_VOLUMES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.simulated import Volume
from proreus.testing.waiting import until

from ..apiserver.claims import CLAIMS, Claims, without_plug_in  # noqa: TID252 - pytest imports tests by path
from ..apiserver.site import Site, set_up  # noqa: TID252
from ..apiserver.webhook_site import WebhookSite, cleared  # noqa: TID252
from .charts import NAMESPACE, Programs, arguments, only, pod

BOTH: Final = {"persistentVolumeLabel": True, "persistentVolumeClaimResize": True}
KINDS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def webhook(rendered: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (one,) = only(rendered, kind)["webhooks"]
    found: dict[str, Any] = one
    return found


def test_the_manager_serves_what_the_api_server_is_to_ask(programs: Programs) -> None:
    rendered = programs.render(webhooks=BOTH, args={"webhooks": ["own"]})
    options, _ = flags.parse(Options, arguments(rendered), "test", "")
    assert options.webhooks == ("own", "persistentvolume-label", "persistentvolumeclaim-resize")
    assert options.webhook_secure_port == 10260
    (container,) = pod(rendered)["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports["webhook"] == 10260
    (service,) = [
        one
        for one in rendered
        if one["kind"] == "Service" and one["metadata"]["name"].endswith("-webhook")
    ]
    for kind in KINDS:
        asked = webhook(rendered, kind)
        assert asked["clientConfig"]["service"]["name"] == service["metadata"]["name"]
        name = asked["clientConfig"]["service"]["path"].removeprefix("/")
        assert asked["name"].split(".")[0] == name
        assert name in options.webhooks
        assert asked["failurePolicy"] == "Ignore"


def test_the_certificate_that_is_made_is_of_the_service_and_of_the_bundle(
    programs: Programs,
) -> None:
    rendered = programs.render(webhooks=BOTH)
    data = only(rendered, "Secret")["data"]
    made, authority = (
        x509.load_pem_x509_certificate(base64.b64decode(data[key])) for key in ("tls.crt", "ca.crt")
    )
    made.verify_directly_issued_by(authority)
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    service = webhook(rendered, KINDS[0])["clientConfig"]["service"]
    assert names.get_values_for_type(x509.DNSName) == [f"{service['name']}.{NAMESPACE}.svc"]
    for kind in KINDS:
        assert webhook(rendered, kind)["clientConfig"]["caBundle"] == data["ca.crt"]
    mounted = {one["name"]: one for one in pod(rendered)["volumes"]}["webhook-tls"]
    assert mounted["secret"]["secretName"] == only(rendered, "Secret")["metadata"]["name"]


def test_a_certificate_of_ones_own_is_mounted_and_its_authority_told(programs: Programs) -> None:
    tls = {"existingSecret": "mine", "caBundle": "QUJD"}
    rendered = programs.render(webhooks={**BOTH, "tls": tls})
    assert webhook(rendered, KINDS[0])["clientConfig"]["caBundle"] == "QUJD"
    mounted = {one["name"]: one for one in pod(rendered)["volumes"]}["webhook-tls"]
    assert mounted["secret"]["secretName"] == "mine"
    injected = {**BOTH, "tls": {"existingSecret": "mine"}}
    config = webhook(programs.render(webhooks=injected), KINDS[0])["clientConfig"]
    assert "caBundle" not in config


def test_network_policies_let_the_api_server_in(programs: Programs) -> None:
    rendered = programs.render(hostNetwork=False, webhooks=BOTH, networkPolicy={"from": [{}]})
    _, rule = only(rendered, "NetworkPolicy")["spec"]["ingress"]
    assert rule == {"ports": [{"port": "webhook", "protocol": "TCP"}]}


@pytest.mark.parametrize("apart", [False, True])
def test_what_a_webhook_reads_is_a_right_only_where_it_is_enabled(
    programs: Programs, *, apart: bool
) -> None:
    args = {"use-service-account-credentials": apart}

    def rights(found: list[dict[str, Any]]) -> set[tuple[str, str]]:
        return {
            (resource, verb)
            for one in found
            for rule in one.get("rules", ())
            for resource in rule.get("resources", ())
            for verb in rule["verbs"]
        }

    plain, label, both = (
        rights(programs.render(args=args, rbac={"namespaces": True}, webhooks=values))
        for values in ({}, {"persistentVolumeLabel": True}, BOTH)
    )
    assert label == plain
    assert both - plain == {("storageclasses", "get")}
    options = Options(webhooks=("*",), use_service_account_credentials=apart)
    assert rights(objects(options)) <= both


@pytest.fixture
async def site(control_plane: ControlPlane, tmp_path: Path) -> Any:
    async with set_up(control_plane, tmp_path) as site:
        await cleared(site.client, PERSISTENT_VOLUMES)
        yield site
        await cleared(site.client, PERSISTENT_VOLUMES)


async def made(site: Site, name: str, **spec: Any) -> PersistentVolume:
    body = {
        "metadata": {"name": name},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **spec},
    }
    await site.client.create(PERSISTENT_VOLUMES, body)
    return await site.client.get(PERSISTENT_VOLUMES, name)


async def test_the_api_server_asks_about_volumes_of_clouds_alone(
    site: Site, programs: Programs, tmp_path: Path
) -> None:
    """Even with Fail, and nobody to answer, other volumes are made."""
    rendered = programs.render(webhooks={**BOTH, "failurePolicy": "Fail"})
    webhooks = WebhookSite(site, tmp_path)
    path = "/persistentvolume-label"
    asked = {**webhook(rendered, KINDS[0]), "clientConfig": webhooks.address(path)}
    (volume,) = await site.cloud.admin.create_volumes([Volume(zones=("a",))])
    csi = {"driver": "csi.simulated.example", "volumeHandle": volume.id}
    async with webhooks.configured(KINDS[0], asked):
        names = (f"volume-{number}" for number in range(10_000))

        async def is_refused() -> bool:
            try:
                await made(site, next(names), csi=csi)
            except StatusError as exc:
                return "failed calling webhook" in exc.message
            return False

        await until("nobody answers", is_refused)
        await made(site, "path", hostPath={"path": "/data"})
        await made(site, "share", nfs={"server": "nfs", "path": "/"})
        terms = [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
        affinity = {"required": {"nodeSelectorTerms": terms}}
        await made(site, "placed", csi=csi, nodeAffinity=affinity)
        async with site.lone_manager(*webhooks.flags):

            async def is_labelled() -> bool:
                try:
                    found = await made(site, next(names), csi=csi)
                except StatusError:  # the API server waits a moment until it asks again
                    return False
                return found.metadata.labels.get(LABEL_ZONE) == "a"

            await until("the manager answers", is_labelled)


async def test_the_api_server_asks_about_claims_that_change_what_they_request(
    programs: Programs, tmp_path: Path
) -> None:
    asked = webhook(programs.render(webhooks={**BOTH, "failurePolicy": "Fail"}), KINDS[1])
    async with without_plug_in(tmp_path) as site:
        claims, webhooks = Claims(site), WebhookSite(site, tmp_path)
        await claims.make_classes()
        gold, silver = await claims.make(claims.gold), await claims.make(claims.silver)
        here = {**asked, "clientConfig": webhooks.address("/persistentvolumeclaim-resize")}
        async with webhooks.configured(KINDS[1], here):
            sizes = (f"{number}Gi" for number in range(2, 10_000))

            async def nobody_answers() -> bool:
                return "failed calling webhook" in await claims.refusal(silver, next(sizes))

            await until("nobody answers", nobody_answers)
            labelled = Patch(PatchType.MERGE, {"metadata": {"labels": {"a": "b"}}})
            await site.client.patch(CLAIMS, silver, labelled, "default")
            async with site.lone_manager(*webhooks.flags):

                async def is_refused() -> bool:
                    return "must support resize" in await claims.refusal(silver, next(sizes))

                await until("the manager answers", is_refused)
                assert await claims.refusal(gold, "20000Gi") == ""
