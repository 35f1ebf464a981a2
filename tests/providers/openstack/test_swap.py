"""Official manifests of OpenStack with only the image changed: the manager starts and leads."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from proreus.testing.controlplane import ControlPlane

from ...apiserver.site import set_up  # noqa: TID252 - pytest imports tests by path
from ...apiserver.swap import every_one_leads, of  # noqa: TID252
from ...official_manifests import Start  # noqa: TID252
from .wire import Wire


@pytest.mark.parametrize("starts", of("openstack"))
async def test_official_argument_lists_start_managers_that_lead(
    starts: Sequence[Start],
    control_plane: ControlPlane,
    wire: Wire,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        await every_one_leads(starts, site, wire.config(), tmp_path, monkeypatch)
    given = [arg for start in starts for arg in start.args if "user-agent" in arg]
    assert not given or any("team/a b cluster/abc-123 proreus" in one for one in wire.user_agents)
