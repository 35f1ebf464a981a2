"""The wire of an Octavia, and of Neutron's floating addresses.

As Octavia does, it refuses changes of a load balancer that it still works on, and of what is not
there. It works for as long as it is asked about it `works` times.
"""

import itertools
from typing import Any

from aiohttp import web

from . import octavia_rules as rules
from .groups_wire import GroupsWire
from .wire import NEUTRAL, Json, Wire, neutron, octavia, outdated, said

CHILDREN = ("listeners", "pools", "healthmonitors")
SINGULAR = {
    "loadbalancers": "loadbalancer",
    "listeners": "listener",
    "pools": "pool",
    "healthmonitors": "healthmonitor",
    "floatingips": "floatingip",
}
_HIDDEN = frozenset({"left", "loadbalancer_id", "listener_id", "pool_id"})
"""What only the wire needs to know."""


def revise(floating: Json, **fields: Any) -> None:
    """Change a floating address, as Neutron does: it has another revision then."""
    floating.update(fields, revision_number=floating.get("revision_number", 1) + 1)


class OctaviaWire:
    """Load balancers and floating addresses, in the cloud of a wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._numbers = itertools.count(1)
        self.works = 1
        self.serial_only = False
        self.no_cascade = False
        self.of: dict[str, dict[str, Json]] = {kind: {} for kind in SINGULAR}
        self.members: dict[str, list[Json]] = {}
        self.subnets: dict[str, Json] = {}
        self.groups = GroupsWire(wire)
        self.hidden_subnets: set[str] = set()
        """Those that are there, but of external networks, whose subnets projects do not see."""
        self.most_balancers = 1000
        self.most_floating = 1000
        self.is_admin = False

    def routes(self, app: web.Application) -> None:
        checked, changed = self._wire._checked, self._wire._changed
        for kind in ("loadbalancers", *CHILDREN):
            one, path = SINGULAR[kind], f"/balancing/v2.0/lbaas/{kind}"
            app.router.add_get(path, checked(f"{one}_list", self._lister(kind)))
            app.router.add_post(path, changed(f"{one}_create", self._maker(kind)))
            app.router.add_get(f"{path}/{{id}}", checked(f"{one}_get", self._getter(kind)))
            app.router.add_put(f"{path}/{{id}}", changed(f"{one}_update", self._changer(kind)))
            app.router.add_delete(f"{path}/{{id}}", checked(f"{one}_delete", self._dropper(kind)))
        members = "/balancing/v2.0/lbaas/pools/{id}/members"
        app.router.add_get(members, checked("member_list", self._members))
        app.router.add_put(members, changed("member_update", self._set_members))
        path = "/network/v2.0/floatingips"
        app.router.add_get(path, checked("floatingip_list", self._lister("floatingips")))
        app.router.add_post(path, changed("floatingip_create", self._make_floating))
        app.router.add_put(
            f"{path}/{{id}}", changed("floatingip_update", self._changer("floatingips"))
        )
        app.router.add_delete(
            f"{path}/{{id}}", checked("floatingip_delete", self._dropper("floatingips"))
        )
        app.router.add_get("/network/v2.0/subnets/{id}", checked("subnet_get", self._subnet))
        app.router.add_get("/network/v2.0/subnets", checked("subnet_list", self._subnets))
        self.groups.routes(app)

    def only(self, kind: str) -> Json:
        (found,) = self.of[kind].values()
        return found

    def id(self) -> str:
        return f"20000000-0000-4000-8000-{next(self._numbers):012d}"

    def _lister(self, kind: str) -> Any:
        def listed(request: web.Request) -> web.Response:
            hidden = {"marker", "limit"}
            query = {
                name: request.query.getall(name) for name in request.query if name not in hidden
            }
            if kind == "loadbalancers":
                for one in list(self.of[kind].values()):
                    self._work(one)
            found = [one for one in self.of[kind].values() if _matches(one, query)]
            there = sorted(found, key=lambda one: str(one["id"]))
            return self._wire._page(request, kind, [self._shown(kind, one) for one in there])

        return listed

    def _getter(self, kind: str) -> Any:
        def got(request: web.Request) -> web.Response:
            id_ = request.match_info["id"]
            if kind == "loadbalancers" and id_ in self.of[kind]:
                self._work(self.of[kind][id_])
            found = self.of[kind].get(id_)
            if found is None:
                return _missing(kind, id_)
            return web.json_response({SINGULAR[kind]: self._shown(kind, found)})

        return got

    def _shown(self, kind: str, one: Json, status: str = "") -> Json:
        """As the API has it: a part names its load balancer, and has its status."""
        found = {name: value for name, value in one.items() if name not in _HIDDEN}
        id_ = one["id"]
        if kind == "floatingips":
            found.pop("subnet_id", None)
            router, address = self._wire.router["id"], "10.0.0.200"
            bound = {
                "router_id": router if one.get("port_id") else None,
                "fixed_ip_address": address if one.get("port_id") else None,
            }
            return {**NEUTRAL, "status": "DOWN", "revision_number": 1, **bound, **found}
        is_new = "PENDING_CREATE" in (status, found.get("provisioning_status"))
        found["operating_status"] = "OFFLINE" if is_new else "ONLINE"
        found["updated_at"] = None if is_new else "2026-01-01T00:00:00"
        if kind == "loadbalancers":
            for part in ("listeners", "pools"):
                mine = [of for of in self.of[part].values() if of["loadbalancer_id"] == id_]
                found[part] = [{"id": of["id"]} for of in mine]
            if found["provisioning_status"] == "PENDING_DELETE" and one["left"] <= 0:
                # The row of its address goes with its own, and is read after it.
                found = {name: of for name, of in found.items() if not name.startswith("vip_")}
            return found
        balancer = self.of["loadbalancers"][one["loadbalancer_id"]]
        found["provisioning_status"] = status or balancer["provisioning_status"]
        if kind == "listeners":
            found["loadbalancers"] = [{"id": balancer["id"]}]
        elif kind == "pools":
            found["loadbalancers"] = [{"id": balancer["id"]}]
            users = [of for of in self.of["listeners"].values() if of["default_pool_id"] == id_]
            found["listeners"] = [{"id": of["id"]} for of in users]
            found["members"] = [{"id": one["id"]} for one in self.members[id_]]
            if found["session_persistence"]:
                found["session_persistence"] = {**rules.SESSION, **found["session_persistence"]}
            if not found["healthmonitor_id"]:
                del found["healthmonitor_id"]
        else:
            pools = [of for of in self.of["pools"].values() if of["healthmonitor_id"] == id_]
            found["pools"] = [{"id": of["id"]} for of in pools]
        return found

    def _whole(self, made: Json) -> Json:
        """A load balancer that was made with its parts, as the answer has it."""
        found = self._shown("loadbalancers", made)
        for part in ("listeners", "pools"):
            found[part] = [
                self._shown(part, self.of[part][one["id"]], "PENDING_CREATE") for one in found[part]
            ]
            for one in found[part]:
                del one["loadbalancers"], one["updated_at"]
        for one in found["pools"]:
            one["members"] = self._shown_members(one["id"], "PENDING_CREATE")
            one["healthmonitor"] = None
            one.pop("healthmonitor_id", None)
        return found

    def _shown_members(self, pool: str, status: str) -> list[Json]:
        now = {
            "provisioning_status": status,
            "operating_status": "NO_MONITOR" if status == "PENDING_CREATE" else "ONLINE",
        }
        return [
            {**rules.filled("members", one), "id": one["id"], **now} for one in self.members[pool]
        ]

    def _work(self, balancer: Json) -> None:
        """Octavia goes on."""
        status = balancer["provisioning_status"]
        if not status.startswith("PENDING"):
            return
        balancer["left"] -= 1
        if balancer["left"] < 0:
            if status == "PENDING_DELETE":
                self.remove(balancer["id"])
            balancer["provisioning_status"] = "ACTIVE"

    def remove(self, id_: str) -> None:
        """All of a load balancer, and the port of its VIP."""
        balancer = self.of["loadbalancers"].pop(id_)
        for kind in CHILDREN:
            for one in list(self.of[kind].values()):
                if one["loadbalancer_id"] == id_:
                    del self.of[kind][one["id"]]
        for floating in self.of["floatingips"].values():
            if floating["port_id"] == balancer["vip_port_id"]:
                revise(floating, port_id=None)

    def _busy(
        self, balancer: Json, status: str = "PENDING_UPDATE", *, itself: bool = False
    ) -> web.Response | None:
        """Refused, in other words if the load balancer itself is to be changed; or it works."""
        now = balancer["provisioning_status"]
        fit = {"ACTIVE", "ERROR"} if status == "PENDING_DELETE" else {"ACTIVE"}
        if now not in fit:
            text = f"Load Balancer {balancer['id']} is immutable and cannot be updated."
            if itself:
                text = f"Invalid state {now} of loadbalancer resource {balancer['id']}"
            return octavia(409, text)
        balancer["provisioning_status"] = status
        balancer["left"] = self.works
        return None

    def _maker(self, kind: str) -> Any:
        def make(request: web.Request, body: Json) -> web.Response:
            given = body[SINGULAR[kind]]
            if kind == "loadbalancers":
                return self._room_for(given) or self._make_balancer(given)
            balancer = self._balancer_of(given)
            if isinstance(balancer, web.Response):
                return balancer
            refused = self._busy(balancer)
            if refused is None and (refused := self._unfit(kind, given, balancer)) is not None:
                balancer["provisioning_status"] = "ACTIVE"
            if refused is not None:
                return refused
            made = self.make(kind, given, balancer["id"])
            shown = self._shown(kind, made, "PENDING_CREATE")
            return web.json_response({SINGULAR[kind]: shown}, status=201)

        return make

    def _known_subnets(self) -> set[str]:
        of_ports = {
            str(fixed["subnet_id"]) for port in self._wire.ports for fixed in port["fixed_ips"]
        }
        return {*self.subnets, *of_ports}

    def _room_for(self, given: Json) -> web.Response | None:
        cidr = self.subnets.get(given.get("vip_subnet_id") or "", {}).get("cidr", "")
        if (refused := rules.balancer(given, self._known_subnets(), cidr)) is not None:
            return refused
        if len(self.of["loadbalancers"]) >= self.most_balancers:
            return octavia(403, "Quota has been met for resources: Load Balancer")
        return None

    def _unfit(self, kind: str, given: Json, balancer: Json) -> web.Response | None:
        if kind == "listeners":
            there = [
                one for one in self.of[kind].values() if one["loadbalancer_id"] == balancer["id"]
            ]
            return rules.listener(given, there, balancer["vip_address"])
        if kind == "pools":
            return rules.pool(given, self.of["listeners"].get(given.get("listener_id", "")))
        return rules.monitor(given, self.of["pools"][given["pool_id"]])

    def _balancer_of(self, given: Json) -> Json | web.Response:
        id_ = given.get("loadbalancer_id", "")
        if "listener_id" in given:
            listener = self.of["listeners"].get(given["listener_id"])
            if listener is None:  # it is a fault of Octavia's
                text = "'NoneType' object has no attribute 'load_balancer_id'"
                return said(500, {"faultcode": "Server", "faultstring": text, "debuginfo": None})
            id_ = listener["loadbalancer_id"]
        if "pool_id" in given:
            pool = self.of["pools"].get(given["pool_id"])
            if pool is None:
                return _missing("pools", given["pool_id"])
            id_ = pool["loadbalancer_id"]
        return self.of["loadbalancers"].get(id_) or _missing("loadbalancers", id_)

    def _make_balancer(self, given: Json) -> web.Response:
        subnet = given.get("vip_subnet_id", "")
        is_v6 = self.subnets.get(subnet, {}).get("ip_version") == 6
        network = self.subnets.get(subnet, {}).get("network_id")
        number = len(self.of["loadbalancers"]) + 200
        listeners = given.pop("listeners", [])
        assert not (self.serial_only and listeners)
        made = {
            "vip_address": f"2001:db8::{number}" if is_v6 else f"10.0.0.{number}",
            **rules.filled("loadbalancers", {"vip_network_id": network, **given}),
            "id": self.id(),
            # Octavia's type of UUIDs makes them small.
            "vip_port_id": given.get("vip_port_id", "").lower() or self.id(),
            "created_at": f"2026-01-01T00:00:{number}",
            "provisioning_status": "PENDING_CREATE",
            "left": self.works,
        }
        self.of["loadbalancers"][made["id"]] = made
        for one in listeners:
            self.make("listeners", one, made["id"])
        return web.json_response({"loadbalancer": self._whole(made)}, status=201)

    def make(self, kind: str, given: Json, balancer: str) -> Json:
        """A part, with what is in it."""
        made = {**rules.filled(kind, given), "id": self.id(), "loadbalancer_id": balancer}
        self.of[kind][made["id"]] = made
        if kind == "listeners":
            pool = made.pop("default_pool", None)
            made["default_pool_id"] = self.make("pools", pool, balancer)["id"] if pool else None
        elif kind == "pools":
            self._put_members(made["id"], made.pop("members", []))
            monitor = made.pop("healthmonitor", None)
            made["healthmonitor_id"] = None
            if monitor:
                made["healthmonitor_id"] = self.make("healthmonitors", monitor, balancer)["id"]
            if "listener_id" in made:
                self.of["listeners"][made["listener_id"]]["default_pool_id"] = made["id"]
        elif kind == "healthmonitors" and "pool_id" in made:
            self.of["pools"][made["pool_id"]]["healthmonitor_id"] = made["id"]
        return made

    def _changer(self, kind: str) -> Any:
        def change(request: web.Request, body: Json) -> web.Response:
            id_, given = request.match_info["id"], body[SINGULAR[kind]]
            found = self.of[kind].get(id_)
            if found is None:
                return _missing(kind, id_)
            if (refused := self._unrevised(kind, request, found)) is not None:
                return refused
            refused = self._unchanged(kind, found, given) or self._touched(kind, found)
            if refused is not None:
                return refused
            if kind == "floatingips":
                revise(found, **given)
            else:
                found.update(rules.changed(kind, given))
            return web.json_response({SINGULAR[kind]: self._shown(kind, found)})

        return change

    def _unrevised(self, kind: str, request: web.Request, found: Json) -> web.Response | None:
        """What somebody has changed since it was read; Octavia does not count revisions."""
        return outdated(request, {"revision_number": 1, **found}) if kind == "floatingips" else None

    def _unchanged(self, kind: str, found: Json, given: Json) -> web.Response | None:
        """What cannot be changed like that."""
        if kind == "loadbalancers":
            return rules.balancer_change(given)
        if kind == "listeners":
            vip = self.of["loadbalancers"][found["loadbalancer_id"]]["vip_address"]
            return rules.ranges(given, vip)
        if kind == "floatingips" and given.get("port_id"):
            return self._taken(given["port_id"], found["id"])
        return None

    def _touched(self, kind: str, found: Json) -> web.Response | None:
        if kind == "floatingips":
            return None
        if kind == "loadbalancers":
            return self._busy(found, itself=True)
        return self._busy(self.of["loadbalancers"][found["loadbalancer_id"]])

    def _dropper(self, kind: str) -> Any:
        def drop(request: web.Request) -> web.Response:
            id_ = request.match_info["id"]
            found = self.of[kind].get(id_)
            if found is None:
                return _missing(kind, id_)
            if kind == "loadbalancers":
                return self._drop_balancer(request, found)
            refused = self._unrevised(kind, request, found) or self._touched(kind, found)
            if refused is not None:
                return refused
            del self.of[kind][id_]
            if kind == "pools":
                self.of["healthmonitors"].pop(found["healthmonitor_id"] or "", None)
                for one in self.of["listeners"].values():
                    if one["default_pool_id"] == id_:
                        one["default_pool_id"] = None
            for one in self.of["pools"].values():
                if one["healthmonitor_id"] == id_:
                    one["healthmonitor_id"] = None
            return web.Response(status=204)

        return drop

    def _drop_balancer(self, request: web.Request, found: Json) -> web.Response:
        id_ = found["id"]
        busy = found["provisioning_status"] not in {"ACTIVE", "ERROR"}
        assert not (self.no_cascade and request.query.get("cascade"))
        parts = [one for part in CHILDREN for one in self.of[part].values()]
        is_used = any(one["loadbalancer_id"] == id_ for one in parts)
        if not busy and is_used and request.query.get("cascade") != "true":
            text = f"Cannot delete Load Balancer {id_} - it has children"
            return octavia(400, f"Validation failure: {text}")
        refused = self._busy(found, "PENDING_DELETE", itself=True)
        return refused or web.Response(status=204)

    def _members(self, request: web.Request) -> web.Response:
        id_ = request.match_info["id"]
        if id_ not in self.of["pools"]:
            return _no_pool()
        balancer = self.of["loadbalancers"][self.of["pools"][id_]["loadbalancer_id"]]
        there = self._shown_members(id_, balancer["provisioning_status"])
        return self._wire._page(request, "members", there)

    def _set_members(self, request: web.Request, body: Json) -> web.Response:
        pool = self.of["pools"].get(request.match_info["id"])
        if pool is None:
            return _no_pool()
        refused = rules.members(body["members"], self._known_subnets())
        refused = refused or self._touched("pools", pool)
        if refused is not None:
            return refused
        self._put_members(pool["id"], body["members"])
        return web.Response(status=202)

    def _put_members(self, pool: str, given: list[Json]) -> None:
        """A member is the same as before if address and port are (Octavia's `members.put`)."""
        old = {_key(one): one for one in self.members.get(pool, ())}
        self.members[pool] = [
            {**one, "id": same["id"] if (same := old.get(_key(one))) else self.id()}
            for one in given
        ]

    def _taken(self, port: str, but: str = "") -> web.Response | None:
        """A port that cannot have a floating address."""
        vips = {one["vip_port_id"] for one in self.of["loadbalancers"].values()}
        if port not in vips | {one["id"] for one in self._wire.ports}:
            return neutron(404, "PortNotFound", f"Port {port} could not be found.")
        for one in self.of["floatingips"].values():
            if one["port_id"] == port and one["id"] != but:
                text = (
                    f"Cannot associate floating IP {one['floating_ip_address']} ({one['id']}) with"
                    f" port {port} using fixed IP 10.0.0.1, as that fixed IP already has a"
                    f" floating IP on external network {one['floating_network_id']}."
                )
                return neutron(409, "FloatingIPPortAlreadyAssociated", text)
        return None

    def _make_floating(self, request: web.Request, body: Json) -> web.Response:
        given = body["floatingip"]
        if (refused := self._no_floating(given)) is not None:
            return refused
        number = next(self._numbers)
        made = {
            "floating_ip_address": f"203.0.113.{number}", "port_id": None, "description": "",
            **given, "id": self.id(),
        }  # fmt: skip
        self.of["floatingips"][made["id"]] = made
        return web.json_response({"floatingip": self._shown("floatingips", made)}, status=201)

    def _no_floating(self, given: Json) -> web.Response | None:
        network, subnet = given["floating_network_id"], given.get("subnet_id", "")
        if "floating_ip_address" in given and not self.is_admin:
            rule = "rule:create_floatingip and rule:create_floatingip:floating_ip_address"
            return neutron(403, "PolicyNotAuthorized", f"({rule}) is disallowed by policy")
        if len(self.of["floatingips"]) >= self.most_floating:
            return neutron(409, "OverQuota", "Quota exceeded for resources: ['floatingip'].")
        if network not in self._wire.external:
            text = f"Network {network} is not a valid external network."
            return neutron(400, "BadRequest", f"Bad floatingip request: {text}")
        if subnet and subnet not in {*self.subnets, *self.hidden_subnets}:
            return neutron(404, "SubnetNotFound", f"Subnet {subnet} could not be found.")
        if subnet == "full":
            return neutron(409, "IpAddressGenerationFailure", "No more IP addresses available")
        return self._taken(given["port_id"]) if given.get("port_id") else None

    def _subnet(self, request: web.Request) -> web.Response:
        id_ = request.match_info["id"]
        if id_ not in self.subnets:
            return neutron(404, "SubnetNotFound", f"Subnet {id_} could not be found.")
        return web.json_response({"subnet": self._described(id_)})

    def _subnets(self, request: web.Request) -> web.Response:
        there = [self._described(id_) for id_ in sorted(self.subnets)]
        network, ids = request.query.get("network_id"), request.query.getall("id", None)
        found = [one for one in there if network in {None, one["network_id"]}]
        found = [one for one in found if ids is None or one["id"] in ids]
        return self._wire._page(request, "subnets", found)

    def _described(self, id_: str) -> Json:
        """A subnet: tests say of it what matters to them."""
        found = {
            "name": "", "ip_version": 4, "network_id": "n", "revision_number": 1,
            "enable_dhcp": True, "dns_nameservers": [], "host_routes": [], "service_types": [],
            "subnetpool_id": None, "gateway_ip": "10.0.0.254",
            "allocation_pools": [{"start": "10.0.0.200", "end": "10.0.0.253"}],
        }  # fmt: skip
        return {**NEUTRAL, **found, **self.subnets[id_]}


def _matches(one: Json, query: dict[str, list[str]]) -> bool:
    """Whether it has one of the values of each filter, and of tags all or any."""
    for name, values in query.items():
        if name == "tags":
            if not set(values[0].split(",")) <= set(one["tags"]):
                return False
        elif name == "tags-any":
            if not set(values[0].split(",")) & set(one["tags"]):
                return False
        else:
            name = "loadbalancer_id" if name == "load_balancer_id" else name
            # MySQL compares without case and without spaces at the end.
            if str(one.get(name)).lower() not in (text.lower().rstrip(" ") for text in values):
                return False
    return True


def _key(member: Json) -> tuple[str, int]:
    return member["address"], member["protocol_port"]


def _missing(kind: str, id_: str) -> web.Response:
    if kind == "floatingips":
        return neutron(404, "FloatingIPNotFound", f"Floating IP {id_} could not be found")
    return octavia(404, f"{rules.NAMES[kind]} {id_} not found.")


def _no_pool() -> web.Response:
    """Octavia answers in another form below a pool that is not there."""
    return said(404, {"title": "Bad Request", "description": "Pool not found.", "code": "404"})
