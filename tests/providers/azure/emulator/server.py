"""The emulator's HTTP server: requests, rights, quotas, faults and long-running operations."""

import asyncio
import copy
import itertools
import json
import re
import ssl
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from . import graph, pools
from .errors import ArmError, invalid, missing
from .graph import Graph
from .identity import Identity
from .kinds import check_deletion, filled
from .rights import check_action, check_joins, check_right
from .store import LOCATION, SUBSCRIPTION, Resource, Store

LONG = {"loadBalancers", "publicIPAddresses", "networkSecurityGroups", "routeTables",
        "networkInterfaces", "virtualMachines", "virtualMachineScaleSets", "privateLinkServices"}  # fmt: skip
LONGEST_WORK = 1.0
"""Seconds after which an operation that nobody asks about has ended."""
_VERSION = re.compile(r"20\d\d-\d\d-\d\d(-preview)?")
_GROUP = re.compile(r"[\w().-]+")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Fault:
    """A failure of the next requests that match, or of all of them (-1) about a name."""

    def __init__(
        self, method: str, kind: str, *, after_effect: bool = False, status: int = 500,
        code: str = "InternalServerError", times: int = 1, asynchronous: bool = False,
        headers: dict[str, str] | None = None, name: str = "",
    ) -> None:  # fmt: skip
        self.name = name.lower()
        self.method, self.kind, self.after_effect = method, kind.lower(), after_effect
        self.status, self.code, self.times = status, code, times
        self.asynchronous, self.headers = asynchronous, headers or {}

    def error(self) -> ArmError:
        return ArmError(self.status, self.code, "The emulator was told to fail.", self.headers)


class Place:
    """What a path names."""

    def __init__(self, path: str) -> None:
        head, sign, tail = path.strip("/").partition("/providers/")
        parts = head.split("/")
        low = [one.lower() for one in parts]
        if low[0] == "subscriptions" and not _UUID.fullmatch(low[1]):
            text = f"The provided subscription identifier '{parts[1]}' is malformed or invalid."
            raise ArmError(400, "InvalidSubscriptionId", text)
        if not sign or low[0] != "subscriptions" or parts[1].lower() != SUBSCRIPTION:
            raise ArmError(404, "SubscriptionNotFound", f"Subscription {parts[1:2]} not found.")
        self.group = parts[3] if len(parts) > 3 and low[2] == "resourcegroups" else ""
        if self.group and not _GROUP.fullmatch(self.group):
            text = f"The provided resource group name '{self.group}' has these invalid characters"
            raise ArmError(400, "InvalidResourceGroup", text)
        self.namespace, *rest = tail.split("/")
        self.kinds, self.names = rest[::2], rest[1::2]
        self.is_list = len(rest) % 2 == 1
        self.path = "/" + path.strip("/")

    @property
    def kind(self) -> str:
        return "/".join((self.namespace, *self.kinds))


