"""What Azure demands of each type of resource, and what it fills in."""

import ipaddress
import uuid
from collections import Counter
from collections.abc import Callable, Mapping

from . import links
from .errors import ArmError, invalid
from .store import LOCATION, Resource, Store
from .views import NIC_OF_SET, members, pools_of, ref, users_of

Fill = Callable[[Store, Resource, Resource | None], Resource]

TOP = {"id", "name", "type", "location", "tags", "etag", "properties", "zones", "sku", "identity",
       "extendedLocation", "plan", "kind", "systemData", "instanceId", "managedBy", "resources"}  # fmt: skip
SUB = {"id", "name", "type", "etag", "properties", "zones"}
PROPERTIES: Mapping[str, set[str]] = {
    "loadBalancers": {
        "frontendIPConfigurations", "backendAddressPools", "loadBalancingRules", "probes",
        "inboundNatRules", "inboundNatPools", "outboundRules", "provisioningState",
        "resourceGuid", "scope",
    },
    "frontendIPConfigurations": {
        "privateIPAddress", "privateIPAllocationMethod", "privateIPAddressVersion", "subnet",
        "publicIPAddress", "publicIPPrefix", "gatewayLoadBalancer", "provisioningState",
        "loadBalancingRules", "inboundNatRules", "inboundNatPools", "outboundRules",
    },
    "backendAddressPools": {
        "location", "tunnelInterfaces", "loadBalancerBackendAddresses", "drainPeriodInSeconds",
        "virtualNetwork", "syncMode", "provisioningState", "backendIPConfigurations",
        "loadBalancingRules", "outboundRule", "outboundRules", "inboundNatRules",
    },
    "loadBalancingRules": {
        "frontendIPConfiguration", "backendAddressPool", "backendAddressPools", "probe",
        "protocol", "loadDistribution", "frontendPort", "backendPort", "idleTimeoutInMinutes",
        "enableFloatingIP", "enableTcpReset", "disableOutboundSnat", "provisioningState",
        "allowBackendPortConflict", "enableDestinationServiceEndpoint", "enableConnectionTracking",
    },
    "probes": {
        "protocol", "port", "intervalInSeconds", "noHealthyBackendsBehavior", "numberOfProbes",
        "probeThreshold", "requestPath", "provisioningState", "loadBalancingRules",
    },
    "publicIPAddresses": {
        "publicIPAllocationMethod", "publicIPAddressVersion", "dnsSettings", "ddosSettings",
        "ipTags", "ipAddress", "publicIPPrefix", "idleTimeoutInMinutes", "provisioningState",
        "resourceGuid", "ipConfiguration", "natGateway", "migrationPhase", "deleteOption",
    },
    "networkSecurityGroups": {
        "securityRules", "flushConnection", "defaultSecurityRules", "networkInterfaces",
        "subnets", "flowLogs", "resourceGuid", "provisioningState",
    },
    "securityRules": {
        "description", "protocol", "sourcePortRange", "destinationPortRange",
        "sourceAddressPrefix", "sourceAddressPrefixes", "sourceApplicationSecurityGroups",
        "destinationAddressPrefix", "destinationAddressPrefixes",
        "destinationApplicationSecurityGroups", "sourcePortRanges", "destinationPortRanges",
        "access", "priority", "direction", "provisioningState",
    },
    "routeTables": {
        "routes", "subnets", "disableBgpRoutePropagation", "provisioningState", "resourceGuid",
    },
    "privateLinkServices": links.PROPERTIES,
    "routes": {
        "addressPrefix", "nextHopType", "nextHopIpAddress", "provisioningState",
        "hasBgpOverride",
    },
}  # fmt: skip
"""The properties of each type, as the API's description has them."""


def check_members(kind: str, found: Resource, allowed: set[str]) -> None:
    if unknown := set(found) - allowed:
        raise invalid(
            "InvalidRequestContent",
            f"Could not find member '{min(unknown)}' on object of type '{kind}'.",
        )


