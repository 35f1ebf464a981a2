"""Tags on machines of nodes and on their volumes; where volumes are."""

from datetime import timedelta
from typing import Any

import pytest

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.provider import CloudProvider
from proreus.providers.aws import tagging
from proreus.testing.volumes import labels_of
from proreus.testing.waiting import until

from ..surroundings import Clock, Objects  # noqa: TID252 - pytest imports tests by path
from .site import PATIENT, Network, config_text, context, node, node_of, started
from .strict.process import StrictAWS

pytestmark = pytest.mark.long

TAGGING = f"""
{PATIENT}
[Tagging]
Tags = team=storage
Tags = cost-centre = 42
Resources = instance
Resources = volume
"""
WANTED = {"team": "storage", "cost-centre": "42"}


def tags(described: Any) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in described.get("Tags", ())}


def volume_of(network: Network, id_: str) -> str:
    return str(network.describe(id_)["BlockDeviceMappings"][0]["Ebs"]["VolumeId"])


def volume_tags(network: Network, id_: str) -> dict[str, str]:
    found = network.ec2.describe_volumes(VolumeIds=[volume_of(network, id_)])
    return tags(found["Volumes"][0])


async def describe(provider: CloudProvider, *ids: str) -> None:
    assert provider.instances is not None
    await provider.instances.describe([node_of(id_) for id_ in ids])


async def pass_for(provider: CloudProvider, network: Network, id_: str) -> None:
    """A new instance is tagged, and what is due is done beside it."""
    await describe(provider, id_)
    await until("tagged", lambda: volume_tags(network, id_) == WANTED)


async def test_machines_and_volumes_are_tagged_and_tagged_again(aws: StrictAWS) -> None:
    network = Network(aws)
    ids = network.run(3)
    nodes = Objects(map(node_of, ids))
    text = config_text(aws, network.vpc, sections=TAGGING)
    async with started(text, context(nodes=nodes)) as provider:
        # One id that EC2 does not know must not keep the others from their tags.
        aws.fail(
            "CreateTags",
            code="InvalidInstanceID.NotFound",
            message=f"The instance ID '{ids[1]}' does not exist",
            status=400,
        )
        await describe(provider, *ids)
        await until(
            "tagged",
            lambda: all(tags(network.describe(i)).items() >= WANTED.items() for i in ids[::2]),
        )
        await until("volumes are tagged", lambda: volume_tags(network, ids[2]) == WANTED)
        network.ec2.create_tags(Resources=[ids[0]], Tags=[{"Key": "team", "Value": "other"}])
        await describe(provider, *ids)
        await until(
            "repaired",
            lambda: all(tags(network.describe(i)).items() >= WANTED.items() for i in ids),
        )


async def test_tags_go_some_time_after_the_node(aws: StrictAWS) -> None:
    network = Network(aws)
    ids = network.run(5)
    kept, gone, first, second, third = ids
    nodes, clock = Objects(map(node_of, ids)), Clock()
    text = config_text(aws, network.vpc, sections=TAGGING)

    async with started(text, context(nodes=nodes, clock=clock)) as provider:
        await describe(provider, kept)
        await pass_for(provider, network, gone)
        del nodes.by_key[f"node-{gone}"]
        await pass_for(provider, network, first)
        clock.ahead += timedelta(minutes=4)
        await pass_for(provider, network, second)
        assert volume_tags(network, gone) == WANTED, "the Node may come back"
        # A pass may note that the node is gone only after the first four minutes.
        clock.ahead += timedelta(minutes=6)
        await pass_for(provider, network, third)
        await until("the volume has lost them", lambda: not volume_tags(network, gone))
        assert not tags(network.describe(gone)).keys() & WANTED.keys()
        assert tags(network.describe(kept)).items() >= WANTED.items()


