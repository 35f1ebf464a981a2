"""Load balancers of other clusters, and after the credentials were changed to another account's."""

from collections.abc import Callable
from typing import Any

import pytest

from proreus.cloudprovider import CloudError, Done
from proreus.cloudprovider.calls import CallRecord
from proreus.cloudprovider.identity import MARK_CLUSTER_UID
from proreus.providers.aws.classic.plan import group_name as classic_name
from proreus.providers.aws.identity import pairs_of
from proreus.providers.aws.network.plan import group_name

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .lb_site import LBSite
from .site import config_text, context, node_of, started
from .strict.process import StrictAWS

ELSEWHERE = "i-0123456789abcdef0"
"""An instance that only the former account has."""


@pytest.mark.parametrize("kind", ["", "nlb"])
async def test_a_service_stays_while_neither_its_load_balancer_nor_a_node_s_machine_is_shown(
    aws: StrictAWS, kind: str
) -> None:
    site = LBSite(aws, kind)
    (here,) = site.machines(1)
    nodes = Objects([node_of(ELSEWHERE)])
    text = config_text(aws, site.network.vpc)
    async with started(text, context(nodes=nodes)) as provider:
        site.provider = provider
        known = site.desired([ELSEWHERE], shown="a-1.elb.example.org")
        answer = await site.delete(known)
        assert isinstance(answer, CloudError)
        assert "neither the Service's load balancer nor a machine" in str(answer)
        assert await site.delete(site.desired([ELSEWHERE])) == Done(found=False)
        nodes.by_key["here"] = node_of(here)
        assert await site.delete(known) == Done(found=False)
        await site.made(site.desired([here]))
        nodes.by_key = {"there": node_of(ELSEWHERE)}
        assert await site.deleted(known) == Done(found=True)


class Meanwhile:
    """Something that happens right before the first call of an operation."""

    def __init__(self, operation: str, act: Callable[[], None]) -> None:
        self.operation = operation
        self.act = act

    def before(self, service: str, operation: str, *, read: bool) -> None:
        if operation == self.operation:
            self.operation = ""
            self.act()

    def after(self, record: CallRecord) -> None:
        """Nothing happens then."""


@pytest.mark.parametrize("kind", ["", "nlb"])
async def test_a_group_that_another_cluster_makes_meanwhile_is_not_taken(
    aws: StrictAWS, kind: str
) -> None:
    """A copy of this cluster; EC2 may show the group late, too, and then refuses a second one."""
    site, tags = LBSite(aws, kind), {MARK_CLUSTER_UID: "0b5e3a1c-0000-4000-8000-0000000000c0"}

    def group() -> Any:
        (found,) = site.ec2.describe_security_groups(
            Filters=[{"Name": "tag-key", "Values": [MARK_CLUSTER_UID]}]
        )["SecurityGroups"]
        return found

    def make() -> None:
        site.ec2.create_security_group(
            GroupName=name, Description="Clients of theirs", VpcId=site.network.vpc,
            TagSpecifications=[{"ResourceType": "security-group", "Tags": pairs_of(tags)}],
        )  # fmt: skip
        known.append(group())

    known: list[Any] = []
    managed = "NLBSecurityGroupMode = Managed" if kind else ""
    hooks = Meanwhile("CreateSecurityGroup", make)
    text = config_text(aws, site.network.vpc, managed)
    async with started(text, context(hooks)) as site.provider:
        desired = site.desired(site.machines(1))
        name = group_name(desired.ref) if kind else classic_name(desired.ref.name)
        answer = await site.ensure(desired)
        assert isinstance(answer, CloudError)
        assert known == [group()]
        assert "names another cluster" in str(answer)


@pytest.mark.parametrize("kind", ["", "nlb"])
async def test_a_group_of_another_cluster_that_the_official_manager_made_is_left_alone(
    aws: StrictAWS, kind: str
) -> None:
    """One of the clusters is a copy of the other, with an id of its own."""
    site = LBSite(aws, kind)
    managed = "NLBSecurityGroupMode = Managed" if kind else ""
    async with started(config_text(aws, site.network.vpc, managed)) as site.provider:
        desired = site.desired(site.machines(1))
        tags = {"kubernetes.io/cluster/elsewhere": "owned"}
        made = site.ec2.create_security_group(
            GroupName=group_name(desired.ref) if kind else classic_name(desired.ref.name),
            Description="theirs", VpcId=site.network.vpc,
            TagSpecifications=[{"ResourceType": "security-group", "Tags": pairs_of(tags)}],
        )  # fmt: skip
        site.writes()
        for answer in (await site.ensure(desired), await site.delete(desired)):
            assert isinstance(answer, CloudError)
            assert f"security group {made['GroupId']} has the name" in str(answer)
        assert site.writes() == []
