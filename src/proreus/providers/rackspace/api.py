"""Call Rackspace: tokens of its identity, and the endpoints of its catalog."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from proreus.cloudprovider.credential import Issued
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.requests import Request, json_body
from proreus.cloudprovider.rest import configured_tls
from proreus.providers.nova.services import Services
from proreus.providers.rackspace.config import RackspaceConfig
from proreus.providers.rackspace.errors import read_error
from proreus.providers.rackspace.identity import (
    SERVICES,
    Access,
    Answer,
    auth_body,
    check_region,
    endpoint,
    identity_url,
)

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context


class Api(Services[Access]):
    """A session with Rackspace's services in one region, as one account."""

    def __init__(self, config: RackspaceConfig, context: "Context") -> None:
        """Keep the settings; send nothing yet.

        Raises:
            ConfigError: A certificate or key file cannot be used.
        """
        self._settings = config.global_
        options: Mapping[str, Any] = {
            "read_error": read_error,
            "timeout": config.client.timeout.total_seconds(),
            "tls": configured_tls(ca_file=config.client.ca_file),
        }
        url = identity_url(config.global_)
        super().__init__(context, url, lambda access: access.token.id, options)

    @property
    def region(self) -> str:
        """The region."""
        return self._settings.region

    async def connect(self) -> None:
        """Get a token, so that wrong credentials and a wrong region are reported at once.

        Raises:
            ConfigError: The account has no such region.
            CloudError: No token is issued.
        """
        check_region(await self.credential.get(), self.region)

    async def _authenticate(self) -> Issued[Access]:
        request = Request(
            "identity.token_create",
            "POST",
            "tokens",
            body=json_body(auth_body(self._settings)),
            read=True,
            quota="identity",
        )
        answer = await self._identity.send(request)
        try:
            access = answer.json(Answer).access
        except CloudError as error:
            raise CloudError(
                f"{request.name}: the answer has no token: is auth-url in [Global] that of"
                " Rackspace's identity?"
            ) from error
        return Issued(access, access.token.expires)

    def _endpoint(self, service: str, access: Access) -> str:
        return endpoint(access, SERVICES[service], self.region)
