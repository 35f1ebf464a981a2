"""A whole manager on AWS: many nodes and Services, while AWS throttles, fails and forgets."""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from proreus.cloudprovider import MARK_FINGERPRINT
from proreus.controllers.service import drift
from proreus.providers.aws.annotations import PREFIX
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess

from ...apiserver.site import Site, set_up  # noqa: TID252 - pytest imports tests by path
from ..lives import ClusterLife  # noqa: TID252
from .site import Network, config_text
from .strict.faults import LOST
from .strict.process import StrictAWS

Failures = Mapping[str, Mapping[str, Any]]

FLAGS = (
    "--cloud-provider=aws",
    "--cluster-name=test",
    "--configure-cloud-routes=true",
    "--cluster-cidr=10.64.0.0/10",
    "--node-monitor-period=1s",
    "--node-deletion-interval=2s",
    "--route-reconciliation-period=2s",
)
AT_ONCE = 100
"""Machines that are started in one call, so that requests stay small."""

# What goes wrong while things are made, changed and deleted. A lost answer had its effect. The
# tests look at AWS by other operations.
WHILE_MADE: Failures = {
    "CreateLoadBalancer": {"code": LOST, "after_effect": True, "times": 2},
    "CreateTargetGroup": {"code": LOST, "after_effect": True},
    "CreateSecurityGroup": {"code": LOST, "after_effect": True},
    "AuthorizeSecurityGroupIngress": {"after_effect": True},
    "CreateRoute": {"code": LOST, "after_effect": True, "times": 2},
    "RegisterTargets": {"times": 2},
    "RegisterInstancesWithLoadBalancer": {"code": LOST},
    "DescribeSubnets": {"code": "Unavailable", "status": 503},
    "DescribeTags": {"code": "InternalFailure"},
}
WHILE_CHANGED: Failures = {
    "CreateListener": {"code": LOST, "after_effect": True},
    "CreateLoadBalancerListeners": {"code": LOST, "after_effect": True},
    "DescribeTargetGroupAttributes": {"times": 3},
    "DescribeLoadBalancerAttributes": {"code": LOST},
}
WHILE_DELETED: Failures = {
    "DeleteLoadBalancer": {"code": LOST, "after_effect": True, "times": 2},
    "DeleteTargetGroup": {"code": LOST, "after_effect": True},
    "DeleteSecurityGroup": {"code": LOST, "after_effect": True},
    "RevokeSecurityGroupIngress": {"code": LOST, "after_effect": True},
    "DescribeTargetGroupAttributes": {"times": 2},
    "DeleteRoute": {"code": LOST, "after_effect": True},
}


