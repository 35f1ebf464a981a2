"""Call the SOAP API of one vCenter: log in, keep the session, and begin a new one if need be.

Views, collectors and filters live within a session. So what uses them runs as a whole in one
session (`Client.in_session`), and begins anew in the next one if that has ended meanwhile.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar
from xml.etree import ElementTree as ET

import msgspec

from proreus.cloudprovider.credential import Credential, Issued
from proreus.cloudprovider.errors import CloudError, Unauthenticated
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.requests import Answer
from proreus.cloudprovider.rest import RestClient
from proreus.providers.vsphere import soap
from proreus.providers.vsphere.config import VCenter
from proreus.providers.vsphere.faults import NOT_AUTHENTICATED, read_error
from proreus.providers.vsphere.logins import LOGINS
from proreus.providers.vsphere.soap import VIM, Ref, Service
from proreus.providers.vsphere.trust import Trust

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

T = TypeVar("T")

PAGE: Final = 250
"""Objects in one answer; a vCenter may show fewer."""

_FAREWELL: Final = 1.0
"""Seconds for the end of a session, for which nobody should wait."""
_SERVICE: Final = Ref("ServiceInstance", "ServiceInstance")
_COOKIE: Final = "vmware_soap_session"
_CONTENT: Final = ("rootFolder", "propertyCollector", "viewManager", "searchIndex")


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session: its cookie, which its `repr` does not show, and the root of the inventory."""

    cookie: str
    manager: Ref
    root: Ref
    collector: Ref
    views: Ref
    index: Ref

    def __repr__(self) -> str:
        """Show nothing of the cookie."""
        return "Session()"


