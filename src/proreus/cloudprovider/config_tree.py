"""A cloud-config as a tree with line numbers, whether it is gcfg, YAML, JSON or TOML.

Every scalar stays text: its meaning depends on the field that takes it, not on YAML's guess, so
`vnetName: 123` and `zone: on` are what they look like.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from enum import StrEnum
from pathlib import PurePath
from typing import Any

import msgspec
import yaml

from proreus.cloudprovider import gcfg, toml
from proreus.kube.messages import yaml_problem

NO_LINE = 0
"""The line of what comes from the environment."""
_TITLE = re.compile(r"\[([\w-]+)")
_LONGEST_DECIMAL = 64


class Format(StrEnum):
    """A language of cloud-configs."""

    GCFG = "gcfg"
    YAML = "yaml"
    JSON = "json"
    TOML = "toml"


_SUFFIXES = {
    ".json": Format.JSON,
    ".yaml": Format.YAML,
    ".yml": Format.YAML,
    ".toml": Format.TOML,
}
_STARTS = (
    (re.compile(r"\{"), Format.JSON),
    (re.compile(r"\[|[\w-]+\s*="), Format.GCFG),
)


class Leaf(msgspec.Struct, frozen=True):
    """A scalar of a cloud-config; `text` is None for a gcfg key without value and a YAML `null`."""

    line: int
    text: str | None
    null: bool = False

    def __repr__(self) -> str:
        return f"Leaf(line={self.line})"


class Many(msgspec.Struct, frozen=True):
    """A sequence in a cloud-config of YAML, JSON or TOML."""

    line: int
    items: "tuple[Tree, ...]"


class Branch(msgspec.Struct, frozen=True):
    """A mapping, or a gcfg section: its `subsection` is not None, and its names may repeat."""

    line: int
    items: "tuple[Named, ...]"
    subsection: str | None = None


class Named(msgspec.Struct, frozen=True):
    """An entry of a mapping: its name and the tree below it."""

    line: int
    name: str
    tree: "Tree"


Tree = Leaf | Many | Branch


class Problem(msgspec.Struct, frozen=True):
    """A mistake in a cloud-config, with its line and its place.

    Attributes:
        line: The line, counted from 1.
        place: The names of the sections around it.
        message: What is wrong.
        key: The first word of a line that cannot be read: a key, or a part of a value.
    """

    line: int
    place: str
    message: str
    key: str = ""

    def around(self, known: Collection[str]) -> str:
        """Return the place, unless it is a section of gcfg whose name is not `known`.

        Such a one may be a line of a secret that begins as a section does.
        """
        title = _TITLE.match(self.place)
        return self.place if title is None or plain(title[1]) in known else ""


def detect(text: str, source: str) -> Format:
    """Detect the format of a cloud-config by the file's name, else by how the text begins.

    TOML is told by the name `.toml` only, since gcfg begins in the same way.
    """
    by_name = _SUFFIXES.get(PurePath(source).suffix.lower())
    if by_name is not None:
        return by_name
    for line in text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}").splitlines():
        start = line.strip()
        if start and start[0] not in "#;":
            return next((it for pattern, it in _STARTS if pattern.match(start)), Format.YAML)
    return Format.GCFG


def parse(
    text: str, format_: Format, default_section: str = ""
) -> tuple[Branch, tuple[Problem, ...]]:
    """Read a cloud-config's text as a tree.

    A line that cannot be read is a problem, never shown. `default_section` is that of gcfg's
    entries before the first one.
    """
    if format_ is Format.GCFG:
        return _from_gcfg(text, default_section)
    if format_ is Format.TOML:
        return _from_toml(text)
    try:
        if format_ is Format.JSON:
            json.loads(text)
            # The only white space of JSON that YAML refuses; strings cannot hold it unescaped.
            text = text.replace("\t", " ")
        return _from_yaml(text)
    except json.JSONDecodeError as error:
        problem = Problem(error.lineno, "", f"is not JSON: {error.msg}")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        text = f"is not YAML: {yaml_problem(error.problem)}"
        problem = Problem(mark.line + 1 if mark else 1, "", text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = Problem(line, "", "holds a character that YAML does not allow")
    except RecursionError:
        problem = Problem(1, "", "is nested too deeply")
    return Branch(1, ()), (problem,)


def from_environment(
    root: Branch, variables: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[Branch, ...]:
    """Return a tree for each environment variable that is set and whose field `root` lacks."""
    found: list[Branch] = []
    for variable, path in variables.items():
        value = environment.get(variable, "")
        names = path.split(".")
        if not value or _is_given(root, names):
            continue
        tree = Branch(NO_LINE, (Named(NO_LINE, names[-1], Leaf(NO_LINE, value)),))
        for name in reversed(names[:-1]):
            tree = Branch(NO_LINE, (Named(NO_LINE, name, tree),))
        found.append(tree)
    return tuple(found)


def _is_given(tree: Tree, path: Sequence[str]) -> bool:
    """Tell whether the tree has a value at that path."""
    if not path:
        return not is_null(tree)
    return isinstance(tree, Branch) and any(
        plain(entry.name) == plain(path[0]) and _is_given(entry.tree, path[1:])
        for entry in tree.items
    )


def is_null(tree: Tree) -> bool:
    """Tell whether a tree is YAML's null, which leaves the field's default."""
    return isinstance(tree, Leaf) and tree.null


def plain(name: str) -> str:
    """Return a field's name without what does not count in it: case, `-` and `_`."""
    return name.lower().replace("-", "").replace("_", "")


