"""The reference of the provider interface: its examples run, and it leaves nothing out."""

import ast
import asyncio
import inspect
import os
import re
from pathlib import Path
from typing import Any, Protocol

import pytest

from proreus import cloudprovider
from proreus.cloudprovider import plugins

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "provider-api.md"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENTED = re.compile(r"^\.\. auto\w+:: proreus\.cloudprovider\.(\w+)$", re.MULTILINE)
PROTOCOLS = {
    name: found
    for name in cloudprovider.__all__
    if isinstance(found := getattr(cloudprovider, name), type) and Protocol in found.__bases__
}


def program() -> str:
    """The examples as one module, each on its own lines of the page."""
    page = PAGE.read_text()
    lines: list[str] = []
    for block in PYTHON.finditer(page):
        first = page.count("\n", 0, block.start(1))
        lines += [""] * (first - len(lines)) + block[1].splitlines()
    return "\n".join(lines)


def test_every_example_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_registered", {})
    monkeypatch.setattr(os, "environ", dict(os.environ))
    code = compile(program(), str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    space: dict[str, Any] = {"__name__": "provider_api"}
    with asyncio.Runner() as runner:
        runner.run(eval(code, space))  # noqa: S307 - our own page; top-level await needs eval


def test_every_name_is_documented_once_and_has_an_example() -> None:
    tree = ast.parse(program())
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert sorted(DOCUMENTED.findall(PAGE.read_text())) == sorted(cloudprovider.__all__)
    assert sorted(set(cloudprovider.__all__) - used) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_verb_of_an_interface_is_used_in_an_example(protocol: str) -> None:
    verbs = {
        name
        for name, _ in inspect.getmembers(PROTOCOLS[protocol], callable)
        if not name.startswith("_")
    }
    tree = ast.parse(program())
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    defined = {node.name for node in ast.walk(tree) if isinstance(node, functions)}
    assert sorted(verbs - called - defined) == []
