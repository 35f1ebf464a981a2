"""Read which objects of a vCenter have tags of two categories, by its REST API.

It asks for the objects of each tag, not the tags of each object: there are few zones, and
many machines. vSphere 7.0 and later has the API below `/api`, older ones below `/rest`.
"""

import asyncio
import base64
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from proreus.cloudprovider.credential import Credential, Issued
from proreus.cloudprovider.errors import CloudError, Unauthenticated
from proreus.cloudprovider.lookups import in_parts
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.requests import Request, json_body
from proreus.cloudprovider.rest import RestClient
from proreus.providers.vsphere.config import Labels, VCenter
from proreus.providers.vsphere.faults import read_rest_error
from proreus.providers.vsphere.logins import LOGINS
from proreus.providers.vsphere.soap import Ref
from proreus.providers.vsphere.trust import Trust
from proreus.providers.vsphere.zones import Marks, merged

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

T = TypeVar("T")

AGE: Final = 300.0
"""Seconds for which tags are kept, for nodes that have a zone."""
FRESH: Final = 10.0
"""Seconds for which they are kept for nodes that wait for their zone."""

_TAGS_AT_ONCE: Final = 100
_API: Final = "api"
_REST: Final = "rest/com/vmware"
"""The older path, below which answers are wrapped: their `value` is what `/api` answers."""


class _Named(msgspec.Struct, frozen=True):
    name: str


class _Object(msgspec.Struct, frozen=True):
    id: str
    type: str


class _Attached(msgspec.Struct, frozen=True):
    tag_id: str
    object_ids: tuple[_Object, ...] = ()


class _Login(msgspec.Struct, frozen=True):
    root: str
    token: str

    def __repr__(self) -> str:
        """Show nothing of the token."""
        return f"_Login({self.root})"


