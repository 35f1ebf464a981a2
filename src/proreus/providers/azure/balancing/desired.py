"""Compute frontends, rules and probes of a Service, with the official names. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.load_balancers import Frontend, LoadBalancer, LoadBalancerRef
from proreus.cloudprovider.names import cut
from proreus.providers.azure.balancing.annotations import Options, Probing
from proreus.providers.azure.config import AzureConfig

IPV6: Final = "-IPv6"
"""The end of the names of parts of the second family."""
IPV4: Final = "-IPv4"
"""The same of the first family, where the name without it is taken."""
INTERNAL: Final = "-internal"
SHARED_PROBE: Final = "cluster-service-shared-health-probe"
_LONGEST: Final = 80
_ROOM: Final = _LONGEST - len(IPV6)
_TRANSPORT: Final = {"TCP": "Tcp", "UDP": "Udp", "SCTP": "All"}
RULE_PROTOCOLS: Final = {"TCP": "Tcp", "UDP": "Udp", "SCTP": "*"}
"""The words of rules of the security group for protocols."""
_PROBES: Final = {"http": "Http", "https": "Https"}

Properties = dict[str, Any]


class Place(msgspec.Struct, frozen=True):
    """The place of a cluster's load balancers.

    Attributes:
        config: The cloud-config.
        cluster: The value of `--cluster-name`.
    """

    config: AzureConfig
    cluster: str

    def network_id(self, group: str, kind: str, name: str) -> str:
        """Return the id of a network resource."""
        head = f"/subscriptions/{self.config.network_subscription}/resourceGroups/{group}"
        return f"{head}/providers/Microsoft.Network/{kind}/{name}"

    @property
    def configurations(self) -> tuple[str, ...]:
        """The names of the public load balancers that there may be."""
        several = self.config.multiple_standard_load_balancer_configurations
        single = self.config.load_balancer_name or self.cluster
        return tuple(one.name for one in several) or (single,)

    @property
    def balancers(self) -> Mapping[str, bool]:
        """The names of the load balancers that there may be, and whether each is internal."""
        pairs = ((False, ""), (True, INTERNAL))
        return {f"{name}{end}": kind for name in self.configurations for kind, end in pairs}

    @staticmethod
    def balancer_name(configuration: str, *, internal: bool) -> str:
        """Return the name of the load balancer of a kind."""
        return f"{configuration}{INTERNAL if internal else ''}"

    def balancer_id(self, balancer: str) -> str:
        """Return the id of a load balancer by its name."""
        group = self.config.load_balancer_resource_group or self.config.resource_group
        return self.network_id(group, "loadBalancers", balancer)

    def pool_name(self, family: str) -> str:
        """Return the name of the pool of nodes of a family."""
        return f"{self.cluster}{IPV6 if family == 'IPv6' else ''}"

    def pool_id(self, balancer: str, family: str) -> str:
        """Return the id of the pool of nodes of a family in a load balancer."""
        return f"{self.balancer_id(balancer)}/backendAddressPools/{self.pool_name(family)}"

    @property
    def link_group(self) -> str:
        """The resource group of private link services that name none."""
        return self.config.private_link_service_resource_group or self.config.resource_group

    def group_id(self) -> str:
        """Return the id of the security group; "" if there is none."""
        config = self.config
        group = config.security_group_resource_group or config.resource_group
        name = config.security_group_name
        return self.network_id(group, "networkSecurityGroups", name) if name else ""

    def net_id(self) -> str:
        """Return the id of the cluster's network."""
        config = self.config
        group = config.vnet_resource_group or config.resource_group
        return self.network_id(group, "virtualNetworks", config.vnet_name)

    def subnet_id(self, name: str) -> str:
        """Return the id of a subnet of the cluster's network."""
        return f"{self.net_id()}/subnets/{name}"

    def address_group(self, options: Options) -> str:
        """Return the resource group of a Service's public addresses."""
        return options.group or self.config.resource_group

    def address_name(
        self, ref: LoadBalancerRef, options: Options, family: str, *, dual: bool
    ) -> str:
        """Return the name of the public address that is made for a Service."""
        name = f"{self.cluster}-{ref.name}"
        if prefix := options.prefixes.get(family, ""):
            name = f"{name}-{prefix.rpartition('/')[2]}"
        return f"{cut(name, _ROOM)}{_suffix(family, dual=dual)}"


def local_pool(ref: LoadBalancerRef, family: str) -> str:
    """Return the official name of the pool that a Service has of its own."""
    return f"{ref.namespace}-{ref.service_name}{IPV6 if family == 'IPv6' else ''}".lower()


