import io

import pytest

from proreus.runtime import klog
from proreus.serving.health import Health


def test_two_checks_of_one_name_are_refused() -> None:
    health = Health()
    health.add("x", lambda: None)
    with pytest.raises(ValueError, match="x"):
        health.add("x", lambda: None)


def test_liveness_is_asked_only_what_a_restart_helps() -> None:
    health = Health()
    health.add("cache", lambda: "empty")
    health.add("lease", lambda: "lost", live=True)
    assert health.run(live=True) == [("ping", None), ("lease", "lost")]
    assert health.run(exclude=["lease"]) == [("ping", None), ("cache", "empty")]


def test_why_a_check_fails_is_logged_once_until_it_passes() -> None:
    health, stream = Health(), io.StringIO()
    report = health.flag("cloud")
    klog.setup(stream=stream)
    try:
        for problem in (None, OSError("no route"), OSError("still none"), None, None):
            report(problem)
            health.run()
    finally:
        klog.setup()
    assert [line.split("] ", 1)[1] for line in stream.getvalue().splitlines()] == [
        '"A health check fails" check="cloud" reason="OSError: no route"',
        '"A health check passes again" check="cloud"',
    ]
