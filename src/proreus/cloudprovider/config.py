"""Read cloud-configs, in the very files that the official cloud-controller-managers take.

The fields of a Struct say what is known. Names match without regard to case, `-` and `_`, so
`auth-url`, `AuthURL` and `auth_url` are one field:

    class Global(ConfigSection, frozen=True, kw_only=True):
        auth_url: str
        monitor_delay: timedelta = timedelta(seconds=5)     # Go's durations: 1m30s

    class Config(ConfigSection, frozen=True):
        global_: Global                                     # [Global]
        service_override: dict[str, Override] = {}          # [ServiceOverride "1"]
        block_storage: dict[str, Any] = {}                  # read and ignored

A field that the file leaves out may come from an environment variable that the provider names
(`CloudProvider.config_environment`), such as HCLOUD_TOKEN: the file wins, an empty variable does
not count.

All errors are found in one go and name file, line, section and key, and the variable that may stand
for a field which is missing. Values are never shown where
a name suggests a secret.
"""

import difflib
import os
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, TypeGuard, TypeVar

import msgspec

from proreus.cloudprovider import gcfg
from proreus.cloudprovider.config_tree import (
    NO_LINE,
    Branch,
    Format,
    Leaf,
    Many,
    Named,
    Tree,
    detect,
    from_environment,
    is_null,
    parse,
    plain,
)
from proreus.cloudprovider.config_values import names_in, python_value, shape
from proreus.cloudprovider.errors import ConfigError

T = TypeVar("T", bound=msgspec.Struct)

_SECRET = re.compile(r"pass|secret|token|key|credential|private|pwd", re.IGNORECASE)
_NAME = re.compile(r"[^=\s]{0,60}")


class ConfigSection(msgspec.Struct, frozen=True):
    """A base for config Structs: it checks itself (`problems`), and never shows secrets.

    Set `ignore_unknown` to True where the official manager ignores names that it does not know;
    they are then warned about instead of refused. Set `default_section`, of the whole config, to
    the section of gcfg's entries before the first one, where an official manager takes such.
    """

    ignore_unknown: ClassVar[bool] = False
    default_section: ClassVar[str] = ""

    def problems(self) -> Iterable[str]:
        """Report mistakes that types cannot show: a sentence each, which begins with the key."""
        return ()

    def __post_init__(self) -> None:
        """Refuse values that the types of fields let through but that are wrong.

        Raises:
            ConfigError: Values are wrong; names every problem once.
        """
        if found := tuple(dict.fromkeys(self.problems())):
            raise ConfigError(found)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={'<hidden>' if is_secret(name) else repr(getattr(self, name))}"
            for name in self.__struct_fields__
        )
        return f"{type(self).__name__}({shown})"


def is_secret(name: str) -> bool:
    """Tell whether the name of a field suggests that its value must not be shown."""
    return _SECRET.search(name) is not None


def read(
    text: str,
    type_: type[T],
    *,
    source: str,
    format_: str | None = None,
    warn: Callable[[str], None] = lambda _: None,
    variables: Mapping[str, str] = MappingProxyType({}),
    environment: Mapping[str, str] | None = None,
) -> T:
    """Decode a cloud-config.

    Args:
        text: The text of the file; "" for no file.
        type_: The Struct to decode into.
        source: The name of the file, for messages; "" if no file is given.
        format_: gcfg, yaml, json or toml; by default told by the file's name or the text.
        warn: Takes a sentence about each name that is unknown and ignored.
        variables: The environment variables that may stand for fields: the dotted path of the
            field (`global.auth_url`) by the name of the variable.
        environment: The values of the environment variables; those of the process if None.

    Raises:
        ConfigError: The cloud-config is wrong; names every problem.
    """
    default = type_.default_section if issubclass(type_, ConfigSection) else ""
    root, problems = parse(text, Format(format_) if format_ else detect(text, source), default)
    decoder = _Decoder(source, warn, variables)
    values = os.environ if environment is None else environment
    known = names_in(type_) if problems else frozenset()
    for problem in problems:
        # Another word may be a part of a secret that goes on in a line of its own.
        is_known = problem.key and known.issuperset(map(plain, problem.key.split(".")))
        around = problem.around(known)
        place = _join(around, problem.key) if is_known else around
        decoder.problem(problem.line, place, problem.message)
    # Of a text that cannot be read at all, nothing more is to be said.
    config = None
    if root.items or not problems:
        config = decoder.struct(type_, [root, *from_environment(root, variables, values)], "")
    if decoder.problems or config is None:
        in_order = sorted(decoder.problems, key=lambda problem: problem[0])
        raise ConfigError(tuple(text for _, text in in_order))
    return config


