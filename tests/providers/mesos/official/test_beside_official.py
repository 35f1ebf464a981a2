"""The provider inside Kubernetes 1.5 and this one, on the same masters and the same ZooKeeper.

It has no manager that an API server of today takes; so its own methods are called, as the
controllers of its time did (`driver`).
"""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from proreus.cloudprovider.instances import Instance, InstanceState, NotFound, Ownership
from proreus.testing.waiting import until

from ...managers import build  # noqa: TID252 - pytest imports tests by path
from ..electorate import Electorate  # noqa: TID252
from ..emulator import Cluster  # noqa: TID252
from ..site import describe, node, one, started  # noqa: TID252
from ..world import Status  # noqa: TID252

pytestmark = pytest.mark.long

MODULE: Final = Path(__file__).parent / "driver"
LIBRARY: Final = "github.com/ugorji/go"
LONG: Final = 60.0
DNS: Final = "[Nodes]\naddresses = dns\n"
HOSTS: Final = ("127.0.0.5", "10.1.2.3", "localhost")


class Official:
    """The official provider, in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, verb: str, name: str = "-") -> dict[str, Any]:
        """Call one of its methods; the answer with its value, its error and whether it is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{verb} {name}\n".encode())
        async with asyncio.timeout(LONG):
            line = await self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def value(self, verb: str, name: str = "-") -> Any:
        answer = await self.ask(verb, name)
        assert not answer["error"], answer
        return answer["value"]


@asynccontextmanager
async def official(program: Path, config: str, directory: Path) -> AsyncIterator[Official]:
    """The official provider with a cloud-config without our sections."""
    file = directory / "official.conf"
    file.write_text(config)
    with (directory / "official.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(str(program), "-logtostderr", "-v=2", f"-cloud-config={file}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    try:
        yield Official(process)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        async with asyncio.timeout(LONG):
            await process.wait()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go") is None:
        pytest.skip("no Go on the PATH, which builds the official provider")
    directory = tmp_path_factory.mktemp("program")
    file = mended(directory)
    return asyncio.run(build(MODULE, directory, CGO_ENABLED="0", GOFLAGS=f"-modfile={file}"))


def mended(directory: Path) -> Path:
    """Mend a library of its time that panics with the Go of today; the file of the module.

    `encoding/base64` refuses an alphabet with a letter in it twice since 1.22; what is encoded with
    it, names in generated code, is not made here.
    """
    command = ("go", "mod", "download", "-json", LIBRARY)
    found = subprocess.run(command, cwd=MODULE, check=True, capture_output=True, text=True)
    copy = directory / "library"
    shutil.copytree(json.loads(found.stdout)["Dir"], copy, copy_function=shutil.copyfile)
    copy.chmod(0o755)
    (copy / "codec").chmod(0o755)
    source = copy / "codec" / "gen.go"
    text = source.read_text()
    assert text.count('0123456789__")') == 1
    source.write_text(text.replace('0123456789__")', '0123456789_-")'))
    (copy / "go.mod").write_text(f"module {LIBRARY}\n")
    file = directory / "go.mod"
    shutil.copyfile(MODULE / "go.sum", directory / "go.sum")
    file.write_text(f"{(MODULE / 'go.mod').read_text()}\nreplace {LIBRARY} => {copy}\n")
    return file


async def test_both_know_the_same_agents_and_give_the_same_addresses(
    mesos: Cluster, program: Path, tmp_path: Path
) -> None:
    for host in HOSTS:
        mesos.world.add(host)
    mesos.world.on("localhost").has_kubelet = True
    config = mesos.config()
    async with (
        official(program, config, tmp_path) as theirs,
        started(mesos.config(sections=DNS)) as ours,
    ):
        assert sorted(await theirs.value("list", ".*")) == sorted(HOSTS)
        assert sorted(await theirs.value("idle")) == sorted(HOSTS[:2])
        found = await describe(ours, *(node(host) for host in HOSTS), node("missing"))
        for host in HOSTS:
            mine = found[host]
            assert isinstance(mine, Instance)
            known = [(at["type"], at["address"]) for at in await theirs.value("addresses", host)]
            # The API has no LegacyHostIP any more.
            legacy, *rest = known
            assert legacy[0] == "LegacyHostIP"
            assert rest == [(at.type, at.address) for at in mine.addresses]
            assert await theirs.value("external", host) == mine.addresses[0].address
        assert found["missing"] == NotFound()
        assert (await theirs.ask("external", "missing"))["gone"]


async def test_the_official_provider_id_names_no_machine(
    mesos: Cluster, program: Path, tmp_path: Path
) -> None:
    mesos.world.add("127.0.0.5")
    async with (
        official(program, mesos.config(), tmp_path) as theirs,
        started(mesos.config()) as ours,
    ):
        id_ = await theirs.value("provider", "127.0.0.5")
        assert id_ == "mesos://"
        assert ours.instances is not None
        assert ours.instances.owns(node("127.0.0.5", id_)) is Ownership.NO


async def test_what_is_unreachable_only_the_official_one_takes_for_gone(
    mesos: Cluster, program: Path, tmp_path: Path
) -> None:
    agent = mesos.world.add("127.0.0.5")
    agent.status = Status.UNREACHABLE
    async with (
        official(program, mesos.config(), tmp_path) as theirs,
        started(mesos.config()) as ours,
    ):
        assert (await theirs.ask("external", "127.0.0.5"))["gone"]
        mine = await one(ours, node("127.0.0.5", agent))
    assert isinstance(mine, Instance)
    assert mine.state is InstanceState.UNKNOWN


@pytest.mark.parametrize("name", ["", "production"])
@pytest.mark.parametrize("leader", [0, 2])
async def test_both_name_the_same_cluster_and_master(
    mesos: Cluster, program: Path, tmp_path: Path, name: str, leader: int
) -> None:
    mesos.elect(leader)
    mesos.world.cluster = name
    async with (
        official(program, mesos.config(), tmp_path) as theirs,
        started(mesos.config()) as ours,
    ):
        assert ours.clusters is not None
        known = await theirs.value("clusters")
        assert list(await ours.clusters.list()) == known == [name or "mesos"]
        assert await ours.clusters.master(known[0]) == await theirs.value("master", known[0])
        assert (await theirs.ask("master", "other"))["error"]


async def test_both_follow_the_leader_that_a_real_zookeeper_names(
    mesos: Cluster, electorate: Electorate, program: Path, tmp_path: Path
) -> None:
    mesos.world.add("127.0.0.5")
    for number in range(2):
        await electorate.join(number)
    config = mesos.config(master=electorate.url)
    async with official(program, config, tmp_path) as theirs, started(config) as ours:
        assert await theirs.value("list", ".*") == ["127.0.0.5"]
        assert isinstance(await one(ours, node("127.0.0.5")), Instance)
        await electorate.leave(0)
        await mesos.masters[0].stop()
        mesos.elect(1)
        mesos.world.add("127.0.0.6")
        assert isinstance(await one(ours, node("127.0.0.6")), Instance)

        async def is_listed() -> bool:
            answer = await theirs.ask("list", "127.0.0.6")
            return bool(answer["value"] == ["127.0.0.6"])

        await until("the official one has found the new leader", is_listed, LONG)
