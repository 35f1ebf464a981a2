"""Official manifests of AWS with only the image changed: the manager starts and leads."""

from pathlib import Path

import pytest

from proreus.testing.controlplane import ControlPlane

from ...apiserver.site import set_up  # noqa: TID252 - pytest imports tests by path
from ...apiserver.swap import every_start_leads  # noqa: TID252
from .site import Network
from .strict.process import REGION, StrictAWS


async def test_every_official_argument_list_starts_a_manager_that_leads(
    control_plane: ControlPlane, aws: StrictAWS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (id_,) = Network(aws).run()
    aws.control("imds", {"placement/region": REGION, "instance-id": id_})
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws.endpoint)
    async with set_up(control_plane, tmp_path) as site:
        await every_start_leads(site, "aws", "[Global]\n", tmp_path, monkeypatch)
