"""Get tokens of Microsoft Entra ID: secret, certificate, federated token, managed identity.

The requests are small, and azure-identity would bring three more packages and its own repetitions,
which the framework's quota could not see. What is signed is signed by `cryptography`.
"""

import os
import uuid
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs12

from proreus.cloudprovider.credential import Issued
from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.jwt import base64url, signed_jwt
from proreus.cloudprovider.requests import Request, form_body
from proreus.providers.azure.config import AzureConfig

if TYPE_CHECKING:
    from proreus.cloudprovider.rest import RestClient

VARIABLE_HOST: Final = "AZURE_POD_IDENTITY_AUTHORITY_HOST"
"""The environment variable with the server of managed identities, as Azure's SDKs read it."""
METADATA: Final = "http://169.254.169.254"
"""The instance metadata service, on the link of every machine."""
_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_LIFETIME: Final = timedelta(minutes=10)
_ADFS: Final = "adfs"
_IDENTITY: Final = "/providers/microsoft.managedidentity/userassignedidentities/"


class Cloud(msgspec.Struct, frozen=True):
    """The addresses of a cloud.

    Attributes:
        manager: The URL of Azure Resource Manager.
        login: The URL of Entra ID, or ADFS.
        audience: The audience that a token is for.
    """

    manager: str
    login: str
    audience: str


_PUBLIC: Final = Cloud(
    "https://management.azure.com", "https://login.microsoftonline.com",
    "https://management.core.windows.net/",
)  # fmt: skip
_CHINA: Final = Cloud(
    "https://management.chinacloudapi.cn", "https://login.chinacloudapi.cn",
    "https://management.core.chinacloudapi.cn/",
)  # fmt: skip
_GOVERNMENT: Final = Cloud(
    "https://management.usgovcloudapi.net", "https://login.microsoftonline.us",
    "https://management.core.usgovcloudapi.net/",
)  # fmt: skip
KNOWN: Final = {
    "": _PUBLIC,
    "azurecloud": _PUBLIC,
    "azurepubliccloud": _PUBLIC,
    "azurechinacloud": _CHINA,
    "azureusgovernment": _GOVERNMENT,
    "azureusgovernmentcloud": _GOVERNMENT,
}
"""The clouds whose addresses never change, by their names in small letters."""


class _Authentication(msgspec.Struct, rename="camel"):
    login_endpoint: str
    audiences: tuple[str, ...]


class Endpoints(msgspec.Struct):
    """What a cloud says about itself, at `metadata/endpoints`."""

    authentication: _Authentication


class _Token(msgspec.Struct):
    access_token: str
    expires_in: int | str


async def find_cloud(config: AzureConfig, rest: "RestClient") -> Cloud:
    """Return the addresses of the cloud; a cloud with its own endpoint is asked for them.

    Raises:
        CloudError: The cloud does not answer.
    """
    if not config.resource_manager_endpoint:
        return KNOWN[config.cloud.lower()]
    manager = config.resource_manager_endpoint.rstrip("/")
    request = Request(
        "metadata.endpoints_get", "GET", f"{manager}/metadata/endpoints",
        {"api-version": "1.0"}, quota="login",
    )  # fmt: skip
    said = (await rest.call(request, Endpoints)).authentication
    login = said.login_endpoint.rstrip("/")
    if config.identity_system.lower() == _ADFS:
        login = login.removesuffix(f"/{_ADFS}")
    return Cloud(manager, login, next(iter(said.audiences), f"{manager}/"))


