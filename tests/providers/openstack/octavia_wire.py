"""The wire of an Octavia, and of Neutron's floating addresses.

As Octavia does, it refuses changes of a load balancer that it still works on, and of what is not
there. It works for as long as it is asked about it `works` times.
"""

import itertools
from typing import Any

from aiohttp import web

from .wire import Json, Wire, neutron, said

CHILDREN = ("listeners", "pools", "healthmonitors")
SINGULAR = {
    "loadbalancers": "loadbalancer",
    "listeners": "listener",
    "pools": "pool",
    "healthmonitors": "healthmonitor",
    "floatingips": "floatingip",
}


class OctaviaWire:
    """Load balancers and floating addresses, in the cloud of a wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._numbers = itertools.count(1)
        self.works = 1
        self.serial_only = False
        self.of: dict[str, dict[str, Json]] = {kind: {} for kind in SINGULAR}
        self.members: dict[str, list[Json]] = {}
        self.subnets: dict[str, Json] = {}

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

    def only(self, kind: str) -> Json:
        (found,) = self.of[kind].values()
        return found

    def id(self) -> str:
        return f"20000000-0000-4000-8000-{next(self._numbers):012d}"

    def _lister(self, kind: str) -> Any:
        def listed(request: web.Request) -> web.Response:
            query = {name: value for name, value in request.query.items() if name != "marker"}
            found = [one for one in self.of[kind].values() if _matches(one, query)]
            if kind == "loadbalancers":
                for one in found:
                    self._work(one)
                found = [one for one in found if one["id"] in self.of[kind]]
            return self._wire._page(request, kind, sorted(found, key=lambda one: str(one["id"])))

        return listed

    def _getter(self, kind: str) -> Any:
        def got(request: web.Request) -> web.Response:
            found = self.of[kind].get(request.match_info["id"])
            return _missing() if found is None else web.json_response({SINGULAR[kind]: found})

        return got

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
                floating["port_id"] = None

    def _busy(self, balancer: Json, status: str = "PENDING_UPDATE") -> web.Response | None:
        if balancer["provisioning_status"] not in {"ACTIVE", "ERROR"}:
            text = f"Load Balancer {balancer['id']} is immutable and cannot be updated."
            return said(409, {"faultcode": "Client", "faultstring": text, "debuginfo": None})
        balancer["provisioning_status"] = status
        balancer["left"] = self.works
        return None

    def _maker(self, kind: str) -> Any:
        def make(request: web.Request, body: Json) -> web.Response:
            given = body[SINGULAR[kind]]
            if kind == "loadbalancers":
                return self._make_balancer(given)
            balancer = self._balancer_of(given)
            if balancer is None:
                return _missing()
            if (refused := self._busy(balancer)) is not None:
                return refused
            return web.json_response(
                {SINGULAR[kind]: self.make(kind, given, balancer["id"])}, status=201
            )

        return make

    def _balancer_of(self, given: Json) -> Json | None:
        id_ = given.get("loadbalancer_id", "")
        if "listener_id" in given:
            id_ = self.of["listeners"].get(given["listener_id"], {}).get("loadbalancer_id", "")
        if "pool_id" in given:
            id_ = self.of["pools"].get(given["pool_id"], {}).get("loadbalancer_id", "")
        return self.of["loadbalancers"].get(id_)

    def _make_balancer(self, given: Json) -> web.Response:
        subnet = given.get("vip_subnet_id", "")
        is_v6 = self.subnets.get(subnet, {}).get("ip_version") == 6
        number = len(self.of["loadbalancers"]) + 200
        listeners = given.pop("listeners", [])
        assert not (self.serial_only and listeners)
        made = {
            "tags": [],
            "vip_network_id": "private",
            "vip_address": f"2001:db8::{number}" if is_v6 else f"10.0.0.{number}",
            **given,
            "id": self.id(),
            "vip_port_id": self.id(),
            "created_at": f"2026-01-01T00:00:{number}",
            "provisioning_status": "PENDING_CREATE",
            "left": self.works,
        }
        self.of["loadbalancers"][made["id"]] = made
        for one in listeners:
            self.make("listeners", one, made["id"])
        return web.json_response({"loadbalancer": made}, status=201)

    def make(self, kind: str, given: Json, balancer: str) -> Json:
        """A part, with what is in it."""
        made = {**given, "id": self.id(), "loadbalancer_id": balancer}
        self.of[kind][made["id"]] = made
        if kind == "listeners":
            pool = made.pop("default_pool", None)
            made["default_pool_id"] = self.make("pools", pool, balancer)["id"] if pool else None
        elif kind == "pools":
            self.members[made["id"]] = made.pop("members", [])
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
            found = self.of[kind].get(request.match_info["id"])
            if found is None:
                return _missing()
            refused = self._touched(kind, found)
            if refused is not None:
                return refused
            found.update(body[SINGULAR[kind]])
            return web.json_response({SINGULAR[kind]: found})

        return change

    def _touched(self, kind: str, found: Json) -> web.Response | None:
        if kind == "floatingips":
            return None
        balancer = found if kind == "loadbalancers" else found["loadbalancer_id"]
        return self._busy(
            balancer if isinstance(balancer, dict) else self.of["loadbalancers"][balancer]
        )

    def _dropper(self, kind: str) -> Any:
        def drop(request: web.Request) -> web.Response:
            id_ = request.match_info["id"]
            found = self.of[kind].get(id_)
            if found is None:
                return _missing()
            if kind == "loadbalancers":
                parts = [one for part in CHILDREN for one in self.of[part].values()]
                is_used = any(one["loadbalancer_id"] == id_ for one in parts)
                if is_used and request.query.get("cascade") != "true":
                    return said(400, {"faultcode": "Client", "faultstring": "has children"})
                refused = self._busy(found, "PENDING_DELETE")
                return refused or web.Response(status=204)
            if (refused := self._touched(kind, found)) is not None:
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

    def _members(self, request: web.Request) -> web.Response:
        id_ = request.match_info["id"]
        if id_ not in self.of["pools"]:
            return _missing()
        there = [{"id": str(n), **one} for n, one in enumerate(self.members[id_])]
        return web.json_response({"members": there})

    def _set_members(self, request: web.Request, body: Json) -> web.Response:
        pool = self.of["pools"].get(request.match_info["id"])
        if pool is None:
            return _missing()
        if (refused := self._touched("pools", pool)) is not None:
            return refused
        self.members[pool["id"]] = body["members"]
        return web.Response(status=202)

    def _make_floating(self, request: web.Request, body: Json) -> web.Response:
        given = body["floatingip"]
        if given.get("subnet_id") == "full":
            return neutron(409, "IpAddressGenerationFailure", "No more IP addresses available")
        number = next(self._numbers)
        made = {"floating_ip_address": f"203.0.113.{number}", **given, "id": self.id()}
        self.of["floatingips"][made["id"]] = made
        return web.json_response({"floatingip": made}, status=201)

    def _subnet(self, request: web.Request) -> web.Response:
        found = self.subnets.get(request.match_info["id"])
        if found is None:
            return neutron(404, "SubnetNotFound", "Subnet could not be found.")
        return web.json_response({"subnet": found})

    def _subnets(self, request: web.Request) -> web.Response:
        return self._wire._page(request, "subnets", list(self.subnets.values()))


def _matches(one: Json, query: dict[str, str]) -> bool:
    for name, value in query.items():
        if name == "tags":
            if value not in one["tags"]:
                return False
        else:
            name = "loadbalancer_id" if name == "load_balancer_id" else name
            if str(one.get(name)) != value:
                return False
    return True


def _missing() -> web.Response:
    return said(404, {"faultcode": "Client", "faultstring": "not found", "debuginfo": None})
