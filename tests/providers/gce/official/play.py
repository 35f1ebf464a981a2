"""Plays scenarios on a manager that runs, and takes the pictures."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from proreus.kube.errors import NotFound

from ....apiserver.site import PATIENCE  # noqa: TID252 - pytest imports tests by path
from ...changes import Change  # noqa: TID252
from .picture import Picture, nodes, picture
from .scenarios import Act, Scenario
from .stage import Stage

NODES: Final = "nodes"
END: Final = "deleted"
_LOOK: Final = 0.2

Judge = Callable[[str, Picture], bool]
"""Whether the picture of this name is as it should be in the end."""


class Play:
    """A manager's turn."""

    def __init__(self, stage: Stage, judge: Judge, settle: float = 0.0) -> None:
        """Nothing is played yet.

        Args:
            stage: Where; the manager runs.
            judge: Pictures are waited for until it is content.
            settle: Seconds for which a picture must stay as it is.
        """
        self._stage = stage
        self._judge = judge
        self._settle = settle
        self.pictures: dict[str, Picture] = {}
        """By scenario and act, as `external: made`."""

    async def nodes(self) -> None:
        """The nodes, once they are initialised."""
        await self._stage.initialised()
        await self._take(NODES, lambda: nodes(self._stage))

    async def all(self, scenarios: Sequence[Scenario]) -> None:
        """The scenarios, one after the other."""
        for one in scenarios:
            for act in one.acts:
                await self._act(act)
                await self._take(f"{one.name}: {act.name}", lambda: picture(self._stage))
            await self._clear(one)
            await self._take(f"{one.name}: {END}", lambda: picture(self._stage))

    async def picture(self, name: str = "") -> Picture:
        """What there is, once it is as it should be and stays so, or after long patience."""
        return await self._final(name, lambda: picture(self._stage))

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

    async def _take(self, name: str, look: Callable[[], Awaitable[Picture]]) -> None:
        self.pictures[name] = await self._final(name, look)

    async def _final(self, name: str, look: Callable[[], Awaitable[Picture]]) -> Picture:
        deadline = time.monotonic() + PATIENCE
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
                return now
            await asyncio.sleep(_LOOK)
