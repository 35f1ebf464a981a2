"""Look at nodes as soon as the provider hints that their machines may have changed.

How often one node is looked at for hints is bounded, whatever the provider says: at first at once,
and twice as long after each time while hints keep coming. Whole scopes are looked at less often.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from proreus.cloudprovider import Instances, scope_of
from proreus.cloudprovider.hints import Hint, Pace
from proreus.controllers.environment import Environment
from proreus.kube.objects import Node
from proreus.runtime.backoff import Backoff
from proreus.runtime.tasks import supervise

MACHINE: Final = (1.0, 30.0)
"""Seconds between two looks at one node: at first, and at most."""
SCOPE: Final = (30.0, 300.0)
"""The same of all nodes of a scope."""

_RESTART: Final = Backoff(first=1.0, cap=30.0)


class Hinted:
    """The nodes whose machines may have changed, for one controller."""

    def __init__(self, env: Environment, instances: Instances) -> None:
        """Begin with no nodes."""
        self._env = env
        self._instances = instances
        self._machines = Pace(*MACHINE)
        self._scopes = Pace(*SCOPE)

    async def run(self, look: Callable[[Node, float], None]) -> None:
        """Listen until cancelled; call `look` with each node and the seconds until it is due."""

        async def follow() -> None:
            with self._env.context.hints.listen() as listener:
                while True:
                    for node, delay in self._concerned(await listener.next()):
                        look(node, delay)

        await supervise("hints", follow, backoff=_RESTART, on_crash=lambda _: None)

    def forget(self, name: str) -> None:
        """Forget the looks at a node that is gone."""
        self._machines.forget(name)

    def _concerned(self, hint: Hint) -> list[tuple[Node, float]]:
        now = asyncio.get_running_loop().time()
        whole = {scope: self._scopes.delay(f"={scope}", now) for scope in hint.scopes}
        every = self._scopes.delay("", now) if hint.everything else None
        found = []
        for node in self._env.nodes.all():
            if hint.names(node):
                found.append((node, self._machines.delay(node.metadata.name, now)))
            elif every is not None:
                found.append((node, every))
            elif whole:
                scope = scope_of(self._instances, node)
                if scope is not None and scope in whole:
                    found.append((node, whole[scope]))
        return found
