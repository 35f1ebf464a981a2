"""A gateway's place among others: what runs in it goes on after failures, and ends with it."""

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from proreus.app import readonly
from proreus.cloudprovider import Ensured
from proreus.cloudprovider.board import Notice
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.providers.local import LocalCloud
from proreus.providers.local.config import Gateway, LocalConfig, PoolConfig, Vrrp
from proreus.providers.local.gateways.keepalived import PATIENCE, missing
from proreus.providers.local.gateways.plan import HANDICAP
from proreus.providers.local.gateways.room import Room
from proreus.providers.local.load_balancers import LocalLoadBalancers
from proreus.testing import objects
from proreus.testing.waiting import until

from .local_namespace import own_namespace
from .local_site import CLUSTER, Objects, context, node

if missing():
    pytest.skip(f"missing: {', '.join(missing())}", allow_module_level=True)

GATEWAY = Gateway(interfaces=("here",), vrrp=Vrrp(enabled=True))
STUBBORN = """#!/bin/sh
trap '' TERM
test "$1" = child || "$0" child &
while true; do sleep 1; done
"""
SLOW = """#!/bin/sh
trap 'trap "" TERM; sleep 0.8; touch {done}; exit 0' TERM
touch {ready}
while true; do sleep 0.05; done
"""


@pytest.fixture(autouse=True)
def _namespace() -> Iterator[None]:
    with own_namespace():
        yield


def programs_here(*names: str) -> list[str]:
    """The programs of these names in this network namespace."""
    mine, found = Path("/proc/thread-self/ns/net").readlink(), []
    for one in Path("/proc").iterdir():
        try:
            if one.name.isdecimal() and (one / "ns/net").readlink() == mine:
                found.append((one / "comm").read_text().strip())
        except OSError:  # it has just ended
            continue
    return [name for name in found if name in names]


def in_the_place_of_keepalived(script: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = place / "keepalived"
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")


def announces_nothing() -> None:
    command = ["ip", "neigh", "flush", "proxy", "protocol", "202"]
    subprocess.run(command, capture_output=True, check=True)


class Board:
    """A board that fails once in a way that nobody foresaw."""

    def __init__(self) -> None:
        self.posted: dict[str, str] = {}
        self.failures = 1
        self.news = asyncio.Event()

    async def post(self, name: str, text: str) -> None:
        if self.failures:
            self.failures -= 1
            raise ValueError("unforeseen")
        self.posted[name] = text

    def notices(self) -> Mapping[str, Notice]:
        return {name: Notice(text, 0.0) for name, text in self.posted.items()}

    async def changed(self) -> None:
        await self.news.wait()
        self.news.clear()


async def test_a_gateway_goes_on_writing_notes_after_an_unforeseen_failure() -> None:
    """The others took it for dead, and nothing said why."""
    room, board = Room(GATEWAY, "gateway"), Board()
    room.meet(board)
    try:
        await until("a note is there", lambda: "gateway" in board.posted)
        assert not board.failures
    finally:
        await room.close()


async def test_two_gateways_of_one_name_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    room, board = Room(GATEWAY, "gateway"), Board()
    board.failures = 0
    room.meet(board)
    try:
        await until("ours is there", lambda: "gateway" in board.posted)
        for number in range(1, 7):
            board.posted["gateway"] = f'{{"number": {number}, "by": "another"}}'
            board.news.set()
            await asyncio.sleep(0.3)
        told = [one for one in caplog.records if "gateway's name, gateway" in one.getMessage()]
        assert [one.levelno for one in told] == [logging.ERROR]
        assert "gateway vrrp name" in told[0].getMessage()
    finally:
        await room.close()


async def test_a_command_that_only_reads_takes_no_part() -> None:
    """Such as `proreus plan` beside a manager that is away: it ran a keepalived of its own."""
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    config = LocalConfig(pools={"default": PoolConfig(addresses=("10.9.255.0/24",))})
    before = LocalLoadBalancers(context(), config)
    await before.start()
    service = objects.service("web", uid="uid-of-web")
    policy = before.host_policy(service)
    lb = desired_load_balancer(service, [node("one", "10.9.0.11")], policy, CLUSTER)
    assert isinstance((await before.ensure([lb]))[lb.ref.uid], Ensured)
    await before.close()
    announces_nothing()  # which would be refused before
    cloud = LocalCloud(msgspec.structs.replace(config, gateway=GATEWAY))
    listers = {"services": Objects(), "nodes": Objects()}
    async with readonly.started(cloud, CLUSTER, listers, flags={}) as started:
        assert started.load_balancers is not None
        assert len(await started.load_balancers.list_owned(CLUSTER)) == 1
        await asyncio.sleep(1.5)
        assert programs_here("keepalived") == []


OTHER_MANAGER = """
import asyncio
from proreus.providers.local.config import Gateway, Vrrp
from proreus.providers.local.gateways.room import Room

async def main():
    Room(Gateway(interfaces=("here",), vrrp=Vrrp(enabled=True)), "other").open()
    print("open", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.long
async def test_a_second_manager_on_a_machine_says_which_one_is_in_its_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It waited without a word."""
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OTHER_MANAGER, stdout=asyncio.subprocess.PIPE
    )
    room = Room(GATEWAY, "gateway")
    try:
        assert other.stdout is not None
        assert await other.stdout.readline() == b"open\n"
        await until("its keepalived runs", lambda: programs_here("keepalived"))
        room.open()
        await until("it is told", room.obstacles)
        (problem,) = room.obstacles()
        assert f"the process {other.pid} (" in problem
        assert "let only one manager with vrrp run on a machine" in problem
        await asyncio.sleep(2 * PATIENCE)
        assert [one.levelno for one in caplog.records if "VRRP waits" in one.message] == [
            logging.ERROR
        ]
        other.kill()
        await other.wait()
        await until("nothing is in its way", lambda: not room.obstacles())
        await until("its own runs", lambda: programs_here("keepalived"))
    finally:
        if other.returncode is None:
            other.kill()
        await room.close()


