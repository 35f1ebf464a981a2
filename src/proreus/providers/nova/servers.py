"""Read servers in few requests, and match them with Nodes."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import InstanceState, NotFound
from proreus.cloudprovider.lookups import ask_all, attempt, found_by_id, in_parts, runs_elsewhere
from proreus.cloudprovider.refused import Refused
from proreus.providers.nova.machines import Described, id_of, state_of
from proreus.providers.nova.names import Target, pattern
from proreus.providers.nova.services import Services

BATCH: Final = 1000
"""Nodes in one `describe`: as many as Nova tells in one page unless it is set up otherwise."""
MOST_NAMES: Final = 20
"""Names in one query: 253 characters each at most."""
SINGLES: Final = 4
"""Servers that are asked for one by one rather than in a page of up to 1,000."""

_AT_ONCE = 10
_SHOWS_CELLS: Final = "compute 2.69"
"""The first microversion in which a list without filters shows servers of cells that are down."""

T = TypeVar("T")
About = TypeVar("About")


class Found(msgspec.Struct, frozen=True):
    """The answers to a batch of look-ups; a part that failed is its error.

    Attributes:
        by_id: Servers by id; None for absent ones.
        by_name: Servers by name in lower case; a name without a server is left out.
        of_kubelets: Servers by the UUIDs that kubelets report, where one of these counts.
        hidden: Why a look-up by name may lack a server that is there; None if nothing says so.
    """

    by_id: Mapping[str, Described | CloudError | None] | CloudError
    by_name: Mapping[str, Sequence[Described]] | CloudError
    of_kubelets: Mapping[str, Described | CloudError | None] | CloudError = {}
    hidden: CloudError | None = None


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
        found = Found(of_ids, of_names)
        uuids = {uuid for one in targets for uuid in doubtful(one, found)}
        others = await attempt(self.by_id, uuids) if uuids else {}
        hidden = (
            await attempt(self._hidden) if any(_is_guess(one, found) for one in targets) else None
        )
        return Found(of_ids, of_names, others, hidden)

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

    async def _hidden(self) -> CloudError | None:
        """Return why a list by name may lack a server: one is in a cell that is down.

        https://docs.openstack.org/api-guide/compute/down_cells.html: what is filtered leaves these
        out, and so does a full page.

        Raises:
            CloudError: Nova gives no usable answer.
        """
        try:
            listed = await self._services.first_page(
                "nova", "server_list", "servers/detail", "servers", version=_SHOWS_CELLS
            )
        except Refused as error:
            if error.status == HTTPStatus.NOT_ACCEPTABLE:
                return None  # an older Nova, which does not tell
            raise
        # What is there has a name.
        down = sorted(id_of(one) for one in listed if "name" not in one)
        if not down:
            return None
        return CloudError(
            f"Nova cannot reach the cell of the server {down[0]}, which may have the Node's name: a"
            " new Node waits until it can, unless its kubelet reports the UUID of its server"
        )

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


def doubtful(wanted: Target, found: Found) -> tuple[str, ...]:
    """Return the UUIDs to look up before a Node's server is taken for gone, off, or its own. Pure.

    Where the hypervisor is libvirt's, the UUID that a kubelet reports is its server's id. Of others
    it is that of no server at all, so it says something only where there is such a server.
    """
    if wanted.id in wanted.uuids:
        return ()
    if not wanted.id:
        named = _ids_of_name(wanted, found)
        return wanted.uuids if named is not None and named.isdisjoint(wanted.uuids) else ()
    if isinstance(found.by_id, CloudError):
        return ()
    server = found.by_id[wanted.id]
    is_off = isinstance(server, Mapping) and state_of(server) is InstanceState.STOPPED
    return wanted.uuids if server is None or is_off else ()


def match(wanted: Target, found: Found) -> Described | NotFound | CloudError:
    """Return the answer about one node from what was looked up. Pure.

    A Node whose kubelet runs on another server, such as one that has taken over the name of one
    that was deleted or is kept and off, is neither gone nor off with that one. Nor is a server the
    Node's by its name, nor one gone that the list by name lacks.
    """
    if wanted.problem:
        return InvalidRequest(wanted.problem)
    problem = runs_elsewhere(wanted.id, doubtful(wanted, found), found.of_kubelets)
    if problem is not None:
        return problem
    return found_by_id(wanted.id, found.by_id) if wanted.id else _by_name(wanted, found)


def _is_guess(wanted: Target, found: Found) -> bool:
    """Tell whether only its name says that a server is a Node's, or that there is none."""
    named = _ids_of_name(wanted, found)
    return named is not None and named.isdisjoint(wanted.uuids)


def _ids_of_name(wanted: Target, found: Found) -> frozenset[str] | None:
    """Return the ids of the servers of a Node's name; None if it is not looked up by its name."""
    if not wanted.name or isinstance(found.by_name, CloudError):
        return None
    return frozenset(map(id_of, found.by_name.get(wanted.name.lower(), ())))


def _by_name(wanted: Target, found: Found) -> Described | NotFound | CloudError:
    if isinstance(found.by_name, CloudError):
        return found.by_name
    named = found.by_name.get(wanted.name.lower(), ())
    alike = [one for one in named if id_of(one) in wanted.uuids] or named
    if len(alike) > 1:
        ids = ", ".join(sorted(map(id_of, alike)))
        return IdentityConflict(
            f"{len(alike)} servers are called {wanted.name}: {ids}; rename or delete all but one"
        )
    if found.hidden is not None and _is_guess(wanted, found):
        return found.hidden
    return alike[0] if alike else NotFound()
