"""Decide which load balancer of Baidu AI Cloud a Service should have. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.load_balancers import Frontend, LoadBalancer
from proreus.cloudprovider.lookups import most_first
from proreus.providers.baidu.balancing import owners
from proreus.providers.baidu.balancing.annotations import HASH, PREFIX, ROUND_ROBIN, Options
from proreus.providers.baidu.balancing.parts import HTTP, TCP, UDP, Balancer, Desired, Eip, Listener
from proreus.providers.baidu.config import BaiduConfig
from proreus.providers.baidu.machines import GONE, most_common
from proreus.providers.baidu.names import parsed

MOST_LISTENERS: Final = 50
"""The most listeners of a load balancer."""
_EVERYONE: Final = {"0.0.0.0/0"}
_COOKIE_SECONDS: Final = 15_552_000
_ANY_SUBNET: Final = "BCC"
"""The type of subnets in which load balancers can be."""


class Place(msgspec.Struct, frozen=True):
    """The place of a Service's hosts.

    Attributes:
        vpc: The id of the hosts' VPC; "" if there is none, or if they are in several alike.
        subnets: The ids of the hosts' subnets, that of most of them first.
        members: The ids of the hosts' machines.
        uncertain: The ids of machines that the cloud says nothing about now: they are neither added
            nor removed.
        rejected: By node, why other nodes cannot be hosts.
        bare: The ids of those machines of which nobody tells the VPC.
        is_sure: Whether the VPC stays that of most hosts wherever the uncertain ones are.
    """

    vpc: str
    subnets: tuple[str, ...]
    members: frozenset[str]
    uncertain: frozenset[str]
    rejected: Mapping[str, str]
    bare: frozenset[str] = frozenset()
    is_sure: bool = True


def placed(
    lb: LoadBalancer, machines: Mapping[str, Mapping[str, Any] | CloudError | None], vpc: str
) -> Place:
    """Find the machines of a Service's hosts, in one VPC.

    Args:
        lb: The desired load balancer, as the framework describes it.
        machines: The machines by id; None for those that are gone, an error for those nobody knows
            of.
        vpc: The VPC of the existing load balancer, or of the cloud-config; "" for that of more than
            half of the hosts, since a kubelet can name any machine of the account on its Node.
    """
    found: dict[str, Mapping[str, Any]] = {}
    uncertain: dict[str, str] = {}
    rejected: dict[str, str] = {}
    for host in lb.hosts:
        id_ = parsed(host.provider_id)
        machine = machines.get(id_) if id_ else None
        if id_ is None:
            rejected[host.node] = f"{host.provider_id} is not a machine of Baidu AI Cloud"
        elif isinstance(machine, CloudError):
            uncertain[host.node] = id_
        elif machine is None:
            rejected[host.node] = "there is no such machine"
        elif machine.get("status") in GONE:
            rejected[host.node] = f"its machine is in the state {machine['status']}"
        else:
            found[host.node] = machine
    vpcs = [str(one["vpcId"]) for one in found.values() if one.get("vpcId")]
    place = vpc or most_common(vpcs)
    is_sure = bool(vpc) or most_common([*vpcs, *("" for _ in uncertain)]) == place
    # Of bare metal nobody tells the VPC: the cloud refuses what is elsewhere, each by itself.
    bare = frozenset(str(one["id"]) for one in found.values() if one.get("vpcId") is None)
    here = {node: one for node, one in found.items() if one.get("vpcId") in {place, None}}
    for node in found.keys() - here.keys():
        rejected[node] = f"its machine is not in the VPC {place} of the load balancer"
    serving = {one.node for one in lb.endpoints} if lb.local_traffic else None

    def serve(ids: Mapping[str, str]) -> frozenset[str]:
        return frozenset(id_ for node, id_ in ids.items() if serving is None or node in serving)

    subnets = most_first(str(one.get("subnetId") or "") for one in here.values())
    members = serve({node: str(one["id"]) for node, one in here.items()})
    of_hosts = tuple(filter(None, subnets))
    return Place(place, of_hosts, members, serve(uncertain), rejected, bare, is_sure)


def check_sure(place: Place) -> None:
    """Refuse to go by a VPC that machines tell of which few are known now.

    Raises:
        CloudError: The VPC may turn out to be another one.
    """
    if not place.is_sure:
        raise CloudError(
            "no VPC is known for the load balancer: the cloud says nothing now of the machines"
            " of most hosts: it waits, or give VpcId in the cloud-config"
        )


def subnet_for(options: Options, config: BaiduConfig, place: Place) -> str:
    """Return the subnet that annotations ask for a new load balancer, or ""."""
    return options.subnet or config.subnet_id or next(iter(place.subnets), "")


def check_subnet(
    subnet: str, of_vpc: Iterable[Mapping[str, Any]], vpc: str, *, is_asked: bool
) -> str:
    """Return the subnet that a load balancer can be in.

    Only subnets of one type can hold a load balancer. Where nobody has asked for another subnet,
    the official manager takes one of two names in its place; so does this.

    Args:
        subnet: The id of the subnet that is asked for, or that the hosts are in.
        of_vpc: All subnets of the VPC.
        vpc: The id of the VPC.
        is_asked: Whether an annotation or the cloud-config names the subnet.

    Raises:
        InvalidRequest: There is no such subnet, or it has another type.
    """
    by_id = {str(one.get("subnetId")): one for one in of_vpc}
    found = by_id.get(subnet)
    if found is not None and found.get("subnetType") == _ANY_SUBNET:
        return subnet
    if is_asked:
        what = f"is of the type {found.get('subnetType')}" if found else f"is not in the VPC {vpc}"
        raise InvalidRequest(
            f"the subnet {subnet} {what}: name one of the type BCC"
            f" (annotation {PREFIX}load-balancer-subnet-id, or SubnetId in the cloud-config)"
        )
    for name in ("系统预定义子网", "CCE-Reserve"):
        for id_, one in sorted(by_id.items()):
            if one.get("name") == name:
                return id_
    raise InvalidRequest(
        f"no subnet of the VPC {vpc} suits a load balancer: name one of the type BCC with the"
        f" annotation {PREFIX}load-balancer-subnet-id, or SubnetId in the cloud-config"
    )


def desired_balancer(
    lb: LoadBalancer, options: Options, config: BaiduConfig, place: Place, subnet: str
) -> Desired:
    """Compute the desired load balancer of a Service.

    Args:
        lb: The desired load balancer, as the framework describes it.
        options: The options that annotations choose.
        config: The cloud-config.
        place: Where its hosts are.
        subnet: The subnet in which it would be made.
    """
    name = options.name or owners.balancer_name(config.cluster_id, lb.ref)
    return Desired(
        ref=lb.ref,
        name="" if options.given else name,
        text=owners.balancer_text(config.cluster_id),
        vpc=place.vpc,
        subnet=subnet,
        vip=options.vip,
        is_kept=options.keeps,
        listeners=tuple(_listener(one, lb, options) for one in lb.frontends),
        candidates=place.members,
        uncertain=place.uncertain,
        bare=place.bare,
        most=options.most,
        is_internal=options.internal,
        requested="" if options.internal else lb.requested_address,
        eip=options.eip,
        tags=owners.service_tags(lb.ref),
    )


def _listener(frontend: Frontend, lb: LoadBalancer, options: Options) -> Listener:
    is_http = frontend.protocol == TCP and frontend.port in options.http
    protocol = HTTP if is_http else frontend.protocol
    is_sticky = lb.affinity_seconds is not None
    scheduler = options.scheduler or (HASH if is_sticky and not is_http else ROUND_ROBIN)
    settings: dict[str, Any] = dict(options.health)
    if protocol == UDP:
        settings["healthCheckString"] = options.check_string
    if is_http:
        settings |= {"healthCheckType": TCP, "xForwardedFor": True, "keepSession": is_sticky}
    if is_http and lb.affinity_seconds is not None:
        seconds = min(max(lb.affinity_seconds, 1), _COOKIE_SECONDS)
        settings |= {"keepSessionType": "insert", "keepSessionDuration": seconds}
    return Listener(protocol, frontend.port, frontend.node_port, scheduler, settings)


def check(lb: LoadBalancer, options: Options) -> None:
    """Refuse what no load balancer of this cloud can be.

    Raises:
        InvalidRequest: Fields or annotations are wrong; names each of them.
    """
    if problems := [*_wrong_ports(lb, options), *_wrong_fields(lb, options)]:
        raise InvalidRequest("; ".join(problems))


def _wrong_ports(lb: LoadBalancer, options: Options) -> Iterator[str]:
    unknown = sorted({one.protocol for one in lb.frontends} - {TCP, UDP})
    if unknown:
        yield f"spec.ports: BLB balances TCP and UDP only, not {', '.join(unknown)}"
    without = sorted(one.port for one in lb.frontends if not one.node_port)
    if without:
        yield (
            f"spec.ports: {', '.join(map(str, without))} has no node port: remove"
            " allocateLoadBalancerNodePorts"
        )
    if len(lb.frontends) > MOST_LISTENERS:
        yield f"spec.ports: BLB has at most {MOST_LISTENERS} listeners, not {len(lb.frontends)}"
    missing = sorted(options.http - {one.port for one in lb.frontends if one.protocol == TCP})
    if missing:
        shown = ", ".join(map(str, missing))
        yield (
            f"annotation {PREFIX}load-balancer-http-ports: {shown} is not a TCP port of the Service"
        )


def _wrong_fields(lb: LoadBalancer, options: Options) -> Iterator[str]:
    if set(lb.source_ranges.get("IPv4", ())) != _EVERYONE:
        yield (
            "spec.loadBalancerSourceRanges: a load balancer of BLB lets everyone in: remove it, and"
            " let in by the nodes' security group"
        )
    is_sticky = lb.affinity_seconds is not None
    by_address = [one for one in lb.frontends if one.port not in options.http]
    if is_sticky and by_address and options.scheduler not in {"", HASH}:
        yield (
            f"annotation {PREFIX}load-balancer-scheduler: must be {HASH}, or removed, with"
            " sessionAffinity: ClientIP"
        )
    if options.http and options.scheduler == HASH:
        yield (
            f"annotation {PREFIX}load-balancer-scheduler: {HASH} is not for the ports of"
            f" {PREFIX}load-balancer-http-ports"
        )
    if options.internal and lb.requested_address:
        yield (
            "spec.loadBalancerIP: is a public address, but the annotation"
            f" {PREFIX}load-balancer-internal-vpc asks for none: remove one of the two"
        )


def check_eip(eip: Eip | None, options: Options) -> None:
    """Refuse to change how an address that was bought for the Service is billed.

    Raises:
        InvalidRequest: An annotation asks for another billing; names it, and the remedy.
    """
    if eip is None or not eip.is_ours:
        return
    names = ("elastic-ip-payment-timing", "elastic-ip-billing-method")
    there = (eip.payment, eip.billing)
    changed = [
        f"annotation {PREFIX}{name}: {eip.ip} was bought as {is_}, which cannot be changed: delete"
        " the Service and make it anew"
        for name, asked, is_ in zip(names, options.eip.asked, there, strict=True)
        if asked and is_ and asked != is_
    ]
    if changed:
        raise InvalidRequest("; ".join(changed))


def check_bound(balancer: Balancer, bound: Eip | None, desired: Desired) -> None:
    """Refuse to take the address of its owner from a load balancer that the Service names.

    It has one address only, and when the Service goes nobody would bind that one again.

    Raises:
        InvalidRequest: The Service names another address.
    """
    mark = balancer.mark
    is_given = mark.is_given if mark.cluster_uid else not desired.name
    if bound is None or bound.is_ours or not (is_given and desired.requested):
        return
    if bound.ip != desired.requested:
        raise InvalidRequest(
            f"spec.loadBalancerIP: the load balancer {balancer.id} that the Service names has the"
            f" address {bound.ip}, which stays: unbind it there, or leave spec.loadBalancerIP out"
        )


def is_in_use(
    balancer: Balancer, desired: Desired, vpc: str, machines: Collection[str | None]
) -> bool:
    """Tell whether a Service uses a load balancer already, such as by the official manager.

    Its status shows the load balancer's address, which may have gone to another one since then. So
    one of the listeners must lead to a node port of the Service, which no other one has, on a
    machine of the cluster. Other VPCs may have the same private addresses, so one counts in the VPC
    of the hosts only.

    Args:
        balancer: The load balancer that the Service names.
        desired: The desired load balancer of the Service.
        vpc: The VPC of the cloud-config, or else of the hosts; "" if neither is known.
        machines: The ids of the machines of all hosts.
    """
    private = balancer.address if vpc and balancer.vpc == vpc else ""
    shown = {point.ip for point in desired.ref.last_ingress}
    if shown.isdisjoint({balancer.public_ip, private} - {""}):
        return False
    ports = {(one.key[0], one.node_port) for one in desired.listeners}
    leads_here = any((one.key[0], one.node_port) in ports for one in balancer.listeners)
    return leads_here and not (balancer.members and balancer.members.isdisjoint(machines))


def check_given(balancer: Balancer, desired: Desired, vpc: str) -> str:
    """Return why a Service cannot use a load balancer that it names; "" if it can.

    All listeners and back ends of a load balancer that a Service uses are the Service's, and would
    be changed. One in another VPC reaches none of the hosts, and may have the private address of a
    node, or of the API server: nodes would lead what goes there to the Service.

    Args:
        balancer: The load balancer.
        desired: The desired load balancer of the Service.
        vpc: The VPC of the cloud-config, or else of the hosts; "" if neither is known.
    """
    ports = {one.key: one.node_port for one in desired.listeners}
    others = [one.title for one in balancer.listeners if ports.get(one.key) != one.node_port]
    known = desired.candidates | desired.uncertain
    others += [f"back end {id_}" for id_ in sorted(balancer.members - known)]
    problem = ""
    if others:
        problem = (
            f"serves something else ({', '.join(others[:5])}): name one without listeners and back"
            " ends"
        )
    elif vpc and balancer.vpc not in {"", vpc}:
        problem = f"is in the VPC {balancer.vpc}, and the nodes are in {vpc}: name one there"
    return f"annotation {PREFIX}load-balancer-id: {balancer.id} {problem}" if problem else ""


def check_private(balancer: Balancer, desired: Desired, nodes: Place) -> None:
    """Refuse to begin to show the private address of a named load balancer of another VPC.

    Nodes would lead what goes to the one that has this address in their own VPC to the Service. So
    their VPC must be known, which also counts for one that the Service has used without showing it.

    Args:
        balancer: The load balancer that the Service names.
        desired: The desired load balancer of the Service.
        nodes: The place of the hosts, in the VPC of the cloud-config if it names one.

    Raises:
        InvalidRequest: It is in another VPC, or may be; names the remedy.
        CloudError: The VPC may turn out to be another one.
    """
    if not desired.is_internal or balancer.address in {one.ip for one in desired.ref.last_ingress}:
        return
    check_sure(nodes)
    if not nodes.vpc or balancer.vpc not in {"", nodes.vpc}:
        raise InvalidRequest(
            f"annotation {PREFIX}load-balancer-id: {balancer.id} has a private address of the VPC"
            f" {balancer.vpc}, and the nodes are in {nodes.vpc or 'none that is known'}: give"
            " VpcId in the cloud-config, or name one there"
        )
