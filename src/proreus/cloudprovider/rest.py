"""A client for a cloud's HTTP API, whose requests all go through `Context.call`.

It verifies TLS, uses the environment's proxies (as Go's clients), follows no redirects, sends
nothing again without counting it for the quota, renews its credential, and raises the framework's
kinds of errors without secrets in them.
"""

import contextlib
import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from proreus.cloudprovider.authorities import system_authorities
from proreus.cloudprovider.credential import Credential
from proreus.cloudprovider.errors import CloudError, ConfigError, Unauthenticated
from proreus.cloudprovider.refused import (
    ErrorBody,
    ReadError,
    Reason,
    Refused,
    cloud_error,
    reason_of,
    retry_after,
)
from proreus.cloudprovider.requests import Answer, Form, Request
from proreus.kube.connections import SEND_ONCE, Connector, text_of
from proreus.kube.proxies import from_environment

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

T = TypeVar("T")

USER_AGENT: Final = "proreus kubernetes-cloud-controller-manager"
KEEP_ALIVE: Final = 15.0
"""Seconds that an unused connection is kept: less than load balancers before clouds do."""


_SECRET = re.compile("auth|cookie|key|secret|token", re.IGNORECASE)
"""Names of headers whose values are secret."""
_SECRET_FIELD = re.compile(
    "access.?key|api.?key|assertion|credential|pass|secret|signature|token", re.IGNORECASE
)
"""Names of fields of queries and bodies whose values are secret."""


class _TokenRefused(Unauthenticated):
    """The signal that the cloud refuses the credential; a new one may be accepted."""


def tls_context(
    *, ca_file: str = "", cert_file: str = "", key_file: str = "", verify: bool = True
) -> ssl.SSLContext:
    """Make the TLS settings of a client; reads the files.

    Args:
        ca_file: The file of the authorities that may have signed the cloud's certificate; "": the
            system's.
        cert_file: Our own certificate, PEM, or "".
        key_file: The file with its key, where it is in another file.
        verify: Whether the cloud's certificate is verified.

    Raises:
        ConfigError: A file cannot be read or used.
    """
    named = ca_file or system_authorities()
    try:
        if verify:
            # Only the authority that is named, not the system's beside it.
            made = ssl.create_default_context(cafile=named or None)
        else:
            made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        if cert_file:
            named = cert_file
            made.load_cert_chain(cert_file, key_file or None)
    except (OSError, ssl.SSLError) as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError((f"{named}: cannot be used for TLS: {reason}",)) from error
    return made


def configured_tls(
    *, ca_file: str = "", cert_file: str = "", key_file: str = "", verify: bool = True
) -> ssl.SSLContext | None:
    """Make the TLS settings of a cloud-config; None if it names none.

    With None `RestClient` reads the system's authorities once a request needs them, so not for
    `http://`.

    Args:
        ca_file: The file of the authorities that may have signed the cloud's certificate, or "".
        cert_file: Our own certificate, PEM, or "".
        key_file: The file with its key, where it is in another file.
        verify: Whether the cloud's certificate is verified.

    Raises:
        ConfigError: A file cannot be read or used.
    """
    if verify and not ca_file and not cert_file:
        return None
    return tls_context(ca_file=ca_file, cert_file=cert_file, key_file=key_file, verify=verify)


