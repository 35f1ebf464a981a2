"""Instances: found by every sort of name, in few calls, with one bad id costing only itself."""

from collections.abc import Mapping
from typing import Any

import pytest

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import (
    Instance,
    InstanceAnswer,
    InstanceState,
    NotFound,
    Ownership,
)
from proreus.cloudprovider.provider import CloudProvider
from proreus.kube.objects import Node
from proreus.providers.aws.instances import AWSInstances
from proreus.providers.aws.lookup import MOST_ALONE
from proreus.providers.aws.machines import is_powered_off

from .site import Network, config_text, node, node_of, started
from .strict.process import StrictAWS

GONE = "i-0123456789abcdef0"


async def describe(provider: CloudProvider, *nodes: Node) -> Mapping[str, InstanceAnswer]:
    assert provider.instances is not None
    return await provider.instances.describe(nodes)


async def one(provider: CloudProvider, of: Node) -> Any:
    return (await describe(provider, of))[of.metadata.name]


def addresses(machine: Any) -> list[tuple[str, str]]:
    assert isinstance(machine, Instance)
    return [(address.type, address.address) for address in machine.addresses]


async def test_a_node_is_found_by_its_private_dns_name(aws: StrictAWS) -> None:
    network = Network(aws)
    (id_,) = network.run()
    seen = network.describe(id_)
    async with started(config_text(aws, network.vpc)) as provider:
        machine = await one(provider, node(seen["PrivateDnsName"]))
    assert machine == Instance(
        provider_id=f"aws:///us-east-1a/{id_}",
        name=seen["PrivateDnsName"],
        instance_type="m5.large",
        zone="us-east-1a",
        region="us-east-1",
        addresses=machine.addresses,
        additional_labels={"topology.k8s.aws/zone-id": "use1-az6"},
        state=InstanceState.RUNNING,
    )
    assert addresses(machine) == [
        ("InternalIP", seen["PrivateIpAddress"]),
        ("InternalDNS", seen["PrivateDnsName"]),
        ("Hostname", seen["PrivateDnsName"]),
    ]


async def test_a_node_is_found_by_the_id_in_its_name(aws: StrictAWS) -> None:
    network = Network(aws)
    (id_,) = network.run(PrivateDnsNameOptions={"HostnameType": "resource-name"})
    name = network.describe(id_)["PrivateDnsName"]
    assert name == f"{id_}.ec2.internal"
    async with started(config_text(aws, network.vpc)) as provider:
        long, short = await one(provider, node(name)), await one(provider, node(id_))
    assert long.provider_id == short.provider_id == f"aws:///us-east-1a/{id_}"


@pytest.mark.parametrize("form", ["aws:///us-east-1a/{}", "aws:////{}", "{}"])
async def test_every_form_of_provider_id_is_understood_and_kept(aws: StrictAWS, form: str) -> None:
    network = Network(aws)
    (id_,) = network.run()
    provider_id = form.format(id_)
    async with started(config_text(aws, network.vpc)) as provider:
        machine = await one(provider, node("any-name", provider_id))
    assert (machine.provider_id, machine.zone) == (provider_id, "us-east-1a")


async def test_a_provider_id_goes_before_the_name(aws: StrictAWS) -> None:
    network = Network(aws)
    first, second = network.run(2)
    name = network.describe(second)["PrivateDnsName"]
    async with started(config_text(aws, network.vpc)) as provider:
        machine = await one(provider, node(name, f"aws:///us-east-1a/{first}"))
    assert machine.provider_id.endswith(first)


async def test_an_instance_of_that_name_without_the_clusters_tag_is_refused(aws: StrictAWS) -> None:
    network = Network(aws)
    foreign, legacy = network.run(tags={"kubernetes.io/cluster/other": "owned"})[0], ""
    (legacy,) = network.run(tags={"KubernetesCluster": "test"})
    names = [network.describe(id_)["PrivateDnsName"] for id_ in (foreign, legacy)]
    async with started(config_text(aws, network.vpc)) as provider:
        found = await describe(provider, *map(node, names))
    refused = found[names[0]]
    assert isinstance(refused, CloudError)
    assert foreign in str(refused)
    assert "kubernetes.io/cluster/test" in str(refused)
    assert isinstance(found[names[1]], Instance)


