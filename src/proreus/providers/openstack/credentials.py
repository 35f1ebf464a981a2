"""Decide credentials and endpoints by the cloud-config, filled up from clouds.yaml.

What the cloud-config says itself goes before clouds.yaml, as officially.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from proreus.cloudprovider.errors import ConfigError
from proreus.providers.openstack.config import Global

_OVERRIDES = ("compute", "network", "block_storage", "load_balancer")

CloudOf = Callable[[Global], Mapping[str, Any]]
"""`clouds.cloud_of`."""


class Login(msgspec.Struct, frozen=True):
    """The credentials for a token, and where the services are.

    Attributes:
        auth: The arguments for keystone, by the names of keystoneauth; secrets among them.
        region: The region, or "".
        interface: The kind of endpoints: public, internal or admin.
        ca_file: The file of CAs that certificates are checked by, or "" for the system's.
        cert_file: A client certificate, or "".
        key_file: The file with the client certificate's key, or "".
        verify: Whether certificates are checked.
        overrides: Endpoints in the place of those of the catalog, by service.
    """

    auth: Mapping[str, str]
    region: str
    interface: str
    ca_file: str
    cert_file: str
    key_file: str
    verify: bool
    overrides: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Login(region={self.region!r}, interface={self.interface!r})"


def login(settings: Global, cloud_of: CloudOf | None) -> Login:
    """Make the login from the cloud-config, and from clouds.yaml if that is used. Reads files.

    Args:
        settings: The settings of the cloud-config.
        cloud_of: Reads clouds.yaml, if it is used.

    Raises:
        ConfigError: clouds.yaml cannot be read, or a required setting is in neither.
    """
    given = _given(settings)
    cloud = cloud_of(settings) if cloud_of else {}
    named = {key: str(value) for key, value in (cloud.get("auth") or {}).items() if value}
    auth = {**named, **given}
    if problems := _lacking(auth):
        raise ConfigError(tuple(problems))
    verify = cloud.get("verify", True)
    ca_file = settings.ca_file or cloud.get("cacert") or _ca_file_of_requests()
    cert = settings.cert_file or cloud.get("cert") or ""
    key = settings.key_file or cloud.get("key") or ""
    is_checked = verify is not False and not settings.tls_insecure
    return Login(
        auth=auth,
        region=settings.region or str(cloud.get("region_name") or ""),
        interface=settings.interface or str(cloud.get("interface") or "") or "public",
        ca_file=ca_file,
        cert_file=cert if key else "",
        key_file=key if cert else "",
        verify=is_checked,
        overrides={
            service.replace("_", "-"): str(cloud[f"{service}_endpoint_override"])
            for service in _OVERRIDES
            if cloud.get(f"{service}_endpoint_override")
        },
    )


def _ca_file_of_requests() -> str:
    """Return the authorities' file that the clients' environment variables name, or ""."""
    return os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or ""


def auth_url(auth: Mapping[str, str]) -> str:
    """Return the URL of keystone's API, version 3."""
    url = auth["auth_url"].rstrip("/")
    return url if url.endswith("/v3") else f"{url.removesuffix('/v2.0')}/v3"


def auth_body(auth: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the body of the request for a token (Identity API v3, POST /v3/auth/tokens)."""
    identity: dict[str, Any] = {}
    if _is_application_credential(auth):
        id_ = auth.get("application_credential_id")
        named = {"name": auth.get("application_credential_name"), "user": _user(auth)}
        secret = auth["application_credential_secret"]
        identity["application_credential"] = {**({"id": id_} if id_ else named), "secret": secret}
    elif auth.get("token"):
        identity["token"] = {"id": auth["token"]}
    else:
        identity["password"] = {"user": {**_user(auth), "password": auth["password"]}}
    body: dict[str, Any] = {"identity": {"methods": list(identity), **identity}}
    if scope := {} if _is_application_credential(auth) else _scope(auth):
        body["scope"] = scope
    return {"auth": body}


def _user(auth: Mapping[str, str]) -> Mapping[str, Any]:
    if id_ := auth.get("user_id"):
        return {"id": id_}
    return {"name": auth.get("username", ""), **_in_domain(auth, "user")}


def _scope(auth: Mapping[str, str]) -> Mapping[str, Any]:
    if trust := auth.get("trust_id"):
        return {"OS-TRUST:trust": {"id": trust}}  # a trust has its project
    if id_ := auth.get("project_id"):
        return {"project": {"id": id_}}
    if name := auth.get("project_name"):
        return {"project": {"name": name, **_in_domain(auth, "project")}}
    return {}


def _in_domain(auth: Mapping[str, str], of: str) -> Mapping[str, Any]:
    """Return the domain of the user or the project, by id or by name."""
    for key in ("id", "name"):
        if value := auth.get(f"{of}_domain_{key}"):
            return {"domain": {key: value}}
    return {}


def _given(settings: Global) -> dict[str, str]:
    """Return the credentials of the cloud-config, by the names of keystoneauth."""
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
    """Return the first domain that is given, by `id` or by `name`."""
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
