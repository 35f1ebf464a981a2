"""The wire of an OpenStack: what keystone, Nova and Neutron answer to the requests of instances.

It checks what is asked and counts every request. What it answers is what the real services answer:
`test_recorded.py` compares. Only Cinder is not among those; its part is from the API's reference.
"""

import ipaddress
import json
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from proreus.cloudprovider.config import read
from proreus.cloudprovider.context import Context
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.refused import cloud_error
from proreus.cloudprovider.requests import Answer, Request
from proreus.kube.objects import KubeObject, Node, Service
from proreus.providers.nova.errors import read_error
from proreus.providers.openstack import OpenStackCloud
from proreus.providers.openstack.config import OpenStackConfig
from proreus.testing import objects

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path

Json = dict[str, Any]

CLUSTER = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-000000000001")
LONGEST_LINE = 8190
ROUTER = "10000000-0000-4000-8000-000000000000"
NEUTRAL: Json = {
    "project_id": "p", "tenant_id": "p", "description": "", "tags": [],
    "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
}  # fmt: skip
"""What all objects of Neutron have."""
_BOOKMARK: Json = {"rel": "bookmark", "href": "http://inside.example.org/"}
_LINKS = [{**_BOOKMARK, "rel": "self"}, _BOOKMARK]
_SERVER: Json = {
    "status": "ACTIVE", "flavor": {"id": "f1", "links": [_BOOKMARK]}, "metadata": {},
    "OS-EXT-AZ:availability_zone": "nova", "addresses": {}, "accessIPv4": "", "accessIPv6": "",
    "user_id": "u", "tenant_id": "p", "key_name": None, "hostId": "h", "config_drive": "",
    "created": "2026-01-01T00:00:00Z", "updated": "2026-01-01T00:00:00Z", "links": _LINKS,
    "image": {"id": "i", "links": [_BOOKMARK]}, "security_groups": [{"name": "default"}],
    "os-extended-volumes:volumes_attached": [], "OS-DCF:diskConfig": "MANUAL",
    "OS-EXT-STS:power_state": 1, "OS-EXT-STS:task_state": None, "OS-EXT-STS:vm_state": "active",
}  # fmt: skip
_FLAVOR: Json = {
    "vcpus": 1, "ram": 512, "disk": 1, "swap": "", "rxtx_factor": 1.0, "links": _LINKS,
    "OS-FLV-DISABLED:disabled": False, "OS-FLV-EXT-DATA:ephemeral": 0,
    "os-flavor-access:is_public": True,
}  # fmt: skip