@pytest.mark.long
async def test_a_change_of_the_cloud_config_is_no_second_manager() -> None:
    old, new = Room(GATEWAY, "gateway"), Room(GATEWAY, "gateway")
    old.open()
    await until("the old one runs", lambda: programs_here("keepalived"))
    new.open()
    await asyncio.sleep(PATIENCE + 1.0)
    assert new.obstacles() == ()
    await old.close()
    await until("the new one runs", lambda: programs_here("keepalived"))
    await new.close()


def removed_after_a_second(place: Path, config: Path) -> None:
    """Remove what is older than a second, as systemd's timer does after ten days in /tmp."""
    config.write_text(f"d {place} 0755 root root 1s\n")
    subprocess.run(["systemd-tmpfiles", "--clean", str(config)], check=True)


@pytest.mark.skipif(not shutil.which("systemd-tmpfiles"), reason="systemd-tmpfiles is missing")
async def test_files_of_keepalived_stay_however_old_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the farewell a gateway whose manager is killed after ten days goes on answering."""
    place = tmp_path / "tmp"
    (place / "old").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    room = Room(GATEWAY, "gateway")
    room.open()
    try:
        await until("it runs", lambda: [*place.glob("*/main.pid")])
        before = {*place.glob("proreus-keepalived-*/*")}
        assert {one.name for one in before} >= {"farewell", "handicap", "keepalived.conf"}
        await asyncio.sleep(2.5)
        await asyncio.to_thread(removed_after_a_second, place, tmp_path / "tmpfiles.conf")
        assert not (place / "old").exists()
        assert {*place.glob("proreus-keepalived-*/*")} >= before
    finally:
        await room.close()
    assert [*place.iterdir()] == []


async def test_a_gateway_goes_on_although_its_keepalived_cannot_be_told_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As with a full disk: it gave no results of health checks to the kernel, nor wrote notes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    room, board = Room(GATEWAY, "gateway"), Board()
    board.failures = 0
    room.open()
    try:
        await until("it runs", lambda: [*tmp_path.glob("*/main.pid")])
        (place,) = tmp_path.glob("proreus-keepalived-*")
        place.rename(tmp_path / "elsewhere")
        room.weigh(is_fit=False)
        assert "keepalived could not be told" in caplog.text
        board.posted["other"] = '{"number": 1}'
        room.meet(board)
        await until("a note is there", lambda: "gateway" in board.posted)
        (tmp_path / "elsewhere").rename(place)
        await until("it is told", lambda: (place / "handicap").read_text() == f"{HANDICAP}\n")
        await until("of others, too", (place / "others").exists)
    finally:
        await room.close()


@pytest.mark.parametrize("turns", range(8))
async def test_nothing_of_keepalived_is_left_however_early_a_room_is_closed(turns: int) -> None:
    room = Room(GATEWAY, "gateway")
    room.open()
    for _ in range(turns):
        await asyncio.sleep(0)
    await room.close()
    assert programs_here("keepalived", "setpriv") == []


@pytest.mark.parametrize("seconds", [0.05, 2.0], ids=["starting", "running"])
async def test_nothing_of_keepalived_is_left_once_a_room_is_closed(seconds: float) -> None:
    room = Room(GATEWAY, "gateway")
    room.open()
    await asyncio.sleep(seconds)
    await room.close()
    assert programs_here("keepalived", "setpriv") == []


async def test_a_room_waits_until_keepalived_has_taken_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the one who closes it is cancelled; keepalived tells the others meanwhile."""
    done, ready = tmp_path / "done", tmp_path / "ready"
    in_the_place_of_keepalived(SLOW.format(done=done, ready=ready), tmp_path, monkeypatch)
    room = Room(GATEWAY, "gateway")
    room.open()
    await until("it runs", ready.exists)
    closing = asyncio.create_task(room.close())
    await asyncio.sleep(0.3)
    closing.cancel()
    await room.close()
    await until("it has taken leave", done.exists)
    await until("it has ended", lambda: not programs_here("keepalived"))


async def test_a_keepalived_that_does_not_end_is_killed_with_its_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    in_the_place_of_keepalived(STUBBORN, tmp_path, monkeypatch)
    room = Room(GATEWAY, "gateway")
    room.open()
    await until("both run", lambda: programs_here("keepalived") == ["keepalived"] * 2)
    await asyncio.sleep(0.3)
    await room.close()
    await until("they are gone", lambda: programs_here("keepalived") == [])
    assert "keepalived did not end and is killed" in caplog.text
