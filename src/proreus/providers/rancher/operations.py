"""Make requests that change Rancher objects; URLs are relative to the environment. Pure."""

from typing import Any

from proreus.cloudprovider.requests import Request, json_body

Fields = dict[str, Any]
"""Fields of an object by their names in the API."""


def creation(kind: str, fields: Fields) -> Request:
    """Return the request that makes an object in a list."""
    return Request(f"rancher.create.{kind}", "POST", kind, body=json_body(fields))


def update(kind: str, id_: str, fields: Fields) -> Request:
    """Return the request that changes fields of an object."""
    return Request(f"rancher.update.{kind}", "PUT", f"{kind}/{id_}", body=json_body(fields))


def action(kind: str, id_: str, name: str, fields: Fields | None = None) -> Request:
    """Return the request for an action of an object."""
    url = f"{kind}/{id_}?action={name}"
    return Request(f"rancher.{name}.{kind}", "POST", url, body=json_body(fields or {}))


def removal(kind: str, id_: str) -> Request:
    """Return the request that removes an object."""
    return Request(f"rancher.delete.{kind}", "DELETE", f"{kind}/{id_}")
