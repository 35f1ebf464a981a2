"""The commands that the documentation shows do what it says, in the cluster of the demo.

Every block `sh` of every page is run, in the order of the page, by bash in a directory that holds
`cloud.conf`.

* If a block `text` follows at once, the commands are run again until each of its lines is in what
  they say (… stands for anything); what they exit with is then theirs to say.
* Otherwise they must succeed. Those that begin with `proreus` only look, and may be run again: what
  they find may be a node that a slow machine has kept from reporting.
* What cannot be run in the demo is no `sh` block.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
TUTORIAL: Final = DOCS / "tutorials" / "first-cluster.md"
ELSEWHERE: Final = {DOCS / "tutorials" / "write-a-cloud-provider.md"}
"""Run by tests/examples/test_tutorial.py."""
PATIENCE: Final = 180.0
"""Seconds to wait for what a page says; it only ends hangs."""
FENCE: Final = re.compile(
    r"^(?P<indent> *)```(?P<kind>.*)\n(?P<text>(?:.*\n)*?)(?P=indent)```$", re.MULTILINE
)
EXPORT: Final = re.compile(r"^ +export (\w+)=(.+)$", re.MULTILINE)
BIN: Final = Path(sys.executable).parent


class Block(NamedTuple):
    kind: str
    text: str
    line: int

    @property
    def end(self) -> int:
        """The line of its closing fence."""
        return self.line + self.text.count("\n") + 1


def blocks(document: str) -> list[Block]:
    return [
        Block(one["kind"], one["text"], document.count("\n", 0, one.start()) + 1)
        for one in FENCE.finditer(document)
    ]


ALL: Final = {page: blocks(page.read_text()) for page in sorted(DOCS.rglob("*.md"))}
RUN: Final = [
    # Its node goes after the confirmations of a real cluster, and its reader has a second replica.
    pytest.param(page, marks=pytest.mark.long) if page == TUTORIAL else page
    for page, found in ALL.items()
    if page not in ELSEWHERE and any(block.kind == "sh" for block in found)
]


class Shell:
    """Runs blocks as the reader of a page does, with what the demo has printed."""

    def __init__(self, directory: Path, env: dict[str, str]) -> None:
        self._directory = directory
        self._env = env

    def run(self, commands: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", commands],
            cwd=self._directory,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.returncode, done.stdout

    def succeeds(self, commands: str, where: str) -> None:
        """Run it, again and again if it only looks."""
        deadline = time.monotonic() + PATIENCE
        while True:
            code, said = self.run(f"set -e\n{commands}")
            if code == 0:
                return
            may_wait = commands.startswith("proreus ") and time.monotonic() < deadline
            assert may_wait, f"{where}: exit code {code}\n{said}"
            time.sleep(1)

    def shows(self, commands: str, expected: str, where: str) -> None:
        """Run until each line of `expected` is there."""
        deadline = time.monotonic() + PATIENCE
        while True:
            code, said = self.run(commands)
            missing = [line for line in expected.splitlines() if not is_in(line, said)]
            if not missing:
                return
            assert time.monotonic() < deadline, f"{where}: no {missing} in ({code}):\n{said}"
            time.sleep(1)


def is_in(line: str, said: str) -> bool:
    """Whether there is such a line; spaces at its ends and their number do not matter."""
    parts = (r"\s+".join(map(re.escape, part.split())) for part in line.split("…"))
    pattern = r"\s*" + r"[^\n]*".join(parts) + r"\s*"
    return any(re.fullmatch(pattern, one) for one in said.splitlines())


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The demo as the first terminal of the tutorial shows it; the variables that it prints."""
    log = tmp_path_factory.mktemp("demo") / "terminal.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "proreus", "demo", "--no-story"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while "the cluster is yours" not in log.read_text() or "console" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield dict(EXPORT.findall(log.read_text()))
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(PATIENCE)
    assert code == 0, log.read_text()


@pytest.fixture
def shell(demo: dict[str, str], tmp_path: Path) -> Shell:
    (tmp_path / "cloud.conf").write_text(Path(demo["CLOUD_CONFIG"]).read_text())
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return Shell(tmp_path, {**os.environ, **demo, "PATH": path})


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_every_command_of_a_page_does_what_the_page_says(page: Path, shell: Shell) -> None:
    # Each block is run by a bash of its own: what one sets is not there in the next.
    found = ALL[page]
    for block, following in zip(found, [*found[1:], None], strict=True):
        if block.kind != "sh":
            continue
        where = f"{page.relative_to(ROOT)}:{block.line}"
        if following and following.kind == "text" and following.line == block.end + 2:
            shell.shows(block.text, following.text, where)
        else:
            shell.succeeds(block.text, where)


def test_the_demo_prints_the_variables_that_the_tutorial_uses(demo: dict[str, str]) -> None:
    shown = next(block.text for block in ALL[TUTORIAL] if "the cluster is yours" in block.text)

    assert set(re.findall(r"export (\w+)=", shown)) == set(demo)


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.stem)
def test_no_block_is_hidden_from_the_test_by_another_name(page: Path) -> None:
    others = {block.kind for block in ALL[page]} & {"", "bash", "shell", "zsh", "{code-block} sh"}

    assert not others, "use sh for what can be run in the demo, console or text for the rest"


def test_blocks_and_lines_are_read_as_they_are_meant() -> None:
    document = "1. a\n\n   ```sh\n   ls\n   ```\n```text\n…\n```\n"

    assert blocks(document) == [Block("sh", "   ls\n", 3), Block("text", "…\n", 6)]
    assert is_in("NODES 1  … ready", "a\nNODES      1  2 not ready  \n")
    assert not is_in("NODES 1", "NODES 12\nNODES\n1\n")