def pool_by_uid(ref: LoadBalancerRef, family: str) -> str:
    """Return a name for a Service's own pool that no other Service's pool can have."""
    return f"{ref.name}{IPV6 if family == 'IPv6' else ''}".lower()


def base_of(name: str) -> str:
    """Return the beginning of a part's name: for a Service's part, the default name."""
    return name.partition("-")[0]


def is_of(name: str, ref: LoadBalancerRef) -> bool:
    """Tell whether a part of a load balancer is a Service's, by the UID in its name."""
    return base_of(name) == ref.name


def frontend_name(ref: LoadBalancerRef, options: Options, family: str, *, dual: bool) -> str:
    """Return the name of a Service's frontend."""
    name = ref.name
    if options.subnet:
        name = cut(f"{name}-{options.subnet}", _ROOM)
        # As officially: a name ends with a letter, a digit or an underscore.
        if len(f"{ref.name}-{options.subnet}") > _ROOM and not (
            name[-1].isalpha() or name[-1] == "_"
        ):
            name = f"{name[:-1]}_"
    return f"{name}{_suffix(family, dual=dual)}"


def rule_name(
    ref: LoadBalancerRef, options: Options, protocol: str, port: int, family: str, *, dual: bool
) -> str:
    """Return the name of the rule for a port."""
    whole = f"{ref.name}-{protocol}-{port}"
    if options.subnet:
        subnet = options.subnet[: _ROOM - len(whole) - 1]
        whole = f"{ref.name}-{subnet}-{protocol}-{port}"
    return f"{whole}{_suffix(family, dual=dual)}"


def _suffix(family: str, *, dual: bool) -> str:
    return IPV6 if dual and family == "IPv6" else ""


def variants(name: str) -> tuple[str, str, str]:
    """Return the names that a part may have whatever families its Service had when it was made."""
    plain = name.removesuffix(IPV6)
    return plain, f"{plain}{IPV6}", f"{plain}{IPV4}"


def name_of_family(name: str, family: str, there: Mapping[str, str]) -> str:
    """Return the name of a part of a family; one that is there keeps its own.

    The official name of a part of IPv6 is another one if its Service has both families, and then
    the former name is that of the part of IPv4.

    Args:
        name: The official name.
        family: IPv4 or IPv6.
        there: The families of the Service's parts that there are, by name.
    """
    named = (name, *variants(name))
    same = next((one for one in named if there.get(one) == family), "")
    return same or (name if name not in there else f"{variants(name)[0]}-{family}")


class Parts(msgspec.Struct, frozen=True):
    """The rules and probes of a Service on one family, as properties by name."""

    rules: Mapping[str, Properties]
    probes: Mapping[str, Properties]


class Ends(msgspec.Struct, frozen=True):
    """The ids of the frontend and of the pool between which a Service's rules are."""

    frontend: str
    pool: str

    @property
    def probes(self) -> str:
        """The beginning of the ids of probes of the same load balancer."""
        return f"{self.pool.partition('/backendAddressPools/')[0]}/probes"


def parts(lb: LoadBalancer, options: Options, place: Place, family: str, ends: Ends) -> Parts:
    """Return the rules and probes of a Service on one family.

    Args:
        lb: The desired load balancer, as the framework describes it.
        options: The options that its annotations choose.
        place: Where the cluster's load balancers are.
        family: IPv4 or IPv6.
        ends: The frontend and the pool between which its rules lead.

    Raises:
        InvalidRequest: Azure does not balance the protocol.
    """
    dual = len(lb.families) > 1
    ports = [one for one in lb.frontends if one.family == family]
    rules: dict[str, Properties] = {}
    probes: dict[str, Properties] = {}
    if options.all_ports:
        name = rule_name(lb.ref, options, ports[0].protocol, ports[0].port, family, dual=dual)
        rule = _rule(lb, options, place, ports[0], ends) | {
            "protocol": "All", "frontendPort": 0, "backendPort": 0,
            "enableTcpReset": options.resets,
        }  # fmt: skip
        for port in ports:
            found = _probe(lb, options, place, port, name)
            if found is not None:
                # The name may be that of a probe that Services share.
                probes[found[0]] = found[1]
                rule["probe"] = {"id": f"{ends.probes}/{found[0]}"}
                break
        return Parts({name: rule}, probes)
    for port in ports:
        if port.port in options.without_rule:
            continue
        if port.protocol == "SCTP" and not options.internal:
            raise InvalidRequest(
                "spec.ports: SCTP is only balanced by internal load balancers: set the annotation"
                " azure-load-balancer-internal"
            )
        name = rule_name(lb.ref, options, port.protocol, port.port, family, dual=dual)
        rules[name] = _rule(lb, options, place, port, ends)
        if port.port in options.without_probe:
            continue
        found = _probe(lb, options, place, port, name)
        if found is not None:
            probes[found[0]] = found[1]
            rules[name]["probe"] = {"id": f"{ends.probes}/{found[0]}"}
    return Parts(rules, probes)


