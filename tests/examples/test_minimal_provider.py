"""The package in examples/minimal_provider: installed, found, keeping every rule."""

import re
import shutil
from pathlib import Path

import pytest

from .scratch import Scratch

EXAMPLE = Path(__file__).parents[2] / "examples" / "minimal_provider"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scratch, Path]:
    directory = tmp_path_factory.mktemp("installed")
    package = directory / "minimal_provider"
    shutil.copytree(EXAMPLE, package, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    scratch = Scratch(directory / "venv")
    scratch.install(package)
    return scratch, package


@pytest.mark.long
def test_it_is_found_by_its_entry_point_and_keeps_every_rule(
    installed: tuple[Scratch, Path],
) -> None:
    scratch, package = installed
    find = "from proreus.cloudprovider import load; print(load('minimal').__module__)"
    found = scratch.run("python", "-c", find, cwd=package)
    assert found.stdout.strip() == "minimal_provider", found.stderr
    ran = scratch.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=package)
    assert ran.returncode == 0, ran.stdout
    assert "failed" not in ran.stdout
    report = scratch.run(
        "python", "-m", "proreus.testing.conformance", "tests.test_conformance:Cloud", cwd=package
    )
    assert report.returncode == 0, report.stdout
    assert re.fullmatch(r"\d+ holds", report.stdout.splitlines()[-1])


def test_it_names_every_problem_of_its_cloud_config(
    installed: tuple[Scratch, Path], tmp_path: Path
) -> None:
    scratch, package = installed
    config = tmp_path / "cloud.yaml"
    config.write_text("endpont: http://127.0.0.1:8099\n")
    ran = scratch.run(
        "cloud-controller-manager",
        "--cloud-provider=minimal",
        f"--cloud-config={config}",
        cwd=package,
    )
    assert ran.returncode == 2
    for word in ("endpont", "endpoint", "token"):
        assert word in ran.stderr