class Life(ClusterLife):
    """A cluster whose machines and load balancers are in AWS."""

    def __init__(self, site: Site, aws: StrictAWS, directory: Path, patience: float) -> None:
        super().__init__(site, patience)
        self.aws = aws
        self.network = network = Network(aws)
        self._classic, self._elb = aws.client("elb"), aws.client("elbv2")
        self.group = network.serve()
        self.table = network.ec2.create_route_table(VpcId=network.vpc)["RouteTable"]["RouteTableId"]
        network.tag(self.table)
        self.before = self.parts()
        self._file = directory / "aws.conf"
        self._file.write_text(config_text(aws, network.vpc))

    def manager(self) -> ManagerProcess:
        return self.site.lone_manager(*FLAGS, f"--cloud-config={self._file}")

    def fail(self, failures: Failures) -> None:
        for operation, failure in failures.items():
            self.aws.fail(operation, **failure)

    # What happens

    async def join(self, count: int) -> list[str]:
        """Start machines in all zones; their kubelets register ready nodes. Their names."""
        ids: list[str] = []
        for start in range(0, count, AT_ONCE):
            subnet = self.network.subnets[start // AT_ONCE % 3]
            ids += self.network.run(
                min(AT_ONCE, count - start), SubnetId=subnet, SecurityGroupIds=[self.group]
            )
        found = self.network.ec2.get_paginator("describe_instances").paginate()
        made = {
            machine["PrivateDnsName"]: machine["InstanceId"]
            for page in found
            for reservation in page["Reservations"]
            for machine in reservation["Instances"]
        }
        assert sorted(made.values()) == sorted(ids)
        # What is new is not seen at first, neither the machines nor anything that is made for them.
        self.aws.configure(lag=2.0)
        return await self.register(made, with_cidrs=True)

    async def leave(self, names: Sequence[str]) -> None:
        """Let machines end, and their kubelets with them."""
        self.network.ec2.terminate_instances(InstanceIds=[self.ids[name] for name in names])
        await self.site.silence(*names)

    # What there is to be seen

    def load_balancers(self) -> dict[str, tuple[set[int], set[str]]]:
        """Ports and hosts of every load balancer, by its host name."""
        found = {}
        for one in self._classic.describe_load_balancers()["LoadBalancerDescriptions"]:
            ports = {of["Listener"]["LoadBalancerPort"] for of in one["ListenerDescriptions"]}
            found[one["DNSName"]] = ports, {host["InstanceId"] for host in one["Instances"]}
        for one in self._elb.describe_load_balancers()["LoadBalancers"]:
            arn = one["LoadBalancerArn"]
            ports, hosts = set(), set[str]()
            for of in self._elb.describe_listeners(LoadBalancerArn=arn)["Listeners"]:
                ports.add(of["Port"])
                group = of["DefaultActions"][0]["TargetGroupArn"]
                health = self._elb.describe_target_health(TargetGroupArn=group)
                hosts = {host["Target"]["Id"] for host in health["TargetHealthDescriptions"]}
            found[one["DNSName"]] = ports, hosts
        return found

    async def served(self, count: int, ports: set[int], machines: Iterable[str]) -> None:
        """Wait until every Service has its load balancer, with these ports and hosts."""
        hosts = {self.ids[name] for name in machines}

        async def are_served() -> bool:
            shown = await self.shown()
            if len(shown) < count:
                return False
            there = self.load_balancers()
            return there.keys() == shown and all(one == (ports, hosts) for one in there.values())

        await self.until(f"{count} Services are served at {ports}", are_served)

    async def routed(self, names: Iterable[str]) -> None:
        """Wait until these nodes, and no others, have a route."""
        ids = {self.ids[name] for name in names}

        async def are_routed() -> bool:
            answer = self.network.ec2.describe_route_tables(RouteTableIds=[self.table])
            routes = answer["RouteTables"][0]["Routes"]
            made = [one for one in routes if one.get("Origin") == "CreateRoute"]
            return {one.get("InstanceId", "") for one in made} == ids and len(made) == len(ids)

        await self.until(f"there are {len(ids)} routes", are_routed)

    def parts(self) -> set[str]:
        """All that load balancers are made of, and the rules that let them in."""
        groups = self.network.ec2.describe_security_groups()["SecurityGroups"]
        return {
            *self.load_balancers(),
            *(one["TargetGroupArn"] for one in self._elb.describe_target_groups()["TargetGroups"]),
            *(f"{one['GroupId']} {one['IpPermissions']}" for one in groups),
        }

    async def is_recorded(self) -> bool:
        """Whether each load balancer tells what it was made from."""
        classic = self._classic.describe_load_balancers()["LoadBalancerDescriptions"]
        names = [one["LoadBalancerName"] for one in classic]
        network = self._elb.describe_load_balancers()["LoadBalancers"]
        arns = [one["LoadBalancerArn"] for one in network]
        described = [
            *self._classic.describe_tags(LoadBalancerNames=names)["TagDescriptions"],
            *self._elb.describe_tags(ResourceArns=arns)["TagDescriptions"],
        ]
        tags = [{tag["Key"]: tag["Value"] for tag in one["Tags"]} for one in described]
        return all(one.get(MARK_FINGERPRINT) for one in tags)

    def left(self) -> bool:
        """Whether anything is left of load balancers, or was there before and is not any more."""
        return self.parts() != self.before


def _service(number: int) -> dict[str, Any]:
    """Both kinds by turns."""
    return {"annotations": {f"{PREFIX}type": "nlb"} if number % 2 else {}}


async def live(life: Life, nodes: int, services: int, leaving: int) -> None:
    """Nodes come, Services are made, changed and deleted, nodes leave; then nothing is left."""
    aws = life.aws
    aws.configure(detach=2.0, provisioning=0.5, routes_per_table=nodes + 1, rules_per_group=1000)
    aws.throttle(
        {"operation": "DescribeInstances", "rate": 5, "burst": 5},
        {"operation": "CreateTargetGroup", "rate": 5, "burst": 2},
        {"operation": "CreateRoute", "rate": 20, "burst": 5},
    )
    async with life.manager():
        life.fail(WHILE_MADE)
        names = await life.join(nodes)
        await life.serve(services, _service)
        await life.initialised(names)
        await life.routed(names)
        await life.served(services, {80}, names)
        assert not aws.unspent()

        life.fail(WHILE_CHANGED)
        gone, rest = names[:leaving], names[leaving:]
        await life.edit(services, loadBalancerSourceRanges=["192.0.2.0/24"])
        await life.leave(gone)
        await life.initialised(rest)
        await life.routed(rest)
        await life.served(services, {80, 443}, rest)
        assert not aws.unspent()

        life.fail(WHILE_DELETED)
        await life.end(services, rest[1:])
        await life.routed(rest[:1])  # without any node, no route is ever deleted
        await life.empty(life.left)
        assert not aws.unspent()


@pytest.mark.long
async def test_nothing_is_left_of_a_life_in_which_aws_throttles_fails_and_forgets(
    control_plane: ControlPlane, aws: StrictAWS, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        await live(Life(site, aws, tmp_path, 180.0), nodes=4, services=6, leaving=1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("nodes", "services"), [(200, 20), pytest.param(500, 50, id="large")], ids=str
)
async def test_nothing_is_left_of_the_life_of_many_nodes(
    control_plane: ControlPlane, aws: StrictAWS, tmp_path: Path, nodes: int, services: int
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        life = Life(site, aws, tmp_path, 1800.0)
        await live(life, nodes, services, leaving=nodes // 25)


@pytest.mark.long
async def test_after_a_restart_only_what_is_new_and_whose_turn_it_is_is_looked_at(
    control_plane: ControlPlane, aws: StrictAWS, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        life = Life(site, aws, tmp_path, 180.0)
        async with life.manager():
            names = await life.join(2)
            await life.serve(4, _service)
            await life.served(4, {80}, names)
            await life.until("all is recorded", life.is_recorded)
        uids = [
            one.metadata.uid for one in await life.services() if one.spec.type == "LoadBalancer"
        ]
        # Of the hour before, too, in case the clock strikes meanwhile.
        due = [
            uid
            for uid in uids
            if not drift.turns(None, time.time(), 3600.0).isdisjoint(
                {drift.turn_of(uid), (drift.turn_of(uid) - 1) % drift.THOROUGH}
            )
        ]
        aws.calls()
        async with life.manager():
            await life.serve(1, _service, first=4)
            await life.served(5, {80}, names)
        looks = [one for one in aws.calls() if one.endswith("DescribeLoadBalancerAttributes")]
        # The new one may need a second attempt: AWS does not show a new security group at once.
        assert len(looks) <= len(due) + 1
