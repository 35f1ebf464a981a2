"""The suite itself: what it reports, how it ends, and what it makes of clouds that lack things."""

import asyncio
import os
import subprocess
import sys
import unittest
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from proreus.cloudprovider import (
    CloudProvider,
    ClusterIdentity,
    Instance,
    InstanceAnswer,
    LoadBalancerRef,
    NotSupported,
    OwnedObject,
    Ownership,
    per_node,
)
from proreus.kube.objects import Node, NodeAddress
from proreus.providers.simulated.instances import SimulatedInstances
from proreus.providers.simulated.load_balancers import SimulatedLoadBalancers
from proreus.testing.conformance import (
    RULES,
    CloudFixture,
    Conformance,
    NotOffered,
    Status,
    Suite,
)
from proreus.testing.conformance.__main__ import main
from proreus.testing.conformance.report import report

from .broken import Copy, copy, failures
from .simulated_fixture import SimulatedFixture

if TYPE_CHECKING:
    from proreus.cloudprovider import Context

HERE = Path(__file__).parent


class TestSimulatedCloud(Conformance):
    """The simulated provider keeps every rule."""

    fixture = SimulatedFixture


class InMemory(CloudProvider):
    """A cloud without HTTP, whose machines are a dict, and nothing else."""

    name = "memory"

    def __init__(self, machines: Mapping[str, str]) -> None:
        super().__init__(None)
        self._machines = machines

    async def start(self, context: "Context") -> None:
        async def by_id(name: str) -> InstanceAnswer:
            await context.call("machines", "get", lambda: None, read=True)
            found = (NodeAddress("InternalIP", self._machines[name]),)
            return Instance(f"memory://{name}", addresses=found)

        self.instances = per_node(
            by_id,
            lambda node: by_id(node.metadata.name),
            parse=lambda provider_id: provider_id.removeprefix("memory://"),
            owns=lambda _: Ownership.YES,
        )


class MemoryFixture(CloudFixture):
    def __init__(self) -> None:
        self._machines: dict[str, str] = {}

    def provider(self, endpoint: str) -> CloudProvider:
        return InMemory(self._machines)

    async def create_machines(self, names: Sequence[str]) -> None:
        for name in names:
            self._machines[name] = f"10.0.0.{len(self._machines) + 1}"


async def statuses(fixture: type[CloudFixture], *only: str) -> dict[str, Status]:
    rules = [one for one in RULES if not only or one.id in only]
    return {one.rule.id: one.status for one in await Suite(fixture).findings(rules)}


async def test_what_a_cloud_does_not_offer_is_not_a_failure() -> None:
    found = await statuses(MemoryFixture)
    assert found["machine-found"] is Status.HOLDS
    assert found["ensured"] is found["ensure-interrupted"] is Status.NOT_OFFERED
    assert found["routes-applied"] is Status.NOT_OFFERED
    assert found["absence-said"] is found["stopped"] is Status.NOT_OFFERED
    assert found["black-hole"] is found["calls-logged"] is Status.NOT_OFFERED
    assert found["errors-not-absence"] is Status.HOLDS


async def test_a_rule_that_builds_on_a_failing_one_is_not_tried() -> None:
    found = await statuses(MemoryFixture)
    assert found["owns"] is Status.FAILS
    assert found["foreign-nodes"] is Status.NOT_TRIED


async def test_load_balancers_alone_need_no_machines() -> None:
    class Alone(Copy):
        async def start(self, context: "Context") -> None:
            await super().start(context)
            self.instances = self.routes = None

    class Fixture(SimulatedFixture):
        provider_class = Alone

        async def create_machines(self, names: Sequence[str]) -> None:
            raise NotOffered("no machines here")

    found = await statuses(Fixture, "machine-found", "ensured", "update-hosts", "calls-logged")
    assert found.pop("machine-found") is Status.NOT_OFFERED
    assert found == dict.fromkeys(("ensured", "update-hosts", "calls-logged"), Status.HOLDS)