def check_properties(kind: str, resource: Resource) -> Resource:
    properties: Resource = resource.setdefault("properties", {})
    if kind in PROPERTIES:
        check_members(kind, properties, PROPERTIES[kind])
    return properties


def subs(resource: Resource, field: str) -> list[Resource]:
    """The parts of one type within a resource, with ids and names that are unique."""
    found: list[Resource] = resource["properties"].get(field) or []
    resource["properties"][field] = found
    names = Counter(str(one.get("name", "")).lower() for one in found)
    for one in found:
        check_members(field, one, SUB)
        name = one.get("name")
        if not name or len(name) > 80:
            raise invalid("InvalidResourceName", f"Resource name {name} is invalid.")
        if names[name.lower()] > 1:
            raise invalid("DuplicateResourceName", f"The name {name} of {field} is not unique.")
        check_properties(field, one)
        wanted = f"{resource['id']}/{field}/{name}"
        if one.get("id", wanted).lower() != wanted.lower():
            raise invalid("InvalidRequestFormat", f"The id {one['id']} is not {wanted}.")
        one["id"] = wanted
        one["type"] = f"{resource['type']}/{field}"
        one["properties"]["provisioningState"] = "Succeeded"
    return found


def one_of(value: object, allowed: set[str], what: str) -> None:
    if str(value) not in allowed:
        raise invalid("InvalidRequestFormat", f"Cannot parse {value!r} as {what}.")


def load_balancer(store: Store, lb: Resource, old: Resource | None) -> Resource:
    if str((lb.get("sku") or {}).get("name")) != "Standard":
        raise invalid("BasicSkuLoadBalancerRetired", "Only the SKU Standard can be made.")
    for field in (
        "frontendIPConfigurations", "backendAddressPools", "loadBalancingRules", "probes",
        "inboundNatRules", "inboundNatPools", "outboundRules",
    ):  # fmt: skip
        for one in subs(lb, field):
            for computed in ("loadBalancingRules", "backendIPConfigurations"):
                one["properties"].pop(computed, None)
    if not lb["properties"]["frontendIPConfigurations"]:
        raise invalid("InvalidRequestFormat", "A load balancer needs a frontendIPConfiguration.")
    before = {
        one["id"].lower(): one
        for one in (old or {"properties": {}})["properties"].get("frontendIPConfigurations", ())
    }
    given: set[str] = set()
    for frontend in lb["properties"]["frontendIPConfigurations"]:
        _frontend(store, lb, frontend, before.get(frontend["id"].lower()), given)
        given.add(frontend["properties"].get("privateIPAddress", ""))
    if old is not None:
        links.check_frontends(store, old, lb)
    _pools(store, lb, old)
    for probe in lb["properties"]["probes"]:
        _probe(probe)
    _rules(lb)
    return lb


def _frontend(
    store: Store, lb: Resource, frontend: Resource, old: Resource | None, given: set[str]
) -> None:
    properties = frontend["properties"]
    public, subnet = properties.get("publicIPAddress"), properties.get("subnet")
    if bool(public) == bool(subnet):
        raise invalid("InvalidRequestFormat", "A frontend has a publicIPAddress or a subnet.")
    if public:
        properties["publicIPAddress"] = ref(public["id"])
        address = store.need(public["id"], frontend["id"])
        if str((address.get("sku") or {}).get("name")) != "Standard":
            raise invalid("LoadBalancerAndPublicIPSkuMismatch", "The SKUs differ.")
        others = [u for u in users_of(store, public["id"]) if u.lower() != frontend["id"].lower()]
        mine = [
            one
            for one in lb["properties"]["frontendIPConfigurations"]
            if (one["properties"].get("publicIPAddress") or {}).get("id", "").lower()
            == public["id"].lower()
        ]
        here = lb["id"].lower() + "/"
        if len(mine) > 1 or any(not one.lower().startswith(here) for one in others):
            raise invalid(
                "PublicIPReferencedByMultipleIPConfigs",
                f"Public ip address {public['id']} is referenced by multiple ipconfigs.",
            )
        return
    assert subnet
    properties["subnet"] = ref(subnet["id"])
    net = store.need(subnet["id"], frontend["id"])
    version = properties.setdefault("privateIPAddressVersion", "IPv4")
    method = properties.setdefault("privateIPAllocationMethod", "Dynamic")
    one_of(method, {"Dynamic", "Static"}, "IPAllocationMethod")
    wanted = properties.get("privateIPAddress", "")
    if method == "Dynamic" and old is not None:
        wanted = old["properties"].get("privateIPAddress", "")
    if method == "Static" and not wanted:
        raise invalid("PrivateStaticIPAddressMissing", "A static address must be given.")
    properties["privateIPAddress"] = store.private_address(
        net, version, wanted, frontend["id"].lower(), given
    )


