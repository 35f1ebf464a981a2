"""What goes wrong on purpose: throttling, delays, failures, and how late things are seen."""

import time
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

LOST = "Lost"
"""As the code of a failure: the connection is closed instead of an answer."""


_LISTS: Final[Mapping[str, tuple[str, str, str]]] = {
    "elb.DescribeLoadBalancers": (
        "LoadBalancerDescriptions", "LoadBalancerName", "LoadBalancerNames"
    ),
    "elbv2.DescribeLoadBalancers": ("LoadBalancers", "LoadBalancerName", "Names"),
    "ec2.DescribeNetworkInterfaces": (
        "NetworkInterfaces", "NetworkInterfaceId", "NetworkInterfaceIds"
    ),
    "ec2.DescribeSubnets": ("Subnets", "SubnetId", "SubnetIds"),
    "ec2.DescribeRouteTables": ("RouteTables", "RouteTableId", "RouteTableIds"),
}  # fmt: skip
"""By operation the field of a list, that of an id in it, and the parameter that asks for ids."""


def listed(
    operation: str,
    params: Mapping[str, Any],
    answer: Mapping[str, Any],
    unshown: Collection[str],
) -> Mapping[str, Any]:
    """An answer without those that lists lack; who asks for some by their ids gets them."""
    field, key, named = _LISTS.get(operation, ("", "", ""))
    if not (field and unshown) or params.get(named):
        return answer
    return {**answer, field: [one for one in answer[field] if one[key] not in unshown]}


class Throttle(msgspec.Struct):
    """A token bucket of one operation (or of all, "")."""

    operation: str = ""
    rate: float = 1.0
    burst: float = 1.0
    tokens: float = -1.0
    filled: float = 0.0

    def takes(self, now: float) -> bool:
        if self.tokens < 0:
            self.tokens, self.filled = self.burst, now
        self.tokens = min(self.burst, self.tokens + (now - self.filled) * self.rate)
        self.filled = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Failure(msgspec.Struct):
    """An error for the next `times` requests of an operation (all, if "")."""

    operation: str = ""
    code: str = "InternalError"
    message: str = "An internal error has occurred"
    status: int = 500
    times: int = 1
    after_effect: bool = False
    """Whether the operation is done before the error is answered."""


class Settings(msgspec.Struct):
    """How AWS behaves, in seconds where it is about time."""

    lag: float = 0.0
    """For how long something new is not seen, as of EC2's eventual consistency."""
    health: float = 0.2
    """How long a target takes to become healthy."""
    provisioning: float = 0.2
    """How long a network load balancer takes to become active."""
    detach: float = 0.0
    """For how long a deleted load balancer still uses its security groups."""
    unhealthy: tuple[str, ...] = ()
    """Instances that never become healthy."""
    routes_per_table: int = 50
    rules_per_group: int = 60
    zone_ids: bool = True
    """Whether instances tell the ids of their zones."""
    named: int = 0
    """How many missing instances a refusal names, as clouds like AWS do; 0 for all of them."""
    malformed: tuple[str, ...] = ()
    """Ids of instances that are refused as malformed, whatever their form."""
    unlisted: tuple[str, ...] = ()
    """Instances that are there, and that all answers leave out but those about them alone."""
    unshown: tuple[str, ...] = ()
    """Subnets, route tables, network interfaces and load balancers that lists lack, though they are
    there."""
    page: int = 0
    """The most that a page shows where it may show less than asked for; 0 for AWS' own."""


class Faults(msgspec.Struct):
    """All of it."""

    settings: Settings = msgspec.field(default_factory=Settings)
    throttles: list[Throttle] = []
    failures: list[Failure] = []
    delays: dict[str, float] = {}
    """Seconds before an operation answers."""

    def configure(self, changes: dict[str, Any]) -> None:
        self.settings = msgspec.convert(msgspec.to_builtins(self.settings) | changes, Settings)

    def is_throttled(self, operation: str) -> bool:
        now = time.monotonic()
        of = [one for one in self.throttles if one.operation in {"", operation}]
        return not all(one.takes(now) for one in of)

    def failure(self, operation: str) -> Failure | None:
        for one in self.failures:
            if one.operation in {"", operation} and one.times > 0:
                one.times -= 1
                return one
        return None