class _Decoder:
    """A decoder of trees, which collects mistakes instead of stopping at the first."""

    def __init__(
        self, source: str, warn: Callable[[str], None], variables: Mapping[str, str]
    ) -> None:
        self._source = source
        self._warn = warn
        self._variables = {_bare(path): f"${name}" for name, path in variables.items()}
        self._wrong_places: set[str] = set()
        self.problems: list[tuple[int, str]] = []

    def problem(self, line: int, place: str, message: str) -> None:
        self._wrong_places.add(_bare(place))
        self.problems.append((line, self._sentence(line, place, message)))

    def _sentence(self, line: int, place: str, message: str) -> str:
        if line == NO_LINE:
            return f"{self._variables.get(_bare(place), place)}: {message}"
        where = f"{self._source}:{line}" if self._source else "without --cloud-config"
        return f"{where}: {place + ': ' if place else ''}{message}"

    def struct(self, type_: type[T], branches: Sequence[Branch], place: str) -> T | None:
        """Decode what all `branches` together hold; return None if anything is wrong."""
        before, is_complete = len(self.problems), True
        fields = msgspec.structs.fields(type_)
        given = self._given(type_, fields, branches, place)
        values: dict[str, Any] = {}
        for field in fields:
            entries = [entry for entry in given.get(field.name, ()) if not is_null(entry.tree)]
            if entries:
                values[field.name] = self._field(field, entries, place)
            elif field.required:
                is_complete = False
                self._missing(field.type, _line(branches), _join(place, _known(field)))
        if len(self.problems) > before or not is_complete:
            return None
        try:
            return type_(**values)
        except ConfigError as error:
            for text in error.problems:
                self.problem(_line(branches), place, text)
        except (TypeError, ValueError) as error:
            self.problem(_line(branches), place, str(error))
        return None

    def _missing(self, type_: Any, line: int, place: str) -> None:
        """Report a required field, unless its line is there but could not be read.

        For a missing section the fields are reported that it must have: environment variables may
        give them.
        """
        if _bare(place) in self._wrong_places:
            return
        if _is_struct(type_) and self.struct(type_, [Branch(line, ())], place) is None:
            return
        variable = self._variables.get(_bare(place))
        remedy = f"; it may also be set as {variable}" if variable else ""
        self.problem(line, place, f"is required{remedy}")

    def _given(
        self,
        type_: type[msgspec.Struct],
        fields: Sequence[msgspec.structs.FieldInfo],
        branches: Sequence[Branch],
        place: str,
    ) -> Mapping[str, list[Named]]:
        """Return the entries by the field that takes them; report the others as unknown."""
        known = {plain(name): f.name for f in fields for name in (f.encode_name, f.name)}
        given: dict[str, list[Named]] = {}
        for entry in (entry for branch in branches for entry in branch.items):
            name = known.get(plain(entry.name))
            if name is not None:
                given.setdefault(name, []).append(entry)
            elif issubclass(type_, ConfigSection) and type_.ignore_unknown:
                where = _join(place, _shown(entry))
                self._warn(self._sentence(entry.line, where, "is unknown and ignored"))
            else:
                where = _join(place, _shown(entry))
                self.problem(entry.line, where, f"is unknown; {_hint(entry.name, fields)}")
        return given

    def _field(
        self, field: msgspec.structs.FieldInfo, entries: Sequence[Named], place: str
    ) -> object:
        type_ = _without_none(field.type)
        base, arguments = shape(type_)
        if _is_struct(base):
            return self._section(base, entries, place)
        if base is dict:
            inner = _without_none(arguments[1]) if arguments else Any
            if _is_struct(inner):
                return self._subsections(inner, entries, place)
            return self._free(inner, entries, place)
        if base in {list, tuple, set, frozenset}:
            return self._several(base, arguments[0] if arguments else Any, entries, place)
        # The last one counts, but the others must be valid, too.
        return [self._scalar(type_, it.tree, _join(place, it.name)) for it in entries][-1]

    def _section(self, type_: type[T], entries: Sequence[Named], place: str) -> T | None:
        branches = []
        for entry in entries:
            if not isinstance(entry.tree, Branch):
                self.problem(entry.line, _join(place, entry.name), "must be a section")
            elif entry.tree.subsection:
                self.problem(entry.line, _title(entry), "takes no subsection")
            else:
                branches.append(entry.tree)
        return self.struct(type_, branches, _join(place, _title(entries[0]))) if branches else None

    def _subsections(
        self, type_: type[T], entries: Sequence[Named], place: str
    ) -> dict[str, T | None]:
        """Decode sections by their subsection, or the mappings within a YAML mapping."""
        found: dict[str, list[Branch]] = {}
        places: dict[str, str] = {}
        for entry in entries:
            if not isinstance(entry.tree, Branch):
                self.problem(entry.line, _join(place, entry.name), "must hold sections")
                continue
            if entry.tree.subsection is not None:
                name = entry.tree.subsection
                found.setdefault(name, []).append(entry.tree)
                places[name] = _title(entry)
                continue
            for child in entry.tree.items:
                places[child.name] = _join(_join(place, entry.name), child.name)
                if isinstance(child.tree, Branch):
                    found.setdefault(child.name, []).append(child.tree)
                else:
                    self.problem(child.line, places[child.name], "must be a section")
        return {name: self.struct(type_, found[name], places[name]) for name in found}

    def _free(self, type_: object, entries: Sequence[Named], place: str) -> dict[str, object]:
        """Decode a section whose names are data, not fields."""
        found: dict[str, object] = {}
        for entry in entries:
            if not isinstance(entry.tree, Branch):
                self.problem(entry.line, _join(place, entry.name), "must be a section")
                continue
            for child in entry.tree.items:
                where = _join(_join(place, _title(entry)), child.name)
                found[child.name] = self._scalar(type_, child.tree, where)
        return found

    def _several(
        self,
        base: Callable[[list[object]], object],
        type_: object,
        entries: Sequence[Named],
        place: str,
    ) -> object:
        """Decode a repeated key or a YAML sequence."""
        values: list[object] = []
        for entry in entries:
            where = _join(place, entry.name)
            if isinstance(entry.tree, Many):
                values.extend(self._item(type_, item, where) for item in entry.tree.items)
            elif isinstance(entry.tree, Leaf) and entry.tree.text is None:
                values.clear()
            else:
                values.append(self._item(type_, entry.tree, where))
        return base(values)

    def _item(self, type_: object, tree: Tree, place: str) -> object:
        inner = _without_none(type_)
        if _is_struct(inner) and isinstance(tree, Branch):
            return self.struct(inner, [tree], place)
        return self._scalar(inner, tree, place)

    def _scalar(self, type_: object, tree: Tree, place: str) -> object:
        if type_ is Any:
            return _untyped(tree)
        if not isinstance(tree, Leaf):
            self.problem(tree.line, place, "must be a single value")
            return None
        if tree.text is None:
            if shape(type_)[0] is bool and not tree.null:
                return True
            self.problem(tree.line, place, "needs a value")
            return None
        try:
            return msgspec.convert(python_value(tree.text, type_), type_, strict=False)
        except msgspec.ValidationError as error:
            self.problem(tree.line, place, _refusal(type_, place, str(error)))
        except ValueError as error:
            self.problem(tree.line, place, str(error))
        return None


