"""Classic load balancers, as the API reference of 2012-06-01 has them."""

from typing import Any

from .groups import release
from .instances import find, state_of
from .world import Answer, AWSError, Params, World, corrects

MOST_TAG_NAMES = 20
HOSTED_ZONE = "Z35SXDOTRQ7X7K"
"""That of us-east-1 (general reference, endpoints)."""
_PLAIN = (
    "ApplySecurityGroupsToLoadBalancer",
    "CreateLBCookieStickinessPolicy",
    "DeleteLoadBalancerPolicy",
    "DescribeLoadBalancerAttributes",
    "DescribeLoadBalancerPolicies",
    "DetachLoadBalancerFromSubnets",
)


_CHECK = {"Interval": 30, "Timeout": 5, "UnhealthyThreshold": 2, "HealthyThreshold": 10}


def kept(world: World, name: str) -> dict[str, Any]:
    """What is kept here about a load balancer."""
    return world.extra.setdefault(
        f"elb/{name}",
        {
            "protocols": {},
            "policies": {},
            "made": {},
            "backends": {},
            "registered": {},
            "number": 0,
        },
    )


def require(world: World, name: str) -> Any:
    """Moto's load balancer; without one moto answers nonsense or nothing."""
    found = world.backend("elb").load_balancers.get(name)
    if found is None:
        raise AWSError("LoadBalancerNotFound", f"There is no ACTIVE Load Balancer named '{name}'")
    return found


def _listener(one: dict[str, Any]) -> tuple[Any, ...]:
    """A listener as it is compared: its back end's protocol is its own by default."""
    protocol = one["Protocol"].upper()
    return (
        int(one["LoadBalancerPort"]),
        protocol,
        int(one["InstancePort"]),
        (one.get("InstanceProtocol") or protocol).upper(),
        one.get("SSLCertificateId") or "",
    )


def _config(params: Params) -> tuple[Any, ...]:
    return (
        frozenset(map(_listener, params["Listeners"])),
        frozenset(params.get("Subnets") or ()),
        frozenset(params.get("SecurityGroups") or ()),
        params.get("Scheme") or "internet-facing",
    )


@corrects("elb", "CreateLoadBalancer")
def create(world: World, params: Params) -> Answer:
    """The same once more succeeds; otherwise a name is refused (CreateLoadBalancer)."""
    name = params["LoadBalancerName"]
    if name in world.backend("elb").load_balancers:
        if kept(world, name)["config"] != _config(params):
            raise AWSError(
                "DuplicateLoadBalancerName",
                f"Load Balancer named {name} already exists and it is configured with different"
                " parameters.",
            )
        return {"DNSName": dns_name(world, name)}
    zones = zones_of(world, params.get("Subnets") or [])
    if len(set(zones)) < len(zones):
        raise AWSError("InvalidConfigurationRequest", "Only one subnet per zone may be attached")
    world.moto("elb", "CreateLoadBalancer", params)
    # Moto has no health check before one is configured (HealthCheck, default values).
    port = params["Listeners"][0]["InstancePort"]
    check = {"Target": f"TCP:{port}", **_CHECK}
    world.moto("elb", "ConfigureHealthCheck", {"LoadBalancerName": name, "HealthCheck": check})
    keep = kept(world, name)
    keep |= {"config": _config(params), "number": next(world.numbers)}
    _remember(keep, params["Listeners"])
    return {"DNSName": dns_name(world, name)}


def zones_of(world: World, subnets: list[str]) -> list[str]:
    """The zone of each subnet."""
    known = {
        id_: one.availability_zone
        for by_zone in world.backend("ec2").subnets.values()
        for id_, one in by_zone.items()
    }
    missing = [id_ for id_ in subnets if id_ not in known]
    if missing:
        raise AWSError("SubnetNotFound", f"The subnet ID '{missing[0]}' does not exist")
    return [known[id_] for id_ in subnets]


