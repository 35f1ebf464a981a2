"""Do the tests of the decisions notice when a decision is wrong? Changes one place at a time.

    python tools/mutation.py [part of a path ...]

Every pure module of the controllers, and `cloudprovider/desired.py`, is changed in one place after
another, and for each change the tests in tests/plans and tests/properties run that import from
the module's package. A change that no test notices is a survivor and is listed. The exit code is
1 when fewer than 90 % are noticed, 2 when the tests fail without any change.

(mutmut changes function bodies only; here the defaults of Structs and the tables are half of the
decision.)
"""

import ast
import importlib.abc
import importlib.metadata
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parents[1]
REQUIRED = 0.9
TIME_LIMIT = 60  # seconds for one change: an endless loop is noticed too
ARGUMENTS = [
    "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={ROOT}",
    f"--confcutdir={ROOT / 'tests/plans'}",  # no control plane is needed here
    "-W", "ignore::pytest.PytestAssertRewriteWarning",  # preloaded
]  # fmt: skip

_OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
    ast.Continue: ast.Break, ast.Break: ast.Continue,
}  # fmt: skip
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_TYPES_AND_MARKS = {"annotation", "returns", "decorator_list"}


class Place(NamedTuple):
    """A place in a syntax tree: an item of a field of a node, and what to put there instead."""

    owner: ast.AST
    field: str
    item: int | None
    line: int
    new: ast.AST

    def change(self) -> str:
        """Change the tree for good; says how."""
        held = getattr(self.owner, self.field)
        old = held if self.item is None else held[self.item]
        # An operator alone says little; a whole compound statement says too much.
        shown = old if hasattr(self.owner, "body") else self.owner
        before = ast.unparse(shown)
        if self.item is None:
            setattr(self.owner, self.field, self.new)
        else:
            held[self.item] = self.new
        after = ast.unparse(self.new if shown is old else shown)
        return f"{before.splitlines()[0][:90]}  →  {after.splitlines()[0][:90]}"


def targets() -> Iterator[Path]:
    """Return the modules that hold decisions only."""
    for path in sorted((ROOT / "src/proreus/controllers").glob("*/*.py")):
        if path.name not in ("__init__.py", "controller.py"):
            yield path
    yield ROOT / "src/proreus/cloudprovider/desired.py"


def module_name(path: Path) -> str:
    """Return the dotted name of a module of the package."""
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)


def tests_of(path: Path) -> list[str]:
    """Return the test files that import the module or, for a controller's, its package.

    Plans first.
    """
    package = module_name(path).split(".")[:3]
    names = tuple(f"from {'.'.join(package)}{end}" for end in (".", " "))
    folders = (ROOT / "tests" / name for name in ("plans", "properties"))
    files = (file for folder in folders for file in sorted(folder.glob("test_*.py")))
    return [str(file) for file in files if any(name in file.read_text() for name in names)]


def places(owner: ast.AST, line: int = 1) -> Iterator[Place]:
    """Yield every change of one place below `owner`."""
    for field, value in ast.iter_fields(owner):
        is_class_option = isinstance(owner, ast.ClassDef) and field != "body"
        if field in _TYPES_AND_MARKS or is_class_option:
            continue
        items: Iterable[tuple[int | None, object]]
        items = enumerate(value) if isinstance(value, list) else [(None, value)]
        for index, node in items:
            if not isinstance(node, ast.AST) or _decides_nothing(node):
                continue
            at = getattr(node, "lineno", line)
            for new in _instead(owner, field, node):
                new = ast.fix_missing_locations(ast.copy_location(new, node))
                yield Place(owner, field, index, at, new)
            yield from places(node, at)


