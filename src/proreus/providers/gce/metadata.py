"""Ask the metadata server of this machine: for its project, zone and network, and for tokens."""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from proreus.cloudprovider.credential import Issued
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.requests import Request
from proreus.cloudprovider.rest import RestClient
from proreus.providers.gce.names import last_part

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

VARIABLE_HOST: Final = "GCE_METADATA_HOST"
"""The environment variable that names another metadata server, as in Google's libraries."""
HOST: Final = "169.254.169.254"
HEADERS: Final[Mapping[str, str]] = {"Metadata-Flavor": "Google"}
TIMEOUT: Final = 10.0

_REMEDY: Final = "give project-id, local-zone and network-name in [Global] of the cloud-config"


class OAuthToken(msgspec.Struct, frozen=True):
    """A token as OAuth issues it (RFC 6749)."""

    access_token: str
    expires_in: int


class Metadata:
    """The metadata server."""

    def __init__(self, context: "Context", *, timeout: float = TIMEOUT) -> None:
        """Keep the address; ask nothing yet."""
        host = os.environ.get(VARIABLE_HOST, "") or HOST
        self._now = context.now
        self._rest = RestClient(
            context,
            f"http://{host}/computeMetadata/v1",
            headers=HEADERS,
            timeout=timeout,
            proxies=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._rest.close()

    async def project(self) -> str:
        """Return the name of the project."""
        return await self._text("project/project-id")

    async def zone(self) -> str:
        """Return the zone of this machine."""
        return last_part(await self._text("instance/zone"))

    async def network(self) -> str:
        """Return the name of the network of this machine's first interface."""
        return last_part(await self._text("instance/network-interfaces/0/network"))

    async def token(self) -> Issued[str]:
        """Have a token issued for the account of this machine, or of this pod.

        Raises:
            CloudError: The metadata server gives none.
        """
        request = Request(
            "metadata.token", "GET", "instance/service-accounts/default/token", quota="metadata"
        )
        found = await self._rest.call(request, OAuthToken)
        return Issued(found.access_token, self._now() + timedelta(seconds=found.expires_in))

    async def _text(self, path: str) -> str:
        request = Request("metadata.get", "GET", path, quota="metadata")
        try:
            text = (await self._rest.send(request)).text().strip()
        except CloudError as error:
            raise CloudError(
                f"the metadata server does not give {path}: {error}; {_REMEDY}"
            ) from error
        if not text or "<" in text:
            raise CloudError(f"the metadata server does not give {path}; {_REMEDY}")
        return text
