"""The syntax of gcfg."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider import gcfg


def entries(body: str) -> list[tuple[str, str | None]]:
    sections, problems = gcfg.parse(f"[S]\n{body}")
    assert problems == ()
    (section,) = sections
    return [(entry.key, entry.value) for entry in section.entries]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("key = value", [("key", "value")]),
        ("key=value", [("key", "value")]),
        ("\t key\t=\t value \t", [("key", "value")]),
        ("key = two words  ; comment", [("key", "two words")]),
        ("key = value# comment", [("key", "value")]),
        ('key = "a ; b # c"', [("key", "a ; b # c")]),
        ('key = "  kept  "  ', [("key", "  kept  ")]),
        ('key = a" b "c', [("key", "a b c")]),
        (r'key = "tab\t line\n quote\" slash\\"', [("key", 'tab\t line\n quote" slash\\')]),
        (r'key = "back\b"', [("key", "back\b")]),
        ("key =", [("key", "")]),
        ('key = ""', [("key", "")]),
        ("key", [("key", None)]),
        ("key ; comment", [("key", None)]),
        ("key = 1\nkey = 2", [("key", "1"), ("key", "2")]),
        ("key = one \\\n two\nnext = x", [("key", "one  two"), ("next", "x")]),
        ("key = one \\\r\n two\r\n", [("key", "one  two")]),
        ("key = value\r\n", [("key", "value")]),
        ("key = a = b", [("key", "a = b")]),
        ("Schlüssel-2 = Straße", [("Schlüssel-2", "Straße")]),
        ("; only\n# comments\n\n", []),
    ],
)
def test_entries_are_read_as_gcfg_defines_them(
    body: str, found: list[tuple[str, str | None]]
) -> None:
    assert entries(body) == found


@pytest.mark.parametrize(
    ("header", "name", "subsection"),
    [
        ("[Global]", "Global", ""),
        (" [ Global ] ; comment", "Global", ""),
        ('[ServiceOverride "1"]', "ServiceOverride", "1"),
        ('[VirtualCenter "10.0.0.1"]#x', "VirtualCenter", "10.0.0.1"),
        (r'[Class "a \"b\" ]"]', "Class", 'a "b" ]'),
        ("\ufeff[Global]", "Global", ""),
    ],
)
def test_headers_name_a_section_and_perhaps_a_subsection(
    header: str, name: str, subsection: str
) -> None:
    sections, problems = gcfg.parse(header + "\nkey = 1")
    assert problems == ()
    assert [(s.name, s.subsection, len(s.entries)) for s in sections] == [(name, subsection, 1)]


def test_entries_before_the_first_section_are_of_the_default_one_where_there_is_one() -> None:
    sections, problems = gcfg.parse("url = a\nuser = b\n[S]\nkey = 1", "connection")
    assert problems == ()
    assert [(s.line, s.name, [e.key for e in s.entries]) for s in sections] == [
        (1, "connection", ["url", "user"]), (3, "S", ["key"])
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "key", "part"),
    [
        ("key = 1\n[S]", 1, "key", "before the first"),
        ("[S\nkey = 1", 1, "", "not closed"),
        ('[S "x\nkey = 1', 1, "", "not closed"),
        ('[S ""]', 1, "", "empty"),
        ("[]", 1, "", "section name"),
        ("[S] text", 1, "", "unexpected text"),
        ("[S]\n= 1", 2, "", "expected a [section]"),
        ("[S]\nkey 1", 2, "key", "expected ="),
        ('[S]\nkey = "open', 2, "key", "not closed"),
        ('[S]\nkey = "\\x"', 2, "key", "unknown escape"),
        ("[S]\nkey = a\\b", 2, "key", "backslash"),
    ],
)
def test_a_wrong_line_is_named_with_its_place(text: str, line: int, key: str, part: str) -> None:
    _, problems = gcfg.parse(text)
    assert [(p.line, p.key) for p in problems][:1] == [(line, key)]
    assert part in problems[0].message


def test_every_wrong_line_is_found_and_the_right_ones_are_kept() -> None:
    text = '[S]\na = "1\nb = 2\n!\nc = \\ \n[T "x"]\nd = 3\n?'
    sections, problems = gcfg.parse(text)
    assert [(p.line, p.section, p.key) for p in problems] == [
        (2, "[S]", "a"),
        (4, "[S]", ""),
        (5, "[S]", "c"),
        (8, '[T "x"]', ""),
    ]
    assert [(e.line, e.key, e.value) for s in sections for e in s.entries] == [
        (3, "b", "2"),
        (7, "d", "3"),
    ]


@pytest.mark.parametrize("header", ["[T", '[T "x', "[T] x = 1", "[]", '[T ""]'])
def test_what_follows_a_broken_header_is_no_part_of_the_section_before(header: str) -> None:
    sections, problems = gcfg.parse(f"[S]\na = 1\n{header}\nb = 2\n[U]\nc = 3")
    named = {s.name: [entry.key for entry in s.entries] for s in sections}
    assert named["S"] == ["a"]
    assert named["U"] == ["c"]
    assert [problem.line for problem in problems] == [3]
    assert problems[0].section in {"[T]", ""}


def test_lines_are_counted_through_continuations() -> None:
    (section,), _ = gcfg.parse("[S]\na = 1 \\\n 2\nb = 3")
    assert [(e.key, e.line) for e in section.entries] == [("a", 2), ("b", 4)]


def test_no_representation_shows_a_value() -> None:
    sections, _ = gcfg.parse("[S]\npassword = hunter2")
    assert "hunter2" not in repr(sections)


@given(st.text())
def test_any_text_is_read_or_refused_without_a_crash(text: str) -> None:
    sections, problems = gcfg.parse(text)
    lines = text.count("\n") + 1
    assert all(1 <= problem.line <= lines for problem in problems)
    assert all(1 <= section.line <= lines for section in sections)


@given(st.text())
def test_a_quoted_value_comes_back_as_it_was(value: str) -> None:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}
    quoted = "".join(escapes.get(char, char) for char in value)
    assert entries(f'key = "{quoted}" ; comment') == [("key", value)]