def _pools(store: Store, lb: Resource, old: Resource | None) -> None:
    now = {one["id"].lower() for one in lb["properties"]["backendAddressPools"]}
    used = {pool for pool, _, _ in members(store)}
    for one in (old or {"properties": {}})["properties"].get("backendAddressPools", ()):
        if one["id"].lower() not in now and one["id"].lower() in used:
            raise invalid(
                "InUseBackendAddressPoolCannotBeDeleted",
                f"Backend address pool {one['id']} cannot be deleted: network interfaces use it.",
            )
    for pool in lb["properties"]["backendAddressPools"]:
        addresses = pool["properties"].get("loadBalancerBackendAddresses") or []
        if addresses and pool["id"].lower() in used:
            raise invalid("MixedBackendPool", "A pool has interfaces or addresses, not both.")
        for one in addresses:
            check_members("loadBalancerBackendAddress", one, {"name", "properties"})
            if address := one["properties"].get("ipAddress"):
                ipaddress.ip_address(address)
                net = one["properties"].get("virtualNetwork") or pool["properties"].get(
                    "virtualNetwork"
                )
                if not net:
                    raise invalid("VirtualNetworkMissing", "An address needs its network.")
                store.need(net["id"], pool["id"])


def _probe(probe: Resource) -> None:
    properties = probe["properties"]
    one_of(properties.get("protocol"), {"Tcp", "Http", "Https"}, "ProbeProtocol")
    if properties["protocol"] != "Tcp" and not properties.get("requestPath"):
        raise invalid("InvalidProbeRequestPath", "A request path must be given.")
    if properties["protocol"] == "Tcp" and properties.get("requestPath"):
        raise invalid("InvalidProbeRequestPath", "A TCP probe has no request path.")
    if not 1 <= properties.get("port", 0) <= 65535:
        raise invalid("InvalidProbePort", "The port is none.")
    if properties.setdefault("intervalInSeconds", 15) < 5:
        raise invalid("InvalidProbeInterval", "The interval must be 5 at least.")
    properties.setdefault("numberOfProbes", 1)
    properties.setdefault("probeThreshold", 1)


