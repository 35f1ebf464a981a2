"""What README and documentation show of the benchmarks."""

from pathlib import Path

import msgspec
import pytest

from benchmarks import publish, results
from benchmarks.contestants import GO_DEFAULT, GO_TUNED, PROREUS
from benchmarks.publish import BEGIN, DOCS, END, ROOT, table, with_table
from benchmarks.scenarios import initialising

from .test_report import figures, reported

NODES = initialising(5000)
REPORT = reported(
    *((NODES, GO_TUNED, figures(seconds, {"x": 5000})) for seconds in (27.0, 29.0, 28.0)),
    *((NODES, PROREUS, figures(seconds, {"x": 11})) for seconds in (20.0, 22.0)),
    (NODES, GO_DEFAULT, figures(500.0, {})),
    ("failover after SIGTERM", PROREUS, figures(0.3, {})),
)


def test_the_readme_shows_what_the_documentation_shows() -> None:
    readme = (ROOT / "README.md").read_text()
    assert with_table(readme, results.load(ROOT / DOCS)) == readme, (
        "run `python -m benchmarks.publish --results docs/explanation/benchmarks`"
    )


def test_the_table_has_medians_and_says_where_runs_were_few() -> None:
    assert table(REPORT).splitlines()[2:] == [
        "| initialise 5,000 nodes | 28.0 s | 21.0 s (two runs) | 5,000 | 11 |",
        "| the same: CPU time of the manager | 1.0 s | 1.0 s (two runs) |  |  |",
        "| the same: CPU time of the API server | 2.0 s | 2.0 s (two runs) |  |  |",
        "| the same: peak memory | 50 MiB | 50 MiB (two runs) |  |  |",
    ]


def test_publishing_replaces_the_table_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / DOCS).mkdir(parents=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "README.md").write_text(f"before\n\n{BEGIN}\n\nold\n\n{END}\n\nafter\n")
    results.save(REPORT, tmp_path / "run")

    publish.publish(tmp_path / "run", tmp_path)

    text = (tmp_path / "README.md").read_text()
    assert text == f"before\n\n{BEGIN}\n\n{table(REPORT)}\n\n{END}\n\nafter\n"
    published = results.load(tmp_path / DOCS)
    assert msgspec.to_builtins(published) == msgspec.to_builtins(REPORT)
    assert NODES in (tmp_path / DOCS / "results.md").read_text()
    assert NODES in (tmp_path / DOCS / "results.svg").read_text()


def test_a_readme_without_a_place_for_the_table_stays_as_it_is(tmp_path: Path) -> None:
    results.save(REPORT, tmp_path)
    (tmp_path / "README.md").write_text("nothing\n")

    with pytest.raises(ValueError, match="put them around its table"):
        publish.publish(tmp_path, tmp_path)
    assert (tmp_path / "README.md").read_text() == "nothing\n"
