"""Routes: to instances of the cluster in one table, of both families, and nobody else's."""

from typing import Any

import pytest

from proreus.cloudprovider.errors import CloudError, InvalidRequest, Unauthenticated
from proreus.cloudprovider.load_balancers import Done
from proreus.cloudprovider.provider import CloudProvider
from proreus.cloudprovider.routes import Route
from proreus.testing import objects

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .site import CLUSTER, OWNED, Network, config_text, context, node_of, started
from .strict.process import StrictAWS


def table(network: Network, tags: dict[str, str] | None = None) -> str:
    made = network.ec2.create_route_table(VpcId=network.vpc)["RouteTable"]["RouteTableId"]
    pairs = [{"Key": key, "Value": value} for key, value in (tags or OWNED).items()]
    network.ec2.create_tags(Resources=[made], Tags=pairs)
    return str(made)


def route(destination: str, id_: str) -> Route:
    return Route(f"route to {destination}", destination, f"aws:///us-east-1a/{id_}")


async def apply(
    provider: CloudProvider, create: tuple[Route, ...] = (), delete: tuple[Route, ...] = ()
) -> Any:
    assert provider.routes is not None
    return await provider.routes.apply(CLUSTER, (), create, delete)


async def listed(provider: CloudProvider, *ids: str) -> dict[str, tuple[str | None, bool]]:
    """Target and whether it is a blackhole, by destination."""
    assert provider.routes is not None
    found = await provider.routes.list(CLUSTER, [node_of(id_) for id_ in ids])
    return {one.destination: (one.target, one.blackhole) for one in found}


async def test_routes_of_both_families_are_made_and_instances_forward(aws: StrictAWS) -> None:
    network = Network(aws)
    table(network)
    (id_,) = network.run()
    wanted = (route("10.244.1.0/24", id_), route("fd00:1::/64", id_))
    async with started(config_text(aws, network.vpc)) as provider:
        answers = await apply(provider, wanted)
        aws.calls()
        again = await apply(provider, wanted)
        calls = aws.calls()
        found = await listed(provider, id_)
    assert answers == again == dict.fromkeys(wanted, Done())
    assert "ec2.ModifyInstanceAttribute" not in calls, "the check is off already"
    assert found == {one.destination: (one.target, False) for one in wanted}
    assert network.describe(id_)["SourceDestCheck"] is False


async def test_a_route_to_an_instance_of_two_interfaces_names_its_first(aws: StrictAWS) -> None:
    network = Network(aws)
    made = table(network)
    (id_,) = network.run(
        NetworkInterfaces=[
            {"DeviceIndex": index, "SubnetId": network.subnets[0]} for index in (0, 1)
        ]
    )
    wanted = route("10.244.1.0/24", id_)
    async with started(config_text(aws, network.vpc)) as provider:
        assert await apply(provider, (wanted,)) == {wanted: Done()}
        assert await listed(provider, id_) == {"10.244.1.0/24": (wanted.target, False)}
    (first,) = [
        nic
        for nic in network.describe(id_)["NetworkInterfaces"]
        if nic["Attachment"]["DeviceIndex"] == 0
    ]
    routes = network.ec2.describe_route_tables(RouteTableIds=[made])["RouteTables"][0]["Routes"]
    assert first["SourceDestCheck"] is False
    assert first["NetworkInterfaceId"] in {one.get("NetworkInterfaceId") for one in routes}


async def test_a_route_leads_to_the_node_that_has_it_whoever_else_names_the_instance(
    aws: StrictAWS,
) -> None:
    """A kubelet can write another node's instance on its own Node, with another zone."""
    network = Network(aws)
    table(network)
    (id_,) = network.run()
    wanted = route("10.244.1.0/24", id_)
    owner = objects.node("owner", str(wanted.target), pod_cidrs=(wanted.destination,))
    namesake = objects.node("namesake", f"aws:///us-east-1b/{id_}")
    async with started(config_text(aws, network.vpc)) as provider:
        assert await apply(provider, (wanted,)) == {wanted: Done()}
        assert provider.routes is not None
        for nodes in ([owner, namesake], [namesake, owner]):
            (found,) = await provider.routes.list(CLUSTER, nodes)
            assert found.target == wanted.target


