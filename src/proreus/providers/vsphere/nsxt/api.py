"""Call NSX-T's policy API: objects by kind, each read, written and deleted at its own path.

A PUT makes an object, or replaces one whose `_revision` it bears, so it never undoes the change of
somebody else. A deletion is never forced: what something refers to stays.
"""

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from proreus.cloudprovider.credential import Credential
from proreus.cloudprovider.paging import pages
from proreus.cloudprovider.requests import Request, json_body
from proreus.cloudprovider.rest import RestClient, configured_tls
from proreus.providers.vsphere.nsxt.config import Nsxt
from proreus.providers.vsphere.nsxt.credentials import CloudToken, Password
from proreus.providers.vsphere.nsxt.errors import read_error
from proreus.providers.vsphere.nsxt.operations import ROOT, Document, Place

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

PAGE: Final = "1000"
"""The most objects of a page."""


class _Page(msgspec.Struct, frozen=True):
    results: list[dict[str, Any]]
    cursor: str = ""


class _Realized(msgspec.Struct, frozen=True):
    results: list[dict[str, Any]]


class Api:
    """A session with the policy API of one manager of NSX-T."""

    def __init__(self, config: Nsxt, context: "Context", *, timeout: float) -> None:
        """Keep the settings, and read the files with certificates and credentials.

        Args:
            config: The settings that say how the manager is reached.
            context: The framework's gate.
            timeout: Seconds to wait for an answer.

        Raises:
            ConfigError: A file that the cloud-config names cannot be used.
        """
        tls = configured_tls(
            ca_file=config.ca_file,
            cert_file=config.client_auth_cert_file,
            key_file=config.client_auth_key_file,
            verify=not config.insecure_flag,
        )
        self._login: CloudToken | Password | None = None
        if config.vmc_access_token:
            self._login = CloudToken(config, context, timeout=timeout)
        elif config.user or config.needs_secret:
            self._login = Password(config, context, timeout=timeout, tls=tls)
        credential: Credential[Any] | None = self._login.credential if self._login else None
        self._client = RestClient(
            context,
            config.url,
            credential=credential,
            read_error=read_error,
            timeout=timeout,
            connect_timeout=timeout,
            tls=tls,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
        if self._login is not None:
            await self._login.close()

    async def listed(self, place: Place) -> list[Document]:
        """Return all objects at a place, from all pages.

        Raises:
            CloudError: A page could not be read.
        """
        name = f"nsxt.{place.kind}.list"
        first = Request(name, "GET", place.url, {"page_size": PAGE})

        async def page(cursor: str) -> tuple[list[dict[str, Any]], str]:
            request = first.with_query(cursor=cursor) if cursor else first
            answer = await self._client.call(request, _Page)
            return answer.results, answer.cursor

        found = await pages(name, page)
        return [one for one in found if not one.get("marked_for_delete")]

    async def find(self, place: Place, id_: str) -> Document | None:
        """Return an object; None if NSX-T says that there is none."""
        return await self._client.find(self._request("GET", place, id_), dict[str, Any])

    async def put(self, place: Place, id_: str, document: Document) -> Document:
        """Make an object, or replace the one of the same revision; return it.

        Raises:
            Refused: NSX-T refuses; `errors.is_busy` tells whether it may do it later.
            CloudError: No answer came: the outcome is unknown.
        """
        request = self._request("PUT", place, id_, document)
        return await self._client.call(request, dict[str, Any])

    async def delete(self, place: Place, id_: str) -> None:
        """Delete an object; one that is gone already is no error."""
        await self._client.find(self._request("DELETE", place, id_), dict[str, Any])

    async def realized(self, path: str) -> list[Document]:
        """Return what an object has become in the network: nothing until work on it has begun."""
        request = Request(
            "nsxt.realized-entities.list",
            "GET",
            f"{ROOT}/realized-state/realized-entities",
            {"intent_path": path},
        )
        answer = await self._client.find(request, _Realized)
        return [] if answer is None else list(answer.results)

    def _request(
        self, method: str, place: Place, id_: str, document: Document | None = None
    ) -> Request:
        return Request(
            f"nsxt.{place.kind}.{method.lower()}",
            method,
            f"{place.url}/{quote(id_, safe='')}",
            body=None if document is None else json_body(document),
        )
