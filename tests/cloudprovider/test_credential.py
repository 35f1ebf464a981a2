"""A credential that renews itself, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest

from proreus.cloudprovider.credential import PAUSE, Credential, Issued
from proreus.cloudprovider.errors import CloudError, Unauthenticated
from proreus.testing import clock

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = 3600.0
T = TypeVar("T")


class Issuer:
    """Issues 1, 2, … for an hour each, in a second."""

    def __init__(self, lifetime: float | None = HOUR) -> None:
        self.lifetime = lifetime
        self.asked = 0
        self.error: Exception | None = None

    @staticmethod
    def now() -> datetime:
        return START + timedelta(seconds=asyncio.get_running_loop().time())

    async def issue(self) -> Issued[int]:
        self.asked += 1
        number = self.asked
        await asyncio.sleep(1)
        if self.error is not None:
            raise self.error
        if self.lifetime is None:
            return Issued(number)
        return Issued(number, self.now() + timedelta(seconds=self.lifetime))

    def credential(self) -> Credential[int]:
        return Credential(self.issue, now=self.now)


def played(script: Callable[[Issuer, Credential[int]], Awaitable[T]], **options: float) -> T:
    async def scenario() -> T:
        issuer = Issuer(**options)
        credential = issuer.credential()
        try:
            return await script(issuer, credential)
        finally:
            await credential.close()

    return clock.run(scenario())


def test_one_is_issued_for_all_who_wait_and_serves_all_afterwards() -> None:
    async def script(issuer: Issuer, credential: Credential[int]) -> tuple[set[int], int]:
        found = set(await asyncio.gather(*(credential.get() for _ in range(50))))
        found.add(await credential.get())
        return found, issuer.asked

    assert played(script) == ({1}, 1)


def test_the_old_one_serves_while_a_new_one_is_issued() -> None:
    async def script(issuer: Issuer, credential: Credential[int]) -> list[int]:
        await credential.get()
        await asyncio.sleep(HOUR - 301)
        found = [await credential.get()]
        await asyncio.sleep(2)
        before = asyncio.get_running_loop().time()
        found += [await credential.get(), await credential.get()]
        assert asyncio.get_running_loop().time() == before, "nobody waits for the new one"
        await asyncio.sleep(2)
        return [*found, await credential.get(), issuer.asked]

    assert played(script) == [1, 1, 1, 2, 2]


def test_a_renewal_that_fails_is_tried_again_after_a_pause_while_the_old_one_lasts() -> None:
    async def script(issuer: Issuer, credential: Credential[int]) -> list[int]:
        await credential.get()
        issuer.error = CloudError("down")
        await asyncio.sleep(HOUR - 100)
        end = asyncio.get_running_loop().time() + 90
        found = set()
        while asyncio.get_running_loop().time() < end:
            found.add(await credential.get())
            await asyncio.sleep(0.5)
        assert found == {1}
        tries = issuer.asked - 1
        assert 2 < tries <= 90 / PAUSE.total_seconds() + 1
        await asyncio.sleep(15)
        with pytest.raises(CloudError, match="down"):
            await credential.get()
        issuer.error = None
        return [await credential.get()]

    assert len(played(script)) == 1


def test_short_lives_are_used_for_half_of_their_time() -> None:
    async def script(issuer: Issuer, credential: Credential[int]) -> int:
        for _ in range(100):
            await credential.get()
            await asyncio.sleep(1)
        return issuer.asked

    assert 3 <= played(script, lifetime=60.0) <= 4


def test_one_that_never_ends_is_never_renewed_but_replaced_if_it_is_refused() -> None:
    async def script(issuer: Issuer, credential: Credential[int]) -> list[int]:
        first = await credential.get()
        await asyncio.sleep(1000 * HOUR)
        assert await credential.get() == first
        replaced = await asyncio.gather(*(credential.replace(first) for _ in range(5)))
        return [*replaced, await credential.replace(first), issuer.asked]

    assert played(script, lifetime=None) == [2, 2, 2, 2, 2, 2, 2]  # type: ignore[arg-type]


def test_a_caller_that_gives_up_does_not_stop_the_others() -> None:
    async def script(issuer: Issuer, credential: Credential[int]) -> tuple[int, int]:
        first, second = (asyncio.create_task(credential.get()) for _ in range(2))
        await asyncio.sleep(0.5)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await second, issuer.asked

    assert played(script) == (1, 1)


@pytest.mark.parametrize("error", [Unauthenticated("no"), KeyError("a bug")])
def test_what_goes_wrong_is_reported_to_all_who_wait(error: Exception) -> None:
    async def script(issuer: Issuer, credential: Credential[int]) -> list[object]:
        issuer.error = error
        waiting = (credential.get() for _ in range(3))
        return list(await asyncio.gather(*waiting, return_exceptions=True))

    assert played(script) == [error] * 3


def test_closing_ends_a_renewal_and_those_who_wait_get_an_error() -> None:
    async def script(_: Issuer, credential: Credential[int]) -> object:
        waiting = asyncio.create_task(credential.get())
        await asyncio.sleep(0.5)
        await credential.close()
        (found,) = await asyncio.gather(waiting, return_exceptions=True)
        return found

    assert isinstance(played(script), CloudError)
