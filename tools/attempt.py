"""Run pytest; what fails beside other tests is tried once more, alone, and counted.

A test that passes only alone is a bug too, of the test or of what it tests: the last line says how
many there were, so that it is seen. Exits as pytest does, of the second run if there was one.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
TESTS_FAILED = 1
"""pytest's exit code when tests ran and some failed."""
ALONE = "--numprocesses=0"


def main(arguments: list[str]) -> int:
    """Run pytest with these arguments, at most twice."""
    pytest = [sys.executable, "-m", "pytest"]
    FAILED.unlink(missing_ok=True)  # else failures of other runs would count
    code = run([*pytest, *arguments])
    unstable = 0
    if code == TESTS_FAILED:
        before = failed()
        # By name: `--last-failed` runs all tests where none of the names is found again.
        options = [argument for argument in arguments if not Path(argument).exists()]
        print("== what failed, once more and alone", flush=True)
        code = run([*pytest, *options, ALONE, *sorted(before)])
        unstable = len(before - failed())
    print(f"== failed beside other tests and passed alone: {unstable}", flush=True)
    return code


def run(command: list[str]) -> int:
    """Run a command to its end; who ends this process interrupts it, so that it cleans up.

    What a shell starts in the background ignores interrupts, and so would the command.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(command) as process:
        signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
        return process.wait()


def failed() -> set[str]:
    """Return the tests that failed when they were run last, as pytest remembers them."""
    return set(json.loads(FAILED.read_text(encoding="utf-8"))) if FAILED.exists() else set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
