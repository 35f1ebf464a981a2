"""The wire of an OpenStack: what keystone, Nova and Neutron answer to the requests of instances.

It checks what is asked and counts every request. The real services are in `test_real.py`.
"""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from proreus.cloudprovider.config import read
from proreus.cloudprovider.context import Context
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.kube.objects import KubeObject, Node, NodeAddress, NodeSpec, NodeStatus, ObjectMeta
from proreus.providers.openstack import OpenStackCloud
from proreus.providers.openstack.config import OpenStackConfig

Json = dict[str, Any]

CLUSTER = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-000000000001")
LONGEST_LINE = 8190
ROUTER = "10000000-0000-4000-8000-000000000000"


class Wire:
    """The services, and the objects that they know."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: Counter[str] = Counter()
        self.logins: list[Json] = []
        self.good_tokens = {"token-1"}
        self.page = 1000
        self.servers: dict[str, Json] = {}
        self.unlisted: set[str] = set()
        self.ports: list[Json] = []
        self.networks: dict[str, str] = {}
        self.flavors: dict[str, str] = {"f1": "m1.large"}
        self.failures: dict[str, list[web.Response]] = {}
        self.names: list[str] = []
        self.router: Json = {"id": ROUTER, "routes": [], "revision_number": 1}
        self.is_atomic = True
        self.most_routes = 30
        self.volumes: dict[str, Json] = {}
        self.external = {"10000000-0000-4000-8000-0000000000ff": "public"}
        self.more: list[Callable[[web.Application], None]] = []

    def add(self, number: int, name: str = "", **fields: Any) -> str:
        """A server with one port; its id."""
        id_ = uuid(number)
        self.servers[id_] = {
            "id": id_,
            "name": name or f"node-{number}",
            "status": "ACTIVE",
            "flavor": {"id": "f1"},
            "OS-EXT-AZ:availability_zone": "nova",
            "addresses": {},
            "metadata": {},
            **fields,
        }
        address = f"10.0.{number // 250}.{number % 250 + 1}"
        self.ports.append(port(f"p-{number}", id_, address))
        return id_

    def fail(self, operation: str, *answers: web.Response) -> None:
        """Answer these to the next requests of that operation."""
        self.failures[operation] = list(answers)

    def config(self, extra: str = "", sections: str = "") -> str:
        return f"""
