"""Which security groups hosts are in: asked once for all load balancers, and again after a while."""

import asyncio
from datetime import timedelta

import pytest

from proreus.cloudprovider.config import read
from proreus.providers.aws.api import Api
from proreus.providers.aws.config import AWSConfig
from proreus.providers.aws.memberships import KEPT, Memberships

from ..surroundings import Clock  # noqa: TID252 - pytest imports tests by path
from .lb_site import placed
from .site import OWNED, Network, config_text, context, started
from .strict.process import REGION, StrictAWS

pytestmark = pytest.mark.long

ABSENT = "i-0123456789abcdef0"


async def test_instances_are_asked_about_once_until_the_answer_is_old(aws: StrictAWS) -> None:
    network, clock = Network(aws), Clock()
    group = network.serve()
    ids = network.run(3, SecurityGroupIds=[group])
    config = read(config_text(aws, network.vpc), AWSConfig, source="cloud.conf")
    api = Api(config, REGION, context(clock=clock))
    memberships = Memberships(api)

    async def groups(*asked: str) -> dict[str, list[str]]:
        found = await memberships.of(asked)
        return {one["InstanceId"]: [g["GroupId"] for g in one["SecurityGroups"]] for one in found}

    try:
        aws.calls()
        answers = await asyncio.gather(*(groups(*ids[:2]) for _ in range(10)))
        assert answers == [{id_: [group] for id_ in ids[:2]}] * 10
        assert aws.calls() == ["ec2.DescribeInstances"]
        assert await groups(ABSENT, *ids) == {id_: [group] for id_ in ids}
        assert aws.calls() == ["ec2.DescribeInstances"]

        other = network.ec2.create_security_group(
            GroupName="other", Description="other", VpcId=network.vpc
        )["GroupId"]
        network.ec2.modify_instance_attribute(InstanceId=ids[0], Groups=[other])
        clock.ahead += timedelta(seconds=KEPT + 1)
        assert (await groups(*ids))[ids[0]] == [other]

        # A clock that is set back must not make hours of it.
        network.ec2.modify_instance_attribute(InstanceId=ids[0], Groups=[group])
        clock.wrong -= timedelta(seconds=KEPT)
        clock.ahead += timedelta(seconds=KEPT)
        assert (await groups(*ids))[ids[0]] == [group]
    finally:
        await api.close()


@pytest.mark.parametrize("is_tagged", [True, False], ids=["tagged", "untagged"])
@pytest.mark.parametrize("kind", ["nlb", ""], ids=["network", "classic"])
async def test_hosts_that_a_listing_leaves_out_keep_their_rules_and_are_tried_again(
    aws: StrictAWS, kind: str, *, is_tagged: bool
) -> None:
    """An omission proves nothing; and what was not seen is not recorded as right."""
    async with placed(aws, kind=kind) as site:
        if not is_tagged:
            site.ec2.delete_tags(Resources=[site.group], Tags=[{"Key": key} for key in OWNED])

        def rules() -> object:
            (group,) = site.ec2.describe_security_groups(GroupIds=[site.group])["SecurityGroups"]
            return group["IpPermissions"]

        ids = site.machines(2)
        desired = site.desired(ids)
        await site.made(desired)
        before = rules()
        assert before
        for left_out in (ids, ids[:1]):
            aws.configure(unlisted=left_out)
            async with started(config_text(aws, site.network.vpc)) as provider:
                site.provider = provider
                answer = await site.made(desired)
            assert rules() == before
            assert answer.rejected.keys() == {f"node-{one}" for one in left_out}
            assert all("EC2 left" in why for why in answer.rejected.values())
