"""The conformance suite on the provider `aws`, with load balancers of both kinds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import pytest

from proreus.cloudprovider import CloudProvider, LoadBalancerRef
from proreus.cloudprovider.config import read
from proreus.providers.aws import AWSCloud
from proreus.providers.aws.annotations import PREFIX
from proreus.providers.aws.config import AWSConfig
from proreus.testing.conformance import Answer, CloudFixture, Conformance

from .conftest import credentials
from .site import Network, config_text
from .strict.process import StrictAWS

_QUOTA = b"<Response><Errors><Error><Code>RequestLimitExceeded</Code></Error></Errors></Response>"


class AWSFixture(CloudFixture):
    """The strict layer with one network; objects are what load balancers leave in it."""

    aws: ClassVar[StrictAWS]
    page_size = 5
    timeout = 60.0
    patience = 60.0
    marks_routes = False
    throttled = Answer(503, _QUOTA, {"Retry-After": "120"})

    async def __aenter__(self) -> Self:
        self.aws.reset()
        self.aws.configure(health=0.0, provisioning=0.0, page=self.page_size)
        self.endpoint = self.aws.endpoint
        self._network = Network(self.aws)
        self._classic = self.aws.client("elb")
        self._elb = self.aws.client("elbv2")
        self._ids: dict[str, str] = {}
        self._group = self._network.serve()
        table = self._network.ec2.create_route_table(VpcId=self._network.vpc)["RouteTable"]
        self._network.tag(table["RouteTableId"])
        return self

    def provider(self, endpoint: str) -> CloudProvider:
        client = f"[Client]\nConnectTimeout = 5s\nTimeout = {self.timeout}s\n"
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
        for one in self._classic.describe_load_balancers()["LoadBalancerDescriptions"]:
            name = one["LoadBalancerName"]
            tags = self._classic.describe_tags(LoadBalancerNames=[name])["TagDescriptions"]
            found[f"classic {name}"] = one, tags
        groups = self._groups()
        found |= {one["GroupId"]: {**one, "IpPermissions": []} for one in groups}
        return found | _rules(groups)

    async def remove_object(self, id_: str) -> None:
        if id_.startswith("rule "):
            self._revoke(id_)
        elif id_.startswith("classic "):
            self._classic.delete_load_balancer(LoadBalancerName=id_.split()[1])
        elif id_.startswith("sg-"):
            self._remove_group(id_)
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
        permission, group = _rules(self._groups())[id_]
        self._network.ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=[permission])

    def _remove_group(self, id_: str) -> None:
        """With all that names it, or AWS would refuse."""
        for one in self._classic.describe_load_balancers()["LoadBalancerDescriptions"]:
            if id_ in one["SecurityGroups"]:
                self._classic.delete_load_balancer(LoadBalancerName=one["LoadBalancerName"])
        for rule, (permission, _) in _rules(self._groups()).items():
            if id_ in repr(permission):
                self._revoke(rule)
        self._network.ec2.delete_security_group(GroupId=id_)

    def _groups(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]]
        found = self._network.ec2.describe_security_groups()["SecurityGroups"]
        return found

    async def create_foreign(self, ref: LoadBalancerRef) -> None:
        """One of each kind, as their names do not clash."""
        self._classic.create_load_balancer(
            LoadBalancerName=ref.name,
            Subnets=[self._network.subnets[0]],
            Listeners=[{"Protocol": "TCP", "LoadBalancerPort": 80, "InstancePort": 80}],
        )
        self._elb.create_load_balancer(
            Name=ref.name,
            Type="network",
            Scheme="internet-facing",
            Subnets=[self._network.subnets[0]],
        )


def _rules(groups: Sequence[Mapping[str, Any]]) -> dict[str, tuple[dict[str, Any], str]]:
    """The single rules of groups, by a name that says all of it: as AWS takes it, and the group."""
    found = {}
    for group in groups:
        for one in group["IpPermissions"]:
            ports = {key: one[key] for key in ("FromPort", "ToPort") if key in one}
            for kind in ("IpRanges", "UserIdGroupPairs"):
                for source in one[kind]:
                    rule = {"IpProtocol": one["IpProtocol"], **ports, kind: [source]}
                    found[f"rule {group['GroupId']} {rule}"] = rule, str(group["GroupId"])
    return found


class ClassicFixture(AWSFixture):
    """The kind that a Service without annotations gets."""


class NetworkFixture(AWSFixture):
    annotations: Mapping[str, str] = {f"{PREFIX}type": "nlb"}


@pytest.fixture(autouse=True, scope="module")
def environment(strict_process: StrictAWS) -> Iterator[None]:
    AWSFixture.aws = strict_process
    with pytest.MonkeyPatch.context() as patch:
        credentials(patch, strict_process)
        yield


@pytest.mark.long
class TestNetwork(Conformance):
    fixture = NetworkFixture


@pytest.mark.long
class TestClassic(Conformance):
    """The same machines and routes; the load balancers are also tried in `test_lb_classic`."""

    fixture = ClassicFixture
