"""The cloud-config of the provider `vsphere`: the official manager's file, read unmodified.

INI and YAML have the same names but for dashes and capitals. The in-tree provider's sections are
known, so that nobody is warned of them. Names that the official manager does not know it passes
over; so they are warned about here, and not refused.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Final

import msgspec

from proreus.cloudprovider.config import ConfigSection
from proreus.providers.vsphere.nsxt.config import (
    ClassSection,
    LoadBalancerSection,
    Nsxt,
    Route,
    class_problems,
)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

IPV4: Final = "ipv4"
IPV6: Final = "ipv6"
PORT: Final = 443


def _listed(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the items of lists as INI has them, separated by commas, or as YAML has them."""
    return tuple(item for text in texts for part in text.split(",") if (item := part.strip()))


def _digits(thumbprint: str) -> str:
    return thumbprint.replace(":", "").replace(" ", "").lower()


class Connection(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """The settings of [Global] and [VirtualCenter "x"] alike: how to reach a vCenter.

    Attributes:
        user: Its user, with the domain, such as k8s@vsphere.local.
        password: The user's password.
        server: Its host name or address.
        port: Its port; 443 by default.
        insecure_flag: Whether the certificate is not checked.
        datacenters: Names, paths or ids of the datacenters with machines; all if none is named.
        soap_roundtrip_count: Not used: reads are repeated by the framework.
        ca_file: A file of CA certificates.
        thumbprint: The SHA-1 or SHA-256 digest of the vCenter's own certificate.
        secret_name: The Secret with the credentials, which is mounted (see `secrets_directory`).
        secret_namespace: The namespace of that Secret.
        ip_family: The IP families: ipv4, ipv6, or both in the order of preference.
    """

    ignore_unknown: ClassVar[bool] = True

    user: str = ""
    password: str = ""
    server: str = ""
    port: int = 0
    insecure_flag: bool = False
    datacenters: tuple[str, ...] = ()
    soap_roundtrip_count: int = 0
    ca_file: str = ""
    thumbprint: str = ""
    secret_name: str = ""
    secret_namespace: str = ""
    ip_family: tuple[str, ...] = ()

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if set(self.families) - {IPV4, IPV6}:
            yield "ip-family: must be ipv4, ipv6, or both separated by a comma"
        if self.thumbprint and len(_digits(self.thumbprint)) not in {40, 64}:
            yield "thumbprint: must be a SHA-1 or SHA-256 digest in hexadecimal"
        if not 0 <= self.port < 2**16:
            yield "port: must be between 1 and 65535"

    @property
    def families(self) -> tuple[str, ...]:
        """The IP families in small letters, without blanks."""
        return tuple(one.lower() for one in _listed(self.ip_family))


class Global(Connection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Global]: what holds for each vCenter whose own section does not say otherwise.

    Attributes:
        secrets_directory: Where the Secret with the credentials is mounted; /etc/cloud/secrets by
            default.
        api_disable: Not used any more.
        api_binding: Not used any more.
        datacenter: The only datacenter, by the in-tree provider's key.
        datastore: A key of the in-tree provider; not used.
        working_dir: A key of the in-tree provider; not used.
        vm_uuid: A key of the in-tree provider; not used.
        vm_name: A key of the in-tree provider; not used.
        default_datastore: A key of the in-tree provider; not used.
    """

    secrets_directory: str = ""
    api_disable: str = ""
    api_binding: str = ""
    datacenter: str = ""
    datastore: str = ""
    working_dir: str = ""
    vm_uuid: str = ""
    vm_name: str = ""
    default_datastore: str = ""


class Labels(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Labels]: the categories of tags that name zones and regions; both or none.

    Attributes:
        zone: The category of tags that name zones.
        region: The category of tags that name regions.
    """

    ignore_unknown: ClassVar[bool] = True

    zone: str = ""
    region: str = ""

    def __bool__(self) -> bool:
        """Tell whether zones and regions are looked up: only if both are named, as officially."""
        return bool(self.zone and self.region)


class Nodes(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Nodes]: which of a machine's addresses its Node gets.

    Attributes:
        internal_network_subnet_cidr: CIDRs, separated by commas: the internal address is the
            first one in the first of them that has any.
        external_network_subnet_cidr: As `internal_network_subnet_cidr`, for the external address.
        internal_vm_network_name: The network whose first address is the internal address, where no
            subnet has one.
        external_vm_network_name: As `internal_vm_network_name`, for the external address.
        exclude_internal_network_subnet_cidr: CIDRs in which no address is internal.
        exclude_external_network_subnet_cidr: CIDRs in which no address is external.
    """

    ignore_unknown: ClassVar[bool] = True

    internal_network_subnet_cidr: tuple[str, ...] = ()
    external_network_subnet_cidr: tuple[str, ...] = ()
    internal_vm_network_name: str = ""
    external_vm_network_name: str = ""
    exclude_internal_network_subnet_cidr: tuple[str, ...] = ()
    exclude_external_network_subnet_cidr: tuple[str, ...] = ()

    def problems(self) -> Iterator[str]:
        """Report CIDRs that are not valid."""
        for name in (
            "internal_network_subnet_cidr",
            "external_network_subnet_cidr",
            "exclude_internal_network_subnet_cidr",
            "exclude_external_network_subnet_cidr",
        ):
            for text in _listed(getattr(self, name)):
                try:
                    ipaddress.ip_network(text, strict=False)
                except ValueError:
                    yield f"{name.replace('_', '-')}: {text!r} is not a CIDR such as 192.0.2.0/24"


class Client(ConfigSection, frozen=True, kw_only=True, rename="kebab"):
    """Section [Client], of Proreus: how long calls may take.

    Attributes:
        timeout: How long to wait for an answer.
    """

    timeout: timedelta = timedelta(seconds=30)

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if self.timeout <= timedelta():
            yield "timeout: must be more than 0s"


class VCenter(msgspec.Struct, frozen=True, kw_only=True):
    """A vCenter with all settings that hold for it. Its `repr` shows no secret.

    Attributes:
        name: The name of its section.
        server: Its host name or address.
        port: Its port.
        user: Its user; "" if a Secret holds it.
        password: The user's password.
        verify: Whether its certificate is checked.
        ca_file: A file of CA certificates, or "".
        thumbprint: The digest of its own certificate in hexadecimal digits, or "".
        datacenters: Names, paths or ids of datacenters; all if there is none.
        families: IP families in the order of preference.
    """

    name: str
    server: str
    port: int
    user: str
    password: str
    verify: bool
    ca_file: str
    thumbprint: str
    datacenters: tuple[str, ...]
    families: tuple[str, ...]

    @property
    def url(self) -> str:
        """The URL of the vCenter, without a path."""
        server = self.server
        host = f"[{server}]" if ":" in server and not server.startswith("[") else server
        return f"https://{host}:{self.port}"

    @property
    def credentials(self) -> tuple[str, ...]:
        """The address, the user and the password, on which a login depends."""
        return self.server, str(self.port), self.user, self.password

    def __repr__(self) -> str:
        """Return the vCenter's name and address."""
        return f"VCenter({self.name!r}, {self.server}:{self.port})"


class VSphereConfig(ConfigSection, frozen=True, kw_only=True, rename="pascal"):
    """The whole cloud-config.

    Sections of the in-tree provider ([Workspace], [Disk], [Network]) are read and not used, and
    so is [NSXT] as long as neither load balancers nor routes are configured.
    """

    ignore_unknown: ClassVar[bool] = True

    global_: Global = Global()
    virtual_center: dict[str, Connection] = msgspec.field(default_factory=dict)
    vcenter: dict[str, Connection] = msgspec.field(default_factory=dict)
    labels: Labels = Labels()
    nodes: Nodes = Nodes()
    client: Client = Client()
    route: Route = Route()
    load_balancer: LoadBalancerSection = LoadBalancerSection()
    load_balancer_class: dict[str, ClassSection] = msgspec.field(default_factory=dict)
    nsxt: Nsxt = Nsxt()
    workspace: dict[str, Any] = msgspec.field(default_factory=dict)
    disk: dict[str, Any] = msgspec.field(default_factory=dict)
    network: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def balances(self) -> bool:
        """Whether load balancers of NSX-T are configured, as officially told."""
        return bool(self.load_balancer_class) or self.load_balancer.is_given

    def problems(self) -> Iterator[str]:
        """Report required settings of the vCenter that are missing."""
        if self.balances:
            yield from class_problems(self.load_balancer, self.load_balancer_class)
        if self.balances or self.route.router_path:
            yield from self.nsxt.missing()
        sections = self.sections
        if not sections:
            yield 'VirtualCenter: name at least one vCenter, such as [VirtualCenter "10.0.0.1"]'
        servers = [_server(name, one) for name, one in sections.items()]
        if "" in servers:
            yield "VirtualCenter: a section without a name needs `server`"
        for name, one in sections.items():
            if bool(one.user or self.global_.user) != bool(one.password or self.global_.password):
                yield f"VirtualCenter {name!r}: give user and password, or none and a Secret"

    @property
    def sections(self) -> Mapping[str, Connection]:
        """The vCenters' own sections by name, with one for [Global] server if there is none."""
        found = {**self.vcenter, **self.virtual_center}
        server = self.global_.server
        return found if not server or server in found else {server: Connection(), **found}


def vcenters(
    config: VSphereConfig, credentials: Mapping[str, tuple[str, str]]
) -> tuple[VCenter, ...]:
    """Return all vCenters with what [Global] says of them.

    Args:
        config: The cloud-config.
        credentials: Users and passwords in mounted Secrets, by the vCenters' addresses.
    """
    return tuple(
        _vcenter(name, one, config.global_, credentials)
        for name, one in sorted(config.sections.items())
    )


def _vcenter(
    name: str, own: Connection, of_all: Global, credentials: Mapping[str, tuple[str, str]]
) -> VCenter:
    server = _server(name, own)
    user, password = own.user or of_all.user, own.password or of_all.password
    named_datacenters = _listed(own.datacenters) or _listed(of_all.datacenters)
    # Officially the Secret counts once the file's own are refused; a refusal can lock an account.
    user, password = credentials.get(server, (user, password))
    return VCenter(
        name=name,
        server=server,
        port=own.port or of_all.port or PORT,
        user=user,
        password=password,
        verify=not (own.insecure_flag or of_all.insecure_flag),
        ca_file=own.ca_file or of_all.ca_file,
        thumbprint=_digits(own.thumbprint or of_all.thumbprint),
        datacenters=named_datacenters or _listed((of_all.datacenter,)),
        families=own.families or of_all.families or (IPV4,),
    )


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks that a key of [Nodes] names."""
    return tuple(ipaddress.ip_network(text, strict=False) for text in _listed(texts))


def _server(name: str, own: Connection) -> str:
    return own.server or name
