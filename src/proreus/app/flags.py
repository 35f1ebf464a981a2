"""How flags are written down, parsed and explained, with kube's forms.

An options Struct is the one table: each field is a flag, its annotation carries the group and
the help text. `--leader-elect=false`, `--leader-elect`, `-v=4`, `-v4` and `--node_monitor_period`
all parse, as they do in Go. Values are read after argparse, so that all errors come together.
"""

import argparse
import difflib
import ipaddress
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

Options = TypeVar("Options", bound=msgspec.Struct)

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TRUE = frozenset({"1", "t", "true"})
_FALSE = frozenset({"0", "f", "false"})
LAST_PORT = 65535

# klog dropped these in Kubernetes 1.26, but old charts still pass them.
REMOVED_KLOG_FLAGS = frozenset(
    {
        "add-dir-header", "alsologtostderr", "log-backtrace-at", "log-dir", "log-file",
        "log-file-max-size", "logtostderr", "one-output", "skip-headers", "skip-log-headers",
        "stderrthreshold",
    }
)  # fmt: skip


class FlagError(Exception):
    """The command line is wrong; `problems` holds every error, each naming its flag."""

    def __init__(self, problems: Sequence[str]) -> None:
        """Keep all problems."""
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def duration(text: str) -> float:
    """Seconds of a Go duration such as "1m30s" or "0".

    Raises:
        ValueError: It is none.
    """
    if text == "0":
        return 0.0
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("must be a duration such as 30s, 5m or 1h30m")
    return float(sum(float(number) * _UNITS[unit] for number, unit in parts))


def boolean(text: str) -> bool:
    """A Go bool: true, false, t, f, 1 or 0 in any case.

    Raises:
        ValueError: It is none.
    """
    lowered = text.lower()
    if lowered not in _TRUE | _FALSE:
        raise ValueError("must be true or false")
    return lowered in _TRUE


def integer(text: str) -> int:
    """A whole number.

    Raises:
        ValueError: It is none.
    """
    try:
        return int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None


def number(text: str) -> float:
    """A number.

    Raises:
        ValueError: It is none.
    """
    try:
        return float(text)
    except ValueError:
        raise ValueError("must be a number") from None


