"""Volumes get the labels and the node affinity of their zones: by the webhook, or afterwards."""

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from proreus.kube.errors import StatusError
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, PersistentVolume
from proreus.kube.requests import PERSISTENT_VOLUMES, Request
from proreus.testing.simulated import Fault, FaultMode, Volume
from proreus.testing.waiting import until

from .read_only import reader
from .site import TOKENS, Site
from .webhook_site import LABELLING, WebhookSite, cleared

CONTROLLER: Final = "--controllers=persistentvolume-label-controller"
REGION: Final = {LABEL_REGION: "sim-1"}


def requirement(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


IN_REGION: Final = requirement(LABEL_REGION, "sim-1")


def required(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": one} for one in terms]}}


def body(spec: Mapping[str, Any], name: str = "", **metadata: Any) -> dict[str, Any]:
    named = {"name": name} if name else {"generateName": "volume-"}
    return {
        "metadata": {**named, **metadata},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **spec},
    }


def csi(id_: str, driver: str = "csi.simulated.example") -> dict[str, Any]:
    return {"csi": {"driver": driver, "volumeHandle": id_}}


async def disk(site: Site, *zones: str) -> str:
    (made,) = await site.cloud.admin.create_volumes([Volume(zones=zones)])
    return made.id


async def make(site: Site, spec: Mapping[str, Any], **metadata: Any) -> PersistentVolume:
    """Make a volume; what became of it.

    Raises:
        StatusError: It is refused.
    """
    name = f"volume-{uuid.uuid4().hex[:8]}"
    await site.client.create(PERSISTENT_VOLUMES, body(spec, name, **metadata))
    return await site.client.get(PERSISTENT_VOLUMES, name)


@pytest.fixture(autouse=True)
async def volumes(site: Site) -> AsyncIterator[None]:
    await cleared(site.client, PERSISTENT_VOLUMES)
    yield
    await cleared(site.client, PERSISTENT_VOLUMES)


@asynccontextmanager
async def labelling(site: Site, directory: Path, *flags: str) -> AsyncIterator[None]:
    """The webhook in a manager without replicas."""
    webhooks = WebhookSite(site, directory)
    async with (
        site.lone_manager(*webhooks.flags, *flags),
        webhooks.configured("MutatingWebhookConfiguration", LABELLING),
    ):
        await asked(site)
        yield


async def asked(site: Site) -> None:
    """Wait until the API server asks the webhook: it learns of configurations by a watch."""
    source = csi(await disk(site, "first"))

    async def is_labelled() -> bool:
        return bool((await make(site, source)).metadata.labels)

    await until("the webhook is asked", is_labelled)


async def test_a_new_volume_gets_labels_and_affinity_of_its_zones(
    site: Site, tmp_path: Path
) -> None:
    async with labelling(site, tmp_path):
        one, several, region = (
            await disk(site, "a"), await disk(site, "c", "b"), await disk(site),
        )  # fmt: skip

        found = await make(site, csi(one), labels={"own": "kept", LABEL_ZONE: "wrong"})
        assert found.metadata.labels == {"own": "kept", LABEL_ZONE: "a", **REGION}
        in_a = required([IN_REGION, requirement(LABEL_ZONE, "a")])
        assert found.spec["nodeAffinity"] == in_a

        found = await make(site, csi(several))
        assert found.metadata.labels == {LABEL_ZONE: "b__c", **REGION}
        assert found.spec["nodeAffinity"] == required(
            [IN_REGION, requirement(LABEL_ZONE, "b", "c")]
        )

        found = await make(site, csi(region))
        assert found.metadata.labels == REGION
        assert found.spec["nodeAffinity"] == required([IN_REGION])

        await site.client.create(PERSISTENT_VOLUMES, body(csi(one)))  # without a name yet
        unnamed = [
            volume
            for volume in (await site.client.list(PERSISTENT_VOLUMES)).items
            if volume.metadata.labels == {LABEL_ZONE: "a", **REGION}
        ]
        assert [volume.spec["nodeAffinity"] for volume in unnamed] == [in_a]


async def test_what_is_no_volume_of_the_cloud_or_known_is_not_asked_about(
    site: Site, tmp_path: Path
) -> None:
    async with labelling(site, tmp_path):
        id_ = await disk(site, "a")
        before = len(await site.calls("volumes.batch_get"))
        own = required([requirement("topology.example/zone", "a")])
        for spec in (
            {"hostPath": {"path": "/data"}},
            csi("vol-1", "ebs.csi.aws.com"),
            {"awsElasticBlockStore": {"volumeID": "placeholder-for-provisioning"}},
            {"awsElasticBlockStore": {"volumeID": "vol-0123456789abcdef0"}},
            {**csi(id_), "nodeAffinity": own},
        ):
            found = await make(site, spec)
            assert found.metadata.labels == {}
            assert found.spec.get("nodeAffinity") == spec.get("nodeAffinity")

        made = {"pv.kubernetes.io/provisioned-by": "csi.simulated.example"}
        labels = {LABEL_ZONE: "z", LABEL_REGION: "r"}
        found = await make(site, csi(id_), labels=labels, annotations=made)
        assert found.metadata.labels == labels
        assert found.spec["nodeAffinity"] == required(
            [requirement(LABEL_REGION, "r"), requirement(LABEL_ZONE, "z")]
        )
        assert len(await site.calls("volumes.batch_get")) == before


async def test_a_volume_that_is_not_there_is_forbidden_and_a_silent_cloud_unavailable(
    site: Site, tmp_path: Path
) -> None:
    async with labelling(site, tmp_path):
        with pytest.raises(StatusError) as caught:
            await make(site, csi("vol-000000000000"))
        assert caught.value.code == 403
        assert caught.value.message.endswith(
            "the volume cannot be labelled: there is no volume 'vol-000000000000'"
        )
        id_ = await disk(site, "a")
        await site.cloud.admin.inject(Fault(FaultMode.ERROR, "volumes.*", count=0))
        with pytest.raises(StatusError) as caught:
            await make(site, csi(id_))
        assert caught.value.code == 503
        assert "the cloud does not say where the volume is, try again" in caught.value.message
        await site.cloud.admin.clear_faults()
        assert (await make(site, csi(id_))).metadata.labels[LABEL_ZONE] == "a"


async def test_a_dry_run_is_answered_alike(site: Site, tmp_path: Path) -> None:
    async with labelling(site, tmp_path):
        spec = csi(await disk(site, "a"))
        path = PERSISTENT_VOLUMES.path()
        made = {"apiVersion": "v1", "kind": "PersistentVolume", **body(spec, "dry")}
        request = Request(
            "POST", path, (("dryRun", "All"),), msgspec.json.encode(made), "application/json"
        )
        found = await site.client.send(request, PersistentVolume)
        assert found.metadata.labels == {LABEL_ZONE: "a", **REGION}


async def test_a_standby_labels_too(site: Site, tmp_path: Path) -> None:
    webhooks = WebhookSite(site, tmp_path)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(site.manager("--leader-elect", user="leader"))
        await site.join("node")
        await site.initialised("node")
        standby = site.manager("--leader-elect", *webhooks.flags, token=TOKENS["second"])
        await stack.enter_async_context(standby)
        await stack.enter_async_context(
            webhooks.configured("MutatingWebhookConfiguration", LABELLING)
        )
        await asked(site)
        callers = {(call.caller, call.operation) for call in await site.cloud.admin.calls()}
        assert ("second", "volumes.batch_get") in callers
        assert ("second", "instances.batch_get") not in callers


async def test_volumes_made_without_a_webhook_are_repaired_by_one_question(
    site: Site, tmp_path: Path
) -> None:
    ids = [
        volume.id for volume in await site.cloud.admin.create_volumes([Volume(zones=("a",))] * 20)
    ]
    names = [(await make(site, csi(id_))).metadata.name for id_ in ids]
    foreign = await make(site, {"hostPath": {"path": "/data"}})
    async with reader(site, "planner", tmp_path) as planner:
        planned = await planner.run("plan", "--json", CONTROLLER)
        judged = await planner.run("doctor", "--json", CONTROLLER, "--patience=0s")
        planner.check_only_read()
    shown = {one["about"]: one["lines"] for one in planned.json["changes"]}
    assert shown.keys() == {f"persistentvolume/{name}" for name in names}
    assert f"+ label {LABEL_ZONE}=a" in shown[f"persistentvolume/{names[0]}"]
    found = {one["check"] for one in judged.json["findings"]}
    assert "volume-not-labelled" in found
    await site.cloud.admin.clear_calls()
    async with site.lone_manager(CONTROLLER):

        async def are_labelled() -> bool:
            found = (await site.client.list(PERSISTENT_VOLUMES)).items
            return all(
                one.metadata.labels == {LABEL_ZONE: "a", **REGION}
                and one.spec.get("nodeAffinity")
                == required([IN_REGION, requirement(LABEL_ZONE, "a")])
                for one in found
                if one.metadata.name in names
            )

        await until("all are labelled", are_labelled)
        assert len(await site.calls("volumes.batch_get")) <= 2
        assert len(site.writes("persistentvolumes")) == len(names)
        event = await site.event("VolumeLabelled", names[0])
        assert f"{LABEL_ZONE}=a" in event.message
        # A new one comes while it runs; what has been labelled is not asked about again.
        calls = len(await site.calls("volumes.batch_get"))
        later = (await make(site, csi(await disk(site, "b", "c")))).metadata.name
        names.remove(names[0])

        async def is_labelled() -> bool:
            found = await site.client.get(PERSISTENT_VOLUMES, later)
            return found.metadata.labels.get(LABEL_ZONE) == "b__c"

        await until("the new one is labelled", is_labelled)
        assert len(await site.calls("volumes.batch_get")) == calls + 1
        kept = await site.client.get(PERSISTENT_VOLUMES, foreign.metadata.name)
        assert kept.metadata.resource_version == foreign.metadata.resource_version


async def test_a_volume_whose_affinity_cannot_be_changed_is_told_and_an_unknown_one_too(
    site: Site,
) -> None:
    made = {"pv.kubernetes.io/provisioned-by": "kubernetes.io/aws-ebs"}
    labels = {LABEL_ZONE: "z", LABEL_REGION: "r"}
    own = required([requirement("disks.example/kind", "fast")])
    fixed = await make(
        site,
        {"awsElasticBlockStore": {"volumeID": "vol-0123456789abcdef0"}, "nodeAffinity": own},
        annotations=made,
    )
    unknown = await make(site, csi("vol-000000000000"))
    open_ = await make(
        site,
        {"awsElasticBlockStore": {"volumeID": "vol-0123456789abcdef1"}},
        labels=labels,
        annotations=made,
    )
    async with site.lone_manager(CONTROLLER):
        event = await site.event("VolumeLabelsUnknown", unknown.metadata.name)
        assert (event.type, "there is no volume" in event.message) == ("Warning", True)

        async def has_affinity() -> bool:
            found = await site.client.get(PERSISTENT_VOLUMES, open_.metadata.name)
            return found.spec.get("nodeAffinity") is not None

        await until("the labels of the provisioner count", has_affinity)
        kept = await site.client.get(PERSISTENT_VOLUMES, fixed.metadata.name)
        assert kept.spec["nodeAffinity"] == own  # another cloud's, as far as this one knows
