"""Call OpenStack: tokens of keystone, version 3, and the endpoints of its catalog.

Of openstacksdk only what reads an answer of keystone is used: its resources would hide requests
from the framework's quota (discovery of versions, pages, repetitions, tokens).
"""

from typing import TYPE_CHECKING, Any

from keystoneauth1 import exceptions
from keystoneauth1.access import AccessInfoV3

from proreus.cloudprovider.credential import Issued
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.requests import Request, json_body
from proreus.cloudprovider.rest import USER_AGENT, configured_tls
from proreus.providers.nova.errors import read_error
from proreus.providers.nova.services import Services
from proreus.providers.openstack import metrics
from proreus.providers.openstack.credentials import Login, auth_body, auth_url

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

_SERVICES = {
    "cinder": "block-storage",
    "nova": "compute",
    "neutron": "network",
    "octavia": "load-balancer",
}
_VERSIONS = {"neutron": "v2.0", "octavia": "v2.0"}
"""Services whose endpoint has no version in most catalogs."""


def user_agent_part(text: str) -> str:
    """Return a valid part of the User-Agent, such as "cluster/abc-123".

    Raises:
        ValueError: The text cannot be in a header.
    """
    if not text.strip() or not (text.isascii() and text.isprintable()):
        raise ValueError("must be printable ASCII, such as cluster/abc-123")
    return text.strip()


class Api(Services[AccessInfoV3]):
    """A session with the services of one region of an OpenStack."""

    def __init__(self, login: Login, context: "Context", *, timeout: float) -> None:
        """Keep login and context; send nothing yet.

        Args:
            login: The credentials, and where the services are.
            context: The framework's gate.
            timeout: Seconds to wait for a connection, and for an answer.

        Raises:
            ConfigError: A certificate or key file cannot be used.
        """
        self._login = login
        # The last one given comes first, as officially.
        more = reversed(context.flags.get("user-agent", ()))
        options: dict[str, Any] = {
            "headers": {"User-Agent": " ".join((*more, USER_AGENT))},
            "read_error": read_error,
            "observe": lambda request: metrics.observed(request.name.partition(".")[2]),
            "timeout": timeout,
            "tls": configured_tls(
                ca_file=login.ca_file,
                cert_file=login.cert_file,
                key_file=login.key_file,
                verify=login.verify,
            ),
        }
        super().__init__(context, auth_url(login.auth), lambda access: access.auth_token, options)

    @property
    def region(self) -> str:
        """The region, or "" where none is named."""
        return self._login.region

    async def project(self) -> str:
        """Return the id of the credentials' project; "" where the token is of none.

        Raises:
            CloudError: No token is issued.
        """
        return str((await self.credential.get()).project_id or "")

    async def _authenticate(self) -> Issued[AccessInfoV3]:
        request = Request(
            "keystone.token_create",
            "POST",
            "auth/tokens",
            body=json_body(auth_body(self._login.auth)),
            read=True,
            quota="keystone",
        )
        answer = await self._identity.send(request)
        try:
            access = AccessInfoV3(
                auth_token=answer.headers["X-Subject-Token"], body=answer.json(dict[str, Any])
            )
            return Issued(access, access.expires)
        except (KeyError, TypeError, ValueError) as error:
            raise CloudError(
                f"{request.name}: the answer has no token: is auth-url in [Global] that "
                "of keystone?"
            ) from error

    def _endpoint(self, service: str, access: AccessInfoV3) -> str:
        """Return the endpoint of a service, with its version.

        Raises:
            CloudError: The catalog has no such endpoint.
        """
        kind, login = _SERVICES[service], self._login
        url = login.overrides.get(kind, "")
        if not url:
            try:
                url = access.service_catalog.url_for(
                    service_type=kind,
                    interface=login.interface,
                    region_name=login.region or None,
                )
            except exceptions.CatalogException as error:
                raise CloudError(
                    f"the catalog has no {login.interface} endpoint for {kind} in region"
                    f" {login.region or '(any)'}: check region and os-endpoint-type in [Global]"
                ) from error
        url = url.rstrip("/")
        version = _VERSIONS.get(service, "")
        return url if url.endswith(f"/{version}") or not version else f"{url}/{version}"