def _rules(lb: Resource) -> None:
    ids = {
        kind: {one["id"].lower() for one in lb["properties"][kind]}
        for kind in ("frontendIPConfigurations", "backendAddressPools", "probes")
    }
    frontends: set[tuple[object, ...]] = set()
    backends: set[tuple[object, ...]] = set()
    if len(lb["properties"]["loadBalancingRules"]) > 1500:
        raise invalid("MaxLoadBalancingRulesExceeded", "There are more than 1500 rules.")
    for rule in lb["properties"]["loadBalancingRules"]:
        properties = rule["properties"]
        one_of(properties.get("protocol"), {"Tcp", "Udp", "All"}, "TransportProtocol")
        named = {}
        for field, kind in (
            ("frontendIPConfiguration", "frontendIPConfigurations"),
            ("backendAddressPool", "backendAddressPools"),
            ("probe", "probes"),
        ):
            id_ = str((properties.get(field) or {}).get("id", "")).lower()
            named[field] = id_
            if id_ and id_ not in ids[kind]:
                raise invalid(
                    "InvalidResourceReference",
                    f"Resource {id_} referenced by resource {rule['id']} was not found.",
                )
        if not named["frontendIPConfiguration"] or not named["backendAddressPool"]:
            raise invalid("InvalidRequestFormat", "A rule has a frontend and a pool.")
        if not 4 <= properties.setdefault("idleTimeoutInMinutes", 4) <= 100:
            raise invalid("LoadBalancingRuleIdleTimeoutInvalid", "It must be from 4 to 100.")
        properties.setdefault("loadDistribution", "Default")
        one_of(
            properties["loadDistribution"], {"Default", "SourceIP", "SourceIPProtocol"},
            "LoadDistribution",
        )  # fmt: skip
        for flag in ("enableFloatingIP", "enableTcpReset", "disableOutboundSnat"):
            properties.setdefault(flag, False)
        front = (
            named["frontendIPConfiguration"],
            properties["frontendPort"],
            properties["protocol"],
        )
        if front in frontends:
            raise invalid(
                "RulesUseSameFrontendPortProtocolAndIPConfig", f"{rule['id']} uses a port twice."
            )
        frontends.add(front)
        back = (named["backendAddressPool"], properties["backendPort"], properties["protocol"])
        if not properties["enableFloatingIP"] and properties["protocol"] != "All":
            if back in backends:
                raise invalid(
                    "RulesUseSameBackendPortProtocolAndPool", f"{rule['id']} uses a port twice."
                )
            backends.add(back)
        properties["backendAddressPools"] = [properties["backendAddressPool"]]
    _outbound_rules(lb, ids["frontendIPConfigurations"] | ids["backendAddressPools"])


def _outbound_rules(lb: Resource, there: set[str]) -> None:
    for rule in lb["properties"].get("outboundRules") or ():
        found = rule["properties"]
        frontends = found.get("frontendIPConfigurations") or ()
        if not frontends or "backendAddressPool" not in found:
            raise invalid("InvalidRequestFormat", "An outbound rule has frontends and a pool.")
        for one in (*frontends, found["backendAddressPool"]):
            if one["id"].lower() not in there:
                raise invalid(
                    "InvalidResourceReference",
                    f"Resource {one['id']} referenced by resource {rule['id']} was not found.",
                )


def public_ip(store: Store, address: Resource, old: Resource | None) -> Resource:
    properties = address["properties"]
    properties.pop("ipConfiguration", None)
    version = properties.setdefault("publicIPAddressVersion", "IPv4")
    one_of(version, {"IPv4", "IPv6"}, "IPVersion")
    is_standard = str((address.get("sku") or {}).get("name")) == "Standard"
    if is_standard and properties.get("publicIPAllocationMethod") != "Static":
        raise invalid("StandardSkuPublicIPAddressMustBeStatic", "It must be static.")
    if old is not None and old["properties"]["publicIPAddressVersion"] != version:
        raise invalid("PublicIPAddressVersionCannotBeChanged", "The version is for ever.")
    if (prefix := properties.get("publicIPPrefix")) is not None:
        store.need(prefix["id"], address["id"])
    if label := (properties.get("dnsSettings") or {}).get("domainNameLabel"):
        for other in store.kind("Microsoft.Network/publicIPAddresses"):
            named = (other["properties"].get("dnsSettings") or {}).get("domainNameLabel")
            if named == label and other["id"].lower() != address["id"].lower():
                raise invalid("DnsRecordInUse", f"DNS record {label} is already used.")
        fqdn = f"{label}.{LOCATION}.cloudapp.azure.com"
        properties["dnsSettings"] = {"domainNameLabel": label, "fqdn": fqdn}
    given = old["properties"]["ipAddress"] if old is not None else store.next_address(version)
    properties["ipAddress"] = given
    properties.setdefault("idleTimeoutInMinutes", 4)
    if any(
        len(key) > 512 or len(value) > 256 for key, value in (address.get("tags") or {}).items()
    ):
        raise invalid("InvalidTagValueLength", "A tag is too long.")
    return address


