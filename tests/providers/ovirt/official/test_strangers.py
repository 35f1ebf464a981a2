"""The emulated engine is spoken to by clients that are not ours, and ours does what they do."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from proreus.cloudprovider.instances import Instance, InstanceState

from ..emulator import wire  # noqa: TID252 - pytest imports tests by path
from ..emulator.server import Engine  # noqa: TID252
from ..emulator.world import Device, Nic  # noqa: TID252
from ..site import describe, node, started  # noqa: TID252
from .programs import Strangers, told

pytestmark = pytest.mark.long


def fill(engine: Engine) -> dict[str, str]:
    """Machines of all sorts, by name."""
    world = engine.world
    nics = [Nic(f"0000000{n}-0000-4000-8000-00000000000{n}", f"nic{n}", f"56:6f:00:00:01:0{n}")
            for n in (1, 2)]  # fmt: skip
    devices = [
        Device("eth0", nics[0].mac, ["10.9.0.1", "fd00::1"]),
        Device("eth1", nics[1].mac, ["192.0.2.7"]),
        Device("docker0", "02:42:00:00:00:01", ["172.17.0.1"]),
    ]
    ids = world.add_vms(["plain"], fqdn="plain.example.org", tags=["kubernetes"])
    ids += world.add_vms(
        ["several"], nics=nics, devices=devices, tags=["kubernetes"],
        instance_type=world.type_called("Medium"),
    )  # fmt: skip
    ids += world.add_vms(["off", "silent"], tags=["kubernetes"])
    world.stop(ids[2])
    world.vms[ids[3]].devices = []
    world.add_vms(["desktop"], tags=["desktops"])
    return dict(zip(("plain", "several", "off", "silent"), ids, strict=True))


def picture(element: ET.Element) -> Any:
    """A document without links, blanks and the order of elements.

    Of a link the SDK makes the element that it leads to, with nothing in it but the address.
    """
    children = [picture(one) for one in element if "id" in one.attrib or len(one) or one.text]
    id_ = element.get("id", "")
    address = element.get("href", "") if id_ else ""
    return element.tag, id_, address, (element.text or "").strip(), sorted(children)


@pytest.mark.parametrize("follow", ["", "nics,reported_devices", "nics.reported_devices"])
async def test_what_the_engine_writes_the_sdk_reads_and_writes_alike(
    engine: Engine, follow: str
) -> None:
    """So there is nothing in it that is not in the model of the API."""
    fill(engine)
    document = wire.vms(engine.world, engine.world.vms.values(), follow)
    written = await told("rewrite", document=ET.tostring(document))
    assert picture(ET.fromstring(written)) == picture(document)  # noqa: S314 - of our own


async def test_the_sdk_for_python_finds_what_the_provider_finds(engine: Engine) -> None:
    engine.restricted = False
    ids = fill(engine)
    login = (engine.url, engine.username, engine.password)
    found = json.loads(await told("list", *login, "tag=kubernetes sortby name asc page 1"))
    assert engine.tokens == {}
    theirs = {one["id"]: one for one in found}
    assert theirs.keys() == set(ids.values())
    async with started(engine) as provider:
        ours = await describe(provider, *(node(name, f"ovirt:///{i}") for name, i in ids.items()))
    for name, id_ in ids.items():
        one, mine = theirs[id_], ours[name]
        if not one["ips"] and one["is_up"]:
            assert not isinstance(mine, Instance)
            continue
        assert isinstance(mine, Instance)
        assert (one["cluster"], one["data_center"]) == (mine.zone, mine.region)
        assert one["instance_type"] == mine.instance_type
        assert one["name"] == mine.name
        assert {at.address for at in mine.addresses} <= set(one["ips"])
        assert one["is_up"] == (mine.state is InstanceState.RUNNING)


async def test_the_sdk_for_python_is_told_errors_as_an_engine_tells_them(engine: Engine) -> None:
    engine.restricted = False
    fill(engine)
    said = json.loads(await told("refused", engine.url, engine.username, engine.password))
    assert said[0].startswith("NotFoundError")
    assert "404" in said[0]
    assert "Problem following" in said[1]


async def test_the_go_sdk_and_the_provider_of_old_kubernetes_find_what_ours_finds(
    engine: Engine, tmp_path: Path
) -> None:
    engine.restricted = False
    ids = fill(engine)
    file = tmp_path / "ovirt.conf"
    filters = "[filters]\nvms = tag=kubernetes\n"
    # It reads version 3 of the API, which is no more since oVirt 4.
    old = engine.config(sections=filters, url=f"{engine.url}/v3")
    file.write_text(old)
    async with (
        Strangers(tmp_path) as strangers,
        started(engine, text=f"{old}\n[addresses]\norder = in-tree\n") as provider,
    ):
        login = (engine.url, engine.username, engine.password)
        found = await strangers.do("list", *login, "tag=kubernetes")
        assert {one["id"] for one in found["machines"]} == set(ids.values())
        several = next(one for one in found["machines"] if one["name"] == "several")
        assert several["ips"] == ["10.9.0.1", "fd00::1", "192.0.2.7", "172.17.0.1"]
        for name in ("plain.example.org", "several"):
            theirs = await strangers.do("node", str(file), name)
            mine = (await describe(provider, node(name)))[name]
            assert isinstance(mine, Instance)
            assert theirs["id"] == mine.provider_id
            assert theirs["addresses"] == [f"{at.type} {at.address}" for at in mine.addresses]
        # It forgets a machine that is off, and has nothing for one outside of the search.
        for name in ("off", "desktop"):
            assert "cannot find instance" in (await strangers.do("node", str(file), name))["error"]
        off = (await describe(provider, node("off", f"ovirt:///{ids['off']}")))["off"]
        assert isinstance(off, Instance)
        assert off.state is InstanceState.STOPPED
