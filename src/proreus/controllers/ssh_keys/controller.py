"""Give the public half of an SSH key to all instances, again when there are new nodes.

Kubernetes' API server did so until 1.22, when it reached kubelets through SSH tunnels: hence the
flags. One call is for all instances, so a hundred nodes that join together cost one or two.
"""

import asyncio
import random
from pathlib import Path
from typing import Final

from proreus.cloudprovider import CloudError
from proreus.controllers.environment import Environment
from proreus.controllers.ssh_keys.keyfile import KeyFileError, public_key
from proreus.kube.objects import Node
from proreus.runtime import klog, metrics
from proreus.runtime.backoff import Backoff
from proreus.runtime.tasks import unless_stopped

log = klog.logger(__name__)

CONTROLLER: Final = "ssh-keys-controller"
BACKOFF: Final = Backoff(first=5.0, cap=300.0, factor=2.0, jitter=0.2)
LINGER: Final = 5.0
"""Seconds from the first new node to the call, for those that join with it."""


class SSHKeysController:
    """The controller `ssh-keys-controller`."""

    def __init__(self, env: Environment) -> None:
        """Subscribe to the nodes; the provider must have SSH keys."""
        self._cloud = env.need(env.provider.ssh_keys, "SSHKeys")
        self._nodes = env.nodes
        self._user = env.settings.ssh_user
        self._file = Path(env.settings.ssh_keyfile)
        self._due = asyncio.Event()
        self._stopped = asyncio.Event()
        env.nodes.subscribe(self._on_node)

    async def run(self) -> None:
        """Give the key once, and again after each new node, until stopped."""
        await self._nodes.wait_synced()
        self._due.set()
        pause = 0.0
        failures = 0
        while await unless_stopped(self._next(pause), self._stopped):
            self._due.clear()
            error = await self._give()
            metrics.RECONCILES.labels(CONTROLLER, "ok" if error is None else "error").inc()
            if error is None:
                failures, pause = 0, LINGER
                continue
            pause = getattr(error, "after", None) or BACKOFF.delay(
                failures,
                random.random(),  # noqa: S311 - no secret
            )
            failures += 1
            self._due.set()
            klog.error(
                log,
                "The SSH key could not be given to the instances",
                err=error,
                retry_seconds=round(pause, 1),
            )

    def stop(self) -> None:
        """Stop giving the key."""
        self._stopped.set()

    @property
    def is_busy(self) -> bool:
        """Always false: nothing is written to the API server."""
        return False

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if old is None and new is not None:  # A Node of the same name made anew is gone between.
            self._due.set()

    async def _next(self, pause: float) -> None:
        await self._due.wait()
        await asyncio.sleep(pause)

    async def _give(self) -> KeyFileError | CloudError | None:
        try:
            key = public_key(self._file)
            await self._cloud.add_to_all_instances(self._user, key)
        except (KeyFileError, CloudError) as exc:
            return exc
        klog.info(log, "All instances have the SSH key", user=self._user)
        return None
