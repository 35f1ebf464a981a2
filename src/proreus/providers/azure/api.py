"""Call Azure Resource Manager: ids, versions, pages, ETags and long-running operations.

Links in answers (`nextLink`, `Azure-AsyncOperation`, `Location`) are followed with their path and
query only: the token goes to no other host than the one that the cloud-config names.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from proreus.cloudprovider.credential import Credential, bearer
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.load_balancers import Pending
from proreus.cloudprovider.operations import finished
from proreus.cloudprovider.paging import pages
from proreus.cloudprovider.refused import Refused, cloud_error, retry_after
from proreus.cloudprovider.requests import Answer, Request, json_body
from proreus.cloudprovider.rest import USER_AGENT, RestClient
from proreus.providers.azure import operations
from proreus.providers.azure.config import AzureConfig
from proreus.providers.azure.credentials import Tokens, find_cloud
from proreus.providers.azure.errors import error_body, read_error, resets_after
from proreus.providers.azure.operations import API_VERSIONS, STACK_VERSIONS, Operation

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

PATIENCE: Final = 25.0
"""Seconds that a verb waits for an operation; longer ones are found at the next try."""
_LATER: Final = 5.0
_QUERY_TIMEOUT: Final = 10.0
_DONE: Final = "succeeded"
_WORKING: Final = frozenset({"inprogress", "accepted", "running", "updating", "creating"})

Poll = Callable[[], Awaitable[Pending | None]]
Resource = dict[str, Any]
"""A resource, as Azure shows it: what is not read is kept as it is."""


class _Page(msgspec.Struct, rename="camel"):
    value: list[Resource]
    next_link: str | None = None


class RowsPage(msgspec.Struct, frozen=True):
    """A page of rows of Azure Resource Graph.

    Attributes:
        rows: The rows.
        token: The token of the next page; "" if it is the last.
        wait: Seconds until the quota allows another query.
    """

    rows: list[Resource]
    token: str = ""
    wait: float = 0.0


class _Rows(msgspec.Struct):
    data: list[Resource]
    skip_token: str | None = msgspec.field(default=None, name="$skipToken")


class _Failure(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    status: str
    error: _Failure | None = None


class Waiting(CloudError):
    """The signal that Azure still works on a change."""

    def __init__(self, pending: Pending) -> None:
        """Keep when to ask again."""
        super().__init__(pending.reason)
        self.pending = pending


class Arm:
    """A session with Azure Resource Manager, as one identity."""

    def __init__(self, config: AzureConfig, context: "Context", *, timeout: float = 60.0) -> None:
        """Keep the settings; send nothing yet."""
        self._config = config
        self._context = context
        agent = " ".join(filter(None, (config.user_agent, USER_AGENT)))
        self._options: dict[str, Any] = {
            "headers": {"User-Agent": agent},
            "read_error": read_error,
            "timeout": timeout,
        }
        is_local = config.use_managed_identity_extension
        self._login = RestClient(context, **self._options)
        # A machine's own identity is asked for on its link, where no proxy is.
        self._identity = RestClient(context, proxies=not is_local, **self._options)
        self._client: RestClient | None = None

    @property
    def config(self) -> AzureConfig:
        """The cloud-config."""
        return self._config

    @property
    def context(self) -> "Context":
        """The provider's context, through which every call goes."""
        return self._context

    async def connect(self) -> None:
        """Find the cloud and get tokens, so that wrong credentials are reported at once.

        Raises:
            CloudError: No token is issued.
        """
        tokens = Tokens(self._config, self._identity, self._config.tenant_id)
        now = self._context.now
        cloud = await find_cloud(self._config, self._login)
        credential = Credential(lambda: tokens.issue(cloud, now()), now=now, headers=bearer)
        self._client = RestClient(
            self._context, cloud.manager, credential=credential, **self._options
        )
        await credential.get()

    async def close(self) -> None:
        """Close the connections."""
        for client in (self._client, self._identity, self._login):
            if client is not None:
                await client.close()

    @property
    def _rest(self) -> RestClient:
        if self._client is None:
            raise CloudError("the provider azure is not connected")
        return self._client

    async def get(
        self, operation: Operation, id_: str, query: Mapping[str, str] | None = None
    ) -> Resource:
        """Read a resource.

        Raises:
            CloudError: The request failed (see the module `errors`), or something else than Azure
                has answered.
        """
        request = self._request(operation, "GET", id_, query)
        return _checked(operation, await self._rest.call(request, Resource))

    async def find(
        self, operation: Operation, id_: str, query: Mapping[str, str] | None = None
    ) -> Resource | None:
        """Read a resource; None if Azure says that there is none of that id."""
        found = await self._rest.find(self._request(operation, "GET", id_, query), Resource)
        return None if found is None else _checked(operation, found)

    async def ask(self, operation: Operation, id_: str, query: Mapping[str, str]) -> Resource:
        """Ask something about a resource; the answer is none.

        Raises:
            CloudError: The request failed; the module `errors` says what each error means.
        """
        return await self._rest.call(self._request(operation, "GET", id_, query), Resource)

    async def listed(
        self, operation: Operation, id_: str, query: Mapping[str, str] | None = None
    ) -> list[Resource]:
        """Read all pages of a list.

        Raises:
            CloudError: A page could not be read, so nothing is returned.
        """

        async def page(link: str) -> tuple[list[Resource], str]:
            request = self._request(operation, "GET", link or id_, query)
            if link:
                request = msgspec.structs.replace(request, url=_below(link), query={})
            found = await self._rest.call(request, _Page)
            return found.value, found.next_link or ""

        return await pages(operation.name, page)

    async def query(self, query: str, token: str = "") -> RowsPage:
        """Read a page of the rows of Azure Resource Graph that a query finds.

        Rows that the identity may not read are left out, and no row is newer than the graph.

        Args:
            query: The query, in the language of Azure Resource Graph.
            token: The token of the page, as the page before has it; "" for the first one.

        Raises:
            CloudError: The request failed; the module `errors` says what each error means.
        """
        operation = operations.GRAPH_QUERY
        options = {"resultFormat": "objectArray", **({"$skipToken": token} if token else {})}
        asked = {
            "subscriptions": [self._config.subscription_id],
            "query": query,
            "options": options,
        }
        request = self._request(operation, "POST", f"/providers/{operation.kind}")
        sent = msgspec.structs.replace(
            request, body=json_body(asked), read=True, timeout=_QUERY_TIMEOUT
        )
        answer = await self._rest.send(sent)
        found = answer.json(_Rows)
        is_spent = answer.headers.get("x-ms-user-quota-remaining") == "0"
        wait = resets_after(answer.headers) if is_spent else None
        return RowsPage(found.data, found.skip_token or "", wait or 0.0)

    async def put(
        self, operation: Operation, id_: str, body: Resource, *, etag: str = ""
    ) -> Resource:
        """Write a resource and wait until Azure has done it.

        Args:
            operation: The operation to call.
            id_: The id of the resource.
            body: The whole body of the resource.
            etag: The ETag that the resource must still have to be written; "*": it must exist; "":
                it is written in any case.

        Raises:
            Waiting: Azure works on it for longer than a verb waits.
            CloudError: The request failed (see the module `errors`); `PRECONDITION_FAILED` where
                the ETag is another one.
        """
        headers = {"If-Match": etag} if etag else {}
        request = self._request(operation, "PUT", id_)
        request = msgspec.structs.replace(request, body=json_body(body), headers=headers)
        answer = await self._rest.send(request)
        await self._finish(operation, answer)
        return answer.json(Resource)

    async def delete(self, operation: Operation, id_: str) -> bool:
        """Delete a resource and wait until it is gone; return whether it was there.

        Raises:
            Waiting: Azure works on it for longer than a verb waits.
            CloudError: The request failed; the module `errors` says what each error means.
        """
        try:
            answer = await self._rest.send(self._request(operation, "DELETE", id_))
        except Refused as error:
            if error.is_absence:
                return False
            raise
        # Nothing is gone because the operation failed, or is not known any more.
        await self._finish(operation, answer)
        return answer.status != _NO_CONTENT

    def _request(
        self, operation: Operation, method: str, id_: str, query: Mapping[str, str] | None = None
    ) -> Request:
        config = self._config
        versions = STACK_VERSIONS if config.is_stack else API_VERSIONS
        version = operation.version or versions[operation.namespace]
        return Request(
            operation.name, method, quote(id_, safe="/"), {"api-version": version, **(query or {})},
            quota=operation.namespace,
        )  # fmt: skip

    async def _finish(self, operation: Operation, answer: Answer) -> None:
        """Wait for the end of a long-running operation, if it is one.

        Raises:
            Waiting: The operation takes longer than a verb waits.
            CloudError: The operation has failed.
        """
        link = answer.headers.get("Azure-AsyncOperation", "")
        location = answer.headers.get("Location", "")
        if answer.status == _OK and not link:
            return
        if not link and (answer.status != _ACCEPTED or not location):
            return
        after = retry_after(answer.headers, self._context.now()) or 0.0
        poll = self._asked(operation, link) if link else self._located(operation, location)
        waits = after > 0

        async def ask() -> Pending | None:
            nonlocal waits
            if waits:
                waits = False
                return Pending(after, f"{operation.name}: Azure works on it")
            return await poll()

        found = await finished(ask, patience=PATIENCE)
        if isinstance(found, Pending):
            raise Waiting(msgspec.structs.replace(found, after=max(found.after, _LATER)))

    def _asked(self, operation: Operation, link: str) -> Poll:
        request = self._poll(operation, link)

        async def poll() -> Pending | None:
            answer = await self._rest.send(request)
            said = answer.json(_Status)
            status = said.status.lower()
            if status == _DONE:
                return None
            if status in _WORKING:
                return self._working(operation, answer)
            failure = said.error or _Failure()
            parsed = error_body(failure.code or said.status, failure.message or said.status)
            raise cloud_error(operation.name, 0, parsed)

        return poll

    def _located(self, operation: Operation, link: str) -> Poll:
        request = self._poll(operation, link)

        async def poll() -> Pending | None:
            answer = await self._rest.send(request)
            return self._working(operation, answer) if answer.status == _ACCEPTED else None

        return poll

    def _poll(self, operation: Operation, link: str) -> Request:
        return Request(
            f"{operation.name.partition('.')[0]}.operation_get", "GET", _below(link),
            quota=operation.namespace,
        )  # fmt: skip

    def _working(self, operation: Operation, answer: Answer) -> Pending:
        after = retry_after(answer.headers, self._context.now()) or 0.0
        return Pending(after, f"{operation.name}: Azure works on it")


_OK, _ACCEPTED, _NO_CONTENT = 200, 202, 204


def _checked(operation: Operation, found: Resource) -> Resource:
    """Return an answer that is a resource.

    Raises:
        CloudError: The answer is something else.
    """
    if not isinstance(found.get("id"), str):
        raise CloudError(f"{operation.name}: the answer is not a resource: it has no id")
    return found


def _below(link: str) -> str:
    """Return path and query of a link.

    Raises:
        CloudError: The link has no path.
    """
    parts = urlsplit(link)
    if not parts.path.startswith("/"):
        raise CloudError("a link in an answer of Azure has no path")
    return f"{parts.path}?{parts.query}" if parts.query else parts.path
