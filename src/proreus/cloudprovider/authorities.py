"""Find the certificate authorities that this machine trusts.

SDKs bring a list of their own, in which the private authority of a data centre never is. Official
manifests mount the node's `/etc/ssl/certs` into the pod for its sake.
"""

import os
from pathlib import Path
from typing import Final

FILES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL 6
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # RHEL 7 and later
    "/etc/ssl/cert.pem",  # Alpine
)
"""The files in which Go's programs look, in this order: crypto/x509, root_linux.go."""


def system_authorities() -> str:
    """Return the path of the file of trusted certificate authorities; "" without one."""
    if given := os.environ.get("SSL_CERT_FILE"):
        return given
    return next((file for file in FILES if Path(file).is_file()), "")
