"""Define, parse and explain flags, in kube's forms.

An options Struct is the one table: each field is a flag, its annotation carries the group and
the help text. `--leader-elect=false`, `--leader-elect`, `-v=4`, `-v4` and `--node_monitor_period`
all parse, as they do in Go. Values are read after argparse, so that all errors come together.

A provider may have flags of its own. Only where something is given that the table does not have is
the provider asked for them.
"""

import argparse
import difflib
import functools
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from proreus.app.flag_values import (
    address,
    boolean,
    certificate,
    duration,
    duration_text,
    gates,
    integer,
    integers,
    levels,
    names,
    number,
    port,
)

Options = TypeVar("Options", bound=msgspec.Struct)

# klog dropped these in Kubernetes 1.26, but old charts still pass them.
REMOVED_KLOG_FLAGS = frozenset(
    {
        "add-dir-header", "alsologtostderr", "log-backtrace-at", "log-dir", "log-file",
        "log-file-max-size", "logtostderr", "one-output", "skip-headers", "skip-log-headers",
        "stderrthreshold",
    }
)  # fmt: skip


_FLAG: Final = re.compile(r"--[a-z0-9-]+")
_HELP: Final = frozenset({"-h", "--help"})


class FlagError(Exception):
    """The error that the command line is wrong; `problems` holds every mistake, with its flag.

    `readable` are the options as far as they could be read, with defaults for the others; None if
    reading them is not what failed.
    """

    def __init__(self, problems: Sequence[str], readable: msgspec.Struct | None = None) -> None:
        """Keep all problems."""
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
        self.readable = readable

    def with_more(self, problems: Iterable[str]) -> "FlagError":
        """Add problems found later, except those that may only follow from these."""
        named_already = set(_FLAG.findall(" ".join(self.problems)))
        more = [text for text in problems if named_already.isdisjoint(_FLAG.findall(text))]
        return FlagError([*self.problems, *more])


class Flag(msgspec.Struct, frozen=True):
    """A flag: its group in `--help`, help text, parser and check.

    `repeated` flags are read each time that they are given; the value is the tuple of all. `bare`
    is what the flag's name alone stands for, where it needs no value.
    """

    group: str
    help: str
    parse: Callable[[str], Any] = str
    check: Callable[[Any], str] | None = None
    short: str = ""
    repeated: bool = False
    bare: str = ""


class Given(msgspec.Struct, frozen=True):
    """The texts given for a flag, and where: several texts only for lists."""

    place: str
    texts: tuple[str, ...]


FileReader = Callable[[str, Mapping[str, Flag]], tuple[Mapping[str, Given], Sequence[str]]]
"""A reader of a flags file: what it gives by field, and every problem with it."""


OfProvider = Callable[[str], Mapping[str, Flag] | None]
"""A function from a provider's name to its flags by field; None without such a provider."""


def _no_flags(_: str) -> Mapping[str, Flag]:
    return {}


def named(field: str) -> str:
    """Return the flag's name on the command line, without dashes."""
    return field.replace("_", "-")


def nearest(name: str, table: Mapping[str, Flag]) -> str:
    """Return the name of the flag that `name` may mean, or ""."""
    close = difflib.get_close_matches(name, [named(field) for field in table], n=1)
    return close[0] if close else ""


def flags_of(options: type[msgspec.Struct]) -> Mapping[str, Flag]:
    """Return the flags of an options Struct by field name, in its order."""
    hints = typing.get_type_hints(options, include_extras=True)
    return {
        name: extra
        for name in options.__struct_fields__
        for extra in getattr(hints[name], "__metadata__", ())
        if isinstance(extra, Flag)
    }


