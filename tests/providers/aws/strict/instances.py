"""Instances: names and addresses, who is visible, topology, tags."""

import fnmatch
import re
from typing import Any

from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

from .limits import everything, page
from .world import Answer, AWSError, Params, World, corrects

TOPOLOGY = re.compile(r"(hpc|trn|p)[0-9]+[a-z]*(-[a-z0-9]+)?\.[0-9a-z]+")
MOST_TAGGED = 1000
MOST_TAGS = 50
MOST_TOPOLOGIES = 100
_LATE = ("InstanceIds", "GroupIds", "VolumeIds")


def is_seen(world: World, id_: str) -> bool:
    """Whether a thing has been there for long enough (EC2 developer guide, eventual consistency)."""
    return world.age(id_) >= world.faults.settings.lag


def find(world: World, id_: str) -> Any:
    """Moto's instance, or None if there is none that is seen."""
    for reservation in world.backend("ec2").reservations.values():
        for one in reservation.instances:
            if one.id == id_:
                return one if is_seen(world, id_) else None
    return None


def state_of(instance: Any) -> str:
    return str(instance._state.name)


def require(world: World, ids: list[str]) -> None:
    """Refuse ids that are unknown; all of them are named (EC2 API reference, error codes)."""
    settings = world.faults.settings
    for id_ in ids:
        if id_ in settings.malformed:
            raise AWSError("InvalidInstanceID.Malformed", f'Invalid id: "{id_}"')
    missing = [id_ for id_ in ids if find(world, id_) is None]
    missing = missing[: settings.named or None]
    if len(missing) == 1:
        raise AWSError(
            "InvalidInstanceID.NotFound", f"The instance ID '{missing[0]}' does not exist"
        )
    if missing:
        named = ", ".join(missing)
        raise AWSError("InvalidInstanceID.NotFound", f"The instance IDs '{named}' do not exist")


@corrects("ec2", "DescribeInstances")
def describe(world: World, params: Params) -> Answer:
    """Pages count instances, and a private DNS name is matched as it is shown."""
    ids = list(dict.fromkeys(params.get("InstanceIds") or ()))
    require(world, ids)
    filters = params.get("Filters") or []
    asked = params | {
        "InstanceIds": ids,
        "Filters": [
            {"Name": "instance-id", "Values": _named(world, one["Values"])}
            if one["Name"] == "private-dns-name"
            else one
            for one in filters
        ],
    }
    matching = [
        (reservation, amended(world, instance))
        for reservation in everything(
            world, "DescribeInstances", asked, lambda a: a["Reservations"]
        )
        for instance in reservation["Instances"]
        if is_seen(world, instance["InstanceId"])
        and (len(ids) == 1 or instance["InstanceId"] not in world.faults.settings.unlisted)
    ]
    shown, token = page(world, matching, params)
    reservations = [reservation | {"Instances": [one]} for reservation, one in shown]
    return {"Reservations": reservations} | ({"NextToken": token} if token else {})


def _named(world: World, values: list[str]) -> list[str]:
    """Ids of the instances whose names match; one that cannot be, if there is none."""
    exact, patterns = set(values), [one for one in values if set(one) & {"*", "?"}]
    names = {}
    for reservation in world.backend("ec2").reservations.values():
        for one in reservation.instances:
            if state_of(one) != "terminated":
                names[one.id] = name_of(world, one.id, str(one.private_ip))
    return [
        id_
        for id_, name in names.items()
        if name in exact or any(fnmatch.fnmatchcase(name, one) for one in patterns)
    ] or ["none"]


def name_of(world: World, id_: str, address: str) -> str:
    """The private DNS name, as of where the host got its name from."""
    extra = world.extra.get(id_, {})
    host = id_ if extra.get("resource_name") else f"ip-{address.replace('.', '-')}"
    return str(extra.get("private_dns_name", f"{host}.{domain(world.region)}"))


def domain(region: str) -> str:
    """EC2 user guide, instance hostname types."""
    return "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"


def amended(world: World, instance: dict[str, Any]) -> dict[str, Any]:
    """With what moto does not keep; a terminated instance has no network any more."""
    id_ = instance["InstanceId"]
    extra = world.extra.get(id_, {})
    if instance["State"]["Name"] == "terminated":
        gone = {
            "PrivateDnsName": "",
            "PublicDnsName": "",
            "NetworkInterfaces": [],
            "SecurityGroups": [],
            "BlockDeviceMappings": [],
        }
        lost = {"PrivateIpAddress", "PublicIpAddress", "VpcId", "SubnetId", "Ipv6Address"}
        return {key: one for key, one in instance.items() if key not in lost} | gone
    names = {"PrivateDnsName": name_of(world, id_, instance.get("PrivateIpAddress", ""))}
    for nic in instance.get("NetworkInterfaces", ()):
        if nic["Attachment"]["DeviceIndex"] == 0:
            nic["PrivateDnsName"] = names["PrivateDnsName"]
            instance["SourceDestCheck"] = nic["SourceDestCheck"]
        addresses = extra.get("ipv6", {}).get(nic["Attachment"]["DeviceIndex"], ())
        nic["Ipv6Addresses"] = [{"Ipv6Address": one, "IsPrimaryIpv6": False} for one in addresses]
    placement = dict(instance["Placement"])
    if world.faults.settings.zone_ids:
        zones = RegionsAndZonesBackend.zones[world.region]
        placement["AvailabilityZoneId"] = next(
            zone.zone_id for zone in zones if zone.name == placement["AvailabilityZone"]
        )
    return instance | names | {"Placement": placement}


