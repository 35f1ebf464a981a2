"""TOML with lines, and what it decodes to."""

import tomllib
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proreus.cloudprovider import toml
from proreus.cloudprovider.config import ConfigSection, read


class Class(ConfigSection, frozen=True):
    network: str
    port: int = 0


class Pool(ConfigSection, frozen=True):
    name: str
    sizes: list[int] = msgspec.field(default_factory=list)


class Config(ConfigSection, frozen=True):
    title: str = ""
    share: float = 0.0
    wait: timedelta = timedelta()
    whole: int = 0
    flag: bool = False
    networks: tuple[str, ...] = ()
    balancer_class: dict[str, Class] = msgspec.field(default_factory=dict)
    pools: list[Pool] = msgspec.field(default_factory=list)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    legacy: Any = None


FILE = '''\
# comment
title = """
two
[lines]
""" # comment
share = 1_0.5
wait = "1m30s"
whole = 0x1F
flag = true
networks = [  # comment
  "a",
  'b = [c]',
]
labels = {zone = "a", "x.y/z" = "b"}
[balancer-class.internal]
network = "n1"
[balancer-class."a b"]
network = 'n2'
port = 1_000
[[pools]]
name = "one"
sizes = [1, 2]
[[pools]]
name = "two"
[legacy]
since = 2020-01-02T03:04:05Z
list = [{a = 1}, [2.50]]
'''


@pytest.mark.parametrize("text", [FILE, FILE.replace("\n", "\r\n"), "\ufeff" + FILE])
def test_a_file_with_all_that_toml_has_is_read(text: str) -> None:
    assert read(text, Config, source="c.toml") == Config(
        title="two\n[lines]\n",
        share=10.5,
        wait=timedelta(seconds=90),
        whole=31,
        flag=True,
        networks=("a", "b = [c]"),
        balancer_class={"internal": Class("n1"), "a b": Class("n2", 1000)},
        pools=[Pool("one", [1, 2]), Pool("two")],
        labels={"zone": "a", "x.y/z": "b"},
        legacy={"since": "2020-01-02T03:04:05+00:00", "list": [{"a": "1"}, ["2.50"]]},
    )


def test_every_statement_has_its_line() -> None:
    statements, problems = toml.parse(FILE)
    assert problems == ()
    assert [(s.line, next(iter(s.content))) for s in statements] == [
        (2, "title"), (6, "share"), (7, "wait"), (8, "whole"), (9, "flag"), (10, "networks"),
        (14, "labels"), (15, "balancer-class"), (16, "network"), (17, "balancer-class"),
        (18, "network"), (19, "port"), (20, "pools"), (21, "name"), (22, "sizes"),
        (23, "pools"), (24, "name"), (25, "legacy"), (26, "since"), (27, "list"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a = 1\nb = \nc = 3", [2]),
        ("a = [\n1,\n!,\n]\nb = 1", [3]),
        ('a = """\nb = 1\n', [1]),
        ("a = 1\na = 2\na = 3", [2, 3]),
        ("[a]\nb = 1\n[a]\nb = 1", [3]),
        ("[a]\nb = 1\n[a.b]\nc = 1\n[d]\ne = 1\ne = 2", [3, 7]),
        ("a = {b = 1}\na.c = 2", [2]),
        ("a = " + "9" * 5000, [1]),
        ("a = " + "[" * 5000, [1]),
        ("a = 2020-13-01", [1]),
        ("a = 'x\ry'", [1]),
        ("no statement", [1]),
    ],
)
def test_every_problem_has_its_line(text: str, lines: list[int]) -> None:
    _, problems = toml.parse(text)
    assert [problem.line for problem in problems] == lines


def test_a_number_of_any_length_is_read() -> None:
    whole = 16**4000
    assert read(f"whole = {whole:#x}", Config, source="c.toml").whole == whole


def test_no_representation_shows_a_value() -> None:
    statements, _ = toml.parse('password = "hunter2"')
    assert "hunter2" not in repr(statements)


def test_a_carriage_return_alone_ends_no_line() -> None:
    statements, problems = toml.parse('a = "x"\r\nb = 1\r')
    assert [statement.content for statement in statements] == [{"a": "x"}]
    assert problems == (toml.Problem(2, "", "a carriage return without a line feed", "b"),)


@given(st.text())
@example("\r")
def test_any_text_is_read_or_refused_without_a_crash(text: str) -> None:
    statements, problems = toml.parse(text)
    try:
        tomllib.loads(text)
    except (ValueError, RecursionError):
        assert problems or text.startswith("\ufeff")
    else:
        assert problems == ()
    lines = text.count("\n") + 1
    found = [*(each.line for each in statements), *(each.line for each in problems)]
    assert all(1 <= line <= lines for line in found)


NAMES = st.text("abc-", min_size=1, max_size=3)
VALUES = st.sampled_from(["1", '"x"', "[\n1,\n2]", "'''\nx\n'''", "true", "{a = 1}"])


@given(st.lists(st.one_of(st.tuples(NAMES, VALUES), st.tuples(NAMES, st.none())), max_size=12))
def test_a_text_has_problems_exactly_if_the_library_refuses_it(
    parts: list[tuple[str, str | None]],
) -> None:
    text = "\n".join(f"[{name}]" if value is None else f"{name} = {value}" for name, value in parts)
    try:
        tomllib.loads(text)
        is_valid = True
    except tomllib.TOMLDecodeError:
        is_valid = False
    _, problems = toml.parse(text)
    assert (not problems) is is_valid
