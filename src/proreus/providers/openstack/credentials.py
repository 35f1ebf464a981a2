"""With which credentials, and to which endpoints: the cloud-config, filled up from clouds.yaml.

What the cloud-config says itself goes before clouds.yaml, as officially.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from keystoneauth1.identity import v3

from proreus.cloudprovider.authorities import system_authorities
from proreus.cloudprovider.errors import ConfigError
from proreus.providers.openstack.config import Global

_OVERRIDES = ("compute", "network", "block_storage", "load_balancer")

CloudOf = Callable[[Global], Mapping[str, Any]]
"""`clouds.cloud_of`."""


class Login(msgspec.Struct, frozen=True):
    """How to get a token, and where the services are.

    Attributes:
        auth: What keystone is told, by the names of keystoneauth; secrets among it.
        region: The region, or "".
        interface: public, internal or admin.
        verify: Whether certificates are checked, or the file of CAs to check them by.
        cert: A client certificate and its key, or None.
        overrides: Endpoints that are not those of the catalog, by service.
    """

    auth: Mapping[str, str]
    region: str
    interface: str
    verify: bool | str
    cert: tuple[str, str] | None
    overrides: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Login(region={self.region!r}, interface={self.interface!r})"


def login(settings: Global, cloud_of: CloudOf | None) -> Login:
    """What the cloud-config says, and clouds.yaml where it is to be used. Reads files.

    Args:
        settings: What the cloud-config says.
        cloud_of: Reads clouds.yaml, if it is to be used.

    Raises:
        ConfigError: clouds.yaml cannot be read, or what is needed is in neither.
    """
    given = _given(settings)
    cloud = cloud_of(settings) if cloud_of else {}
    named = {key: str(value) for key, value in (cloud.get("auth") or {}).items() if value}
    auth = {**named, **given}
    if problems := _lacking(auth):
        raise ConfigError(tuple(problems))
    verify = cloud.get("verify", True)
    ca_file = settings.ca_file or cloud.get("cacert") or ""
    cert = settings.cert_file or cloud.get("cert") or ""
    key = settings.key_file or cloud.get("key") or ""
    is_checked = verify is not False and not settings.tls_insecure
    return Login(
        auth=auth,
        region=settings.region or str(cloud.get("region_name") or ""),
        interface=settings.interface or str(cloud.get("interface") or "") or "public",
        verify=(ca_file or _authorities() or True) if is_checked else False,
        cert=(cert, key) if cert and key else None,
        overrides={
            service.replace("_", "-"): str(cloud[f"{service}_endpoint_override"])
            for service in _OVERRIDES
            if cloud.get(f"{service}_endpoint_override")
        },
    )


def _authorities() -> str:
    """The system's, as officially; "" if there are none, or requests' own variables say others."""
    variables = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    return "" if any(map(os.environ.get, variables)) else system_authorities()


def plugin(auth: Mapping[str, str]) -> Any:
    """What asks keystone for tokens: one request for each, to version 3 of its API."""
    url = auth["auth_url"].rstrip("/")
    url = url if url.endswith("/v3") else f"{url.removesuffix('/v2.0')}/v3"
    if _is_application_credential(auth):
        names = (
            "application_credential_id",
            "application_credential_name",
            "application_credential_secret",
            "user_id",
            "username",
            "user_domain_id",
            "user_domain_name",
        )
        return v3.ApplicationCredential(url, **_only(auth, names))
    scope = {"trust_id"}
    if not auth.get("trust_id"):  # a trust has its project
        scope = {"project_id", "project_name", "project_domain_id", "project_domain_name"}
    if auth.get("token"):
        return v3.Token(url, auth["token"], **_only(auth, scope))
    of_user = {*scope, "user_id", "username", "password", "user_domain_id", "user_domain_name"}
    return v3.Password(url, **_only(auth, of_user))


def _given(settings: Global) -> dict[str, str]:
    """What the cloud-config says, by the names of keystoneauth."""
    of_domain = ("domain_id", "domain_name")
    user_domain = _domain(settings, "user_domain_id", "user_domain_name", *of_domain)
    project_domain = _domain(settings, "tenant_domain_id", "tenant_domain_name", *of_domain)
    is_trustee = bool(settings.trustee_id)
    found = {
        "auth_url": settings.auth_url,
        "user_id": settings.trustee_id or settings.user_id,
        "username": "" if is_trustee else settings.username,
        "password": settings.trustee_password or settings.password,
        "token": settings.token,
        "project_id": settings.tenant_id,
        "project_name": settings.tenant_name,
        "trust_id": settings.trust_id,
        "application_credential_id": settings.application_credential_id,
        "application_credential_name": settings.application_credential_name,
        "application_credential_secret": settings.application_credential_secret,
        **{f"user_domain_{key}": value for key, value in user_domain.items()},
        **{
            f"project_domain_{key}": value for key, value in (project_domain or user_domain).items()
        },
    }
    return {key: value for key, value in found.items() if value}


def _domain(settings: Global, *names: str) -> dict[str, str]:
    """The first domain that is given, by `id` or by `name`."""
    for name in names:
        if value := getattr(settings, name):
            return {name.rpartition("_")[2]: value}
    return {}


def _lacking(auth: Mapping[str, str]) -> list[str]:
    found = []
    if not auth.get("auth_url"):
        found.append("[Global] auth-url: is neither in the cloud-config nor in clouds.yaml")
    has_user = bool((auth.get("user_id") or auth.get("username")) and auth.get("password"))
    is_enough = has_user or auth.get("token") or auth.get("application_credential_secret")
    if not is_enough:
        found.append("[Global] no credentials are in the cloud-config or in clouds.yaml")
    return found


def _is_application_credential(auth: Mapping[str, str]) -> bool:
    return bool(auth.get("application_credential_id") or auth.get("application_credential_name"))


def _only(auth: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: auth[name] for name in names if auth.get(name)}
