"""Call the services of one region through the framework's client: tokens, pages and checks.

A cloud says how a token is issued and where its services are; what is asked, and what is a good
answer, is the same for all. Requests are repeated by nobody, so that each counts against the
framework's quota. The token is asked for by a call of its own, five minutes before the last one
ends, or when a service refuses it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import parse_qs, urlsplit

from proreus.cloudprovider.credential import Credential, Issued
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.paging import pages
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.requests import Query, Request, json_body
from proreus.cloudprovider.rest import RestClient

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

Access = TypeVar("Access")
T = TypeVar("T")
Answer = Mapping[str, Any]
"""The body of an answer."""
Parameters = Query
"""Parameters of a query; a sequence repeats its name, which Neutron takes as a choice."""


class Services(ABC, Generic[Access]):
    """A session with one region of one cloud; `Access` is what identity answers."""

    def __init__(
        self,
        context: "Context",
        identity: str,
        token: Callable[[Access], str],
        options: Mapping[str, Any],
    ) -> None:
        """Keep the settings; send nothing yet.

        Args:
            context: The framework's gate.
            identity: The URL of the identity service.
            token: Returns the token in the identity service's answer.
            options: The options of `RestClient`, the same for all services.

        Raises:
            ConfigError: A certificate or key file cannot be used.
        """
        self._context = context
        self.credential: Credential[Access] = Credential(
            self._authenticate,
            now=context.now,
            headers=lambda access: {"X-Auth-Token": token(access)},
        )
        self._identity = RestClient(context, identity, **options)
        self._rest = RestClient(context, credential=self.credential, **options)

    @property
    def context(self) -> "Context":
        """The provider's context, through which every call goes."""
        return self._context

    @abstractmethod
    async def _authenticate(self) -> Issued[Access]:
        """Have a token issued, by a request of `_identity`."""

    @abstractmethod
    def _endpoint(self, service: str, access: Access) -> str:
        """Return the URL of a service, with its version; a CloudError if the catalog has none."""

    async def connect(self) -> None:
        """Get a token, so that wrong credentials are reported at once.

        Raises:
            CloudError: No token is issued.
        """
        await self.credential.get()

    async def get(self, service: str, operation: str, path: str, field: str) -> Answer:
        """Read an object: the field `field` of the answer.

        Args:
            service: The service by this cloud's word, such as nova.
            operation: The operation by the official metrics' word, such as server_get.
            path: The path below the version, without a slash in front.
            field: The field of the answer, such as server.

        Raises:
            CloudError: The request failed (see the module `errors`), or something else than the
                service has answered.
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
            service: The service by this cloud's word, such as nova.
            operation: The operation by the official metrics' word.
            method: The HTTP method: POST, PUT or DELETE.
            path: The path below the version.
            body: The body that is sent.
            revision: The revision that Neutron's object must still have; else it answers 412.

        Raises:
            CloudError: The request failed; the module `errors` says what each error means.
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
            CloudError: A page could not be read, so nothing is returned.
        """
        name, count = f"{service}.{operation}", 0

        async def page(marker: str) -> tuple[list[Answer], str]:
            nonlocal count
            count += 1
            query = {**(parameters or {}), **({"marker": marker} if marker else {})}
            answer = await self._call(service, operation, "GET", path, query=query)
            return _checked(name, answer, field, list), _marker(answer.get(f"{field}_links") or ())

        return await pages(name, page), count

    async def first_page(
        self, service: str, operation: str, path: str, field: str, *, version: str
    ) -> list[Answer]:
        """Read the first page of a list as a microversion of the service has it.

        Raises:
            CloudError: The page could not be read.
        """
        headers = {"OpenStack-API-Version": version}
        answer = await self._call(service, operation, "GET", path, headers=headers)
        return _checked(f"{service}.{operation}", answer, field, list)

    async def find(self, service: str, operation: str, path: str, field: str) -> Answer | None:
        """Read an object as `get` does; None if there is none."""
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

    async def delete(
        self, service: str, operation: str, path: str, *, revision: int | None = None
    ) -> None:
        """Delete an object, of a `revision` as in `change`; one that is gone is no error."""
        try:
            await self.change(service, operation, "DELETE", path, revision=revision)
        except Refused as error:
            if not error.is_absence:
                raise

    async def close(self) -> None:
        """Close the connections."""
        await self._rest.close()
        await self._identity.close()

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
