"""Call the Compute API: reads, pages, and changes, which are waited for."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from proreus.cloudprovider.credential import Credential
from proreus.cloudprovider.errors import CallTimeout, CloudError, RetryAfter
from proreus.cloudprovider.paging import pages
from proreus.cloudprovider.refused import Reason, Refused
from proreus.cloudprovider.requests import Query, Request, json_body
from proreus.cloudprovider.rest import RestClient
from proreus.providers.gce import errors, metrics
from proreus.providers.gce.config import GCEConfig
from proreus.providers.gce.names import last_part, path_in
from proreus.providers.gce.operations import OPERATIONS, READS

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

T = TypeVar("T")

ENDPOINT: Final = "https://compute.googleapis.com/compute/v1/"
PAGE: Final = 500
"""The most items that a page has."""
ASK_AGAIN: Final = 2.0
"""Seconds until something that is being changed is looked at again."""

_DONE: Final = "DONE"
_UNREACHABLE: Final = "UNREACHABLE"
"""The code of a warning in the place of a zone's items, also where Google answers with 200."""
_WAITS: Final = {"zones": "zoneOperations", "regions": "regionOperations"}


class _Operation(msgspec.Struct, frozen=True, rename="camel"):
    """An operation, as Google answers a change."""

    self_link: str
    status: str
    error: Mapping[str, Any] | None = None
    http_error_status_code: int = 0


class _Page(msgspec.Struct, frozen=True, rename="camel"):
    """A page of a list; an empty one has no items."""

    kind: str
    items: tuple[msgspec.Raw, ...] = ()
    next_page_token: str = ""


class _Warning(msgspec.Struct, frozen=True):
    code: str = ""


class Scope(msgspec.Struct, frozen=True):
    """One part of an aggregated list: a zone; what it lacks may exist if a warning says so."""

    instances: tuple[msgspec.Raw, ...] = ()
    instance_groups: tuple[msgspec.Raw, ...] = msgspec.field(default=(), name="instanceGroups")
    endpoint_groups: tuple[msgspec.Raw, ...] = msgspec.field(
        default=(), name="networkEndpointGroups"
    )
    warning: _Warning = _Warning()


