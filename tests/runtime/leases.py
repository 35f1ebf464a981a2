"""A lease store with the API server's rules, behind a network that loses, delays and hangs."""

import asyncio
import copy
import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any

from proreus.kube.errors import AlreadyExists, Conflict, NotFound, Unreachable

Lease = dict[str, Any]


class LeaseStore:
    """One lease; every write must carry the version that is there."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.writes = 0
        self._versions = itertools.count(1)

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    def get(self) -> Lease:
        if self.lease is None:
            raise NotFound(404, "there is no lease")
        return copy.deepcopy(self.lease)

    def create(self, body: Mapping[str, Any]) -> Lease:
        if self.lease is not None:
            raise AlreadyExists(409, "there is a lease")
        return self._store(body)

    def replace(self, body: Mapping[str, Any]) -> Lease:
        if self.lease is None:
            raise NotFound(404, "there is no lease")
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict(409, "written meanwhile")
        return self._store(body)

    def _store(self, body: Mapping[str, Any]) -> Lease:
        self.writes += 1
        self.lease = copy.deepcopy(dict(body))
        self.lease["metadata"]["resourceVersion"] = str(next(self._versions))
        return self.get()


class Network:
    """A client of the store. `loss` is the chance that a request or its answer is lost.

    A request takes up to `delay` seconds each way, and goes on after its sender has given up.
    """

    def __init__(
        self, store: LeaseStore, *, loss: float = 0.0, delay: float = 0.0, seed: int = 0
    ) -> None:
        self.store = store
        self.loss = loss
        self.delay = delay
        self.hanging = False
        self.calls: list[str] = []
        self._random = random.Random(seed)  # noqa: S311 - a test must be repeatable
        self._underway: set[asyncio.Task[None]] = set()

    async def get_lease(self, namespace: str, name: str) -> Lease:
        return await self._call("get", self.store.get)

    async def create_lease(self, namespace: str, body: Mapping[str, Any]) -> Lease:
        return await self._call("create", lambda: self.store.create(body))

    async def replace_lease(self, namespace: str, name: str, body: Mapping[str, Any]) -> Lease:
        return await self._call("replace", lambda: self.store.replace(body))

    async def _call(self, verb: str, serve: Callable[[], Lease]) -> Lease:
        self.calls.append(verb)
        if self.hanging:
            await asyncio.Event().wait()
        answer: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._carry(serve, answer))
        self._underway.add(task)
        task.add_done_callback(self._underway.discard)
        return await answer

    async def _carry(self, serve: Callable[[], Lease], answer: asyncio.Future[Lease]) -> None:
        await asyncio.sleep(self.delay * self._random.random())
        if self._random.random() < self.loss:
            self._fail(answer, Unreachable("the request was lost", sent=True))
            return
        try:
            lease = serve()
        except (NotFound, AlreadyExists, Conflict) as exc:
            self._fail(answer, exc)
            return
        await asyncio.sleep(self.delay * self._random.random())
        if self._random.random() < self.loss:
            self._fail(answer, Unreachable("the answer was lost", sent=True))
        elif not answer.done():
            answer.set_result(lease)

    @staticmethod
    def _fail(answer: asyncio.Future[Lease], exc: Exception) -> None:
        if not answer.done():
            answer.set_exception(exc)
