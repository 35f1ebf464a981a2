"""The differences that are meant, each with its row on the page of differences."""

from typing import Final

from ....parity.compare import Meant  # noqa: TID252 - pytest imports tests by path

FAILS: Final = "a node that fails"
STATE: Final = "state"
MARKS: Final = "marks on AWS' objects"
TOLD: Final = "the description of a security group"
TAGS: Final = "another value in `additional-resource-tags`"
OFF: Final = "settings of what is turned off"
RULES: Final = "rules for health checks that are asked no more"

MEANT: Final = (
    Meant(FAILS, ("nodes",), "node ?/condition CloudInitialized", None, "True Initialized"),
    Meant(STATE, ("*",), "service */condition LoadBalancerReady", None, "True Ensured"),
    Meant(MARKS, ("*",), "*/tag proreus/*", None, "*"),
    Meant(MARKS, ("*",), "<group k8s-elb-*>/tag kubernetes.io/service-name", None, "default/*"),
    Meant(TOLD, ("*",), "<group k8s-elb-*>/description", "Security group for Kubernetes ELB *",
          "Clients of the load balancer *"),
    Meant(TAGS, ("classic attributes: edit 1", "nlb attributes: edit 1"), "*/tag stage", "b", "c"),
    Meant(OFF, ("classic attributes: edit 1",), "classic <web>/attribute AccessLog",
          "EmitInterval 5, Enabled false, S3BucketName logs, S3BucketPrefix web", "Enabled false"),
    Meant(OFF, ("classic attributes: edit 1",), "classic <web>/attribute ConnectionDraining",
          "Enabled false, Timeout 120", "Enabled false, Timeout 300"),
    Meant(RULES, ("nlb checks: edit 1", "nlb local: edit 1", "nlb ranges: edit 2"),
          "<group nodes>/rule tcp * from 10.0.?.0/24", "kubernetes.io/rule/nlb/health=<web>", None),
)  # fmt: skip
