"""Server-side apply, as `kubectl apply --server-side` does it, with the server's warnings."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Self

import aiohttp
import yaml

from proreus.kube import config
from proreus.testing.controlplane import ControlPlane

Object = dict[str, Any]


class Cluster:
    """An administrator at the API server."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.warnings: list[str] = []
        self._applied: list[str] = []

    async def apply(self, objects: Iterable[Object]) -> None:
        """Apply objects, with unknown and duplicate fields refused."""
        for one in objects:
            path = await self._path(one)
            async with self._session.patch(
                path,
                params={"fieldManager": "test", "fieldValidation": "Strict"},
                data=yaml.safe_dump(one),
                headers={"Content-Type": "application/apply-patch+yaml"},
            ) as response:
                assert response.ok, f"{path}: {await response.text()}"
                self.warnings += response.headers.getall("Warning", [])
            self._applied.append(path)

    async def create(self, path: str, body: Object) -> Object:
        """POST something and return the answer."""
        async with self._session.post(path, json=body) as response:
            assert response.ok, await response.text()
            answer: Object = await response.json()
            return answer

    async def read(self, path: str) -> Object:
        """GET something; empty if it is not there."""
        async with self._session.get(path) as response:
            answer: Object = await response.json() if response.ok else {}
            return answer

    async def clear(self) -> None:
        """Delete what was applied."""
        for path in reversed(self._applied):
            async with self._session.delete(path) as response:
                assert response.ok or response.status == 404, await response.text()
        self._applied.clear()

    async def _path(self, one: Object) -> str:
        version = one["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        (found,) = [
            resource
            for resource in (await self.read(root))["resources"]
            if resource["kind"] == one["kind"] and "/" not in resource["name"]
        ]
        meta = one["metadata"]
        assert found["namespaced"] == ("namespace" in meta), meta["name"]
        namespace = f"/namespaces/{meta['namespace']}" if found["namespaced"] else ""
        return f"{root}{namespace}/{found['name']}/{meta['name']}"

    @classmethod
    @asynccontextmanager
    async def of(cls, plane: ControlPlane) -> AsyncIterator[Self]:
        """The cluster of a control plane; what was applied is deleted at the end."""
        tls = config.load(str(plane.kubeconfig), env={}).ssl_context()
        connector = aiohttp.TCPConnector(ssl=tls)
        async with aiohttp.ClientSession(plane.url, connector=connector) as session:
            cluster = cls(session)
            try:
                yield cluster
            finally:
                await cluster.clear()
