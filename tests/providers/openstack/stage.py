"""Plays the script: on whatever answers at an address of keystone."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import aiohttp
import msgspec

from .script import Step
from .shape import Json, shape

PATIENCE: Final = 120
"""Seconds for Octavia to do something."""
TRIES: Final = 30
"""How often Octavia is given work, so that it still does it when the next request comes."""

_HEADERS = ("Content-Type", "X-Subject-Token", "OpenStack-API-Version")
_VERSIONED = {"network": "/v2.0", "load-balancer": "/v2.0"}
_SERVICES = {"compute": "nova", "network": "neutron", "load-balancer": "octavia"}
_SAID = {"user", "password", "provider", "revoked"}
"""Names that the script only says."""
_NOT_FOUND = 404
_CONFLICT = 409


class Stage(msgspec.Struct, frozen=True):
    """What the script is played on.

    Attributes:
        keystone: Its address, with the version.
        names: What the script knows from the start.
    """

    keystone: str
    names: Mapping[str, str]


class Play:
    """One play; `answers` are what counts of each answer, by the name of its step."""

    def __init__(self, stage: Stage, http: aiohttp.ClientSession) -> None:
        """Send nothing yet."""
        self.answers: dict[str, Json] = {}
        self._names = dict(stage.names)
        self._http = http
        self._urls = {"keystone": stage.keystone}
        self._token = ""

    async def all(self, steps: Iterable[Step]) -> None:
        """Play them in order. The first one must get a token."""
        for step in steps:
            await self._play(step)

    async def _play(self, step: Step) -> None:
        status, headers, body = await self._sent(step)
        if not self._token:
            self._log_in(headers, body)
        seen = {name: headers[name] for name in _HEADERS if name in headers}
        kept = {name: str(_at(body, place)) for name, place in step.keep.items()}
        known: dict[str, str] = {}
        for name, value in ({} if step.mixed else self._names | kept).items():
            if name not in _SAID:
                known.setdefault(value, name)
        found = {"status": status, "headers": _shown(seen)}
        if body is not None:
            found["body"] = shape(body, known, self._filled(step.body))
        self.answers[step.name] = found
        self._names |= kept
        if step.settles:
            await self._settle(self._names[step.settles])

    async def _sent(self, step: Step) -> tuple[int, Mapping[str, str], Json]:
        for _ in range(TRIES):
            if step.busy:
                await self._give_work(self._names[step.busy])
            method, service, path = self._filled(step.request).split(" ", 2)
            headers = self._filled(step.headers)
            answer = await self._send(method, service, path, self._filled(step.body), headers)
            if not step.busy:
                return answer
            await self._settle(self._names[step.busy])
            if answer[0] == _CONFLICT:
                return answer
        raise AssertionError(f"{step.name}: Octavia is done each time before the request comes")

    async def _send(
        self,
        method: str,
        service: str,
        path: str,
        body: Json = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Mapping[str, str], Json]:
        given = {"Accept": "application/json"}
        if self._token:
            given["X-Auth-Token"] = self._token
        url = f"{self._urls[service]}{path}"
        sent = {**given, **(headers or {})}
        async with self._http.request(method, url, json=body, headers=sent) as answer:
            text = await answer.text()
            try:
                content = msgspec.json.decode(text) if text else None
            except msgspec.DecodeError:
                content = text
            return answer.status, answer.headers.copy(), content

    async def _give_work(self, balancer: str) -> None:
        change = {"loadbalancer": {"description": "work"}}
        path = f"/lbaas/loadbalancers/{balancer}"
        status, _, body = await self._send("PUT", "octavia", path, change)
        assert status == 200, body

    async def _settle(self, balancer: str) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            path = f"/lbaas/loadbalancers/{balancer}"
            status, _, body = await self._send("GET", "octavia", path)
            if status == _NOT_FOUND or body["loadbalancer"]["provisioning_status"] == "ACTIVE":
                return
            assert time.monotonic() < end, body
            await asyncio.sleep(0.1)

    def _log_in(self, headers: Mapping[str, str], body: Json) -> None:
        self._token = headers["X-Subject-Token"]
        for entry in body["token"]["catalog"]:
            for endpoint in entry["endpoints"]:
                is_ours = (endpoint["interface"], endpoint["region"]) == ("public", "RegionOne")
                if is_ours and (name := _SERVICES.get(entry["type"])):
                    self._urls[name] = endpoint["url"] + _VERSIONED.get(entry["type"], "")

    def _filled(self, of: Json) -> Json:
        if isinstance(of, Mapping):
            return {key: self._filled(value) for key, value in of.items()}
        if isinstance(of, list | tuple):
            return [self._filled(value) for value in of]
        if isinstance(of, str):
            for name, value in self._names.items():
                of = of.replace(f"{{{name}}}", value)
        return of


def _at(body: Json, place: str) -> Any:
    for part in place.split("."):
        body = body[int(part) if part.isdecimal() else part]
    return body


def _shown(headers: Mapping[str, str]) -> dict[str, str]:
    """A token is another one each time, and a charset does not matter."""
    return {
        name: "str" if name == "X-Subject-Token" else value.partition(";")[0]
        for name, value in headers.items()
    }
