"""The cloud-config of the provider `ovirt`: the files of both official providers, unmodified.

The provider inside old Kubernetes names `uri` and `vms`, the external one `url` and `vmsquery`;
the latter reads a file without sections as well. Both refuse or pass over names that they do not
know; here they are refused. The sections [Client] and [Addresses] are ours.
"""

import ipaddress
import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from enum import StrEnum
from typing import ClassVar, Final
from urllib.parse import urlsplit

import msgspec

from proreus.cloudprovider.config import ConfigSection

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_VERSION: Final = re.compile(r"/v[34]$")
_PAGE: Final = re.compile(r"(?i)\bpage\s+\d+\s*$")
_API: Final = "/api"


class Order(StrEnum):
    """The addresses that a Node gets, and in which order."""

    ALL = "all"
    """The addresses of the machine's network cards, as internal addresses."""
    IN_TREE = "in-tree"
    """The first address, as an internal and an external one: what old Kubernetes did."""
    EXTERNAL = "external"
    """The addresses of the network cards, as external ones: what ovirt-cloud-provider does."""


class Connection(ConfigSection, frozen=True, kw_only=True):
    """Section [Connection]: which engine, and as whom.

    Attributes:
        uri: The address of the API, such as https://engine.example.org/ovirt-engine/api.
        url: The address of the API, as the external provider calls it.
        username: The user, with the profile after the @.
        password: The user's password.
        insecure: Whether the certificate is not checked.
        cafile: A file of CA certificates, in the place of the system's.
    """

    uri: str = ""
    url: str = ""
    username: str = "admin@internal"
    password: str = ""
    insecure: bool = False
    cafile: str = ""

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if not self.uri and not self.url:
            yield "uri: is required: the address that ends with /ovirt-engine/api"
        elif self.uri and self.url and self.uri != self.url:
            yield "url: is another address than uri: give one of them"
        for key in ("uri", "url"):
            yield from _wrong_address(key, getattr(self, key))
        if not self.password:
            yield "password: is required, in the file or as $OVIRT_PASSWORD"
        if "@" not in self.username:
            yield "username: give it with its profile, such as k8s@internal"

    @property
    def is_external(self) -> bool:
        """Whether the file is the external provider's, which names the address otherwise."""
        return bool(self.url)

    @property
    def api(self) -> str:
        """The address of the API, of the version that the engine has by default: 4."""
        return _VERSION.sub("", (self.uri or self.url).rstrip("/"))

    @property
    def engine(self) -> str:
        """The address below which the API and the single sign-on are."""
        parts = urlsplit(self.api)
        path = parts.path.removesuffix(_API) or "/ovirt-engine"
        return f"{parts.scheme}://{parts.netloc}{path}"

    @property
    def credentials(self) -> tuple[str, ...]:
        """The address, the user and the password, on which a login depends."""
        return self.engine, self.username, self.password


class Filters(ConfigSection, frozen=True, kw_only=True):
    """Section [Filters]: which virtual machines may be Nodes.

    Attributes:
        vms: A search in the engine's language, such as tag=kubernetes; all if there is none.
        vmsquery: The search, as the external provider calls it.
    """

    vms: str = ""
    vmsquery: str = ""

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if self.vms and self.vmsquery and self.vms != self.vmsquery:
            yield "vmsquery: is another search than vms: give one of them"
        for key in ("vms", "vmsquery"):
            if _PAGE.search(getattr(self, key)):
                yield f"{key}: take out `page` and what follows: all pages are read"

    @property
    def search(self) -> str:
        """The search that finds the cluster's machines, or "" for all machines."""
        return (self.vms or self.vmsquery).strip()


class Client(ConfigSection, frozen=True, kw_only=True):
    """Section [Client], of ours: how the API is reached.

    Attributes:
        timeout: How long to wait for an answer; a page of machines with their network cards takes
            the engine some seconds.
    """

    timeout: timedelta = timedelta(seconds=60)

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if self.timeout <= timedelta():
            yield "timeout: must be more than 0, such as 60s"


class Addresses(ConfigSection, frozen=True, kw_only=True):
    """Section [Addresses], of ours: which addresses Nodes get.

    Attributes:
        order: The addresses of a machine that its Node gets, in this order.
        external: CIDRs, separated by commas: addresses in them are external ones.
        excluded: CIDRs, separated by commas: addresses in them are left out, such as those that
            move from node to node.
    """

    order: Order = Order.ALL
    external: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        for key in ("external", "excluded"):
            for text in _listed(getattr(self, key)):
                try:
                    ipaddress.ip_network(text, strict=False)
                except ValueError:
                    yield f"{key}: {text!r} is not a CIDR such as 192.0.2.0/24"
        if self.external and self.order is not Order.ALL:
            yield f"external: has no effect with order = {self.order}: take out one of them"


class OVirtConfig(ConfigSection, frozen=True, kw_only=True):
    """The whole file."""

    default_section: ClassVar[str] = "connection"

    connection: Connection
    filters: Filters = msgspec.field(default_factory=Filters)
    client: Client = msgspec.field(default_factory=Client)
    addresses: Addresses = msgspec.field(default_factory=Addresses)


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks that a key of [Addresses] names."""
    return tuple(ipaddress.ip_network(text, strict=False) for text in _listed(texts))


def _listed(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(item for text in texts for part in text.split(",") if (item := part.strip()))


def _wrong_address(key: str, text: str) -> Iterator[str]:
    """Report what is wrong with the address of an API, without showing it."""
    if not text:
        return
    url = urlsplit(text)
    if url.scheme not in {"http", "https"} or not url.hostname:
        yield f"{key}: give a URL such as https://engine.example.org/ovirt-engine/api"
    elif url.username or url.password:
        yield f"{key}: give the user and the password as username and password, not in the URL"
    elif url.query or url.fragment:
        yield f"{key}: give it without what begins with ? or #"
    elif not _VERSION.sub("", url.path.rstrip("/")).endswith(_API):
        yield f"{key}: must end with /ovirt-engine/api"
