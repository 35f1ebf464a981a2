"""A certificate for emulated clouds: some clients send tokens over TLS only."""

import ssl
import tempfile
from pathlib import Path

from proreus.testing.controlplane.certificates import Authority


def server_tls(directory: Path) -> tuple[ssl.SSLContext, Path]:
    """Settings of a server on loopback, and the file of the authority that clients trust."""
    authority = Authority()
    ca = directory / "ca.pem"
    ca.write_bytes(authority.certificate)
    certificate, key = authority.serving()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(certificate + key)
        context.load_cert_chain(file.name)
    return context, ca