class Wire:
    """The services, and the objects that they know."""

    def __init__(self) -> None:
        self.url = ""
        self.operations: set[str] = set()
        """All that it can be asked for."""
        self.asked: Counter[str] = Counter()
        self.user_agents: set[str] = set()
        self.logins: list[Json] = []
        self.good_tokens = {"token-1"}
        self.page = 1000
        self.servers: dict[str, Json] = {}
        self.unlisted: set[str] = set()
        self.down: set[str] = set()
        """Servers of cells that are down: https://docs.openstack.org/api-guide/compute/down_cells.html"""
        self.ports: list[Json] = []
        self.networks: dict[str, str] = {}
        self.flavors: dict[str, str] = {"f1": "m1.large"}
        self.failures: dict[str, list[web.Response]] = {}
        self.names: list[str] = []
        self.router: Json = {
            "id": ROUTER, "name": "router", "status": "ACTIVE", "flavor_id": None, "routes": [],
            "revision_number": 1, "admin_state_up": True, "availability_zones": [],
            "availability_zone_hints": [], **NEUTRAL,
        }  # fmt: skip
        self.is_atomic = True
        self.most_routes = 30
        self.volumes: dict[str, Json] = {}
        self.external = {"10000000-0000-4000-8000-0000000000ff": "public"}
        self.network_tags: dict[str, list[str]] = {}
        self.network_projects: dict[str, str] = {}
        self.strangers = {"wrong", "nowhere"}
        """Passwords and projects that keystone does not know."""
        self.most_pairs = 10
        self.has_group: Callable[[str], bool] = lambda _: True
        self.more: list[Callable[[web.Application], None]] = []
        self.meanwhile: dict[str, Callable[[], object]] = {}
        """What somebody else does right before the next request of an operation."""

    def add(self, number: int, name: str = "", **fields: Any) -> str:
        """A server with one port; its id."""
        id_ = uuid(number)
        self.servers[id_] = {
            **_SERVER,
            "id": id_,
            "name": name or f"node-{number}",
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
        app.on_response_prepare.append(self._note)
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
        routed = "/network/v2.0/routers/{id}"
        extension = "/network/v2.0/extensions/{alias}"
        app.router.add_get(extension, self._checked("extension_get", self._extension))
        app.router.add_get(routed, self._checked("router_get", self._router))
        app.router.add_get("/network/v2.0/ports/{id}", self._checked("port_get", self._port))
        for more in self.more:
            more(app)
        for path in ("", "/add_extraroutes", "/remove_extraroutes"):
            app.router.add_put(f"{routed}{path}", self._changed("router_update", self._reroute))
        app.router.add_put("/network/v2.0/ports/{id}", self._changed("port_update", self._repair))
        app.router.add_get("/network/v2.0/nothing", self._checked("nothing", lambda _: nowhere()))
        app.on_response_prepare.append(_versioned)
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
        alias = request.match_info["alias"]
        if self.is_atomic and alias == "extraroute-atomic":
            about = {"name": "Atomically add/remove extra routes", "description": "", "links": []}
            return web.json_response({"extension": {"alias": alias, **about}})
        text = (
            "The resource could not be found.<br /><br />\n"
            f"Extension with alias {alias} does not exist\n\n\n"
        )
        return said(404, {"message": text, "code": "404 Not Found", "title": "Not Found"})

    def _router(self, request: web.Request) -> web.Response:
        if (id_ := request.match_info["id"]) != self.router["id"]:
            return neutron(404, "RouterNotFound", f"Router {id_} could not be found")
        return web.json_response({"router": self.router})

    def _reroute(self, request: web.Request, body: Json) -> web.Response:
        if request.match_info["id"] != self.router["id"]:
            return self._router(request)
        given, last = body["router"]["routes"], request.path.rpartition("/")[2]
        if (refused := outdated(request, self.router)) is not None:
            return refused
        before = self.router["routes"]
        after = given
        if last == "add_extraroutes":
            after = before + [one for one in given if one not in before]
        elif last == "remove_extraroutes":
            after = [one for one in before if one not in given]
        if (refused := self._impossible(given, after)) is not None:
            return refused
        self.router = {
            **self.router, "routes": after, "revision_number": self.router["revision_number"] + 1,
        }  # fmt: skip
        return self._router(request)

    def _impossible(self, given: list[Json], after: list[Json]) -> web.Response | None:
        for one in given:
            if not _is_network(one["destination"]):
                text = f"invalid IPNetwork {one['destination']}"
                return neutron(400, "AddrFormatError", text)
        if len(after) > self.most_routes:
            text = (
                f"Unable to complete operation for {self.router['id']}. The number of routes"
                f" exceeds the maximum {self.most_routes}."
            )
            return neutron(400, "RoutesExhausted", text)
        if any(one["nexthop"].startswith("192.0.2.") for one in given):
            text = f"Invalid format for routes: {after}, the nexthop is not connected with router"
            return neutron(400, "InvalidRoutes", text)
        return None

    def port(self, id_: str) -> Json:
        return next(one for one in self.ports if one["id"] == id_)

    def pairs(self, id_: str) -> list[str]:
        return [pair["ip_address"] for pair in self.port(id_)["allowed_address_pairs"]]

    def _port(self, request: web.Request) -> web.Response:
        id_ = request.match_info["id"].lower()  # as MySQL compares
        if not any(one["id"] == id_ for one in self.ports):
            return neutron(404, "PortNotFound", f"Port {id_} could not be found.")
        return web.json_response({"port": self.port(id_)})

    def _repair(self, request: web.Request, body: Json) -> web.Response:
        if (there := self._port(request)).status != 200:
            return there
        found = self.port(request.match_info["id"])
        if (refused := outdated(request, found)) is not None:
            return refused
        given = dict(body["port"])
        if given.get("security_groups") and not found["port_security_enabled"]:
            text = "Port security must be enabled and port must have an IP address"
            return neutron(400, "PortSecurityAndIPRequiredForSecurityGroups", text)
        for id_ in given.get("security_groups", ()):
            if not self.has_group(id_):
                text = f"Security group {id_} does not exist"
                return neutron(404, "SecurityGroupNotFound", text)
        if "allowed_address_pairs" in given:
            pairs = given["allowed_address_pairs"]
            if (refused := self._unfit(pairs)) is not None:
                return refused
            mac = {"mac_address": found["mac_address"]}
            given["allowed_address_pairs"] = [{**mac, **pair} for pair in pairs]
        found.update(given, revision_number=found["revision_number"] + 1)
        return self._port(request)

    def _unfit(self, pairs: list[Json]) -> web.Response | None:
        """Address pairs that no port can have."""
        if len(pairs) > self.most_pairs:
            text = f"The number of allowed address pair exceeds the maximum {self.most_pairs}."
            return neutron(400, "AllowedAddressPairExhausted", text)
        for number, pair in enumerate(pairs):
            address = pair["ip_address"]
            if not _is_network(address):
                return neutron(400, "HTTPBadRequest", f"'{address}' is not a valid IP address")
            if pair in pairs[:number]:
                text = f"duplicate address pair: mac_address None ip_address {address}."
                return neutron(400, "DuplicateAddressPairInRequest", f"Request contains {text}")
        return None

    def _checked(self, operation: str, handler: Any) -> Any:
        self.operations.add(operation)

        async def checked(request: web.Request) -> web.Response:
            self.asked[operation] += 1
            if request.headers["X-Auth-Token"] not in self.good_tokens:
                return _unauthorized()
            if (others := self.meanwhile.pop(operation, None)) is not None:
                others()
            if waiting := self.failures.get(operation):
                return waiting.pop(0)
            answer: web.Response = handler(request)
            return answer

        return checked

    async def _note(self, request: web.Request, _: web.StreamResponse) -> None:
        self.user_agents.add(request.headers["User-Agent"])

    async def _login(self, request: web.Request) -> web.Response:
        self.asked["token_create"] += 1
        self.logins.append((await request.json())["auth"])
        if waiting := self.failures.get("token_create"):
            return waiting.pop(0)
        user = self.logins[-1]["identity"].get("password", {}).get("user", {})
        project = self.logins[-1].get("scope", {}).get("project", {})
        if self.strangers & {user.get("password"), project.get("name")}:
            self.logins.pop()
            return _unauthorized()
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
            "project": {
                "id": "p",
                "name": project.get("name", "demo"),
                "domain": {"id": "default", "name": "Default"},
            },
            "expires_at": "2099-01-01T00:00:00.000000Z",
            "issued_at": "2026-01-01T00:00:00.000000Z",
            "catalog": catalog,
            "roles": [{"id": "r", "name": "member"}],
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
            if id_ not in self.unlisted | self.down
            and re.search(wanted, one["name"], re.IGNORECASE)
        ]
        shows_cells = request.headers.get("OpenStack-API-Version") == "compute 2.69"
        if shows_cells and not wanted and len(there) < self.page:
            there += [{"id": id_, "status": "UNKNOWN"} for id_ in sorted(self.down)]
        return self._page(request, "servers", there)

    def _page(self, request: web.Request, field: str, there: list[Json]) -> web.Response:
        """A page; as long as it is full, the services say that there is another one.

        Nova is silent about the last page, Neutron always names the one before, Octavia if there
        is one.
        """
        marker = request.query.get("marker", "")
        is_strict = field in {"servers", "loadbalancers"}
        if marker and is_strict and not any(one["id"] == marker for one in there):
            return _no_marker(field, marker)
        limit = min(self.page, int(request.query.get("limit", self.page)))
        shown = [one for one in there if one["id"] > marker][:limit]
        links = []
        if len(shown) == limit:
            query = f"limit={limit}&marker={shown[-1]['id']}"
            links.append({"rel": "next", "href": f"http://inside.example.org/{field}?{query}"})
        is_neutron = request.path.startswith("/network")
        if is_neutron or (marker and field != "servers"):
            href = f"http://inside.example.org/{field}?page_reverse=True"
            links.append({"rel": "previous", "href": href})
        body: Json = {field: [_chosen(request, one) for one in shown]}
        if links or field != "servers":
            body[f"{field}_links"] = links
        return web.json_response(body)

    def _server(self, request: web.Request) -> web.Response:
        id_ = request.match_info["id"]
        if id_ in self.down:
            text = "Unexpected API Error."
            return said(500, {"computeFault": {"code": 500, "message": text}})
        if id_ not in self.servers:
            text = f"Instance {id_} could not be found."
            return said(404, {"itemNotFound": {"code": 404, "message": text}})
        return web.json_response({"server": self.servers[id_]})

    def _volume(self, request: web.Request) -> web.Response:
        found = self.volumes.get(request.match_info["id"])
        if found is None:
            return said(404, {"itemNotFound": {"code": 404, "message": "Volume not found."}})
        return web.json_response({"volume": found})

    def _flavor(self, request: web.Request) -> web.Response:
        id_ = request.match_info["id"]
        if id_ not in self.flavors:
            text = f"Flavor {id_} could not be found."
            return said(404, {"itemNotFound": {"code": 404, "message": text}})
        return web.json_response({"flavor": {**_FLAVOR, "id": id_, "name": self.flavors[id_]}})

    def _ports(self, request: web.Request) -> web.Response:
        known = {"device_id", "id", "fixed_ips", "network_id", "security_groups"}
        (by,) = known & set(request.query)
        wanted = set(request.query.getall(by))

        def values(of: Json) -> set[str]:
            if by == "fixed_ips":
                return {f"ip_address={one['ip_address']}" for one in of["fixed_ips"]}
            return set(of[by]) if by == "security_groups" else {of[by]}

        found = [one for one in self.ports if values(one) & wanted]
        there = sorted(found, key=lambda one: str(one["id"]))
        return self._page(request, "ports", there)

    def _networks(self, request: web.Request) -> web.Response:
        found = {**self.networks, **self.external}
        if "router:external" in request.query:
            found = self.external
        if "id" in request.query:
            wanted = set(request.query.getall("id"))
            found = {id_: name for id_, name in found.items() if id_ in wanted}
        there: list[Json] = [
            {"id": id_, "name": name, "tags": self.network_tags.get(id_, [])}
            for id_, name in sorted(found.items())
        ]
        if "project_id" in request.query.getall("fields", ()):
            for one in there:
                one["project_id"] = self.network_projects.get(str(one["id"]), "p")
                one |= {"shared": False, "router:external": one["id"] in self.external}
        return self._page(request, "networks", there)


