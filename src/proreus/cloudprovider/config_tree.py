"""A cloud-config as a tree with line numbers, whether it is written in gcfg, YAML or JSON.

Every scalar stays text: its meaning depends on the field that takes it, not on YAML's guess, so
`vnetName: 123` and `zone: on` are what they look like.
"""

import json
from collections.abc import Iterable
from enum import StrEnum

import msgspec
import yaml

from proreus.cloudprovider import gcfg


class Format(StrEnum):
    """The languages of cloud-configs."""

    GCFG = "gcfg"
    YAML = "yaml"
    JSON = "json"


class Leaf(msgspec.Struct, frozen=True):
    """A scalar. `text` is None for a gcfg key without a value, and for YAML's `null`."""

    line: int
    text: str | None
    null: bool = False

    def __repr__(self) -> str:
        return f"Leaf(line={self.line})"


class Many(msgspec.Struct, frozen=True):
    """A YAML sequence."""

    line: int
    items: "tuple[Tree, ...]"


class Branch(msgspec.Struct, frozen=True):
    """A mapping, or a gcfg section: its `subsection` is not None, and its names may repeat."""

    line: int
    items: "tuple[Named, ...]"
    subsection: str | None = None


class Named(msgspec.Struct, frozen=True):
    """One entry of a mapping."""

    line: int
    name: str
    tree: "Tree"


Tree = Leaf | Many | Branch


class Problem(msgspec.Struct, frozen=True):
    """What is wrong, in which line and at which place."""

    line: int
    place: str
    message: str


def detect(text: str, source: str) -> Format:
    """Tell the format by the name of the file, else by how the text begins."""
    for format_ in (Format.JSON, Format.YAML):
        if source.lower().endswith(f".{format_}"):
            return format_
    if source.lower().endswith(".yml"):
        return Format.YAML
    for line in text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}").splitlines():
        start = line.strip()
        if start.startswith("{"):
            return Format.JSON
        if start.startswith("["):
            return Format.GCFG
        if start and start[0] not in "#;":
            return Format.YAML
    return Format.GCFG


def parse(text: str, format_: Format) -> tuple[Branch, tuple[Problem, ...]]:
    """Read the text; what cannot be read is a problem, and never shown."""
    if format_ is Format.GCFG:
        return _from_gcfg(text)
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
        problem = Problem(mark.line + 1 if mark else 1, "", f"is not YAML: {error.problem}")
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = Problem(line, "", "holds a character that YAML does not allow")
    except RecursionError:
        problem = Problem(1, "", "is nested too deeply")
    return Branch(1, ()), (problem,)


def _from_gcfg(text: str) -> tuple[Branch, tuple[Problem, ...]]:
    sections, problems = gcfg.parse(text)
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
        Problem(
            problem.line, " ".join(filter(None, (problem.section, problem.key))), problem.message
        )
        for problem in problems
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


def _tree(node: yaml.Node, problems: list[Problem]) -> Tree:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.ScalarNode):
        null = node.tag == "tag:yaml.org,2002:null"
        return Leaf(line, None if null else node.value, null)
    if isinstance(node, yaml.SequenceNode):
        return Many(line, tuple(_tree(item, problems) for item in node.value))
    return Branch(line, tuple(_entries(node.value, problems)))


def _entries(
    pairs: Iterable[tuple[yaml.Node, yaml.Node]], problems: list[Problem]
) -> Iterable[Named]:
    seen: set[str] = set()
    for key, value in pairs:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            problems.append(Problem(line, "", "the name of an entry must be plain text"))
        elif key.value in seen:
            problems.append(Problem(line, key.value, "is given twice"))
        else:
            seen.add(key.value)
            yield Named(line, key.value, _tree(value, problems))
