"""The demo's console says what it cannot do; what it can is tried by tests/docs."""

import asyncio
from pathlib import Path

import pytest

from proreus.testing.demo import console
from proreus.testing.simulated import SimulatedCloudProcess


def test_without_the_demo_it_prints_what_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(console.CLOUD_VARIABLE, raising=False)

    assert console.main(["machines"]) == 1
    assert "DEMO_CLOUD is not set" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["kind: Pod\n", "- kind: Node\n", "kind: [Node]\n", "a: [\n"])
def test_what_is_no_node_and_no_service_is_refused_before_anything_is_made(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(f"kind: Service\n---\n{text}")

    assert console.main(["apply", str(file)]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"console: {file}: ")
    assert said.out == ""


async def test_a_machine_is_launched_once_and_only_what_is_there_is_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with SimulatedCloudProcess() as cloud:
        monkeypatch.setenv(console.CLOUD_VARIABLE, cloud.endpoint)
        commands = (["launch", "a"], ["launch", "b"], ["launch", "a"], ["stop", "a", "c"])
        codes = [await told(*one) for one in commands]
        there = {one.name: one for one in await cloud.admin.instances()}
        addresses = {one.addresses[0].address for one in there.values()}
        capsys.readouterr()
        await told("machines")

    assert codes == [0, 0, 1, 1]
    assert {name: one.state for name, one in there.items()} == {"a": "running", "b": "running"}
    assert len(addresses) == 2
    assert there["a"].id in capsys.readouterr().out


async def told(*arguments: str) -> int:
    """Run it in a thread: it has an event loop of its own."""
    return await asyncio.to_thread(console.main, list(arguments))
