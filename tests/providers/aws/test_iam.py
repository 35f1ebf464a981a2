"""The IAM policy: made from the table of operations, enough for all tests, and no more than that.

That it is enough shows in every test here: the strict layer refuses what it does not allow
(`strict/policy.py`).
"""

import ast
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError

from proreus.cloudprovider.config import read
from proreus.providers.aws import operations
from proreus.providers.aws.api import Api
from proreus.providers.aws.config import AWSConfig
from proreus.providers.aws.identity import TAG_SERVICE
from proreus.providers.aws.operations import ALL

from .site import Network, config_text, context
from .strict.keys import FILE, KEY
from .strict.process import REGION, StrictAWS

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "proreus" / "providers" / "aws"
GUIDE = ROOT / "docs" / "guides" / "aws.md"
MOST_CHARACTERS = 6144
"""Of a managed policy, spaces not counted (IAM quotas)."""
OFFICIAL = frozenset(
    """
    ec2:AuthorizeSecurityGroupIngress ec2:CreateRoute ec2:CreateSecurityGroup ec2:CreateTags
    ec2:DeleteRoute ec2:DeleteSecurityGroup ec2:DescribeAvailabilityZones
    ec2:DescribeInstanceTopology ec2:DescribeInstances ec2:DescribeRouteTables
    ec2:DescribeSecurityGroups ec2:DescribeSubnets ec2:DescribeVolumes ec2:ModifyInstanceAttribute
    ec2:RevokeSecurityGroupIngress
    elasticloadbalancing:AddTags elasticloadbalancing:ApplySecurityGroupsToLoadBalancer
    elasticloadbalancing:AttachLoadBalancerToSubnets elasticloadbalancing:ConfigureHealthCheck
    elasticloadbalancing:CreateListener elasticloadbalancing:CreateLoadBalancer
    elasticloadbalancing:CreateLoadBalancerListeners elasticloadbalancing:CreateLoadBalancerPolicy
    elasticloadbalancing:CreateTargetGroup elasticloadbalancing:DeleteListener
    elasticloadbalancing:DeleteLoadBalancer elasticloadbalancing:DeleteLoadBalancerListeners
    elasticloadbalancing:DeleteTargetGroup
    elasticloadbalancing:DeregisterInstancesFromLoadBalancer elasticloadbalancing:DeregisterTargets
    elasticloadbalancing:DescribeListeners elasticloadbalancing:DescribeLoadBalancerAttributes
    elasticloadbalancing:DescribeLoadBalancerPolicies elasticloadbalancing:DescribeLoadBalancers
    elasticloadbalancing:DescribeTargetGroups elasticloadbalancing:DescribeTargetHealth
    elasticloadbalancing:DetachLoadBalancerFromSubnets elasticloadbalancing:ModifyListener
    elasticloadbalancing:ModifyLoadBalancerAttributes elasticloadbalancing:ModifyTargetGroup
    elasticloadbalancing:RegisterInstancesWithLoadBalancer elasticloadbalancing:RegisterTargets
    elasticloadbalancing:SetLoadBalancerPoliciesForBackendServer
    elasticloadbalancing:SetLoadBalancerPoliciesOfListener
    iam:CreateServiceLinkedRole
    """.split()  # noqa: SIM905 - a line each would be longer than the file
)
"""Of the policy that the official manager's prerequisites name, what is of use here as well."""


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("aws_policy", ROOT / "tools" / "aws_policy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def policy() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(FILE.read_text())
    return found


def allowed() -> set[str]:
    return {action for one in policy()["Statement"] for action in one["Action"]}


def test_the_policy_is_what_the_table_makes_today() -> None:
    assert FILE.read_text() == tool().document(), "run `make manifests`"
    assert len(re.sub(r"\s", "", FILE.read_text())) <= MOST_CHARACTERS


def named_in_code() -> Iterator[str]:
    """Every text in the code that is the name of an operation of these services."""
    session = botocore.session.get_session()
    services = {one.partition(".")[0] for one in ALL}
    known = {name for one in services for name in session.get_service_model(one).operation_names}
    for file in SOURCE.rglob("*.py"):
        for one in ast.walk(ast.parse(file.read_text())):
            if isinstance(one, ast.Constant) and one.value in known:
                yield str(one.value)


def test_the_table_has_the_operations_that_the_code_names_and_no_others() -> None:
    assert {one.partition(".")[2] for one in ALL} == set(named_in_code())


def test_nothing_is_allowed_that_nobody_calls() -> None:
    calls = {tool().action(one) for one in ALL - operations.OPERATIONS[operations.Use.ROLE]}
    assert allowed() - calls == {"iam:CreateServiceLinkedRole"}


async def test_what_is_not_in_the_table_is_not_sent(aws: StrictAWS) -> None:
    network = Network(aws)
    config = read(config_text(aws, network.vpc), AWSConfig, source="cloud.conf")
    api = Api(config, REGION, context())
    aws.calls()
    with pytest.raises(NotImplementedError, match="TerminateInstances"):
        await api.call("ec2", "TerminateInstances", InstanceIds=["i-0"])
    assert not aws.calls()


def refusal(client: Any, operation: str, **parameters: Any) -> str:
    """The code with which AWS refuses it, or "done"."""
    try:
        getattr(client, operation)(**parameters)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "done"


def test_aws_refuses_what_the_policy_does_not_allow(aws: StrictAWS) -> None:
    network = Network(aws)
    network.serve()
    (id_,) = network.run()
    ours, owner = aws.client("ec2", key=KEY), aws.client("ec2")
    assert refusal(ours, "terminate_instances", InstanceIds=[id_]) == "UnauthorizedOperation"
    assert network.describe(id_)["State"]["Name"] == "running"
    tags = [{"Key": "a", "Value": "b"}]
    assert refusal(ours, "create_tags", Resources=[id_], Tags=tags) == "done"
    assert refusal(ours, "create_tags", Resources=[network.vpc], Tags=tags) != "done"
    assert refusal(owner, "create_tags", Resources=[network.vpc], Tags=tags) == "done"


@pytest.mark.parametrize("is_ours", [True, False])
def test_only_load_balancers_of_services_can_be_changed(aws: StrictAWS, is_ours: bool) -> None:  # noqa: FBT001
    network = Network(aws)
    network.serve()
    of = {"Name": "a", "Type": "network", "Scheme": "internal", "Subnets": network.subnets[:1]}
    if is_ours:
        of["Tags"] = [{"Key": TAG_SERVICE, "Value": "default/web"}]
    owner, ours = aws.client("elbv2"), aws.client("elbv2", key=KEY)
    expected = "done" if is_ours else "AccessDenied"
    assert refusal(ours, "create_load_balancer", **{**of, "Name": "b"}) == expected
    (made,) = owner.create_load_balancer(**of)["LoadBalancers"]
    arn = made["LoadBalancerArn"]
    assert refusal(ours, "delete_load_balancer", LoadBalancerArn=arn) == expected


def test_the_guide_names_what_the_official_policy_lacks() -> None:
    section = GUIDE.read_text().partition("## Credentials and rights")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    named = {one for row in rows for one in re.findall(r"`([a-z0-9]+:\w+)`", row)}
    assert named == allowed() - OFFICIAL
    assert allowed() >= OFFICIAL