async def test_a_name_that_two_instances_have_is_no_identity(aws: StrictAWS) -> None:
    network = Network(aws)
    ids = network.run(2)
    aws.control("extra", {id_: {"private_dns_name": "twin.ec2.internal"} for id_ in ids})
    async with started(config_text(aws, network.vpc)) as provider:
        answer = await one(provider, node("twin.ec2.internal"))
    assert isinstance(answer, IdentityConflict)
    assert all(id_ in str(answer) for id_ in ids)


async def test_addresses_of_all_interfaces_come_in_the_order_of_their_index(aws: StrictAWS) -> None:
    network = Network(aws)
    (id_,) = network.run(
        NetworkInterfaces=[
            {"DeviceIndex": 1, "SubnetId": network.subnets[0], "Ipv6AddressCount": 2},
            {"DeviceIndex": 0, "SubnetId": network.subnets[0], "Ipv6AddressCount": 1},
        ]
    )
    seen = network.describe(id_)
    nics = sorted(seen["NetworkInterfaces"], key=lambda nic: nic["Attachment"]["DeviceIndex"])
    v4 = [
        ("InternalIP", private["PrivateIpAddress"])
        for nic in nics
        for private in nic["PrivateIpAddresses"]
    ]
    v6 = [("InternalIP", nic["Ipv6Addresses"][0]["Ipv6Address"]) for nic in nics]
    assert len(v4) == len(v6) == 2
    found = {}
    for families in (("ipv4",), ("ipv6",), ("ipv6", "ipv4")):
        lines = "\n".join(f"NodeIPFamilies = {family}" for family in families)
        async with started(config_text(aws, network.vpc, lines)) as provider:
            machine = await one(provider, node_of(id_))
        found[families] = [pair for pair in addresses(machine) if pair[0] == "InternalIP"]
    assert found == {("ipv4",): v4, ("ipv6",): v6, ("ipv6", "ipv4"): [*v6, *v4]}


async def test_a_public_address_is_external(aws: StrictAWS) -> None:
    network = Network(aws)
    network.ec2.modify_subnet_attribute(
        SubnetId=network.subnets[0], MapPublicIpOnLaunch={"Value": True}
    )
    (id_,) = network.run()
    seen = network.describe(id_)
    async with started(config_text(aws, network.vpc)) as provider:
        machine = await one(provider, node_of(id_))
    assert ("ExternalIP", seen["PublicIpAddress"]) in addresses(machine)


async def test_what_is_gone_and_what_is_stopped(aws: StrictAWS) -> None:
    network = Network(aws)
    stopped, terminated, running = network.run(3)
    terminated_name = network.describe(terminated)["PrivateDnsName"]
    network.ec2.stop_instances(InstanceIds=[stopped])
    network.ec2.terminate_instances(InstanceIds=[terminated])
    async with started(config_text(aws, network.vpc)) as provider:
        found = await describe(
            provider,
            node_of(stopped),
            node_of(terminated),
            node_of(running),
            node_of(GONE),
            node(terminated_name),
            node(f"{terminated}.ec2.internal"),
        )
    states = {
        id_: answer.state if isinstance(answer, Instance) else answer
        for id_, answer in zip(
            ("stopped", "terminated", "running", "gone", "name", "id in name"),
            found.values(),
            strict=True,
        )
    }
    assert states == {
        "stopped": InstanceState.STOPPED,
        "terminated": NotFound(tombstone=True),
        "running": InstanceState.RUNNING,
        "gone": NotFound(),
        "name": NotFound(),
        "id in name": NotFound(),
    }


