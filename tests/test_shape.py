"""The shape of the source: short functions and files, documented names, pure decisions."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(module for folder in ("src", "labs") for module in (ROOT / folder).rglob("*.py"))

FUNCTION_LINES = 60
FILE_LINES = 400
IMPURE = {"asyncio", "aiohttp", "time", "random", "logging"}
PURE_MODULES = ("plan.py", "cloudprovider/desired.py", "kube/requests.py", "kube/patch.py")
OBJECT_PARTS = {"metadata", "spec", "status"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Rule = Callable[[str], Iterator[str]]


def long_functions(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"line {node.lineno}: {node.name} has {lines} lines"


def long_file(source: str) -> Iterator[str]:
    lines = len(source.splitlines())
    if lines > FILE_LINES:
        yield f"the file has {lines} lines"


def undocumented_names(source: str) -> Iterator[str]:
    module = ast.parse(source)
    if ast.get_docstring(module) is None:
        yield "the module has no docstring"
    yield from undocumented_members(module)


def undocumented_members(parent: ast.Module | ast.ClassDef) -> Iterator[str]:
    for node in parent.body:
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
            continue
        if ast.get_docstring(node) is None and not inherits_docstring(node):
            yield f"line {node.lineno}: {node.name} has no docstring"
        if isinstance(node, ast.ClassDef):
            yield from undocumented_members(node)


def inherits_docstring(node: Function | ast.ClassDef) -> bool:
    """Overloads and overrides are documented where they are first declared."""
    marks = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return bool(marks & {"overload", "override", "setter"})


def impure_imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for name in names:
            if name.partition(".")[0] in IMPURE:
                yield f"line {node.lineno}: imports {name}"


def comparisons_of_object_fields(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            for part in ast.walk(node):
                if isinstance(part, ast.Attribute) and part.attr in OBJECT_PARTS:
                    yield f"line {node.lineno}: decides by {ast.unparse(node)}"
                    break


def is_pure(module: Path) -> bool:
    return module.as_posix().endswith(tuple(f"/{name}" for name in PURE_MODULES))


def is_controller(module: Path) -> bool:
    return module.name == "controller.py" and module.parent.parent.name == "controllers"


def every(module: Path) -> bool:
    return True


@pytest.mark.parametrize(
    ("rule", "applies"),
    [
        (long_functions, every),
        (long_file, every),
        (undocumented_names, every),
        (impure_imports, is_pure),
        (comparisons_of_object_fields, is_controller),
    ],
)
def test_the_source_has_no(rule: Rule, applies: Callable[[Path], bool]) -> None:
    modules = [module for module in MODULES if applies(module)]
    found = [
        f"{module.relative_to(ROOT)}: {fault}"
        for module in modules
        for fault in rule(module.read_text())
    ]

    assert modules, "the rule looks at nothing: have the modules it speaks of been renamed?"
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (
            long_functions,
            "def f():\n" + "    x = 1\n" * (FUNCTION_LINES - 1),
            "def f():\n" + "    x = 1\n" * FUNCTION_LINES,
        ),
        (long_functions, "", "class C:\n  async def f():\n" + "    x = 1\n" * FUNCTION_LINES),
        (long_file, "x = 1\n" * FILE_LINES, "x = 1\n" * (FILE_LINES + 1)),
        (undocumented_names, "'''Doc.'''\ndef _f(): ...", "def _f(): ..."),
        (undocumented_names, "'''Doc.'''\nclass _C:\n  def f(): ...", "'''Doc.'''\ndef f(): ..."),
        (
            undocumented_names,
            "'''Doc.'''\nclass C:\n  '''Doc.'''\n  @override\n  def f(): ...",
            "'''Doc.'''\nclass C:\n  '''Doc.'''\n  async def f(): ...",
        ),
        (impure_imports, "import datetime\nfrom timeit import x", "import asyncio.events"),
        (impure_imports, "from proreus.kube import time", "def f():\n  from time import sleep"),
        (
            comparisons_of_object_fields,
            "if plan(node, now) is None: pass",
            "if node.spec.provider_id == '': pass",
        ),
        (
            comparisons_of_object_fields,
            "x = node.status",
            "x = 1 if 'a' in n.metadata.labels else 2",
        ),
    ],
)
def test_the_rule_distinguishes_good_from_bad(rule: Rule, good: str, bad: str) -> None:
    assert list(rule(good)) == []
    assert len(list(rule(bad))) == 1