async def test_the_instance_of_another_cluster_goes_on_checking_addresses(aws: StrictAWS) -> None:
    """A Node names its instance itself, so its kubelet can name anybody's."""
    network = Network(aws)
    table(network)
    (id_,) = network.run(tags={"kubernetes.io/cluster/other": "owned"})
    wanted = route("10.244.1.0/24", id_)
    async with started(config_text(aws, network.vpc)) as provider:
        answer = (await apply(provider, (wanted,)))[wanted]
        assert network.describe(id_)["SourceDestCheck"] is True
        assert isinstance(answer, CloudError)
        assert "tag it kubernetes.io/cluster/test" in str(answer)
        shared = [{"Key": "kubernetes.io/cluster/test", "Value": "shared"}]
        network.ec2.create_tags(Resources=[id_], Tags=shared)
        assert await apply(provider, (wanted,)) == {wanted: Done()}
    assert network.describe(id_)["SourceDestCheck"] is False


async def test_an_instance_without_the_tag_that_the_others_have_goes_on_checking_addresses(
    aws: StrictAWS,
) -> None:
    network = Network(aws)
    table(network)
    (other,) = network.run(tags={"team": "storage"})
    (untagged,) = network.run(tags={})
    nodes = Objects(map(node_of, (*network.run(3), other, untagged)))
    wanted = route("10.244.1.0/24", other)
    async with started(config_text(aws, network.vpc), context(nodes=nodes)) as provider:
        answer = (await apply(provider, (wanted,)))[wanted]
        assert "has no tag of this cluster" in str(answer)
        assert network.describe(other)["SourceDestCheck"] is True
        assert await listed(provider) == {}
        network.tag(other)
        assert await apply(provider, (wanted,)) == {wanted: Done()}
    assert network.describe(other)["SourceDestCheck"] is False


