"""The IAM policy of the provider `aws`: the least rights, made from the table of its operations.

`python tools/aws_policy.py` prints it; `make manifests` writes it to `deploy/aws/iam-policy.json`.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from proreus.providers.aws.identity import TAG_SERVICE
from proreus.providers.aws.operations import OPERATIONS, Use

_PREFIXES: Final = {"ec2": "ec2", "elb": "elasticloadbalancing", "elbv2": "elasticloadbalancing"}
_MADE_FOR_A_SERVICE: Final = {"Null": {f"aws:ResourceTag/{TAG_SERVICE}": "false"}}
_CONDITIONS: Final[Mapping[Use, Mapping[str, Any]]] = {
    Use.MAKE: {"Null": {f"aws:RequestTag/{TAG_SERVICE}": "false"}},
    Use.CHANGE: _MADE_FOR_A_SERVICE,
}
_RESOURCES: Final = {
    Use.GROUPS: ("security-group",),
    Use.NEW_GROUP: ("security-group", "vpc"),
    Use.ROUTES: ("instance", "network-interface", "route-table"),
    Use.MACHINE_TAGS: ("instance", "volume"),
}
# What AWS asks for, too, when it is called so; the operations are those that carry tags.
_IMPLIED: Final = (
    {
        "Sid": "TagWhatIsMade",
        "Effect": "Allow",
        "Action": ["elasticloadbalancing:AddTags"],
        "Resource": "*",
        "Condition": {
            "StringEquals": {
                "elasticloadbalancing:CreateAction": [
                    "CreateListener",
                    "CreateLoadBalancer",
                    "CreateTargetGroup",
                ]
            }
        },
    },
    {
        "Sid": "FirstLoadBalancerOfTheAccount",
        "Effect": "Allow",
        "Action": ["iam:CreateServiceLinkedRole"],
        "Resource": "*",
        "Condition": {"StringEquals": {"iam:AWSServiceName": "elasticloadbalancing.amazonaws.com"}},
    },
)


def action(operation: str) -> str:
    """Return what IAM calls an operation such as `elbv2.AddTags`."""
    service, _, name = operation.partition(".")
    return f"{_PREFIXES[service]}:{name}"


def _statement(use: Use) -> dict[str, Any]:
    kinds = _RESOURCES.get(use)
    condition = _CONDITIONS.get(use)
    return {
        "Sid": use.value,
        "Effect": "Allow",
        "Action": sorted({action(one) for one in OPERATIONS[use]}),
        "Resource": [f"arn:*:ec2:*:*:{kind}/*" for kind in kinds] if kinds else "*",
        **({"Condition": condition} if condition else {}),
    }


def document() -> str:
    """Return the policy, as it is written to its file."""
    statements = [_statement(use) for use in Use if use is not Use.ROLE]
    policy = {"Version": "2012-10-17", "Statement": [*statements, *_IMPLIED]}
    return json.dumps(policy, indent=2) + "\n"


if __name__ == "__main__":
    print(document(), end="")