def dns_name(world: World, name: str) -> str:
    found = require(world, name)
    prefix = "internal-" if found.scheme == "internal" else ""
    number = kept(world, name)["number"]
    return f"{prefix}{name}-{number}.{world.region}.elb.amazonaws.com"


def _remember(keep: dict[str, Any], listeners: list[dict[str, Any]]) -> None:
    for one in listeners:
        keep["protocols"][int(one["LoadBalancerPort"])] = _listener(one)


@corrects("elb", "DescribeLoadBalancers")
def describe(world: World, params: Params) -> Answer:
    """With what moto forgets or makes up."""
    for name in params.get("LoadBalancerNames") or ():
        require(world, name)
    answer = world.moto("elb", "DescribeLoadBalancers", params)
    for one in answer["LoadBalancerDescriptions"]:
        name = one["LoadBalancerName"]
        keep = kept(world, name)
        for described in one["ListenerDescriptions"]:
            listener = described["Listener"]
            port = listener["LoadBalancerPort"]
            listener["InstanceProtocol"] = keep["protocols"][port][3]
            described["PolicyNames"] = keep["policies"].get(port, [])
        one["BackendServerDescriptions"] = [
            {"InstancePort": port, "PolicyNames": names}
            for port, names in sorted(keep["backends"].items())
            if names
        ]
        one["AvailabilityZones"] = sorted(zones_of(world, one["Subnets"]))
        one["DNSName"] = one["CanonicalHostedZoneName"] = dns_name(world, name)
        one["CanonicalHostedZoneNameID"] = HOSTED_ZONE
        if one["SecurityGroups"]:
            asked = {"GroupIds": [one["SecurityGroups"][0]]}
            group = world.moto("ec2", "DescribeSecurityGroups", asked)["SecurityGroups"][0]
            one["SourceSecurityGroup"] = {
                "OwnerAlias": group["OwnerId"], "GroupName": group["GroupName"]
            }  # fmt: skip
    return answer


@corrects("elb", "CreateLoadBalancerListeners")
def create_listeners(world: World, params: Params) -> Answer:
    """A port that is taken is refused, unless by the very same listener."""
    require(world, params["LoadBalancerName"])
    keep = kept(world, params["LoadBalancerName"])
    new = []
    for one in params["Listeners"]:
        present = keep["protocols"].get(int(one["LoadBalancerPort"]))
        if present is None:
            new.append(one)
        elif present != _listener(one):
            raise AWSError(
                "DuplicateListener",
                f"A listener already exists for {params['LoadBalancerName']} with LoadBalancerPort"
                f" {one['LoadBalancerPort']}, but with a different InstancePort, Protocol, or"
                " SSLCertificateId",
            )
    if new:
        world.moto("elb", "CreateLoadBalancerListeners", params | {"Listeners": new})
        _remember(keep, new)
    return {}


@corrects("elb", "DeleteLoadBalancerListeners")
def delete_listeners(world: World, params: Params) -> Answer:
    """All of them: told of several at once, moto keeps some twice."""
    require(world, params["LoadBalancerName"])
    keep = kept(world, params["LoadBalancerName"])
    for port in params["LoadBalancerPorts"]:
        if keep["protocols"].pop(int(port), None) is not None:
            given = params | {"LoadBalancerPorts": [port]}
            world.moto("elb", "DeleteLoadBalancerListeners", given)
        keep["policies"].pop(int(port), None)
    return {}


@corrects("elb", "SetLoadBalancerListenerSSLCertificate")
def set_certificate(world: World, params: Params) -> Answer:
    """Of a listener that has one."""
    require(world, params["LoadBalancerName"])
    protocols = kept(world, params["LoadBalancerName"])["protocols"]
    present = protocols.get(int(params["LoadBalancerPort"]))
    if present is None:
        raise AWSError("ListenerNotFound", "The load balancer has no listener at this port")
    if not present[4]:
        raise AWSError("InvalidConfigurationRequest", "The listener has no certificate")
    protocols[present[0]] = (*present[:4], params["SSLCertificateId"])
    return world.moto("elb", world.operation, params)


