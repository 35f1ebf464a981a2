"""What the documentation says of the code is there."""

import ast
import functools
import re
from pathlib import Path

import pytest

from proreus.controllers.table import CONTROLLERS

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md")) + sorted(ROOT.glob("*.md"))
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
TABLE = ROOT / "docs" / "explanation" / "differences.md"


@functools.cache
def functions_in(file: Path) -> frozenset[str]:
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    body = ast.parse(file.read_text()).body
    return frozenset(node.name for node in body if isinstance(node, functions))


@pytest.mark.parametrize("page", [page for page in PAGES if TEST.search(page.read_text())])
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    for file, name in TEST.findall(page.read_text()):
        assert (ROOT / file).is_file(), file
        assert name in functions_in(ROOT / file), f"{file}::{name}"


def test_every_difference_from_go_names_its_test() -> None:
    rows = [line for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    unproven = [row for row in rows if not row.startswith("| what |") and not TEST.search(row)]
    assert len(rows) > 30
    assert unproven == []


def test_the_table_of_readme_has_every_controller() -> None:
    rows = re.findall(
        r"^\| `([\w-]+)` \| `([\w-]+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    known = [(one.name, one.alias) for one in CONTROLLERS]
    assert sorted(set(rows) & {*known}) == sorted(known)