def security_group(store: Store, group: Resource, old: Resource | None) -> Resource:
    taken: set[tuple[str, int]] = set()
    for rule in subs(group, "securityRules"):
        properties = rule["properties"]
        one_of(properties.get("protocol"), {"Tcp", "Udp", "Icmp", "Esp", "Ah", "*"}, "Protocol")
        one_of(properties.get("access"), {"Allow", "Deny"}, "Access")
        one_of(properties.get("direction"), {"Inbound", "Outbound"}, "Direction")
        if not 100 <= properties.get("priority", 0) <= 4096:
            raise invalid("SecurityRuleInvalidPriority", "It must be from 100 to 4096.")
        place = properties["direction"], properties["priority"]
        if place in taken:
            raise invalid("SecurityRuleConflict", f"The priority {place[1]} is used twice.")
        taken.add(place)
        for one, several in (
            ("sourceAddressPrefix", "sourceAddressPrefixes"),
            ("destinationAddressPrefix", "destinationAddressPrefixes"),
            ("destinationPortRange", "destinationPortRanges"),
            ("sourcePortRange", "sourcePortRanges"),
        ):
            if bool(properties.get(one)) == bool(properties.get(several)):
                raise invalid(
                    "SecurityRuleInvalidParameter",
                    f"{rule['name']}: give {one} or {several}, and one of them.",
                )
            properties.setdefault(several, [])
        targets = properties["destinationAddressPrefixes"]
        if "*" in targets or len(set(targets)) != len(targets):
            raise invalid("SecurityRuleParameterContainsUnsupportedValue", "Bad destinations.")
    return group


def route_table(store: Store, table: Resource, old: Resource | None) -> Resource:
    prefixes: set[str] = set()
    for route in subs(table, "routes"):
        properties = route["properties"]
        kinds = {"VirtualNetworkGateway", "VnetLocal", "Internet", "VirtualAppliance", "None"}
        one_of(properties.get("nextHopType"), kinds, "RouteNextHopType")
        ipaddress.ip_network(properties["addressPrefix"])
        if (properties["nextHopType"] == "VirtualAppliance") != bool(
            properties.get("nextHopIpAddress")
        ):
            raise invalid("InvalidNextHopIpAddress", f"{route['name']} has a wrong next hop.")
        if properties["addressPrefix"] in prefixes:
            raise invalid("RouteConflict", f"{properties['addressPrefix']} is there twice.")
        prefixes.add(properties["addressPrefix"])
    return table


def interface(store: Store, nic: Resource, old: Resource | None) -> Resource:
    for configuration in nic["properties"].get("ipConfigurations") or ():
        configuration.setdefault("id", f"{nic['id']}/ipConfigurations/{configuration['name']}")
        balancers = set()
        for pool in pools_of(configuration):
            lb, _, name = pool.partition("/backendaddresspools/")
            found = store.need(lb, nic["id"])
            names = [one["name"].lower() for one in found["properties"]["backendAddressPools"]]
            if name not in names:
                raise invalid("InvalidResourceReference", f"Resource {pool} was not found.")
            public = any(
                "publicIPAddress" in one["properties"]
                for one in found["properties"]["frontendIPConfigurations"]
            )
            balancers.add((lb, public))
        if len({public for _, public in balancers}) < len(balancers):
            raise invalid(
                "NetworkInterfaceAndLoadBalancerAreInDifferentLoadBalancers",
                f"{nic['id']} is in two load balancers of one kind.",
            )
    if old is not None:
        for field in ("virtualMachine", "macAddress", "primary"):
            if field in old["properties"]:
                nic["properties"][field] = old["properties"][field]
    return nic


