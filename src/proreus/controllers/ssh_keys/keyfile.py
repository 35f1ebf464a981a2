"""Keep the SSH key in its file: make it if there is none, and read its public half."""

import contextlib
import os
import tempfile
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


class KeyFileError(Exception):
    """The error that the file cannot be read or made; its text names the flag and the remedy."""


def public_key(path: Path) -> str:
    """Return the public key of the private one in the file, as a line of `authorized_keys` has it.

    Where there is no file, a key is made. Of two processes that make one, both use the first.

    Raises:
        KeyFileError: The file cannot be read, or made, or holds no private key.
    """
    try:
        if not path.exists():
            _make(path)
        text = path.read_bytes()
    except OSError as exc:
        raise KeyFileError(
            f"--ssh-keyfile: {path}: {exc.strerror}; give a file that can be read, or a directory "
            "in which one can be made"
        ) from exc
    try:
        return _public_half(text)
    except (ValueError, TypeError, UnsupportedAlgorithm) as exc:
        raise KeyFileError(
            f"--ssh-keyfile: {path} holds no private key without a passphrase, in PEM or OpenSSH's "
            "format: make one with ssh-keygen, or delete the file to have one made"
        ) from exc


def _public_half(text: bytes) -> str:
    is_openssh = b"OPENSSH PRIVATE KEY" in text
    load = serialization.load_ssh_private_key if is_openssh else serialization.load_pem_private_key
    public = load(text, password=None).public_key()
    return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _make(path: Path) -> None:
    """Make the file with all its content at once, unless another process was quicker."""
    key = ed25519.Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as fresh:
        fresh.write(key)  # the file is its owner's only from the start
        fresh.flush()
        os.fsync(fresh.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(fresh.name, path)
