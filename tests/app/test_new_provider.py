"""`proreus new-provider NAME`: names, and what is never overwritten."""

from pathlib import Path

import pytest

from proreus.app import new_provider
from proreus.app.cli import main


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Cloud",
        "9cloud",
        "my_cloud",
        "my--cloud",
        "-cloud",
        "cloud-",
        "wölkchen",
        "a/b",
        "x" * 41,
    ],
)
def test_a_name_that_will_not_do_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert new_provider.main(["--directory", str(tmp_path / "new"), "--", name]) == 2
    assert "cannot be the name of a provider" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_the_name_of_a_known_provider_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert new_provider.main(["simulated", "--directory", str(tmp_path / "new")]) == 2
    said = capsys.readouterr().err
    assert "'simulated' already" in said
    assert "uninstall proreus to begin anew" in said


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("precious")
    assert new_provider.main(["little", "--directory", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert new_provider.main(["little", "--directory", str(tmp_path / "mine")]) == 2
    assert "cannot write" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine").read_text() == "precious"


def test_the_default_directory_is_named_as_the_project_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new-provider", "little"]) == 0
    assert "cd little-provider" in capsys.readouterr().out
    assert 'name = "little-provider"' in (tmp_path / "little-provider/pyproject.toml").read_text()
    assert (tmp_path / "little-provider" / "src" / "little_provider" / "api.py").is_file()


def test_a_wrong_command_line_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-provider"]) == 2
    assert main(["new-provider", "--help"]) == 0
    assert "NAME" in capsys.readouterr().out