def parser(
    options: type[msgspec.Struct],
    program: str,
    description: str,
    own: Mapping[str, Flag] | None = None,
) -> argparse.ArgumentParser:
    """Make the parser, with one section of `--help` for each group, as kube's named flag sets.

    `own` are the provider's own flags, by field name.
    """
    cloud = " --cloud-provider=NAME" if "cloud_provider" in flags_of(options) else ""
    result = argparse.ArgumentParser(
        prog=program, description=description, allow_abbrev=False, add_help=False,
        usage=f"{program}{cloud} [flags]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    result.add_argument("-h", "--help", action="help", help="Show this help and exit.")
    groups: dict[str, Any] = {}
    defaults = {field.name: field.default for field in msgspec.structs.fields(options)}
    for field, flag in {**flags_of(options), **(own or {})}.items():
        section = groups.get(flag.group)
        if section is None:
            section = groups[flag.group] = result.add_argument_group(f"{flag.group} flags")
        default = defaults.get(field, "")  # zero values are left out, as pflag does
        ending = "" if default in {"", (), False} else f" (default {shown(default, flag)})"
        bare = flag.bare or ("true" if flag.parse is boolean else "")
        optional: dict[str, Any] = {"nargs": "?", "const": bare} if bare else {}
        section.add_argument(
            *([f"-{flag.short}"] if flag.short else []),
            f"--{named(field)}",
            dest=field,
            action="append" if is_list(flag) else "store",
            metavar=_metavar(flag),
            help=f"{flag.help}{ending}".replace("%", "%%"),
            **optional,
        )
    for name in REMOVED_KLOG_FLAGS:
        result.add_argument(
            f"--{name}", dest=f"klog:{name}", nargs="?", const="", help=argparse.SUPPRESS
        )
    return result


def is_list(flag: Flag) -> bool:
    """Tell whether the flag may be given more than once."""
    return flag.repeated or flag.parse in {names, levels, integers, gates}


def _metavar(flag: Flag) -> str:
    kinds: dict[Callable[[str], Any], str] = {
        boolean: "BOOL",
        duration: "DURATION",
        integer: "INT",
        number: "NUMBER",
        names: "LIST",
        levels: "LIST",
        integers: "LIST",
        gates: "LIST",
        port: "PORT",
        address: "IP",
        certificate: "CERT,KEY",
    }
    return kinds.get(flag.parse, "STRING")


def shown(value: Any, flag: Flag) -> str:
    """Return the value as on the command line: "30s", "true", "a,b"."""
    if flag.parse is duration:
        return duration_text(value)
    if is_list(flag):
        return ",".join(map(str, value)) or "none"
    if flag.parse is boolean:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else repr(value) if value == "" else str(value)


def parse(
    options: type[Options],
    argv: Sequence[str],
    program: str,
    description: str,
    *,
    file: FileReader | None = None,
    of_provider: OfProvider = _no_flags,
) -> tuple[Options, tuple[str, ...]]:
    """Parse a command line.

    Args:
        options: The table of flags.
        argv: The arguments.
        program: The name for `--help`.
        description: What the program does, for `--help`.
        file: Reads the file of the flag `--config`; what is given in `argv` wins over it.
        of_provider: Returns the flags of the chosen provider.

    Returns:
        The options, with the values of the provider's flags in their field `provider_flags`, and
        the removed klog flags that were given (they have no effect).

    Raises:
        FlagError: The command line is wrong; names every problem.
        SystemExit: `--help` was asked for.
    """
    args = [_normalised(arg) for arg in argv]
    made = functools.partial(parser, options, program, description)
    table = flags_of(options)
    own, known, rest = _read(args, table, made, file, of_provider)
    table = {**table, **(own or {})}
    problems = _left_over(rest, table, has_provider=own is not None)
    given: dict[str, Given] = {}
    for field, flag in table.items():
        raw = getattr(known, field)
        if raw is not None:
            texts = tuple(raw) if is_list(flag) else (raw.removeprefix("="),)
            given[field] = Given(f"--{named(field)}", texts)
    if file is not None and "config" in given:
        found, wrong = file("".join(given["config"].texts), table)
        given = {**found, **given}
        problems.extend(wrong)
    values = _values(given, table, problems)
    if of_own := {named(field): values.pop(field) for field in own or () if field in values}:
        values["provider_flags"] = of_own
    if problems:
        raise FlagError(problems, options(**values))
    removed = tuple(
        sorted(name for name in REMOVED_KLOG_FLAGS if getattr(known, f"klog:{name}") is not None)
    )
    return options(**values), removed


def _read(
    args: Sequence[str],
    table: Mapping[str, Flag],
    made: Callable[[Mapping[str, Flag] | None], argparse.ArgumentParser],
    file: FileReader | None,
    of_provider: OfProvider,
) -> tuple[Mapping[str, Flag] | None, argparse.Namespace, list[str]]:
    """Return the provider's flags (None: unknown), the values by name, and other arguments."""
    plain = [arg for arg in args if arg not in _HELP]
    known, rest = made(None).parse_known_args(plain)
    name, path = getattr(known, "cloud_provider", None), getattr(known, "config", None)
    if not rest and len(plain) == len(args) and path is None:
        return {}, known, rest
    if file is not None and path is not None and name is None:
        found, _ = file(path, table)
        name = "".join(found["cloud_provider"].texts) if "cloud_provider" in found else None
    own = of_provider(name) if name else {}
    return own, *made(own).parse_known_args(args)


def _values(
    given: Mapping[str, Given], table: Mapping[str, Flag], problems: list[str]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field, one in given.items():
        flag, text = table[field], ",".join(one.texts)
        try:
            value = tuple(map(flag.parse, one.texts)) if flag.repeated else flag.parse(text)
        except ValueError as exc:
            problems.append(f"{one.place}: {text!r} {exc}")
            continue
        values[field] = value
        if flag.check is not None and (problem := flag.check(value)):
            # Some name the part of the value that is wrong themselves.
            subject = "" if problem.startswith("'") else f"{text!r} "
            problems.append(f"{one.place}: {subject}{problem}")
    return values


def _normalised(arg: str) -> str:
    """Replace `_` by `-` in the flag's name, as kube does."""
    if not arg.startswith("--"):
        return arg
    name, equals, value = arg.partition("=")
    return name.replace("_", "-") + equals + value


def _left_over(rest: Sequence[str], table: Mapping[str, Flag], *, has_provider: bool) -> list[str]:
    """Return the problems with arguments that no flag has taken."""
    if not has_provider and (found := [arg for arg in rest if arg.startswith("-")]):
        names_ = " ".join(arg.partition("=")[0] for arg in found)
        return [f"only the provider may know these flags, and it is not installed: {names_}"]
    return [_unknown(arg, table) for arg in rest]


def _unknown(arg: str, table: Mapping[str, Flag]) -> str:
    name = arg.partition("=")[0]
    if not name.startswith("-"):
        return f"unexpected argument {arg!r}: flags take their value as --flag=value"
    close = nearest(name.removeprefix("--"), table)
    hint = f", did you mean --{close}?" if close else "; --help lists the flags"
    return f"unknown flag {name}{hint}"
