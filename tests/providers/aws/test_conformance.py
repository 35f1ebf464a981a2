"""The conformance suite on the provider `aws`, with network load balancers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import pytest

from proreus.cloudprovider import CloudProvider, LoadBalancerRef
from proreus.cloudprovider.config import read
from proreus.providers.aws import AWSCloud
from proreus.providers.aws.annotations import PREFIX
from proreus.providers.aws.config import AWSConfig
from proreus.testing.conformance import Answer, CloudFixture, Conformance

from .site import Network, config_text
from .conftest import credentials
from .strict.process import StrictAWS

_QUOTA = b"<Response><Errors><Error><Code>RequestLimitExceeded</Code></Error></Errors></Response>"


class AWSFixture(CloudFixture):
    """The strict layer with one network; objects are what load balancers leave in it."""

    aws: ClassVar[StrictAWS]
    annotations: Mapping[str, str] = {f"{PREFIX}type": "nlb"}
    page_size = 5
    patience = 20.0
    marks_routes = False
    throttled = Answer(503, _QUOTA, {"Retry-After": "120"})

    async def __aenter__(self) -> Self:
        self.aws.reset()
        self.aws.configure(health=0.0, provisioning=0.0, page=self.page_size)
        self.endpoint = self.aws.endpoint
        self._network = Network(self.aws)
        self._elb = self.aws.client("elbv2")
        self._ids: dict[str, str] = {}
        self._group = self._network.serve()
        table = self._network.ec2.create_route_table(VpcId=self._network.vpc)["RouteTable"]
        self._network.tag(table["RouteTableId"])
        return self

    def provider(self, endpoint: str) -> CloudProvider:
        seconds = 300 if endpoint == self.endpoint else 5
        client = f"[Client]\nConnectTimeout = 5s\nTimeout = {seconds}s\n"
        text = config_text(self.aws, self._network.vpc, sections=client)
        return AWSCloud(read(text.replace(self.endpoint, endpoint), AWSConfig, source="cloud.conf"))

    async def create_machines(self, names: Sequence[str]) -> None:
        if not names:
            return
        ids = self._network.run(len(names), SecurityGroupIds=[self._group])
        self._ids.update(zip(names, ids, strict=True))
        named = {id_: {"private_dns_name": name} for name, id_ in self._ids.items()}
        self.aws.control("extra", named)

    async def remove_machine(self, name: str) -> None:
        self._network.ec2.terminate_instances(InstanceIds=[self._ids.pop(name)])

    async def stop_machine(self, name: str) -> None:
        self._network.ec2.stop_instances(InstanceIds=[self._ids[name]])

    async def objects(self) -> Mapping[str, object]:
        found: dict[str, object] = {}
        for one in self._elb.describe_load_balancers()["LoadBalancers"]:
            tags = self._elb.describe_tags(ResourceArns=[one["LoadBalancerArn"]])
            found[one["LoadBalancerArn"]] = one, tags["TagDescriptions"]
            listeners = self._elb.describe_listeners(LoadBalancerArn=one["LoadBalancerArn"])
            found |= {listener["ListenerArn"]: listener for listener in listeners["Listeners"]}
        for one in self._elb.describe_target_groups()["TargetGroups"]:
            found[one["TargetGroupArn"]] = one
        groups = self._network.ec2.describe_security_groups()["SecurityGroups"]
        for one in groups:
            found[one["GroupId"]] = {**one, "IpPermissions": []}
            found |= _rules(one)
        return found

    async def remove_object(self, id_: str) -> None:
        if id_.startswith("rule "):
            self._revoke(id_)
        elif ":listener/" in id_:
            self._elb.delete_listener(ListenerArn=id_)
        elif ":targetgroup/" in id_:
            for arn, one in (await self.objects()).items():
                if ":listener/" in arn and id_ in repr(one):
                    self._elb.delete_listener(ListenerArn=arn)
            self._elb.delete_target_group(TargetGroupArn=id_)
        else:
            self._elb.delete_load_balancer(LoadBalancerArn=id_)

    def _revoke(self, id_: str) -> None:
        group, protocol, first, last, cidr = id_.split()[1:]
        ports = {"FromPort": int(first), "ToPort": int(last)}
        self._network.ec2.revoke_security_group_ingress(
            GroupId=group,
            IpPermissions=[{"IpProtocol": protocol, **ports, "IpRanges": [{"CidrIp": cidr}]}],
        )

    async def create_foreign(self, ref: LoadBalancerRef) -> None:
        self._elb.create_load_balancer(
            Name=ref.name,
            Type="network",
            Scheme="internet-facing",
            Subnets=[self._network.subnets[0]],
        )


def _rules(group: Mapping[str, Any]) -> dict[str, object]:
    """The rules of a group by a name that says all of it."""
    return {
        f"rule {group['GroupId']} {one['IpProtocol']} {one.get('FromPort', -1)}"
        f" {one.get('ToPort', -1)} {source['CidrIp']}": source
        for one in group["IpPermissions"]
        for source in one["IpRanges"]
    }


@pytest.fixture(autouse=True, scope="module")
def environment(strict_process: StrictAWS) -> Iterator[None]:
    AWSFixture.aws = strict_process
    with pytest.MonkeyPatch.context() as patch:
        credentials(patch, strict_process)
        yield


class TestAWS(Conformance):
    fixture = AWSFixture
