"""Read what annotations ask of a Service's load balancer. Pure.

They come from a cluster's tenants, so every value is checked before it can reach a call, and all
that is wrong is told at once.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

import msgspec

from proreus.cloudprovider.addresses import family_of
from proreus.cloudprovider.annotations import AnnotationReader
from proreus.cloudprovider.names import without_zone
from proreus.kube.objects import Service
from proreus.providers.azure.balancing.marks import is_mark

PREFIX: Final = "service.beta.kubernetes.io/"
"""The prefix of all annotations of this provider."""
ANNOTATION_LINK: Final = f"{PREFIX}azure-pls-create"
"""The annotation that asks for a private link service."""
ANNOTATION_ADDITIONAL: Final = f"{PREFIX}azure-additional-public-ips"
"""The annotation with addresses of others that also lead to the nodes."""
FAMILIES: Final = ("IPv4", "IPv6")
_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,78}[A-Za-z0-9_])?")
_GROUP: Final = re.compile(r"[A-Za-z0-9_().-]{0,89}[A-Za-z0-9_()-]")
_LABEL: Final = re.compile(r"[a-z][a-z0-9-]{1,61}[a-z0-9]")
_TAG: Final = re.compile(r"[A-Za-z][A-Za-z0-9.]{0,79}")
_PATH: Final = re.compile(r"/[!-~]{0,2000}")
_PREFIX_ID: Final = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Network/publicIPPrefixes/[^/]+",
    re.IGNORECASE,
)
_SUBSCRIPTION: Final = re.compile(r"\*|[0-9A-Za-z-]{1,64}")
_FQDN: Final = re.compile(r"[0-9A-Za-z*_-]{1,63}(\.[0-9A-Za-z_-]{1,63})*\.?")
_OCTET: Final = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4: Final = re.compile(rf"{_OCTET}(\.{_OCTET}){{3}}")
_DENIES: Final = "azure-deny-all-except-load-balancer-source-ranges"
_MOST_SECONDS: Final = 120
_MOST_LINKED: Final = 8
"""Addresses of a private link service."""
DEFAULT_INTERVAL: Final = 5
DEFAULT_COUNT: Final = 2


class Probing(msgspec.Struct, frozen=True):
    """How nodes are probed for a port.

    Attributes:
        protocol: The protocol: tcp, http, https, or "" to derive it from other settings.
        port: A port of the Service by number or name, or any number; "" for the node port.
        path: The path for http and https; "" for the Service's, or `/`.
        interval: Seconds between probes; 0 for the Service's setting.
        count: Failed probes until a node gets no traffic; 0 for the Service's setting.
    """

    protocol: str = ""
    port: str = ""
    path: str = ""
    interval: int = 0
    count: int = 0


class Link(msgspec.Struct, frozen=True):
    """The private link service of a Service.

    Attributes:
        name: The name of the private link service; "" to name it after its frontend.
        group: Its resource group; "" for that of the cloud-config.
        subnet: The subnet of its addresses; "" for the load balancer's.
        count: How many addresses it has.
        addresses: The addresses that are chosen, the primary one first.
        fqdns: The domain names that are shown with it.
        proxies: Whether nodes learn the consumer's address by the PROXY protocol.
        visible: The subscriptions that see it; `*` for all.
        approved: The subscriptions whose requests are approved at once.
    """

    name: str = ""
    group: str = ""
    subnet: str = ""
    count: int = 1
    addresses: tuple[str, ...] = ()
    fqdns: tuple[str, ...] = ()
    proxies: bool = False
    visible: tuple[str, ...] = ()
    approved: tuple[str, ...] = ()


class Options(msgspec.Struct, frozen=True):
    """The options of a Service's load balancer that its annotations choose.

    Attributes:
        internal: Whether the load balancer is in the nodes' network, not on the Internet.
        subnet: The subnet of an internal load balancer; "" for that of the cloud-config.
        group: The resource group of its public addresses; "" for that of the cluster.
        addresses: The requested address, by family.
        names: The name of the public address to use, by family.
        prefixes: The id of the prefix that a new public address is taken from, by family.
        label: The DNS label of the public address; None to leave it as it is.
        tags: The tags of the public address.
        ip_tags: The IP tags of the public address, which Azure's network reads, by their types.
        idle_minutes: Minutes after which an idle connection is forgotten.
        all_ports: Whether an internal load balancer has one rule for all ports.
        resets: Whether connections that are forgotten are reset.
        floats: Whether nodes see the load balancer's address as destination; else their node ports
            are used.
        guards: Whether rules are added to the security group.
        additional: The public addresses of others that also lead to the nodes.
        allowed_tags: The service tags whose addresses may connect.
        allowed_ranges: The CIDRs whose addresses may connect.
        denies: Whether sources that are not allowed are denied before others' rules apply.
        probing: The probe settings of all ports.
        ports: The probe settings of single ports.
        without_rule: The ports that have no rule.
        without_probe: The ports whose rule has no probe.
        configurations: The names of the load balancers that may be chosen, where there are several;
            () for any.
        link: The private link service; None for none.
    """

    internal: bool = False
    subnet: str = ""
    group: str = ""
    addresses: Mapping[str, str] = {}
    names: Mapping[str, str] = {}
    prefixes: Mapping[str, str] = {}
    label: str | None = None
    tags: Mapping[str, str] = {}
    ip_tags: Mapping[str, str] = {}
    idle_minutes: int = 4
    all_ports: bool = False
    resets: bool = True
    floats: bool = True
    guards: bool = True
    additional: tuple[str, ...] = ()
    allowed_tags: tuple[str, ...] = ()
    allowed_ranges: tuple[str, ...] = ()
    denies: bool = False
    probing: Probing = Probing()
    ports: Mapping[int, Probing] = {}
    without_rule: frozenset[int] = frozenset()
    without_probe: frozenset[int] = frozenset()
    configurations: tuple[str, ...] = ()
    link: Link | None = None

    def probe_of(self, port: int) -> Probing:
        """Return how nodes are probed for a port; annotations about the port go first."""
        own = self.ports.get(port, Probing())
        return Probing(
            own.protocol,
            own.port,
            own.path or self.probing.path or "/",
            own.interval or self.probing.interval or DEFAULT_INTERVAL,
            own.count or self.probing.count or DEFAULT_COUNT,
        )


def read_options(service: Service) -> Options:
    """Return what a Service asks for.

    Raises:
        InvalidRequest: An annotation is wrong; names every one, and the remedy.
    """
    read = AnnotationReader(service.metadata.annotations, PREFIX)
    ports = sorted({one.port for one in service.spec.ports})
    internal = _flag(read, "azure-load-balancer-internal")
    idle = read.number("azure-load-balancer-tcp-idle-timeout", 4, 100, 4)
    label = read.form(
        "azure-dns-label-name", _LABEL, "give 3 to 63 small letters, digits and dashes"
    )
    found = Options(
        internal=internal,
        subnet=read.form("azure-load-balancer-internal-subnet", _NAME, "give a subnet's name")
        if internal
        else "",
        group=read.form("azure-load-balancer-resource-group", _GROUP, "give a resource group"),
        addresses=_addresses(read, service),
        names=_by_family(read, "azure-pip-name", _NAME, "give the name of a public IP"),
        prefixes=_by_family(read, "azure-pip-prefix-id", _PREFIX_ID, "give the id of a prefix"),
        label=label if read.text("azure-dns-label-name") else None,
        tags=_tags(read),
        ip_tags=read.pairs("azure-pip-ip-tags"),
        idle_minutes=int(idle),
        all_ports=internal and _flag(read, "azure-load-balancer-enable-high-availability-ports"),
        resets=not _flag(read, "azure-load-balancer-disable-tcp-reset"),
        floats=not _flag(read, "azure-disable-load-balancer-floating-ip"),
        guards=not _flag(read, "azure-disable-load-balancer-nsg-rule"),
        additional=_parsed(read, "azure-additional-public-ips", _address, "give IP addresses"),
        allowed_tags=read.names("azure-allowed-service-tags", _TAG, "give service tags of Azure"),
        allowed_ranges=_parsed(read, "azure-allowed-ip-ranges", _range, "give CIDRs"),
        denies=_flag(read, _DENIES),
        probing=_probing(read, "azure-load-balancer-health-probe-"),
        ports={port: _probing(read, f"port_{port}_health-probe_") for port in ports},
        without_rule=frozenset(p for p in ports if _flag(read, f"port_{p}_no_lb_rule")),
        without_probe=frozenset(p for p in ports if _flag(read, f"port_{p}_no_probe_rule")),
        configurations=read.names(
            "azure-load-balancer-configurations", _NAME, "give names of load balancers"
        ),
        link=_link(read) if _flag(read, "azure-pls-create") else None,
    )
    if found.allowed_ranges and service.spec.load_balancer_source_ranges:
        read.wrong("azure-allowed-ip-ranges", "give it or spec.loadBalancerSourceRanges, not both")
    if found.link is not None and not internal and found.floats:
        read.wrong(
            "azure-pls-create",
            "needs azure-load-balancer-internal or azure-disable-load-balancer-floating-ip",
        )
    _check_probes(read, found, ports)
    read.check()
    return found


def check_denial(service: Service, options: Options) -> None:
    """Refuse to deny all that reaches nodes' own addresses: kubelets and other nodes come there.

    Not part of `read_options`, since what such a Service of the official manager has can go.

    Raises:
        InvalidRequest: The Service asks for that; names the annotation and the remedy.
    """
    if options.denies and not options.floats:
        read = AnnotationReader(service.metadata.annotations, PREFIX)
        read.wrong(
            _DENIES,
            "leave it out with azure-disable-load-balancer-floating-ip: clients come to the nodes'"
            " own addresses then, and it would deny whatever else comes there",
        )
        read.check()


def _tags(read: AnnotationReader) -> dict[str, str]:
    """Return the tags that a Service chooses; names that differ only in case are one to Azure."""
    name = "azure-pip-tags"
    found = read.pairs(name)
    if marks := sorted(filter(is_mark, found)):
        read.wrong(name, f"tags that say whose an address is are reserved: {', '.join(marks)}")
    if len({key.lower() for key in found}) < len(found):
        read.wrong(name, "give tags whose names differ by more than the case of letters")
    return found


def _flag(read: AnnotationReader, name: str) -> bool:
    """Return whether an annotation is true; anything else is false, as officially."""
    return read.text(name).lower() == "true"


def _link(read: AnnotationReader) -> Link:
    stem = "azure-pls-ip-configuration-"
    number = read.number(f"{stem}ip-address-count", 1, _MOST_LINKED, 1)
    visible = _words(read, "azure-pls-visibility", _SUBSCRIPTION, "give ids of subscriptions, or *")
    found = Link(
        name=read.form("azure-pls-name", _NAME, "give a name"),
        group=read.form("azure-pls-resource-group", _GROUP, "give a resource group"),
        subnet=read.form(f"{stem}subnet", _NAME, "give a subnet's name"),
        count=int(number),
        addresses=_words(read, f"{stem}ip-address", _IPV4, "give IPv4 addresses"),
        fqdns=_words(read, "azure-pls-fqdns", _FQDN, "give domain names"),
        proxies=_flag(read, "azure-pls-proxy-protocol"),
        visible=("*",) if "*" in visible else visible,
        approved=_words(
            read, "azure-pls-auto-approval", _SUBSCRIPTION, "give ids of subscriptions"
        ),
    )
    if len(found.addresses) > found.count:
        read.wrong(f"{stem}ip-address", f"give no more than {stem}ip-address-count says")
    return found


def _words(
    read: AnnotationReader, name: str, form: re.Pattern[str], remedy: str
) -> tuple[str, ...]:
    """Return the words of an annotation, between blanks, each of which matches a pattern."""
    found = tuple(dict.fromkeys(read.text(name).split()))
    if not all(form.fullmatch(one) for one in found):
        read.wrong(name, remedy)
    return found


def _probing(read: AnnotationReader, stem: str) -> Probing:
    is_global = stem.startswith("azure-")
    return Probing(
        # Officially an unknown protocol is TCP.
        read.text(f"{stem}protocol").lower(),
        "" if is_global else read.text(f"{stem}port"),
        read.form(f"{stem}request-path", _PATH, "give a path that begins with /"),
        int(read.number(f"{stem}interval", DEFAULT_INTERVAL, _MOST_SECONDS, 0) or 0)
        if read.text(f"{stem}interval")
        else 0,
        int(read.number(f"{stem}num-of-probe", DEFAULT_COUNT, _MOST_SECONDS, 0) or 0)
        if read.text(f"{stem}num-of-probe")
        else 0,
    )


def _check_probes(read: AnnotationReader, options: Options, ports: Iterable[int]) -> None:
    for port in ports:
        found = options.probe_of(port)
        if found.interval * found.count >= _MOST_SECONDS:
            read.wrong(
                "azure-load-balancer-health-probe-interval",
                f"with the number of probes (port {port}) it must come to less than 120 s",
            )
            return


def _addresses(read: AnnotationReader, service: Service) -> dict[str, str]:
    found: dict[str, str] = {}
    given = [(f"azure-load-balancer-{family.lower()}", family) for family in FAMILIES]
    for name, family in given:
        text = read.text(name)
        if not text:
            continue
        if _family(text) != family:
            read.wrong(name, f"give an {family} address")
            continue
        found[family] = str(ip_address(text))
    if (text := service.spec.load_balancer_ip) and not found:
        family = _family(text)
        if not family:
            read.problems.append("spec.loadBalancerIP: give an IP address")
        else:
            found[family] = str(ip_address(text))
    return found


def _by_family(
    read: AnnotationReader, name: str, form: re.Pattern[str], remedy: str
) -> dict[str, str]:
    pairs = ((family, name if family == "IPv4" else f"{name}-ipv6") for family in FAMILIES)
    return {family: text for family, full in pairs if (text := read.form(full, form, remedy))}


def _parsed(
    read: AnnotationReader, name: str, parse: Callable[[str], str], remedy: str
) -> tuple[str, ...]:
    found = []
    for text in _parts(read.text(name)):
        try:
            found.append(parse(text))
        except ValueError:
            read.wrong(name, remedy)
            return ()
    return tuple(dict.fromkeys(found))


def _parts(text: str) -> Iterator[str]:
    return filter(None, (part.strip() for part in text.split(",")))


def _address(text: str) -> str:
    """Return an address as it is compared.

    Raises:
        ValueError: The text is no address, or an IPv4 address in the form of IPv6, which nodes take
            for what it stands for; or it has a zone, which compares as another address.
    """
    found = ip_address(without_zone(text))
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        raise ValueError(text)
    return str(found)


def additional_in(service: Service) -> tuple[str, ...]:
    """Return the additional addresses that a Service names, without those that are wrong."""
    found = []
    for text in _parts(service.metadata.annotations.get(ANNOTATION_ADDITIONAL, "")):
        with contextlib.suppress(ValueError):
            found.append(_address(text))
    return tuple(found)


def _range(text: str) -> str:
    return str(ip_network(without_zone(text)))


def _family(text: str) -> str:
    return "" if "%" in text else family_of(text)
