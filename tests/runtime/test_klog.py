import asyncio
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


def test_errors_are_shown_with_their_text() -> None:
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


@pytest.mark.parametrize(
    ("vmodule", "verbosity", "shown"),
    [
        ((), 1, 1),
        ((("test_klog", 3),), 1, 3),
        ((("test_klog", 0),), 4, 0),
        ((("test_*", 3),), 0, 3),
        ((("test_klo?", 3),), 0, 3),
        ((("test_", 3), ("other", 5)), 1, 1),
        ((("test_k*", 2), ("test_klog", 5)), 0, 2),
        ((("runtime/test_klog", 3),), 0, 3),
        ((("*/test_klog", 3),), 0, 3),
        ((("controllers/test_klog", 3),), 0, 0),
        ((("test_klog.py", 3),), 0, 0),
    ],
)
def test_single_files_have_a_verbosity_of_their_own(
    vmodule: tuple[tuple[str, int], ...], verbosity: int, shown: int
) -> None:
    stream = io.StringIO()
    klog.setup(verbosity, vmodule=vmodule, stream=stream)
    for level in range(6):
        klog.v(log, level, f"at {level}")
    klog.warning(log, "warned")
    assert [line.split('"')[1] for line in lines(stream)] == [
        *(f"at {level}" for level in range(shown + 1)),
        "warned",
    ]


@pytest.mark.parametrize("form", [klog.TEXT, klog.JSON])
def test_bound_fields_are_on_every_line_of_the_task_and_of_those_it_starts(form: str) -> None:
    stream = io.StringIO()
    klog.setup(0, "json" if form == klog.JSON else "text", stream=stream)

    async def inner() -> None:
        klog.info(log, "inner", node="n2")
        logging.getLogger("some.sdk").warning("library")

    async def outer() -> None:
        with klog.bound(controller="c", node="n1"):
            klog.info(log, "outer", count=1)
            with klog.bound(service="s"):
                await asyncio.create_task(inner())
        klog.info(log, "after")

    asyncio.run(outer())
    found = lines(stream)
    if form == klog.JSON:
        shown = [json.loads(line) for line in found]
        names = ("msg", "controller", "node", "service")
        assert [[line.get(name) for name in names] for line in shown] == [
            ["outer", "c", "n1", None],
            ["inner", "c", "n2", "s"],
            ["library", "c", "n1", "s"],
            ["after", None, None, None],
        ]
    else:
        assert [line.split("] ", 1)[1] for line in found] == [
            '"outer" controller="c" node="n1" count=1',
            '"inner" controller="c" node="n2" service="s"',
            '"library" controller="c" node="n1" service="s"',
            '"after"',
        ]


def test_the_request_id_of_a_failure_is_a_field() -> None:
    stream = io.StringIO()
    klog.setup(0, "json", stream=stream)
    klog.error(log, "failed", err=RuntimeError("refused (RequestId: 4d0c-77aa-0001)"))
    klog.error(log, "failed", err=RuntimeError("refused"))
    klog.error(log, "failed", err=RuntimeError("x-request-id: abcdef1"), request_id="mine")
    assert [json.loads(line).get("request_id") for line in lines(stream)] == [
        "4d0c-77aa-0001",
        None,
        "mine",
    ]


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