def scale_set_machine(store: Store, machine: Resource, old: Resource | None) -> Resource:
    """A write brings the pools in the model of the interfaces to the interfaces."""
    if old is None:
        raise ArmError(404, "NotFound", f"The entity {machine['id']} was not found.")
    merged = {**old, "properties": {**old["properties"], **machine["properties"]}}
    models = (merged["properties"].get("networkProfileConfiguration") or {}).get(
        "networkInterfaceConfigurations", ()
    )
    for model in models:
        nic = store.get(f"{old['id']}/networkInterfaces/{model['name']}")
        if nic is None:
            raise invalid("InvalidParameter", f"There is no interface {model['name']}.")
        wanted = {one["name"]: one for one in model["properties"]["ipConfigurations"]}
        for configuration in nic["properties"]["ipConfigurations"]:
            pools = wanted[configuration["name"]]["properties"].get(
                "loadBalancerBackendAddressPools"
            )
            configuration["properties"]["loadBalancerBackendAddressPools"] = pools or []
        store.put(interface(store, nic, None))
    return merged


def scale_set(store: Store, set_: Resource, old: Resource | None) -> Resource:
    if old is None:
        raise invalid("InvalidParameter", "Scale sets are made by the emulator only.")
    return {**old, **set_, "properties": {**old["properties"], **set_["properties"]}}


def as_given(store: Store, resource: Resource, old: Resource | None) -> Resource:
    return resource


FILL: Mapping[str, Fill] = {
    "microsoft.network/privatelinkservices": links.private_link_service,
    "microsoft.network/loadbalancers": load_balancer,
    "microsoft.network/publicipaddresses": public_ip,
    "microsoft.network/networksecuritygroups": security_group,
    "microsoft.network/routetables": route_table,
    "microsoft.network/networkinterfaces": interface,
    "microsoft.compute/virtualmachinescalesets/virtualmachines": scale_set_machine,
    "microsoft.compute/virtualmachinescalesets": scale_set,
}


def filled(store: Store, resource: Resource, old: Resource | None) -> Resource:
    """A resource as it is kept.

    Raises:
        ArmError: It is refused.
    """
    kind = str(resource["type"])
    check_members(kind, resource, TOP)
    check_properties(kind.rpartition("/")[2], resource)
    fill = FILL.get(kind.lower(), as_given)
    whole = fill(store, resource, old)
    guid = str(uuid.uuid4()) if old is None else old["properties"].get("resourceGuid")
    if guid:
        whole["properties"]["resourceGuid"] = guid
    whole["properties"]["provisioningState"] = "Succeeded"
    return whole


def check_deletion(store: Store, resource: Resource) -> None:
    """Refuse to delete what is in use."""
    kind, id_ = str(resource["type"]).lower(), str(resource["id"])
    if kind == "microsoft.network/publicipaddresses" and (users := users_of(store, id_)):
        raise invalid(
            "PublicIPAddressCannotBeDeleted",
            f"Public IP address {id_} can not be deleted since it is still allocated to resource"
            f" {users[0]}.",
        )
    if kind == "microsoft.network/privatelinkservices" and store.below(
        f"{id_}/privateEndpointConnections"
    ):
        raise invalid(
            "PrivateLinkServiceWithPrivateEndpointConnectionsCannotBeDeleted",
            f"{id_} has private endpoint connections.",
        )
    if kind == "microsoft.network/loadbalancers":
        links.check_frontends(store, resource, None)
        for pool, _, nic in members(store):
            if pool.startswith(f"{id_.lower()}/"):
                in_set = str(nic["type"]) == NIC_OF_SET
                name = "VirtualMachineScaleSet" if in_set else "NetworkInterface"
                raise invalid(
                    f"LoadBalancerInUseBy{name}",
                    f"Cannot delete load balancer {id_}: {nic['id']} uses it.",
                )
    subnets = [
        (configuration["properties"].get("subnet") or {}).get("id", "").lower()
        for one in store.of.values()
        for field in ("ipConfigurations", "frontendIPConfigurations")
        for configuration in one["properties"].get(field) or ()
    ]
    if kind.endswith("/subnets") and id_.lower() in subnets:
        raise invalid("InUseSubnetCannotBeDeleted", f"Subnet {id_} is in use.")
