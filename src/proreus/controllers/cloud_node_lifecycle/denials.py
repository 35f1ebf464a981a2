"""Hold back what an answer of the cloud was the reason for, once another one denies that answer."""

from collections.abc import Callable

from proreus.kube.connections import Gate
from proreus.kube.errors import RefusedByGate


class Denied(RefusedByGate):
    """The error that a write was held back, since the cloud has said otherwise meanwhile."""


def unless(is_denied: Callable[[], bool]) -> Gate:
    """Make a gate that is asked before each try: an API server may put a write off for long."""

    def gate() -> None:
        if is_denied():
            raise Denied("the cloud has said otherwise meanwhile")

    return gate
