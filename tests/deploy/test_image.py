"""The Dockerfile agrees with the package and the chart. Building it needs a base image: `make image`."""

import re
import tomllib
from pathlib import PurePosixPath
from typing import Final

import yaml

from proreus import __version__
from proreus.app.options import Options

from ..official_manifests import STARTS  # noqa: TID252 - tests are no package
from .charts import CHART, ROOT, Programs, pod

TEXT: Final = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def instructions(name: str) -> list[str]:
    """What stands behind an instruction, for each time it is there."""
    return re.findall(rf"^{name}\s+(.*)$", TEXT, re.MULTILINE)


def test_every_stage_stands_on_the_base_that_is_asked_for() -> None:
    assert instructions("FROM") == ["${BASE} AS builder", "${BASE}"]
    assert not re.search(r"amd64|x86_64|arm64|aarch64", "\n".join(instructions("RUN")))


def test_the_image_runs_the_manager_as_the_user_of_the_chart(programs: Programs) -> None:
    (user,) = instructions("USER")
    context = pod(programs.render())["securityContext"]
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"
    (entrypoint,) = instructions("ENTRYPOINT")
    assert yaml.safe_load(entrypoint)[0] in PROJECT["scripts"]
    assert [int(port) for port in instructions("EXPOSE")] == [Options().secure_port]


def test_what_is_copied_is_there_and_reaches_the_builder() -> None:
    admitted = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    sources = {
        source
        for line in instructions("COPY")
        if not line.startswith("--from")
        for source in line.split()[:-1]
    }
    assert sources == admitted
    assert all((ROOT / source).exists() for source in sources)


def test_the_program_is_where_official_manifests_look_for_it() -> None:
    (links,) = re.findall(r"for name in (.*?);", TEXT)
    (target,) = re.findall(r"ln -s (\S+)", TEXT)
    assert PurePosixPath(target).name in PROJECT["scripts"]
    (search,) = re.findall(r"ENV PATH=([^:]+):", TEXT)
    assert PurePosixPath(target).parent == PurePosixPath(search)
    by_path = {start.command for start in STARTS if start.command.startswith("/")}
    by_name = {start.command for start in STARTS} - by_path - {""}
    assert by_path <= set(links.split())
    assert by_name <= PROJECT["scripts"].keys()


def test_the_image_has_every_cloud_and_the_packages_version() -> None:
    arguments = dict(argument.split("=", 1) for argument in instructions("ARG"))
    assert arguments["VERSION"] == __version__
    assert set(arguments["EXTRAS"].split(",")) == PROJECT["optional-dependencies"].keys() - {"dev"}
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
