"""The board for notices of the manager's replicas: annotations of one Lease, beside the leader's.

It is a Lease, since the manager has the right to write leases of given names; nobody holds it.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from proreus.app.cluster_identity import SameCluster
from proreus.cloudprovider import CloudError
from proreus.cloudprovider.board import Notice
from proreus.kube.client import Client
from proreus.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from proreus.kube.objects import ObjectMeta
from proreus.kube.requests import LEASES, Resource
from proreus.kube.watch import Applied, Deleted, Restarted, watch
from proreus.runtime import klog
from proreus.runtime.backoff import Backoff

log = klog.logger(__name__)

NEED: Final = "board"
"""What a provider whose replicas have a board names in `needs`."""
PREFIX: Final = "notice.proreus.io/"
"""The prefix of the annotations; the notice's name follows."""

_BACKOFF: Final = Backoff(first=0.5, cap=30.0, jitter=0.5)
_TRIES: Final = 8
_SECONDS: Final = 4.0


class _Lease(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_NOTICED: Final = Resource(
    LEASES.group, LEASES.version, LEASES.plural, LEASES.kind, namespaced=True, type=_Lease
)


def lease_name(manager: str) -> str:
    """Return the name of the Lease that holds notices, given the name of the manager's lease."""
    return f"{manager}-gateways"


def notices_of(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the notices among annotations, by name."""
    return {
        name.removeprefix(PREFIX): text
        for name, text in annotations.items()
        if name.startswith(PREFIX)
    }


class LeaseBoard:
    """A board at the API server; its client must have no gate, since standbys post, too.

    Attributes:
        same: Tells whose a Lease is that is another one than before; who has the board lets it
            begin.
    """

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        """Begin without having read anything."""
        self.same = SameCluster(client)
        self._client = client
        self._namespace = namespace
        self._name = name
        self._known: dict[str, tuple[str, float]] = {}
        self._written: dict[str, Any] | None = None
        self._uid = ""
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Follow the board until cancelled."""
        async for event in watch(
            self._client,
            _NOTICED,
            self._namespace,
            field_selector=f"metadata.name={self._name}",
            check=self.same.check,
            backoff=_BACKOFF.delay,
            on_error=lambda error: klog.warning(log, "The board cannot be watched", err=error),
        ):
            match event:
                case Restarted(items, _):
                    self._read(items[0].metadata.annotations if items else {})
                case Applied(lease):
                    self._read(lease.metadata.annotations)
                case Deleted(_):
                    self._read({})

    def _read(self, annotations: Mapping[str, str]) -> None:
        now = time.monotonic()
        found = notices_of(annotations)
        self._known = {
            name: self._known[name] if self._known.get(name, ("",))[0] == text else (text, now)
            for name, text in found.items()
        }
        self._changed.set()

    def notices(self) -> Mapping[str, Notice]:
        """Return all notices that have been read, by name."""
        now = time.monotonic()
        return {name: Notice(text, now - since) for name, (text, since) in self._known.items()}

    async def changed(self) -> None:
        """Wait until a notice has changed since the last call."""
        await self._changed.wait()
        self._changed.clear()

    async def post(self, name: str, text: str) -> None:
        """Put the notice `text` in the place of the one under `name`.

        Raises:
            CloudError: The API server did not take it, or has not said that it did.
        """
        try:
            async with asyncio.timeout(_SECONDS):
                for _ in range(_TRIES):
                    if await self._is_posted(name, text):
                        return
        except (KubeError, TimeoutError) as error:
            self._written = None
            why = str(error) or f"no answer within {_SECONDS:g} s"
            raise CloudError(f"the lease {self._name} could not be written: {why}") from error
        raise CloudError(f"the lease {self._name} was written by others {_TRIES} times in a row")

    async def _is_posted(self, name: str, text: str) -> bool:
        """Write once; False if somebody else has written meanwhile."""
        given = {f"{PREFIX}{name}": text}
        try:
            if self._written is None:
                self._written = await self._recognised()
            meta = self._written["metadata"]
            annotations = {**(meta.get("annotations") or {}), **given}
            body = {**self._written, "metadata": {**meta, "annotations": annotations}}
            self._written = await self._client.replace_lease(self._namespace, self._name, body)
        except NotFound:
            await self.same.check(self._client)
            meta = {"namespace": self._namespace, "name": self._name, "annotations": given}
            try:
                self._written = await self._client.create_lease(
                    self._namespace, {"metadata": meta, "spec": {}}
                )
            except AlreadyExists:
                return False
        except Conflict:
            self._written = None
            return False
        return True

    async def _recognised(self) -> dict[str, Any]:
        """Read the Lease; if it is another one than before, check whose it is.

        Raises:
            KubeError: It is another cluster's, or nobody can tell now.
        """
        found = await self._client.get_lease(self._namespace, self._name)
        if _uid(found) != self._uid:
            async with self._client.apart() as one:
                found = await one.get_lease(self._namespace, self._name)
                await self.same.check(one)
            self._uid = _uid(found)
        return found


def _uid(lease: Mapping[str, Any]) -> str:
    return str(lease["metadata"]["uid"])
