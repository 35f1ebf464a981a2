"""Read and change objects of one kind by HTTP: all at one URL, each by its name below."""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from proreus.cloudprovider.paging import pages
from proreus.cloudprovider.requests import Form, Request, json_body
from proreus.cloudprovider.rest import RestClient

T = TypeVar("T")
Page = TypeVar("Page")


class Collection(Generic[T]):
    """A client for the objects of one kind, as JSON: it reads, makes, changes and deletes them.

    The requests are named after the URL, such as "balancers.get" and "balancers.list".
    """

    def __init__(
        self,
        client: RestClient,
        url: str,
        form: Form[T],
        page: Form[Page],
        read: Callable[[Page], tuple[Iterable[T], str]],
        *,
        marker: str = "",
    ) -> None:
        """Keep the client, the URL and the forms of answers; no request is sent yet.

        Args:
            client: The client that sends the requests.
            url: The URL of the collection, below the client's endpoint; each object is at URL/NAME.
            form: The type that an object is decoded to.
            page: The type that a page of a list is decoded to. Its fields must have no defaults, or
                an empty answer would be an empty list.
            read: Returns the objects of a page, and what names the next page; "" for the last page.
            marker: The parameter of the query that names a page; "" if pages name URLs.
        """
        self._client = client
        self._url = url
        self._form = form
        self._page: Form[Any] = page
        self._read: Callable[[Any], tuple[Iterable[T], str]] = read
        self._marker = marker

    async def find(self, name: str) -> T | None:
        """Return the object of that name; None if the cloud itself says that there is none."""
        return await self._client.find(self._request("GET", name), self._form)

    async def create(self, desired: T) -> T:
        """Make an object, and return it as the cloud shows it."""
        return await self._client.call(self._request("POST", body=desired), self._form)

    async def replace(self, name: str, desired: T) -> T:
        """Replace the object of that name, and return it as the cloud shows it."""
        return await self._client.call(self._request("PUT", name, body=desired), self._form)

    async def delete(self, name: str) -> None:
        """Delete the object of that name; one that is gone already is no error."""
        await self._client.find(self._request("DELETE", name), dict[str, Any])

    async def list(self, **query: str) -> list[T]:
        """Return all objects that a query selects, from all pages."""
        first = Request(f"{self._url}.list", "GET", self._url, query)

        async def page(at: str) -> tuple[Iterable[T], str]:
            request = first
            if self._marker:
                request = first.with_query(**{self._marker: at})
            elif at:
                request = Request(first.name, "GET", at)
            return self._read(await self._client.call(request, self._page))

        return await pages(first.name, page)

    def _request(self, method: str, name: str = "", *, body: T | None = None) -> Request:
        url = f"{self._url}/{quote(name, safe='')}" if name else self._url
        content = None if body is None else json_body(body)
        return Request(f"{self._url}.{method.lower()}", method, url, body=content)
