"""Official manifests of OpenStack with only the image changed: the manager starts and leads."""

from pathlib import Path

import pytest

from proreus.testing.controlplane import ControlPlane

from ...apiserver.site import set_up  # noqa: TID252 - pytest imports tests by path
from ...apiserver.swap import every_start_leads  # noqa: TID252
from .wire import Wire


async def test_every_official_argument_list_starts_a_manager_that_leads(
    control_plane: ControlPlane, wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        await every_start_leads(site, "openstack", wire.config(), tmp_path, monkeypatch)
    assert any(said.startswith("team/a b cluster/abc-123 proreus") for said in wire.user_agents)
