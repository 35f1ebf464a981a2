"""Answer `Pending` while a cloud works: soon at first, later while nothing happens.

waits = Waits(PACE)
try:
answer = await self._ensure(lb)
except Working as working:
return waits.answer(lb.ref.uid, working)
waits.done(lb.ref.uid)
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancerRef, Pending
from proreus.cloudprovider.steps import nothing
from proreus.kube.objects import vip_addresses

LONG: Final = 600.0
"""Seconds after a look until it counts no more, but for those between two: a failing Service waits
for less than that."""


class Working(Exception):
    """The signal that the cloud works on something, so that the verb ends with `Pending`.

    Attributes:
        reason: The work that the cloud still does.
        disowns: Whether the Service is to show no address meanwhile, as of a `CloudError`.
    """

    disowns: bool = False

    def __init__(self, reason: str) -> None:
        """Keep the description of what the cloud works on."""
        super().__init__(reason)
        self.reason = reason


def has_left(ref: LoadBalancerRef, held: Iterable[str]) -> bool:
    """Tell whether a Service's status shows an address, for kube-proxy, that is not held.

    The cloud gives an address that a load balancer has left to whoever comes next, and nodes would
    lead what comes for it to the Service.

    Args:
        ref: The Service.
        held: The addresses that its load balancer has, or the cloud keeps for it, as a look shows
            that is not in doubt (`Missed`).
    """
    return not set(vip_addresses(ref.last_ingress)).issubset(held)


@contextmanager
def showing_only(ref: LoadBalancerRef, held: Iterable[str]) -> Iterator[None]:
    """Withdraw what a Service's status shows if the work does not end well and it `has_left` it."""
    is_left = has_left(ref, held)
    try:
        yield
    except Working as working:
        working.disowns = is_left
        raise
    except CloudError as error:
        if is_left:
            raise error.disowning() from error.__cause__
        raise


class Waits:
    """A count, by the Service's UID, of the answers `Pending` since the last progress."""

    def __init__(self, pace: Sequence[float]) -> None:
        """Begin with no count; `pace` has the delays of the first next try, the second and so on.

        The last delay is used for all further tries.
        """
        self._pace = pace
        self._waited: dict[str, int] = {}

    def pending(
        self, uid: str, reason: str, *, is_moving: bool = False, withdrawn: bool = False
    ) -> Pending:
        """Return `Pending` with the delay of the next try.

        Args:
            uid: The UID of the Service that waits.
            reason: The work that the cloud still does.
            is_moving: Whether anything was done since the last try: then the delays begin anew.
            withdrawn: Whether an address leaves the status, as of `Pending`.
        """
        waited = 0 if is_moving else self._waited.get(uid, 0)
        self._waited[uid] = waited + 1
        return Pending(self._pace[min(waited, len(self._pace) - 1)], reason, withdrawn=withdrawn)

    def answer(self, uid: str, working: Working) -> Pending:
        """Return `Pending` for what the cloud works on, with the delay of the next try."""
        return self.pending(uid, working.reason, withdrawn=working.disowns)

    def has_waited(self, uid: str) -> bool:
        """Tell whether a Service has waited as often as its pace has delays."""
        return self._waited.get(uid, 0) >= len(self._pace)

    def done(self, uid: str) -> None:
        """Forget how long a Service has waited."""
        self._waited.pop(uid, None)


class Looks:
    """A memory of since when things were seen to be so, whenever they were looked at.

    A look from long ago does not count: nobody knows what was so since then.
    """

    def __init__(self, longest: float) -> None:
        """Begin with no look; after `longest` seconds one counts no more."""
        self._longest = longest
        self._looks: dict[str, tuple[float, float]] = {}

    def since(self, key: str, now: float) -> float:
        """Return the time of the first look that counts; now if there is none."""
        first, last = self._looks.get(key, (now, now))
        return first if now - last <= self._longest else now

    def note(self, key: str, now: float) -> float:
        """Note that something is so in a look now; return the time of the first one that counts."""
        first = self.since(key, now)
        self._looks[key] = first, now
        return first

    def forget(self, key: str) -> None:
        """Forget all looks at something, which is not so any more."""
        self._looks.pop(key, None)


class Twice:
    """A memory of what one look has shown, and what counts only if a second one shows it, too.

    A list may lag behind, or lack a part.
    """

    def __init__(self, confirm: float) -> None:
        """Begin with nothing in doubt; `confirm` seconds lie between the two looks."""
        self._confirm = confirm
        self._looks = Looks(LONG + confirm)

    def is_sure(self, key: str, *, is_so: bool) -> bool:
        """Tell whether something is so, and was so in a look long enough ago, and ever since.

        Args:
            key: What was looked at.
            is_so: Whether it is so in this look.
        """
        if not is_so:
            self._looks.forget(key)
            return False
        self._looks.note(key, asyncio.get_running_loop().time())
        return self.was_sure(key)

    def was_sure(self, key: str) -> bool:
        """Tell whether something was surely so when it was looked at last."""
        now = asyncio.get_running_loop().time()
        return now - self._looks.since(key, now) >= self._confirm


class Missed:
    """A memory of load balancers that are missing although a Service's status has their address.

    A list may lag behind, or lack a part. What it lacks would be made anew, with another address,
    while the first one works. So it must be missing in a second look.
    """

    def __init__(self, confirm: float) -> None:
        """Begin with nothing missing; `confirm` seconds lie between the two looks."""
        self._twice = Twice(confirm)

    def check(self, ref: LoadBalancerRef, *, is_there: bool) -> None:
        """Let a Service pass whose load balancer is there, or surely missing, or new.

        Args:
            ref: The Service.
            is_there: Whether any part of its load balancer is shown.

        Raises:
            Working: The load balancer has not been missing for long enough.
        """
        is_missing = bool(ref.last_ingress) and not is_there
        if is_missing != self._twice.is_sure(ref.uid, is_so=is_missing):
            raise Working(
                "the cloud does not show the load balancer whose address the Service has: it is"
                " looked for once more before it counts as gone"
            )

    @asynccontextmanager
    async def doubting(
        self, ref: LoadBalancerRef, look: Callable[[], Awaitable[None]] = nothing
    ) -> AsyncIterator[None]:
        """Let a refusal withdraw an address only if the load balancer is surely missing.

        Args:
            ref: The Service.
            look: Raises if what shows nothing may be another account, or half a list.

        Raises:
            Working: The load balancer has not been missing for long enough.
        """
        try:
            yield
        except InvalidRequest as error:
            if error.disowns:
                await look()
                self.check(ref, is_there=False)
            raise

    def is_sure(self, ref: LoadBalancerRef, *, is_there: bool) -> bool:
        """Tell whether a Service's load balancer is surely missing; this is a look, too."""
        return self._twice.is_sure(ref.uid, is_so=not is_there)