class _Aggregated(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    items: Mapping[str, Scope] = {}
    next_page_token: str = ""
    unreachables: tuple[str, ...] = ()

    @property
    def lacking(self) -> list[str]:
        """The zones that Google could not reach: it says so in either of two places."""
        warned = [name for name, one in self.items.items() if one.warning.code == _UNREACHABLE]
        return sorted({last_part(one) for one in (*warned, *self.unreachables)})


class Listing(msgspec.Struct, frozen=True):
    """The parts of an aggregated list, and the zones that Google could not reach.

    Attributes:
        scopes: The parts.
        pages: The number of pages.
        lacking: The names of the zones that are not in it.
    """

    scopes: Sequence[Scope]
    pages: int
    lacking: frozenset[str] = frozenset()


class Api:
    """A session with the Compute API."""

    def __init__(self, context: "Context", config: GCEConfig, credential: Credential[str]) -> None:
        """Keep the settings of requests; send none yet."""
        self.context = context
        self._operation_timeout = config.client.operation_timeout.total_seconds()
        endpoint = config.global_.api_endpoint or ENDPOINT
        options: dict[str, Any] = {
            "credential": credential,
            "observe": lambda request: metrics.observed(request.name.partition(".")[2]),
            "timeout": config.client.timeout.total_seconds(),
        }
        self._rest = RestClient(context, endpoint, read_error=errors.read_error, **options)
        self._firewalls = RestClient(
            context, endpoint, read_error=errors.read_error_of_firewalls, **options
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._firewalls.close()
        await self._rest.close()

    async def find(self, operation: str, path: str, form: type[T]) -> T | None:
        """Read a resource; None if Google itself says that there is none.

        Args:
            operation: The operation, such as `forwardingRules.get`.
            path: The path, from `projects/` on.
            form: The type that the resource is decoded to.

        Raises:
            CloudError: Google gives no usable answer.
        """
        return await self._client(operation).find(_request(operation, path), form)

    async def get(self, operation: str, path: str, form: type[T]) -> T:
        """Read a resource that must be there.

        Raises:
            CloudError: The resource does not exist, or Google gives no usable answer.
        """
        return await self._client(operation).call(_request(operation, path), form)

    async def listed(
        self,
        operation: str,
        path: str,
        form: type[T],
        query: Query | None = None,
        *,
        body: object = None,
    ) -> list[T]:
        """Read a list, all its pages; some are asked for with a body.

        Raises:
            CloudError: A page could not be read.
        """

        async def page(token: str) -> tuple[Iterable[msgspec.Raw], str]:
            request = _request(operation, path, query=_paged(query, token), body=body)
            found = await self._client(operation).call(request, _Page)
            return found.items, found.next_page_token

        items = await pages(f"compute.{operation}", page)
        return [msgspec.json.decode(one, type=form) for one in items]

    async def aggregated(
        self, operation: str, path: str, query: Query | None = None, *, partial: bool = True
    ) -> Listing:
        """Read all pages of an aggregated list.

        If it may be `partial`, zones that Google cannot reach are left out: what is not in the list
        may exist. Else such a zone is an error.

        Raises:
            CloudError: A page could not be read.
        """
        count, lacking = 0, set[str]()

        async def page(token: str) -> tuple[Iterable[Scope], str]:
            nonlocal count
            count += 1
            more = _paged(query, token)
            if partial:
                more["returnPartialSuccess"] = "true"
            found = await self._rest.call(_request(operation, path, query=more), _Aggregated)
            lacking.update(found.lacking)
            if found.lacking and not partial:
                zones = ", ".join(found.lacking)
                raise CloudError(f"compute.{operation}: Google cannot reach {zones} at present")
            return found.items.values(), found.next_page_token

        scopes = await pages(f"compute.{operation}", page)
        return Listing(scopes, count, frozenset(lacking))

    async def change(
        self, operation: str, path: str, body: object = None, query: Query | None = None
    ) -> None:
        """Make a change and wait until it is done.

        Raises:
            RetryAfter: The change is not done yet, or another change of the resource is under way:
                the result has to be observed.
            CloudError: Google refuses it, or the outcome is unknown.
        """
        request = _request(operation, path, query=query, body=body)
        try:
            begun = await self._client(operation).call(request, _Operation)
        except Refused as error:
            raise _explained(error, operation, path) from error
        await self._finish(operation, begun)

    async def delete(self, operation: str, path: str) -> bool:
        """Delete a resource; return whether there was one.

        Raises:
            CloudError: The deletion failed as described for `change`.
        """
        try:
            await self.change(operation, path)
        except Refused as error:
            if error.is_absence:
                return False
            raise
        return True

    async def _finish(self, operation: str, begun: _Operation) -> None:
        """Wait for an operation by requests that Google answers when it is done."""
        path, name = path_in(begun.self_link), f"compute.{operation}"
        scope = path.split("/")[2] if path else ""
        request = _request(f"{_WAITS.get(scope, 'globalOperations')}.wait", f"{path}/wait")
        request = msgspec.structs.replace(request, read=True, timeout=self._operation_timeout)
        try:
            ended = await self._rest.call(request, _Operation)
        except CallTimeout as error:
            raise RetryAfter(f"{name}: Google still works on it", after=ASK_AGAIN) from error
        if ended.status != _DONE:
            raise RetryAfter(f"{name}: Google still works on it", after=ASK_AGAIN)
        if ended.error is not None:
            found: Sequence[Mapping[str, Any]] = ended.error.get("errors") or ({},)
            raise errors.operation_error(name, ended.http_error_status_code, found)

    def _client(self, operation: str) -> RestClient:
        return self._firewalls if operation.startswith("firewalls.") else self._rest


def _request(
    operation: str, path: str, *, query: Query | None = None, body: object = None
) -> Request:
    """Make the request for an operation of the table."""
    known = OPERATIONS[operation]
    return Request(
        f"compute.{operation}",
        known.method,
        path,
        query=query or {},
        body=None if body is None else json_body(body),
        read=True if operation in READS else None,
        quota=known.quota,
    )


def _paged(query: Query | None, token: str) -> dict[str, str | Sequence[str]]:
    more = {"pageToken": token} if token else {}
    return {**(query or {}), "maxResults": str(PAGE), **more}


def _explained(error: Refused, operation: str, path: str) -> Exception:
    """Return the error to raise for a refusal: `RetryAfter` if the object changes just now."""
    is_known_now = error.code == errors.EXISTS and operation.endswith(".insert")
    has_changed = error.reason is Reason.PRECONDITION_FAILED
    if is_known_now or has_changed or error.code == errors.NOT_READY:
        return RetryAfter(
            f"compute.{operation}: {path} is being changed: {error.text}", after=ASK_AGAIN
        )
    return error