async def test_routes_that_are_not_ours_are_not_listed(aws: StrictAWS) -> None:
    network = Network(aws)
    made = table(network)
    ours, stale = network.run(2)
    (nat,) = network.run(tags={"Name": "nat"})
    gateway = network.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    network.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=network.vpc)
    create = network.ec2.create_route
    create(RouteTableId=made, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    create(RouteTableId=made, DestinationCidrBlock="10.244.9.0/24", InstanceId=nat)
    create(RouteTableId=made, DestinationCidrBlock="10.244.1.0/24", InstanceId=ours)
    create(RouteTableId=made, DestinationCidrBlock="10.244.2.0/24", InstanceId=stale)
    async with started(config_text(aws, network.vpc)) as provider:
        found = await listed(provider, ours)
    assert found == {
        "10.244.1.0/24": (f"aws:///us-east-1a/{ours}", False),
        "10.244.2.0/24": (f"aws:///us-east-1a/{stale}", False),
    }


@pytest.mark.parametrize("tags", [{"Name": "nat"}, {"kubernetes.io/cluster/other": "owned"}])
async def test_a_route_to_an_instance_of_others_that_a_node_names_is_not_listed(
    aws: StrictAWS, tags: dict[str, str]
) -> None:
    """A kubelet can name any instance of the account on its new Node, which gets a pod CIDR."""
    network = Network(aws)
    made = table(network)
    ids = network.run(2)
    (nat,) = network.run(tags=tags)
    nodes = [
        objects.node(
            f"node-{number}", f"aws:///us-east-1a/{id_}", pod_cidrs=(f"10.244.{number}.0/24",)
        )
        for number, id_ in enumerate((*ids, nat))
    ]
    for cidr, id_ in (("10.244.0.0/24", ids[0]), ("10.244.7.0/24", ids[1]), ("10.244.9.0/24", nat)):
        network.ec2.create_route(RouteTableId=made, DestinationCidrBlock=cidr, InstanceId=id_)
    with_ = context(nodes=Objects(nodes))
    async with started(config_text(aws, network.vpc), with_) as provider:
        assert provider.routes is not None
        found = await provider.routes.list(CLUSTER, nodes)
        assert {one.destination for one in found} == {"10.244.0.0/24", "10.244.7.0/24"}
        stolen = route("10.244.9.0/24", nat)
        assert await provider.routes.apply(CLUSTER, nodes, (), (stolen,)) == {stolen: Done()}
    routes = network.ec2.describe_route_tables(RouteTableIds=[made])["RouteTables"][0]["Routes"]
    assert "10.244.9.0/24" in {one["DestinationCidrBlock"] for one in routes}


async def test_the_route_of_a_terminated_instance_is_a_blackhole_and_can_be_replaced(
    aws: StrictAWS,
) -> None:
    network = Network(aws)
    table(network)
    gone, heir, _ = network.run(3)
    old = route("10.244.1.0/24", gone)
    async with started(config_text(aws, network.vpc)) as provider:
        await apply(provider, (old,))
        network.ec2.terminate_instances(InstanceIds=[gone])
        assert await listed(provider, heir) == {"10.244.1.0/24": (None, True)}
        blackhole = Route("x", "10.244.1.0/24", None, blackhole=True)
        new = route("10.244.1.0/24", heir)
        aws.calls()
        assert await apply(provider, (new,), (blackhole,)) == {new: Done(), blackhole: Done()}
        assert "ec2.DeleteRoute" not in aws.calls(), "there is a route all the time"
        assert await listed(provider, heir) == {"10.244.1.0/24": (new.target, False)}
        # The rights of the official manager: no ReplaceRoute.
        aws.fail("ReplaceRoute", code="UnauthorizedOperation", status=403)
        assert await apply(provider, (new,), (blackhole,)) == {new: Done(), blackhole: Done()}


async def test_a_blackhole_to_what_others_have_and_is_not_available_now_is_not_listed(
    aws: StrictAWS,
) -> None:
    """A VPN instance that is stopped for a while, and an interface between two of them."""
    network = Network(aws)
    made = table(network)
    ours, parted = network.run(2)
    (vpn,) = network.run(tags={"Name": "vpn"})
    spare = network.ec2.create_network_interface(SubnetId=network.subnets[0])
    loose = spare["NetworkInterface"]["NetworkInterfaceId"]
    create = network.ec2.create_route
    create(RouteTableId=made, DestinationCidrBlock="10.244.1.0/24", InstanceId=ours)
    create(RouteTableId=made, DestinationCidrBlock="10.244.2.0/24", InstanceId=parted)
    create(RouteTableId=made, DestinationCidrBlock="10.244.8.0/24", InstanceId=vpn)
    create(RouteTableId=made, DestinationCidrBlock="10.244.9.0/24", NetworkInterfaceId=loose)
    network.ec2.stop_instances(InstanceIds=[ours, parted, vpn])
    async with started(config_text(aws, network.vpc)) as provider:
        found = await listed(provider, ours)
        assert found == {
            "10.244.1.0/24": (f"aws:///us-east-1a/{ours}", True),
            "10.244.2.0/24": (f"aws:///us-east-1a/{parted}", True),
        }
        # Such as by a clock that is wrong for a moment.
        aws.fail("DescribeNetworkInterfaces", code="RequestExpired", status=400)
        with pytest.raises(Unauthenticated):
            await listed(provider, ours)
        # The rights of the official manager: it does not look at interfaces.
        aws.fail("DescribeNetworkInterfaces", code="UnauthorizedOperation", status=403)
        assert await listed(provider, ours) == found | {"10.244.9.0/24": (None, True)}
        network.ec2.terminate_instances(InstanceIds=[vpn])
        network.ec2.delete_network_interface(NetworkInterfaceId=loose)
        gone = {"10.244.8.0/24": (None, True), "10.244.9.0/24": (None, True)}
        assert await listed(provider, ours) == found | gone


@pytest.mark.parametrize("is_replaced", [False, True], ids=["deleted", "replaced"])
async def test_a_route_that_somebody_has_led_elsewhere_since_it_was_listed_stays(
    aws: StrictAWS, *, is_replaced: bool
) -> None:
    """Deletions wait for their turn, and for the quota."""
    network = Network(aws)
    made = table(network)
    former, id_ = network.run(2)
    old, new = route("10.244.1.0/24", former), route("10.244.1.0/24", id_)
    gateway = network.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    network.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=network.vpc)
    async with started(config_text(aws, network.vpc)) as provider:
        assert await apply(provider, (old,)) == {old: Done()}
        assert old.destination in await listed(provider)
        network.ec2.replace_route(
            RouteTableId=made, DestinationCidrBlock=old.destination, GatewayId=gateway
        )
        answers = await apply(provider, (new,) if is_replaced else (), (old,))
    routes = network.ec2.describe_route_tables(RouteTableIds=[made])["RouteTables"][0]["Routes"]
    leads = {one["DestinationCidrBlock"]: one.get("GatewayId") for one in routes}
    assert leads[old.destination] == gateway
    if is_replaced:
        assert isinstance(answers[new], CloudError)
    else:
        assert answers == {old: Done()}


