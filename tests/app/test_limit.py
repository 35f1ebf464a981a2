"""The limit on requests to the API server that the flags ask for."""

import asyncio

from proreus.app.leader import limiter
from proreus.app.options import Options
from proreus.runtime.priority import Priority
from proreus.testing.clock import virtual_time


def test_by_default_there_is_none() -> None:
    assert limiter(Options()) is None


@virtual_time
async def test_so_many_go_at_once_and_then_so_many_a_second() -> None:
    bucket = limiter(Options(kube_api_qps=5.0, kube_api_burst=3))
    assert bucket is not None
    times = []
    for _ in range(8):
        await bucket.take(Priority.USER)
        times.append(round(asyncio.get_running_loop().time(), 2))
    assert [round(at - times[0], 2) for at in times] == [0, 0, 0, 0.2, 0.4, 0.6, 0.8, 1.0]
