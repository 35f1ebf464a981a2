"""Make the TLS settings for a vCenter: by authorities, by the certificate's thumbprint, or none.

With a thumbprint the certificate is read once; if it is the right one, it becomes the only thing
that is trusted. So each later handshake proves, by TLS itself, that the server has its key.
"""

import asyncio
import contextlib
import hashlib
import ssl
from typing import TYPE_CHECKING, Final

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.rest import tls_context
from proreus.providers.vsphere.config import VCenter

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

_DIGESTS: Final = {40: "sha1", 64: "sha256"}
"""Digests by the number of their hexadecimal digits; SHA-1 is what official files have."""


class Trust:
    """The TLS settings for one vCenter, made when they are first needed."""

    def __init__(self, vcenter: VCenter, context: "Context", *, deadline: float) -> None:
        """Keep the vCenter's settings; `deadline` is the seconds for reading a certificate."""
        self._vcenter = vcenter
        self._context = context
        self._deadline = deadline
        self._made: ssl.SSLContext | None = None

    async def settings(self) -> ssl.SSLContext:
        """Return the TLS settings.

        A thumbprint of another certificate than the server's changes nothing: as officially, the
        authorities then decide.

        Raises:
            CloudError: The server does not answer.
            ConfigError: The file of authorities cannot be used.
        """
        if self._made is None:
            self._made = await self._pinned() or tls_context(
                ca_file=self._vcenter.ca_file, verify=self._vcenter.verify
            )
        return self._made

    async def _pinned(self) -> ssl.SSLContext | None:
        """Return settings that trust the server's certificate, if it has the thumbprint."""
        vcenter = self._vcenter
        if not vcenter.verify or not vcenter.thumbprint:
            return None
        found = await self._context.call(
            "vcenter",
            "Certificate",
            lambda: _certificate(vcenter),
            read=True,
            deadline=self._deadline,
        )
        return pinned(found) if matches(found, vcenter.thumbprint) else None


def matches(certificate: bytes, thumbprint: str) -> bool:
    """Tell whether a certificate in DER has this SHA-1 or SHA-256 digest, in hexadecimal."""
    digest = hashlib.new(_DIGESTS[len(thumbprint)], certificate, usedforsecurity=False)
    return digest.hexdigest() == thumbprint


def pinned(certificate: bytes) -> ssl.SSLContext:
    """Return TLS settings that trust this one certificate, whatever names it holds."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    # It is trusted itself, although some authority has signed it.
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    made.load_verify_locations(cadata=ssl.DER_cert_to_PEM_cert(certificate))
    return made


async def _certificate(vcenter: VCenter) -> bytes:
    """Return the server's certificate in DER; nothing is sent over the connection."""
    anyone = tls_context(verify=False)
    try:
        _, writer = await asyncio.open_connection(vcenter.server, vcenter.port, ssl=anyone)
    except OSError as error:
        raise CloudError(f"vCenter {vcenter.name}: no connection: {error.strerror}") from error
    try:
        secured: ssl.SSLObject = writer.get_extra_info("ssl_object")
        return secured.getpeercert(binary_form=True) or b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