@pytest.mark.parametrize(
    ("state", "reason", "may_hibernate", "is_off"),
    [
        ("stopped", "Client.UserInitiatedShutdown", False, True),
        ("stopped", "Server.SpotInstanceShutdown", False, True),
        ("stopped", "", False, True),
        ("stopped", "Client.UserInitiatedShutdown", True, True),
        ("stopped", "Client.InstanceInitiatedShutdown", True, True),
        ("stopped", "Client.UserInitiatedHibernate", True, False),
        ("stopped", "Client.UserInitiatedHibernate", False, False),
        ("stopped", "Server.SpotInstanceShutdown", True, False),
        ("stopping", "Client.UserInitiatedShutdown", False, False),
        ("running", "", False, False),
    ],
)
def test_a_stopped_instance_is_powered_off_unless_it_may_be_hibernated(
    state: str, reason: str, *, may_hibernate: bool, is_off: bool
) -> None:
    described = {
        "State": {"Name": state},
        "StateReason": {"Code": reason},
        "HibernationOptions": {"Configured": may_hibernate},
    }
    assert is_powered_off(described) is is_off
    assert is_powered_off({"State": {"Name": state}}) is (state == "stopped")


@pytest.mark.parametrize(
    ("reason", "is_off"),
    [
        ("Client.UserInitiatedShutdown", True),
        ("Client.InstanceInitiatedShutdown", True),
        ("Server.SpotInstanceShutdown", False),
        ("", False),
    ],
)
def test_a_spot_instance_that_ec2_interrupts_may_be_hibernated_whatever_its_options(
    reason: str, *, is_off: bool
) -> None:
    """Its request says so (InstanceInterruptionBehavior), which no description shows."""
    described = {
        "State": {"Name": "stopped"},
        "StateReason": {"Code": reason},
        "HibernationOptions": {"Configured": False},
        "InstanceLifecycle": "spot",
    }
    assert is_powered_off(described) is is_off


async def test_a_bad_id_costs_one_more_call_and_only_itself(aws: StrictAWS) -> None:
    network = Network(aws)
    ids = network.run(30)
    async with started(config_text(aws, network.vpc)) as provider:
        aws.calls()
        found = await describe(
            provider,
            *map(node_of, [*ids, GONE, "i-0123456789abcdef1"]),
            node("malformed", "aws:///us-east-1a/i-xyz"),
            node("another-cloud", "gce://project/zone/name"),
        )
        calls = aws.calls()
    assert sum(isinstance(answer, Instance) for answer in found.values()) == 30
    assert found[f"node-{GONE}"] == NotFound()
    assert isinstance(found["malformed"], InvalidRequest)
    assert isinstance(found["another-cloud"], InvalidRequest)
    assert calls == ["ec2.DescribeInstances"] * 2


async def test_an_id_that_ec2_calls_malformed_is_an_invalid_request_and_no_absence(
    aws: StrictAWS,
) -> None:
    network = Network(aws)
    (id_,) = network.run()
    aws.configure(malformed=[id_])
    sound = network.run(2)
    async with started(config_text(aws, network.vpc)) as provider:
        aws.calls()
        found = await describe(provider, *map(node_of, [id_, *sound, GONE]))
        calls = aws.calls()
    refused = found[f"node-{id_}"]
    assert isinstance(refused, InvalidRequest)
    assert f"EC2 does not take {id_} as an instance id" in str(refused)
    assert found[f"node-{GONE}"] == NotFound()
    assert all(isinstance(found[f"node-{one}"], Instance) for one in sound)
    assert calls == ["ec2.DescribeInstances"] * 3


async def test_an_instance_that_an_answer_leaves_out_is_unknown(aws: StrictAWS) -> None:
    network = Network(aws)
    ids = network.run(3)
    aws.configure(unlisted=ids[:1])
    async with started(config_text(aws, network.vpc)) as provider:
        found = dict(await describe(provider, *map(node_of, ids)))
    unknown = found.pop(f"node-{ids[0]}")
    assert isinstance(unknown, CloudError)
    assert f"EC2 left {ids[0]} out of its answer" in str(unknown)
    assert all(isinstance(one, Instance) for one in found.values())


async def test_what_a_listing_leaves_out_is_asked_for_by_itself(aws: StrictAWS) -> None:
    network = Network(aws)
    ids = network.run(4)
    absent = [f"i-0123456789abcdef{n}" for n in range(6)]
    # A cloud that names one missing id at a time, so that a listing has to tell who is there.
    aws.configure(named=1, unlisted=[ids[0]])
    async with started(config_text(aws, network.vpc)) as provider:
        aws.calls()
        found = await describe(provider, *map(node_of, [*ids, *absent]))
        calls = aws.calls()
    assert all(isinstance(found[f"node-{one}"], Instance) for one in ids)
    assert all(found[f"node-{one}"] == NotFound() for one in absent)
    assert calls == ["ec2.DescribeInstances"] * (3 + 1 + 1 + 3)


