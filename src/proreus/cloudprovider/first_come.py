"""Give an object that several Services name at once to the one that comes first.

A cloud shows whose an object is, by a mark or by who uses it, only some calls after it was asked.
Who looks in between sees that it is nobody's.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from proreus.cloudprovider.addresses import plain_address
from proreus.cloudprovider.errors import InvalidRequest, RetryAfter
from proreus.cloudprovider.load_balancers import LoadBalancer

AGAIN: Final = 5.0
"""Seconds until a Service that comes second looks again."""
OPEN: Final = 60.0
"""Seconds for which an attempt counts whose outcome is open."""


class FirstCome:
    """A memory of which Service begins to use which object at present."""

    def __init__(self, uptime: Callable[[], float]) -> None:
        """Begin without any; `uptime` is that of the provider's context."""
        self._uptime = uptime
        # By the object: the Service's UID, and until when that counts.
        self._begun: dict[str, tuple[str, float]] = {}

    def address(self, lb: LoadBalancer) -> AbstractContextManager[None]:
        """Let a Service begin to use the address that it names, unless its status shows it."""
        asked = plain_address(lb.requested_address)
        shown = {plain_address(point.ip) for point in lb.ref.last_ingress}
        return nullcontext() if asked in {"", *shown} else self.begin(lb.ref.uid, asked)

    @contextmanager
    def begin(self, uid: str, object_: str) -> Iterator[None]:
        """Let a Service begin to use an object: look whose it is, and make it its own.

        It has its turn until that ends. What is broken off, or is to be tried again, may have had
        its effect, or have it soon: so it counts for a minute more. A refusal of ours has none.

        Args:
            uid: The UID of the Service.
            object_: The id of the object.

        Raises:
            RetryAfter: Another Service has its turn.
        """
        now = self._uptime()
        self._begun = {one: known for one, known in self._begun.items() if known[1] > now}
        if self._begun.get(object_, (uid, now))[0] != uid:
            raise RetryAfter(f"{object_} is being given to another Service first", after=AGAIN)
        self._begun[object_] = uid, math.inf
        try:
            yield
        except InvalidRequest:
            del self._begun[object_]
            raise
        except BaseException:
            self._begun[object_] = uid, self._uptime() + OPEN
            raise
        del self._begun[object_]
