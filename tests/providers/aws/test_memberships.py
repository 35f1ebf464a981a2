"""Which security groups hosts are in: asked once for all load balancers, and again after a while."""

import asyncio
from datetime import timedelta

from proreus.cloudprovider.config import read
from proreus.providers.aws.api import Api
from proreus.providers.aws.config import AWSConfig
from proreus.providers.aws.memberships import KEPT, Memberships

from .site import Clock, Network, config_text, context
from .strict.process import REGION, StrictAWS

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
        clock.ahead += KEPT + timedelta(seconds=1)
        assert (await groups(*ids))[ids[0]] == [other]
    finally:
        await api.close()