@corrects("elb", "AttachLoadBalancerToSubnets")
def attach(world: World, params: Params) -> Answer:
    """One subnet of a zone at a time (user guide, subnets)."""
    balancer = require(world, params["LoadBalancerName"])
    new = [one for one in params["Subnets"] if one not in balancer.subnets]
    zones = zones_of(world, [*balancer.subnets, *new])
    if len(set(zones)) < len(zones):
        raise AWSError("InvalidConfigurationRequest", "Only one subnet per zone may be attached")
    return world.moto("elb", world.operation, params)


@corrects("elb", "DeleteLoadBalancer")
def delete(world: World, params: Params) -> Answer:
    """One that is gone is no error; its groups stay in use for a while."""
    name = params["LoadBalancerName"]
    found = world.backend("elb").load_balancers.get(name)
    if found is not None:
        release(world, list(found.security_groups))
        world.moto("elb", "DeleteLoadBalancer", params)
        world.extra.pop(f"elb/{name}", None)
    return {}


@corrects("elb", "RegisterInstancesWithLoadBalancer")
def register(world: World, params: Params) -> Answer:
    """Unknown instances are refused; the answer lists all that are registered now."""
    balancer = require(world, params["LoadBalancerName"])
    ids = [one["InstanceId"] for one in params["Instances"]]
    for id_ in ids:
        instance = find(world, id_)
        if instance is None or state_of(instance) == "terminated":
            raise AWSError("InvalidInstance", f"Could not find EC2 instance {id_}.")
    new = [id_ for id_ in ids if id_ not in balancer.instance_sparse_ids]
    if new:
        given = params | {"Instances": [{"InstanceId": id_} for id_ in new]}
        world.moto("elb", "RegisterInstancesWithLoadBalancer", given)
    for id_ in new:
        kept(world, params["LoadBalancerName"])["registered"][id_] = world.now()
    return {"Instances": balancer.instances}


@corrects("elb", "DeregisterInstancesFromLoadBalancer")
def deregister(world: World, params: Params) -> Answer:
    """The answer lists those that are left."""
    balancer = require(world, params["LoadBalancerName"])
    ids = [one["InstanceId"] for one in params["Instances"]]
    for id_ in ids:
        if id_ not in balancer.instance_sparse_ids and find(world, id_) is None:
            raise AWSError("InvalidInstance", f"Could not find EC2 instance {id_}.")
    balancer.instance_sparse_ids = [i for i in balancer.instance_sparse_ids if i not in ids]
    for id_ in ids:
        kept(world, params["LoadBalancerName"])["registered"].pop(id_, None)
    return {"Instances": balancer.instances}


@corrects("elb", "DescribeInstanceHealth")
def health(world: World, params: Params) -> Answer:
    """InService only after the health checks, and only while the instance runs."""
    balancer = require(world, params["LoadBalancerName"])
    registered = kept(world, params["LoadBalancerName"])["registered"]
    settings = world.faults.settings
    states = []
    for id_ in balancer.instance_sparse_ids:
        instance = find(world, id_)
        is_running = instance is not None and state_of(instance) == "running"
        is_checked = world.now() >= registered.get(id_, 0.0) + settings.health
        is_in = is_running and is_checked and id_ not in settings.unhealthy
        states.append(
            {
                "InstanceId": id_,
                "State": "InService" if is_in else "OutOfService",
                "ReasonCode": "N/A" if is_in else "Instance" if is_checked else "ELB",
                "Description": "N/A" if is_in else "Instance has failed its health checks.",
            }
        )
    wanted = {one["InstanceId"] for one in params.get("Instances") or ()}
    return {"InstanceStates": [one for one in states if not wanted or one["InstanceId"] in wanted]}


