"""For each rule about failures and the process: a copy of a good provider that breaks just it."""

import asyncio
import http.client
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import msgspec
import pytest
from yarl import URL

from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    Instance,
    InstanceAnswer,
    NotFound,
    Throttled,
)
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.requests import Request
from proreus.cloudprovider.rest import RestClient
from proreus.kube.objects import Node
from proreus.providers.simulated.api import Api
from proreus.providers.simulated.instances import SimulatedInstances
from proreus.testing.conformance import Status, Suite, process
from proreus.testing.conformance import failures as rules_of_failures

from .broken import Copy, copy, fails, failures
from .simulated_fixture import SimulatedFixture

if TYPE_CHECKING:
    from proreus.cloudprovider import Context

Answers = Mapping[str, InstanceAnswer]


class ErrorIsAbsence(SimulatedInstances):
    async def describe(self, nodes: Sequence[Node]) -> Answers:
        try:
            return await super().describe(nodes)
        except Refused as error:
            if error.status < 500:
                raise
            return {node.metadata.name: NotFound() for node in nodes}


class Any404IsAbsence(SimulatedInstances):
    async def describe(self, nodes: Sequence[Node]) -> Answers:
        try:
            return await super().describe(nodes)
        except Refused as error:
            if error.status != 404:
                raise
            return {node.metadata.name: NotFound() for node in nodes}


class WrapsThrottled(SimulatedInstances):
    async def describe(self, nodes: Sequence[Node]) -> Answers:
        try:
            return await super().describe(nodes)
        except Throttled as error:
            raise CloudError(f"cannot describe: {error}") from error


class Patient(SimulatedInstances):
    """First asks with an SDK that blocks and knows no time-out."""

    async def describe(self, nodes: Sequence[Node]) -> Answers:
        url = URL(self._api._rest._endpoint)

        def ask() -> None:
            connection = http.client.HTTPConnection(str(url.host), url.port)
            connection.request("GET", "/v1/instances")
            connection.getresponse().read()
            connection.close()

        try:
            await self._api._rest._context.call(
                "sdk", "ask", ask, read=True, deadline=0.1, blocking=True
            )
        except (CloudError, OSError, http.client.HTTPException):
            return await super().describe(nodes)
        return await super().describe(nodes)


class SwallowsCancellation(SimulatedInstances):
    async def describe(self, nodes: Sequence[Node]) -> Answers:
        try:
            return await super().describe(nodes)
        except asyncio.CancelledError:
            return {}


class Unlogged(SimulatedInstances):
    async def describe(self, nodes: Sequence[Node]) -> Answers:
        answers = await super().describe(nodes)
        client = self._api._rest
        async with client._session.get(f"{client._endpoint}/instances", ssl=client._tls or True):
            return answers


class DeletesAreReads(Api):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._rest.__class__ = _ReadingClient


class _ReadingClient(RestClient):
    async def find(self, request: Request, form: Any) -> Any:
        return await super().find(msgspec.structs.replace(request, read=True), form)


class LeavesATask(Copy):
    async def start(self, context: "Context") -> None:
        await super().start(context)
        self.task = asyncio.create_task(asyncio.sleep(3600))


BROKEN: dict[str, type] = {
    "errors-not-absence": ErrorIsAbsence,
    "odd-answers-not-absence": Any404IsAbsence,
    "throttled": WrapsThrottled,
    "black-hole": Patient,
    "cancelled": SwallowsCancellation,
    "calls-logged": Unlogged,
    "writes-declared": DeletesAreReads,
    "closes": LeavesATask,
}


def test_each_rule_has_a_broken_copy() -> None:
    rules = (*rules_of_failures.RULES, *process.RULES)
    assert set(BROKEN) == {rule.id for rule in rules}


@pytest.mark.parametrize("rule", BROKEN)
async def test_a_copy_that_breaks_a_rule_fails_it(rule: str) -> None:
    assert await fails(BROKEN[rule], rule)


@pytest.mark.long
@pytest.mark.parametrize("rule", BROKEN)
async def test_a_copy_that_breaks_one_rule_fails_no_other(rule: str) -> None:
    found = await failures(BROKEN[rule])
    assert list(found) == [rule], found


class WithoutEndpoint(SimulatedFixture):
    """A cloud that does not speak HTTP: only calls of the framework can be broken."""

    lacks = ("load_balancers", "routes", "endpoint")
    url = ""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.url, self.endpoint = self.endpoint, ""
        return self

    def provider(self, endpoint: str) -> CloudProvider:
        return super().provider(endpoint or self.url)


class PastTheFramework(SimulatedInstances):
    """Asks the cloud without `context.call`, and might take any error for absence."""

    async def describe(self, nodes: Sequence[Node]) -> Answers:
        names = [node.metadata.name for node in nodes]
        return {name: Instance(f"simulated://{name}") for name in names}


@pytest.mark.parametrize(
    ("part", "status"),
    [(SimulatedInstances, Status.HOLDS), (PastTheFramework, Status.NOT_OFFERED)],
)
async def test_a_rule_that_could_break_no_call_does_not_hold(part: type, status: Status) -> None:
    fixture = type("Fixture", (WithoutEndpoint,), {"provider_class": copy(part)})
    (found,) = await Suite(fixture).findings([rules_of_failures.errors_not_absence])
    assert found.status is status, found
