"""The metadata server, and the services that issue tokens."""

import base64
import itertools
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from .errors import ApiError
from .world import NUMBER, PROJECT, ZONES

ACCOUNT: Final = f"manager@{PROJECT}.iam.gserviceaccount.com"
AUDIENCE: Final = (
    f"//iam.googleapis.com/projects/{NUMBER}/locations/global/workloadIdentityPools/k/providers/k"
)
SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"


class Tokens:
    """Issues tokens and checks them.

    Attributes:
        lifetime: Seconds that a token counts.
        issued: How many there have been.
        workload: The token of the workload that counts, which another issuer has given it.
    """

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.reset()

    def reset(self) -> None:
        """Forget all tokens."""
        self.lifetime = 3600.0
        self.issued = 0
        self.workload = "workload-secret-1"
        self._numbers = itertools.count(1)
        self._ends: dict[str, float] = {}

    def issue(self) -> dict[str, Any]:
        """Issue a token, as OAuth has it."""
        self.issued += 1
        token = f"ya29.secret-{next(self._numbers):08}"
        self._ends[token] = time.monotonic() + self.lifetime
        return {"access_token": token, "expires_in": int(self.lifetime), "token_type": "Bearer"}

    def issue_alternative(self) -> dict[str, Any]:
        """Issue a token, as a `token-url` answers it."""
        token = self.issue()["access_token"]
        end = datetime.now(UTC) + timedelta(seconds=self.lifetime)
        return {"accessToken": token, "expireTime": end.isoformat().replace("+00:00", "Z")}

    def revoke(self) -> None:
        """Let no token count any more."""
        self._ends.clear()

    def check(self, header: str) -> None:
        """Refuse a request without a token that counts."""
        token = header.removeprefix("Bearer ")
        if self._ends.get(token, 0.0) <= time.monotonic():
            message = "Request had invalid authentication credentials."
            raise ApiError(401, "authError", message)

    def key_file(self, token_uri: str) -> str:
        """The text of a key file of the service account."""
        pem = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return json.dumps(
            {
                "type": "service_account",
                "project_id": PROJECT,
                "private_key_id": "key-1",
                "private_key": pem.decode(),
                "client_email": ACCOUNT,
                "token_uri": token_uri,
            }
        )

    def exchange(self, form: Mapping[str, str], audience: str) -> dict[str, Any]:
        """Issue a token for a signed assertion (RFC 7523)."""
        if form.get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer":
            raise ApiError(400, "unsupported_grant_type", "unsupported_grant_type")
        signed, _, signature = form.get("assertion", "").rpartition(".")
        try:
            self._key.public_key().verify(
                _decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256()
            )
        except Exception as error:
            raise ApiError(400, "invalid_grant", "Invalid JWT Signature.") from error
        claims = json.loads(_decoded(signed.split(".")[1]))
        now = time.time()
        is_right = claims["iss"] == ACCOUNT and claims["aud"] == audience
        is_in_time = claims["iat"] <= now + 10 and now < claims["exp"] <= claims["iat"] + 3600
        if not is_right or not is_in_time or SCOPE not in claims["scope"].split():
            raise ApiError(400, "invalid_grant", "Invalid JWT.")
        return self.issue()

    def exchange_foreign(self, form: Mapping[str, str]) -> dict[str, Any]:
        """Issue a token for one of the workload (RFC 8693), as sts.googleapis.com does."""
        if form.get("grant_type") != "urn:ietf:params:oauth:grant-type:token-exchange":
            raise ApiError(400, "invalid_request", "Invalid grant_type.")
        if form.get("audience") != AUDIENCE or SCOPE not in form.get("scope", "").split():
            raise ApiError(400, "invalid_request", 'Invalid value for "audience" or "scope".')
        is_typed = form.get("subject_token_type") == "urn:ietf:params:oauth:token-type:jwt"
        wants = "urn:ietf:params:oauth:token-type:access_token"
        if not is_typed or form.get("requested_token_type") != wants:
            raise ApiError(400, "invalid_request", "Invalid token type.")
        if form.get("subject_token") != self.workload:
            raise ApiError(400, "invalid_grant", "The subject token is not valid.")
        return {**self.issue(), "issued_token_type": wants}

    def impersonate(self, header: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Issue a token of the service account, as iamcredentials.googleapis.com does."""
        self.check(header)
        if SCOPE not in body["scope"] or not body["lifetime"].endswith("s"):
            raise ApiError(400, "invalid", "Request contains an invalid argument.")
        return self.issue_alternative()

    def metadata(self, path: str, headers: Mapping[str, str]) -> str:
        """What the metadata server answers."""
        if headers.get("Metadata-Flavor") != "Google":
            raise ApiError(403, "forbidden", "Missing Metadata-Flavor:Google header.")
        network = f"projects/{NUMBER}/networks/default"
        known = {
            "project/project-id": PROJECT,
            "project/numeric-project-id": NUMBER,
            "instance/zone": f"projects/{NUMBER}/zones/{ZONES[0]}",
            "instance/network-interfaces/0/network": network,
            "instance/hostname": f"manager.c.{PROJECT}.internal",
            "instance/service-accounts/default/token": "",
        }
        if path not in known:
            raise ApiError(404, "notFound", "no such metadata")
        return json.dumps(self.issue()) if path.endswith("/token") else known[path]


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