async def test_of_many_that_a_listing_leaves_out_some_are_unknown_until_later(
    aws: StrictAWS,
) -> None:
    network = Network(aws)
    ids = network.run(2)
    absent = {f"i-{n:017x}" for n in range(24)}
    aws.configure(named=1, unlisted=[ids[0]])
    known: set[str] = set()
    async with started(config_text(aws, network.vpc)) as provider:
        for _ in range(100):
            aws.calls()
            found = await describe(provider, *map(node_of, [*ids, *absent]))
            assert len(aws.calls()) <= 3 + 1 + MOST_ALONE
            gone = {name for name, answer in found.items() if isinstance(answer, NotFound)}
            assert gone <= {f"node-{one}" for one in absent}
            unknown = [one for one in found.values() if isinstance(one, CloudError)]
            assert all("unknown, not gone" in str(one) for one in unknown)
            assert len(unknown) + len(gone) >= 24
            known |= gone
            if len(known) == 24:
                return
    pytest.fail("some are never asked for")


async def test_ids_and_names_are_asked_in_one_call_each_and_names_by_the_limit_of_filters(
    aws: StrictAWS,
) -> None:
    network = Network(aws)
    ids = network.run(12)
    named = network.run(8)
    aws.configure(page=5)
    names = [network.describe(id_)["PrivateDnsName"] for id_ in named]
    absent = [f"ip-10-9-{n // 250}-{n % 250}.ec2.internal" for n in range(195)]
    async with started(config_text(aws, network.vpc)) as provider:
        aws.calls()
        found = await describe(provider, *map(node_of, ids), *map(node, [*names, *absent]))
        calls = aws.calls()
    assert sum(isinstance(answer, Instance) for answer in found.values()) == 20
    assert sum(isinstance(answer, NotFound) for answer in found.values()) == 195
    # 12 ids in pages of 5; 203 names in two filters, of which the found ones fill two pages.
    assert calls == ["ec2.DescribeInstances"] * 6


async def test_names_that_cannot_be_read_do_not_spoil_the_ids(aws: StrictAWS) -> None:
    network = Network(aws)
    (id_,) = network.run()
    async with started(config_text(aws, network.vpc)) as provider:
        aws.fail("DescribeInstances", times=1)
        found = await describe(provider, node_of(id_), node("ip-10-0-0-9.ec2.internal"))
    sorts = sorted(type(answer).__name__ for answer in found.values())
    assert sorts in (["Instance", "Refused"], ["NotFound", "Refused"])


async def test_network_topology_becomes_labels_and_is_asked_for_once(aws: StrictAWS) -> None:
    network = Network(aws)
    (large,) = network.run(InstanceType="p4d.24xlarge")
    (small,) = network.run()
    async with started(config_text(aws, network.vpc)) as provider:
        first = await describe(provider, node_of(large), node_of(small))
        aws.calls()
        second = await describe(provider, node_of(large), node_of(small))
        calls = aws.calls()
    machine, other = first[f"node-{large}"], first[f"node-{small}"]
    assert isinstance(machine, Instance)
    assert isinstance(other, Instance)
    layers = {f"topology.k8s.aws/network-node-layer-{n}" for n in (1, 2, 3)}
    assert layers < set(machine.additional_labels)
    assert not layers & set(other.additional_labels)
    assert (second, calls) == (first, ["ec2.DescribeInstances"])


async def test_labels_of_the_topology_are_not_lost_while_it_cannot_be_read(aws: StrictAWS) -> None:
    network = Network(aws)
    (id_,) = network.run(InstanceType="p4d.24xlarge")
    label = "topology.k8s.aws/network-node-layer-1"
    old = node("old", f"aws:///us-east-1a/{id_}", **{label: "nn-1"})
    async with started(config_text(aws, network.vpc)) as provider:
        aws.fail("DescribeInstanceTopology", times=1)
        found = await describe(provider, old, node_of(id_))
        kept, new = found["old"], found[f"node-{id_}"]
        later = await one(provider, node_of(id_))
    assert isinstance(kept, Instance)
    assert kept.additional_labels[label] == "nn-1"
    assert isinstance(new, CloudError)
    assert label in later.additional_labels


