"""Read servers in few requests, and match them with Nodes."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import NotFound
from proreus.cloudprovider.lookups import ask_all, attempt, in_parts
from proreus.cloudprovider.refused import Refused
from proreus.providers.nova.machines import Described, id_of
from proreus.providers.nova.names import Target, pattern
from proreus.providers.nova.services import Services

BATCH: Final = 1000
"""Nodes in one `describe`: as many as Nova tells in one page unless it is set up otherwise."""
MOST_NAMES: Final = 20
"""Names in one query: 253 characters each at most."""
SINGLES: Final = 4
"""Servers that are asked for one by one rather than in a page of up to 1,000."""

_AT_ONCE = 10

T = TypeVar("T")
About = TypeVar("About")


class Found(msgspec.Struct, frozen=True):
    """The answers to a batch of look-ups; a part that failed is its error.

    Attributes:
        by_id: Servers by id; None for absent ones.
        by_name: Servers by name in lower case; a name without a server is left out.
    """

    by_id: Mapping[str, Described | CloudError | None] | CloudError
    by_name: Mapping[str, Sequence[Described]] | CloudError


class Servers:
    """A reader of the project's servers."""

    def __init__(self, api: Services[Any]) -> None:
        """Keep the client of Nova."""
        self._services = api
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._pages = 1

    async def find(self, targets: Collection[Target]) -> Found:
        """Look a batch up, by id and by name side by side.

        Raises:
            CloudError: Nova gives no usable answer about any server.
        """
        ids = {one.id for one in targets} - {""}
        names = {one.name for one in targets} - {""}
        of_ids, of_names = await ask_all((ids, self.by_id), (names, self.by_name))
        return Found(of_ids, of_names)

    async def by_id(self, ids: Collection[str]) -> dict[str, Described | CloudError | None]:
        """Read servers by id; absent ones are None.

        A list leaves out servers of cells that are down, and servers that can still be restored. So
        only what Nova says about that very server proves its absence.

        Raises:
            CloudError: The list could not be read.
        """
        found: dict[str, Described | CloudError | None] = {}
        if len(ids) > SINGLES * self._pages:
            found.update({id_of(one): one for one in await self.all() if id_of(one) in ids})
        return found | await self._each(set(ids) - set(found), self._server)

    async def by_name(self, names: Collection[str]) -> dict[str, list[Described]]:
        """Read servers by name in lower case, as names of Nodes are; absent ones are left out.

        Raises:
            CloudError: Nova gives no usable answer.
        """
        found: dict[str, list[Described]] = {}
        for part in in_parts(names, MOST_NAMES):
            parameters = {"name": pattern(part)}
            listed = await self._services.listed(
                "nova", "server_list", "servers/detail", "servers", parameters
            )
            for one in listed:
                found.setdefault(str(one.get("name", "")).lower(), []).append(one)
        return found

    async def all(self) -> list[Described]:
        """Read all servers of the project, and remember how many pages that takes.

        Raises:
            CloudError: A page could not be read.
        """
        listed, self._pages = await self._services.pages(
            "nova", "server_list", "servers/detail", "servers"
        )
        return listed

    async def _server(self, id_: str) -> Described | None:
        try:
            return await self._services.get("nova", "server_get", f"servers/{id_}", "server")
        except Refused as error:
            if error.is_absence and error.code == "itemNotFound":
                return None  # any other 404 is not Nova's
            raise

    async def _each(
        self, keys: Collection[str], ask: Callable[[str], Awaitable[T]]
    ) -> dict[str, T | CloudError]:
        ordered = sorted(keys)
        answers = await asyncio.gather(*(attempt(self._slot, ask, key) for key in ordered))
        return dict(zip(ordered, answers, strict=True))

    async def _slot(self, ask: Callable[[About], Awaitable[T]], about: About) -> T:
        async with self._slots:
            return await ask(about)


def match(wanted: Target, found: Found) -> Described | NotFound | CloudError:
    """Return the answer about one node from what was looked up. Pure."""
    if wanted.problem:
        return InvalidRequest(wanted.problem)
    if wanted.id:
        if isinstance(found.by_id, CloudError):
            return found.by_id
        server = found.by_id[wanted.id]
        return NotFound() if server is None else server
    if isinstance(found.by_name, CloudError):
        return found.by_name
    alike = found.by_name.get(wanted.name.lower(), ())
    if len(alike) > 1:
        ids = ", ".join(sorted(map(id_of, alike)))
        return IdentityConflict(
            f"{len(alike)} servers are called {wanted.name}: {ids}; rename or delete all but one"
        )
    return alike[0] if alike else NotFound()