class Tags:
    """The tags of zones and regions in one vCenter."""

    def __init__(
        self,
        vcenter: VCenter,
        labels: Labels,
        context: "Context",
        trust: Trust,
        *,
        deadline: float,
    ) -> None:
        """Keep the vCenter and the categories; read nothing yet.

        Args:
            vcenter: The settings and credentials of the vCenter.
            labels: The categories of tags that name zones and regions.
            context: The framework's gate.
            trust: Returns the TLS settings.
            deadline: Seconds to wait for an answer.
        """
        self._vcenter = vcenter
        self._labels = labels
        self._context = context
        self._trust = trust
        self._deadline = deadline
        self._credential: Credential[_Login] = Credential(
            self._authenticate,
            now=context.now,
            headers=lambda login: {"vmware-api-session-id": login.token},
        )
        self._turn = asyncio.Lock()
        self._names: dict[str, str] = {}
        self._read: tuple[float, Mapping[Ref, Marks]] | None = None
        self._opened: list[RestClient] = []

    async def close(self) -> None:
        """Close the connections; the session ends by itself after five minutes."""
        await self._credential.close()
        for one in self._opened:
            await one.close()

    async def marks(self, age: float) -> Mapping[Ref, Marks]:
        """Return zone and region of each object that has a tag for them.

        Args:
            age: Seconds for which tags that were read may be used again.

        Raises:
            CloudError: The vCenter gives no usable answer.
        """
        async with self._turn:
            now = asyncio.get_running_loop().time()
            if self._read is None or now - self._read[0] > age:
                self._read = now, await self._marks()
            return self._read[1]

    async def _marks(self) -> Mapping[Ref, Marks]:
        categories = await self._named("category", await self._list("category.list", "category"))
        kinds = {self._labels.zone: "zone", self._labels.region: "region"}
        kind_of: dict[str, str] = {}
        for id_, name in categories.items():
            if name in kinds:
                kind_of |= dict.fromkeys(await self._of_category(id_), kinds[name])
        names = await self._named("tag", kind_of)
        found = []
        for part in in_parts(kind_of, _TAGS_AT_ONCE):
            for attached in await self._attached(part):
                if attached.tag_id in kind_of:
                    kind, name = kind_of[attached.tag_id], names[attached.tag_id]
                    found += [(Ref(it.type, it.id), kind, name) for it in attached.object_ids]
        return merged(found)

    async def _list(self, name: str, what: str) -> tuple[str, ...]:
        return await self._call(name, "GET", f"cis/tagging/{what}", tuple[str, ...])

    async def _named(self, what: str, ids: Collection[str]) -> Mapping[str, str]:
        """Return the names of categories or tags by id; only unknown ones are asked for."""
        for id_ in sorted(set(ids) - self._names.keys()):
            root = (await self._credential.get()).root
            place = f"cis/tagging/{what}/{'id:' if root == _REST else ''}{quote(id_, safe='')}"
            self._names[id_] = (await self._call(f"{what}.get", "GET", place, _Named)).name
        return {id_: self._names[id_] for id_ in ids}

    async def _of_category(self, id_: str) -> tuple[str, ...]:
        action = "action=list-tags-for-category"
        if (await self._credential.get()).root == _REST:
            place, body = f"cis/tagging/tag/id:{quote(id_, safe='')}?~{action}", {}
        else:
            place, body = f"cis/tagging/tag?{action}", {"category_id": id_}
        return await self._call("tag.list", "POST", place, tuple[str, ...], body)

    async def _attached(self, tags: Sequence[str]) -> tuple[_Attached, ...]:
        sign = "~" if (await self._credential.get()).root == _REST else ""
        place = f"cis/tagging/tag-association?{sign}action=list-attached-objects-on-tags"
        body = {"tag_ids": tags}
        return await self._call("tag.attached", "POST", place, tuple[_Attached, ...], body)

    async def _call(
        self, name: str, method: str, place: str, form: type[T], body: object = None
    ) -> T:
        """Call an operation; an empty answer where a list is expected is an empty list.

        Raises:
            CloudError: The vCenter refuses, or answers something else.
        """
        root = (await self._credential.get()).root
        request = Request(
            f"tagging.{name}",
            method,
            f"{root}/{place}",
            body=None if body is None else json_body(body),
            read=True,
        )
        answer: Any = await (await self._client(self._credential)).call(request, Any)
        if root == _REST:
            # Without a value it has another form than any that is asked for.
            answer = answer.get("value", False) if isinstance(answer, dict) else False
        try:
            return msgspec.convert([] if answer is None else answer, form)
        except msgspec.ValidationError as error:
            raise CloudError(f"tagging.{name}: the answer is not of this API: {error}") from error

    async def _client(self, credential: Credential[_Login] | None) -> RestClient:
        """Return the client that sends the session's token, or the one that begins sessions."""
        tls = await self._trust.settings()
        if not self._opened:
            self._opened = [
                RestClient(
                    self._context,
                    self._vcenter.url,
                    credential=one,
                    read_error=read_rest_error,
                    timeout=self._deadline,
                    tls=tls,
                )
                for one in (None, self._credential)
            ]
        return self._opened[credential is not None]

    async def _authenticate(self) -> Issued[_Login]:
        vcenter = self._vcenter
        LOGINS.check(vcenter.credentials)
        pair = base64.b64encode(f"{vcenter.user}:{vcenter.password}".encode()).decode()
        try:
            for root, place in ((_API, "api/session"), (_REST, f"{_REST}/cis/session")):
                token = await self._session(root, place, pair)
                if token:
                    LOGINS.accepted(vcenter.credentials)
                    return Issued(_Login(root, token))
        except Unauthenticated as error:
            LOGINS.refused(vcenter.credentials, f"vCenter {vcenter.name}: {error}")
            raise
        raise CloudError("tagging.session.create: the vCenter has neither /api nor /rest")

    async def _session(self, root: str, place: str, pair: str) -> str:
        """Begin a session; return its token, "" if the server does not have this API.

        Raises:
            CloudError: The server refuses, or answers something else.
        """
        request = Request(
            "tagging.session.create",
            "POST",
            place,
            headers={"Authorization": f"Basic {pair}"},
            read=True,
        )
        try:
            answer = (await (await self._client(None)).send(request)).json(Any)
        except Refused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return ""
            raise
        token = answer.get("value") if root == _REST and isinstance(answer, dict) else answer
        if not isinstance(token, str) or not token:
            raise CloudError(f"{request.name}: the answer has no token of a session")
        return token
