"""What is made from the roles, the chart and its values is what they make today."""

import subprocess
import sys

from .charts import ROOT, Programs


def test_roles_readme_and_manifests_are_current(programs: Programs) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "manifests.py", "check"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
