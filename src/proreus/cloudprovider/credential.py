"""A credential that renews itself, such as a token of an hour."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.refused import Reason, Refused
from proreus.runtime import klog

T = TypeVar("T")

RENEW_BEFORE: Final = timedelta(minutes=5)
PAUSE: Final = timedelta(seconds=10)
"""Between two tries to renew a credential that still serves."""

log = klog.logger(__name__)


class Issued(msgspec.Struct, Generic[T], frozen=True):
    """A credential with the time when it ends (None: never). Its `repr` shows no secret."""

    value: T
    expires: datetime | None = None

    def __repr__(self) -> str:
        """Return a text without the credential: only when it ends."""
        return f"Issued(expires={self.expires})"


def no_headers(_: Any) -> Mapping[str, str]:
    """Return no headers, for a credential that is sent otherwise, such as in a signature."""
    return {}


def bearer(token: str) -> Mapping[str, str]:
    """Return the HTTP header of a bearer token (RFC 6750)."""
    return {"Authorization": f"Bearer {token}"}


class Credential(Generic[T]):
    """A credential that is renewed when it is needed, before it ends and when it is refused.

    While a new one is issued, the old one serves as long as it lasts. However many wait, one is
    issued at a time; and who waits and gives up does not stop it for the others.
    """

    def __init__(
        self,
        issue: Callable[[], Awaitable[Issued[T]]],
        *,
        now: Callable[[], datetime],
        headers: Callable[[T], Mapping[str, str]] = no_headers,
        renew_before: timedelta = RENEW_BEFORE,
    ) -> None:
        """Keep the function that issues the credential; do not call it yet.

        Args:
            issue: Has a new credential issued, by a call through `Context.call`.
            now: The clock, `Context.now`.
            headers: Returns the headers that carry the credential, such as `bearer`.
            renew_before: Seconds before the credential's end at which a new one is issued; at most
                half its life.
        """
        self.headers = headers
        self._issue = issue
        self._now = now
        self._renew_before = renew_before
        self._issued: Issued[T] | None = None
        self._renew_at: datetime | None = None
        self._renewal: asyncio.Task[Issued[T]] | None = None

    async def get(self) -> T:
        """Return a credential that has not ended; wait for a new one if need be.

        Raises:
            CloudError: No credential is issued.
        """
        issued, now = self._issued, self._now()
        if issued is None or (issued.expires is not None and issued.expires <= now):
            return (await self._renewed()).value
        if self._renew_at is not None and self._renew_at <= now:
            self._start()
        return issued.value

    async def replace(self, refused: T) -> T:
        """Return another credential than the one that the cloud `refused`.

        Raises:
            CloudError: No credential is issued.
        """
        if self._issued is not None and self._issued.value == refused:
            self._issued = None
        return await self.get()

    async def close(self) -> None:
        """Cancel a renewal that is under way."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait([self._renewal])

    async def _renewed(self) -> Issued[T]:
        renewal = self._start()
        try:
            return await asyncio.shield(renewal)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if renewal.cancelled() and not (current and current.cancelling()):
                raise CloudError("the provider is closed: no credential is issued") from None
            raise

    def _start(self) -> "asyncio.Task[Issued[T]]":
        """Begin a renewal in a task of its own, unless one is under way."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew(), name="credential")
            self._renewal.add_done_callback(_noticed)
        return self._renewal

    async def _renew(self) -> Issued[T]:
        try:
            issued = await self._issue()
        except CloudError as error:
            if self._issued is not None:
                self._renew_at = self._now() + PAUSE
                klog.warning(
                    log,
                    "The cloud credential could not be renewed; the old one stays in use",
                    error=str(error),
                )
            if isinstance(error, Refused):
                # What the issuer says is about no object that the credential is to be sent for.
                error.reason = Reason.UNKNOWN
            raise
        self._issued = issued
        self._renew_at = None
        if issued.expires is not None:
            left = issued.expires - self._now()
            self._renew_at = issued.expires - min(self._renew_before, left / 2)
        return issued


def _noticed(renewal: "asyncio.Task[Any]") -> None:
    """Retrieve the error of a renewal for which nobody waits, so that Python does not complain."""
    if not renewal.cancelled():
        renewal.exception()
