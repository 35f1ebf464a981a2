"""Read which cluster this is: the name of the flags, and the UID of the namespace kube-system."""

import asyncio
import itertools

from proreus.cloudprovider import ClusterIdentity
from proreus.kube.client import Client
from proreus.kube.errors import Forbidden, KubeError
from proreus.kube.requests import NAMESPACES
from proreus.runtime import klog
from proreus.runtime.backoff import Backoff

log = klog.logger(__name__)


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