async def _versioned(request: web.Request, response: web.StreamResponse) -> None:
    if request.path.startswith("/compute") and response.status != 401:
        response.headers["OpenStack-API-Version"] = "compute 2.1"


def _unauthorized() -> web.Response:
    text = "The request you have made requires authentication."
    return said(401, {"error": {"code": 401, "message": text, "title": "Unauthorized"}})


def _no_marker(field: str, marker: str) -> web.Response:
    if field == "servers":
        text = f"marker [{marker}] not found"
        return said(400, {"badRequest": {"code": 400, "message": text}})
    return octavia(400, f"Supplied pagination marker '{marker}' is not valid.")


def _chosen(request: web.Request, one: Json) -> Json:
    """With those fields that are asked for."""
    wanted = request.query.getall("fields", [])
    return {name: one[name] for name in wanted if name in one} if wanted else one


def outdated(request: web.Request, found: Json) -> web.Response | None:
    """Refused, if it has another revision by now than the one that it is to have."""
    revision = found["revision_number"]
    asked = request.headers.get("If-Match", f"revision_number={revision}").partition("=")[2]
    if asked == str(revision):
        return None
    text = f"Constrained to {asked}, but current revision is {revision}"
    return neutron(412, "RevisionNumberConstraintFailed", text)


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def said(status: int, body: Any, **headers: str) -> web.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.Response(
        status=status, text=json.dumps(body), content_type="application/json", headers=named
    )


