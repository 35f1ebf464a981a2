"""Take the address from a Service that asks for another one's port there, whatever goes on for it.

Its load balancer, or another one of its group, may be worked on for minutes, such as while the
cloud does not answer, and nothing is decided for it meanwhile. So it is with an address that
another of the clouds gave it before.
"""

import asyncio
from typing import Final

from proreus.controllers.environment import Environment
from proreus.controllers.service.answers import Change, status_patch
from proreus.controllers.service.contested import Contested, Holders
from proreus.controllers.service.intake import Classes, needs_cleanup, wants
from proreus.controllers.service.writer import ServiceWriter
from proreus.kube.objects import Service, key

_MOMENT: Final = 1.0
"""Seconds for which the cloud may say first whose the port is, or until a write is tried again."""


async def run(env: Environment, writer: ServiceWriter, holders: Holders, classes: Classes) -> None:
    """Look at each change of a Service until cancelled.

    Args:
        env: The environment, with the Services of the cloud.
        writer: The writer of changes.
        holders: The knowledge of who has which ports.
        classes: The load balancer classes that are ours.
    """
    services = env.services
    due: asyncio.Queue[str] = asyncio.Queue()
    busy: set[str] = set()

    def is_due(one: Service | None, tells: Contested = holders.is_contested) -> bool:
        if one is None or not one.status.load_balancer.ingress:
            return False
        is_ours = wants(one, classes) or needs_cleanup(one, classes)
        return is_ours and (holders.is_moved(one, env.cloud) or tells(one) is True)

    def on_service(_: Service | None, new: Service | None) -> None:
        if new is not None and key(new) not in busy and is_due(new):
            busy.add(key(new))
            due.put_nowait(key(new))

    async def withdraw(name: str) -> None:
        await asyncio.sleep(_MOMENT)
        while is_due(services.get(name)):
            outcome = await writer.write_present(
                name,
                lambda one: Change(
                    status=status_patch(one, ingress=() if is_due(one, holders.gives_up) else None)
                ),
            )
            if outcome.written is not None:
                await services.wait_seen(name, outcome.written)
            elif outcome.error is not None:
                await asyncio.sleep(_MOMENT)
        busy.discard(name)

    services.subscribe(on_service)
    try:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(withdraw(await due.get()))
    finally:
        services.unsubscribe([on_service])
