"""What `proreus new-provider NAME` writes: it installs, runs and says what to do next."""

import asyncio
import shutil
import signal
from pathlib import Path

import pytest

from proreus.app.cli import main
from proreus.testing.controlplane import ControlPlane

from .scratch import Scratch

EXAMPLE = Path(__file__).parents[2] / "examples" / "minimal_provider"
CONFIG = "endpoint: http://127.0.0.1:9\ntoken: secret\n"


@pytest.fixture(scope="module")
def skeleton(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scratch, Path]:
    """It is installed once; what a test changes is a copy."""
    directory = tmp_path_factory.mktemp("skeleton")
    package = directory / "package"
    assert main(["new-provider", "little-cloud", "--directory", str(package)]) == 0
    scratch = Scratch(directory / "venv")
    scratch.install(package)
    (package / "cloud.yaml").write_text(CONFIG)
    return scratch, package


def test_the_skeleton_installs_and_is_found_by_its_name(skeleton: tuple[Scratch, Path]) -> None:
    scratch, package = skeleton
    find = "from proreus.cloudprovider import load; print(load('little-cloud').__qualname__)"
    assert scratch.run("python", "-c", find, cwd=package).stdout.strip() == "LittleCloudCloud"


def test_it_calls_the_cloud_as_the_example_does(skeleton: tuple[Scratch, Path]) -> None:
    _, package = skeleton

    def api(path: Path) -> str:
        _, _, rest = path.read_text().partition("\ndef client(")
        found, _, reading = rest.partition("\n\n\ndef read_error(")
        assert found
        assert reading
        return found

    ours = package / "src" / "little_cloud_provider" / "api.py"
    assert api(ours) == api(EXAMPLE / "src" / "minimal_provider" / "api.py")


def test_a_missing_cloud_config_is_reported(skeleton: tuple[Scratch, Path]) -> None:
    scratch, package = skeleton
    ran = scratch.run("cloud-controller-manager", "--cloud-provider=little-cloud", cwd=package)
    assert ran.returncode == 2
    assert "endpoint" in ran.stderr


def test_conformance_shows_what_to_write_first_and_what_next(
    skeleton: tuple[Scratch, Path], tmp_path: Path
) -> None:
    scratch, original = skeleton
    package = shutil.copytree(original, tmp_path / "package")
    tests = package / "tests" / "test_conformance.py"
    suite = ("python", "-m", "proreus.testing.conformance", "tests.test_conformance:Cloud")
    ran = scratch.run(*suite, cwd=package, sources=package / "src")
    assert ran.returncode == 1, ran.stderr
    assert "not written yet: create_machines() in tests/test_conformance.py" in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("3 holds, 1 FAILS, ")

    raises = 'raise NotImplementedError(NOT_WRITTEN.format("create_machines"))'
    tests.write_text(tests.read_text().replace(raises, "del names"))
    ran = scratch.run(*suite, cwd=package, sources=package / "src")
    assert ran.returncode == 1, ran.stderr
    said = "NotSupported: not written yet: by_name() in little_cloud_provider/machines.py"
    assert said in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("3 holds, 1 FAILS, ")

    init = package / "src" / "little_cloud_provider" / "__init__.py"
    lines = init.read_text().splitlines(keepends=True)
    init.write_text("".join(line for line in lines if "self.instances =" not in line))
    ran = scratch.run(*suite, cwd=package, sources=package / "src")
    assert "not written yet: ensure() in little_cloud_provider/balancers.py" in ran.stdout


async def test_the_manager_runs_with_it_and_logs_what_is_not_written(
    skeleton: tuple[Scratch, Path], control_plane: ControlPlane
) -> None:
    scratch, package = skeleton
    process = await asyncio.create_subprocess_exec(
        str(scratch.bin / "cloud-controller-manager"),
        "--cloud-provider=little-cloud",
        "--cloud-config=cloud.yaml",
        f"--kubeconfig={control_plane.kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        cwd=package,
        env=scratch.env,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    missing = {
        "not written yet: by_name() in little_cloud_provider/machines.py",
        "not written yet: ensure() in little_cloud_provider/balancers.py",
    }
    said = ""
    try:
        async with asyncio.timeout(60):
            while missing and (line := (await process.stderr.readline()).decode()):
                said += line
                missing = {sentence for sentence in missing if sentence not in line}
    finally:
        process.send_signal(signal.SIGTERM)
        _, rest = await process.communicate()
    assert not missing, said
    assert process.returncode == 0, said + rest.decode()