class Client:
    """A client of one vCenter's SOAP API.

    Attributes:
        vcenter: The settings of the vCenter.
        deadline: Seconds to wait for an answer.
    """

    def __init__(
        self, vcenter: VCenter, context: "Context", trust: Trust, *, deadline: float
    ) -> None:
        """Keep the settings; send nothing yet.

        Args:
            vcenter: The settings and credentials of the vCenter.
            context: The framework's gate.
            trust: Returns the TLS settings.
            deadline: Seconds to wait for an answer.
        """
        self.vcenter = vcenter
        self._context = context
        self._trust = trust
        self.deadline = deadline
        self._rest: RestClient | None = None
        self._credential: Credential[Session] = Credential(self._login, now=context.now)
        self._current: Session | None = None

    async def close(self) -> None:
        """End the session, and close the connections."""
        try:
            await self._credential.close()
            if self._current is not None:
                await self.call(
                    self._current, self._current.manager, "Logout", {}, deadline=_FAREWELL
                )
        except CloudError:
            pass  # it ends by itself after half an hour
        finally:
            if self._rest is not None:
                await self._rest.close()

    async def in_session(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Run `work` in a session; once more, in a new one, if that has ended.

        Raises:
            CloudError: `work` raised this error, or no session could be begun.
        """
        session = await self._credential.get()
        try:
            return await work(session)
        except Refused as error:
            if not is_ended(error):
                raise
        session = await self._credential.replace(session)
        try:
            return await work(session)
        except Refused as error:
            if not is_ended(error):
                raise
            raise Unauthenticated(f"{error}: the session ends as soon as it has begun") from error

    async def call(
        self,
        session: Session,
        this: Ref,
        method: str,
        parameters: Mapping[str, Any],
        *,
        service: Service = VIM,
        deadline: float | None = None,
    ) -> list[ET.Element]:
        """Call a method of a managed object; return its result.

        Args:
            session: The session in which the method is called.
            this: The managed object on which the method is called.
            method: The name of the method, such as FindAllByUuid.
            parameters: The parameters, as for `soap.request`.
            service: The API that has the method.
            deadline: Seconds to wait for the answer; by default those of the cloud-config.

        Raises:
            CloudError: The vCenter refuses, or does not answer.
        """
        request = soap.request(
            method, this, parameters, service=service, cookie=session.cookie, timeout=deadline
        )
        return soap.returned(await (await self._opened()).send(request), method)

    async def retrieve(
        self, session: Session, specs: Mapping[str, Any]
    ) -> list[tuple[Ref, dict[str, Any]]]:
        """Read properties of objects, page by page.

        Raises:
            CloudError: A page could not be read, so nothing is returned.
        """
        found: list[tuple[Ref, dict[str, Any]]] = []
        parameters: dict[str, Any] = {"specSet": specs, "options": {"maxObjects": PAGE}}
        method = "RetrievePropertiesEx"
        while True:
            returned = await self.call(session, session.collector, method, parameters)
            token = ""
            for page in returned:
                found += contents(page)
                token = soap.text_of(page, "token")
            if not token:
                return found
            method, parameters = "ContinueRetrievePropertiesEx", {"token": token}

    async def _opened(self) -> RestClient:
        tls = await self._trust.settings()
        if self._rest is None:
            self._rest = RestClient(
                self._context,
                self.vcenter.url,
                headers={"Accept": "text/xml"},
                read_error=read_error,
                timeout=self.deadline,
                tls=tls,
            )
        return self._rest

    async def _login(self) -> Issued[Session]:
        LOGINS.check(self.vcenter.credentials)
        content = await self._service_content()
        manager = content["sessionManager"]
        user = {"userName": self.vcenter.user, "password": self.vcenter.password}
        request = soap.request("Login", manager, user)
        try:
            answer = await (await self._opened()).send(request)
        except Unauthenticated as error:
            LOGINS.refused(self.vcenter.credentials, f"vCenter {self.vcenter.name}: {error}")
            raise
        soap.returned(answer, "Login")
        LOGINS.accepted(self.vcenter.credentials)
        self._current = Session(
            cookie=_cookie(answer),
            manager=manager,
            root=content["rootFolder"],
            collector=content["propertyCollector"],
            views=content["viewManager"],
            index=content["searchIndex"],
        )
        return Issued(self._current)

    async def _service_content(self) -> dict[str, Ref]:
        method = "RetrieveServiceContent"
        answer = await (await self._opened()).send(soap.request(method, _SERVICE, {}))
        found: dict[str, Ref] = {}
        for content in soap.returned(answer, method):
            for name in (*_CONTENT, "sessionManager"):
                part = soap.child(content, name)
                if part is not None:
                    found[name] = soap.reference(part)
        missing = {*_CONTENT, "sessionManager"} - found.keys()
        if missing:
            raise CloudError(
                f"vcenter.{method}: {self.vcenter.server} has no {', '.join(sorted(missing))}: is"
                " it a vCenter, not an ESXi host?"
            )
        return found


def is_ended(error: CloudError) -> bool:
    """Tell whether an error says that the session has ended."""
    return isinstance(error, Refused) and error.code == NOT_AUTHENTICATED


def contents(page: ET.Element) -> Iterator[tuple[Ref, dict[str, Any]]]:
    """Return the objects of a page with their properties by path.

    Properties that the account may not read are left out.
    """
    for content in soap.children(page, "objects"):
        obj = soap.child(content, "obj")
        if obj is None:
            raise CloudError("vcenter.RetrievePropertiesEx: an object has no reference")
        yield soap.reference(obj), dict(_properties(soap.children(content, "propSet")))


def _properties(elements: Iterator[ET.Element]) -> Iterator[tuple[str, Any]]:
    for element in elements:
        value = soap.child(element, "val")
        if value is not None:
            yield soap.text_of(element, "name"), soap.value_of(value)


def collected(paths: Mapping[str, Sequence[str]], views: Sequence[Ref]) -> dict[str, Any]:
    """Return the specification of the properties to read of all objects in views.

    Args:
        paths: The paths of the properties, by the type of the object.
        views: The views whose objects are collected; the views themselves are not.
    """
    traversal = {"name": "view", "type": "ContainerView", "path": "view", "skip": False}
    return {
        "propSet": [
            {"type": kind, "all": False, "pathSet": list(of_kind)}
            for kind, of_kind in paths.items()
        ],
        "objectSet": [
            {"obj": view, "skip": True, "selectSet": soap.Typed("TraversalSpec", traversal)}
            for view in views
        ],
    }


def _cookie(answer: Answer) -> str:
    """Return the session's cookie in the answer to a login, as it is to be sent.

    Raises:
        CloudError: The answer has no cookie.
    """
    for header, given in answer.headers.items():
        name, _, rest = given.partition("=")
        value = rest.partition(";")[0]
        if header.lower() == "set-cookie" and name.strip() == _COOKIE and value:
            return f"{_COOKIE}={value}"
    raise CloudError(f"{answer.request.name}: the answer has no cookie {_COOKIE}")
