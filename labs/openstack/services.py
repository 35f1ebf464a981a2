"""The services' processes: they outlive us, and are found again by what is written down."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

_GRACE = 10.0
_PAUSE = 0.2


class Process(msgspec.Struct, frozen=True):
    """A process that was started; its number alone may be another's by now.

    Attributes:
        pid: Its number, and that of its group.
        started: When it was, in the kernel's ticks.
        command: What it runs.
        environment: And with which variables.
    """

    pid: int
    started: str
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}

    def runs(self) -> bool:
        """Tell whether it is that very process, and has not ended."""
        found = _stat(self.pid)
        return found is not None and found[0] != "Z" and found[1] == self.started


def start(
    name: str, command: Sequence[str], state: Path, environment: Mapping[str, str]
) -> Process:
    """Start a service in a group of its own, and write down which process it is."""
    with (state / "log" / f"{name}.out").open("ab") as output:
        child = subprocess.Popen(
            command,
            cwd=state,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    found = _stat(child.pid)
    child.returncode = 0  # it outlives us, which Popen would warn about
    process = Process(child.pid, found[1] if found else "", tuple(command), dict(environment))
    (state / "run" / f"{name}.json").write_bytes(msgspec.json.encode(process))
    return process


def all_of(state: Path) -> dict[str, Process]:
    """Return what was started, by name."""
    return {
        file.stem: msgspec.json.decode(file.read_bytes(), type=Process)
        for file in sorted((state / "run").glob("*.json"))
    }


def kill(name: str, state: Path) -> None:
    """End a service at once, and wait until it has ended."""
    process = all_of(state)[name]
    if process.runs():
        os.killpg(process.pid, signal.SIGKILL)
    while process.runs():
        time.sleep(_PAUSE)


def restart(name: str, state: Path) -> None:
    """Start a service that has ended as it was started before; one that runs is left alone."""
    process = all_of(state)[name]
    if not process.runs():
        start(name, process.command, state, process.environment)


def stop_all(state: Path) -> None:
    """End every process that was started, the last ones by force."""
    there = {name: one for name, one in all_of(state).items() if one.runs()}
    for number in (signal.SIGTERM, signal.SIGKILL):
        for one in there.values():
            if one.runs():
                os.killpg(one.pid, number)
        until = time.monotonic() + _GRACE
        while any(one.runs() for one in there.values()) and time.monotonic() < until:
            time.sleep(_PAUSE)


def last_words(state: Path, name: str) -> str:
    """Return the end of what a service has said."""
    log_file = state / "log" / f"{name}.out"
    lines = log_file.read_text(errors="replace").splitlines()[-15:] if log_file.exists() else []
    return "\n".join([f"the last lines of {log_file}:", *(f"    {line}" for line in lines)])


def _stat(pid: int) -> tuple[str, str] | None:
    """State and start of a process, or None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[19]
