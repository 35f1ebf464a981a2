"""An environment to install packages into, which sees all that this one has."""

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

_COMMANDS = {"proreus": "main", "cloud-controller-manager": "cloud_controller_manager"}


class Scratch:
    """A virtual environment that needs no internet: pip finds everything installed already."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        venv.create(folder, with_pip=False, symlinks=True)
        (library,) = folder.glob("lib/python*/site-packages")
        ours = sysconfig.get_path("purelib")
        (library / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
        for command, function in _COMMANDS.items():
            script = self.bin / command
            script.write_text(
                f"#!{self.bin / 'python'}\nimport sys\nfrom proreus.app.cli import {function}\n"
                f"sys.exit({function}())\n"
            )
            script.chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON"))}
        return kept | {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "PIP_NO_INDEX": "1",
            # pip reads this one the other way round: no isolation.
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
        }

    def run(
        self, *command: str, cwd: Path, sources: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, with packages of `sources` before those that are installed."""
        found = [str(self.bin / command[0]), *command[1:]]
        env = self.env | ({"PYTHONPATH": str(sources)} if sources else {})
        return subprocess.run(
            found, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False
        )

    def install(self, package: Path) -> None:
        ran = self.run("python", "-m", "pip", "install", "-q", "-e", ".[test]", cwd=package)
        assert ran.returncode == 0, ran.stdout + ran.stderr
