"""Call the APIs of Baidu AI Cloud: signed requests, lists in pages.

Each creation bears a token. One whose outcome is not known is sent again with the same token, so
that the cloud makes nothing twice.
"""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

import msgspec

from proreus.cloudprovider.errors import CloudError, Throttled, Unauthenticated
from proreus.cloudprovider.paging import pages
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.requests import Request, json_body
from proreus.cloudprovider.rest import RestClient, configured_tls
from proreus.providers.baidu.config import BaiduConfig
from proreus.providers.baidu.errors import read_error
from proreus.providers.baidu.operations import OPERATIONS
from proreus.providers.baidu.signing import Signable, signed_headers

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

Described = Mapping[str, Any]
"""An object as the cloud describes it."""

PAGE: Final = 1000
"""The most objects of a page."""
TOKEN_SECONDS: Final = 600.0
"""For how long a creation without an answer keeps its token."""
_SERVER_ERROR: Final = 500


class Call(msgspec.Struct, frozen=True):
    """A call of an operation.

    Attributes:
        operation: The name of the operation in the table.
        ids: The ids that are part of the operation's path.
        query: The parameters of the query.
        body: The body that is sent as JSON; None for nothing.
    """

    operation: str
    ids: tuple[str, ...] = ()
    query: Mapping[str, str] = {}
    body: Mapping[str, Any] | None = None


class Api:
    """A session with the APIs of one region of Baidu AI Cloud."""

    def __init__(self, config: BaiduConfig, context: "Context") -> None:
        """Keep settings and context, and read the key; send nothing yet.

        Raises:
            ConfigError: A file that the cloud-config names cannot be used.
        """
        self._context = context
        self._credentials = config.credentials()
        self._region = config.region
        self._endpoint = config.api_endpoint.rstrip("/")
        self._tokens: dict[bytes, tuple[float, str]] = {}
        timeout = config.timeout.total_seconds()
        self._client = RestClient(
            context,
            self._endpoint,
            sign=self._signed,
            read_error=read_error,
            timeout=timeout,
            connect_timeout=timeout,
            tls=configured_tls(ca_file=config.ca_file),
        )

    @property
    def context(self) -> "Context":
        """The provider's context."""
        return self._context

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def send(self, call: Call) -> Described:
        """Make a call; return its answer.

        Raises:
            CloudError: The cloud refuses, or does not answer; without an answer the outcome is
                unknown.
        """
        request = self._request(call)
        if OPERATIONS[call.operation].method != "POST":
            return await self._client.call(request, dict[str, Any])
        key = msgspec.json.encode(call)
        request = request.with_query(clientToken=self._token(key))
        try:
            answer = await self._client.call(request, dict[str, Any])
        except CloudError as error:
            if _is_answer(error):
                self._tokens.pop(key, None)
            raise
        self._tokens.pop(key, None)
        return answer

    def forget(self, operation: str, mark: str) -> None:
        """Forget the tokens of creations that are known to have had their effect.

        The cloud would answer the next one by what it made then, which may be anybody's by now.

        Args:
            operation: The operation that creates.
            mark: The text that its calls hold, such as the UID of a Service.
        """
        parts = f'"{operation}"'.encode(), mark.encode()
        self._tokens = {
            key: known
            for key, known in self._tokens.items()
            if not all(part in key for part in parts)
        }

    async def find(self, call: Call) -> Described | None:
        """Make a call as `send` does; None if the cloud says that there is no such object."""
        return await self._client.find(self._request(call), dict[str, Any])

    async def listed(self, operation: str, kind: str, *ids: str, **query: str) -> list[Described]:
        """Return all objects of a list, from all pages.

        Args:
            operation: The name of the operation in the table, such as "listEips".
            kind: The name of the list in the answer, such as "eipList".
            ids: The ids that are part of the operation's path.
            query: The parameters that select the objects.

        Raises:
            CloudError: A page could not be read.
        """
        first = Call(operation, ids, {**query, "maxKeys": str(PAGE)})

        async def page(marker: str) -> tuple[Sequence[Described], str]:
            more = {"marker": marker} if marker else {}
            call = msgspec.structs.replace(first, query={**first.query, **more})
            answer = await self.send(call)
            items = answer.get(kind)
            if not isinstance(items, list):
                # A proxy's `{}` must not pass for a list without anything in it.
                raise CloudError(f"baidu.{operation}: the answer has no {kind}")
            following = str(answer.get("nextMarker") or "") if answer.get("isTruncated") else ""
            if answer.get("isTruncated") and not following:
                raise CloudError(
                    f"baidu.{operation}: a page is not the last, but has no nextMarker"
                )
            return items, following

        return await pages(f"baidu.{operation}", page)

    def _token(self, key: bytes) -> str:
        """Return the token of a creation: a new one, unless an earlier try had no answer."""
        now = asyncio.get_running_loop().time()
        self._tokens = {one: known for one, known in self._tokens.items() if known[0] > now}
        return self._tokens.setdefault(key, (now + TOKEN_SECONDS, str(uuid.uuid4())))[1]

    def _request(self, call: Call) -> Request:
        operation = OPERATIONS[call.operation]
        path = operation.path.format(*(quote(id_, safe="") for id_ in call.ids))
        host = self._endpoint or f"https://{operation.service}.{self._region}.baidubce.com"
        query = {**({operation.flag: ""} if operation.flag else {}), **call.query}
        return Request(
            f"baidu.{call.operation}",
            operation.method,
            f"{host}{path}",
            query,
            None if call.body is None else json_body(call.body),
            read=operation.is_read,
            quota=operation.service,
        )

    def _signed(self, request: Request) -> Request:
        url = urlsplit(request.url)
        query = {name: str(value) for name, value in request.query.items()}
        whole = Signable(request.method, url.netloc, unquote(url.path), query)
        return request.with_headers(signed_headers(whole, self._credentials, self._context.now()))


def _is_answer(error: CloudError) -> bool:
    """Tell whether an error says that nothing was made."""
    if isinstance(error, Refused):
        return 0 < error.status < _SERVER_ERROR
    return isinstance(error, Throttled | Unauthenticated)
