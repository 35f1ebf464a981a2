"""Private link services: what Azure demands of them, and who uses frontends by them."""

from collections.abc import Iterator

from .errors import invalid
from .store import Resource, Store

KIND = "Microsoft.Network/privateLinkServices"
FRONTENDS = "loadBalancerFrontendIpConfigurations"
PROPERTIES = {
    FRONTENDS, "ipConfigurations", "networkInterfaces", "provisioningState", "visibility",
    "autoApproval", "fqdns", "alias", "enableProxyProtocol", "privateEndpointConnections",
    "resourceGuid", "destinationIPAddress",
}  # fmt: skip


def private_link_service(store: Store, link: Resource, old: Resource | None) -> Resource:
    properties = link["properties"]
    frontends = properties.get(FRONTENDS) or []
    if len(frontends) != 1:
        raise invalid("PrivateLinkServiceInvalidFrontend", "Give one frontend.")
    id_ = frontends[0]["id"]
    balancer, _, name = id_.rpartition("/frontendIPConfigurations/")
    found = store.need(balancer, link["id"])["properties"]["frontendIPConfigurations"]
    frontend = next((one for one in found if one["name"].lower() == name.lower()), None)
    if frontend is None:
        raise invalid("InvalidResourceReference", f"Resource {id_} was not found.")
    if any(other != link["id"].lower() for other in links_of(store, id_)):
        raise invalid("FrontendIPConfigurationInUse", f"{id_} has a private link service.")
    if old is not None and old["properties"][FRONTENDS][0]["id"].lower() != id_.lower():
        raise invalid("PrivateLinkServiceFrontendCannotBeChanged", "The frontend is for ever.")
    addresses = properties.get("ipConfigurations") or []
    if not 1 <= len(addresses) <= 8:
        raise invalid("PrivateLinkServiceIpConfigurations", "There are one to eight addresses.")
    if sum(bool(one["properties"].get("primary")) for one in addresses) != 1:
        raise invalid("PrivateLinkServicePrimary", "One address is the primary one.")
    for one in addresses:
        given = one["properties"]
        if given["privateIPAllocationMethod"] == "Static" and not given.get("privateIPAddress"):
            raise invalid("PrivateStaticIPAddressMissing", "A static address must be given.")
        net = store.need(given["subnet"]["id"], link["id"])
        if net["properties"].get("privateLinkServiceNetworkPolicies") != "Disabled":
            raise invalid(
                "PrivateLinkServiceCannotBeCreatedInSubnetThatHasNetworkPoliciesEnabled",
                f"Private link service {link['id']} cannot be created in a subnet {net['id']} since"
                " it has private link service network policies enabled.",
            )
    properties.setdefault("enableProxyProtocol", False)
    properties["alias"] = f"{link['name']}.{link['location']}.azure.privatelinkservice"
    properties.pop("privateEndpointConnections", None)
    return link


def links_of(store: Store, frontend: str) -> Iterator[str]:
    """The private link services in front of a frontend, in small letters."""
    for one in store.kind(KIND):
        if one["properties"][FRONTENDS][0]["id"].lower() == frontend.lower():
            yield str(one["id"]).lower()


def connect(store: Store, link: str, name: str) -> None:
    """Let a consumer connect."""
    kind = f"{KIND}/privateEndpointConnections"
    id_ = f"{link}/privateEndpointConnections/{name}"
    store.put({"id": id_, "name": name, "type": kind, "location": "", "properties": {}})


def check_frontends(store: Store, before: Resource, after: Resource | None) -> None:
    """Refuse to take away a frontend that has a private link service."""
    kept = {
        one["name"].lower()
        for one in (after or {"properties": {}})["properties"].get("frontendIPConfigurations", ())
    }
    for one in before["properties"]["frontendIPConfigurations"]:
        if one["name"].lower() not in kept and any(links_of(store, one["id"])):
            raise invalid(
                "InUseFrontendIPConfigurationCannotBeDeleted",
                f"{one['id']} is in use by a private link service.",
            )