@pytest.mark.parametrize("raised", [KeyError("boom"), SystemExit(3), asyncio.InvalidStateError()])
async def test_whatever_a_provider_raises_is_a_finding_with_its_place(
    raised: BaseException,
) -> None:
    class Raises(SimulatedInstances):
        async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
            raise raised

    found = await failures(Raises)
    assert type(raised).__name__ in found["machine-found"]
    assert f"{__name__.rpartition('.')[2]}.py:" in found["machine-found"]


async def test_answers_of_a_wrong_type_are_named() -> None:
    class Wrong(SimulatedInstances):
        async def describe(self, nodes: Sequence[Node]) -> Any:
            return [NotOffered("a list")]

    assert "list instead of a mapping" in (await failures(Wrong))["machine-found"]


async def test_a_failure_shows_what_was_seen_and_what_to_do() -> None:
    text = report(await Suite(MemoryFixture).findings())
    assert "FAILS        owns" in text
    assert (
        "  seen: owns answered Ownership.YES for another-cloud://region/i-0123456789abcdef0, which is not its own"
        in text
    )
    assert "  next: Compare `node.spec.provider_id` with the form of your ids" in text
    assert text.splitlines()[-1].startswith(f"{text.count('holds  ')} holds, 1 FAILS, ")


def test_every_rule_has_a_claim_and_a_remedy() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.title, rule.id
        assert len(rule.remedy.split()) > 5, rule.id
        order = [one.id for one in RULES]
        assert all(order.index(one.id) < order.index(rule.id) for one in rule.needs), rule.id


def test_a_failing_rule_is_a_failing_test_and_what_is_not_offered_is_skipped(
    pytester_like: Path,
) -> None:
    module = (
        "from proreus.testing.conformance import Conformance\n"
        "from test_suite_fixture import MemoryFixture\n"
        "class TestMemory(Conformance):\n    fixture = MemoryFixture\n"
    )
    (pytester_like / "test_memory.py").write_text(module)
    ran = python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=pytester_like)
    assert ran.returncode == 1, ran.stdout
    assert "TestMemory::test_owns" in ran.stdout
    assert "next: Compare" in ran.stdout
    assert "1 failed" in ran.stdout
    assert "skipped" in ran.stdout


@pytest.mark.long
def test_what_the_fixture_leaves_out_has_no_test_and_is_reported(pytester_like: Path) -> None:
    module = (
        "from proreus.testing.conformance import Conformance\n"
        "from test_suite_fixture import MemoryFixture\n"
        "class Less(MemoryFixture):\n    lacks = {'endpoint', 'load_balancers', 'routes'}\n"
        "class TestMemory(Conformance):\n    fixture = Less\n"
    )
    (pytester_like / "test_memory.py").write_text(module)
    for options in ((), ("-n", "1")):
        command = ("-m", "pytest", "-v", "-rs", "-p", "no:cacheprovider", *options)
        ran = python(*command, cwd=pytester_like)
        assert "test_machine_found" in ran.stdout
        assert "test_ensured" not in ran.stdout
        assert "not offered: " not in ran.stdout
        said = "TestMemory: the cloud does not speak HTTP (odd-answers-not-absence, black-hole, "
        assert said in ran.stdout


async def test_lacking_what_is_there_fails_and_a_name_that_there_is_not_is_refused() -> None:
    class Lying(SimulatedFixture):
        lacks = ("routes", "endpoint", "batches", "list_owned", "groups")

    (rule,) = (one for one in RULES if one.id == "lacks-true")
    for what in Lying.lacks:
        fixture = type("Fixture", (Lying,), {"lacks": (what,)})
        found = await Suite(fixture).finding(rule)
        assert found.status is Status.FAILS
        assert found.seen == f"`lacks` names {what!r}, but it is offered"

    class Misspelled(SimulatedFixture):
        lacks = ("rotues",)

    with pytest.raises(ValueError, match=r"Misspelled\.lacks names rotues: it may name instances,"):
        Suite(Misspelled)


