"""Calls of OpenStack: every one goes through `Context.call`, and is exactly one request.

openstacksdk's own resources would hide requests from the framework's quota: discovery of versions,
pages, repetitions, tokens. So what is used of it is what lies below them: the sessions, plugins and
service catalogs of keystoneauth, and its reader of clouds.yaml. keystone is asked for a token by a
call of its own, five minutes before the last one ends, or when a service refuses it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec
from keystoneauth1 import exceptions
from keystoneauth1.session import Session, TCPKeepAliveAdapter

from proreus.cloudprovider.errors import CloudError
from proreus.providers.openstack import metrics
from proreus.providers.openstack.credentials import Login, plugin
from proreus.providers.openstack.errors import TokenRefused, answered, translated

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

T = TypeVar("T")
Answer = Mapping[str, Any]
"""The body of an answer."""
Parameters = Mapping[str, str | Sequence[str]]
"""Of a query; a sequence repeats its name, which Neutron takes as one or the other."""

_SERVICES = {
    "cinder": "block-storage",
    "nova": "compute",
    "neutron": "network",
    "octavia": "load-balancer",
}
_VERSIONS = {"neutron": "v2.0", "octavia": "v2.0"}
"""Services whose endpoint has no version in most catalogs."""
_RENEW_BEFORE = 300
_MOST_CONNECTIONS = 50
_MOST_PAGES = 10_000
_GRACE = 5.0
_FAILED = 300


class _Request(msgspec.Struct, frozen=True):
    service: str
    operation: str
    method: str
    path: str
    parameters: Parameters = {}
    body: Answer | None = None
    headers: Mapping[str, str] = {}


def user_agent_part(text: str) -> str:
    """A part of the User-Agent, such as "cluster/abc-123".

    Raises:
        ValueError: No header can hold it.
    """
    if not text.strip() or not (text.isascii() and text.isprintable()):
        raise ValueError("must be printable ASCII, such as cluster/abc-123")
    return text.strip()


class Api:
    """A session with one region of one cloud."""

    def __init__(self, login: Login, context: "Context", *, timeout: float) -> None:
        """Send nothing yet.

        Args:
            login: With which credentials, and where.
            context: The framework's gate.
            timeout: Seconds for a connection, and for each part of an answer.
        """
        self._login = login
        self._context = context
        self._timeout = timeout
        self._deadline = timeout + _GRACE
        self._plugin = plugin(login.auth)
        # The last one given comes first, as officially.
        more = reversed(context.flags.get("user-agent", ()))
        self._session = Session(
            verify=login.verify,
            cert=login.cert,
            timeout=timeout,
            user_agent=" ".join((*more, "proreus kubernetes-cloud-controller-manager")),
        )
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, TCPKeepAliveAdapter(pool_maxsize=_MOST_CONNECTIONS))
        self._access: Any = None
        self._access_lock = asyncio.Lock()

    @property
    def context(self) -> "Context":
        """The framework's gate."""
        return self._context

    @property
    def region(self) -> str:
        """The region, or "" where none is named."""
        return self._login.region

    async def connect(self) -> None:
        """Get a token, so that wrong credentials are told at once.

        Raises:
            CloudError: There is none to be had.
        """
        await self._token(None)

    async def get(self, service: str, operation: str, path: str, field: str) -> Answer:
        """Read one thing: what stands in `field` of the answer.

        Args:
            service: cinder, nova, neutron or octavia.
            operation: The official metrics' word, such as server_get.
            path: Below the version, without a slash in front.
            field: Such as server.

        Raises:
            CloudError: See `errors`. Or something else than the service has answered.
        """
        answer = await self._call(_Request(service, operation, "GET", path))
        return _checked(f"{service}.{operation}", answer, field, dict)

    async def change(
        self,
        service: str,
        operation: str,
        method: str,
        path: str,
        body: Answer | None = None,
        *,
        revision: int | None = None,
    ) -> Answer:
        """Change something: as `get`, with a body. It is never repeated.

        Args:
            service: cinder, nova, neutron or octavia.
            operation: The official metrics' word.
            method: POST, PUT or DELETE.
            path: Below the version.
            body: What is sent.
            revision: Only if Neutron's object still has this revision; else 412.

        Raises:
            CloudError: See `errors`.
        """
        headers = {} if revision is None else {"If-Match": f"revision_number={revision}"}
        return await self._call(
            _Request(service, operation, method, path, body=body, headers=headers)
        )

    async def pages(
        self,
        service: str,
        operation: str,
        path: str,
        field: str,
        parameters: Parameters | None = None,
    ) -> tuple[list[Answer], int]:
        """Read a list: what stands in `field` of all pages, and how many pages there were.

        Raises:
            CloudError: A page could not be had, so nothing is returned.
        """
        found: list[Answer] = []
        seen: set[str] = set()
        given = dict(parameters or {})
        while True:
            answer = await self._call(_Request(service, operation, "GET", path, dict(given)))
            found.extend(_checked(f"{service}.{operation}", answer, field, list))
            marker = _marker(answer.get(f"{field}_links") or ())
            if not marker:
                return found, len(seen) + 1
            if marker in seen or len(seen) > _MOST_PAGES:
                raise CloudError(f"{service}.{operation}: the pages do not end")
            seen.add(marker)
            given["marker"] = marker

    async def close(self) -> None:
        """Close the connections; threads that still wait for an answer keep theirs."""
        self._session.session.close()

    async def _call(self, request: _Request) -> Answer:
        token = await self._token(None)
        try:
            return await self._send(request, token)
        except TokenRefused:
            # It may have been revoked before its time. Nothing was done, so also a change may be
            # sent again, once.
            return await self._send(request, await self._token(token))

    async def _send(self, request: _Request, token: str) -> Answer:
        url = f"{self._endpoint(request.service)}/{request.path}"
        name = f"{request.service}.{request.operation}"

        def send() -> Answer:
            try:
                response = self._session.request(
                    url,
                    request.method,
                    authenticated=False,
                    raise_exc=False,
                    log=False,
                    params=dict(request.parameters),
                    headers={
                        "X-Auth-Token": token,
                        "Accept": "application/json",
                        **request.headers,
                    },
                    json=request.body,
                )
            except exceptions.ClientException as error:
                raise translated(name, error) from error
            if response.status_code >= _FAILED:
                raise answered(name, response.status_code, response.headers, response.text)
            return _decoded(name, response)

        with metrics.observed(request.operation):
            return await self._context.call(
                request.service,
                request.operation,
                send,
                read=request.method == "GET",
                deadline=self._deadline,
                quota=request.service,
                blocking=True,
            )

    async def _token(self, refused: str | None) -> str:
        """A token that lasts for a while yet, and is not the one that was `refused`."""
        async with self._access_lock:
            access = self._access
            is_good = access is not None and access.auth_token != refused
            if is_good and not access.will_expire_soon(_RENEW_BEFORE):
                return str(access.auth_token)
            try:
                self._access = await self._authenticate()
            except CloudError:
                if is_good and not access.will_expire_soon(0):
                    return str(access.auth_token)  # the old one still serves
                raise
            return str(self._access.auth_token)

    async def _authenticate(self) -> Any:
        def send() -> Any:
            try:
                return self._plugin.get_auth_ref(self._session)
            except exceptions.ClientException as error:
                raise translated("keystone.token_create", error) from error
            except (KeyError, TypeError, ValueError) as error:
                raise CloudError("keystone.token_create: the answer is no token") from error

        with metrics.observed("token_create"):
            return await self._context.call(
                "keystone",
                "token_create",
                send,
                read=True,
                deadline=self._deadline,
                quota="keystone",
                blocking=True,
            )

    def _endpoint(self, service: str) -> str:
        """The endpoint of a service, with its version.

        Raises:
            CloudError: The catalog has none.
        """
        kind, login = _SERVICES[service], self._login
        url = login.overrides.get(kind, "")
        if not url:
            try:
                url = self._access.service_catalog.url_for(
                    service_type=kind,
                    interface=login.interface,
                    region_name=login.region or None,
                )
            except exceptions.CatalogException as error:
                raise CloudError(
                    f"the catalog has no {login.interface} endpoint for {kind} in region"
                    f" {login.region or '(any)'}: check region and os-endpoint-type in [Global]"
                ) from error
        url = url.rstrip("/")
        version = _VERSIONS.get(service, "")
        return url if url.endswith(f"/{version}") or not version else f"{url}/{version}"


def _marker(links: Sequence[Mapping[str, str]]) -> str:
    """Where the next page begins; "" on the last. Its address may be one that only proxies know."""
    for link in links:
        if link.get("rel") == "next":
            return parse_qs(urlsplit(link.get("href", "")).query).get("marker", [""])[0]
    return ""


def _checked(name: str, answer: Answer, field: str, kind: type[T]) -> T:
    """What stands in a field. A proxy may answer anything; that must not pass for absence."""
    found = answer.get(field)
    if not isinstance(found, kind):
        raise CloudError(f"{name}: the answer has no {field}: is the endpoint that of the service?")
    return found


def _decoded(name: str, response: Any) -> Answer:
    if not response.content:
        return {}
    try:
        body = response.json()
    except ValueError as error:
        raise CloudError(f"{name}: the answer is no JSON") from error
    if not isinstance(body, dict):
        raise CloudError(f"{name}: the answer is no object")
    return body