def _from_gcfg(text: str, default: str) -> tuple[Branch, tuple[Problem, ...]]:
    sections, problems = gcfg.parse(text, default)
    items = tuple(
        Named(
            section.line,
            section.name,
            Branch(
                section.line,
                tuple(
                    Named(entry.line, entry.key, Leaf(entry.line, entry.value))
                    for entry in section.entries
                ),
                section.subsection,
            ),
        )
        for section in sections
    )
    return Branch(1, items), tuple(
        Problem(problem.line, problem.section, problem.message, problem.key) for problem in problems
    )


def _from_yaml(text: str) -> tuple[Branch, tuple[Problem, ...]]:
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    problems: list[Problem] = []
    tree = Branch(1, ()) if node is None else _tree(node, problems)
    if isinstance(tree, Leaf) and tree.text is None:
        tree = Branch(1, ())
    if not isinstance(tree, Branch):
        problems.append(Problem(tree.line, "", "must be a mapping of names to values"))
        tree = Branch(1, ())
    return tree, tuple(problems)


def _tree(node: yaml.Node, problems: list[Problem], place: str = "") -> Tree:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.ScalarNode):
        null = node.tag == "tag:yaml.org,2002:null"
        return Leaf(line, None if null else _joined_surrogates(node.value), null)
    if isinstance(node, yaml.SequenceNode):
        return Many(line, tuple(_tree(item, problems, place) for item in node.value))
    return Branch(line, tuple(_entries(node.value, problems, place)))


def _entries(
    pairs: Iterable[tuple[yaml.Node, yaml.Node]], problems: list[Problem], place: str
) -> Iterable[Named]:
    seen: set[str] = set()
    for key, value in pairs:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            problems.append(Problem(line, place, "the name of an entry must be plain text"))
            continue
        inner = f"{place}.{key.value}" if place else key.value
        if key.value in seen:
            problems.append(Problem(line, inner, "is given twice"))
        else:
            seen.add(key.value)
            yield Named(line, key.value, _tree(value, problems, inner))


def _joined_surrogates(text: str) -> str:
    r"""Join JSON's pairs such as `\ud83d\ude00` to the one character that they mean."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _Table:
    """A TOML table while it is read."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.entries: dict[str, tuple[int, Leaf | Many | _Table | list[_Table]]] = {}

    def inner(self, name: str, line: int) -> "_Table":
        """Return the table of that name, made if it is missing; of an array the last element.

        Where a table and another value share a name, `toml` has reported it.
        """
        found = self.entries.get(name, (0, None))[1]
        if isinstance(found, list):
            return found[-1]
        if isinstance(found, _Table):
            return found
        made = _Table(line)
        self.entries[name] = line, made
        return made

    def append(self, name: str, line: int) -> "_Table":
        """Add an element to the array of that name, and return it."""
        made = _Table(line)
        found = self.entries.get(name, (0, None))[1]
        if isinstance(found, list):
            found.append(made)
        else:
            self.entries[name] = line, [made]
        return made

    def merge(self, content: Mapping[str, Any], line: int) -> None:
        """Add the entries of a statement to the table."""
        for name, value in content.items():
            if isinstance(value, dict):
                self.inner(name, line).merge(value, line)
            else:
                self.entries[name] = line, _of_toml(value, line)

    def branch(self) -> Branch:
        """Return a table of the config as a tree."""
        return Branch(
            self.line,
            tuple(
                Named(line, name, _closed(it, line)) for name, (line, it) in self.entries.items()
            ),
        )


def _closed(entry: "Leaf | Many | _Table | list[_Table]", line: int) -> Tree:
    if isinstance(entry, list):
        return Many(line, tuple(table.branch() for table in entry))
    return entry.branch() if isinstance(entry, _Table) else entry


def _from_toml(text: str) -> tuple[Branch, tuple[Problem, ...]]:
    statements, problems = toml.parse(text)
    root = current = _Table(1)
    for statement in statements:
        if statement.kind is toml.Kind.ENTRY:
            current.merge(statement.content, statement.line)
            continue
        current = root
        *outer, name = statement.path
        for each in outer:
            current = current.inner(each, statement.line)
        enter = current.append if statement.kind is toml.Kind.ELEMENT else current.inner
        current = enter(name, statement.line)
    return root.branch(), tuple(Problem(p.line, p.place, p.message, p.key) for p in problems)


def _of_toml(value: object, line: int) -> Leaf | Many:
    if isinstance(value, list):
        return Many(line, tuple(_element(item, line) for item in value))
    return Leaf(line, _text(value))


def _element(value: object, line: int) -> Tree:
    if isinstance(value, dict):
        table = _Table(line)
        table.merge(value, line)
        return table.branch()
    return _of_toml(value, line)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > _LONGEST_DECIMAL:
        return hex(value)
    return value.isoformat() if isinstance(value, date | datetime | time) else str(value)
