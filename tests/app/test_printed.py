"""What a terminal is given: one line for each text, and no character that controls it."""

from datetime import UTC, datetime

import msgspec
import pytest

from proreus.app import ending, printed
from proreus.app.doctor import report as doctor
from proreus.app.doctor.diagnosis import Diagnosis
from proreus.app.doctor.observed import Finding
from proreus.app.preview import report as preview
from proreus.app.preview.changes import Change, Preview
from proreus.app.status import text
from proreus.app.status.summary import summarise
from proreus.kube.objects import Condition
from proreus.testing import objects

SLY = "\x1b[2J\x9b1A\nall is well\r\u202e"
SHOWN = r"\x1b[2J\x9b1A\nall is well\r\u202e"


def test_what_is_plain_stays_as_it_is() -> None:
    for plain in ("", "node/worker-1: ä → 東京 '\"\\ {}", SHOWN):
        assert printed.line(plain) == plain
    assert printed.line(SLY) == SHOWN


def test_the_doctor_shows_no_character_that_controls_the_terminal() -> None:
    finding = Finding(SLY, SLY, SLY, SLY, SLY, SLY)
    shown = doctor.as_text(Diagnosis((finding,), (SLY,), (SLY,), 1, 0)).splitlines()

    assert all(line.isprintable() for line in shown)
    assert shown[1:3] == [f"    seen:   {SHOWN}", f"    remedy: {SHOWN}"]
    assert len(shown) == 9


def test_a_plan_shows_no_character_that_controls_the_terminal() -> None:
    change = Change(SLY, "change", (SLY,), SLY, SLY)
    shown = preview.as_text(Preview((change,), (SLY,), (SLY,), (SLY,))).splitlines()

    assert all(line.isprintable() for line in shown)
    assert f"    {SHOWN}" in shown
    assert len(shown) == 7


def test_the_status_shows_no_character_that_controls_the_terminal() -> None:
    node = objects.node("n1", conditions=(Condition("Ready", "False", SLY, SLY),))
    summary = summarise([node], [], datetime(2026, 5, 4, 12, 0, tzinfo=UTC))
    shown = text.render(summary, width=1000).splitlines()

    assert all(line.isprintable() for line in shown)
    assert any(line.endswith(SHOWN) for line in shown)


def test_json_has_no_character_that_controls_the_terminal() -> None:
    finding = Finding(SLY, SLY, SLY, SLY, SLY, SLY)
    change = Change(SLY, "change", (SLY,), SLY, SLY)
    given = [
        (Diagnosis((finding,), (SLY,), (SLY,), 1, 0), doctor.as_json),
        (Preview((change,), (SLY,), (SLY,), (SLY,)), preview.as_json),
    ]
    for value, as_json in given:
        shown = as_json(value)  # type: ignore[operator]
        assert all(line.isprintable() for line in shown.split("\n"))
        assert msgspec.json.decode(shown) == msgspec.json.decode(msgspec.json.encode(value))
    plain = {"é": "東京\U0001f600", "\x7f": "\U000e0001\u2028"}
    assert msgspec.json.decode(printed.json(plain)) == plain
    assert (
        printed.json(plain)
        == '{\n  "é": "東京\U0001f600",\n  "\\u007f": "\\udb40\\udc01\\u2028"\n}'
    )


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert ending.refused("proreus plan", (SLY, "no"), 1) == 1
    assert capsys.readouterr().err == f"proreus plan: {SHOWN}\nproreus plan: no\n"
