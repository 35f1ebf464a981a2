"""What a cluster and its AWS look like, with everything by names that are the same in each run."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from proreus.kube.objects import Node, Service
from proreus.kube.requests import SERVICES

from ...play import Judge, Picture, Play  # noqa: TID252 - pytest imports tests by path
from .stage import Stage

_CONDITIONS = ("CloudInitialized", "NetworkUnavailable")


class Names:
    """Replaces ids by names."""

    def __init__(self, stage: Stage, services: Iterable[Service]) -> None:
        """Learn what things are called.

        Args:
            stage: Its machines and subnets.
            services: Their uids are in the names of load balancers.
        """
        network = stage.network
        self._of = {id_: f"<{letter}>" for letter, id_ in stage.ids.items()}
        self._of |= {
            id_: f"<subnet {zone}>" for zone, id_ in zip("abc", network.subnets, strict=True)
        }
        self._of |= {network.vpc: "<vpc>", stage.group: "<group of nodes>"}
        for one in services:
            whole = "a" + one.metadata.uid.replace("-", "")
            self._of |= {whole[:32]: f"<{one.metadata.name}>"}
        self._pattern = re.compile(
            "|".join(map(re.escape, sorted(self._of, key=len, reverse=True)))
        )

    def add(self, id_: str, name: str) -> None:
        """Learn one more."""
        self._of[id_] = self(name)
        self._pattern = re.compile(
            "|".join(map(re.escape, sorted(self._of, key=len, reverse=True)))
        )

    def __call__(self, value: Any) -> str:
        """The value as text, without ids."""
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        text = self._pattern.sub(lambda found: self._of[found[0]], text)
        text = re.sub(r"(>)-[0-9a-f]{16}(\.elb\.)", r"\1-<number>\2", text)
        return re.sub(r"(>)-[0-9]+(\.us-east-1\.elb\.)", r"\1-<number>\2", text)

    def sorted(self, values: Iterable[Any]) -> str:
        """Several, in an order of their own."""
        return ", ".join(sorted(self(one) for one in values))


async def picture(stage: Stage) -> Picture:
    """Everything."""
    services = [
        one
        for one in (await stage.site.client.list(SERVICES, "default")).items
        if one.metadata.name != "kubernetes"
    ]
    names = Names(stage, services)
    found: list[tuple[str, str]] = []
    groups = stage.network.ec2.describe_security_groups(
        Filters=[{"Name": "vpc-id", "Values": [stage.network.vpc]}]
    )["SecurityGroups"]
    groups = [one for one in groups if one["GroupName"] != "default"]
    for group in groups:
        names.add(group["GroupId"], f"<group {group['GroupName']}>")
    for service in services:
        found += _service(names, service)
    for group in groups:
        found += _group(names, group)
    found += _classic(stage, names)
    found += _network(stage, names)
    return dict(found)


async def nodes(stage: Stage) -> Picture:
    """The nodes, their machines and routes."""
    names = Names(stage, ())
    found = await stage.site.nodes()
    letters = {name: letter for letter, name in stage.names.items()}
    lines = [line for name, node in found.items() for line in _node(names, letters[name], node)]
    lines += [
        (f"route {one['DestinationCidrBlock']}", names(one["InstanceId"])) for one in stage.routes()
    ]
    for letter, id_ in stage.ids.items():
        described = stage.network.describe(id_)
        lines.append(
            (f"machine {letter}/source and destination", str(described["SourceDestCheck"]))
        )
        lines += _tags(names, f"machine {letter}", described.get("Tags", ()))
    return dict(lines)


def _node(names: Names, letter: str, node: Node) -> Iterator[tuple[str, str]]:
    where = f"node {letter}"
    yield f"{where}/provider id", names(node.spec.provider_id)
    for key, value in node.metadata.labels.items():
        if not key.startswith("kubernetes.io/"):
            yield f"{where}/label {key}", names(value)
    for taint in node.spec.taints:
        yield f"{where}/taint {taint.key}", taint.effect
    addresses = [f"{one.type} {names(one.address)}" for one in node.status.addresses]
    yield f"{where}/addresses", ", ".join(addresses)
    for one in node.status.conditions:
        if one.type in _CONDITIONS:
            yield f"{where}/condition {one.type}", f"{one.status} {one.reason}"


def _service(names: Names, service: Service) -> Iterator[tuple[str, str]]:
    where = f"service {service.metadata.name}"
    ingress = [one.hostname for one in service.status.load_balancer.ingress]
    yield f"{where}/ingress", names.sorted(ingress)
    yield f"{where}/finalizers", names.sorted(service.metadata.finalizers)
    for one in service.status.conditions:
        yield f"{where}/condition {one.type}", f"{one.status} {one.reason}"


def _group(names: Names, group: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    where = names(group["GroupId"])
    yield f"{where}/description", names(group["Description"])
    yield from _tags(names, where, group.get("Tags", ()))
    for rule in group["IpPermissions"]:
        what = f"{rule['IpProtocol']} {rule.get('FromPort', '')}-{rule.get('ToPort', '')}"
        for key, kind in (("CidrIp", "IpRanges"), ("CidrIpv6", "Ipv6Ranges"),
                          ("GroupId", "UserIdGroupPairs")):  # fmt: skip
            for source in rule.get(kind, ()):
                about = names(source.get("Description", ""))
                yield f"{where}/rule {what} from {names(source[key])}", about


def _classic(stage: Stage, names: Names) -> Iterator[tuple[str, str]]:
    elb = stage.classic
    for one in elb.describe_load_balancers()["LoadBalancerDescriptions"]:
        name = one["LoadBalancerName"]
        where = f"classic {names(name)}"
        yield f"{where}/scheme", one.get("Scheme", "")
        for key in ("Subnets", "SecurityGroups"):
            yield f"{where}/{key}", names.sorted(one[key])
        yield f"{where}/hosts", names.sorted(host["InstanceId"] for host in one["Instances"])
        yield f"{where}/health check", _fields(names, one.get("HealthCheck", {}))
        for listener in one["ListenerDescriptions"]:
            has = listener["Listener"]
            policies = sorted(listener["PolicyNames"])
            yield f"{where}/listener {has['LoadBalancerPort']}", _fields(names, has)
            yield f"{where}/listener {has['LoadBalancerPort']}/policies", names(policies)
        for server in one["BackendServerDescriptions"]:
            policies = sorted(server["PolicyNames"])
            yield f"{where}/policies of host port {server['InstancePort']}", names(policies)
        for policy in elb.describe_load_balancer_policies(LoadBalancerName=name)[
            "PolicyDescriptions"
        ]:
            yield f"{where}/policy {policy['PolicyName']}", names(policy["PolicyTypeName"])
        attributes = elb.describe_load_balancer_attributes(LoadBalancerName=name)
        for key, value in attributes["LoadBalancerAttributes"].items():
            yield f"{where}/attribute {key}", _fields(names, value)
        (tags,) = elb.describe_tags(LoadBalancerNames=[name])["TagDescriptions"]
        yield from _tags(names, where, tags["Tags"])


def _network(stage: Stage, names: Names) -> Iterator[tuple[str, str]]:
    elb = stage.elb
    groups = elb.describe_target_groups()["TargetGroups"]
    for group in groups:
        names.add(group["TargetGroupArn"], f"<targets {group['TargetGroupName']}>")
    for one in elb.describe_load_balancers()["LoadBalancers"]:
        arn = one["LoadBalancerArn"]
        where = f"network {names(one['LoadBalancerName'])}"
        for key in ("Scheme", "IpAddressType"):
            yield f"{where}/{key}", one[key]
        yield f"{where}/SecurityGroups", names.sorted(one.get("SecurityGroups", ()))
        for zone in one["AvailabilityZones"]:
            addresses = [sorted(key) for key in zone.get("LoadBalancerAddresses", ())]
            yield f"{where}/{names(zone['SubnetId'])}", names(addresses)
        for listener in elb.describe_listeners(LoadBalancerArn=arn)["Listeners"]:
            at = f"{where}/listener {listener['Port']} {listener['Protocol']}"
            actions = listener["DefaultActions"]
            yield at, names.sorted(action["TargetGroupArn"] for action in actions)
            for key in ("SslPolicy", "Certificates", "AlpnPolicy"):
                if listener.get(key):
                    yield f"{at}/{key}", names(listener[key])
            yield from _arn_tags(stage, names, at, listener["ListenerArn"])
        yield from _attributes(
            names, where, elb.describe_load_balancer_attributes(LoadBalancerArn=arn)
        )
        yield from _arn_tags(stage, names, where, arn)
    for group in groups:
        yield from _targets(stage, names, group)


def _targets(stage: Stage, names: Names, group: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    arn = group["TargetGroupArn"]
    where = names(arn)
    skipped = {"TargetGroupArn", "TargetGroupName", "LoadBalancerArns", "VpcId"}
    kept = {key: value for key, value in group.items() if key not in skipped}
    yield where, _fields(names, kept)
    health = stage.elb.describe_target_health(TargetGroupArn=arn)["TargetHealthDescriptions"]
    yield f"{where}/hosts", names.sorted(one["Target"]["Id"] for one in health)
    attributes = stage.elb.describe_target_group_attributes(TargetGroupArn=arn)
    yield from _attributes(names, where, attributes)
    yield from _arn_tags(stage, names, where, arn)


def _attributes(
    names: Names, where: str, answer: Mapping[str, Sequence[Mapping[str, str]]]
) -> Iterator[tuple[str, str]]:
    attributes = {one["Key"]: one["Value"] for one in answer["Attributes"]}
    yield f"{where}/attributes", _fields(names, attributes)


def _arn_tags(stage: Stage, names: Names, where: str, arn: str) -> Iterator[tuple[str, str]]:
    (tags,) = stage.elb.describe_tags(ResourceArns=[arn])["TagDescriptions"]
    return _tags(names, where, tags["Tags"])


def _tags(names: Names, where: str, tags: Iterable[Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    for one in tags:
        yield f"{where}/tag {names(one['Key'])}", names(one["Value"])


def _fields(names: Names, value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {names(value[key])}" for key in sorted(value))
    return names(value)


def playing(stage: Stage, judge: Judge, settle: float = 0.0) -> Play:
    """A turn on this stage, with these pictures."""

    async def look() -> Picture:
        try:
            return await picture(stage)
        except ClientError as error:  # it went away while the picture was taken
            return {"picture": str(error)}

    return Play(stage, lambda: nodes(stage), look, judge, settle)
