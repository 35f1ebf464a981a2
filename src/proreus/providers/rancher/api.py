"""Call Rancher's API: one server, one environment, the newest version that the server has.

Addresses are put together here and not taken from answers, whose links name the server as it knows
itself: behind a proxy that may be another host.
"""

import base64
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from proreus.cloudprovider.errors import CloudError, ConfigError
from proreus.cloudprovider.paging import pages
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.requests import Request
from proreus.cloudprovider.rest import RestClient, configured_tls
from proreus.providers.rancher.config import RancherConfig
from proreus.providers.rancher.errors import read_error
from proreus.providers.rancher.versions import NEWEST_FIRST, V1, Version

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

Described = dict[str, Any]
"""An object as Rancher describes it."""
PAGE = 3000
"""Rows of a page: the most that a server shows at once."""

SETTINGS = "settings"
"""The list whose objects are never removed."""

_SCHEMA = "schemas/loadbalancerservice"


class Api:
    """A session with one environment of a Rancher server."""

    def __init__(self, config: RancherConfig, context: "Context") -> None:
        """Keep the settings; send nothing yet.

        Raises:
            ConfigError: A certificate or key file cannot be used.
        """
        given = config.global_
        self._root, self._project = given.places()
        keys = f"{given.cattle_access_key}:{given.cattle_secret_key}".encode()
        timeout = config.client.timeout.total_seconds()
        self.version: Version = V1
        self._client = RestClient(
            context,
            self._root,
            headers={"Authorization": f"Basic {base64.b64encode(keys).decode()}"},
            read_error=read_error,
            timeout=timeout,
            connect_timeout=timeout,
            tls=configured_tls(ca_file=config.client.ca_file),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def choose_version(self) -> None:
        """Ask which versions the server has, and use the newest.

        A server of v1 alone is asked for the newer one once more: what stood in its way may have
        been a proxy, and the versions make load balancers of different forms.

        Raises:
            ConfigError: The server has neither version.
            CloudError: The server does not answer, or refuses the keys.
        """
        found: Version | None = None
        for version in (*NEWEST_FIRST, NEWEST_FIRST[0]):
            if version.is_described_by(await self._schema(version)):
                found = version
                if found is NEWEST_FIRST[0]:
                    break
        if found is not None:
            self.version = found
            return
        problem = (
            f"cattle-url: {self._root} has no load balancer services of the versions v2-beta and"
            " v1: is it a Rancher server of 1.x, and are the keys those of an environment?"
        )
        raise ConfigError((problem,))

    async def listed(self, kind: str, **parameters: str) -> list[Described]:
        """Return all objects of a list that are not removed, from all pages.

        Filters that the API does not know select nothing, and it does not say so.

        An object that is joined with several others stands in several rows, which pages may part:
        so one may come twice.

        Args:
            kind: The name of the list, such as "hosts".
            parameters: Filters by their names in the API, and `include`, the link that is joined.

        Raises:
            CloudError: A page could not be read.
        """
        asked = {"removed_null": "true", **parameters} if kind != SETTINGS else parameters
        asked = {"limit": str(PAGE), **asked}

        async def page(marker: str) -> tuple[list[Described], str]:
            more = {"marker": marker} if marker else {}
            name = f"rancher.list.{kind}"
            request = Request(name, "GET", self._url(kind), {**asked, **more})
            answer = await self._client.call(request, Described)
            data = answer.get("data")
            if answer.get("type") != "collection" or not isinstance(data, list):
                raise CloudError(
                    f"{name}: the answer is not a list of Rancher: is cattle-url right?"
                )
            return data, _marker(answer)

        return await pages(f"rancher.list.{kind}", page)

    async def change(self, request: Request) -> Described:
        """Send a change, its URL relative to the environment; return the object as changed.

        Raises:
            Refused: Rancher refuses.
            CloudError: No answer came, or it is not Rancher's: the outcome is unknown.
        """
        whole = Request(request.name, request.method, self._url(request.url), body=request.body)
        answer = await self._client.call(whole, Described)
        if not answer.get("id"):
            raise CloudError(f"{request.name}: the answer is not an object of Rancher")
        return answer

    async def _schema(self, version: Version) -> Described:
        """Return how a version describes load balancers; {} if the server does not have it.

        Where a server has no API, it may show its pages for people, or lead to them.
        """
        request = Request("rancher.get.schema", "GET", self._url(_SCHEMA, version))
        try:
            answer = await self._client.send(request)
        except Refused as error:
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            return {}
        try:
            return answer.json(Described)
        except CloudError:
            return {}

    def _url(self, path: str, version: Version | None = None) -> str:
        return f"{(version or self.version).name}{self._project}/{path}"


def _marker(answer: Described) -> str:
    """Return where the next page begins; "" if this is the last one."""
    pagination = answer.get("pagination")
    link = pagination.get("next") if isinstance(pagination, dict) else None
    if not link:
        return ""
    return parse_qs(urlsplit(str(link)).query).get("marker", [str(link)])[-1]
