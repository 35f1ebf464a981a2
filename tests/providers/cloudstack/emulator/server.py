"""The protocol of the emulated CloudStack: signatures, rights, parameters, pages, failures."""

import base64
import csv
import hashlib
import hmac
import json
import re
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus

from aiohttp import web

from ...emulated import listening  # noqa: TID252 - pytest imports tests by path
from .accounts import ALL_PROJECTS
from .commands import LISTS, run
from .refusals import Refusal, absent
from .world import Json, World

APIS: Final[Mapping[str, Any]] = json.loads(Path(__file__).with_name("apis.json").read_text())
PATH: Final = "/client/api"
ROLE: Final = Path(__file__).parents[4] / "deploy" / "cloudstack" / "role.csv"
_COMMON = {"command", "apikey", "signature", "signatureversion", "expires", "response", "listall"}
_MAP = re.compile(r"(\w+)\[\d+\]\.(key|name|value)")
LOST: Final = -1
"""The code of a failure that is no answer at all."""


class Failure:
    """A failure that is to come: `times` often, before or after the effect."""

    def __init__(self, code: int, text: str, times: int, *, after_effect: bool) -> None:
        self.code, self.text, self.times, self.after_effect = code, text, times, after_effect


class Emulator:
    """One CloudStack, with one caller, who may be in projects."""

    def __init__(self) -> None:
        self.world = World()
        self.world.now = time.monotonic
        self.url = ""
        self.key, self.secret = "planted-api-key-0001", "planted-secret-key-0001"
        self.blind: set[str] = set()
        """Keys of users who are shown no machine."""
        self.page = 500
        self.rights: Collection[str] | None = role()
        """Commands that the role of our user allows; None: all."""
        self.limit: int | None = None
        """Requests of an interval of a second, after which the API-limit plugin refuses."""
        self.calls: Counter[str] = Counter()
        self.throttled = 0
        self.log: list[tuple[str, Mapping[str, str]]] = []
        self.failures: dict[str, Failure] = {}
        self.missing: set[str] = set()
        """Commands that were asked for and are not in the description."""
        self._interval = (0.0, 0)

    def config(self, extra: str = "", sections: str = "") -> str:
        """A cloud-config that leads here."""
        return (
            f"[Global]\napi-url = {self.url}\napi-key = {self.key}\nsecret-key = {self.secret}\n"
            f"{extra}\n{sections}\n"
        )

    def fail(
        self, command: str, code: int = 530, text: str = "failed", times: int = 1, *,
        after_effect: bool = False,
    ) -> None:  # fmt: skip
        """Let the next requests of a command fail."""
        self.failures[command] = Failure(code, text, times, after_effect=after_effect)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        parameters = {**request.query, **{k: str(v) for k, v in (await request.post()).items()}}
        command = parameters.get("command", "")
        self.world.advance()
        failure = self.failures.get(command)
        if failure is not None:
            failure.times -= 1
            if failure.times <= 0:
                del self.failures[command]
        try:
            self._admit(command, parameters)
            if failure is not None and not failure.after_effect:
                raise Refusal(failure.code, failure.text)
            answer = self._answer(command, parameters)
            if failure is not None:
                raise Refusal(failure.code, failure.text)
        except Refusal as refusal:
            if refusal.code == LOST:
                if request.transport is not None:
                    request.transport.abort()
                return web.Response()
            return _said(command, refusal)
        return web.json_response({f"{command.lower()}response": answer})

    def _admit(self, command: str, parameters: Mapping[str, str]) -> None:
        self._authenticate(parameters)
        second, count = self._interval
        count = count + 1 if time.monotonic() - second < 1.0 else 1
        self._interval = (second if count > 1 else time.monotonic(), count)
        if self.limit is not None and count > self.limit:
            self.throttled += 1
            left = int(1000 * (1.0 - (time.monotonic() - second)))
            raise Refusal(
                429, "The given user has reached his/her account api limit, please retry after"
                f" [{max(left, 1)}] ms.",
            )  # fmt: skip
        self.calls[command] += 1
        self.log.append((command, parameters))
        if command not in APIS:
            self.missing.add(command)
        if command not in APIS or (self.rights is not None and command not in self.rights):
            raise Refusal(
                432, f"The API [{command}] does not exist or is not available for the account."
            )

    def _authenticate(self, parameters: Mapping[str, str]) -> None:
        """Check key and signature as CloudStack's ApiServer documents it."""
        given = {name: value for name, value in parameters.items() if name.lower() != "signature"}
        keys = {name.lower(): value for name, value in parameters.items()}
        text = "&".join(f"{name}={_java(given[name])}" for name in sorted(given)).lower()
        digest = hmac.new(self.secret.encode(), text.encode(), hashlib.sha1).digest()
        good = keys.get("apikey") == self.key and hmac.compare_digest(
            base64.b64encode(digest).decode(), keys.get("signature", "")
        )
        if good and keys.get("signatureversion") == "3":
            expires = datetime.fromisoformat(keys["expires"])
            good = expires > datetime.now(UTC)
        if not good:
            raise Refusal(401, "unable to verify user credentials and/or request signature")

    def _answer(self, command: str, parameters: Mapping[str, str]) -> Json:
        plain = {k: v for k, v in parameters.items() if k.lower() not in _COMMON - {"listall"}}
        self._check(command, plain)
        if command in LISTS:
            kind, found = run(self.world, command, plain)
            if command == "listVirtualMachines" and parameters.get("apikey") in self.blind:
                found = []
            return self._page(command, kind, found, plain)
        answer = run(self.world, command, plain)[1]
        assert isinstance(answer, dict)
        return answer

    def _page(self, command: str, kind: str, found: Any, parameters: Mapping[str, str]) -> Json:
        size = int(parameters.get("pagesize") or self.page)
        first = size * (int(parameters.get("page") or 1) - 1)
        fields = {"id", *APIS[command]["fields"]}
        for one in found:
            assert one.keys() <= fields, f"{command} has no {sorted(one.keys() - fields)}"
        shown = found[first : first + size]
        return {"count": len(found), kind: shown} if shown else {}

    def _check(self, command: str, parameters: Mapping[str, str]) -> None:
        known = APIS[command]["params"]
        given = {
            (m[1] if (m := _MAP.fullmatch(name)) else name): v for name, v in parameters.items()
        }
        for name, value in given.items():
            if name == "listall" and name not in known:
                raise Refusal(431, f"{command} has no parameter {name}")
            if name != "listall":
                self._check_one(command, name, value)
        for name, (_, required, _, _) in known.items():
            if required and not given.get(name):
                raise Refusal(
                    431, f"Unable to execute API command {command.lower()} due to missing parameter"
                    f" {name}",
                )  # fmt: skip
        if ("page" in given) != ("pagesize" in given):
            raise Refusal(431, '"page" and "pagesize" parameters are required together')
        if int(given.get("pagesize", 0)) > self.page:
            raise Refusal(431, f"Page size can not exceed max allowed page size value: {self.page}")

    def _check_one(self, command: str, name: str, value: str) -> None:
        known = APIS[command]["params"]
        if name not in known:
            raise Refusal(431, f"{command} has no parameter {name}")
        type_, _, length, since = known[name]
        if since and _numbers(since) > _numbers(self.world.version):
            raise Refusal(431, f"{command} has no parameter {name} before {since}")
        if type_ == "uuid":
            self._check_id(name, value)
        elif type_ == "integer" and not re.fullmatch(r"-?\d+", value):
            raise Refusal(431, f"Invalid parameter {name}: {value} is no number")
        elif type_ == "boolean" and value not in {"true", "false"}:
            raise Refusal(431, f"Invalid parameter {name}: {value} is no boolean")
        elif type_ == "string" and len(value) > length:
            raise Refusal(431, f"Value greater than max allowed length {length} for {name}")
        if name in {"ids", "virtualmachineids"}:
            for one in value.split(","):
                self._check_id(name, one)

    def _check_id(self, name: str, value: str) -> None:
        world = self.world
        if (name, value) == ("projectid", ALL_PROJECTS):
            return
        try:
            uuid.UUID(value)
        except ValueError:
            raise Refusal(431, absent(name, value)) from None
        kinds = (
            world.zones, world.projects, world.machines, world.networks, world.vpcs, world.acl_lists, world.acl_items, world.ips,
            world.rules, world.policies, world.firewall, world.routes, world.volumes, world.jobs, world.removed,
        )  # fmt: skip
        if not any(value in kind for kind in kinds):
            raise Refusal(431, absent(name, value))


def role() -> frozenset[str]:
    """The commands that the generated role allows."""
    with ROLE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return frozenset(one["rule"] for one in rows if one["permission"] == "allow")


def _java(value: str) -> str:
    """As java.net.URLEncoder, with %20 for a space."""
    return quote_plus(value, safe="*").replace("+", "%20").replace("~", "%7E")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(one) for one in version.split(".")[:2])


def _said(command: str, refusal: Refusal) -> web.Response:
    said = {"uuidList": [], "errorcode": refusal.code, "cserrorcode": 9999}
    body = {f"{command.lower() or 'error'}response": {**said, "errortext": refusal.text}}
    return web.json_response(body, status=refusal.code)


@asynccontextmanager
async def served(emulator: Emulator | None = None) -> AsyncIterator[Emulator]:
    """An emulator that listens on a port of loopback."""
    emulator = emulator or Emulator()
    async with listening(emulator.handle, path=PATH) as url:
        emulator.url = f"{url}{PATH}"
        yield emulator
