"""The file of the SSH key: made once, whoever makes it, and read in every usual form."""

import stat
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from proreus.controllers.ssh_keys.keyfile import KeyFileError, public_key

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def private(
    key: ec.EllipticCurvePrivateKey
    | ed25519.Ed25519PrivateKey
    | rsa.RSAPrivateKey
    | x25519.X25519PrivateKey,
    form: PrivateFormat,
    encryption: KeySerializationEncryption | None = None,
) -> bytes:
    return key.private_bytes(Encoding.PEM, form, encryption or NoEncryption())


def test_a_missing_key_is_made_for_its_owner_only_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "key"
    made = public_key(path)
    assert made.startswith("ssh-ed25519 ")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert public_key(path) == made
    assert [one.name for one in tmp_path.iterdir()] == ["key"]


def test_of_many_that_make_a_key_at_once_all_use_one(tmp_path: Path) -> None:
    found: list[str] = []
    start = threading.Barrier(8)

    def make() -> None:
        start.wait()
        found.append(public_key(tmp_path / "key"))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 8
    assert set(found) == {public_key(tmp_path / "key")}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (private(RSA, PrivateFormat.TraditionalOpenSSL), "ssh-rsa "),
        (private(RSA, PrivateFormat.PKCS8), "ssh-rsa "),
        (private(RSA, PrivateFormat.OpenSSH), "ssh-rsa "),
        (
            private(ec.generate_private_key(ec.SECP256R1()), PrivateFormat.PKCS8),
            "ecdsa-sha2-nistp256 ",
        ),
    ],
)
def test_keys_of_operators_are_read(tmp_path: Path, text: bytes, kind: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(text)
    assert public_key(path).startswith(kind)
    assert path.read_bytes() == text


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"ssh-rsa AAAA me@here",
        b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
        private(RSA, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")),
        private(x25519.X25519PrivateKey.generate(), PrivateFormat.PKCS8),
    ],
)
def test_what_is_no_key_is_told_by_its_flag_without_its_text(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(text)
    with pytest.raises(KeyFileError, match=r"--ssh-keyfile: .*holds no private key") as caught:
        public_key(path)
    assert "AAAA" not in str(caught.value)


def test_a_place_where_no_file_can_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="none/key: No such file"):
        public_key(tmp_path / "none" / "key")
    (tmp_path / "folder").mkdir()
    with pytest.raises(KeyFileError, match="folder: Is a directory"):
        public_key(tmp_path / "folder")
