"""With which credentials, and to which endpoints: the cloud-config, filled up from clouds.yaml.

clouds.yaml is read by openstacksdk, as by every client of OpenStack: the search for the file,
secure.yaml, profiles of vendors. What the cloud-config says itself goes before it, as officially.
"""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from keystoneauth1.identity import v3
from openstack.config import OpenStackConfig as Clouds
from openstack.exceptions import ConfigException

from proreus.cloudprovider.errors import ConfigError
from proreus.providers.openstack.config import Global

_OVERRIDES = ("compute", "network", "block_storage", "load_balancer")
_METHODS = frozenset(
    {"password", "token", "v3password", "v3token", "v3applicationcredential", "", None}
)


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


def login(settings: Global) -> Login:
    """What the cloud-config says, and clouds.yaml where it is to be used. Reads files.

    Raises:
        ConfigError: clouds.yaml cannot be read, or what is needed is in neither.
    """
    given = _given(settings)
    cloud = _cloud(settings) if settings.use_clouds else {}
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
        verify=(ca_file or True) if is_checked else False,
        cert=(cert, key) if cert and key else None,
        overrides={
            service.replace("_", "-"): str(cloud[f"{service}_endpoint_override"])
            for service in _OVERRIDES
            if cloud.get(f"{service}_endpoint_override")
        },
    )


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


def _cloud(settings: Global) -> Mapping[str, Any]:
    files = [settings.clouds_file] if settings.clouds_file else None
    try:
        clouds = Clouds(config_files=files, load_envvars=files is None)
        # Not what it would default to: only what is said about this very cloud.
        if settings.cloud not in clouds.get_cloud_names():
            known = ", ".join(sorted(clouds.get_cloud_names())) or "none"
            raise ConfigError(
                (f"[Global] cloud: {settings.cloud!r} is not in clouds.yaml, which has {known}",)
            )
        with warnings.catch_warnings():
            # About databases of metrics, which nobody asked for.
            warnings.simplefilter("ignore", PendingDeprecationWarning)
            region = clouds.get_one(cloud=settings.cloud, validate=False)
    except ConfigException as error:
        raise ConfigError((f"clouds.yaml: {error}",)) from error
    except OSError as error:
        raise ConfigError((f"[Global] clouds-file: cannot be read: {error.strerror}",)) from error
    found: Mapping[str, Any] = region.config
    if found.get("auth_type") not in _METHODS:
        problem = (
            f"clouds.yaml: auth_type {found['auth_type']!r} is not supported: use password, token"
            " or v3applicationcredential"
        )
        raise ConfigError((problem,))
    return found


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
