"""Requests to a cloud's HTTP API and their answers: pure values that `rest.RestClient` sends."""

import functools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, quote, urlencode
from xml.etree import ElementTree as ET

import msgspec

from proreus.cloudprovider.errors import CloudError

T = TypeVar("T")

Form = type[T] | msgspec.json.Decoder[T]
"""The form of a decoded answer: a type, or a decoder where no type says it, such as a union."""
Query = Mapping[str, str | Sequence[str]]
"""Parameters of a query; a sequence repeats its name."""


class Body(msgspec.Struct, frozen=True):
    """The body of a request: its bytes and their media type. Its `repr` shows neither."""

    content: bytes
    type: str

    def __repr__(self) -> str:
        """Show nothing of the content, which may hold secrets."""
        return f"Body({len(self.content)} bytes)"

    def fields(self) -> Iterator[tuple[str, str]]:
        """Return the texts in a body of JSON, XML or a form, each with its field's name.

        A body that does not have the form that its type names has no fields.
        """
        try:
            if "json" in self.type:
                yield from _texts_in("", msgspec.json.decode(self.content))
            elif "xml" in self.type:
                for one in ET.fromstring(self.content).iter():  # noqa: S314 - we wrote it
                    yield one.tag.rpartition("}")[2], one.text or ""
            elif "form" in self.type:
                yield from parse_qsl(self.content.decode(), keep_blank_values=True)
        except (msgspec.DecodeError, ET.ParseError, UnicodeDecodeError):
            return


def _texts_in(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _texts_in(str(key), one)
    elif isinstance(value, Sequence):
        for one in value:
            yield from _texts_in(name, one)


def json_body(value: object) -> Body:
    """Make a body in JSON, of anything that msgspec encodes."""
    return Body(msgspec.json.encode(value), "application/json")


def form_body(fields: Query) -> Body:
    """Make a body as HTML forms have it, such as for a token of OAuth."""
    text = urlencode(fields, doseq=True, quote_via=quote)
    return Body(text.encode(), "application/x-www-form-urlencoded")


def xml_body(root: ET.Element) -> Body:
    """Make a body in XML."""
    return Body(ET.tostring(root, encoding="utf-8"), "application/xml")


class Request(msgspec.Struct, frozen=True):
    """A request to a cloud's HTTP API.

    Attributes:
        name: The service and the operation, such as "compute.instances.list", for logs, metrics and
            errors; the text before the first dot is the service. Few different values, since
            metrics have them as labels.
        method: The HTTP method.
        url: The URL, absolute or below the client's endpoint. Its parts must be quoted already.
        query: The parameters of the query, which the client quotes.
        body: The body that is sent.
        headers: The headers besides the client's own, such as `If-Match`.
        read: Whether the request changes nothing, so that it may be sent again; by default GET and
            HEAD do.
        quota: The quota that the request counts against (see `Context.call`).
        timeout: Seconds to wait for the answer, such as to a request that waits for an operation;
            by default those of the client.
    """

    name: str
    method: str
    url: str
    query: Query = {}
    body: Body | None = None
    headers: Mapping[str, str] = {}
    read: bool | None = None
    quota: str = ""
    timeout: float | None = None

    def __repr__(self) -> str:
        """Show the request's name and method: the rest may hold secrets."""
        return f"Request({self.name!r}, {self.method!r})"

    @property
    def is_read(self) -> bool:
        """Whether the request changes nothing."""
        return self.method in {"GET", "HEAD"} if self.read is None else self.read

    def encoded_query(self) -> str:
        """Return the query as it is sent: with `%20` for a space, which every server takes."""
        return urlencode(self.query, doseq=True, quote_via=quote)

    def with_query(self, **more: str) -> "Request":
        """Return a copy with these query parameters added or replaced."""
        return msgspec.structs.replace(self, query={**self.query, **more})

    def with_headers(self, more: Mapping[str, str]) -> "Request":
        """Return a copy with these headers added or replaced."""
        return msgspec.structs.replace(self, headers={**self.headers, **more})


class Answer(msgspec.Struct, frozen=True):
    """An HTTP answer: its status, its headers (in any case of letters) and its body."""

    request: Request
    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        """Show nothing of the content, which may hold secrets."""
        return f"Answer({self.request.name!r}, {self.status}, {len(self.body)} bytes)"

    def json(self, form: Form[T]) -> T:
        """Decode the body from JSON to this type. An empty body reads as `{}`.

        Fields that hold a list must have no defaults, or `{}` is read as an empty list.

        Raises:
            CloudError: The body is not JSON, or has another form.
        """
        try:
            if not isinstance(form, msgspec.json.Decoder):
                form = _decoder(cast("Any", form))
            read: T = form.decode(self.body or b"{}")
        except msgspec.ValidationError as error:
            raise CloudError(
                f"{self.request.name}: the answer does not have the form of this API: {error}"
            ) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CloudError(f"{self.request.name}: the answer is not JSON: {error}") from error
        return read

    def xml(self) -> ET.Element:
        """Parse the body as XML and return its root.

        Raises:
            CloudError: The body is not XML, or has a document type, which could name other files.
        """
        parser = ET.XMLParser(target=_NoDoctype())  # noqa: S314 - entities need a doctype
        try:
            parser.feed(self.body)
            root: ET.Element = parser.close()
        except ET.ParseError as error:
            raise CloudError(f"{self.request.name}: the answer is not XML: {error}") from error
        return root

    def text(self) -> str:
        """Return the body as text."""
        return self.body.decode(errors="replace")


class _NoDoctype(ET.TreeBuilder):
    def doctype(self, name: str, *_: str | None) -> None:
        """Refuse a document type, which can define entities."""
        raise CloudError(f"the answer has a document type declaration ({name}), which is refused")


@functools.cache
def _decoder(type_: Hashable) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a type, made once."""
    return msgspec.json.Decoder(type_)
