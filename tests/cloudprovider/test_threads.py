"""Daemon threads for blocking calls: real threads, so waits are bounded and never measured."""

import asyncio
import subprocess
import sys
import textwrap
import threading

import pytest

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.threads import Threads


async def run(threads: Threads, fn: object) -> object:
    place = await threads.reserve(30)
    assert callable(fn)
    answer, ended = place.start(fn, "test")
    try:
        return await answer
    finally:
        await ended


async def test_a_thread_is_used_again() -> None:
    threads = Threads()
    first = await run(threads, threading.get_ident)
    assert [await run(threads, threading.get_ident) for _ in range(5)] == [first] * 5


async def test_calls_run_side_by_side() -> None:
    threads = Threads()
    meeting = threading.Barrier(3)
    async with asyncio.timeout(30):
        await asyncio.gather(*(run(threads, lambda: meeting.wait(30)) for _ in range(3)))


@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), StopIteration(), asyncio.CancelledError()]
)
async def test_what_no_future_may_carry_comes_as_a_cloud_error(error: BaseException) -> None:
    def raises() -> None:
        raise error

    with pytest.raises(CloudError, match=type(error).__name__) as caught:
        await run(Threads(), raises)
    assert caught.value.__cause__ is error


async def test_a_place_that_was_not_used_is_given_back_once() -> None:
    threads = Threads(most=1)
    for _ in range(3):
        place = await threads.reserve(30)
        place.release()
        place.release()
    taken = await threads.reserve(30)
    with pytest.raises(CloudError, match="no thread is free"):
        await threads.reserve(0)
    taken.release()


async def test_an_idle_thread_ends() -> None:
    threads = Threads(idle=0.01)
    worker = await run(threads, threading.current_thread)
    assert isinstance(worker, threading.Thread)
    await asyncio.to_thread(worker.join, 30)
    assert not worker.is_alive()
    assert await run(threads, lambda: 1) == 1


def test_a_hung_thread_keeps_neither_the_loop_nor_the_process_from_ending() -> None:
    script = """
        import asyncio, threading
        from proreus.cloudprovider.threads import Threads

        late = threading.Event()

        async def main():
            threads = Threads()
            place = await threads.reserve(30)
            place.start(lambda: threading.Event().wait(), "hangs")
            place = await threads.reserve(30)
            place.start(lambda: late.wait(30), "ends after its loop")

        asyncio.run(main())
        late.set()
        print("ended")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "ended\n"
    assert done.stderr == ""


def test_an_answer_that_comes_after_its_loop_was_closed_is_dropped() -> None:
    late, over = threading.Event(), threading.Event()
    threads = Threads(idle=0.01)
    workers: list[threading.Thread] = []

    def outlives() -> None:
        workers.append(threading.current_thread())
        over.set()
        late.wait(30)

    async def main() -> None:
        place = await threads.reserve(30)
        place.start(outlives, "outlives")
        await asyncio.to_thread(over.wait, 30)

    asyncio.run(main())
    late.set()
    workers[0].join(30)
    assert not workers[0].is_alive()
