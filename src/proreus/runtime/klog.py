"""Write log lines as Kubernetes components do: klog's text format, or JSON.

A message is a fixed sentence; everything that varies is a field, so that lines can be counted
and searched. Strings are quoted: no value can end a line or forge a field. Common fields are
`controller`, `node` and `service` (`bound` adds them to all lines of a task) and `request_id`,
the cloud's id of a failed request, which is taken from the text of `err`.
"""

import fnmatch
import json
import logging
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Final, Literal, TextIO

from proreus.kube.messages import request_id

MAX_VERBOSITY: Final = 10
TEXT: Final = "text"
JSON: Final = "json"

_FIELDS: Final = "klog_fields"
_PACKAGE: Final = "proreus"
# Made once: `json.dumps` makes an encoder for each value, where it is not the default one.
_READABLE: Final = json.JSONEncoder(ensure_ascii=False).encode
_ESCAPED: Final = json.JSONEncoder().encode
_bound: ContextVar[dict[str, object] | None] = ContextVar("proreus_klog_fields", default=None)


def logger(name: str) -> logging.Logger:
    """Return the logger of a module; `name` is its `__name__`."""
    return logging.getLogger(name)


@contextmanager
def bound(**fields: object) -> Iterator[None]:
    """Add the fields to every line that is logged in the body, and in tasks started there."""
    token = _bound.set({**(_bound.get() or {}), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


def v(log: logging.Logger, verbosity: int, message: str, **fields: object) -> None:
    """Log a line at `-v=verbosity` and above: 2 for operators, 4 for debugging."""
    _emit(log, logging.INFO - verbosity, message, fields)


def info(log: logging.Logger, message: str, **fields: object) -> None:
    """Log what is of interest at any verbosity."""
    _emit(log, logging.INFO, message, fields)


def warning(log: logging.Logger, message: str, **fields: object) -> None:
    """Log what works, but not as it should."""
    _emit(log, logging.WARNING, message, fields)


def error(
    log: logging.Logger, message: str, *, err: BaseException | None = None, **fields: object
) -> None:
    """Log a failure and its cause."""
    _emit(log, logging.ERROR, message, fields if err is None else {"err": err, **fields})


def exception(log: logging.Logger, message: str, *, err: BaseException, **fields: object) -> None:
    """Log a failure that should never happen, with its traceback."""
    _emit(log, logging.ERROR, message, {"err": err, **fields}, err)


def _emit(
    log: logging.Logger,
    level: int,
    message: str,
    fields: dict[str, object],
    trace: BaseException | None = None,
) -> None:
    # Stack level 3: the file and line of our caller's caller.
    log.log(level, message, extra={_FIELDS: fields}, exc_info=trace, stacklevel=3)


def setup(
    verbosity: int = 0,
    format_: Literal["text", "json"] = TEXT,
    *,
    vmodule: Sequence[tuple[str, int]] = (),
    stream: TextIO | None = None,
) -> None:
    """Send all logs of the process to `stream` (standard error), ours down to `-v=verbosity`.

    `vmodule` has the verbosity of single files: the first pattern that fits a file's name without
    `.py` counts, or one with a slash its folder and name (`service/plan`). `*` and `?` fit any.

    Loggers of libraries stay at warnings: some write requests or credentials below that.
    Calling it again replaces the earlier set-up.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_JSONFormatter() if format_ == JSON else _TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old.formatter, _TextFormatter | _JSONFormatter):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    if vmodule:
        handler.addFilter(_VModule(verbosity, vmodule))
    most = max(verbosity, *(level for _, level in vmodule), 0)
    logging.getLogger(_PACKAGE).setLevel(_level(most))


def set_verbosity(verbosity: int) -> None:
    """Change `-v` while the process runs; `--vmodule` patterns stay."""
    most = verbosity
    for handler in logging.getLogger().handlers:
        for one in handler.filters:
            if isinstance(one, _VModule):
                most = max(most, one.set_verbosity(verbosity))
    logging.getLogger(_PACKAGE).setLevel(_level(most))


def _level(verbosity: int) -> int:
    return logging.INFO - min(max(verbosity, 0), MAX_VERBOSITY)


class _VModule(logging.Filter):
    """A filter of records by the verbosity of their file."""

    def __init__(self, verbosity: int, vmodule: Sequence[tuple[str, int]]) -> None:
        super().__init__()
        self._verbosity = verbosity
        self._vmodule = vmodule
        self._levels: dict[str, int] = {}

    def set_verbosity(self, verbosity: int) -> int:
        """Set the verbosity of files without a pattern; return the highest of all patterns."""
        self._verbosity = verbosity
        self._levels.clear()
        return max((level for _, level in self._vmodule), default=0)

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the record is written."""
        if record.levelno >= logging.INFO:
            return True
        level = self._levels.get(record.pathname)
        if level is None:
            level = self._levels[record.pathname] = self._level_of(PurePath(record.pathname))
        return record.levelno >= level

    def _level_of(self, path: PurePath) -> int:
        for pattern, verbosity in self._vmodule:
            name = f"{path.parent.name}/{path.stem}" if "/" in pattern else path.stem
            if fnmatch.fnmatchcase(name, pattern):
                return _level(verbosity)
        return _level(self._verbosity)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = {**(_bound.get() or {}), **getattr(record, _FIELDS, {})}
    err = fields.get("err")
    if isinstance(err, BaseException) and (found := request_id(str(err))):
        fields.setdefault("request_id", found)
    return fields


def _plain(value: object) -> Any:
    """Convert the value for JSON; Python's own exceptions say little without their type."""
    if isinstance(value, BaseException):
        kind, text = type(value), str(value)
        if not text:
            return kind.__name__
        return f"{kind.__name__}: {text}" if kind.__module__ == "builtins" else text
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)


def _quoted(value: object) -> str:
    """Quote the value if it is text; escape it if it holds control characters."""
    plain = _plain(value)
    return (
        _ESCAPED(plain) if isinstance(plain, str) and not plain.isprintable() else _READABLE(plain)
    )


def _severity(level: int) -> str:
    if level >= logging.CRITICAL:
        return "F"
    if level >= logging.ERROR:
        return "E"
    return "W" if level >= logging.WARNING else "I"


@lru_cache(maxsize=1)
def _stamp(second: int) -> str:
    return time.strftime("%m%d %H:%M:%S", time.localtime(second))


class _TextFormatter(logging.Formatter):
    """The format `I1121 09:00:00.000000   12345 file.py:12] "Message" key="value"`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line, with the traceback on lines below it."""
        stamp = _stamp(int(record.created))
        micros = int(record.created % 1 * 1_000_000)
        pairs = "".join(f" {name}={_quoted(value)}" for name, value in _fields(record).items())
        line = (
            f"{_severity(record.levelno)}{stamp}.{micros:06d} {record.process or 0:7d} "
            f"{record.filename}:{record.lineno}] {_quoted(record.getMessage())}{pairs}"
        )
        return f"{line}\n{_traceback(record)}" if record.exc_info else line


class _JSONFormatter(logging.Formatter):
    """The format of Kubernetes' JSON.

    `ts` in milliseconds, `caller`, `msg`, `v` or `err`, fields.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line of JSON."""
        line: dict[str, object] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{record.filename}:{record.lineno}",
            "msg": record.getMessage(),
        }
        if record.levelno < logging.WARNING:
            line["v"] = max(logging.INFO - record.levelno, 0)
        else:
            line["severity"] = logging.getLevelName(record.levelno).lower()
        for name, value in _fields(record).items():
            line.setdefault(name, _plain(value))
        if record.exc_info:
            line["stacktrace"] = _traceback(record)
        return json.dumps(line)


def _traceback(record: logging.LogRecord) -> str:
    trace = record.exc_info[1] if record.exc_info else None
    return "" if trace is None else "".join(traceback.format_exception(trace)).rstrip()