@pytest.mark.parametrize(
    ("lacks", "missing"),
    [("routes", "routes-applied"), ("list_owned", "marks-listed"), ("groups", "groups-beside")],
)
def test_what_only_a_try_shows_is_reported_with_what_to_write(lacks: str, missing: str) -> None:
    class Without(Copy):
        async def start(self, context: "Context") -> None:
            await super().start(context)
            self.routes = None

    class Quiet(SimulatedLoadBalancers):
        async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
            raise NotSupported("no tags here")

    class OneGroup(SimulatedLoadBalancers):
        def group(self, lb: LoadBalancerRef) -> str:
            return "all"

    part = {"routes": Without, "list_owned": Quiet, "groups": OneGroup}[lacks]

    class Fixture(SimulatedFixture):
        provider_class = copy(part)

    class Suited(Conformance):
        fixture = Fixture

    with pytest.raises(unittest.SkipTest, match=f"Name '{lacks}' in the fixture's `lacks`"):
        getattr(Suited(), f"test_{missing.replace('-', '_')}")()


@pytest.fixture
def pytester_like(tmp_path: Path) -> Path:
    """A directory with the fixture in a module of its own, as a provider author has it."""
    source = Path(__file__).read_text()
    start, end = source.index("class InMemory"), source.index("async def statuses")
    imports = (
        "from collections.abc import Mapping, Sequence\n"
        "from proreus.cloudprovider import *\n"
        "from proreus.kube.objects import Node, NodeAddress\n"
        "from proreus.testing.conformance import CloudFixture\n"
    )
    (tmp_path / "test_suite_fixture.py").write_text(imports + source[start:end])
    return tmp_path


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(HERE)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_the_report_exits_with_1_if_a_rule_fails(pytester_like: Path) -> None:
    ran = python(
        "-m", "proreus.testing.conformance", "test_suite_fixture:MemoryFixture", cwd=pytester_like
    )
    assert ran.returncode == 1
    assert "FAILS        owns" in ran.stdout


@pytest.mark.long
def test_the_report_exits_with_0_if_none_does(tmp_path: Path) -> None:
    (tmp_path / "empty_cloud.py").write_text(
        "from simulated_fixture import SimulatedFixture\n"
        "class Fixture(SimulatedFixture):\n    pass\n"
    )
    command = ("-m", "proreus.testing.conformance", "empty_cloud:Fixture")
    ran = python(*command, "machine-found", "ensured", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout
    assert ran.stdout.splitlines()[-1] == "2 holds"
    ran = python(*command, "machine-fond", cwd=tmp_path)
    assert ran.returncode == 2
    assert "there is no rule machine-fond; there are capabilities, " in ran.stderr


@pytest.mark.parametrize("name", ["nowhere:Fixture", "json:Fixture", "json", "json:__name__"])
def test_a_fixture_that_does_not_exist_is_named(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main([name]) == 2
    assert f"cannot load {name!r}" in capsys.readouterr().err


def test_a_session_left_open_is_found(tmp_path: Path) -> None:
    # In a process of its own, since other rules leave it open as well.
    (tmp_path / "leaky.py").write_text(
        "import socket\n"
        "from proreus.providers.simulated import SimulatedCloud\n"
        "from simulated_fixture import SimulatedFixture\n"
        "class Leaky(SimulatedCloud):\n"
        "    async def close(self):\n"
        "        await super().close()\n"
        "        self.left = socket.socket()\n"
        "class Fixture(SimulatedFixture):\n"
        "    provider_class = Leaky\n"
    )
    ran = python("-m", "proreus.testing.conformance", "leaky:Fixture", "closes", cwd=tmp_path)
    assert ran.returncode == 1
    assert "FAILS        closes" in ran.stdout
    assert "unclosed <socket.socket" in ran.stdout
    assert "1 FAILS" in ran.stdout
