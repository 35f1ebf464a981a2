"""Check values of a provider against the interface, all the way down. Pure."""

import math
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from proreus.cloudprovider.errors import CloudError, RetryAfter, Throttled
from proreus.cloudprovider.load_balancers import Ensured, Pending
from proreus.kube.objects import LoadBalancerIngress

T = TypeVar("T", bound=msgspec.Struct)
U = TypeVar("U", bound=msgspec.Struct)


class Broken(Exception):
    """The error that a value is not what the interface says; the text says how."""


def answer(value: object, success: type[T], other: type[U]) -> T | U | CloudError:
    """Check an answer of one of two types, or a CloudError; lists in it become tuples.

    Raises:
        Broken: The value is of another type, or holds a wrong value.
    """
    if isinstance(value, CloudError):
        return error(value)
    if isinstance(value, success):
        return struct(value, success)
    if isinstance(value, other):
        return struct(value, other)
    expected = f"{success.__name__}, {other.__name__} or CloudError"
    raise Broken(f"expected {expected}, got {type(value).__name__}")


def struct(value: object, type_: type[T]) -> T:
    """Check a value of the type, and the types of all its fields.

    Raises:
        Broken: The value is of another type, or holds a wrong value.
    """
    if not isinstance(value, type_):
        raise Broken(f"expected {type_.__name__}, got {type(value).__name__}")
    try:
        # Structs do not check what they are made of.
        plain = msgspec.to_builtins(value, enc_hook=_builtin)
        found = msgspec.convert(plain, type_)
    except (msgspec.ValidationError, TypeError, ValueError) as exc:
        raise Broken(f"the {type_.__name__} is not valid: {exc}") from exc
    if isinstance(found, Pending) and not _is_delay(found.after):
        raise Broken(f"Pending.after is {found.after!r}: it must be seconds")
    if isinstance(found, Ensured | Pending):
        _check_points(found.ingress)
    return found


def error(value: CloudError) -> CloudError:
    """Check an error: `after`, if it has one, is a number of seconds.

    Raises:
        Broken: `after` is no number; a queue could not be ordered by it.
    """
    after = value.after if isinstance(value, Throttled | RetryAfter) else None
    is_open = after is None and not isinstance(value, RetryAfter)
    if is_open or _is_delay(after):
        return value
    raise Broken(f"{type(value).__name__}.after is {after!r}: it must be seconds")


def _check_points(ingress: Iterable[LoadBalancerIngress]) -> None:
    """Check that clients could reach each ingress point.

    In a Service's status a point without an address would take the place of the one that works; the
    API server refuses only what is no address.
    """
    for point in ingress:
        if not (point.ip or point.hostname):
            raise Broken("an ingress point has neither an IP address nor a host name")


def _is_delay(after: object) -> bool:
    return isinstance(after, int | float) and math.isfinite(after) and after >= 0


def _builtin(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"it holds a value of the type {type(value).__name__}")