[Global]
auth-url = {self.url}/identity/v3
username = ccm
password = planted-secret
tenant-name = demo
domain-name = Default
region = RegionOne
{extra}
{sections}
"""

    def app(self) -> web.Application:
        app = web.Application(handler_args={"max_line_size": LONGEST_LINE})
        app.router.add_post("/identity/v3/auth/tokens", self._login)
        for operation, path, handler in (
            ("server_list", "/compute/v2.1/servers/detail", self._servers),
            ("server_get", "/compute/v2.1/servers/{id}", self._server),
            ("flavor_get", "/compute/v2.1/flavors/{id}", self._flavor),
            ("volume_get", "/volume/v3/p/volumes/{id}", self._volume),
            ("port_list", "/network/v2.0/ports", self._ports),
            ("network_list", "/network/v2.0/networks", self._networks),
        ):
            app.router.add_get(path, self._checked(operation, handler))
        routed = f"/network/v2.0/routers/{ROUTER}"
        extension = "/network/v2.0/extensions/extraroute-atomic"
        app.router.add_get(extension, self._checked("extension_get", self._extension))
        app.router.add_get(routed, self._checked("router_get", self._router))
        app.router.add_get("/network/v2.0/ports/{id}", self._checked("port_get", self._port))
        for more in self.more:
            more(app)
        for path in ("", "/add_extraroutes", "/remove_extraroutes"):
            app.router.add_put(f"{routed}{path}", self._changed("router_update", self._reroute))
        app.router.add_put("/network/v2.0/ports/{id}", self._changed("port_update", self._repair))
        return app

    def _changed(self, operation: str, handler: Any) -> Any:
        """A change: of the revision that it names, or refused."""

        async def changed(request: web.Request) -> web.Response:
            body = await request.json()
            checked = self._checked(operation, lambda asked: handler(asked, body))
            answer: web.Response = await checked(request)
            return answer

        return changed

    def _extension(self, request: web.Request) -> web.Response:
        if self.is_atomic:
            return web.json_response({"extension": {"alias": "extraroute-atomic"}})
        return neutron(404, "HTTPNotFound", "Extension not found")

    def _router(self, request: web.Request) -> web.Response:
        return web.json_response({"router": self.router})

    def _reroute(self, request: web.Request, body: Json) -> web.Response:
        given, last = body["router"]["routes"], request.path.rpartition("/")[2]
        if request.headers.get("If-Match", "") not in {
            "", f"revision_number={self.router['revision_number']}",
        }:  # fmt: skip
            return neutron(412, "RevisionNumberConstraintFailed", "changed meanwhile")
        before = self.router["routes"]
        after = given
        if last == "add_extraroutes":
            after = before + [one for one in given if one not in before]
        elif last == "remove_extraroutes":
            after = [one for one in before if one not in given]
        if any(one["nexthop"].startswith("192.0.2.") for one in given):
            return neutron(400, "InvalidRoutes", "the nexthop is not connected with router")
        if len(after) > self.most_routes:
            return neutron(400, "RoutesExhausted", "maximum number of routes exceeded")
        self.router = {
            **self.router, "routes": after, "revision_number": self.router["revision_number"] + 1,
        }  # fmt: skip
        return self._router(request)

    def port(self, id_: str) -> Json:
        return next(one for one in self.ports if one["id"] == id_)

    def pairs(self, id_: str) -> list[str]:
        return [pair["ip_address"] for pair in self.port(id_)["allowed_address_pairs"]]

    def _port(self, request: web.Request) -> web.Response:
        return web.json_response({"port": self.port(request.match_info["id"])})

    def _repair(self, request: web.Request, body: Json) -> web.Response:
        found = self.port(request.match_info["id"])
        if request.headers["If-Match"] != f"revision_number={found['revision_number']}":
            return neutron(412, "RevisionNumberConstraintFailed", "changed meanwhile")
        found.update(body["port"], revision_number=found["revision_number"] + 1)
        return self._port(request)

    def _checked(self, operation: str, handler: Any) -> Any:
        async def checked(request: web.Request) -> web.Response:
            self.asked[operation] += 1
            if request.headers["X-Auth-Token"] not in self.good_tokens:
                return said(401, {"error": {"code": 401, "title": "Unauthorized", "message": "no"}})
            if waiting := self.failures.get(operation):
                return waiting.pop(0)
            answer: web.Response = handler(request)
            return answer

        return checked

    async def _login(self, request: web.Request) -> web.Response:
        self.asked["token_create"] += 1
        self.logins.append((await request.json())["auth"])
        if waiting := self.failures.get("token_create"):
            return waiting.pop(0)
        services = {
            "compute": "compute/v2.1",
            "network": "network",
            "volumev3": "volume/v3/p",
            "load-balancer": "balancing",
        }
        catalog = [
            {
                "type": type_,
                "name": type_,
                "id": type_,
                "endpoints": [
                    {
                        "id": f"{type_}-{region}",
                        "interface": "public",
                        "region": region,
                        "region_id": region,
                        "url": f"{self.url}/{path}" if region == "RegionOne" else "http://[::1]:9",
                    }
                    for region in ("RegionTwo", "RegionOne")
                ],
            }
            for type_, path in services.items()
        ]
        token = {
            "methods": ["password"],
            "user": {"id": "u", "name": "ccm", "domain": {"id": "default", "name": "Default"}},
            "project": {"id": "p", "name": "demo", "domain": {"id": "default", "name": "Default"}},
            "expires_at": "2099-01-01T00:00:00.000000Z",
            "issued_at": "2026-01-01T00:00:00.000000Z",
            "catalog": catalog,
            "roles": [],
        }
        subject = {"X-Subject-Token": f"token-{len(self.logins)}"}
        return web.json_response({"token": token}, status=201, headers=subject)

    def _servers(self, request: web.Request) -> web.Response:
        wanted = request.query.get("name", "")
        if wanted:
            self.names.append(wanted)
        there = [
            one
            for id_, one in sorted(self.servers.items())
            if id_ not in self.unlisted and re.search(wanted, one["name"], re.IGNORECASE)
        ]
        return self._page(request, "servers", there)

    def _page(self, request: web.Request, field: str, there: list[Json]) -> web.Response:
        marker = request.query.get("marker", "")
        rest = [one for one in there if one["id"] > marker]
        body: Json = {field: rest[: self.page]}
        if len(rest) > self.page:
            last = body[field][-1]["id"]
            href = f"http://inside.example.org/{field}?limit={self.page}&marker={last}"
            body[f"{field}_links"] = [{"rel": "next", "href": href}]
        return web.json_response(body)

    def _server(self, request: web.Request) -> web.Response:
        found = self.servers.get(request.match_info["id"])
        if found is None:
            return said(404, {"itemNotFound": {"code": 404, "message": "Instance not found."}})
        return web.json_response({"server": found})

    def _volume(self, request: web.Request) -> web.Response:
        found = self.volumes.get(request.match_info["id"])
        if found is None:
            return said(404, {"itemNotFound": {"code": 404, "message": "Volume not found."}})
        return web.json_response({"volume": found})

    def _flavor(self, request: web.Request) -> web.Response:
        id_ = request.match_info["id"]
        if id_ not in self.flavors:
            return said(404, {"itemNotFound": {"code": 404, "message": "Flavor not found."}})
        return web.json_response({"flavor": {"id": id_, "name": self.flavors[id_]}})

    def _ports(self, request: web.Request) -> web.Response:
        (by,) = {"device_id", "id", "fixed_ips"} & set(request.query)
        wanted = set(request.query.getall(by))

        def values(of: Json) -> set[str]:
            if by != "fixed_ips":
                return {of[by]}
            return {f"ip_address={one['ip_address']}" for one in of["fixed_ips"]}

        found = [one for one in self.ports if values(one) & wanted]
        there = sorted(found, key=lambda one: str(one["id"]))
        return self._page(request, "ports", there)

    def _networks(self, request: web.Request) -> web.Response:
        if "router:external" in request.query:
            found = [{"id": id_, "name": name} for id_, name in self.external.items()]
            return web.json_response({"networks": found})
        wanted = request.query.getall("id")
        found = [{"id": id_, "name": self.networks[id_]} for id_ in wanted if id_ in self.networks]
        return web.json_response({"networks": found})


def said(status: int, body: Any, **headers: str) -> web.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.Response(
        status=status, text=json.dumps(body), content_type="application/json", headers=named
    )


def neutron(status: int, type_: str, message: str) -> web.Response:
    return said(status, {"NeutronError": {"type": type_, "message": message, "detail": ""}})


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def port(id_: str, server: str, *addresses: str, **fields: Any) -> Json:
    fixed = [{"subnet_id": "s", "ip_address": address} for address in addresses]
    return {
        "id": id_,
        "device_id": server,
        "status": "ACTIVE",
        "network_id": "n",
        "fixed_ips": fixed,
        "mac_address": "fa:16:3e:00:00:01",
        "allowed_address_pairs": [],
        "port_security_enabled": True,
        "revision_number": 1,
        **fields,
    }


class Events:
    def event(self, obj: KubeObject, type_: str, reason: str, message: str, /) -> None:
        raise AssertionError((reason, message))


@asynccontextmanager
async def served(wire: Wire | None = None) -> AsyncIterator[Wire]:
    wire = wire or Wire()
    runner = web.AppRunner(wire.app(), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        address = runner.addresses[0]
        wire.url = f"http://{address[0]}:{address[1]}"
        yield wire
    finally:
        await runner.cleanup()


def context(now: Any = None) -> Context:
    return Context(CLUSTER, now=now, events=Events(), listers={})


def cloud(text: str) -> OpenStackCloud:
    return OpenStackCloud(read(text, OpenStackConfig, source="cloud.conf"))


@asynccontextmanager
async def started(text: str, with_: Context | None = None) -> AsyncIterator[OpenStackCloud]:
    provider = cloud(text)
    try:
        await provider.start(with_ or context())
        yield provider
    finally:
        await provider.close()


def node(name: str, provider_id: str = "", *addresses: str, **labels: str) -> Node:
    return Node(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", labels=labels),
        spec=NodeSpec(provider_id=provider_id),
        status=NodeStatus(
            addresses=tuple(NodeAddress("InternalIP", address) for address in addresses)
        ),
    )


def of(ids: Iterable[str]) -> list[Node]:
    return [node(f"n{i}", f"openstack:///{id_}") for i, id_ in enumerate(ids)]


def shown(machine: Any) -> list[tuple[str, str]]:
    return [(one.type, one.address) for one in machine.addresses]
