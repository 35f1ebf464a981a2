"""Tokens of Azure: every kind of credential, renewal, what is wrong is told."""

import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs12

from proreus.cloudprovider import CloudError, ConfigError, Instance, Unauthenticated
from proreus.providers.azure import AzureCloud
from proreus.providers.azure.credentials import KNOWN, VARIABLE_HOST

from .emulator import seed
from .emulator.identity import FEDERATED, IDENTITY, SECRET
from .emulator.server import Emulator
from .emulator.store import network
from .site import CLUSTER, ID, node, started
from .test_routes import NODES, route, table

PASSWORD = "planted-password"
RESOURCE = (
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity"
    "/userAssignedIdentities/ccm"
)


def certificate() -> tuple[x509.Certificate, rsa.RSAPrivateKey]:
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ccm")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return made, key


def as_file(made: x509.Certificate, key: rsa.RSAPrivateKey, form: str) -> bytes:
    if form == "pfx":
        hidden = serialization.BestAvailableEncryption(PASSWORD.encode())
        return pkcs12.serialize_key_and_certificates(b"ccm", key, made, None, hidden)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + made.public_bytes(serialization.Encoding.PEM)


async def works(azure: Emulator, **more: Any) -> None:
    """A provider with this cloud-config sees machines."""
    seed.machine(azure.store, "node-1")
    async with started(azure, **more) as provider:
        assert provider.instances is not None
        found = await provider.instances.describe([node("node-1")])
        assert isinstance(found["node-1"], Instance)


@pytest.mark.parametrize("system", ["", "adfs"])
async def test_a_service_principal_with_a_secret(azure: Emulator, system: str) -> None:
    if system:
        with pytest.raises(CloudError):  # the emulator's directory has tenants only
            await works(azure, identitySystem=system)
    else:
        await works(azure)


@pytest.mark.parametrize("form", ["pem", "pfx"])
async def test_a_service_principal_with_a_certificate(
    azure: Emulator, tmp_path: Path, form: str
) -> None:
    azure.identity.certificate, key = certificate()
    file = tmp_path / "client"
    file.write_bytes(as_file(azure.identity.certificate, key, form))
    password = PASSWORD if form == "pfx" else None
    await works(
        azure,
        aadClientSecret=None,
        aadClientCertPath=str(file),
        aadClientCertPassword=password,
    )


@pytest.mark.parametrize("content", [b"nonsense", b"-----BEGIN NOTHING-----", None])
async def test_a_certificate_that_is_none_is_told(
    azure: Emulator, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "client"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match="aadClientCertPath"):
        await works(azure, aadClientSecret=None, aadClientCertPath=str(file))


async def test_a_certificate_of_another_key_is_told(azure: Emulator, tmp_path: Path) -> None:
    file = tmp_path / "client"
    file.write_bytes(as_file(certificate()[0], certificate()[1], "pem"))
    with pytest.raises(ConfigError, match="no certificate of it"):
        await works(azure, aadClientSecret=None, aadClientCertPath=str(file))


async def test_a_workload_identity(
    azure: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{FEDERATED}\n")
    await works(
        azure,
        aadClientSecret=None,
        useFederatedWorkloadIdentityExtension=True,
        aadFederatedTokenFile=str(file),
    )


@pytest.mark.parametrize(
    "identity",
    [
        None,
        IDENTITY,
        RESOURCE,
    ],
)
async def test_a_managed_identity(
    azure: Emulator, monkeypatch: pytest.MonkeyPatch, identity: str | None
) -> None:
    monkeypatch.setenv(VARIABLE_HOST, azure.url)
    await works(
        azure,
        aadClientSecret=None,
        useManagedIdentityExtension=True,
        userAssignedIdentityID=identity,
    )


async def test_an_unknown_managed_identity_is_told(
    azure: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE_HOST, azure.url)
    with pytest.raises(CloudError, match="Identity not found"):
        await works(azure, useManagedIdentityExtension=True, userAssignedIdentityID="other")


async def test_no_route_is_lost_because_no_token_is_issued(
    azure: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is written whole, where Azure says that there is none."""
    monkeypatch.setenv(VARIABLE_HOST, azure.url)
    monkeypatch.setattr(AzureCloud, "confirm", 0.0)
    stored = azure.store.of[network("routeTables", "routes").lower()]
    theirs = {"addressPrefix": "0.0.0.0/0", "nextHopType": "Internet"}
    stored["properties"]["routes"].append({"name": "theirs", "properties": theirs})
    async with started(azure, useManagedIdentityExtension=True) as provider:
        assert provider.routes is not None
        azure.identity.revoke()
        azure.identity.updating = 1
        with contextlib.suppress(CloudError):
            await provider.routes.apply(CLUSTER, NODES, [route(1)], ())
        await provider.routes.apply(CLUSTER, NODES, [route(1)], ())
    assert sorted(table(azure)) == ["node-1____102441024", "theirs"]


async def test_no_machine_is_gone_because_no_token_is_issued(
    azure: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE_HOST, azure.url)
    seed.machine(azure.store, "node-1")
    async with started(azure, useManagedIdentityExtension=True) as provider:
        assert provider.instances is not None
        azure.identity.revoke()
        azure.identity.updating = 1
        with pytest.raises(CloudError, match="updating"):
            await provider.instances.describe([node("node-1", f"{ID}/virtualMachines/node-1")])


async def test_a_wrong_secret_is_told_and_not_shown(azure: Emulator) -> None:
    with pytest.raises(Unauthenticated, match="Invalid client secret") as error:
        await works(azure, aadClientSecret=f"not-{SECRET}")
    assert SECRET not in str(error.value)


async def test_a_token_that_was_revoked_is_replaced(azure: Emulator) -> None:
    seed.machine(azure.store, "node-1")
    async with started(azure) as provider:
        assert provider.instances is not None
        azure.identity.revoke()
        found = await provider.instances.describe([node("node-1")])
    assert isinstance(found["node-1"], Instance)
    assert azure.identity.issued == 2


def test_audiences_of_clouds_are_those_of_the_official_manager() -> None:
    assert {cloud.audience for cloud in KNOWN.values()} == {
        "https://management.core.windows.net/",
        "https://management.core.chinacloudapi.cn/",
        "https://management.core.usgovcloudapi.net/",
    }
