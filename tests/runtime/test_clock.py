import asyncio
import threading
import time

import pytest

from proreus.testing import clock
from proreus.testing.clock import virtual_time


def test_hours_pass_in_no_time_and_in_order() -> None:
    seen: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((name, asyncio.get_running_loop().time()))

    async def main() -> None:
        await asyncio.gather(sleeper("late", 7200), sleeper("early", 3600), sleeper("none", 0))

    started = time.monotonic()
    clock.run(main())
    assert time.monotonic() - started < 60
    assert seen == [("none", 0.0), ("early", 3600.0), ("late", 7200.0)]


@virtual_time
async def test_time_stands_still_while_something_is_ready() -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(1, lambda: None)
    for _ in range(100):
        await asyncio.sleep(0)
    assert loop.time() == 0.0


@virtual_time
async def test_timeouts_strike_at_their_time() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(300):
            await asyncio.Event().wait()
    assert asyncio.get_running_loop().time() == 300.0


@virtual_time
async def test_sockets_of_the_process_deliver_before_time_jumps() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(3600):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"hello\n")
            assert await reader.readline() == b"hello\n"
            writer.close()
            await writer.wait_closed()
    assert asyncio.get_running_loop().time() == 0.0


@virtual_time
async def test_without_timers_a_thread_may_wake_the_loop() -> None:
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()
    threading.Timer(0.01, lambda: loop.call_soon_threadsafe(woken.set)).start()
    await woken.wait()
    assert loop.time() == 0.0


def test_a_test_that_would_hang_fails() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with (
        pytest.raises(clock.Deadlock),
        asyncio.Runner(loop_factory=lambda: clock.VirtualTimeLoop(deadlock_after=0.01)) as runner,
    ):
        runner.run(main())


@virtual_time
async def test_time_goes_on_for_waiters_who_have_less_than_a_nanosecond_to_wait() -> None:
    loop = asyncio.get_running_loop()
    looks = 0

    async def wait_until(moment: float) -> None:
        nonlocal looks
        while loop.time() < moment:
            looks += 1
            assert looks < 100
            rung = loop.create_future()
            loop.call_at(moment, rung.set_result, None)
            await rung

    first = asyncio.create_task(wait_until(4e-10))
    await asyncio.sleep(0)  # so that one of them looks while the timer of the other rings
    second = asyncio.create_task(wait_until(6e-10))
    await asyncio.gather(first, second)

    assert loop.time() == 6e-10
