"""What Azure computes when it shows a resource: who uses it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .store import Store

Resource = dict[str, Any]


def ref(id_: str) -> Resource:
    return {"id": id_}


def pools_of(configuration: Resource) -> list[str]:
    found = configuration["properties"].get("loadBalancerBackendAddressPools") or ()
    return [str(one["id"]).lower() for one in found]


def members(store: "Store") -> list[tuple[str, Resource, Resource]]:
    """All IP configurations of machines: the pool's id, the configuration, the interface."""
    found = []
    for kind in ("Microsoft.Network/networkInterfaces", NIC_OF_SET):
        for nic in store.kind(kind):
            for configuration in nic["properties"]["ipConfigurations"]:
                found += [(pool, configuration, nic) for pool in pools_of(configuration)]
    return found


NIC_OF_SET = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces"


def computed(store: "Store", resource: Resource) -> Resource:
    kind = str(resource["type"]).lower()
    if kind == "microsoft.network/loadbalancers":
        return _load_balancer(store, resource)
    if kind == "microsoft.network/publicipaddresses":
        return _public_ip(store, resource)
    if kind == "microsoft.network/privatelinkservices":
        found = store.below(f"{resource['id']}/privateEndpointConnections")
        listed = [{"id": one["id"], "name": one["name"], "properties": {}} for one in found]
        resource["properties"]["privateEndpointConnections"] = listed
    return resource


def _load_balancer(store: "Store", lb: Resource) -> Resource:
    properties = lb["properties"]
    for rule in properties["loadBalancingRules"]:
        for field, kind in (
            ("frontendIPConfiguration", "frontendIPConfigurations"),
            ("backendAddressPool", "backendAddressPools"),
            ("probe", "probes"),
        ):
            named = (rule["properties"].get(field) or {}).get("id", "").lower()
            for one in properties[kind]:
                if one["id"].lower() == named:
                    one["properties"].setdefault("loadBalancingRules", []).append(ref(rule["id"]))
    for pool in properties["backendAddressPools"]:
        found = [ref(c["id"]) for p, c, _ in members(store) if p == pool["id"].lower()]
        if found:
            pool["properties"]["backendIPConfigurations"] = found
    return lb


def users_of(store: "Store", id_: str) -> list[str]:
    """The ids of the IP configurations that have a public address."""
    found = []
    for kind, field in (
        ("Microsoft.Network/loadBalancers", "frontendIPConfigurations"),
        ("Microsoft.Network/networkInterfaces", "ipConfigurations"),
    ):
        for one in store.kind(kind):
            for configuration in one["properties"].get(field) or ():
                named = (configuration["properties"].get("publicIPAddress") or {}).get("id", "")
                if named.lower() == id_.lower():
                    found.append(str(configuration["id"]))
    return found


def _public_ip(store: "Store", address: Resource) -> Resource:
    users = users_of(store, address["id"])
    if users:
        address["properties"]["ipConfiguration"] = ref(users[0])
    return address