async def test_a_volume_that_another_machine_has_by_now_keeps_its_tags(aws: StrictAWS) -> None:
    network = Network(aws)
    gone, heir, first, second, third = network.run(5)
    volume = network.ec2.create_volume(AvailabilityZone="us-east-1a", Size=1)["VolumeId"]
    network.ec2.attach_volume(InstanceId=gone, VolumeId=volume, Device="/dev/sdf")
    nodes, clock = Objects(map(node_of, (gone, heir, first, second, third))), Clock()
    text = config_text(aws, network.vpc, sections=TAGGING)

    def of_volume() -> dict[str, str]:
        return tags(network.ec2.describe_volumes(VolumeIds=[volume])["Volumes"][0])

    async with started(text, context(nodes=nodes, clock=clock)) as provider:
        await describe(provider, gone, heir)
        await until("tagged", lambda: of_volume() == WANTED)
        network.ec2.detach_volume(VolumeId=volume, InstanceId=gone)
        network.ec2.attach_volume(InstanceId=heir, VolumeId=volume, Device="/dev/sdf")
        del nodes.by_key[f"node-{gone}"]
        await pass_for(provider, network, first)
        await pass_for(provider, network, second)  # by its end the first one has ended
        clock.ahead += timedelta(minutes=6)
        await describe(provider, third)
        await until("its own volume has lost them", lambda: not volume_tags(network, gone))
        assert of_volume() == WANTED


async def test_a_volume_that_is_another_clusters_by_now_loses_no_tags(aws: StrictAWS) -> None:
    """It outlived its instance, and the other cluster has not attached it at the moment."""
    network = Network(aws)
    gone, first, second, third = network.run(4)
    volume = network.ec2.create_volume(AvailabilityZone="us-east-1a", Size=1)["VolumeId"]
    network.ec2.attach_volume(InstanceId=gone, VolumeId=volume, Device="/dev/sdf")
    nodes, clock = Objects(map(node_of, (gone, first, second, third))), Clock()
    text = config_text(aws, network.vpc, sections=TAGGING)

    def of_volume() -> dict[str, str]:
        return tags(network.ec2.describe_volumes(VolumeIds=[volume])["Volumes"][0])

    async with started(text, context(nodes=nodes, clock=clock)) as provider:
        await describe(provider, gone)
        await until("tagged", lambda: of_volume() == WANTED)
        network.ec2.detach_volume(VolumeId=volume, InstanceId=gone)
        owned = {"Key": "kubernetes.io/cluster/other", "Value": "owned"}
        network.ec2.create_tags(Resources=[volume], Tags=[owned])
        del nodes.by_key[f"node-{gone}"]
        await pass_for(provider, network, first)
        await pass_for(provider, network, second)  # by its end the first one has ended
        clock.ahead += timedelta(minutes=6)
        await describe(provider, third)
        await until("its own volume has lost them", lambda: not volume_tags(network, gone))
        assert of_volume().items() >= WANTED.items()


async def test_an_attached_volume_of_another_cluster_keeps_its_own_tags(aws: StrictAWS) -> None:
    """Such as one that was moved here by hand, or that instances of both clusters have."""
    network = Network(aws)
    mine, first = network.run(2)
    theirs = {"kubernetes.io/cluster/other": "owned", "team": "theirs"}
    volume = network.ec2.create_volume(AvailabilityZone="us-east-1a", Size=1)["VolumeId"]
    pairs = [{"Key": key, "Value": value} for key, value in theirs.items()]
    network.ec2.create_tags(Resources=[volume], Tags=pairs)
    network.ec2.attach_volume(InstanceId=mine, VolumeId=volume, Device="/dev/sdf")
    nodes = Objects(map(node_of, (mine, first)))
    text = config_text(aws, network.vpc, sections=TAGGING)
    async with started(text, context(nodes=nodes)) as provider:
        await describe(provider, mine)
        await until("its own volume is tagged", lambda: volume_tags(network, mine) == WANTED)
        await pass_for(provider, network, first)  # by its end the one before has ended
    assert tags(network.ec2.describe_volumes(VolumeIds=[volume])["Volumes"][0]) == theirs


