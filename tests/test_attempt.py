"""The second try of tests that failed, and how it is ended."""

import signal
import subprocess
import sys
import time
from pathlib import Path

ATTEMPT = Path(__file__).parents[1] / "tools" / "attempt.py"
SLEEPS = """
import pathlib, time, pytest

@pytest.fixture
def site():
    pathlib.Path("began").touch()
    yield
    pathlib.Path("cleaned").touch()

def test_it(site):
    time.sleep(60)
"""


def test_who_ends_it_lets_the_tests_clean_up(tmp_path: Path) -> None:
    (tmp_path / "test_sleeps.py").write_text(SLEEPS)
    command = [sys.executable, str(ATTEMPT), "-q", "-p", "no:proreus", "test_sleeps.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as program:
        while not (tmp_path / "began").exists():
            assert program.poll() is None
            time.sleep(0.05)
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) != 0
    assert (tmp_path / "cleaned").exists()
