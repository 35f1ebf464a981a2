"""A client of the simulated cloud's admin API, for tests and benchmarks."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from proreus.testing.simulated.model import Call, Fault, Instance, Settings, Volume


class Counters(msgspec.Struct, frozen=True):
    """The numbers of calls since the log was cleared, without the log itself.

    Attributes:
        counters: How many calls of each operation ended with each status ("0": no answer).
        last: When the last call of each operation ended, in seconds since 1970.
    """

    counters: Mapping[str, Mapping[str, int]]
    last: Mapping[str, float]


class AdminError(Exception):
    """The error that the cloud refused an admin call."""


class Admin:
    """A client that makes and ends machines, injects faults and reads the call log."""

    def __init__(self, endpoint: str, token: str = "admin") -> None:  # noqa: S107 - a test cloud
        """Keep the endpoint of the cloud and the token."""
        self._endpoint = endpoint
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._token}"},
            timeout=aiohttp.ClientTimeout(total=60),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def settings(self) -> Settings:
        """Return the cloud's settings."""
        return msgspec.convert(await self._call("GET", "settings"), Settings)

    async def configure(self, **changes: object) -> Settings:
        """Change settings (the fields of `Settings`)."""
        return msgspec.convert(await self._call("PATCH", "settings", changes), Settings)

    async def create(self, machines: Iterable[Instance]) -> tuple[Instance, ...]:
        """Start machines; return them with all fields filled in."""
        answer = await self._call("POST", "instances", {"instances": list(machines)})
        return msgspec.convert(answer["instances"], tuple[Instance, ...])

    async def create_volumes(self, volumes: Iterable[Volume]) -> tuple[Volume, ...]:
        """Make volumes; return them with all fields filled in."""
        answer = await self._call("POST", "volumes", {"volumes": list(volumes)})
        return msgspec.convert(answer["volumes"], tuple[Volume, ...])

    async def change(self, id_: str, **changes: object) -> None:
        """Change fields of a machine."""
        await self._call("PATCH", f"instances/{id_}", changes)

    async def stop(self, id_: str) -> None:
        """Shut a machine down."""
        await self.change(id_, state="stopped")

    async def start(self, id_: str) -> None:
        """Start a machine that was stopped."""
        await self.change(id_, state="running")

    async def delete(self, id_: str) -> None:
        """Terminate a machine."""
        await self._call("DELETE", f"instances/{id_}")

    async def instances(self) -> tuple[Instance, ...]:
        """Return all machines, never stale."""
        answer = await self._call("GET", "state")
        return msgspec.convert(answer["instances"], tuple[Instance, ...])

    async def parts(self, kind: str = "") -> Sequence[dict[str, Any]]:
        """List all parts as the API shows them, never stale; of one kind if it is given."""
        parts = (await self._call("GET", "state"))["parts"]
        return [part for part in parts if not kind or part["kind"] == kind]

    async def remove(self, id_: str) -> None:
        """Remove a part as if somebody else had deleted it."""
        await self._call("DELETE", f"parts/{id_}")

    async def inject(self, fault: Fault) -> None:
        """Make calls of the cloud fail."""
        await self._call("POST", "faults", fault)

    async def clear_faults(self) -> None:
        """Let all calls succeed again."""
        await self._call("DELETE", "faults")

    async def calls(self) -> tuple[Call, ...]:
        """Return the call log, the oldest first."""
        return msgspec.convert((await self._call("GET", "calls"))["calls"], tuple[Call, ...])

    async def counts(self) -> Counter[str]:
        """Return how many calls each operation saw, whatever became of them."""
        counters = (await self.counters()).counters
        return Counter({operation: sum(by.values()) for operation, by in counters.items()})

    async def counters(self) -> Counters:
        """Return the counters of calls, by operation and status."""
        return msgspec.convert(await self._call("GET", "counters"), Counters)

    async def clear_calls(self) -> None:
        """Forget the call log and its counters."""
        await self._call("DELETE", "calls")

    async def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        if self._session is None:
            raise AdminError("use Admin as an async context manager")
        data = None if body is None else msgspec.json.encode(body)
        url = f"{self._endpoint}/admin/{path}"
        async with self._session.request(method, url, data=data) as response:
            answer = msgspec.json.decode(await response.read(), type=dict[str, Any])
        if "error" in answer:
            raise AdminError(f"{method} {path}: {answer['error']['message']}")
        return answer
