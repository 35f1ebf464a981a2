"""What a finding says to do next: of the rule, of the fixture, or of the credentials."""

import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import pytest

from proreus.cloudprovider import CloudProvider, InstanceAnswer, Unauthenticated
from proreus.kube.objects import Node
from proreus.providers.simulated.instances import SimulatedInstances
from proreus.testing.conformance import RULES, CloudFixture, Finding, Status, Suite
from proreus.testing.conformance.__main__ import main

from .broken import copy
from .simulated_fixture import SimulatedFixture

RULE = {rule.id: rule for rule in RULES}


async def finding(fixture: type[CloudFixture], rule: str) -> Finding:
    found = await Suite(fixture).finding(RULE[rule])
    assert found.status is Status.FAILS, found
    return found


def place(method: object, text: str) -> str:
    """Where that text is in the method."""
    assert callable(method)
    lines, first = inspect.getsourcelines(method)
    at = next(number for number, line in enumerate(lines) if text in line)
    return f"{Path(__file__)}:{first + at}"


@pytest.mark.parametrize(
    "rule",
    ["ensure-interrupted", "ensure-interrupted-then-delete", "delete-interrupted", "failure-told"],
)
def test_a_cloud_that_is_still_working_is_answered_with_pending(rule: str) -> None:
    said = "If the cloud refuses because it is still working on it, answer `Pending`."
    assert said in RULE[rule].remedy


class MisspelledProvider(SimulatedFixture):
    def provider(self, endpoint: str) -> CloudProvider:
        return self.no_such_class(endpoint)  # type: ignore[attr-defined,no-any-return] # on purpose


class MachinesFail(SimulatedFixture):
    async def create_machines(self, names: Sequence[str]) -> None:
        int("three")


class DoesNotStart(SimulatedFixture):
    async def __aenter__(self) -> Self:
        raise ConnectionError("the cloud is not there")


class CannotBeMade(SimulatedFixture):
    def __init__(self) -> None:
        raise KeyError("CLOUD_IMAGE")


class ReadsAFile(SimulatedFixture):
    """Raises in what it calls: the place is its own."""

    def provider(self, endpoint: str) -> CloudProvider:
        Path("/nowhere/token").read_text()
        return super().provider(endpoint)


@pytest.mark.parametrize(
    ("fixture", "rule", "method", "text"),
    [
        (MisspelledProvider, "capabilities", MisspelledProvider.provider, "no_such_class"),
        (MachinesFail, "machine-found", MachinesFail.create_machines, "three"),
        (DoesNotStart, "capabilities", DoesNotStart.__aenter__, "raise"),
        (CannotBeMade, "capabilities", CannotBeMade.__init__, "raise"),
        (ReadsAFile, "capabilities", ReadsAFile.provider, "nowhere"),
    ],
)
async def test_a_fixture_that_raises_is_to_be_mended_where_it_does(
    fixture: type[CloudFixture], rule: str, method: object, text: str
) -> None:
    found = await finding(fixture, rule)
    assert f"next: Mend the fixture at {place(method, text)}" in str(found)
    assert RULE[rule].remedy not in str(found)


class Unwritten(CloudFixture):
    """Lacks `provider`."""


async def test_a_fixture_without_provider_is_to_be_mended_at_its_class() -> None:
    found = await finding(Unwritten, "capabilities")
    assert found.remedy == f"Mend the fixture at {place(Unwritten, 'class Unwritten')}"


class RaisesInTheProvider(CloudProvider):
    name = "raises"

    def __init__(self) -> None:
        raise ValueError("not the fixture's doing")


class OfARaisingProvider(SimulatedFixture):
    def provider(self, endpoint: str) -> CloudProvider:
        return RaisesInTheProvider()


async def test_a_provider_that_raises_is_not_put_on_the_fixture() -> None:
    found = await finding(OfARaisingProvider, "capabilities")
    assert f"next: {RULE['capabilities'].remedy}" in str(found)


class AnswersUnauthenticated(SimulatedInstances):
    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        return {node.metadata.name: Unauthenticated("401") for node in nodes}


class RaisesUnauthenticated(SimulatedInstances):
    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        raise Unauthenticated("401")


@pytest.mark.parametrize("part", [AnswersUnauthenticated, RaisesUnauthenticated])
async def test_credentials_that_are_refused_are_to_be_checked(part: type) -> None:
    fixture = type("Fixture", (SimulatedFixture,), {"provider_class": copy(part)})
    found = await finding(fixture, "machine-found")
    assert (
        "next: Correct the credentials that the fixture's `provider()` gives to the provider"
        in str(found)
    )


@pytest.mark.parametrize(
    "name",
    [
        "tests/conformance/test_suite.py:SimulatedFixture",
        "./tests/conformance/test_suite.py:SimulatedFixture",
        "tests.conformance.test_suite.py:SimulatedFixture",
        "tests.no_such_module:Fixture",
        "no_such_package.tests:Fixture",
        "tests.conformance.test_suite",
    ],
)
def test_a_path_or_a_wrong_directory_is_distinguished_from_a_module(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    assert main([name]) == 2
    said = "run the command in the package's directory; write the module with dots and without .py, such as"
    assert f"{said} tests.test_conformance:Cloud" in capsys.readouterr().err


def test_a_module_that_lacks_something_gets_no_hint_where_to_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "lacks_something.py").write_text("import no_such_sdk\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    assert main(["lacks_something:Cloud"]) == 2
    said = capsys.readouterr().err
    assert "no_such_sdk" in said
    assert "package's directory" not in said


@pytest.mark.parametrize("name", ["Conformance", "RULES", "Status"])
def test_what_is_no_fixture_is_refused_with_what_to_pass(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    assert main([f"proreus.testing.conformance:{name}"]) == 2
    said = f"{name} is not a subclass of CloudFixture; pass the subclass of CloudFixture, the one that the test"
    assert said in capsys.readouterr().err
