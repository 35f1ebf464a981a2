"""Ask about all nodes now and then, where no other controller in this process does.

What an answer about a silent node is worth depends on what the cloud said of Ready ones, and of
that very node while it was Ready. Usually the cloud-node controller asks, which compares all nodes
with their machines. With a lease for each controller it may work in another replica.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from proreus.containment.batches import outage
from proreus.containment.inventory import Inventory
from proreus.controllers.environment import Environment
from proreus.kube.objects import Node
from proreus.runtime import priority
from proreus.runtime.backoff import Backoff
from proreus.runtime.controller import contained
from proreus.runtime.priority import Priority
from proreus.runtime.tasks import supervise

AGAIN: Final = 30.0
"""Seconds until the cloud is asked again that gave no answer about any node."""

_RESTART: Final = Backoff(first=1.0, cap=30.0)


async def survey(env: Environment, inventory: Inventory, may_go: Callable[[Node], bool]) -> None:
    """Ask as often as the cloud-node controller does, until cancelled; the inventory remembers.

    Args:
        env: The nodes, and the seconds between two questions about all of them.
        inventory: The inventory of the cloud's machines.
        may_go: Tells whether a node may go with its machine; only these are asked about.
    """
    priority.current.set(Priority.RESYNC)
    period = env.settings.node_status_update_frequency

    async def ask() -> None:
        while True:
            is_answered = inventory.is_swept or await _asked(env, inventory, may_go)
            await asyncio.sleep(period if is_answered else min(period, AGAIN))

    await supervise("survey", ask, backoff=_RESTART, on_crash=lambda _: None)


async def _asked(env: Environment, inventory: Inventory, may_go: Callable[[Node], bool]) -> bool:
    """Ask about all nodes, one batch after another; tell whether the cloud answered for any."""
    nodes = [node for node in env.nodes.all() if may_go(node)]
    size, is_answered = inventory.batch_size, not nodes
    for start in range(0, len(nodes), size):
        now = asyncio.get_running_loop().time()
        batch = nodes[start : start + size]
        answers = await contained(inventory.get(batch, not_before=now))
        is_answered |= not isinstance(answers, Exception) and outage(answers) is None
    return is_answered
