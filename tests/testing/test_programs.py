"""A program that is forked is what the same program would be as a process of its own."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proreus.testing import programs
from proreus.testing.waiting import until

ROOT = Path(__file__).parents[2]
WITHIN = 60.0
SAYS = """
import atexit, json, os, random, sys
atexit.register(lambda: print("ended", flush=True))
said = [sys.argv[1:], os.environ.get("SAID"), os.getcwd(), sys.stdin.read(), __name__]
said += [sorted(os.listdir("/proc/self/fd")), random.random(), os.getpgid(0)]
print(json.dumps(said), flush=True)
sys.exit(int(sys.argv[1]))
"""
# A signal that comes just before the sleep begins is noticed after it.
WAITS = "import time\nprint('waits', flush=True)\nwhile True: time.sleep(0.05)\n"


@pytest.fixture(params=["own", "forked"])
def kind(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Programs that are not installed are found by PYTHONPATH."""
    (tmp_path / "program_that_says.py").write_text(SAYS)
    (tmp_path / "program_that_waits.py").write_text(WAITS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # Those of all tests are forks (`tests/conftest.py`).
    own = programs.launched_by(programs.Interpreters())
    # What is started in the background of a shell ignores it, and so do its children.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with own if request.param == "own" else contextlib.nullcontext():
        yield request.param
    signal.signal(signal.SIGINT, before)


async def ended(program: programs.Program) -> int:
    return await asyncio.wait_for(program.wait(), WITHIN)


async def waiting(output: Path) -> programs.Program:
    with output.open("wb") as file:
        program = await programs.start("program_that_waits", output=file)
    await until("it waits", output.read_text)
    return program


@pytest.mark.usefixtures("kind")
async def test_it_has_arguments_environment_directory_and_output_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAID", "once")
    monkeypatch.chdir(tmp_path)
    chances, output = set(), tmp_path / "output"
    for code in (0, 3):
        with output.open("wb") as file:
            program = await programs.start("program_that_says", str(code), "b", output=file)
        assert await ended(program) == program.returncode == code
        first, last = output.read_text().splitlines()
        *said, descriptors, chance, group = json.loads(first)
        assert said == [[str(code), "b"], "once", str(tmp_path), "", "__main__"]
        assert descriptors == ["0", "1", "2", "3"], "the last is that of the listing"
        assert group == os.getpgid(0)
        assert last == "ended"
        chances.add(chance)
    assert len(chances) == 2


@pytest.mark.usefixtures("kind")
async def test_output_and_errors_are_distinguished() -> None:
    code, out, err = await programs.run("proreus", "status", "--once=")
    assert (code, out) == (2, "")
    assert "--once" in err


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_it_ends_by_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    program = await waiting(tmp_path / "output")
    assert program.returncode is None
    program.send_signal(number)
    assert await ended(program) == -number
    with pytest.raises(ProcessLookupError):
        program.kill()  # another may have its number now


@pytest.mark.usefixtures("kind")
async def test_it_can_be_interrupted(tmp_path: Path) -> None:
    program = await waiting(tmp_path / "output")
    program.send_signal(signal.SIGINT)
    assert await ended(program) == -signal.SIGINT
    assert "KeyboardInterrupt" in (tmp_path / "output").read_text()


async def test_forks_end_with_who_started_them(tmp_path: Path) -> None:
    starter = """
import asyncio, os, sys
from labs.forks import forked
from proreus.testing import programs
async def main():
    where = sys.stderr.buffer  # only the id goes to the output
    program = await programs.start("http.server", "0", "--bind=127.0.0.1", output=where)
    print(program.pid, flush=True)
    await asyncio.sleep(600)
with forked():
    asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", starter, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    pid = int(await process.stdout.readline())
    process.kill()
    await process.wait()
    await until("it ends", lambda: not Path(f"/proc/{pid}/stat").exists())
