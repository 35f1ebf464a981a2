"""Call OpenStack through the framework's client: tokens, endpoints, pages and checks.

Of openstacksdk only what reads an answer of keystone is used: its resources would hide requests
from the framework's quota (discovery of versions, pages, repetitions, tokens). keystone is asked
for a token by a call of its own, five minutes before the last one ends, or when a service refuses
it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from keystoneauth1 import exceptions
from keystoneauth1.access import AccessInfoV3

from proreus.cloudprovider.credential import Credential, Issued
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.paging import pages
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.requests import Query, Request, json_body
from proreus.cloudprovider.rest import USER_AGENT, RestClient, tls_context
from proreus.providers.openstack import metrics
from proreus.providers.openstack.credentials import Login, auth_body, auth_url
from proreus.providers.openstack.errors import read_error

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

T = TypeVar("T")
Answer = Mapping[str, Any]
"""The body of an answer."""
Parameters = Query
"""Parameters of a query; a sequence repeats its name, which Neutron takes as a choice."""

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
        ValueError: No header can hold it.
    """
    if not text.strip() or not (text.isascii() and text.isprintable()):
        raise ValueError("must be printable ASCII, such as cluster/abc-123")
    return text.strip()


class Api:
    """A session with one region of one cloud."""

    def __init__(self, login: Login, context: "Context", *, timeout: float) -> None:
        """Keep login and context; send nothing yet.

        Args:
            login: With which credentials, and where.
            context: The framework's gate.
            timeout: Seconds for a connection, and for an answer.

        Raises:
            ConfigError: A file of TLS cannot be used.
        """
        self._login = login
        self._context = context
        # The last one given comes first, as officially.
        more = reversed(context.flags.get("user-agent", ()))
        options: dict[str, Any] = {
            "headers": {"User-Agent": " ".join((*more, USER_AGENT))},
            "read_error": read_error,
            "observe": lambda request: metrics.observed(request.name.partition(".")[2]),
            "timeout": timeout,
            "tls": tls_context(
                ca_file=login.ca_file,
                cert_file=login.cert_file,
                key_file=login.key_file,
                verify=login.verify,
            ),
        }
        self.credential: Credential[AccessInfoV3] = Credential(
            self._authenticate,
            now=context.now,
            headers=lambda access: {"X-Auth-Token": access.auth_token},
        )
        self._keystone = RestClient(context, auth_url(login.auth), **options)
        self._rest = RestClient(context, credential=self.credential, **options)

    @property
    def context(self) -> "Context":
        """The provider's context, through which every call goes."""
        return self._context

    @property
    def region(self) -> str:
        """The region, or "" where none is named."""
        return self._login.region

    async def connect(self) -> None:
        """Get a token, so that wrong credentials are reported at once.

        Raises:
            CloudError: There is none to be had.
        """
        await self.credential.get()

    async def get(self, service: str, operation: str, path: str, field: str) -> Answer:
        """Read an object: what stands in `field` of the answer.

        Args:
            service: cinder, nova, neutron or octavia.
            operation: The official metrics' word, such as server_get.
            path: Below the version, without a slash in front.
            field: Such as server.

        Raises:
            CloudError: See `errors`. Or something else than the service has answered.
        """
        answer = await self._call(service, operation, "GET", path)
        return _checked(f"{service}.{operation}", answer, field, dict)

    async def change(
        self,
        service: str,
        operation: str,
        method: str,
        path: str,
        body: Answer | None = None,
        *,
        revision: int | None = None,
    ) -> Answer:
        """Send a change and return the answer as `get` does. It is never repeated.

        Args:
            service: cinder, nova, neutron or octavia.
            operation: The official metrics' word.
            method: POST, PUT or DELETE.
            path: Below the version.
            body: What is sent.
            revision: Only if Neutron's object still has this revision; else 412.

        Raises:
            CloudError: See `errors`.
        """
        headers = {} if revision is None else {"If-Match": f"revision_number={revision}"}
        return await self._call(service, operation, method, path, body=body, headers=headers)

    async def pages(
        self,
        service: str,
        operation: str,
        path: str,
        field: str,
        parameters: Parameters | None = None,
    ) -> tuple[list[Answer], int]:
        """Read all pages of a list; return what stands in `field`, and the number of pages.

        Raises:
            CloudError: A page could not be had, so nothing is returned.
        """
        name, count = f"{service}.{operation}", 0

        async def page(marker: str) -> tuple[list[Answer], str]:
            nonlocal count
            count += 1
            query = {**(parameters or {}), **({"marker": marker} if marker else {})}
            answer = await self._call(service, operation, "GET", path, query=query)
            return _checked(name, answer, field, list), _marker(answer.get(f"{field}_links") or ())

        return await pages(name, page), count

    async def find(self, service: str, operation: str, path: str, field: str) -> Answer | None:
        """Read one thing as `get` does; None if there is none."""
        try:
            return await self.get(service, operation, path, field)
        except Refused as error:
            if error.is_absence:
                return None
            raise

    async def listed(
        self,
        service: str,
        operation: str,
        path: str,
        field: str,
        parameters: Parameters | None = None,
    ) -> list[Answer]:
        """Return all objects of a list, from all its pages."""
        return (await self.pages(service, operation, path, field, parameters))[0]

    async def delete(self, service: str, operation: str, path: str) -> None:
        """Delete something; what is gone already is no error."""
        try:
            await self.change(service, operation, "DELETE", path)
        except Refused as error:
            if not error.is_absence:
                raise

    async def close(self) -> None:
        """Close the connections."""
        await self._rest.close()
        await self._keystone.close()

    async def _call(
        self,
        service: str,
        operation: str,
        method: str,
        path: str,
        *,
        query: Parameters | None = None,
        body: Answer | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        endpoint = self._endpoint(service, await self.credential.get())
        request = Request(
            f"{service}.{operation}",
            method,
            f"{endpoint}/{path}",
            query=query or {},
            body=None if body is None else json_body(body),
            headers=headers or {},
            quota=service,
        )
        return await self._rest.call(request, dict[str, Any])

    async def _authenticate(self) -> Issued[AccessInfoV3]:
        request = Request(
            "keystone.token_create",
            "POST",
            "auth/tokens",
            body=json_body(auth_body(self._login.auth)),
            read=True,
            quota="keystone",
        )
        answer = await self._keystone.send(request)
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
            CloudError: The catalog has none.
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


def _marker(links: Sequence[Mapping[str, str]]) -> str:
    """Return the marker of the next page; "" on the last one."""
    for link in links:
        if link.get("rel") == "next":
            return parse_qs(urlsplit(link.get("href", "")).query).get("marker", [""])[0]
    return ""


def _checked(name: str, answer: Answer, field: str, kind: type[T]) -> T:
    """Return the value of a field of this type; a proxy may answer anything."""
    found = answer.get(field)
    if not isinstance(found, kind):
        raise CloudError(f"{name}: the answer has no {field}: is the endpoint that of the service?")
    return found
