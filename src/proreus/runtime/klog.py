"""Log lines as Kubernetes components write them: klog's text format, or JSON.

A message is a fixed sentence; everything that varies is a field, so that lines can be counted
and searched. Strings are quoted: no value can end a line or forge a field.
"""

import json
import logging
import sys
import time
import traceback
from typing import Any, Final, Literal, TextIO

MAX_VERBOSITY: Final = 10
TEXT: Final = "text"
JSON: Final = "json"

_FIELDS: Final = "klog_fields"
_PACKAGE: Final = "proreus"


def logger(name: str) -> logging.Logger:
    """The logger of a module; `name` is its `__name__`."""
    return logging.getLogger(name)


def v(log: logging.Logger, verbosity: int, message: str, **fields: object) -> None:
    """Log at `-v=verbosity` and above: 2 for what an operator may want, 4 for debugging."""
    _emit(log, logging.INFO - verbosity, message, fields)


def info(log: logging.Logger, message: str, **fields: object) -> None:
    """Log what is always of interest."""
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
    stream: TextIO | None = None,
) -> None:
    """Send all logs of the process to `stream` (standard error), ours down to `-v=verbosity`.

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
    logging.getLogger(_PACKAGE).setLevel(logging.INFO - min(max(verbosity, 0), MAX_VERBOSITY))


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = getattr(record, _FIELDS, {})
    return fields


def _plain(value: object) -> Any:
    """The value as JSON can hold it; Python's own exceptions say little without their kind."""
    if isinstance(value, BaseException):
        kind, text = type(value), str(value)
        if not text:
            return kind.__name__
        return f"{kind.__name__}: {text}" if kind.__module__ == "builtins" else text
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)


def _quoted(value: object) -> str:
    """The value in quotes if it is text; readable unless it holds control characters."""
    plain = _plain(value)
    return json.dumps(plain, ensure_ascii=isinstance(plain, str) and not plain.isprintable())


def _severity(level: int) -> str:
    if level >= logging.CRITICAL:
        return "F"
    if level >= logging.ERROR:
        return "E"
    return "W" if level >= logging.WARNING else "I"


class _TextFormatter(logging.Formatter):
    """`I1121 09:00:00.000000   12345 file.py:12] "Message" key="value"`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback follows on lines of its own."""
        stamp = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        micros = int(record.created % 1 * 1_000_000)
        pairs = "".join(f" {name}={_quoted(value)}" for name, value in _fields(record).items())
        line = (
            f"{_severity(record.levelno)}{stamp}.{micros:06d} {record.process or 0:7d} "
            f"{record.filename}:{record.lineno}] {_quoted(record.getMessage())}{pairs}"
        )
        return f"{line}\n{_traceback(record)}" if record.exc_info else line


class _JSONFormatter(logging.Formatter):
    """Kubernetes' JSON format: `ts` in milliseconds, `caller`, `msg`, `v` or `err`, the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON."""
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
