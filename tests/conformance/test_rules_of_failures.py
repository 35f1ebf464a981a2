"""For each rule about failures and the process: a copy of a good provider that breaks just it."""

import asyncio
import http.client
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from yarl import URL

from proreus.cloudprovider import CloudError, InstanceAnswer, NotFound, Throttled
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.requests import Request
from proreus.cloudprovider.rest import RestClient
from proreus.kube.objects import Node
from proreus.providers.simulated.api import Api
from proreus.providers.simulated.instances import SimulatedInstances
from proreus.testing.conformance import failures as rules_of_failures
from proreus.testing.conformance import process

from .broken import Copy, fails, failures

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