class Emulator:
    """A subscription of Azure, with what it was told to do wrong.

    Attributes:
        page: Resources on a page of a list.
        works: How often an operation says that it goes on; 0: the answer is the end.
        pause: The seconds after which an operation is to be asked about.
        actions: What the caller has the right to; None for everything.
        readers_of_group_only: Whether the caller has rights to resource groups only.
        unlisted: The ids, in small letters, of resources that lists leave out.
        quota: Reads and writes that are let through at once, and for each second.
        requests: All requests, the oldest first: method and type.
    """

    def __init__(self) -> None:
        self.store = Store()
        self.graph = Graph(self.store)
        self.identity = Identity()
        self.url = ""
        self.page = 1000
        self.works = self.pause = 0
        self.delay = 0.0
        self.actions: set[str] | None = None
        self.readers_of_group_only = False
        self.unlisted: set[str] = set()
        self.quota: dict[str, tuple[float, float]] = {}
        self.faults: list[Fault] = []
        self.requests: deque[tuple[str, str]] = deque(maxlen=100_000)
        self.refused: list[str] = []
        self.hooks: list[Callable[[str, str], None]] = []
        self._buckets: dict[str, tuple[float, float]] = {}
        self._operations: dict[str, list[Any]] = {}
        self._numbers = itertools.count(1)

    def counted(self) -> Counter[tuple[str, str]]:
        """The requests since this was called last."""
        found = Counter(self.requests)
        self.requests.clear()
        return found

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_get("/metadata/endpoints", self._endpoints)
        app.router.add_get("/metadata/identity/oauth2/token", self.identity.metadata)
        for version in ("oauth2/token", "oauth2/v2.0/token"):
            app.router.add_post(f"/{{tenant}}/{version}", self.identity.login)
        app.router.add_get("/{tenant}/v2.0/.well-known/openid-configuration", self._openid)
        app.router.add_get("/common/discovery/instance", self._discovery)
        app.router.add_route("*", "/subscriptions/{path:.*}", self._handle)
        app.router.add_post(graph.PATH, self._handle)
        return app

    async def _endpoints(self, request: web.Request) -> web.Response:
        login = {"loginEndpoint": self.url, "audiences": [self.identity.audience]}
        if request.query.get("api-version") == "1.0":
            endpoints = dict.fromkeys(
                ("galleryEndpoint", "graphEndpoint", "portalEndpoint"), self.url
            )
            return web.json_response({**endpoints, "authentication": login})
        # Later versions list the clouds that there are.
        cloud = {
            "name": "AzureStackCloud",
            "resourceManager": self.url,
            "authentication": {**login, "tenant": "common", "identityProvider": "AAD"},
            "suffixes": {"storage": "local"},
        }
        return web.json_response([cloud])

    async def _openid(self, request: web.Request) -> web.Response:
        base = f"{self.url}/{request.match_info['tenant']}"
        return web.json_response(
            {
                "token_endpoint": f"{base}/oauth2/v2.0/token",
                "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
                "issuer": f"{base}/v2.0",
            }
        )

    async def _discovery(self, request: web.Request) -> web.Response:
        return web.json_response({"tenant_discovery_endpoint": f"{self.url}/x", "metadata": []})

    async def _handle(self, request: web.Request) -> web.Response:
        if self.delay:
            await asyncio.sleep(self.delay)
        headers: dict[str, str] = {"x-ms-request-id": str(next(self._numbers))}
        try:
            if not self.identity.is_good(request.headers.get("Authorization", "")):
                raise ArmError(401, "InvalidAuthenticationToken", "The access token is invalid.")
            if not _VERSION.fullmatch(request.query.get("api-version", "")):
                raise invalid("MissingApiVersionParameter", "The api-version is required.")
            self._admit(request.method, headers)
            status, body, more = self._answer(request.method, request, await request.read())
            headers |= more
            if body is None:
                return web.Response(status=status, headers=headers)
            return web.json_response(body, status=status, headers=headers)
        except ArmError as error:
            self.refused.append(f"{request.method} {request.path}: {error.code}: {error.message}")
            return web.json_response(
                error.body(), status=error.status, headers={**headers, **error.headers}
            )

    def _admit(self, method: str, headers: dict[str, str]) -> None:
        """Take a token of the bucket of the principal, as the resource manager counts."""
        kind = "reads" if method == "GET" else "deletes" if method == "DELETE" else "writes"
        if kind not in self.quota:
            return
        burst, rate = self.quota[kind]
        left, then = self._buckets.get(kind, (burst, time.monotonic()))
        now = time.monotonic()
        left = min(burst, left + (now - then) * rate)
        if left < 1:
            self._buckets[kind] = left, now
            wait = max(1, round((1 - left) / rate))
            raise ArmError(
                429, "SubscriptionRequestsThrottled",
                "Number of requests for the subscription exceeded the limit for this interval.",
                {"Retry-After": str(wait), f"x-ms-ratelimit-remaining-subscription-{kind}": "0"},
            )  # fmt: skip
        self._buckets[kind] = left - 1, now
        headers[f"x-ms-ratelimit-remaining-subscription-{kind}"] = str(int(left - 1))

    def _answer(
        self, method: str, request: web.Request, content: bytes
    ) -> tuple[int, Any, dict[str, str]]:
        path = request.path
        if path == graph.PATH:
            self.requests.append((method, graph.KIND))
            return self._queried(json.loads(content))
        if "/locations/" in path.lower():
            self.requests.append((method, "operation"))
            kind = re.split("/providers/", path, flags=re.IGNORECASE)[1].split("/")
            check_action(self.actions, f"{kind[0]}/locations/{kind[3]}/read", path)
            return self._polled(
                path.rpartition("/")[2], is_result="operationresults" in path.lower()
            )
        if path.rstrip("/").lower().endswith("/providers"):
            return 200, {"value": [_provider(f"{path.rstrip('/')}/Microsoft.Compute")]}, {}
        place = Place(path)
        self.requests.append((method, place.kind))
        for hook in self.hooks:
            hook(method, place.path)
        check_right(self.actions, method, place)
        if self.readers_of_group_only and not place.group:
            raise ArmError(403, "AuthorizationFailed", "The role is of a resource group only.")
        before = self._fault(method, place, after_effect=False)
        if before is not None and not before.asynchronous:
            raise before.error()
        done = self._done(method, place, request, content, failing=before)
        after = self._fault(method, place, after_effect=True)
        if after is not None:
            raise after.error()
        return done

    def _queried(self, body: Any) -> tuple[int, Any, dict[str, str]]:
        """Answer a query of the graph."""
        headers = self.graph.admit()
        for fault in self.faults:
            if fault.kind == graph.KIND.lower():
                self.faults.remove(fault)
                raise fault.error()
        return 200, self.graph.answer(body, self.actions), headers

    def _fault(self, method: str, place: Place, *, after_effect: bool) -> Fault | None:
        for fault in self.faults:
            is_it = fault.method == method and place.kind.lower().endswith(fault.kind)
            is_it = is_it and fault.name in place.path.lower()
            if is_it and fault.after_effect is after_effect:
                fault.times -= 1
                if not fault.times:
                    self.faults.remove(fault)
                return fault
        return None

    def _done(
        self, method: str, place: Place, request: web.Request, content: bytes,
        *, failing: Fault | None,
    ) -> tuple[int, Any, dict[str, str]]:  # fmt: skip
        if pools.is_pool(place.kind) and not place.is_list:
            return self._pool(method, place, content)
        if method == "GET" and place.kinds[-1].lower() == "checkipaddressavailability":
            net = place.path.rpartition("/")[0]
            return 200, self.store.availability(net, request.query["ipAddress"]), {}
        if method == "GET":
            return (
                200,
                self._listed(place, request) if place.is_list else self._got(place, request),
                {},
            )
        match = request.headers.get("If-Match", "")
        old = self.store.get(place.path)
        if match and (old is None or match not in {"*", old["etag"]}):
            raise ArmError(412, "PreconditionFailed", f"Precondition failed: {match}.")
        if old is not None and self._is_busy(place.path):
            raise ArmError(
                409, "AnotherOperationInProgress",
                "Another operation on this or dependent resource is in progress.",
            )  # fmt: skip
        if method == "PUT":
            return self._put(place, content, old, failing)
        if method == "DELETE":
            return self._delete(place, old, failing)
        raise ArmError(405, "MethodNotAllowed", f"The method {method} is not allowed.")

    def _pool(self, method: str, place: Place, content: bytes) -> tuple[int, Any, dict[str, str]]:
        """Answer a request about one pool of a load balancer."""
        if method == "PUT":
            body = json.loads(content)
            check_joins(self.actions, {"id": place.path, **body})
            return 200, pools.write(self.store, place.path, body), {}
        if method == "DELETE":
            pools.delete(self.store, place.path)
            return 200, None, {}
        return 200, pools.read(self.store, place.path), {}

    def _put(
        self, place: Place, content: bytes, old: Resource | None, failing: Fault | None
    ) -> tuple[int, Any, dict[str, str]]:
        if place.group.lower() not in self.store.groups:
            raise ArmError(
                404, "ResourceGroupNotFound", f"Resource group '{place.group}' could not be found."
            )
        try:
            body = json.loads(content)
        except ValueError:
            raise invalid("InvalidRequestContent", "The body is no JSON.") from None
        if not body.get("location") or body["location"].lower() != LOCATION:
            raise invalid("LocationRequired", "The location property is required.")
        body.setdefault("id", place.path)
        if body["id"].lower() != place.path.lower():
            raise invalid("InvalidRequestFormat", "The id is another one than the path's.")
        body["id"] = old["id"] if old is not None else place.path
        body["name"], body["type"] = place.names[-1], place.kind
        if old is not None:
            body["name"], body["type"] = old["name"], old["type"]
        check_joins(self.actions, body)
        whole = filled(self.store, copy.deepcopy(body), copy.deepcopy(old))
        if failing is None:
            self.store.put(whole)
        shown = self.store.shown(whole if failing is None else (old or whole))
        headers = self._operation(place, failing) if place.kinds[0] in LONG else {}
        if headers:
            shown["properties"]["provisioningState"] = "Updating"
        return (200 if old is not None else 201), shown, headers

    def _delete(
        self, place: Place, old: Resource | None, failing: Fault | None
    ) -> tuple[int, Any, dict[str, str]]:
        if old is None:
            return 204, None, {}
        check_deletion(self.store, old)
        if failing is None:
            self.store.delete(place.path)
        headers = self._operation(place, failing)
        return (202 if headers else 200), None, headers

    def _operation(self, place: Place, failing: Fault | None) -> dict[str, str]:
        if not self.works and failing is None:
            return {}
        id_ = f"op-{next(self._numbers)}"
        end = time.monotonic() + LONGEST_WORK
        self._operations[id_] = [max(self.works, 1), failing, place.path.lower(), end]
        base = f"{self.url}/subscriptions/{SUBSCRIPTION}/providers/{place.namespace}/locations"
        version = "api-version=2024-05-01"
        return {
            "Azure-AsyncOperation": f"{base}/{LOCATION}/operations/{id_}?{version}",
            "Location": f"{base}/{LOCATION}/operationResults/{id_}?{version}",
            "Retry-After": str(self.pause),
        }

    def _is_busy(self, path: str) -> bool:
        now = time.monotonic()
        return any(
            left and path.lower() == at and now < end
            for left, _, at, end in self._operations.values()
        )

    def _polled(self, id_: str, *, is_result: bool) -> tuple[int, Any, dict[str, str]]:
        found = self._operations.get(id_)
        if found is None:
            raise ArmError(404, "OperationNotFound", f"The operation {id_} was not found.")
        if found[0]:
            found[0] -= 1
            if is_result:
                return 202, None, {"Retry-After": str(self.pause)}
            return 200, {"status": "InProgress"}, {"Retry-After": str(self.pause)}
        if isinstance(found[1], Fault):
            return 200, {"status": "Failed", "error": found[1].error().body()["error"]}, {}
        if is_result:
            one = self.store.get(found[2])
            return (200, self.store.shown(one), {}) if one is not None else (204, None, {})
        return 200, {"status": "Succeeded"}, {}

    def _got(self, place: Place, request: web.Request) -> Resource:
        found = self.store.get(place.path)
        if found is None and place.group.lower() not in self.store.groups:
            raise ArmError(
                404, "ResourceGroupNotFound", f"Resource group '{place.group}' could not be found."
            )
        if found is None:
            parent = place.path.rpartition("/")[0].rpartition("/")[0]
            if len(place.names) > 1 and self.store.get(parent) is None:
                raise ArmError(
                    404, "ParentResourceNotFound", f"The parent resource of {place.path} is gone."
                )
            raise missing(place.kind, "/".join(place.names), place.group)
        shown = self.store.shown(found)
        if request.query.get("$expand") != "instanceView":
            shown["properties"].pop("instanceView", None)
        if self._is_busy(place.path):
            shown["properties"]["provisioningState"] = "Updating"
        return shown

    def _listed(self, place: Place, request: web.Request) -> dict[str, Any]:
        found = [
            one for one in self._of_list(place, request) if one["id"].lower() not in self.unlisted
        ]
        start = int(request.query.get("$skiptoken", "0"))
        part = found[start : start + self.page]
        body: dict[str, Any] = {"value": [self.store.shown(one) for one in part]}
        if request.query.get("$expand") != "instanceView" and not request.query.get("statusOnly"):
            for one in body["value"]:
                one["properties"].pop("instanceView", None)
        if place.kinds[-1].lower() == "virtualmachinescalesets":
            # Lists have no ETags, which are "returned in Create/Update/Get response of the VMSS".
            for one in body["value"]:
                one.pop("etag", None)
        if start + self.page < len(found):
            query = {**request.query, "$skiptoken": str(start + self.page)}
            body["nextLink"] = f"{self.url}{request.rel_url.with_query(query)}"
        return body

    def _of_list(self, place: Place, request: web.Request) -> list[Resource]:
        kind, last = place.kind.lower(), place.kinds[-1].lower()
        if request.query.get("statusOnly") == "true":
            return [_status(one) for one in self.store.kind(place.kind)]
        if place.group and place.group.lower() not in self.store.groups:
            raise ArmError(
                404, "ResourceGroupNotFound", f"Resource group '{place.group}' could not be found."
            )
        if len(place.names) == 1 and last in {"networkinterfaces", "publicipaddresses"}:
            # All interfaces of a scale set, whichever machine they are of.
            prefix = place.path.lower().rpartition("/")[0] + "/virtualmachines/"
            return [
                one for id_, one in sorted(self.store.of.items())
                if id_.startswith(prefix) and one["type"].lower().endswith(last)
            ]  # fmt: skip
        if place.names and self.store.get(place.path.rpartition("/")[0]) is None:
            raise missing(kind, place.names[-1], place.group)
        if request.query.get("$expand") == "instanceView" and kind.endswith("/virtualmachines"):
            needs_filter = not place.names and not request.query.get("$filter")
            if needs_filter:
                raise invalid("InvalidParameter", "$expand needs a $filter here.")
        found = self.store.below(place.path) if place.group else list(self.store.kind(place.kind))
        if wanted := request.query.get("$filter", ""):
            set_ = wanted.rpartition("eq ")[2].strip("' ").lower()
            found = [
                one for one in found
                if (one["properties"].get("virtualMachineScaleSet") or {}).get("id", "").lower() == set_
            ]  # fmt: skip
        return found