def names(text: str) -> tuple[str, ...]:
    """A comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def levels(text: str) -> tuple[tuple[str, int], ...]:
    """A list of `pattern=N`, as klog's.

    Raises:
        ValueError: It is none.
    """
    found: list[tuple[str, int]] = []
    for part in names(text):
        pattern, _, level = part.partition("=")
        if not pattern or not (level.isascii() and level.isdecimal()):
            raise ValueError("must be a list of pattern=N, such as context=4,cloud_*=2")
        found.append((pattern, int(level)))
    return tuple(found)


def integers(text: str) -> tuple[int, ...]:
    """A comma-separated list of whole numbers.

    Raises:
        ValueError: It is none.
    """
    try:
        return tuple(int(part) for part in names(text))
    except ValueError:
        raise ValueError("must be a list of whole numbers, such as 29,23") from None


def gates(text: str) -> tuple[tuple[str, bool], ...]:
    """A list of `Name=true` and `Name=false`.

    Raises:
        ValueError: It is none.
    """
    found: list[tuple[str, bool]] = []
    for part in names(text):
        name, _, value = part.partition("=")
        if not name or value.lower() not in _TRUE | _FALSE:
            raise ValueError("must be a list of Name=true or Name=false")
        found.append((name, boolean(value)))
    return tuple(found)


def port(text: str) -> int:
    """A port's number; 0 means none.

    Raises:
        ValueError: It is none.
    """
    if not (text.isascii() and text.isdecimal() and int(text) <= LAST_PORT):
        raise ValueError(f"must be a port, 0 to {LAST_PORT}")
    return int(text)


def address(text: str) -> str:
    """An IP address, or "" for all of them.

    Raises:
        ValueError: It is none.
    """
    try:
        return str(ipaddress.ip_address(text)) if text else ""
    except ValueError:
        raise ValueError("must be an IP address") from None


def certificate(text: str) -> tuple[str, str, tuple[str, ...]]:
    """One certificate of `--tls-sni-cert-key`: `certificate,key[:domain,...]`.

    Raises:
        ValueError: It is none.
    """
    files, _, domains = text.partition(":")
    parts = names(files)
    if len(parts) != len(("certificate", "key")):
        raise ValueError("must be certificate,key or certificate,key:domain,...")
    return parts[0], parts[1], names(domains)


class Flag(msgspec.Struct, frozen=True):
    """One flag: its group in `--help`, its help text, how its text is read and what it must be.

    `repeated` flags are read each time that they are given; the value is the tuple of all.
    """

    group: str
    help: str
    parse: Callable[[str], Any] = str
    check: Callable[[Any], str] | None = None
    short: str = ""
    repeated: bool = False


def at_least(minimum: float) -> Callable[[float], str]:
    """A check: the problem with a value below `minimum`, or ""."""
    return lambda value: "" if value >= minimum else f"must be at least {minimum:g}"


def above(limit: float) -> Callable[[float], str]:
    """A check: the problem with a value that is not above `limit`, or ""."""
    return lambda value: "" if value > limit else f"must be more than {limit:g}"


def flags_of(options: type[msgspec.Struct]) -> Mapping[str, Flag]:
    """The flags of an options Struct by field name, in its order."""
    hints = typing.get_type_hints(options, include_extras=True)
    return {
        name: extra
        for name in options.__struct_fields__
        for extra in getattr(hints[name], "__metadata__", ())
        if isinstance(extra, Flag)
    }


def parser(
    options: type[msgspec.Struct], program: str, description: str
) -> argparse.ArgumentParser:
    """The parser, with one section of `--help` for each group, as kube's named flag sets."""
    result = argparse.ArgumentParser(
        prog=program, description=description, allow_abbrev=False, add_help=False,
        usage=f"{program} --cloud-provider=NAME [flags]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    result.add_argument("-h", "--help", action="help", help="Show this help and exit.")
    groups: dict[str, Any] = {}
    defaults = {field.name: field.default for field in msgspec.structs.fields(options)}
    for field, flag in flags_of(options).items():
        section = groups.get(flag.group)
        if section is None:
            section = groups[flag.group] = result.add_argument_group(f"{flag.group} flags")
        default = shown(defaults[field], flag)
        optional: dict[str, Any] = {"nargs": "?", "const": "true"} if flag.parse is boolean else {}
        section.add_argument(
            *([f"-{flag.short}"] if flag.short else []),
            f"--{field.replace('_', '-')}",
            dest=field,
            action="append" if _is_list(flag) else "store",
            metavar=_metavar(flag),
            help=f"{flag.help} (default {default})".replace("%", "%%"),
            **optional,
        )
    for name in REMOVED_KLOG_FLAGS:
        result.add_argument(
            f"--{name}", dest=f"klog:{name}", nargs="?", const="", help=argparse.SUPPRESS
        )
    return result


def _is_list(flag: Flag) -> bool:
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
    """The value as the command line has it: "30s", "true", "a,b"."""
    """The default of a flag as help texts show it."""
    if flag.parse is duration:
        return f"{value:g}s"
    if _is_list(flag):
        return ",".join(map(str, value)) or "none"
    if flag.parse is boolean:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else repr(value) if value == "" else str(value)


def parse(
    options: type[Options], argv: Sequence[str], program: str, description: str
) -> tuple[Options, tuple[str, ...]]:
    """Read a command line.

    Returns:
        The options, and the removed klog flags that were given (they have no effect).

    Raises:
        FlagError: Something is wrong with it; every problem is named.
        SystemExit: `--help` was asked for.
    """
    table = flags_of(options)
    known, rest = parser(options, program, description).parse_known_args(
        [_normalised(arg) for arg in argv]
    )
    problems = [_unknown(arg, table) for arg in rest]
    values: dict[str, Any] = {}
    for field, flag in table.items():
        raw = getattr(known, field)
        if raw is None:
            continue
        text = ",".join(raw) if isinstance(raw, list) else raw.removeprefix("=")
        try:
            values[field] = tuple(map(flag.parse, raw)) if flag.repeated else flag.parse(text)
        except ValueError as exc:
            problems.append(f"--{field.replace('_', '-')}: {text!r} {exc}")
            continue
        problem = flag.check(values[field]) if flag.check is not None else ""
        if problem:
            problems.append(f"--{field.replace('_', '-')}: {text!r} {problem}")
    if problems:
        raise FlagError(problems)
    removed = tuple(
        sorted(name for name in REMOVED_KLOG_FLAGS if getattr(known, f"klog:{name}") is not None)
    )
    return options(**values), removed


def _normalised(arg: str) -> str:
    """The argument with `-` for `_` in the flag's name, as kube does."""
    if not arg.startswith("--"):
        return arg
    name, equals, value = arg.partition("=")
    return name.replace("_", "-") + equals + value


def _unknown(arg: str, table: Mapping[str, Flag]) -> str:
    name = arg.partition("=")[0]
    if not name.startswith("-"):
        return f"unexpected argument {arg!r}: flags take their value as --flag=value"
    close = difflib.get_close_matches(
        name.removeprefix("--"), [field.replace("_", "-") for field in table], n=1
    )
    hint = f", did you mean --{close[0]}?" if close else "; --help lists the flags"
    return f"unknown flag {name}{hint}"
