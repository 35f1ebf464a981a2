"""The Go programs that render charts and read Prometheus rules, built once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .charts import ROOT, Programs


@pytest.fixture(scope="session")
def programs() -> Programs:
    if shutil.which("go") is None and "CI" not in os.environ:
        pytest.skip("no Go on the PATH to build the programs for charts and rules with")
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "manifests.py", "programs"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Programs(Path(done.stdout.strip()))