def _provider(path: str) -> dict[str, Any]:
    """What the resource manager says about the provider of machines: the zones of regions."""
    mapping = {"location": LOCATION, "zones": ["3", "1", "2"]}
    kind = {"resourceType": "virtualMachines", "zoneMappings": [mapping], "locations": [LOCATION]}
    return {"id": path, "namespace": "Microsoft.Compute", "resourceTypes": [kind]}


def _status(machine: Resource) -> Resource:
    """What the list of statuses shows of a machine: no fault domain, nor that it is hibernated."""
    shown = copy.deepcopy(machine)
    view = shown["properties"].get("instanceView")
    kept = {"vmId": shown["properties"].get("vmId")}
    if view is not None:
        told = [one for one in view["statuses"] if "Hibernation" not in one["code"]]
        kept["instanceView"] = {"statuses": told}
    shown["properties"] = kept
    shown.pop("zones", None)
    return shown


@asynccontextmanager
async def served(
    emulator: Emulator, *, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[Emulator]:
    """Serve on a port of loopback."""
    runner = web.AppRunner(emulator.app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        found = runner.addresses[0][1]
        emulator.url = f"{'https' if tls else 'http'}://127.0.0.1:{found}"
        emulator.identity.audience = f"{emulator.url}/"
        yield emulator
    finally:
        await runner.cleanup()