async def test_a_machine_keeps_its_tags_when_another_node_that_named_it_goes(
    aws: StrictAWS,
) -> None:
    """Such as one of a kubelet that names another's instance, or that of a former host name."""
    network = Network(aws)
    ids = network.run(5)
    claimed, gone, first, second, third = ids
    other = node("other", node_of(claimed).spec.provider_id)
    nodes, clock = Objects([*map(node_of, ids), other]), Clock()
    text = config_text(aws, network.vpc, sections=TAGGING)
    async with started(text, context(nodes=nodes, clock=clock)) as provider:
        assert provider.instances is not None
        await describe(provider, claimed, gone)
        await provider.instances.describe([other])
        await until("tagged", lambda: volume_tags(network, gone) == WANTED)
        await until("tagged", lambda: volume_tags(network, claimed) == WANTED)
        del nodes.by_key["other"], nodes.by_key[f"node-{gone}"]
        await pass_for(provider, network, first)
        await pass_for(provider, network, second)  # by its end the first one has ended
        clock.ahead += timedelta(minutes=6)
        await describe(provider, third)
        await until("the other one has lost them", lambda: not volume_tags(network, gone))
        assert volume_tags(network, claimed) == WANTED
        assert tags(network.describe(claimed)).items() >= WANTED.items()


@pytest.mark.parametrize("mark", [{"kubernetes.io/cluster/other": "owned"}, {"app": "database"}])
async def test_machines_of_others_get_no_tags_and_lose_none(
    aws: StrictAWS, mark: dict[str, str]
) -> None:
    """A Node names its instance itself, so its kubelet can name anybody's."""
    network = Network(aws)
    theirs = {**mark, "team": "storage"}
    (other,) = network.run(tags=theirs)
    mine, first, second, third, fourth = network.run(5)
    nodes, clock = Objects(map(node_of, (mine, first, second, third, fourth, other))), Clock()
    text = config_text(aws, network.vpc, sections=TAGGING)
    async with started(text, context(nodes=nodes, clock=clock)) as provider:
        await describe(provider, other, mine)
        await until("tagged", lambda: volume_tags(network, mine) == WANTED)
        await pass_for(provider, network, first)
        assert tags(network.describe(other)) == theirs
        assert volume_tags(network, other) == {}
        del nodes.by_key[f"node-{other}"], nodes.by_key[f"node-{mine}"]
        await pass_for(provider, network, second)
        await pass_for(provider, network, third)  # by its end the one before has ended
        clock.ahead += timedelta(minutes=10)
        await describe(provider, fourth)
        await until("mine has lost them", lambda: not volume_tags(network, mine))
    assert tags(network.describe(other)) == theirs


async def test_a_machine_that_is_another_clusters_by_now_loses_no_tags(aws: StrictAWS) -> None:
    network = Network(aws)
    ids = network.run(5)
    moved, gone, first, second, third = ids
    nodes, clock = Objects(map(node_of, ids)), Clock()
    text = config_text(aws, network.vpc, sections=TAGGING)
    async with started(text, context(nodes=nodes, clock=clock)) as provider:
        await describe(provider, moved, gone)
        await until("tagged", lambda: volume_tags(network, gone) == WANTED)
        await until("tagged", lambda: volume_tags(network, moved) == WANTED)
        del nodes.by_key[f"node-{moved}"], nodes.by_key[f"node-{gone}"]
        network.ec2.delete_tags(Resources=[moved], Tags=[{"Key": "kubernetes.io/cluster/test"}])
        owned = {"Key": "kubernetes.io/cluster/other", "Value": "owned"}
        network.ec2.create_tags(Resources=[moved], Tags=[owned])
        await pass_for(provider, network, first)
        await pass_for(provider, network, second)  # by its end the first one has ended
        clock.ahead += timedelta(minutes=6)
        await describe(provider, third)
        await until("the other one has lost them", lambda: not volume_tags(network, gone))
        assert volume_tags(network, moved) == WANTED
        assert tags(network.describe(moved)).items() >= WANTED.items()


