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
    yield
    pathlib.Path("cleaned").touch()

def test_it(site):
    pathlib.Path("began").touch()  # the interrupt is to come when the fixture is there
    time.sleep(60)
"""

UNSTABLE = """
import pathlib

def test_unstable():
    tried = pathlib.Path("tried").exists()
    pathlib.Path("tried").touch()
    assert tried

def test_stable():
    with pathlib.Path("stable").open("a") as file:
        file.write("x")
"""
RENAMED = """
import os, pathlib, pytest

@pytest.mark.parametrize("process", [os.getpid()])
def test_renamed(process):
    assert False

def test_stable():
    with pathlib.Path("stable").open("a") as file:
        file.write("x")
"""


def attempt(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ATTEMPT), "-q", "-p", "no:proreus", "."]
    return subprocess.run(command, cwd=directory, check=False, stdout=subprocess.PIPE, text=True)


def test_a_test_that_passes_alone_is_counted_and_others_run_once(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(UNSTABLE)
    done = attempt(tmp_path)
    assert done.returncode == 0
    assert done.stdout.endswith("== failed beside other tests and passed alone: 1\n")
    assert (tmp_path / "stable").read_text() == "x"


def test_a_failed_test_that_is_not_found_again_fails_the_run_and_others_run_once(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_sample.py").write_text(RENAMED)
    done = attempt(tmp_path)
    assert done.returncode != 0
    assert (tmp_path / "stable").read_text() == "x"


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
