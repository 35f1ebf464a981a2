"""The cloud-config of the provider `openstack`: the official manager's file, read unmodified.

Names that the official manager does not know it passes over; so they are warned about here, and
not refused. Keys that mean nothing any more are known, so that nobody is warned of them.
"""

import ipaddress
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ClassVar

import msgspec

from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.config_values import camel_case
from proreus.cloudprovider.ownership import Tenants

_INTERFACES = frozenset({"", "public", "internal", "admin"})


class Global(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Global]: which cloud, and with which credentials.

    Attributes:
        auth_url: Keystone's address, with or without /v3.
        os_endpoint_type: Which endpoints of the catalog are used: public, internal or admin.
        region: The region; "" takes the first endpoint of the catalog.
        ca_file: A file of CA certificates for all services.
        cert_file: A client certificate, in PEM; with `key_file`.
        key_file: The file with the client certificate's key.
        tls_insecure: Whether certificates are not checked.
        username: The user; needs `password`, and a domain.
        user_id: The user's id, in the place of `username` and its domain.
        password: The user's password.
        token: A token in the place of user and password. It cannot be renewed.
        tenant_id: The id of the project.
        tenant_name: The name of the project; needs a domain.
        domain_id: The domain of user and project, where they have none of their own here.
        domain_name: The name of that domain, in place of `domain_id`.
        tenant_domain_id: The project's domain.
        tenant_domain_name: The name of the project's domain, in place of its id.
        user_domain_id: The user's domain.
        user_domain_name: The name of the user's domain, in place of its id.
        trust_id: The id of a trust: the trustee acts for the trustor, in the trust's project.
        trustee_id: The trustee's user id.
        trustee_password: The trustee's password.
        application_credential_id: The id of an application credential, which determines its
            project.
        application_credential_name: The name of an application credential; needs its user.
        application_credential_secret: The secret of the application credential.
        use_clouds: Take what is left out here from clouds.yaml.
        clouds_file: The path of clouds.yaml; by default where OpenStack's clients look for it.
        cloud: The name of the cloud in clouds.yaml.
        secret_name: Not used any more.
        secret_namespace: Not used any more.
        kubeconfig: Not used any more.
    """

    ignore_unknown: ClassVar[bool] = True

    auth_url: str = ""
    os_endpoint_type: str = ""
    region: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    tls_insecure: bool = False
    username: str = ""
    user_id: str = ""
    password: str = ""
    token: str = ""
    tenant_id: str = ""
    tenant_name: str = ""
    domain_id: str = ""
    domain_name: str = ""
    tenant_domain_id: str = ""
    tenant_domain_name: str = ""
    user_domain_id: str = ""
    user_domain_name: str = ""
    trust_id: str = ""
    trustee_id: str = ""
    trustee_password: str = ""
    application_credential_id: str = ""
    application_credential_name: str = ""
    application_credential_secret: str = ""
    use_clouds: bool = False
    clouds_file: str = ""
    cloud: str = ""
    secret_name: str = ""
    secret_namespace: str = ""
    kubeconfig: str = ""

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if not self.use_clouds:
            yield from self._wrong_credentials()
        if bool(self.cert_file) != bool(self.key_file):
            yield "cert-file, key-file: give both or none"
        if self.auth_url and not self.auth_url.startswith(("http://", "https://")):
            yield "auth-url: give a URL such as https://keystone.example.org:5000/v3"
        if self.interface not in _INTERFACES:
            yield "os-endpoint-type: must be one of public, internal, admin"
        if self.use_clouds and not self.cloud:
            yield ("cloud: give the name of the cloud in clouds.yaml, or leave out use-clouds")

    @property
    def interface(self) -> str:
        """`os_endpoint_type` without the `URL` of older files; "" if it is left out."""
        return self.os_endpoint_type.removesuffix("URL").lower()

    def _wrong_credentials(self) -> Iterator[str]:
        """Return which credentials are missing or do not fit, before keystone is asked."""
        if not self.auth_url:
            yield "auth-url: is required, or use-clouds with a clouds.yaml"
        has_user_domain = bool(
            self.user_domain_id or self.user_domain_name or self.domain_id or self.domain_name
        )
        if self.application_credential_id or self.application_credential_name:
            if not self.application_credential_secret:
                yield "application-credential-secret: is required with an application credential"
            is_named = not self.application_credential_id
            if is_named and not (self.user_id or (self.username and has_user_domain)):
                yield (
                    "application-credential-name: needs user-id, or username with domain-name;"
                    " or give application-credential-id"
                )
            return
        if self.token:
            return
        if not (self.user_id or self.username or self.trustee_id):
            yield (
                "username: give username or user-id with password, an application credential, or"
                " a token"
            )
        elif not (self.password or self.trustee_password):
            yield "password: is required with username, user-id or trustee-id"
        if self.username and not self.user_id and not self.trustee_id and not has_user_domain:
            yield "username: needs domain-name or domain-id, or user-domain-name or user-domain-id"


class Networking(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Networking]: which addresses nodes have.

    Attributes:
        ipv6_support_disabled: Whether IPv6 addresses are left out.
        public_network_name: The networks whose addresses are external.
        internal_network_name: The networks whose addresses are internal; none means all others.
        address_sort_order: CIDRs, separated by commas: addresses in the first come first.
    """

    ignore_unknown: ClassVar[bool] = True

    ipv6_support_disabled: bool = False
    public_network_name: tuple[str, ...] = ()
    internal_network_name: tuple[str, ...] = ()
    address_sort_order: str = ""

    @property
    def sort_order(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """The networks of `address_sort_order`.

        What is no network is skipped, as in Go's manager.
        """
        found = []
        for text in self.address_sort_order.split(","):
            try:
                found.append(ipaddress.ip_network(text.strip(), strict=False))
            except ValueError:
                continue
        return tuple(found)


class Route(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Route]: the router that leads to pods.

    Attributes:
        router_id: The Neutron router that gets the routes of pods; without it there are none.
    """

    ignore_unknown: ClassVar[bool] = True

    router_id: str = ""


class LoadBalancer(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [LoadBalancer]: defaults for the load balancers of Services.

    Attributes:
        enabled: Whether Services get load balancers.
        floating_network_id: The network that floating IPs come from.
        floating_subnet_id: The subnet of that network that floating IPs come from.
        floating_subnet: A pattern for the name of that subnet, in place of its id.
        floating_subnet_tags: The tags of that subnet, in place of its id.
        lb_method: The algorithm that spreads connections over the nodes.
        lb_provider: The provider (driver) of Octavia.
        lb_version: Not used any more.
        use_octavia: Not used any more.
        subnet_id: The subnet of load balancers.
        member_subnet_id: The subnet in which nodes are reached.
        network_id: The network of load balancers, in any of its subnets.
        manage_security_groups: Whether each Service gets a security group, which opens its node
            ports to load balancers.
        create_monitor: Whether nodes are checked by a health monitor.
        monitor_delay: The time between two checks.
        monitor_timeout: How long to wait for the answer to a check.
        monitor_max_retries: How many checks must succeed until a node gets traffic.
        monitor_max_retries_down: How many checks must fail until a node gets no traffic.
        internal_lb: Whether load balancers get no floating IPs.
        node_selector: The labels of the nodes that are hosts.
        cascade_delete: Whether Octavia deletes all parts at once.
        flavor_id: The flavor of load balancers in Octavia.
        availability_zone: The availability zone of load balancers in Octavia.
        enable_ingress_hostname: Whether the status gets a host name, not an address, where the
            PROXY protocol is spoken.
        ingress_hostname_suffix: The end of that host name.
        default_tls_container_ref: The default certificate in Barbican.
        container_store: The service that stores certificates.
        max_shared_lb: How many Services may use one load balancer.
        provider_requires_serial_api_calls: Whether parts are made one by one.
    """

    ignore_unknown: ClassVar[bool] = True

    enabled: bool = True
    floating_network_id: str = ""
    floating_subnet_id: str = ""
    floating_subnet: str = ""
    floating_subnet_tags: str = ""
    lb_method: str = "ROUND_ROBIN"
    lb_provider: str = "amphora"
    lb_version: str = ""
    use_octavia: str = ""
    subnet_id: str = ""
    member_subnet_id: str = ""
    network_id: str = ""
    manage_security_groups: bool = False
    create_monitor: bool = False
    monitor_delay: timedelta = timedelta(seconds=5)
    monitor_timeout: timedelta = timedelta(seconds=3)
    monitor_max_retries: int = 1
    monitor_max_retries_down: int = 3
    internal_lb: bool = False
    node_selector: str = ""
    cascade_delete: bool = True
    flavor_id: str = ""
    availability_zone: str = ""
    enable_ingress_hostname: bool = False
    ingress_hostname_suffix: str = "nip.io"
    default_tls_container_ref: str = ""
    container_store: str = "barbican"
    max_shared_lb: int = 2
    provider_requires_serial_api_calls: bool = False


class LoadBalancerClass(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [LoadBalancerClass "x"]: other networks for Services of that class."""

    ignore_unknown: ClassVar[bool] = True

    floating_network_id: str = ""
    floating_subnet_id: str = ""
    floating_subnet: str = ""
    floating_subnet_tags: str = ""
    network_id: str = ""
    subnet_id: str = ""
    member_subnet_id: str = ""


class Client(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Client], of Proreus: how long calls may take.

    Attributes:
        timeout: How long to wait for an answer. A page of 1,000 servers takes Nova many seconds.
    """

    timeout: timedelta = timedelta(seconds=50)

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if self.timeout <= timedelta():
            yield "timeout: must be more than 0s"


class OpenStackConfig(
    ConfigSection,
    frozen=True,
    kw_only=True,
    rename=camel_case(),
):
    """The whole cloud-config. Sections [Metadata] and [BlockStorage] are read and not used."""

    ignore_unknown: ClassVar[bool] = True

    global_: Global
    networking: Networking = Networking()
    route: Route = Route()
    load_balancer: LoadBalancer = LoadBalancer()
    load_balancer_class: dict[str, LoadBalancerClass] = msgspec.field(default_factory=dict)
    client: Client = Client()
    tenants: Tenants = Tenants()
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    block_storage: dict[str, Any] = msgspec.field(default_factory=dict)
