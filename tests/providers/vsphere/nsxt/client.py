"""A plain client of the policy API, to try the emulator."""

import base64
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from .emulator.schema import PREFIX
from .emulator.server import Emulator

Json = dict[str, Any]


class Client:
    """Sends requests as the user admin, unless told otherwise.

    Attributes:
        headers: What goes with each request.
        got: The headers of the last answer.
    """

    def __init__(self, session: aiohttp.ClientSession, nsxt: Emulator) -> None:
        self._session, self._nsxt = session, nsxt
        self.headers: dict[str, str] = basic("admin", nsxt.sessions.users["admin"])
        self.got: Mapping[str, str] = {}

    async def send(
        self, method: str, path: str, body: Json | None = None, /, **query: str
    ) -> tuple[int, Json]:
        """Status and answer of a request below `/policy/api/v1`, or of one to `/api/…`."""
        url = f"{self._nsxt.url}{'' if path.startswith('/api/') else PREFIX}{path}"
        async with self._session.request(
            method, url, json=body, params=query, headers=self.headers
        ) as response:
            self.got = response.headers
            text = await response.text()
            return response.status, await response.json() if text else {}

    async def good(self, method: str, path: str, body: Json | None = None, /, **query: str) -> Json:
        """The answer of a request that must succeed."""
        status, answer = await self.send(method, path, body, **query)
        assert status == 200, (method, path, answer)
        return answer

    async def bad(
        self, method: str, path: str, body: Json | None = None, /, **query: str
    ) -> tuple[int, int | str, str]:
        """Status, code and message of a request that must fail."""
        status, answer = await self.send(method, path, body, **query)
        assert status >= 400, (method, path, answer)
        return status, answer["error_code"], answer["error_message"]

    async def login(self, user: str, password: str) -> tuple[int, Json]:
        """Create a session and use it."""
        self.headers = {}
        form = aiohttp.FormData({"j_username": user, "j_password": password})
        async with self._session.post(
            f"{self._nsxt.url}/api/session/create", data=form
        ) as response:
            if response.status == 200:
                cookie = response.headers["Set-Cookie"].partition(";")[0]
                self.headers = {"Cookie": cookie, "X-XSRF-TOKEN": response.headers["X-XSRF-TOKEN"]}
            text = await response.text()
            return response.status, await response.json() if text else {}


def basic(user: str, password: str, scheme: str = "Basic") -> dict[str, str]:
    """The header of basic authentication."""
    value = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"{scheme} {value}"}


@asynccontextmanager
async def connected(
    nsxt: Emulator, certificate: tuple[str, str] | None = None
) -> AsyncIterator[Client]:
    """A client that trusts the emulator's CA; `certificate`: the files of its own and of its key."""
    context = ssl.create_default_context(cafile=str(nsxt.ca_file))
    if certificate:
        context.load_cert_chain(*certificate)
    connector = aiohttp.TCPConnector(ssl=context)
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(connector=connector, cookie_jar=jar) as session:
        yield Client(session, nsxt)
