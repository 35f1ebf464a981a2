"""Makes what a cloud needs before somebody can use it: users, a catalog, a project, a network."""

import warnings
from typing import Any

from labs.openstack.settings import PASSWORD, PORTS, REGION, url

USER = "ccm"
"""Who makes the calls in tests: a member of projects, without rights beyond them."""
PROJECT = "demo"
"""Its first project."""

_CATALOG = {
    "placement": ("placement", ""),
    "nova": ("compute", "/v2.1"),
    "neutron": ("network", ""),
    "octavia": ("load-balancer", ""),
    "image": ("image", ""),
}
_ROLES = ("member", "reader", "load-balancer_member")


def connect(user: str, project: str) -> Any:
    """Make a connection of openstacksdk."""
    import openstack  # noqa: PLC0415 - only with the extra

    with warnings.catch_warnings():
        # About databases of metrics, which nobody asked for.
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return openstack.connect(
            load_envvars=False,
            load_yaml_config=False,
            auth_url=url("keystone", "/v3"),
            username=user,
            password=PASSWORD,
            project_name=project,
            user_domain_name="Default",
            project_domain_name="Default",
            region_name=REGION,
            load_balancer_api_version="2",
        )


def identity() -> None:
    """Users of the services, the catalog, and our user. Only keystone runs yet."""
    admin = connect("admin", "admin").identity
    role = admin.find_role("admin")
    service = admin.create_project(name="service", domain_id="default")
    for name in set(_CATALOG) - {"image"}:
        user = admin.create_user(name=name, password=PASSWORD, domain_id="default")
        admin.assign_project_role_to_user(service, user, role)
    for name, (kind, path) in _CATALOG.items():
        made = admin.create_service(name=name, type=kind)
        for interface in ("public", "internal", "admin"):
            admin.create_endpoint(
                service_id=made.id, interface=interface, url=url(name, path), region_id=REGION
            )
    admin.create_user(name=USER, password=PASSWORD, domain_id="default")
    for name in _ROLES:
        if admin.find_role(name) is None:
            admin.create_role(name=name)


def network() -> None:
    """Make an external network, `public`, a flavor, `m1.k8s`, and the first project."""
    admin = connect("admin", "admin")
    public = admin.network.create_network(
        name="public",
        is_router_external=True,
        provider_network_type="flat",
        provider_physical_network="outside",
    )
    admin.network.create_subnet(
        network_id=public.id, ip_version=4, cidr="203.0.113.0/24", enable_dhcp=False, name="public"
    )
    admin.compute.create_flavor(name="m1.k8s", ram=512, vcpus=1, disk=1)
    project(PROJECT)


def project(name: str) -> None:
    """Make a project that the user is a member of, if there is none of that name.

    In it are a network, `private`, with a subnet of each family, and a router, `router`, that
    leads to the external network. Projects know nothing of each other.
    """
    admin = connect("admin", "admin")
    if admin.identity.find_project(name) is not None:
        return
    made = admin.identity.create_project(name=name, domain_id="default")
    user = admin.identity.find_user(USER)
    for role in _ROLES:
        found = admin.identity.find_role(role)
        admin.identity.assign_project_role_to_user(made, user, found)
    member = connect(USER, name).network
    private = member.create_network(name="private")
    subnets = [
        member.create_subnet(
            network_id=private.id, ip_version=4, cidr="10.1.0.0/16", name="private-v4"
        ),
        member.create_subnet(
            network_id=private.id,
            ip_version=6,
            cidr="2001:db8:1::/64",
            name="private-v6",
            ipv6_address_mode="slaac",
            ipv6_ra_mode="slaac",
        ),
    ]
    public = member.find_network("public")
    router = member.create_router(name="router", external_gateway_info={"network_id": public.id})
    for subnet in subnets:
        member.add_interface_to_router(router, subnet_id=subnet.id)


def has_compute() -> bool:
    """Tell whether Nova has a host to put servers on."""
    return bool(list(connect("admin", "admin").compute.hypervisors()))


def cloud_config(project: str) -> str:
    """Make a cloud-config for the provider, of that project."""
    return f"""\
[Global]
auth-url = {url("keystone", "/v3")}
region = {REGION}
username = {USER}
password = {PASSWORD}
tenant-name = {project}
domain-name = Default
"""


def listening() -> tuple[int, ...]:
    """Return the ports of all services."""
    return tuple(PORTS.values())
