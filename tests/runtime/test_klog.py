import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from proreus.runtime import klog

log = klog.logger("proreus.test_klog")


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("proreus")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def test_text_lines_have_klogs_form() -> None:
    stream = io.StringIO()
    klog.setup(0, stream=stream)
    klog.info(log, "Initialised the node", node="a b", count=3, ok=True)
    (line,) = lines(stream)
    assert re.fullmatch(
        r'I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ test_klog\.py:\d+\] '
        r'"Initialised the node" node="a b" count=3 ok=true',
        line,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("write", "letter"), [(klog.info, "I"), (klog.warning, "W"), (klog.error, "E")]
)
def test_the_first_letter_is_the_severity(write: object, letter: str) -> None:
    stream = io.StringIO()
    klog.setup(0, stream=stream)
    assert callable(write)
    write(log, "x")
    assert lines(stream)[0][0] == letter


def test_verbosity_decides_what_is_written() -> None:
    stream = io.StringIO()
    klog.setup(3, stream=stream)
    for level in range(6):
        klog.v(log, level, f"at {level}")
    assert [line.split('"')[1] for line in lines(stream)] == ["at 0", "at 1", "at 2", "at 3"]


def test_libraries_stay_quiet_below_warnings() -> None:
    stream = io.StringIO()
    klog.setup(10, stream=stream)
    logging.getLogger("some.sdk").info("Authorization: hidden")
    logging.getLogger("some.sdk").warning("deprecated")
    (line,) = lines(stream)
    assert '"deprecated"' in line


@pytest.mark.parametrize("evil", ['a"b', "two\nlines", "\x1b[31m", "\x9b31m", "a\u2028b", '" x="1'])
def test_no_value_ends_a_line_or_forges_a_field(evil: str) -> None:
    stream = io.StringIO()
    klog.setup(0, stream=stream)
    klog.info(log, "m", name=evil)
    (line,) = lines(stream)
    value = line.split(" name=", 1)[1]
    assert json.loads(value) == evil
    assert line.isprintable()


def test_errors_are_shown_with_what_they_say() -> None:
    stream = io.StringIO()
    klog.setup(0, stream=stream)
    klog.error(log, "m", err=TimeoutError())
    klog.error(log, "m", err=KeyError("x"))
    klog.error(log, "m", err=json.JSONDecodeError("bad", "{", 1))
    assert [line.split("err=")[1] for line in lines(stream)] == [
        '"TimeoutError"',
        "\"KeyError: 'x'\"",
        '"bad: line 1 column 2 (char 1)"',
    ]


def test_json_lines_hold_the_same() -> None:
    stream = io.StringIO()
    klog.setup(2, "json", stream=stream)
    klog.v(log, 2, "hello", node="n1", msg="not the message")
    klog.error(log, "failed", err=ValueError("v"), key="k")
    first, second = (json.loads(line) for line in lines(stream))
    assert (first["msg"], first["v"], first["node"]) == ("hello", 2, "n1")
    assert first["caller"].startswith("test_klog.py:")
    assert first["ts"] > 1.6e12
    assert (second["err"], second["key"], second["severity"]) == ("ValueError: v", "k", "error")
    assert "v" not in second


@pytest.mark.parametrize("form", [klog.TEXT, klog.JSON])
def test_a_failure_that_should_not_happen_shows_its_traceback(form: str) -> None:
    stream = io.StringIO()
    klog.setup(0, "json" if form == klog.JSON else "text", stream=stream)

    def raise_here() -> None:
        raise ValueError("boom")

    try:
        raise_here()
    except ValueError as exc:
        klog.exception(log, "Bug", err=exc)
    assert "raise_here" in stream.getvalue()
    assert "test_klog.py" in stream.getvalue()


def test_a_second_setup_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    klog.setup(0, stream=first)
    klog.setup(0, stream=second)
    klog.info(log, "once")
    assert not lines(first)
    assert len(lines(second)) == 1
