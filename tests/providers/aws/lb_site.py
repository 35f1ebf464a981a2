"""A VPC in which load balancers are made, for the tests of both kinds."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from proreus.cloudprovider import CloudProvider, Ensured, LoadBalancer, LoadBalancers, Pending
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.names import default_load_balancer_name
from proreus.kube.objects import (
    LoadBalancerIngress,
    Node,
    ServicePort,
)
from proreus.providers.aws.annotations import PREFIX
from proreus.testing import objects

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .site import CLUSTER, Network, config_text, context, node_of, started
from .strict.process import StrictAWS

UID = "5e000000-0000-4000-8000-000000000001"
NAME = default_load_balancer_name(UID)
HTTP = ServicePort(80, "http", node_port=30080)
HTTPS = ServicePort(443, "https", node_port=30443)

ANYWHERE = "0.0.0.0/0"


class LBSite:
    """A public VPC with machines in one security group, and a provider."""

    def __init__(self, aws: StrictAWS, kind: str = "nlb") -> None:
        self.aws = aws
        self.kind = kind
        self.cluster = CLUSTER
        self.network = network = Network(aws)
        self.elb = aws.client("elbv2")
        self.ec2 = network.ec2
        self.group = network.serve()
        self.provider: CloudProvider

    def machines(self, count: int) -> list[str]:
        return self.network.run(count, SecurityGroupIds=[self.group])

    @property
    def balancers(self) -> LoadBalancers:
        assert self.provider.load_balancers is not None
        return self.provider.load_balancers

    def desired(
        self,
        ids: Sequence[str],
        *ports: ServicePort,
        asked: Mapping[str, str] | None = None,
        uid: str = UID,
        shown: str = "",
        **spec: Any,
    ) -> LoadBalancer:
        annotations = {
            PREFIX + name: value for name, value in {"type": self.kind, **(asked or {})}.items()
        }
        service = objects.service(
            namespace="shop",
            uid=uid,
            annotations=annotations,
            ingress=[LoadBalancerIngress(hostname=shown)] if shown else [],
            **{"ports": ports or (HTTP,), "ip_families": ("IPv4",), **spec},
        )
        nodes: list[Node] = [node_of(id_) for id_ in ids]
        policy = self.balancers.host_policy(service)
        return desired_load_balancer(service, nodes, policy, self.cluster)

    async def ensure(self, desired: LoadBalancer) -> Any:
        return (await self.balancers.ensure([desired]))[desired.ref.uid]

    async def made(self, desired: LoadBalancer) -> Ensured:
        """Ensured, once AWS has made it."""
        answer = await self.ensure(desired)
        while isinstance(answer, Pending):
            await asyncio.sleep(min(answer.after, 0.2))
            answer = await self.ensure(desired)
        assert isinstance(answer, Ensured), answer
        return answer

    async def previewed(self, desired: LoadBalancer) -> Any:
        preview = self.balancers.preview  # type: ignore[attr-defined]
        return (await preview([desired]))[desired.ref.uid]

    async def delete(self, desired: LoadBalancer) -> Any:
        return (await self.balancers.delete([desired.ref]))[desired.ref.uid]

    async def deleted(self, desired: LoadBalancer) -> Any:
        """The answer, once AWS has deleted all."""
        while isinstance(answer := await self.delete(desired), Pending):
            await asyncio.sleep(min(answer.after, 1.0))
        return answer

    def described(self) -> dict[str, Any] | None:
        found = self.elb.describe_load_balancers()["LoadBalancers"]
        return next((one for one in found if one["LoadBalancerName"] == NAME), None)

    def groups(self) -> dict[str, dict[str, Any]]:
        """Target groups by name, each with the ids of its targets."""
        found = {}
        for one in self.elb.describe_target_groups()["TargetGroups"]:
            health = self.elb.describe_target_health(TargetGroupArn=one["TargetGroupArn"])
            ids = {target["Target"]["Id"] for target in health["TargetHealthDescriptions"]}
            found[one["TargetGroupName"]] = {**one, "ids": ids}
        return found

    def listeners(self) -> dict[int, dict[str, Any]]:
        found = self.described()
        assert found is not None
        answer = self.elb.describe_listeners(LoadBalancerArn=found["LoadBalancerArn"])
        return {one["Port"]: one for one in answer["Listeners"]}

    def rules(self) -> set[tuple[str, int, str]]:
        """Protocol, first port and source of all rules of the nodes' group."""
        (group,) = self.ec2.describe_security_groups(GroupIds=[self.group])["SecurityGroups"]
        return {
            (one["IpProtocol"], one.get("FromPort", -1), source["CidrIp"])
            for one in group["IpPermissions"]
            for source in one["IpRanges"]
        }

    def writes(self) -> list[str]:
        return [one for one in self.aws.calls() if ".Describe" not in one]


@asynccontextmanager
async def placed(
    aws: StrictAWS, extra: str = "", kind: str = "nlb", services: Objects | None = None
) -> AsyncIterator[LBSite]:
    """A site; `extra` goes into [Global], `kind` is the annotation of its Services."""
    site = LBSite(aws, kind)
    text = config_text(aws, site.network.vpc, extra)
    async with started(text, context(services=services)) as provider:
        site.provider = provider
        yield site
