from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from proreus.runtime import metrics, serving
from proreus.runtime.health import Health


class Probe:
    """A client of one server."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self.session = session
        self.port = port

    async def __call__(self, path: str, **headers: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.port}{path}"
        async with self.session.get(url, headers=headers) as response:
            return response.status, await response.text()


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
async def get(health: Health) -> AsyncIterator[Probe]:
    async with (
        serving.serve(serving.app(health), "127.0.0.1", 0, any_port=True) as port,
        aiohttp.ClientSession() as session,
    ):
        yield Probe(session, port)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/healthz/ping"])
async def test_a_process_that_is_well_answers_ok(get: Probe, path: str) -> None:
    assert await get(path) == (200, "ok")


async def test_readiness_turns_red_and_liveness_does_not(get: Probe, health: Health) -> None:
    report = health.flag("informer-nodes")
    report(ConnectionError("no route"))
    assert (await get("/livez"))[0] == (await get("/healthz"))[0] == 200
    status, text = await get("/readyz")
    assert status == 500
    assert "[+]ping ok\n[-]informer-nodes failed: ConnectionError: no route\n" in text
    assert text.endswith("readyz check failed\n")
    report(None)
    assert await get("/readyz") == (200, "ok")


async def test_a_red_check_of_liveness_is_red_everywhere(get: Probe, health: Health) -> None:
    health.add("leaderElection", lambda: "lease expired", live=True)
    for path in ("/healthz", "/livez", "/readyz", "/healthz/leaderElection"):
        status, text = await get(path)
        assert status == 500
        assert "lease expired" in text


async def test_a_check_that_raises_is_red(get: Probe, health: Health) -> None:
    def broken() -> str | None:
        raise RuntimeError("bug in the check")

    health.add("broken", broken)
    status, text = await get("/readyz")
    assert status == 500
    assert "bug in the check" in text


async def test_excluded_checks_do_not_count_and_typos_are_told(get: Probe, health: Health) -> None:
    health.add("bad", lambda: "broken")
    health.add("worse", lambda: "broken")
    assert (await get("/readyz?exclude=bad"))[0] == 500
    assert await get("/readyz?exclude=bad&exclude=worse") == (200, "ok")
    _, text = await get("/readyz?exclude=worze")
    assert "worze" in text


async def test_verbose_lists_every_check(get: Probe, health: Health) -> None:
    health.add("cache", lambda: None)
    assert await get("/readyz?verbose") == (
        200,
        "[+]ping ok\n[+]cache ok\nreadyz check passed\n",
    )


async def test_an_unknown_check_is_404_and_the_known_ones_are_named(get: Probe) -> None:
    status, text = await get("/healthz/nonsense")
    assert status == 404
    assert "ping" in text


def test_two_checks_of_one_name_are_refused(health: Health) -> None:
    health.add("x", lambda: None)
    with pytest.raises(ValueError, match="x"):
        health.add("x", lambda: None)


async def test_metrics_can_be_scraped(get: Probe) -> None:
    metrics.RECONCILES.labels("scraped", "ok").inc()
    status, text = await get("/metrics")
    assert status == 200
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["proreus_reconciles_total", (("controller", "scraped"), ("result", "ok"))] == 1
    assert not any(name.endswith("_created") for name, _ in samples)


async def test_open_metrics_are_served_when_asked_for(get: Probe) -> None:
    _, text = await get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")


async def test_port_zero_binds_nothing(health: Health) -> None:
    async with serving.serve(serving.app(health), "127.0.0.1", 0) as port:
        assert port == 0


async def test_a_taken_address_is_an_error_that_names_it(get: Probe, health: Health) -> None:
    with pytest.raises(OSError, match=str(get.port)):
        async with serving.serve(serving.app(health), "127.0.0.1", get.port):
            pass
