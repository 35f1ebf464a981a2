"""Read which cluster this is: the name of the flags, and the UID of the namespace kube-system."""

import asyncio
import itertools

from proreus.cloudprovider import ClusterIdentity
from proreus.kube.client import Client
from proreus.kube.errors import Forbidden, KubeError, NotFound
from proreus.kube.requests import NAMESPACES
from proreus.runtime import klog
from proreus.runtime.backoff import Backoff

log = klog.logger(__name__)


class AnotherCluster(KubeError):
    """The error that the API server of another cluster answers than at the start."""


class SameCluster:
    """The check that the API server is still that of one cluster.

    What another one lacks is not gone from this one, and what it has is not this one's: its API
    server may have come to the address of ours, as when a name or a virtual address is moved.
    """

    def __init__(self, client: Client) -> None:
        """Read with `client`; nothing is believed before the UID of the cluster is known."""
        self._client = client
        self._uid = ""
        self._known = asyncio.Event()

    def begin(self, uid: str) -> None:
        """Note the UID of the cluster."""
        self._uid = uid
        self._known.set()

    async def check(self, by: Client) -> None:
        """Pass if the cluster is the same, or nobody can tell; wait until it is known which it is.

        While a name or an address is moved, some connections lead to the one and some to the other.

        Args:
            by: Whose answers are to be believed. It is asked by its own connection, unless it is of
                another account that lacks the right.

        Raises:
            AnotherCluster: It is another one.
            KubeError: The API server gives no usable answer.
        """
        await self._known.wait()
        try:
            found = await self._read(by)
        except Forbidden:
            return  # the right may have been taken away since; nothing was refused for that
        except NotFound:
            found = "none"
        if found != self._uid:
            raise AnotherCluster(
                f"the API server of another cluster answers: its namespace kube-system has the UID"
                f" {found}, and not {self._uid}; if this manager is to serve that one, restart it"
            )

    async def _read(self, by: Client) -> str:
        try:
            return (await read_identity(by, "")).uid
        except Forbidden:
            if by.credentials is self._client.credentials:
                raise
            return (await read_identity(self._client, "")).uid


async def read_identity(client: Client, cluster_name: str) -> ClusterIdentity:
    """Return the cluster's identity.

    Raises:
        KubeError: The API server gives no usable answer.
    """
    system = await client.get(NAMESPACES, "kube-system")
    return ClusterIdentity(cluster_name, system.metadata.uid)


async def wait_for_identity(client: Client, cluster_name: str, backoff: Backoff) -> ClusterIdentity:
    """Return the cluster's identity; where the API server does not tell, try again for ever."""
    for failures in itertools.count():
        try:
            return await read_identity(client, cluster_name)
        except KubeError as exc:
            delay = backoff.delay(failures)
            message = "The API server does not answer yet"
            if isinstance(exc, Forbidden):  # the official managers' roles do not give it
                message = "The manager waits for the right to get the namespace kube-system"
            klog.warning(log, message, err=exc, retry_seconds=delay)
            await asyncio.sleep(delay)
    raise AssertionError("unreachable")
