"""Write requests and read answers of the APIs of a vCenter that speak SOAP. Pure.

Only what a reader of the inventory needs is here: a dozen methods. pyVmomi knows all of the API,
and takes longer to import and more memory than the rest of the manager.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from xml.etree import ElementTree as ET

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.requests import Answer, Body, Request, xml_body

_XSI: Final = "{http://www.w3.org/2001/XMLSchema-instance}"
_SOAP: Final = "{http://schemas.xmlsoap.org/soap/envelope/}"
_ANY: Final = "{*}"
_NUMBERS: Final = frozenset(("byte", "short", "int", "long"))


class Service(msgspec.Struct, frozen=True):
    """An API: its path, the namespace of its names, and the version that is asked for.

    Newer servers still answer in this version.
    """

    path: str
    namespace: str
    version: str


VIM: Final = Service("sdk", "urn:vim25", "urn:vim25/6.5")
"""The vSphere Web Services API."""
CNS: Final = Service("vsanHealth", "urn:vsan", "urn:vsan/vSAN 6.7U3")
"""The API of Cloud Native Storage, which knows the volumes of the CSI driver."""


class Ref(msgspec.Struct, frozen=True, order=True):
    """A reference to a managed object: its type and its id, such as HostSystem and host-21."""

    type: str
    value: str

    def __str__(self) -> str:
        """Return the form in which logs and the official manager name it."""
        return f"{self.type}:{self.value}"


class Typed(msgspec.Struct, frozen=True):
    """A data object of a type that the server cannot tell from its place."""

    type: str
    fields: Mapping[str, Any]


def request(
    method: str,
    this: Ref,
    parameters: Mapping[str, Any],
    *,
    service: Service = VIM,
    cookie: str = "",
    timeout: float | None = None,
) -> Request:
    """Make the request that calls a method.

    Args:
        method: The name of the method, such as RetrievePropertiesEx.
        this: The managed object on which the method is called.
        parameters: The parameters by name, in the order of the API. A mapping is a data object, a
            sequence a repeated element; None is left out.
        service: The API that has the method.
        cookie: The cookie of the session.
        timeout: Seconds to wait for the answer.
    """
    return Request(
        f"vcenter.{method}",
        "POST",
        service.path,
        body=envelope(method, this, parameters, service.namespace),
        headers={"SOAPAction": service.version} | ({"Cookie": cookie} if cookie else {}),
        read=True,
        timeout=timeout,
    )


def envelope(method: str, this: Ref, parameters: Mapping[str, Any], namespace: str) -> Body:
    """Return the body of a request, with the namespace of its API as the default one."""
    root = ET.Element(
        "soapenv:Envelope",
        {
            "xmlns:soapenv": "http://schemas.xmlsoap.org/soap/envelope/",
            "xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance",
        },
    )
    body = ET.SubElement(root, "soapenv:Body")
    call = ET.SubElement(body, method, {"xmlns": namespace})
    _write(call, "_this", this)
    for name, value in parameters.items():
        _write(call, name, value)
    return Body(xml_body(root).content, "text/xml; charset=utf-8")


def _write(parent: ET.Element, name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            _write(parent, name, item)
        return
    made = ET.SubElement(parent, name)
    if isinstance(value, Ref):
        made.set("type", value.type)
        made.text = value.value
    elif isinstance(value, Typed):
        made.set("xsi:type", value.type)
        _write_fields(made, value.fields)
    elif isinstance(value, Mapping):
        _write_fields(made, value)
    elif isinstance(value, bool):
        made.text = "true" if value else "false"
    else:
        made.text = str(value)


def _write_fields(parent: ET.Element, fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        _write(parent, name, value)


def returned(answer: Answer, method: str) -> list[ET.Element]:
    """Return the result of a method: one element, or several for an array; none for null.

    Raises:
        CloudError: The document is not the answer of a vCenter to this method.
    """
    root = answer.xml()
    found = root.find(f"{_SOAP}Body/{_ANY}{method}Response")
    if root.tag != f"{_SOAP}Envelope" or found is None:
        raise CloudError(
            f"{answer.request.name}: the answer is not of a vCenter: is the server in the"
            " cloud-config one?"
        )
    return found.findall(f"{_ANY}returnval")


class Fault(msgspec.Struct, frozen=True):
    """An error that the server answers: the name of its type, its text, its fields."""

    name: str
    text: str
    privilege: str = ""


def fault(answer: Answer) -> Fault | None:
    """Read the fault in an answer; None if there is none.

    Raises:
        CloudError: The document is not XML.
    """
    found = answer.xml().find(f"{_SOAP}Body/{_SOAP}Fault")
    if found is None:
        return None
    text = found.findtext("faultstring") or ""
    detail = found.find("detail")
    if detail is None or not len(detail):
        return Fault("", text)
    kind = detail[0].get(f"{_XSI}type") or local(detail[0].tag).removesuffix("Fault")
    privilege = detail[0].findtext(f"{_ANY}privilegeId") or ""
    return Fault(kind.rpartition(":")[2], text, privilege)


def local(tag: str) -> str:
    """Return the name of an element without its namespace."""
    return tag.rpartition("}")[2]


def reference(element: ET.Element) -> Ref:
    """Read a reference to a managed object.

    Raises:
        CloudError: The element is no reference.
    """
    if not element.get("type") or not element.text:
        raise CloudError(f"the vCenter answered {local(element.tag)} without a reference")
    return Ref(str(element.get("type")), element.text)


def child(element: ET.Element, name: str) -> ET.Element | None:
    """Return the part of a data object that has this name."""
    return element.find(f"{_ANY}{name}")


def children(element: ET.Element, name: str) -> Iterator[ET.Element]:
    """Return the parts of a data object that have this name."""
    return element.iterfind(f"{_ANY}{name}")


def text_of(element: ET.Element, name: str) -> str:
    """Return the text of a part of a data object, "" if it is not there."""
    return element.findtext(f"{_ANY}{name}") or ""


def value_of(element: ET.Element) -> Any:
    """Return the value of a property: text, number, truth, reference, list or a mapping of lists.

    A data object is a mapping of its parts by name, each a list, since only its type would tell
    which of them may repeat.
    """
    kind = (element.get(f"{_XSI}type") or "").rpartition(":")[2]
    if kind.startswith("ArrayOf"):
        return [value_of(item) for item in element]
    if len(element):
        parts: dict[str, list[Any]] = {}
        for item in element:
            parts.setdefault(local(item.tag), []).append(value_of(item))
        return parts
    text = element.text or ""
    if element.get("type"):
        return Ref(str(element.get("type")), text)
    if kind in _NUMBERS:
        return int(text)
    return text == "true" if kind == "boolean" else text