@corrects("elb", "ConfigureHealthCheck")
def configure_health_check(world: World, params: Params) -> Answer:
    require(world, params["LoadBalancerName"])
    check = params["HealthCheck"]
    if int(check["Timeout"]) >= int(check["Interval"]):
        raise AWSError("ValidationError", "HealthCheck timeout must be less than interval")
    return world.moto("elb", "ConfigureHealthCheck", params)


@corrects("elb", "CreateLoadBalancerPolicy")
def create_policy(world: World, params: Params) -> Answer:
    """The very same once more succeeds, on which the official manager relies each time."""
    balancer = require(world, params["LoadBalancerName"])
    name, made = params["PolicyName"], kept(world, params["LoadBalancerName"])["made"]
    if name in {one.policy_name for one in balancer.policies}:
        if made[name] != params:
            raise AWSError("DuplicatePolicyName", f"Policy {name} already exists")
        return {}
    made[name] = dict(params)
    return world.moto("elb", "CreateLoadBalancerPolicy", params)


@corrects("elb", "SetLoadBalancerPoliciesOfListener")
def set_listener_policies(world: World, params: Params) -> Answer:
    """They are told with the listener; one of them at most is about TLS."""
    balancer = require(world, params["LoadBalancerName"])
    types = {one.policy_name: one.policy_type_name for one in balancer.policies}
    names = list(params.get("PolicyNames") or ())
    for name in names:
        if name not in types:
            raise AWSError("PolicyNotFound", f"There is no policy with name {name}")
    if [types[name] for name in names].count("SSLNegotiationPolicyType") > 1:
        raise AWSError("InvalidConfigurationRequest", "Only one TLS policy may be set")
    keep = kept(world, params["LoadBalancerName"])
    if int(params["LoadBalancerPort"]) not in keep["protocols"]:
        raise AWSError("ListenerNotFound", "The load balancer has no listener at this port")
    keep["policies"][int(params["LoadBalancerPort"])] = names
    return {}


@corrects("elb", "SetLoadBalancerPoliciesForBackendServer")
def set_backend_policies(world: World, params: Params) -> Answer:
    """They are told in BackendServerDescriptions afterwards."""
    balancer = require(world, params["LoadBalancerName"])
    known = {one.policy_name for one in balancer.policies}
    for name in params.get("PolicyNames") or ():
        if name not in known:
            raise AWSError("PolicyNotFound", f"There is no policy with name {name}")
    backends = kept(world, params["LoadBalancerName"])["backends"]
    backends[int(params["InstancePort"])] = list(params.get("PolicyNames") or ())
    return {}


@corrects("elb", "ModifyLoadBalancerAttributes")
def modify(world: World, params: Params) -> Answer:
    """An additional attribute is there once, however often it is set."""
    attributes = require(world, params["LoadBalancerName"]).attributes
    before = dict(attributes["additional_attributes"])
    answer = world.moto("elb", "ModifyLoadBalancerAttributes", params)
    after = before | dict(attributes["additional_attributes"])
    attributes["additional_attributes"] = list(after.items())
    told = [{"Key": key, "Value": value} for key, value in after.items()]
    answer["LoadBalancerAttributes"]["AdditionalAttributes"] = told
    return answer


@corrects("elb", "AddTags", "RemoveTags", "DescribeTags")
def tags(world: World, params: Params) -> Answer:
    names = params["LoadBalancerNames"]
    if len(names) > MOST_TAG_NAMES:
        raise AWSError("ValidationError", "At most 20 load balancers may be named")
    for name in names:
        require(world, name)
    return world.moto("elb", world.operation, params)


@corrects("elb", *_PLAIN)
def plain(world: World, params: Params) -> Answer:
    """Moto is right, but for load balancers that are not there."""
    require(world, params["LoadBalancerName"])
    zones_of(world, params.get("Subnets") or [])
    return world.moto("elb", world.operation, params)
