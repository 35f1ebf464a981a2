import pytest

from proreus.kube.reviews import User
from proreus.serving.authorization import decided, is_always_allowed

DEFAULT = ("/healthz", "/readyz", "/livez")


@pytest.mark.parametrize(
    ("path", "patterns", "expected"),
    [
        ("/healthz", DEFAULT, True),
        ("/healthz/ping", DEFAULT, False),
        ("/healthz/", DEFAULT, False),
        ("/healthzx", DEFAULT, False),
        ("/metrics", DEFAULT, False),
        ("/metrics", ("metrics",), True),
        ("/healthz/ping", ("/healthz/*",), True),
        ("/healthz", ("/healthz/*",), False),
        ("/healthz", ("/healthz*",), True),
        ("/debug/pprof/heap", ("/*",), True),
        ("/anything", ("*",), True),
        ("/metrics", (), False),
        ("/", ("",), True),
        ("/metrics", ("",), False),
        ("/Metrics", ("/metrics",), False),
    ],
)
def test_paths_for_everybody(path: str, patterns: tuple[str, ...], *, expected: bool) -> None:
    assert is_always_allowed(path, patterns) is expected


def test_masters_need_not_be_asked_about_and_others_must() -> None:
    allowed = decided(User("root", groups=("x", "system:masters")), "/metrics", DEFAULT)
    assert allowed is not None
    assert allowed.allowed
    assert decided(User("system:masters", groups=("masters",)), "/metrics", DEFAULT) is None
