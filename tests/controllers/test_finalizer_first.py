"""The cloud is asked for a load balancer only once the finalizer keeps the Service that wants it.

Else a manager that ends during the call would leave what it made to nobody.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from proreus.cloudprovider import (
    Done,
    Ensured,
    LoadBalancer,
    LoadBalancerRef,
)
from proreus.kube.objects import FINALIZER_LOAD_BALANCER, LoadBalancerIngress
from proreus.kube.requests import SERVICES, Resource
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer, Store
from proreus.testing.memory.store import Stored

from .leading import Balancers, Cloud, leading

BODY = {
    "metadata": {"name": "web"},
    "spec": {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": [{"port": 80}]},
}
WITH_ANOTHER_FINALIZER = {**BODY, "metadata": {"name": "web", "finalizers": ["example.com/other"]}}


class Eventful(Store):
    """A store in which the Service is deleted, and perhaps made anew, before its first change."""

    def __init__(self, first: dict[str, Any], then: dict[str, Any] | None) -> None:
        super().__init__()
        self._then = then
        self._is_over = False
        self.create(SERVICES, "shop", first)

    def update(
        self, resource: Resource[Any], old: Stored, new: dict[str, Any], *, status: bool = False
    ) -> Stored:
        if resource is SERVICES and not self._is_over:
            self._is_over = True
            self.delete(SERVICES, old, {})
            if self._then is not None:
                self.create(SERVICES, "shop", self._then)
            old = self.get(SERVICES, "shop", "web")
        return super().update(resource, old, new, status=status)


class Noting(Balancers):
    """Load balancers that note for which of the Services that have a finalizer they were made."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.made_for_kept: list[bool] = []

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, Any]:
        self.made_for_kept += [self._is_kept(one.ref.uid) for one in desired]
        return {one.ref.uid: Ensured((LoadBalancerIngress(ip="192.0.2.1"),)) for one in desired}

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Mapping[str, Any]:
        return {one.uid: Done(found=True) for one in gone}

    def _is_kept(self, uid: str) -> bool:
        if not self._store.count(SERVICES):
            return False
        metadata = self._store.get(SERVICES, "shop", "web").metadata
        return metadata["uid"] == uid and FINALIZER_LOAD_BALANCER in metadata.get("finalizers", ())


@pytest.mark.parametrize(
    ("first", "then", "made"),
    [(BODY, None, []), (BODY, BODY, [True]), (WITH_ANOTHER_FINALIZER, None, [])],
    ids=["gone", "made anew", "being deleted"],
)
def test_a_service_that_is_deleted_before_it_has_the_finalizer_gets_no_load_balancer(
    first: dict[str, Any], then: dict[str, Any] | None, made: list[bool]
) -> None:
    @virtual_time
    async def play() -> list[bool]:
        store = Eventful(first, then)
        balancers = Noting(store)
        async with (
            MemoryApiServer(store) as server,
            leading(server.url, Cloud(balancers), "service-lb-controller"),
        ):
            await asyncio.sleep(60)
        return balancers.made_for_kept

    assert play() == made
