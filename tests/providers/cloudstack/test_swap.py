"""The official manifest of CloudStack with only the image changed: the manager is configured."""

from pathlib import Path

import pytest

from proreus.app import command_line, run
from proreus.app.options import Options
from proreus.providers.cloudstack import CloudStackCloud

from ...app.test_cli import CLUSTER  # noqa: TID252 - pytest imports tests by path
from .test_config import OFFICIAL


@pytest.mark.parametrize("name", ["external-cloudstack", "cloudstack"])
def test_the_official_arguments_configure_the_provider(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of deployment.yaml of release 1.2.0, and the name inside old Kubernetes."""
    kubeconfig, config = tmp_path / "kubeconfig", tmp_path / "cloud-config"
    kubeconfig.write_text(CLUSTER)
    config.write_text(OFFICIAL)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    args = ["--leader-elect=true", f"--cloud-provider={name}", f"--cloud-config={config}"]
    options = command_line.parse(Options, args, "ccm", run.DESCRIPTION).options
    provider, _ = run._configured(options)
    assert isinstance(provider, CloudStackCloud)