@corrects("ec2", "RunInstances")
def run(world: World, params: Params) -> Answer:
    """Keep hostname types and IPv6 addresses, which moto drops."""
    options = params.pop("PrivateDnsNameOptions", {})
    interfaces = params.get("NetworkInterfaces") or []
    ipv6 = {nic.get("DeviceIndex", 0): nic.pop("Ipv6AddressCount", 0) for nic in interfaces} or {
        0: params.pop("Ipv6AddressCount", 0)
    }
    answer = world.moto("ec2", "RunInstances", params)
    for instance in answer["Instances"]:
        id_ = instance["InstanceId"]
        world.born[id_] = world.now()
        world.extra[id_] = {
            "resource_name": options.get("HostnameType") == "resource-name",
            "ipv6": {
                index: [f"2001:db8::{next(world.numbers):x}" for _ in range(count)]
                for index, count in ipv6.items()
            },
        }
    answer["Instances"] = [amended(world, one) for one in answer["Instances"]]
    return answer


@corrects("ec2", "DescribeInstanceTopology")
def topology(world: World, params: Params) -> Answer:
    """Moto lacks it; other types are left out of the answer (EC2 user guide, instance topology)."""
    ids = params.get("InstanceIds") or []
    if len(ids) > MOST_TOPOLOGIES:
        raise AWSError("InvalidParameterValue", "At most 100 instance IDs may be given")
    require(world, ids)
    found = [find(world, id_) for id_ in ids]
    return {
        "Instances": [
            {
                "InstanceId": one.id,
                "InstanceType": one.instance_type,
                "NetworkNodes": [f"nn-{layer}{one.id[-4:]}" for layer in range(1, 4)],
                "AvailabilityZone": one.placement.zone,
            }
            for one in found
            if TOPOLOGY.fullmatch(one.instance_type)
        ]
    }


@corrects("ec2", "CreateTags", "DeleteTags")
def tags(world: World, params: Params) -> Answer:
    """Moto tags what is not there, and more than the user guide of tags allows."""
    resources = params["Resources"]
    if len(resources) > MOST_TAGGED:
        raise AWSError("InvalidParameterValue", "At most 1000 resources may be tagged at once")
    volumes = world.backend("ec2").volumes
    for id_ in resources:
        if id_.startswith("i-"):
            require(world, [id_])
        if id_.startswith("vol-") and id_ not in volumes:
            raise AWSError("InvalidVolume.NotFound", f"The volume '{id_}' does not exist.")
    for tag in params.get("Tags") or ():
        if tag["Key"].lower().startswith("aws:"):
            raise AWSError("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved")
    if world.operation == "CreateTags":
        known = world.backend("ec2").tags
        new = {tag["Key"] for tag in params["Tags"]}
        if any(len({*known.get(id_, {}), *new}) > MOST_TAGS for id_ in resources):
            raise AWSError("TagLimitExceeded", "The maximum number of Tags is 50")
    return world.moto("ec2", world.operation, params)


@corrects("ec2", "DescribeNetworkInterfaces")
def interfaces(world: World, params: Params) -> Answer:
    """Those of terminated instances are gone, and attachment.status is a filter."""
    filters = params.get("Filters") or []
    of_status = [one["Values"] for one in filters if one["Name"] == "attachment.status"]
    rest = [one for one in filters if one["Name"] != "attachment.status"]
    found = everything(
        world,
        "DescribeNetworkInterfaces",
        params | {"Filters": rest},
        lambda answer: answer["NetworkInterfaces"],
    )
    matching = [
        one
        for one in found
        if all(one.get("Attachment", {}).get("Status") in values for values in of_status)
        and not _went_with_its_instance(world, one)
    ]
    shown, token = page(world, matching, params)
    return {"NetworkInterfaces": shown} | ({"NextToken": token} if token else {})


def _went_with_its_instance(world: World, interface: Params) -> bool:
    """Tell whether it was deleted on termination, as instances' first interfaces are by default."""
    instance = find(world, interface.get("Attachment", {}).get("InstanceId", ""))
    return instance is not None and state_of(instance) == "terminated"
