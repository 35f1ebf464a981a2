"""What the tests of the provider `aws` share: a network with machines, and a started provider."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from proreus.cloudprovider.calls import CallHooks
from proreus.cloudprovider.config import read
from proreus.cloudprovider.context import Context
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.provider import CloudProvider
from proreus.kube.objects import Node
from proreus.providers.aws import AWSCloud
from proreus.providers.aws.config import AWSConfig
from proreus.testing import objects

from ..surroundings import Clock, Events, Objects  # noqa: TID252 - pytest imports tests by path
from .strict.process import REGION, StrictAWS

CLUSTER = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-000000000001")
CLUSTER_TAG = "kubernetes.io/cluster/test"
PATIENT = "[Client]\nTimeout = 300s\n"
"""The machine of the tests may stand still for a while."""
OWNED = {CLUSTER_TAG: "owned"}


class Network:
    """A VPC with a subnet in each of three zones, tagged as the cluster's."""

    def __init__(self, aws: StrictAWS) -> None:
        self.aws = aws
        self.ec2 = aws.client("ec2")
        self.vpc = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        self.subnets = [
            self.ec2.create_subnet(
                VpcId=self.vpc, CidrBlock=f"10.0.{n}.0/24", AvailabilityZone=f"{REGION}{zone}"
            )["Subnet"]["SubnetId"]
            for n, zone in enumerate("abc")
        ]

    def run(
        self, count: int = 1, tags: Mapping[str, str] | None = None, **parameters: Any
    ) -> list[str]:
        """Start instances; their ids."""
        wanted = OWNED if tags is None else tags
        given = {
            "ImageId": "ami-12c6146b",
            "InstanceType": "m5.large",
            **({} if "NetworkInterfaces" in parameters else {"SubnetId": self.subnets[0]}),
            **parameters,
        }
        if wanted:
            pairs = [{"Key": key, "Value": value} for key, value in wanted.items()]
            given["TagSpecifications"] = [{"ResourceType": "instance", "Tags": pairs}]
        answer = self.ec2.run_instances(MinCount=count, MaxCount=count, **given)
        return [one["InstanceId"] for one in answer["Instances"]]

    def serve(self) -> str:
        """Have what load balancers need: a way to the Internet, tags, a group for the machines.

        Answers the id of the group.
        """
        gateway = self.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        self.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=self.vpc)
        here = [{"Name": "vpc-id", "Values": [self.vpc]}]
        (main,) = self.ec2.describe_route_tables(Filters=here)["RouteTables"]
        self.ec2.create_route(
            RouteTableId=main["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway
        )
        group = self.ec2.create_security_group(
            GroupName="nodes", Description="nodes", VpcId=self.vpc
        )["GroupId"]
        self.tag(group, *self.subnets)
        return str(group)

    def tag(self, *ids: str) -> None:
        """Tag things as the cluster's."""
        pairs = [{"Key": key, "Value": value} for key, value in OWNED.items()]
        self.ec2.create_tags(Resources=list(ids), Tags=pairs)

    def describe(self, id_: str) -> Any:
        """One instance, as EC2 tells it."""
        answer = self.ec2.describe_instances(InstanceIds=[id_])
        return answer["Reservations"][0]["Instances"][0]


def config_text(aws: StrictAWS, vpc: str, extra: str = "", sections: str = "") -> str:
    """An official file that sends every call to the strict layer."""
    overrides = "\n".join(
        f'[ServiceOverride "{n}"]\nService = {service}\nRegion = {REGION}\nURL = {aws.endpoint}\n'
        f"SigningRegion = {REGION}"
        for n, service in enumerate(("ec2", "elasticloadbalancing", "sts"))
    )
    return f"""
[Global]
Zone = {REGION}a
VPC = {vpc}
SubnetID = subnet-0123456789abcdef0
KubernetesClusterID = test
{extra}
{overrides}
{sections or PATIENT}
"""


def context(
    hooks: CallHooks | None = None,
    nodes: Objects | None = None,
    events: Events | None = None,
    clock: Clock | None = None,
    services: Objects | None = None,
    *,
    cluster: ClusterIdentity = CLUSTER,
) -> Context:
    clock = clock or Clock()
    return Context(
        cluster,
        now=clock,
        uptime=clock.uptime,
        events=events or Events(),
        listers={"nodes": nodes or Objects(), "services": services or Objects()},
        hooks=hooks,
    )


@asynccontextmanager
async def started(text: str, with_: Context | None = None) -> AsyncIterator[CloudProvider]:
    """A started provider with this cloud-config."""
    provider = AWSCloud(read(text, AWSConfig, source="cloud.conf"))
    provider.confirm = 1.0
    try:
        await provider.start(with_ or context())
        yield provider
    finally:
        await provider.close()


def node(name: str, provider_id: str = "", **labels: str) -> Node:
    return objects.node(name, provider_id, labels=labels)


def node_of(id_: str, zone: str = f"{REGION}a") -> Node:
    return node(f"node-{id_}", f"aws:///{zone}/{id_}")