def _decides_nothing(node: ast.AST) -> bool:
    """Docstrings, imports and type variables."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "TypeVar"
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Import | ast.ImportFrom)


def _instead(owner: ast.AST, field: str, node: ast.AST) -> Iterator[ast.AST]:
    """Return what may stand in the place of `node`."""
    if type(node) in _OPERATORS:
        yield _OPERATORS[type(node)]()
    elif isinstance(node, ast.Constant):
        yield from _constants(node.value)
    elif isinstance(node, ast.Name) and node.id in _NAMES:
        yield ast.Name(_NAMES[node.id], ast.Load())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    if isinstance(node, ast.expr):
        if field in ("test", "ifs"):
            yield ast.UnaryOp(ast.Not(), node)
        is_none = isinstance(node, ast.Constant) and node.value is None
        if isinstance(owner, ast.Return) and not is_none:
            yield ast.Constant(None)


def _constants(value: object) -> Iterator[ast.AST]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield ast.Constant(value + 1)
    elif isinstance(value, str) and value:
        yield ast.Constant(f"{value}XX")


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the changed module in the place of the one on disk."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self._path = path
        self._name = module_name(path)
        self._code = compile(tree, str(path), "exec")

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Answer for the one module."""
        del path, target
        return importlib.util.spec_from_loader(name, self) if name == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed code as the module."""
        module.__file__ = str(self._path)
        exec(self._code, module.__dict__)  # noqa: S102  # running changed source is the purpose


def preload() -> None:
    """Import once what every process would have to: pytest's plugins and what plans build on."""
    for plugin in importlib.metadata.entry_points(group="pytest11"):
        plugin.load()
    for name in ("controllers.inventory", "controllers.events", "kube.patch"):
        importlib.import_module(f"proreus.{name}")


def start(path: Path, number: int | None, tests: Sequence[str]) -> int:
    """Run the tests in a process of their own, with one change or, for None, without."""
    pid = os.fork()
    if pid:
        return pid
    failed = True
    try:
        signal.alarm(TIME_LIMIT)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        failed = is_noticed(path, number, tests)
    finally:
        os._exit(int(failed))


def is_noticed(path: Path, number: int | None, tests: Sequence[str]) -> bool:
    """Make the change in this process and run the tests."""
    if module_name(path) in sys.modules:  # preloaded, as something else imports it
        for name in [name for name in sys.modules if name.partition(".")[0] == "proreus"]:
            del sys.modules[name]
    tree = ast.parse(path.read_text())
    if number is not None:
        list(places(tree))[number].change()
    sys.meta_path.insert(0, Changed(path, tree))
    hypothesis.settings.register_profile(
        "mutation", database=None, derandomize=True, max_examples=50, deadline=None,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )  # fmt: skip
    hypothesis.settings.load_profile("mutation")
    return pytest.main([*ARGUMENTS, *tests]) != 0


def survivors(path: Path, count: int, tests: Sequence[str]) -> list[int]:
    """Return the numbers of the changes that no test notices, with one process per processor."""
    waiting = list(range(count))
    running: dict[int, int] = {}
    found: list[int] = []
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            number = waiting.pop(0)
            running[start(path, number, tests)] = number
        pid, status = os.wait()
        number = running.pop(pid)
        if status == 0:
            found.append(number)
    return sorted(found)


def main(parts: Sequence[str]) -> int:
    """Change the modules whose path has one of `parts` in it, or all; report."""
    changed = lived = 0
    preload()
    for path in targets():
        where = path.relative_to(ROOT)
        if parts and not any(part in str(where) for part in parts):
            continue
        began = time.monotonic()
        tests = tests_of(path)
        if not tests or os.waitpid(start(path, None, tests), 0)[1]:
            print(f"{where}: {'its tests fail' if tests else 'no test imports it'}")
            return 2
        count = len(list(places(ast.parse(path.read_text()))))
        alive = survivors(path, count, tests)
        seconds = time.monotonic() - began
        print(f"{where}: {count - len(alive)} killed, {len(alive)} survived ({seconds:.0f} s)")
        for number in alive:
            place = list(places(ast.parse(path.read_text())))[number]
            print(f"  {where}:{place.line}: {place.change()}", flush=True)
        changed += count
        lived += len(alive)
    killed = changed - lived
    print(f"{killed} of {changed} killed ({killed / max(1, changed):.1%}), {lived} survived")
    return int(killed < REQUIRED * changed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