async def test_a_region_without_topology_is_not_asked_again(aws: StrictAWS) -> None:
    network = Network(aws)
    (id_,) = network.run(InstanceType="p4d.24xlarge")
    async with started(config_text(aws, network.vpc)) as provider:
        aws.fail("DescribeInstanceTopology", code="UnsupportedOperation", status=400)
        first = await one(provider, node_of(id_))
        aws.calls()
        await one(provider, node_of(id_))
        calls = aws.calls()
    assert set(first.additional_labels) == {"topology.k8s.aws/zone-id"}
    assert calls == ["ec2.DescribeInstances"]


async def test_ids_of_zones_are_requested_once_where_instances_do_not_show_them(
    aws: StrictAWS,
) -> None:
    network = Network(aws)
    ids = network.run(2)
    aws.configure(zone_ids=False)
    async with started(config_text(aws, network.vpc)) as provider:
        aws.calls()
        machines = [await one(provider, node_of(id_)) for id_ in ids]
        calls = aws.calls()
    assert [one.additional_labels for one in machines] == [
        {"topology.k8s.aws/zone-id": "use1-az6"}
    ] * 2
    assert calls.count("ec2.DescribeAvailabilityZones") == 1


async def test_fargate_nodes_are_found_by_the_address_in_their_name(aws: StrictAWS) -> None:
    network = Network(aws)
    (id_,) = network.run()
    address = network.describe(id_)["PrivateIpAddress"]
    dashed = address.replace(".", "-")
    name = f"fargate-ip-{dashed}.ec2.internal"
    known = f"aws:///us-east-1a/4a5b6c-00/{name}"
    async with started(config_text(aws, network.vpc)) as provider:
        found = await describe(
            provider,
            node(name),
            node("known", known),
            node("fargate-ip-10-0-9-9.ec2.internal"),
        )
    fresh, same = found[name], found["known"]
    assert isinstance(fresh, Instance)
    assert isinstance(same, Instance)
    assert (fresh.zone, fresh.addresses[0].address) == ("us-east-1a", address)
    assert (fresh.provider_id, same.provider_id) == (f"aws:///us-east-1a/{name}", known)
    assert found["fargate-ip-10-0-9-9.ec2.internal"] == NotFound()


async def test_region_and_zone_of_a_node_decide_who_owns_it(aws: StrictAWS) -> None:
    network = Network(aws)
    region = "topology.kubernetes.io/region"
    async with started(config_text(aws, network.vpc)) as provider:
        assert provider.instances is not None
        owns = provider.instances.owns
        assert owns(node("a", f"aws:///us-east-1b/{GONE}")) is Ownership.YES
        assert owns(node("a", f"aws:///us-east-1-bos-1a/{GONE}")) is Ownership.YES
        assert owns(node("a", f"aws:///us-west-2a/{GONE}")) is Ownership.NO
        assert owns(node("a", "gce://project/zone/name")) is Ownership.NO
        assert owns(node("a")) is Ownership.UNKNOWN
        assert owns(node("a", GONE)) is Ownership.UNKNOWN
        assert owns(node("a", f"aws:////{GONE}", **{region: "us-east-1"})) is Ownership.YES
        assert owns(node("a", f"aws:////{GONE}", **{region: "us-west-2"})) is Ownership.NO
        assert owns(node("a", f"aws:///us-east-10a/{GONE}")) is Ownership.NO


async def test_instances_are_no_witnesses_for_nodes_of_fargate(aws: StrictAWS) -> None:
    network = Network(aws)
    fargate = "aws:///us-east-1a/4a5b6c-00/fargate-ip-10-0-0-9.ec2.internal"
    async with started(config_text(aws, network.vpc)) as provider:
        assert isinstance(provider.instances, AWSInstances)
        scope = provider.instances.scope
        assert scope(node("f", fargate)) == scope(node("fargate-ip-10-0-0-8.ec2.internal"))
        assert scope(node("f", fargate)) == f"Fargate in {network.vpc}"
        assert scope(node_of(GONE)) == scope(node("ip-10-0-0-9.ec2.internal")) == ""
