"""Scenarios of Services that are played on a manager that runs, and the pictures of each act."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from proreus.kube.errors import NotFound

from ..apiserver.site import PATIENCE  # noqa: TID252 - pytest imports tests by path
from .changes import Change

NODES: Final = "nodes"
END: Final = "deleted"
_LOOK: Final = 0.2
_HOPELESS: Final = 3
"""Pictures that were never right, after which others are waited for less long."""
_LESS: Final = 0.1
"""So much less: a difference in all pictures would else take an hour, and look like a hang."""

Picture = dict[str, str]
"""What there is: a value for each thing, by names that are the same in each run."""
Judge = Callable[[str, Picture], bool]
"""Whether the picture of this name is as it should be in the end."""
Look = Callable[[], Awaitable[Picture]]
"""Takes a picture."""


class Act(msgspec.Struct, frozen=True):
    """A stage: what happens to Services by name, and which machines are kept out from then on."""

    name: str
    services: Mapping[str, Change] = {}
    excluded: tuple[str, ...] = ()


class Scenario(msgspec.Struct, frozen=True):
    """Acts, one after the other; then all its Services are deleted."""

    name: str
    acts: tuple[Act, ...]

    @property
    def services(self) -> list[str]:
        """The Services in it."""
        return sorted({name for act in self.acts for name in act.services})


def edits(name: str, *changes: Change) -> Scenario:
    """One Service that is made, and then edited some times."""
    acts = tuple(
        Act("made" if number == 0 else f"edit {number}", {"web": change})
        for number, change in enumerate(changes)
    )
    return Scenario(name, acts)


def port(number: int, node_port: int, protocol: str = "TCP", **more: Any) -> dict[str, Any]:
    """A port of a Service, with a node port that is the same in each run."""
    name = f"{protocol.lower()}-{number}"
    return {"name": name, "port": number, "nodePort": node_port, "protocol": protocol, **more}


class Stage(Protocol):
    """A cluster on a cloud."""

    async def initialised(self) -> None:
        """Wait until the nodes are."""

    async def change(self, name: str, change: Change) -> None:
        """Let this happen to a Service."""

    async def exclude(self, *names: str) -> None:
        """Keep these machines, and no others, out of load balancers."""


class Play:
    """A manager's turn."""

    def __init__(
        self, stage: Stage, nodes: Look, services: Look, judge: Judge, settle: float = 0.0
    ) -> None:
        """Nothing is played yet.

        Args:
            stage: Where; the manager runs.
            nodes: Takes the picture of the nodes.
            services: Takes the picture of Services and their load balancers.
            judge: Pictures are waited for until it is content.
            settle: Seconds for which a picture must stay as it is.
        """
        self._stage = stage
        self._nodes = nodes
        self._services = services
        self._judge = judge
        self._settle = settle
        self._wrong = 0
        self.pictures: dict[str, Picture] = {}
        """By scenario and act, as `external: made`."""

    async def nodes(self) -> None:
        """The nodes, once they are initialised."""
        await self._stage.initialised()
        await self._take(NODES, self._nodes)

    async def all(self, scenarios: Sequence[Scenario]) -> None:
        """The scenarios, one after the other."""
        for scenario in scenarios:
            for act in scenario.acts:
                await self._act(act)
                await self._take(f"{scenario.name}: {act.name}", self._services)
            await self._clear(scenario)
            await self._take(f"{scenario.name}: {END}", self._services)

    async def picture(self, name: str = "") -> Picture:
        """What there is, once it is as it should be and stays so, or after long patience."""
        return await self._final(name, self._services)

    async def _act(self, act: Act) -> None:
        for name, change in act.services.items():
            await self._stage.change(name, change)
        await self._stage.exclude(*act.excluded)

    async def _clear(self, scenario: Scenario) -> None:
        for name in scenario.services:
            try:
                await self._stage.change(name, Change())
            except NotFound:
                continue
        await self._stage.exclude()

    async def _take(self, name: str, look: Look) -> None:
        self.pictures[name] = await self._final(name, look)

    async def _final(self, name: str, look: Look) -> Picture:
        patience = PATIENCE * (_LESS if self._wrong >= _HOPELESS else 1.0)
        deadline = time.monotonic() + patience
        since = time.monotonic()
        last: Picture = {}
        while True:
            now = await look()
            is_right = self._judge(name, now)
            if now != last or not is_right:
                since = time.monotonic()
            last = now
            if is_right and time.monotonic() - since >= self._settle:
                return now
            if time.monotonic() > deadline:
                self._wrong += 1
                return now
            await asyncio.sleep(_LOOK)