class RestClient:
    """A session with a cloud's HTTP API: make it in `CloudProvider.start`, close it in the end."""

    def __init__(
        self,
        context: "Context",
        endpoint: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        credential: Credential[Any] | None = None,
        sign: Callable[[Request], Request] = lambda request: request,
        read_error: ReadError = lambda _: None,
        observe: Callable[[Request], AbstractContextManager[None]] | None = None,
        timeout: float = 30.0,
        connect_timeout: float | None = None,
        tls: ssl.SSLContext | None = None,
        proxies: bool = True,
    ) -> None:
        """Keep the settings; connect with the first request.

        Args:
            context: The framework's gate: all requests are sent through `Context.call`.
            endpoint: The URL that stands before each request's URL. An absolute URL must have the
                same scheme, host and port; without an endpoint it may have any.
            headers: The headers of every request, such as a token that never changes.
            credential: The credential that gives each request its headers. After an answer 401 it
                is replaced, and the request sent again once.
            sign: Finishes a request right before it is sent, such as by a signature.
            read_error: Reads the body of an error. Without it no 404 means absence.
            observe: A context manager that is entered around every single request, for metrics of
                your own.
            timeout: Seconds to wait for an answer.
            connect_timeout: Seconds to wait for a connection, where they are fewer.
            tls: The TLS settings of `tls_context`; None is verified TLS by the system's
                authorities.
            proxies: Whether HTTPS_PROXY, HTTP_PROXY and NO_PROXY count; not for a service that is
                on this machine's link.
        """
        self._context = context
        self._endpoint = endpoint.rstrip("/")
        self._headers = dict(headers or {})
        self._credential = credential
        self._sign = sign
        self._read_error = read_error
        self._observe = observe or (lambda _: contextlib.nullcontext())
        self._timeout = timeout
        self._tls = tls
        self._proxies: dict[URL, str] | None = {} if proxies else None
        self._session = aiohttp.ClientSession(
            connector=Connector(
                context.gate, url=self._endpoint, keep_alive=KEEP_ALIVE, reads=True
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": USER_AGENT, "Accept": "application/json", **self._headers},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout),
        )

    async def close(self) -> None:
        """Close the connections, and end a renewal of the credential."""
        if self._credential is not None:
            await self._credential.close()
        await self._session.close()

    async def call(self, request: Request, form: Form[T]) -> T:
        """Send a request; return its answer, decoded from JSON to `form`.

        Raises:
            CloudError: The request failed as described for `send`, or the answer has another form.
        """
        return await self._exchange(request, lambda answer: answer.json(form))

    async def find(self, request: Request, form: Form[T]) -> T | None:
        """Send a request as `call` does; return None if the cloud says there is no such object.

        So a DELETE of an object that is gone already is no error.

        Raises:
            CloudError: The request failed as described for `call`.
        """
        try:
            return await self.call(request, form)
        except Refused as error:
            if error.is_absence:
                return None
            raise

    async def send(self, request: Request) -> Answer:
        """Send a request; return its answer if the status is 200 to 299.

        Raises:
            Throttled: The quota is used up.
            Unauthenticated: The credential is not accepted, or lacks a right.
            Refused: The cloud answered with another error, or with a redirect.
            CallTimeout: No answer in time, the outcome is unknown.
            CloudError: No answer came, or half of one; the outcome of a write is unknown.
        """
        return await self._exchange(request, lambda answer: answer)

    async def _exchange(self, request: Request, read: Callable[[Answer], T]) -> T:
        credential = self._credential
        if credential is None:
            return await self._attempt(request, read, {})
        value = await credential.get()
        try:
            return await self._attempt(request, read, credential.headers(value))
        except _TokenRefused:
            # It may have been revoked before its time. Nothing was done, so a write may be sent
            # again, too, once.
            value = await credential.replace(value)
            return await self._attempt(request, read, credential.headers(value))

    async def _attempt(
        self, request: Request, read: Callable[[Answer], T], shown: Mapping[str, str]
    ) -> T:
        async def send() -> T:
            signed = self._sign(request.with_headers(shown))
            answer = await self._send(signed)
            if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
                raise self._error(answer, request)
            return read(answer)

        service, _, operation = request.name.partition(".")
        with self._observe(request):
            return await self._context.call(
                service,
                operation,
                send,
                read=request.is_read,
                deadline=request.timeout or self._timeout,
                quota=request.quota,
            )

    async def _send(self, request: Request) -> Answer:
        """Send a request and nothing else, and read the whole answer."""
        headers, body = dict(request.headers), request.body
        if body is not None:
            headers.setdefault("Content-Type", body.type)
        url = self._url(request)
        try:
            async with self._session.request(
                request.method,
                url,
                data=None if body is None else body.content,
                headers=headers,
                allow_redirects=False,
                ssl=self._tls_for(url),
                proxy=self._proxy(url),
                middlewares=None if request.is_read else SEND_ONCE,
            ) as response:
                content = await response.read()
        except TimeoutError:
            raise  # which the framework knows
        except aiohttp.ClientSSLError as error:
            raise CloudError(
                f"{request.name}: the certificate is not trusted, or TLS failed: {text_of(error)}:"
                " give the file of its authority in the cloud-config"
            ) from error
        except (aiohttp.ClientResponseError, aiohttp.InvalidURL, ValueError) as error:
            # Its text holds the address, which may hold a signature; so nothing of it goes on.
            raise CloudError(f"{request.name}: no answer: {type(error).__name__}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise CloudError(f"{request.name}: no answer: {text_of(error)}") from error
        return Answer(request, response.status, response.headers, content)

    def _url(self, request: Request) -> URL:
        """Return the URL to which a request goes.

        Raises:
            CloudError: A link of an answer leads to another server, which is not to get the
                credential.
        """
        is_absolute = request.url.startswith(("https://", "http://"))
        text = request.url if is_absolute else f"{self._endpoint}/{request.url.lstrip('/')}"
        if query := request.encoded_query():
            text = f"{text}{'&' if '?' in text else '?'}{query}"
        url = URL(text, encoded=True)
        if is_absolute and self._endpoint and url.origin() != URL(self._endpoint).origin():
            raise CloudError(
                f"{request.name}: not sent: {url.host} is another host than the cloud's endpoint"
            )
        return url

    def _tls_for(self, url: URL) -> ssl.SSLContext | bool:
        """Return the TLS settings for a URL, made when first needed: that reads a file."""
        if url.scheme == "https" and self._tls is None:
            self._tls = tls_context()
        return self._tls or True

    def _proxy(self, url: URL) -> str | None:
        if self._proxies is None:
            return None
        origin = url.origin()
        if origin not in self._proxies:
            problems: list[str] = []
            self._proxies[origin] = from_environment(str(origin), os.environ, problems)
            if problems:
                raise CloudError("; ".join(problems))
        return self._proxies[origin] or None

    def _error(self, answer: Answer, unsigned: Request) -> CloudError:
        parsed: ErrorBody | None
        try:
            parsed = self._read_error(answer)
        except CloudError:
            parsed = None
        error = cloud_error(
            answer.request.name,
            answer.status,
            parsed,
            text=_redirect(answer) or answer.text(),
            after=retry_after(answer.headers, self._context.now()),
            secrets=self._secrets(unsigned, answer.request),
        )
        if reason_of(answer.status, parsed) is Reason.UNAUTHORIZED and self._credential is not None:
            return _TokenRefused(str(error))
        return error

    def _secrets(self, unsigned: Request, signed: Request) -> Iterator[str]:
        """Return the secret texts of a request, which errors may repeat.

        They are what credential and signature added, and headers and fields whose names say so.
        """
        found = _texts(signed) - _texts(unsigned)
        headers = (*self._headers.items(), *signed.headers.items())
        found |= {value for name, value in headers if _SECRET.search(name)}
        body = () if signed.body is None else signed.body.fields()
        for name, value in (*signed.query.items(), *body):
            if isinstance(value, str) and _SECRET_FIELD.search(name):
                found.add(value)
        for value in found:
            yield value
            # What stands behind the scheme of a token, or behind the name of a cookie.
            yield from (value.rpartition(" ")[2], value.partition("=")[2])


def _redirect(answer: Answer) -> str:
    """Return the remedy for an answer that redirects; "" if it does not."""
    location = urlsplit(answer.headers.get("Location", ""))
    if answer.status < HTTPStatus.BAD_REQUEST and location.hostname:
        there = f"{location.scheme}://{location.netloc.rpartition('@')[2]}"
        return (
            f"the answer redirects to {there}, which is not followed: if that is the cloud's "
            "endpoint, give it in the cloud-config"
        )
    return ""


def _texts(request: Request) -> set[str]:
    values = (*request.headers.values(), *request.query.values())
    return {value for value in values if isinstance(value, str)}
