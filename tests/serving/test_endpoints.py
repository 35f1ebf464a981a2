import asyncio
import io
import json
import re
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from proreus.runtime import klog, metrics
from proreus.serving import endpoints, servers
from proreus.serving.health import Health

EVERYWHERE = ["0.0.0.0", "::", ""]  # noqa: S104 - the point of a test


class Probe:
    """A client of one server."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self.session = session
        self.port = port

    async def __call__(
        self, path: str, *, method: str = "GET", body: str | None = None, **headers: str
    ) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.port}{path}"
        async with self.session.request(method, url, headers=headers, data=body) as response:
            return response.status, await response.text()


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
async def get(health: Health) -> AsyncIterator[Probe]:
    app = endpoints.application(health, lambda: {"a": {"B": 1}}, profiling=True)
    async with (
        servers.serve(app, "127.0.0.1", 0, flag="--secure-port", any_port=True) as port,
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
    # Everybody may ask: why it fails is for those who may ask for the check.
    assert text == ("[+]ping ok\n[-]informer-nodes failed: reason withheld\nreadyz check failed\n")
    assert "ConnectionError: no route" in (await get("/readyz/informer-nodes"))[1]
    report(None)
    assert await get("/readyz") == (200, "ok")


async def test_a_failing_check_of_liveness_fails_on_every_path(get: Probe, health: Health) -> None:
    health.add("leaderElection", lambda: "lease expired", live=True)
    for path in ("/healthz", "/livez", "/readyz", "/healthz/leaderElection"):
        status, text = await get(path)
        assert status == 500
        assert "leaderElection failed" in text


async def test_a_check_that_raises_is_red(get: Probe, health: Health) -> None:
    def broken() -> str | None:
        raise RuntimeError("bug in the check")

    health.add("broken", broken)
    status, text = await get("/readyz/broken")
    assert status == 500
    assert "bug in the check" in text


async def test_excluded_checks_do_not_count_and_typos_are_reported(
    get: Probe, health: Health
) -> None:
    health.add("bad", lambda: "broken")
    health.add("worse", lambda: "broken")
    assert (await get("/readyz?exclude=bad"))[0] == 500
    assert await get("/readyz?exclude=bad&exclude=worse") == (200, "ok")
    assert await get("/readyz?verbose&exclude=bad&exclude=worse") == (
        200,
        "[+]ping ok\n[+]bad excluded: ok\n[+]worse excluded: ok\nreadyz check passed\n",
    )
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


async def test_the_results_of_checks_have_a_page_of_metrics_of_their_own(
    get: Probe, health: Health
) -> None:
    health.add("sli", lambda: "red")
    await get("/readyz")
    _, text = await get("/metrics/slis")
    assert 'kubernetes_healthcheck{name="sli",type="readyz"} 0.0' in text
    assert 'kubernetes_healthchecks_total{name="sli",status="error",type="readyz"} 1.0' in text
    assert "process_cpu" not in text
    assert "kubernetes_build_info{" in (await get("/metrics"))[1]


async def test_the_configuration_is_shown_as_json(get: Probe) -> None:
    status, text = await get("/configz")
    assert status == 200
    assert json.loads(text) == {"a": {"B": 1}}


async def test_verbosity_is_set_while_it_runs(get: Probe) -> None:
    log, stream = klog.logger("proreus.test"), io.StringIO()
    klog.setup(1, stream=stream, vmodule=[("elsewhere", 3)])
    try:
        klog.v(log, 4, "too much")
        status, text = await get("/debug/flags/v", method="PUT", body="4")
        klog.v(log, 4, "wanted")
        assert (status, "4" in text) == (200, True)
        await get("/debug/flags/v", method="PUT", body="0")
        klog.v(log, 1, "no more")
    finally:
        klog.setup()
    shown = stream.getvalue()
    assert ("too much" in shown, "wanted" in shown, "no more" in shown) == (False, True, False)


@pytest.mark.parametrize("body", ["", "x", "-1", "11", "1.5", "\u0661"])
async def test_what_is_no_verbosity_is_refused(get: Probe, body: str) -> None:
    status, text = await get("/debug/flags/v", method="PUT", body=body)
    assert (status, "0 to 10" in text) == (400, True)


async def test_verbosity_is_put_and_not_got(get: Probe) -> None:
    assert (await get("/debug/flags/v"))[0] == 405


async def test_a_profile_names_the_function_that_takes_the_time(get: Probe) -> None:
    async def spin_for_a_test() -> None:
        while True:
            sum(range(20_000))
            await asyncio.sleep(0)

    task = asyncio.create_task(spin_for_a_test(), name="spinner")
    try:
        async with asyncio.timeout(60):
            text = ""
            while not re.search(r";\S*spin_for_a_test \(test_endpoints.py:\d+\) \d+\n", text):
                status, text = await get("/debug/pprof/profile?seconds=0.3")
                assert status == 200
        _, tasks = await get("/debug/pprof/goroutine")
    finally:
        task.cancel()
    assert re.search(r"spinner:\n.*spin_for_a_test \(test_endpoints.py:\d+\)", tasks)
    assert "MainThread" in tasks


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "301", "nan", "inf"])
async def test_a_profile_of_no_sensible_length_is_refused(get: Probe, seconds: str) -> None:
    status, text = await get(f"/debug/pprof/profile?seconds={seconds}")
    assert (status, "at most 300" in text) == (400, True)


async def test_memory_is_reported_by_type(get: Probe) -> None:
    status, text = await get("/debug/pprof/heap")
    assert status == 200
    assert re.search(r"^\d+ \d+ builtins\.dict$", text, re.MULTILINE)
    assert "/debug/pprof/heap" in (await get("/debug/pprof/"))[1]


@pytest.mark.parametrize("path", ["/debug/pprof/", "/debug/pprof/profile", "/debug/flags/v"])
async def test_without_profiling_its_paths_are_absent(health: Health, path: str) -> None:
    app = endpoints.application(health, dict, profiling=False)
    async with (
        servers.serve(app, "127.0.0.1", 0, flag="--secure-port", any_port=True) as port,
        aiohttp.ClientSession() as session,
    ):
        assert (await Probe(session, port)(path))[0] == 404


async def test_what_is_open_to_all_is_health_and_metrics(health: Health) -> None:
    app = endpoints.open_application(health)
    async with (
        servers.serve(app, "127.0.0.1", 0, flag="--metrics-bind-address", any_port=True) as port,
        aiohttp.ClientSession() as session,
    ):
        get = Probe(session, port)
        paths = ("/healthz", "/metrics", "/configz", "/debug/pprof/")
        assert [(await get(path))[0] for path in paths] == [200, 200, 404, 404]
        health.add("cloud", lambda: "secret")
        for path in ("/readyz", "/readyz/cloud"):
            assert "secret" not in (await get(path))[1]


async def test_port_zero_binds_nothing(health: Health) -> None:
    async with servers.serve(
        endpoints.open_application(health), "127.0.0.1", 0, flag="--secure-port"
    ) as port:
        assert port == 0


@pytest.mark.parametrize("host", ["127.0.0.1", *EVERYWHERE])
async def test_a_taken_port_is_an_error_that_names_flag_address_and_remedy(
    get: Probe, health: Health, host: str
) -> None:
    app = endpoints.open_application(health)
    with pytest.raises(servers.CannotListen) as caught:
        async with servers.serve(app, host, get.port, flag="--secure-port"):
            pass
    assert str(caught.value) == (
        f"--secure-port: cannot listen on {host or '*'}:{get.port} (Address already in use); "
        "another program uses it: stop that program, or choose another port"
    )


async def test_an_address_of_another_machine_is_an_error(health: Health) -> None:
    app = endpoints.open_application(health)
    with pytest.raises(
        servers.CannotListen, match=r"192\.0\.2\.1.*choose an address of this machine"
    ):
        async with servers.serve(app, "192.0.2.1", 0, flag="--secure-port", any_port=True):
            pass


@pytest.mark.parametrize("host", EVERYWHERE)
async def test_everywhere_is_both_families(health: Health, host: str) -> None:
    loopbacks = ["127.0.0.1", *(["[::1]"] if socket.has_dualstack_ipv6() else [])]
    app = endpoints.open_application(health)
    async with (
        servers.serve(app, host, 0, flag="--secure-port", any_port=True) as port,
        aiohttp.ClientSession() as session,
    ):
        for loopback in loopbacks:
            async with session.get(f"http://{loopback}:{port}/healthz") as response:
                assert response.status == 200


async def test_two_processes_share_a_port_if_both_may(health: Health) -> None:
    async def serve(port: int, *, share: bool) -> None:
        app = endpoints.open_application(health)
        async with servers.serve(app, "127.0.0.1", port, flag="--x", share_port=share):
            pass

    app = endpoints.open_application(health)
    async with servers.serve(
        app, "127.0.0.1", 0, flag="--x", any_port=True, share_port=True
    ) as port:
        await serve(port, share=True)
        with pytest.raises(servers.CannotListen):
            await serve(port, share=False)
