"""One manager of `openstack` and `local`: bare metal beside servers."""

from pathlib import Path

from aiohttp import web

from proreus.testing.controlplane import ControlPlane

from ...apiserver.site import set_up  # noqa: TID252 - pytest imports tests by path
from ..bare_metal import Cloud, lives_beside_bare_metal  # noqa: TID252
from .wire import Wire

ASKED = ("server_list", "server_get")


async def test_bare_metal_lives_beside_servers_whatever_nova_does(
    control_plane: ControlPlane, wire: Wire, tmp_path: Path
) -> None:
    names = ("s1", "s2", "s3")
    ids = {name: wire.add(number, name) for number, name in enumerate(names)}

    def leave(name: str) -> None:
        del wire.servers[ids[name]]

    def fail() -> None:
        for operation in ASKED:
            wire.fail(operation, *(web.Response(status=503) for _ in range(1000)))

    def recover() -> None:
        wire.failures.clear()

    cloud = Cloud("openstack", wire.config(), ids, "openstack://", leave, fail, recover)
    async with set_up(control_plane, tmp_path) as site:
        await lives_beside_bare_metal(site, cloud, tmp_path)