class Tokens:
    """A source of tokens for one tenant."""

    def __init__(self, config: AzureConfig, rest: "RestClient", tenant: str) -> None:
        """Keep the settings for getting a token; read no file yet.

        Args:
            config: The cloud-config with the credentials.
            rest: The REST client without a credential, which sends the requests.
            tenant: The tenant whose directory issues tokens.
        """
        self._config = config
        self._rest = rest
        self._tenant = tenant

    async def issue(self, cloud: Cloud, now: datetime) -> Issued[str]:
        """Have a token issued.

        Raises:
            CloudError: No token is issued.
            ConfigError: A file with a credential cannot be used.
        """
        if self._config.use_managed_identity_extension:
            request = managed_identity_request(self._config, cloud)
        else:
            request = self._login(cloud, now)
        found = await self._rest.call(request, _Token)
        return Issued(found.access_token, now + timedelta(seconds=int(found.expires_in)))

    def _login(self, cloud: Cloud, now: datetime) -> Request:
        config = self._config
        is_adfs = config.identity_system.lower() == _ADFS
        url = f"{cloud.login}/{_ADFS if is_adfs else quote(self._tenant)}/oauth2/"
        url += "token" if is_adfs else "v2.0/token"
        fields = {"grant_type": "client_credentials", "client_id": config.aad_client_id}
        fields |= {"resource": cloud.audience} if is_adfs else {"scope": _scope(cloud.audience)}
        if config.use_federated_workload_identity_extension:
            token = _read(config.aad_federated_token_file, "aadFederatedTokenFile")
            fields |= _asserted(token.decode(errors="replace").strip())
        elif config.aad_client_secret:
            fields["client_secret"] = config.aad_client_secret
        else:
            content = _read(config.aad_client_cert_path, "aadClientCertPath")
            certificate = read_certificate(content, config.aad_client_cert_password)
            fields |= _asserted(assertion(certificate, config.aad_client_id, url, now))
        return Request(
            "login.token_create", "POST", url, body=form_body(fields), read=True, quota="login"
        )


def managed_identity_request(config: AzureConfig, cloud: Cloud) -> Request:
    """Return the request for a token of the machine's identity, or of one that it was given."""
    host = os.environ.get(VARIABLE_HOST, METADATA).rstrip("/")
    query = {"api-version": "2018-02-01", "resource": cloud.audience}
    if identity := config.user_assigned_identity_id:
        is_resource = _IDENTITY in identity.lower()
        query["msi_res_id" if is_resource else "client_id"] = identity
    return Request(
        "metadata.token_get", "GET", f"{host}/metadata/identity/oauth2/token", query,
        headers={"Metadata": "true"}, quota="login",
    )  # fmt: skip


Certificate = tuple[x509.Certificate, rsa.RSAPrivateKey]
"""A certificate, and the key of it."""


def read_certificate(content: bytes, password: str) -> Certificate:
    """Read a certificate with its key, in PFX or PEM.

    Raises:
        ConfigError: The file is neither, or has no RSA key.
    """
    secret = password.encode() or None
    try:
        if b"-----BEGIN" in content:
            certificates = x509.load_pem_x509_certificates(content)
            key = serialization.load_pem_private_key(content, secret)
        else:
            key_or_none, own, more = pkcs12.load_key_and_certificates(content, secret)
            certificates = [one for one in (own, *more) if one is not None]
            if key_or_none is None:
                raise ValueError
            key = key_or_none
    except (ValueError, TypeError):
        problem = (
            "aadClientCertPath: is not a certificate with its key, in PFX or PEM, that"
            " aadClientCertPassword opens"
        )
        raise ConfigError((problem,)) from None
    if isinstance(key, rsa.RSAPrivateKey):
        for certificate in certificates:
            if certificate.public_key() == key.public_key():
                return certificate, key
    raise ConfigError(("aadClientCertPath: has no RSA key, or no certificate of it",))


def assertion(certificate: Certificate, client: str, url: str, now: datetime) -> str:
    """Sign that we are a client: a JSON Web Token (RFC 7523)."""
    public, key = certificate
    head = {
        "x5t": base64url(public.fingerprint(hashes.SHA1())),  # noqa: S303 - Entra names it so
        "x5t#S256": base64url(public.fingerprint(hashes.SHA256())),
    }  # fmt: skip
    claims = {
        "aud": url, "iss": client, "sub": client, "jti": str(uuid.uuid4()),
        "nbf": int(now.timestamp()), "exp": int((now + _LIFETIME).timestamp()),
    }  # fmt: skip
    return signed_jwt(head, claims, key)


def _asserted(token: str) -> dict[str, str]:
    return {"client_assertion_type": _ASSERTION, "client_assertion": token}


def _scope(audience: str) -> str:
    # A slash at the audience's end stays: then there are two, or the token is for another one.
    return f"{audience}/.default"


def _read(file: str, key: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigError((f"{key}: cannot read {file}: {error.strerror}",)) from error