def _rule(
    lb: LoadBalancer, options: Options, place: Place, port: Frontend, ends: Ends
) -> Properties:
    # Azure's internal load balancers do not float IPv6 addresses.
    floats = options.floats and not (options.internal and port.family == "IPv6")
    transport = _TRANSPORT[port.protocol]
    found: Properties = {
        "protocol": transport,
        "frontendPort": port.port,
        "backendPort": port.port if floats else port.node_port,
        "disableOutboundSnat": place.config.disable_outbound_snat,
        "enableFloatingIP": floats,
        "loadDistribution": "Default" if lb.affinity_seconds is None else "SourceIP",
        "frontendIPConfiguration": {"id": ends.frontend},
        "backendAddressPool": {"id": ends.pool},
        "idleTimeoutInMinutes": options.idle_minutes,
        "probe": None,
    }
    if transport == "Tcp":
        found["enableTcpReset"] = options.resets
    return found


def _probe(
    lb: LoadBalancer, options: Options, place: Place, port: Frontend, rule: str
) -> tuple[str, Properties] | None:
    """Return name and properties of the probe for a port; None if it has none."""
    asked = options.probe_of(port.port)
    shared = _shared_probe(lb, options, place, port)
    if shared is not None and (shared[0] == SHARED_PROBE or not asked.port):
        return shared
    if port.protocol != "TCP":
        return shared
    number = _probe_port(lb, asked.port) if asked.port else port.node_port
    word = (asked.protocol or port.app_protocol or options.probing.protocol).strip().lower()
    protocol = _PROBES.get(word, "Tcp")
    found = _http(protocol, number, asked.path if protocol != "Tcp" else None, asked)
    return rule, found


def _shared_probe(
    lb: LoadBalancer, options: Options, place: Place, port: Frontend
) -> tuple[str, Properties] | None:
    """Return the probe for all ports: kube-proxy's for the Service, or for all of its node."""
    # As officially: what kube-proxy answers to checks does not understand the PROXY protocol.
    proxies = options.link is not None and options.link.proxies
    if lb.local_traffic and lb.health_check.path and not proxies:
        number, dual = lb.health_check.port, len(lb.families) > 1
        name = rule_name(lb.ref, options, "TCP", number, port.family, dual=dual)
        timing = options.probe_of(number)
        return name, _http("Http", number, lb.health_check.path, timing)
    config = place.config
    if lb.local_traffic or not config.shares_probe:
        return None
    number = config.cluster_service_shared_load_balancer_health_probe_port
    path = config.cluster_service_shared_load_balancer_health_probe_path
    return SHARED_PROBE, _http("Http", number, path, Options().probe_of(0))


def _http(protocol: str, port: int, path: str | None, timing: Probing) -> Properties:
    return {
        "protocol": protocol,
        "port": port,
        "requestPath": path,
        "intervalInSeconds": timing.interval,
        "probeThreshold": timing.count,
    }


def _probe_port(lb: LoadBalancer, text: str) -> int:
    """Return the port to probe: the node port of one of the Service's, or `text` as a number."""
    for port in lb.service.spec.ports:
        if text.lower() == port.name.lower() or text == str(port.port):
            return port.node_port
    if text.isdecimal() and 0 < int(text) < 1 << 16:
        return int(text)
    raise InvalidRequest(
        f"annotation service.beta.kubernetes.io/port_…_health-probe_port: {text} is not a port of"
        " the Service: give one of spec.ports by name or number, or a number"
    )


def ports_by_protocol(ports: Iterable[tuple[str, int]]) -> dict[str, frozenset[int]]:
    """Gather ports, each with Azure's word for its protocol, by protocol."""
    found: dict[str, set[int]] = {}
    for protocol, port in ports:
        found.setdefault(protocol, set()).add(port)
    return {protocol: frozenset(numbers) for protocol, numbers in found.items()}


def each_port(ports: Mapping[str, Iterable[int]]) -> Iterator[tuple[str, int]]:
    """Yield all ports of a mapping by protocol, each with its protocol."""
    return ((protocol, port) for protocol, numbers in ports.items() for port in numbers)


def transports(lb: LoadBalancer, *, floats: bool) -> dict[str, list[int]]:
    """Return the ports that clients or load balancers reach, by Azure's word for the protocol."""
    found: dict[str, list[int]] = {}
    for port in lb.service.spec.ports:
        number = port.port if floats else port.node_port
        found.setdefault(RULE_PROTOCOLS[port.protocol], []).append(number)
    return found