async def test_what_is_another_clusters_by_the_time_that_tags_can_be_set_gets_none(
    aws: StrictAWS, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EC2 may refuse tags for as long as a right is missing."""
    monkeypatch.setattr(tagging, "_RETRY_DELAY", 5.0)
    network = Network(aws)
    moved, kept = network.run(2)
    nodes = Objects(map(node_of, (moved, kept)))
    text = config_text(aws, network.vpc, sections=TAGGING)
    async with started(text, context(nodes=nodes)) as provider:
        aws.fail("CreateTags", code="OperationNotPermitted", message="no", status=400)
        await describe(provider, moved, kept)
        await until("refused", lambda: not aws.unspent())
        volume = volume_of(network, moved)
        network.ec2.delete_tags(Resources=[moved], Tags=[{"Key": "kubernetes.io/cluster/test"}])
        owned = {"Key": "kubernetes.io/cluster/other", "Value": "owned"}
        network.ec2.create_tags(Resources=[moved, volume], Tags=[owned])
        await until("tagged", lambda: volume_tags(network, kept) == WANTED)
    assert tags(network.describe(kept)).items() >= WANTED.items()
    assert tags(network.describe(moved)).keys().isdisjoint(WANTED)
    assert volume_tags(network, moved).keys().isdisjoint(WANTED)


async def test_where_only_volumes_are_tagged_a_machine_keeps_its_own_tags(aws: StrictAWS) -> None:
    network = Network(aws)
    (gone,) = network.run(tags={"kubernetes.io/cluster/test": "owned", "team": "storage"})
    first, second, third = network.run(3)
    nodes, clock = Objects(map(node_of, (gone, first, second, third))), Clock()
    sections = TAGGING.replace("Resources = instance\n", "")
    text = config_text(aws, network.vpc, sections=sections)
    async with started(text, context(nodes=nodes, clock=clock)) as provider:
        await pass_for(provider, network, gone)
        del nodes.by_key[f"node-{gone}"]
        await pass_for(provider, network, first)
        await pass_for(provider, network, second)  # by its end the first one has ended
        clock.ahead += timedelta(minutes=6)
        await describe(provider, third)
        await until("the volume has lost them", lambda: not volume_tags(network, gone))
        assert tags(network.describe(gone))["team"] == "storage"


async def test_nothing_is_tagged_unless_asked_for(aws: StrictAWS) -> None:
    network = Network(aws)
    (id_,) = network.run()
    async with started(config_text(aws, network.vpc)) as provider:
        await describe(provider, id_)
        await describe(provider, id_)
        assert set(aws.calls()) <= {
            "ec2.CreateVpc", "ec2.CreateSubnet", "ec2.RunInstances", "ec2.DescribeInstances",
        }  # fmt: skip
    assert set(tags(network.describe(id_))) == {"kubernetes.io/cluster/test"}


async def test_labels_of_a_volume_are_its_zone_and_region(aws: StrictAWS) -> None:
    network = Network(aws)
    (id_,) = network.run(SubnetId=network.subnets[1])
    volume = volume_of(network, id_)
    labels = {
        "topology.kubernetes.io/zone": "us-east-1b",
        "topology.kubernetes.io/region": "us-east-1",
    }
    async with started(config_text(aws, network.vpc)) as provider:
        for handle in (volume, f"aws://us-east-1b/{volume}", f"aws:///us-east-1b/{volume}"):
            of_tree = {"awsElasticBlockStore": {"volumeID": handle}}
            assert await labels_of(provider, of_tree) == labels
        csi = {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": volume}}
        assert await labels_of(provider, csi) == labels
        foreign = {"csi": {"driver": "other", "volumeHandle": volume}}
        assert await labels_of(provider, foreign) == {}
        for handle, said in (("vol-x", "vol-x"), ("vol-0123456789abcdef0", "no volume")):
            with pytest.raises(InvalidRequest, match=said):
                await labels_of(provider, {"awsElasticBlockStore": {"volumeID": handle}})