def neutron(status: int, type_: str, message: str) -> web.Response:
    return said(status, {"NeutronError": {"type": type_, "message": message, "detail": ""}})


def nowhere() -> web.Response:
    """Neutron's answer where it serves nothing."""
    return neutron(404, "HTTPNotFound", "The resource could not be found.")


def octavia(status: int, text: str) -> web.Response:
    return said(status, {"faultcode": "Client", "faultstring": text, "debuginfo": None})


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
        "security_groups": [uuid(1000)],
        "revision_number": 1,
        "name": "",
        "admin_state_up": True,
        "device_owner": "compute:nova",
        "binding:vnic_type": "normal",
        "extra_dhcp_opts": [],
        **NEUTRAL,
        **fields,
    }


class Events:
    def event(self, obj: KubeObject, type_: str, reason: str, message: str, /) -> None:
        raise AssertionError((reason, message))


def error_of(status: int, body: str) -> CloudError:
    """The provider's error for an answer."""
    answer = Answer(Request("nova.x", "GET", ""), status, {}, body.encode())
    return cloud_error("nova.x", status, read_error(answer), text=body)


@asynccontextmanager
async def served(
    wire: Wire | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Wire]:
    wire = wire or Wire()
    runner = web.AppRunner(wire.app(), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        address = runner.addresses[0]
        wire.url = f"{'http' if tls is None else 'https'}://{address[0]}:{address[1]}"
        yield wire
    finally:
        await runner.cleanup()


def context(
    now: Any = None,
    flags: Mapping[str, Any] | None = None,
    nodes: Iterable[Node] = (),
    services: Iterable[Service] = (),
) -> Context:
    now = now or (lambda: datetime.now(UTC))
    listers = {"nodes": Objects(nodes), "services": Objects(services)}
    return Context(CLUSTER, now=now, events=Events(), listers=listers, flags=flags or {})


def cloud(text: str) -> OpenStackCloud:
    return OpenStackCloud(read(text, OpenStackConfig, source="cloud.conf"))


@asynccontextmanager
async def started(
    text: str, with_: Context | None = None, *, confirm: float = 10.0
) -> AsyncIterator[OpenStackCloud]:
    provider = cloud(text)
    provider.confirm = confirm
    try:
        await provider.start(with_ or context())
        yield provider
    finally:
        await provider.close()


def node(name: str, provider_id: str = "", *addresses: str, **labels: str) -> Node:
    return objects.node(name, provider_id, addresses=addresses, labels=labels)


def of(ids: Iterable[str]) -> list[Node]:
    return [node(f"n{i}", f"openstack:///{id_}") for i, id_ in enumerate(ids)]


def shown(machine: Any) -> list[tuple[str, str]]:
    return [(one.type, one.address) for one in machine.addresses]
