"""The simulated cloud without HTTP: its state, its rules, its traffic and the form of answers."""

import base64
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from proreus.testing.simulated.dataplane import DataPlane
from proreus.testing.simulated.disks import Disks
from proreus.testing.simulated.machines import Machines
from proreus.testing.simulated.model import (
    AddressPart,
    AnyPart,
    ApiError,
    Firewall,
    Instance,
    Listener,
    LoadBalancer,
    Part,
    Route,
    Settings,
)
from proreus.testing.simulated.parts import KINDS, Parts
from proreus.testing.simulated.store import Key, Store


class Cloud:
    """A simulated cloud: instances, parts of load balancers, and their traffic.

    `now` is seconds since 1970; ids come from `chance`, else from the system's.
    """

    def __init__(
        self,
        state: Path,
        settings: Settings,
        now: Callable[[], float],
        chance: random.Random | None = None,
    ) -> None:
        """Open the state file, or make it."""
        chance = chance or random.SystemRandom()
        self.now = now
        self._settings = settings
        self._store = Store(state, now)
        self.machines = Machines(self._store.instances, self.settings, now, chance)
        self.disks = Disks(self._store.volumes, self.settings, chance)
        self.parts = Parts(self._store.parts, self.machines, self.settings, now, chance)
        self.dataplane = DataPlane(self.parts, self.settings, now)
        self.configure({})

    def settings(self) -> Settings:
        """Return the settings as they are now."""
        return self._settings

    def configure(self, changes: Mapping[str, Any]) -> Settings:
        """Change settings."""
        try:
            new = msgspec.convert(msgspec.to_builtins(self._settings) | dict(changes), Settings)
        except msgspec.ValidationError as error:
            raise ApiError(400, "BadRequest", str(error)) from error
        self._settings = new
        self._store.remember(max(new.list_lag, new.read_lag))
        return new

    def close(self) -> None:
        """Close the state file."""
        self._store.close()

    def view(self, part: AnyPart) -> dict[str, Any]:
        """Return a part in the form of an answer."""
        shown: dict[str, Any] = msgspec.to_builtins(part)
        del shown["idempotency_token"]
        if isinstance(part, LoadBalancer):
            shown["state"] = "active" if part.active_at <= self.now() else "provisioning"
            del shown["active_at"]
        elif isinstance(part, Listener):
            shown["state"], shown["error"] = self.dataplane.state(part)
        elif isinstance(part, Route):
            alive = self.machines.find(part.instance_id)
            gone = alive is None or alive.state == "terminated"
            shown["state"] = "blackhole" if gone else "active"
        return shown

    def list_parts(self, kind: str, prefix: str, tags: Sequence[str]) -> list[AnyPart]:
        """Return the parts that the filters of `GET /v1/resources` let through."""
        kinds = {type_.__struct_config__.tag for type_ in KINDS.values()}
        if kind and kind not in kinds:
            raise ApiError(400, "BadRequest", f"kind must be one of {sorted(map(str, kinds))}")
        pairs = [tag.split("=", 1) for tag in tags]
        if any(len(pair) != len(("key", "value")) for pair in pairs):
            raise ApiError(400, "BadRequest", "tag: write KEY=VALUE")

        keys: list[Key] = [("tag", *pair) for pair in pairs]
        if kind:
            keys.append(("kind", kind))
        lag = 0 if prefix else self._settings.list_lag
        return list(self.parts.keyed(*keys, prefix=prefix, lag=lag))

    def page(
        self, found: Sequence[Instance] | Sequence[AnyPart], size: str, token: str
    ) -> tuple[Sequence[Any], str]:
        """Return the page of a list, sorted by id, that follows `token`, and the next token."""
        limit = self._settings.page_size
        try:
            limit = min(int(size or limit), limit)
            after = base64.urlsafe_b64decode(token).decode()
        except ValueError as error:
            raise ApiError(400, "BadRequest", "page_size or page_token is malformed") from error
        if limit < 1:
            raise ApiError(400, "BadRequest", "page_size must be at least 1")
        rest = [one for one in found if one.id > after]
        if len(rest) <= limit:
            return rest, ""
        return rest[:limit], base64.urlsafe_b64encode(rest[limit - 1].id.encode()).decode()

    async def changed(self, part: Part) -> None:
        """Open and close sockets after a part was made, changed or removed."""
        if isinstance(part, LoadBalancer):
            await self.dataplane.sync(part.id)
        elif isinstance(part, AddressPart):
            for other in self.parts.on(part.id):
                await self.dataplane.sync(other.id)
        elif isinstance(part, Listener | Firewall):
            await self.dataplane.sync(part.load_balancer_id)
