"""Labels and node affinity of volumes; most cases are those of Kubernetes' own plug-in."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from proreus.cloudprovider import CloudError, InvalidRequest
from proreus.controllers.persistent_volume_label import plan as plans
from proreus.controllers.persistent_volume_label.plan import PROVISIONED_BY, Place
from proreus.kube.objects import (
    LABEL_REGION,
    LABEL_REGION_BETA,
    LABEL_ZONE,
    LABEL_ZONE_BETA,
)
from proreus.kube.patch import PatchType
from proreus.testing.volumes import persistent_volume

EBS: Final = {"awsElasticBlockStore": {"volumeID": "123"}}
CSI: Final = {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "123"}}
MADE: Final = {PROVISIONED_BY: "kubernetes.io/aws-ebs"}
SEVERAL: Final = {"a": "1", "b": "2", LABEL_ZONE: "2__1__3"}


def within(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def affinity(*terms: Mapping[str, Any] | list[dict[str, Any]]) -> dict[str, Any]:
    """Node affinity of these terms; a list holds the expressions of one."""
    made = [{"matchExpressions": one} if isinstance(one, list) else one for one in terms]
    return {"required": {"nodeSelectorTerms": made}}


@pytest.mark.parametrize(
    ("spec", "is_asked"),
    [
        (EBS, True),
        ({"gcePersistentDisk": {"pdName": "disk"}}, True),
        ({"azureDisk": {"diskName": "disk", "diskURI": "/subscriptions/…"}}, True),
        ({"cinder": {"volumeID": "123"}}, True),
        ({"vsphereVolume": {"volumePath": "[ds] disk.vmdk"}}, True),
        (CSI, True),
        ({**CSI, "nodeAffinity": affinity([])}, False),
        ({**EBS, "nodeAffinity": affinity([])}, True),
        ({"hostPath": {"path": "/"}}, False),
        ({"nfs": {"server": "s", "path": "/"}}, False),
        ({}, False),
        ({"awsElasticBlockStore": {"volumeID": "placeholder-for-provisioning"}}, False),
        ({"gcePersistentDisk": {"pdName": "placeholder-for-provisioning"}}, False),
        ({"azureDisk": {"diskName": "placeholder-for-provisioning"}}, False),
        ({"vsphereVolume": {"volumePath": "placeholder-for-provisioning"}}, True),
    ],
)
def test_volumes_of_clouds_that_are_made_are_asked_about(
    spec: Mapping[str, Any],
    is_asked: bool,  # noqa: FBT001
) -> None:
    assert plans.known(persistent_volume(spec)) == (None if is_asked else {})


@pytest.mark.parametrize(
    ("annotations", "labels", "known"),
    [
        (MADE, {LABEL_ZONE: "z", LABEL_REGION: "r", "x": "y"}, {LABEL_ZONE: "z", LABEL_REGION: "r"}),
        (MADE, {LABEL_ZONE_BETA: "z", LABEL_REGION_BETA: "r"},
         {LABEL_ZONE_BETA: "z", LABEL_REGION_BETA: "r"}),
        (MADE, {LABEL_ZONE: "z", LABEL_REGION: "r", LABEL_ZONE_BETA: "y", LABEL_REGION_BETA: "q"},
         {LABEL_ZONE: "z", LABEL_REGION: "r"}),
        (MADE, {LABEL_ZONE: "z", LABEL_REGION_BETA: "r"}, None),
        (MADE, {LABEL_ZONE: "z"}, None),
        ({}, {LABEL_ZONE: "z", LABEL_REGION: "r"}, None),
    ],
)  # fmt: skip
def test_whole_labels_of_a_provisioner_are_trusted(
    annotations: Mapping[str, str], labels: Mapping[str, str], known: Mapping[str, str] | None
) -> None:
    assert plans.known(persistent_volume(EBS, annotations=annotations, labels=labels)) == known


def test_a_volume_without_labels_in_the_cloud_stays_as_it_is() -> None:
    volume = persistent_volume(EBS)
    place = plans.desired(volume, {})
    assert place == Place({}, None)
    assert plans.admitted(volume, place) == ()
    assert not plans.repaired(volume, place)


def test_labels_become_requirements_and_several_zones_one_of_them() -> None:
    place = plans.desired(persistent_volume(EBS), SEVERAL)
    assert place.labels == SEVERAL
    expected = [within("a", "1"), within("b", "2"), within(LABEL_ZONE, "1", "2", "3")]
    assert place.affinity == affinity(expected)


def test_beta_zones_are_several_too() -> None:
    place = plans.desired(persistent_volume(EBS), {LABEL_ZONE_BETA: "b__a"})
    assert place.affinity == affinity([within(LABEL_ZONE_BETA, "a", "b")])


@pytest.mark.parametrize("value", ["", "a__", "__", "a____b", "a__ __b"])
def test_an_empty_zone_is_an_error(value: str) -> None:
    with pytest.raises(ValueError, match="names an empty zone"):
        plans.desired(persistent_volume(EBS), {LABEL_ZONE: value})


def test_the_cloud_s_labels_win_over_the_user_s_and_others_stay() -> None:
    volume = persistent_volume(EBS, labels={"a": "not1", LABEL_ZONE: "theirs", "own": "kept"})
    place = plans.desired(volume, {"a": "1", LABEL_ZONE: "ours"})
    assert plans.admitted(volume, place) == (
        {"op": "add", "path": "/metadata/labels",
         "value": {"a": "1", LABEL_ZONE: "ours", "own": "kept"}},
        {"op": "add", "path": "/spec/nodeAffinity",
         "value": affinity([within("a", "1"), within(LABEL_ZONE, "ours")])},
    )  # fmt: skip


def test_a_beta_label_that_is_there_is_kept_equal_to_its_successor() -> None:
    volume = persistent_volume(EBS, labels={LABEL_ZONE_BETA: "old"})
    place = plans.desired(volume, {LABEL_ZONE: "z", LABEL_REGION: "r"})
    assert place.labels == {LABEL_ZONE: "z", LABEL_REGION: "r", LABEL_ZONE_BETA: "z"}
    assert place.affinity == affinity([within(LABEL_REGION, "r"), within(LABEL_ZONE, "z")])


def test_trusted_labels_only_add_affinity() -> None:
    labels = {LABEL_ZONE: "z", LABEL_REGION: "r"}
    volume = persistent_volume(EBS, labels=labels)
    (op,) = plans.admitted(volume, plans.desired(volume, labels))
    assert op["path"] == "/spec/nodeAffinity"


@pytest.mark.parametrize(
    ("present", "then"),
    [
        # Other keys: each term grows.
        (affinity([within("c", "3")], [within("d", "4")]),
         affinity([within("c", "3"), within(LABEL_ZONE, "z")],
                  [within("d", "4"), within(LABEL_ZONE, "z")])),
        # A term of fields alone keeps them.
        (affinity({"matchFields": [within("metadata.name", "n")]}),
         affinity({"matchFields": [within("metadata.name", "n")],
                   "matchExpressions": [within(LABEL_ZONE, "z")]})),
        # One of the keys in any term: nothing is added.
        (affinity([within("c", "3")], [within(LABEL_ZONE, "other")]), None),
        # No terms: one is made.
        ({"required": {"nodeSelectorTerms": []}}, affinity([within(LABEL_ZONE, "z")])),
        ({"required": None}, affinity([within(LABEL_ZONE, "z")])),
        (None, affinity([within(LABEL_ZONE, "z")])),
    ],
)  # fmt: skip
def test_affinity_that_is_there_grows_unless_it_speaks_of_the_same(
    present: Mapping[str, Any] | None, then: Mapping[str, Any] | None
) -> None:
    volume = persistent_volume({**EBS, "nodeAffinity": present})
    assert plans.desired(volume, {LABEL_ZONE: "z"}).affinity == then


@pytest.mark.parametrize(
    ("spec", "metadata", "expected"),
    [
        (EBS, {}, True),
        (EBS, {"labels": {LABEL_ZONE: "z"}}, True),
        ({**EBS, "nodeAffinity": affinity([within("a", "1")])}, {}, True),
        ({**EBS, "nodeAffinity": affinity([within("a", "1")])}, {"labels": {LABEL_REGION: "r"}}, False),
        ({**EBS, "nodeAffinity": affinity([within("a", "1")])}, {"labels": {LABEL_ZONE_BETA: "z"}}, False),
        (EBS, {"labels": {LABEL_ZONE: "z", LABEL_REGION: "r"}, "annotations": MADE}, True),
        (EBS, {"deletion_timestamp": datetime(2026, 1, 1, tzinfo=UTC)}, False),
        ({"hostPath": {"path": "/"}}, {}, False),
    ],
)  # fmt: skip
def test_a_volume_that_is_there_matters_until_it_has_labels_and_affinity(
    spec: Mapping[str, Any], metadata: Mapping[str, Any], *, expected: bool
) -> None:
    assert plans.relevant(persistent_volume(spec, **metadata)) is expected


def test_only_labels_and_spec_matter_of_a_change() -> None:
    volume = persistent_volume(EBS)
    assert plans.changed(None, volume)
    assert not plans.changed(volume, persistent_volume(EBS, resource_version="2"))
    assert plans.changed(volume, persistent_volume(EBS, labels={"a": "b"}))
    assert plans.changed(volume, persistent_volume(CSI))


def test_a_repair_tests_what_it_replaces_and_sets_affinity_once() -> None:
    volume = persistent_volume(EBS, labels={LABEL_ZONE: "old"})
    place = plans.desired(volume, {LABEL_ZONE: "z"})
    patch = plans.repaired(volume, place)
    assert patch.type is PatchType.JSON
    ops = [(op.op, op.path) for op in patch.body]
    assert ops[0] == ("test", "/metadata/uid")
    assert ("test", "/metadata/labels/topology.kubernetes.io~1zone") in ops
    assert ops[-2:] == [("test", "/spec/nodeAffinity"), ("add", "/spec/nodeAffinity")]
    event = plans.labelled(volume, place)
    assert (event.type, event.reason) == ("Normal", "VolumeLabelled")
    assert event.message == "The volume is at topology.kubernetes.io/zone=z"


def test_affinity_that_cannot_be_changed_is_told() -> None:
    volume = persistent_volume({**EBS, "nodeAffinity": affinity([within("a", "1")])})
    place = plans.desired(volume, {LABEL_ZONE: "z"})
    assert "/spec/nodeAffinity" not in {op.path for op in plans.repaired(volume, place).body}
    event = plans.labelled(volume, place)
    assert (event.type, event.reason) == ("Warning", "NodeAffinityFixed")


def test_a_wrong_volume_is_forbidden_and_a_silent_cloud_is_worth_another_try() -> None:
    assert plans.refusal(InvalidRequest("there is no volume 123")) == (
        "the volume cannot be labelled: there is no volume 123", 403,
    )  # fmt: skip
    message, code = plans.refusal(CloudError("500"))
    assert code == 503
    assert "try again" in message
    event = plans.trouble(CloudError("500"))
    assert (event.type, event.reason) == ("Warning", "VolumeLabelsUnknown")
