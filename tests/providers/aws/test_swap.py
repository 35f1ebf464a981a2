"""Official manifests of AWS with only the image changed: the manager starts and leads."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from proreus.testing.controlplane import ControlPlane

from ...apiserver.site import set_up  # noqa: TID252 - pytest imports tests by path
from ...apiserver.swap import every_one_leads, of  # noqa: TID252
from ...official_manifests import Start  # noqa: TID252
from .site import Network
from .strict.process import REGION, StrictAWS


@pytest.mark.parametrize("starts", of("aws"))
async def test_official_argument_lists_start_managers_that_lead(
    starts: Sequence[Start],
    control_plane: ControlPlane,
    aws: StrictAWS,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (id_,) = Network(aws).run()
    aws.control("imds", {"placement/region": REGION, "instance-id": id_})
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws.endpoint)
    async with set_up(control_plane, tmp_path) as site:
        await every_one_leads(starts, site, "[Global]\n", tmp_path, monkeypatch)
