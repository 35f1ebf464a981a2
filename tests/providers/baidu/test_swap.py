"""The official manifest of Baidu AI Cloud with only the image changed: the manager is configured."""

import json
from pathlib import Path

import pytest

from proreus.app import command_line, run
from proreus.app.options import Options
from proreus.providers.baidu import BaiduCloud

from ...app.test_cli import CLUSTER  # noqa: TID252 - pytest imports tests by path
from .test_config import OFFICIAL


@pytest.mark.parametrize("name", ["cce", "baidu", "baiducloud"])
def test_the_official_arguments_configure_the_provider(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the official manager's example, but for its program."""
    kubeconfig, config = tmp_path / "kubeconfig", tmp_path / "cloud.config"
    kubeconfig.write_text(CLUSTER)
    config.write_text(json.dumps(OFFICIAL))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    args = [
        "--v=4", "--logtostderr=true", f"--cloud-config={config}", f"--cloud-provider={name}",
        f"--kubeconfig={kubeconfig}", "--allocate-node-cidrs=true", "--cluster-cidr=172.16.0.0/16",
        "--cluster-name=kubernetes", "--route-reconciliation-period=50s",
    ]  # fmt: skip
    options = command_line.parse(Options, args, "ccm", run.DESCRIPTION).options
    provider, _ = run._configured(options)
    assert isinstance(provider, BaiduCloud)
