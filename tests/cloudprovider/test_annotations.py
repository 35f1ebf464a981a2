"""Reading a Service's annotations: a table of values, and every mistake at once."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from proreus.cloudprovider import AnnotationReader, InvalidRequest

PREFIX = "example.com/"
LETTERS = re.compile("[a-z]+")

HOW: dict[str, Callable[[AnnotationReader], Any]] = {
    "flag": lambda read: read.flag("a"),
    "on": lambda read: read.flag("a", default=True),
    "number": lambda read: read.number("a", -1, 10),
    "from_operator": lambda read: read.number("a", 1, 10, 0),
    "form": lambda read: read.form("a", LETTERS, "give letters", "x"),
    "choice": lambda read: read.choice("a", ("tcp", "HTTP"), "tcp"),
    "names": lambda read: read.names("a", LETTERS, "give letters"),
    "pairs": lambda read: read.pairs("a"),
}

READ = {
    ("flag", ""): False, ("flag", "true"): True, ("flag", "1"): True, ("on", ""): True, ("on", " F "): False,
    ("number", ""): None, ("number", "-1"): -1, ("number", "+10"): 10,
    ("form", ""): "x", ("form", " abc "): "abc",
    ("choice", ""): "tcp", ("choice", "TCP"): "tcp", ("choice", "HTTP"): "HTTP",
    ("names", ""): (), ("names", "b, a,"): ("b", "a"),
    ("pairs", ""): {}, ("pairs", "k=v, l=,m,n=1=2,"): {"k": "v", "l": "", "m": "", "n": "1"},
}  # fmt: skip


@pytest.mark.parametrize(("how", "text"), READ)
def test_a_value_is_read(how: str, text: str) -> None:
    read = AnnotationReader({f"{PREFIX}a": text, "a": "other"}, PREFIX)
    assert HOW[how](read) == READ[how, text]
    read.check()


WRONG = {
    ("flag", "yes"): (False, "give true or false"),
    ("on", "on"): (True, "give true or false"),
    ("number", "11"): (None, "give a number from -1 to 10"),
    ("number", "1h"): (None, "give a number from -1 to 10"),
    ("number", "1_0"): (None, "give a number from -1 to 10"),
    ("number", "9" * 13): (None, "give a number from -1 to 10"),
    ("from_operator", ""): (0, "give a number from 1 to 10"),
    ("form", "a1"): ("", "give letters"),
    ("choice", "http"): ("", "give one of HTTP, tcp"),
    ("names", "a,b1"): (("a", "b1"), "give letters"),
    ("names", "a,a"): (("a", "a"), "give each value once, not several times: a"),
}


@pytest.mark.parametrize(("how", "text"), WRONG)
def test_a_wrong_value_is_reported_with_its_remedy(how: str, text: str) -> None:
    read = AnnotationReader({f"{PREFIX}a": text}, PREFIX)
    found, remedy = WRONG[how, text]
    assert HOW[how](read) == found
    with pytest.raises(InvalidRequest, match=f"^annotation example.com/a: {remedy}$"):
        read.check()


def test_all_that_is_wrong_is_reported_at_once() -> None:
    read = AnnotationReader({f"{PREFIX}a": "x", "other.org/b": "y"}, PREFIX)
    assert not read.flag("a")
    assert not read.flag("other.org/b")
    assert read.text("other.org/b") == "y"
    read.wrong("c", "leave it out")
    with pytest.raises(InvalidRequest) as raised:
        read.check()
    assert str(raised.value) == (
        "annotation example.com/a: give true or false; "
        "annotation other.org/b: give true or false; "
        "annotation example.com/c: leave it out"
    )
