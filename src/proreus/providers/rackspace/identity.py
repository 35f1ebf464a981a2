"""Read Rackspace's identity, version 2.0: who asks, the token, and where the services are. Pure."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from proreus.cloudprovider.errors import CloudError, ConfigError
from proreus.providers.rackspace.config import US_IDENTITY, Global


class Service(msgspec.Struct, frozen=True):
    """A service as the catalog has it.

    Attributes:
        type: Its type in the catalog.
        name: Its name in the catalog: some types have several services, such as the first
            generation of Cloud Servers.
    """

    type: str
    name: str


SERVICES: Final[Mapping[str, Service]] = {
    "nova": Service("compute", "cloudServersOpenStack"),
    "clb": Service("rax:load-balancer", "cloudLoadBalancers"),
    "cbs": Service("volume", "cloudBlockStorage"),
}
"""The services that are used, by the words of metrics."""


class Endpoint(msgspec.Struct, frozen=True):
    """An endpoint of a service in one region."""

    public_url: str = msgspec.field(name="publicURL")
    region: str = ""


class Entry(msgspec.Struct, frozen=True):
    """A service in the catalog."""

    type: str
    name: str = ""
    endpoints: tuple[Endpoint, ...] = ()


class Token(msgspec.Struct, frozen=True):
    """A token; its `repr` shows nothing of it."""

    id: str
    expires: datetime

    def __repr__(self) -> str:
        """Return a text without the token: only when it ends."""
        return f"Token(expires={self.expires})"


class Access(msgspec.Struct, frozen=True):
    """The answer of identity."""

    token: Token
    catalog: tuple[Entry, ...] = msgspec.field(name="serviceCatalog")


class Answer(msgspec.Struct, frozen=True):
    """The whole body of that answer."""

    access: Access


def identity_url(settings: Global) -> str:
    """Return the URL of identity's version 2.0."""
    url = (settings.auth_url or US_IDENTITY).rstrip("/")
    return url if url.endswith("/v2.0") else f"{url}/v2.0"


def auth_body(settings: Global) -> Mapping[str, Any]:
    """Return the body of the request for a token: an API key is preferred to a password."""
    key = {"username": settings.username, "apiKey": settings.api_key}
    password = {"username": settings.username, "password": settings.password}
    who: dict[str, Any] = (
        {"RAX-KSKEY:apiKeyCredentials": key}
        if settings.api_key
        else {"passwordCredentials": password}
    )
    tenant = {"tenantId": settings.tenant_id, "tenantName": settings.tenant_name}
    return {"auth": who | {name: value for name, value in tenant.items() if value}}


def endpoint(access: Access, service: Service, region: str) -> str:
    """Return the URL of a service in a region.

    Raises:
        CloudError: The catalog has no such endpoint.
    """
    found = {entry.name: url for entry, url in _in_region(access, service.type, region)}
    if not found:
        raise CloudError(
            f"the catalog has no service {service.type} in region {region}: check region in"
            " [Global], and which services the user may see"
        )
    return found.get(service.name) or found[min(found)]


def check_region(access: Access, region: str) -> None:
    """Refuse a region in which the account has no servers.

    Raises:
        ConfigError: The account has no servers there; the message names its regions.
    """
    regions = sorted({where.region for _, where in _of_type(access, SERVICES["nova"].type)} - {""})
    if region not in regions:
        which = f"{region!r} is not a region of this account" if region else "is required"
        raise ConfigError(
            (f"[Global] region: {which}: give one of {', '.join(regions) or 'those it has'}",)
        )


def _of_type(access: Access, type_: str) -> Iterator[tuple[Entry, Endpoint]]:
    for entry in access.catalog:
        if entry.type == type_:
            yield from ((entry, where) for where in entry.endpoints)


def _in_region(access: Access, type_: str, region: str) -> Iterator[tuple[Entry, str]]:
    for entry, where in _of_type(access, type_):
        if where.region == region:
            yield entry, where.public_url.rstrip("/")