def _refusal(type_: object, place: str, message: str) -> str:
    """Return why a value is refused, without the value."""
    base = shape(type_)[0]
    if isinstance(base, type) and issubclass(base, Enum):
        return f"must be one of {', '.join(str(member.value) for member in base)}"
    return "is not a valid value (it is not shown)" if is_secret(place) else message


def _untyped(tree: Tree) -> object:
    if isinstance(tree, Leaf):
        return tree.text
    if isinstance(tree, Many):
        return [_untyped(item) for item in tree.items]
    return {entry.name: _untyped(entry.tree) for entry in tree.items}


def _without_none(type_: Any) -> Any:
    """Return the type without the alternative None."""
    if typing.get_origin(type_) not in {typing.Union, types.UnionType}:
        return type_
    left = [argument for argument in typing.get_args(type_) if argument is not types.NoneType]
    return left[0] if len(left) == 1 else type_


def _is_struct(type_: object) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def _hint(name: str, fields: Sequence[msgspec.structs.FieldInfo]) -> str:
    known = {plain(field.encode_name): _known(field) for field in fields}
    close = difflib.get_close_matches(plain(name), known, n=1)
    if close:
        return f"did you mean {known[close[0]]}?"
    return f"known are {', '.join(known.values())}"


def _known(field: msgspec.structs.FieldInfo) -> str:
    return field.encode_name.rstrip("_-")


def _line(branches: Sequence[Branch]) -> int:
    """Return the line of the last branch that is in the file."""
    return max(branch.line for branch in branches)


def _bare(place: str) -> str:
    """Return a field's place in one form: `[Global] auth-url` becomes `global.auth_url`."""
    return re.sub(r"[^a-z0-9]", "", place.lower())


def _title(entry: Named) -> str:
    """Return an entry's name as the file has it: a gcfg section with its brackets."""
    if isinstance(entry.tree, Branch) and entry.tree.subsection is not None:
        return gcfg.title(entry.name, entry.tree.subsection)
    return entry.name


def _join(place: str, name: str) -> str:
    if not place:
        return name
    return f"{place} {name}" if place.startswith("[") else f"{place}.{name}"


def _shown(entry: Named) -> str:
    """Return the name of an unknown entry, unless it may be a line of a secret without its key."""
    if isinstance(entry.tree, Leaf) and not entry.tree.null and entry.tree.text in {None, "", "="}:
        return "(a name without a value)"
    return _title(entry) if _NAME.fullmatch(entry.name) else "(a very long name, or a line)"
