"""The arguments of a controller manager of old Kubernetes: this manager is configured."""

from pathlib import Path

import pytest

from proreus.app import command_line, run
from proreus.app.options import Options
from proreus.providers.rackspace import RackspaceCloud

from ...app.test_cli import CLUSTER  # noqa: TID252 - pytest imports tests by path
from .test_config import IN_TREE


def test_the_old_arguments_configure_the_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig, config = tmp_path / "kubeconfig", tmp_path / "cloud-config"
    kubeconfig.write_text(CLUSTER)
    config.write_text(IN_TREE)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    args = ["--cloud-provider=rackspace", f"--cloud-config={config}"]
    options = command_line.parse(Options, args, "ccm", run.DESCRIPTION).options
    provider, _ = run._configured(options)
    assert isinstance(provider, RackspaceCloud)
