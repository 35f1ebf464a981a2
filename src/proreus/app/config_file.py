"""Read the file of `--config`: flags by their names, in YAML or JSON.

    apiVersion: proreus/v1alpha1
    kind: Configuration
    cloud-provider: simulated
    leader-elect-lease-duration: 30s
    controllers: ["*", "-route"]

A value is what the command line would have, a list may also be one of YAML, and `feature-gates`
and `vmodule` may be mappings. `apiVersion` and `kind` may be left out. What is given on the
command line wins.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from proreus.app.flag_values import gates, levels
from proreus.app.flags import Flag, Given, is_list, nearest
from proreus.cloudprovider.config_tree import (
    Branch,
    Format,
    Leaf,
    Many,
    Named,
    Tree,
    is_null,
    parse,
)

API_VERSION: Final = "proreus/v1alpha1"
KIND: Final = "Configuration"
_HEADER: Final = {"apiVersion": API_VERSION, "kind": KIND}
_ONLY_ON_COMMAND_LINE: Final = frozenset({"config", "version"})


def read(path: str, table: Mapping[str, Flag]) -> tuple[dict[str, Given], tuple[str, ...]]:
    """Read and check the file.

    Args:
        path: The path of the file.
        table: The table of flags, by field name.

    Returns:
        The values that the file gives, by field name, and every problem with it. Values are not
            parsed yet.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        return {}, (f"--config: cannot read {path}: {error.strerror}",)
    except UnicodeDecodeError:
        return {}, (f"--config: {path} is not UTF-8",)
    form = Format.JSON if text.lstrip().startswith("{") else Format.YAML
    root, unread = parse(text, form)
    problems = [
        " ".join(filter(None, (f"{path}:{problem.line}:", problem.place, problem.message)))
        for problem in unread
    ]
    given: dict[str, Given] = {}
    for entry in root.items:
        place = f"{path}:{entry.line}: {entry.name}"
        field = entry.name.replace("-", "_")
        if entry.name in _HEADER:
            problems.extend(_header(entry, place))
        elif field not in table:
            close = nearest(entry.name, table)
            hint = f", did you mean {close}?" if close else "; run --help lists the flags"
            problems.append(f"{place}: there is no such flag{hint}")
        elif field in _ONLY_ON_COMMAND_LINE:
            problems.append(f"{place}: cannot be given in a file; give it on the command line")
        elif field in given:
            problems.append(f"{place}: is given twice")
        elif not is_null(entry.tree):
            try:
                given[field] = Given(place, _texts(entry.tree, table[field]))
            except ValueError as error:
                problems.append(f"{place}: {error}")
    return given, tuple(problems)


def _header(entry: Named, place: str) -> tuple[str, ...]:
    wanted = _HEADER[entry.name]
    if isinstance(entry.tree, Leaf) and entry.tree.text == wanted:
        return ()
    return (f"{place}: must be {wanted}, or left out",)


def _texts(tree: Tree, flag: Flag) -> tuple[str, ...]:
    """Return a value of the file as the texts of a flag.

    Raises:
        ValueError: Its form does not fit the flag.
    """
    if isinstance(tree, Leaf):
        return (tree.text or "",)
    if isinstance(tree, Branch):
        if flag.parse not in {gates, levels}:
            raise ValueError(f"must be {_form(flag)}, not a mapping")
        return tuple(f"{item.name}={_scalar(item.tree)}" for item in tree.items)
    if not is_list(flag):
        raise ValueError("must be one value, not a list")
    return tuple(map(_scalar, tree.items))


def _form(flag: Flag) -> str:
    return "a list" if is_list(flag) else "one value"


def _scalar(tree: Tree) -> str:
    if isinstance(tree, Leaf) and tree.text is not None:
        return tree.text
    kind = (
        "a list" if isinstance(tree, Many) else "a mapping" if isinstance(tree, Branch) else "null"
    )
    raise ValueError(f"the elements of a list or mapping must be plain values, not {kind}")
