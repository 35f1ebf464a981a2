"""The tutorial: each of its blocks is run, and it arrives at examples/minimal_provider.

That it arrives there is quickly seen from its files; to run the blocks is a long test.

A block after a file name in bold is that file. A block `sh` is run, in one shell, and must succeed
unless the block `text` after it shows a failing rule. Each line of `text` must be in the output; …
stands for anything.
"""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from proreus.app.cli import main
from proreus.testing.ports import free_port

from .scratch import Scratch

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorials" / "write-a-cloud-provider.md"
EXAMPLE = ROOT / "examples" / "minimal_provider"
END = "the block has ended"
LONGEST = 1200.0


class Block(NamedTuple):
    kind: str
    file: str
    text: str
    line: int


def blocks(document: str) -> Iterator[Block]:
    lines = document.splitlines(keepends=True)
    kind, first, file = "", 0, ""
    for number, line in enumerate(lines, start=1):
        if line.startswith("```") and kind:
            yield Block(kind, file, "".join(lines[first : number - 1]), first)
            kind = file = ""
        elif line.startswith("```"):
            kind, first = line.strip("`\n") or "none", number
        elif not kind and (named := re.fullmatch(r"\*\*`(.+)`\*\*\n", line)):
            file = named[1]


class Shell:
    """One bash for all blocks, as the reader has it."""

    def __init__(self, cwd: Path, scratch: Scratch) -> None:
        self.cwd = cwd
        self._process = subprocess.Popen(
            ["bash"],
            cwd=cwd,
            env=scratch.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, block: str) -> tuple[int, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f'{block}\nprintf "\\n{END} %s %s\\n" "$?" "$PWD"\n')
        self._process.stdin.flush()
        said: list[str] = []
        for line in self._process.stdout:
            if line.startswith(END):
                code, _, folder = line.removeprefix(END).strip().partition(" ")
                self.cwd = Path(folder)
                return int(code), "".join(said)
            said.append(line)
        raise AssertionError(f"the shell ended: {''.join(said)}")

    def end(self) -> None:
        """End it with all that it has started and that still runs."""
        try:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(timeout=30)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            self._process.kill()
        finally:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()


def check(said: str, expected: str, where: str) -> None:
    for line in filter(None, expected.splitlines()):
        pattern = ".*".join(re.escape(part) for part in line.split("…"))
        assert re.search(f"^{pattern}$", said, re.MULTILINE), f"{where}: no {line!r} in\n{said}"


def test_the_files_of_the_tutorial_in_a_skeleton_are_the_example(tmp_path: Path) -> None:
    package = tmp_path / "minimal_provider"
    assert main(["new-provider", "minimal", "--directory", str(package)]) == 0
    files = [block for block in blocks(TUTORIAL.read_text()) if block.file]
    for block in files:
        (package / block.file).write_text(block.text)
    assert len(files) >= 8
    compare(package)


@pytest.mark.long
@pytest.mark.usefixtures("control_plane")  # whose programs have to be there already
def test_every_block_works_and_the_last_state_is_the_example(tmp_path: Path) -> None:
    # The reader's port may be taken here.
    document = TUTORIAL.read_text().replace("8099", str(free_port()))
    found = list(blocks(document))
    shell = Shell(tmp_path, Scratch(tmp_path / "venv"))
    stop = threading.Timer(LONGEST, shell.end)
    stop.start()
    said = ""
    try:
        for block, following in zip(found, [*found[1:], None], strict=True):
            where = f"{TUTORIAL.name}:{block.line}"
            if block.file:
                target = shell.cwd / block.file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(block.text)
            elif block.kind == "sh":
                code, said = shell.run(block.text)
                shown = following.text if following and following.kind == "text" else ""
                assert code == ("FAILS" in shown), f"{where}: exit code {code}\n{said}"
            else:
                assert block.kind == "text", f"{where}: a block without a file name"
                check(said, block.text, where)
    finally:
        stop.cancel()
        shell.end()
    compare(tmp_path / "minimal_provider")


def compare(package: Path) -> None:
    files = {
        path.relative_to(EXAMPLE)
        for path in EXAMPLE.rglob("*")
        if path.suffix in {".py", ".toml"} and not path.is_relative_to(EXAMPLE / ".venv")
    }
    assert len(files) == 10
    for name in files:
        assert (package / name).read_text() == (EXAMPLE / name).read_text(), name


def test_blocks_are_distinguished() -> None:
    document = (
        "**`a/b.py`**\n\n```python\nx\n```\nthen\n```sh\nls\n```\n```text\n…\n```\n```\n?\n```\n"
    )
    assert list(blocks(document)) == [
        Block("python", "a/b.py", "x\n", 3),
        Block("sh", "", "ls\n", 7),
        Block("text", "", "…\n", 10),
        Block("none", "", "?\n", 13),
    ]


def test_output_must_have_each_line() -> None:
    check("a 1 b\nc\n", "a … b\n", "here")
    with pytest.raises(AssertionError, match="no 'a'"):
        check("a 1 b\nc\n", "a\n", "here")