async def test_one_route_that_cannot_be_made_does_not_keep_the_others(aws: StrictAWS) -> None:
    network = Network(aws)
    table(network)
    gone, live = network.run(2)
    network.ec2.terminate_instances(InstanceIds=[gone])
    good = route("10.244.1.0/24", live)
    dead = route("10.244.2.0/24", gone)
    unknown = route("10.244.3.0/24", "i-0123456789abcdef0")
    nonsense = Route("x", "10.244.4.0/24", "gce://a/b/c")
    absent = route("10.244.5.0/24", live)
    async with started(config_text(aws, network.vpc)) as provider:
        answers = await apply(provider, (good, dead, unknown, nonsense), (absent,))
    assert answers[good] == answers[absent] == Done()
    assert isinstance(answers[dead], CloudError)
    assert isinstance(answers[unknown], CloudError)
    assert isinstance(answers[nonsense], InvalidRequest)


async def test_a_destination_that_leads_elsewhere_is_not_taken_for_done(aws: StrictAWS) -> None:
    network = Network(aws)
    made = table(network)
    ours, other = network.run(2)
    network.ec2.create_route(
        RouteTableId=made, DestinationCidrBlock="10.244.1.0/24", InstanceId=other
    )
    wanted = route("10.244.1.0/24", ours)
    async with started(config_text(aws, network.vpc)) as provider:
        answers = await apply(provider, (wanted,))
    assert isinstance(answers[wanted], CloudError)
    assert "RouteAlreadyExists" in str(answers[wanted])


async def test_a_table_is_taken_by_its_id_or_if_it_alone_has_the_tag(aws: StrictAWS) -> None:
    network = Network(aws)
    configured = table(network, {"Name": "untagged"})
    (id_,) = network.run()
    wanted = route("10.244.1.0/24", id_)
    async with started(config_text(aws, network.vpc)) as provider:
        with pytest.raises(CloudError, match="found none"):
            await apply(provider, (wanted,))
        for _ in range(2):
            table(network, {"KubernetesCluster": "test"})
        with pytest.raises(CloudError, match="RouteTableID"):
            await listed(provider, id_)
    text = config_text(aws, network.vpc, f"RouteTableID = {configured}")
    async with started(text) as provider:
        assert await apply(provider, (wanted,)) == {wanted: Done()}
    routes = network.ec2.describe_route_tables(RouteTableIds=[configured])
    targets = [one.get("InstanceId") for one in routes["RouteTables"][0]["Routes"]]
    assert id_ in targets
