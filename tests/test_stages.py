"""Which long stages CI runs, in which order, and how each ends."""

import importlib.util
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def _module() -> Any:
    spec = importlib.util.spec_from_file_location("stages", ROOT / "tools" / "stages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["stages"] = module
    spec.loader.exec_module(module)
    return module


stages = _module()


def stage(name: str, *own: str, usual: int = 10, command: tuple[str, ...] = ("true",)) -> Any:
    return stages.Stage(name, f"what {name} proves", command, usual, own)


def names(some: Iterable[Any]) -> list[str]:
    return [one.name for one in some]


ALL = (stage("aws", "src/aws"), stage("gce", "src/gce"), stage("docs", "docs"))


@pytest.mark.parametrize(
    ("changes", "changed", "rest"),
    [
        ({}, [], ["aws", "gce", "docs"]),
        ({"gce": ["src/gce/api.py"]}, ["gce"], ["aws", "docs"]),
        ({"gce": ["src/gce_api.py"]}, [], ["aws", "gce", "docs"]),
        ({"aws": ["src/proreus/kube/client.py"], "docs": ["docs/a.md"]}, ["docs", "aws"], ["gce"]),
        ({"aws": None, "gce": None, "docs": None}, ["aws", "gce", "docs"], []),
    ],
    ids=["nothing", "own code", "like by name only", "own before the floor", "never passed"],
)
def test_what_changed_since_it_passed_is_due(
    changes: dict[str, list[str] | None], changed: list[str], rest: list[str]
) -> None:
    order = stages.due(ALL, {"aws": [], "gce": [], "docs": [], **changes}, turn=0)
    assert names(order.changed) == changed
    assert names(order.rest) == rest


def test_another_commit_begins_with_another_stage() -> None:
    nothing: dict[str, list[str]] = {one.name: [] for one in ALL}
    firsts = {stages.due(ALL, nothing, turn).rest[0].name for turn in range(3)}
    assert firsts == {"aws", "gce", "docs"}


def test_no_stage_begins_that_could_outlive_the_deadline() -> None:
    long, short = stage("long", usual=100), stage("short", usual=10)
    order = stages.Due((long, short), (long, short))
    assert names(stages.chosen(order, time.monotonic() + 60)) == ["short", "short"]


def test_a_stage_begins_only_if_its_programs_can_be_found_in_time() -> None:
    one = stages.Stage("it", "what it proves", ("true",), 10, (), prepare=("true",))
    order = stages.Due((one,), ())
    assert names(stages.chosen(order, time.monotonic() + 60)) == []
    assert names(stages.chosen(order, time.monotonic() + stages.PREPARED + 60)) == ["it"]


def test_programs_that_would_take_the_time_of_the_stage_pass_it_by() -> None:
    prepare = ("sleep", "60")
    one = stages.Stage("it", "what it proves", ("true",), 10, (), prepare=prepare)
    assert stages.run(one, time.monotonic() + one.limit + 0.1) is stages.Outcome.PASSED_BY


@pytest.mark.parametrize(("code", "outcome"), [(1, "FAILED"), (77, "PASSED_BY")])
def test_a_stage_that_cannot_be_prepared_does_not_run(code: int, outcome: str) -> None:
    prepare = ("sh", "-c", f"exit {code}")
    one = stages.Stage("it", "what it proves", ("true",), 10, (), prepare=prepare)
    assert stages.run(one) is stages.Outcome[outcome]


def test_stages_that_no_change_made_due_take_ten_minutes_in_all() -> None:
    rest = tuple(stage(f"s{i}", usual=250) for i in range(4))
    order = stages.Due((), rest)
    assert names(stages.chosen(order, time.monotonic() + 10_000)) == ["s0", "s1"]


@pytest.mark.parametrize(
    ("script", "usual", "outcome"),
    [
        ("exit 0", 10, "PASSED"),
        ("exit 3", 10, "FAILED"),
        ("exit 77", 10, "PASSED_BY"),
        ("sleep 60", 0, "LATE"),
    ],
)
def test_a_stage_ends_as_its_command_does(script: str, usual: int, outcome: str) -> None:
    one = stage("it", usual=usual, command=("sh", "-c", script))
    assert stages.run(one) is stages.Outcome[outcome]


def test_nothing_of_a_stage_outlives_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {pid}; exit 1"
    stages.run(stage("it", command=("sh", "-c", script)))
    status = Path("/proc", pid.read_text().strip(), "status")
    while status.exists() and "State:\tZ" not in status.read_text():  # it ends a moment later
        time.sleep(0.01)


def test_a_stage_stays_due_until_it_has_passed(tmp_path: Path) -> None:
    passed = stages.Passed(tmp_path)
    one, other = stage("one"), stage("other", command=("false",))
    assert passed.changes(one) is None
    assert stages.run_all([one, other], [one, other], passed) == 1
    assert passed.changes(one) == []
    assert passed.changes(other) is None


def test_a_commit_that_is_lost_counts_as_never_passed(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("0" * 40)
    assert stages.Passed(tmp_path).changes(stage("one")) is None


def test_the_last_line_counts_what_passed_failed_and_was_passed_by(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    some = [stage("a"), stage("b", command=("false",)), stage("c", command=("sh", "-c", "exit 77"))]
    stages.run_all(some, [*some, stage("d")], stages.Passed(tmp_path))
    lines = capfd.readouterr().out.splitlines()
    assert lines[-1] == "stages: 1 passed, 1 failed, 1 skipped"
    assert lines[-2].split(maxsplit=1) == ["d", "left for later"]


def test_every_stage_is_named_once_and_its_paths_exist() -> None:
    assert len({one.name for one in stages.STAGES}) == len(stages.STAGES)
    paths = {path for one in stages.STAGES for path in one.own} | set(stages.FLOOR)
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_the_guide_for_contributors_lists_every_stage() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    listed = [line for line in guide.splitlines() if line.startswith("| `")]
    assert listed == [
        f"| `{one.name}` | {one.proves} | {round(one.usual / 60)} | {'yes' if one.ci else ''} |"
        for one in stages.STAGES
    ]
