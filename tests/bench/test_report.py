"""What is made of figures: medians, verdicts on promises, tables and a drawing."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from benchmarks import report, results
from benchmarks.contestants import GO_DEFAULT, GO_TUNED, PROREUS, Contestant
from benchmarks.measure import Figures
from benchmarks.promises import judged
from benchmarks.scenarios import balancing, initialising, joining


def figures(seconds: float, calls: Mapping[str, float], **more: float) -> Figures:
    return Figures(
        seconds=seconds,
        cloud_calls=calls,
        throttled=0,
        api_requests={"patch nodes": 10},
        api_failures=0,
        sent=0.5,
        received=0.5,
        rss=50,
        cpu=1.0,
        apiserver_cpu=2.0,
        etcd_cpu=1.0,
        units=300,
        more=more,
    )


def reported(*made: tuple[str, Contestant, Figures]) -> results.Report:
    """A report of these works."""
    rows: list[results.Row] = []
    for work, one, took in made:
        results.add(rows, work, one.key, one.title, took)
    return results.Report("2026-01-01T00:00+00:00", "a machine", {"Proreus": "0"}, rows)


REPORT = reported(
    ("a <job>", GO_DEFAULT, figures(100, {"x": 50})),
    ("a <job>", GO_TUNED, figures(2, {"x": 50})),
    ("a <job>", PROREUS, figures(1, {}, after_the_last_join=0.25)),
)


def test_the_table_has_the_ratio_to_the_reference() -> None:
    text = report.markdown(REPORT, GO_TUNED.key)

    (table,) = [part for part in text.split("\n\n") if part.startswith("| | seconds")]
    assert [one.split(" | ")[:3] for one in table.splitlines()[2:]] == [
        ["| Go, default flags", "100.0 (50×)", "50 (1×)"],  # noqa: RUF001 - as it is written
        ["| Go, tuned", "2.0", "50"],
        ["| Proreus", "1.0 (0.5×)", "0"],  # noqa: RUF001 - the same
    ]
    assert "Proreus: after the last join 0.25 s." in text
    assert "| a <job> | 100.0 | 2.0 | 1.0 (0.5×) | 50 | 0 |" in text  # noqa: RUF001
    assert "| 10.00 | 10.00 (1×) |" in text.partition("promised")[0]  # noqa: RUF001
    assert "| cloud: x | 50 | 50 | 0 |" in text
    assert "| API: patch nodes | 10 | 10 | 10 |" in text


def test_the_drawing_is_svg_with_a_mark_for_every_ratio() -> None:
    root = ET.fromstring(report.drawing(REPORT, GO_TUNED.key))  # noqa: S314 - ours

    svg = "{http://www.w3.org/2000/svg}"
    marks = [one.findtext(f"{svg}title") for one in root.iter(f"{svg}circle")]
    assert [mark for mark in marks if mark and mark.startswith("Proreus")] == [
        "Proreus: 1.0",  # seconds; there were no cloud calls
        "Proreus: 1.0",
        "Proreus: 50",
    ]
    places = {
        one.get("cx") for one in root.iter(f"{svg}circle") if one.find(f"{svg}title") is not None
    }
    assert all(380 <= float(place or 0) <= 380 + 4 * 190 for place in places)
    assert "a <job>" in {one.text for one in root.iter(f"{svg}text")}


def test_no_label_of_the_drawing_overlaps_the_next() -> None:
    root = ET.fromstring(report.drawing(REPORT, GO_TUNED.key))  # noqa: S314 - ours

    svg = "{http://www.w3.org/2000/svg}"
    axes = [one for one in root.iter(f"{svg}text") if one.get("text-anchor") == "middle"]
    # A digit of a sans-serif font is 0.56 of its size wide, the sign of times 0.84.
    halves = [(float(one.get("x") or 0), 0.6 * 9 * (len(one.text or "") + 0.5) / 2) for one in axes]
    assert len(axes) == 20
    for (left, half), (right, next_half) in pairwise(halves):
        assert left + half < right - next_half


def test_several_runs_are_shown_by_the_median_of_each_figure() -> None:
    runs = [(4.0, {"x": 1, "y": 9}), (1.0, {"x": 3}), (2.0, {"x": 2, "y": 5})]
    made = reported(*(("job", PROREUS, figures(*run)) for run in runs))

    assert [row.run for row in made.rows] == [1, 2, 3]
    ((median,),) = made.works.values()
    assert (median.run, median.figures.seconds) == (3, 2.0)
    assert median.figures.cloud_calls == {"x": 2, "y": 5}
    assert "| Proreus, median of 3 | 2.0 |" in report.markdown(made, GO_TUNED.key)


def test_results_are_read_back_and_added_to_by_the_same_commit_only(tmp_path: Path) -> None:
    assert list(results.begin(tmp_path, append=True).rows) == []
    now = results.begin(tmp_path, append=False)
    kept = msgspec.structs.replace(now, rows=REPORT.rows)
    results.save(kept, tmp_path)

    assert results.load(tmp_path) == kept
    assert results.begin(tmp_path, append=True) == kept
    assert list(results.begin(tmp_path, append=False).rows) == []

    other = {**now.versions, "Proreus": "0.0.0"}
    results.save(msgspec.structs.replace(kept, versions=other), tmp_path)
    with pytest.raises(results.UnfitResults, match=r"another Proreus: 0\.0\.0, now "):
        results.begin(tmp_path, append=True)
    (tmp_path / results.FILE).write_text("[]")
    with pytest.raises(results.UnfitResults, match="remove it and run anew"):
        results.load(tmp_path)


def test_promises_are_judged_by_the_medians_and_only_where_the_work_was_done() -> None:
    nodes, services = initialising(5000), balancing("delete", 200, 100)
    join = joining(50, 200)
    made = reported(
        (nodes, GO_TUNED, figures(20, {"x": 5000})),
        (nodes, PROREUS, figures(10, {"instances.batch_get": 10, "resources.list": 1})),
        (services, GO_TUNED, figures(1, {})),
        (services, PROREUS, figures(1.5, {})),
        (join, PROREUS, figures(6, {"x": 601}, after_the_last_join=1.0)),
    )
    verdicts = {
        (one.promise.text, one.promise.work): (one.found, one.is_kept) for one in judged(made.works)
    }

    assert verdicts == {
        ("time of tuned Go", nodes): (0.5, True),
        ("CPU of tuned Go", nodes): (1.0, False),
        ("API server's CPU of tuned Go", nodes): (1.0, True),
        ("calls about machines", nodes): (10, True),
        ("peak memory", nodes): (pytest.approx(52.4, abs=0.1), True),
        ("time of tuned Go", services): (1.5, False),
        ("cloud calls", join): (601, False),
        ("from the last join to all hosts everywhere", join): (1.0, True),
    }
    text = report.markdown(made, GO_TUNED.key)
    assert (
        f"| CPU of tuned Go | {nodes} | at most 0.60 times | 1.00 times | 1 | **missed** |" in text
    )
    assert f"| time of tuned Go | {nodes} | at most 0.90 times | 0.50 times | 1 | kept |" in text
