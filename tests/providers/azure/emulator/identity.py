"""Entra ID and the instance metadata service: who gets a token for what."""

import base64
import itertools
import json
import time
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

TENANT = "72f988bf-86f1-41af-91ab-2d7cd011db47"
CLIENT = "5f3e6a3b-0000-4000-8000-0000000000c1"
SECRET = "planted-secret-of-azure"
FEDERATED = "planted.federated.token"
IDENTITY = "0c0ffee0-0000-4000-8000-000000000001"


class Identity:
    """Credentials that are good, and the tokens that were given out."""

    def __init__(self) -> None:
        self.secret = SECRET
        self.federated = FEDERATED
        self.certificate: x509.Certificate | None = None
        self.tokens: dict[str, float] = {}
        self.lifetime = 3600
        self.audience = ""
        self.issued = 0
        self.updating = 0
        self._numbers = itertools.count(1)
        self.endless = False

    def is_good(self, header: str) -> bool:
        token = header.removeprefix("Bearer ")
        return header.startswith("Bearer ") and self.tokens.get(token, 0.0) > time.time()

    def revoke(self) -> None:
        self.tokens.clear()

    def _issue(self) -> dict[str, Any]:
        self.issued += 1
        token = f"token-{next(self._numbers)}-{'x' * 20}"
        self.tokens[token] = time.time() + self.lifetime
        return {"token_type": "Bearer", "expires_in": self.lifetime, "access_token": token}

    async def login(self, request: web.Request) -> web.Response:
        """The token endpoint, of both versions."""
        form = await request.post()
        if request.match_info["tenant"] != TENANT:
            return _refused("invalid_request", "AADSTS90002: Tenant not found.")
        is_v2 = request.path.endswith("/v2.0/token")
        named = form.get("scope") if is_v2 else form.get("resource")
        wanted = f"{self.audience}/.default" if is_v2 else self.audience
        scopes = str(named or "").split()
        if wanted not in scopes and wanted.rstrip("/") not in scopes:
            return _refused("invalid_scope", f"AADSTS70011: {scopes} is not valid, not {wanted}.")
        if form.get("grant_type") != "client_credentials" or form.get("client_id") != CLIENT:
            return _refused("unauthorized_client", "AADSTS700016: Application not found.")
        if assertion := form.get("client_assertion"):
            if not self._is_asserted(str(assertion), request):
                return _refused("invalid_client", "AADSTS700027: The assertion is not valid.")
        elif str(form.get("client_secret")) != self.secret:
            return _refused("invalid_client", "AADSTS7000215: Invalid client secret provided.")
        return web.json_response(self._issue())

    def _is_asserted(self, assertion: str, request: web.Request) -> bool:
        if assertion == self.federated:
            return True
        if self.certificate is None:
            return False
        head, body, signature = assertion.split(".")
        key = self.certificate.public_key()
        assert isinstance(key, rsa.RSAPublicKey)
        key.verify(
            _decoded(signature), f"{head}.{body}".encode(), padding.PKCS1v15(), hashes.SHA256()
        )
        claims, header = json.loads(_decoded(body)), json.loads(_decoded(head))
        thumb = base64.urlsafe_b64encode(self.certificate.fingerprint(hashes.SHA1()))  # noqa: S303 - Entra names it so
        return bool(
            claims["iss"] == claims["sub"] == CLIENT
            and claims["aud"].endswith(request.path)
            and claims["exp"] > time.time()
            and header["x5t"] == thumb.rstrip(b"=").decode()
        )

    async def metadata(self, request: web.Request) -> web.Response:
        """Tokens of managed identities; none while the service is being updated.

        https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token#error-handling
        """
        if self.updating:
            self.updating -= 1
            return _refused("not_found", "IMDS endpoint is updating.", 404)
        query = request.query
        if request.headers.get("Metadata") != "true":
            return _refused("invalid_request", "Required metadata header not specified")
        if query.get("resource", "").rstrip("/") != self.audience.rstrip("/"):
            return _refused("invalid_resource", "The resource is not known")
        if query.get("client_id", IDENTITY) != IDENTITY:
            return _refused("invalid_request", "Identity not found")
        return web.json_response({**self._issue(), "expires_in": str(self.lifetime)})


def _refused(error: str, text: str, status: int = 400) -> web.Response:
    status = 401 if error == "invalid_client" else status
    return web.json_response({"error": error, "error_description": text}, status=status)


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
