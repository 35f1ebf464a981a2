"""The wire of Neutron's security groups.

As Neutron does, it makes a group with two rules that let everything out, refuses a rule that is
there already, and a whole request for it, and does not delete a group that a port has. Two groups
may have one name.
"""

import ipaddress
import itertools
from typing import Any

from aiohttp import web

from .wire import NEUTRAL, Json, Wire, neutron, nowhere

_RULE = ("direction", "ethertype", "protocol", "port_range_min", "port_range_max")


class GroupsWire:
    """Security groups, in the cloud of a wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._numbers = itertools.count(1)
        self.most = 100
        self.has_tags = True
        self.is_there = True
        self.of: dict[str, Json] = {}
        wire.has_group = self._has

    def _has(self, id_: str) -> bool:
        """Those that ports have from the start are there, too."""
        return id_ in self.of or any(id_ in one["security_groups"] for one in self._wire.ports)

    def routes(self, app: web.Application) -> None:
        checked, changed = self._wire._checked, self._wire._changed
        path, rules = "/network/v2.0/security-groups", "/network/v2.0/security-group-rules"
        app.router.add_get(path, checked("security_group_list", self._list))
        app.router.add_post(path, changed("security_group_create", self._make))
        app.router.add_delete(f"{path}/{{id}}", checked("security_group_delete", self._drop))
        app.router.add_put(f"{path}/{{id}}/tags", changed("security_group_tag", self._tag))
        app.router.add_post(rules, changed("security_group_rule_create", self._add))
        app.router.add_delete(
            f"{rules}/{{id}}", checked("security_group_rule_delete", self._remove)
        )

    def add(self, name: str, **fields: Any) -> Json:
        """A group as Neutron makes it."""
        number = next(self._numbers)
        common = {name: value for name, value in NEUTRAL.items() if name != "tags"}
        made: Json = {
            **common,
            "revision_number": 1,
            "shared": False,
            "stateful": True,
            "id": f"30000000-0000-4000-8000-{number:012d}",
            "name": name,
            "created_at": f"2026-01-01T00:{number:02d}:00Z",
            "security_group_rules": [],
            **({"tags": []} if self.has_tags else {}),
            **fields,
        }
        self.of[made["id"]] = made
        for family in ("IPv4", "IPv6"):
            self.add_rule(made, direction="egress", ethertype=family)
        return made

    def add_rule(self, group: Json, **fields: Any) -> Json:
        rule = {
            **NEUTRAL,
            "revision_number": 1,
            "description": "" if "remote_ip_prefix" in fields else None,
            "normalized_cidr": fields.get("remote_ip_prefix"),
            "remote_address_group_id": None,
            "standard_attr_id": 1,
            "id": f"40000000-0000-4000-8000-{next(self._numbers):012d}",
            "security_group_id": group["id"],
            "direction": "ingress",
            "ethertype": "IPv4",
            "protocol": None,
            "port_range_min": None,
            "port_range_max": None,
            "remote_ip_prefix": None,
            "remote_group_id": None,
            **fields,
        }
        group["security_group_rules"].append(rule)
        return rule

    def only(self) -> Json:
        (found,) = self.of.values()
        return found

    def lets_in(self) -> set[tuple[str, str, int, str]]:
        """All rules of the only group, of which each must let something in."""
        rules = self.only()["security_group_rules"]
        assert all(one["direction"] == "ingress" for one in rules)
        assert all(one["port_range_min"] == one["port_range_max"] for one in rules)
        return {
            (one["ethertype"], one["protocol"], one["port_range_min"], one["remote_ip_prefix"])
            for one in rules
        }

    def remove(self, id_: str) -> None:
        """Delete a group as nobody could, whatever has it."""
        del self.of[id_]
        for port in self._wire.ports:
            port["security_groups"] = [one for one in port["security_groups"] if one != id_]

    def _list(self, request: web.Request) -> web.Response:
        if not self.is_there:
            return nowhere()
        if "tags" in request.query and not self.has_tags:
            return neutron(400, "HTTPBadRequest", "['tags'] is invalid attribute for filtering")
        found = [
            one
            for one in self.of.values()
            if request.query.get("name", one["name"]) == one["name"]
            and request.query.get("tags", "") in {"", *one.get("tags", ())}
        ]
        return self._wire._page(request, "security_groups", found)

    def _make(self, request: web.Request, body: Json) -> web.Response:
        if len(self.of) >= self.most:
            text = "Quota exceeded for resources: ['security_group']."
            return neutron(409, "OverQuota", text)
        made = self.add(**body["security_group"])
        return web.json_response({"security_group": made}, status=201)

    def _tag(self, request: web.Request, body: Json) -> web.Response:
        found = self.of.get(request.match_info["id"])
        if found is None:
            text = f"Resource security_groups {request.match_info['id']} could not be found."
            return neutron(404, "TagResourceNotFound", text)
        found["tags"] = body["tags"]
        return web.json_response({"tags": body["tags"]})

    def _add(self, request: web.Request, body: Json) -> web.Response:
        for one in body["security_group_rules"]:
            if (refused := self._no_rule(one)) is not None:
                return refused
        hidden = {"standard_attr_id", "tags"}
        made = [
            self.add_rule(self.of[one["security_group_id"]], **one)
            for one in body["security_group_rules"]
        ]
        shown = [{key: one[key] for key in one if key not in hidden} for one in made]
        return web.json_response({"security_group_rules": shown}, status=201)

    def _no_rule(self, given: Json) -> web.Response | None:
        family, prefix = given["ethertype"], given["remote_ip_prefix"]
        try:
            version = ipaddress.ip_network(prefix or "0.0.0.0/0", strict=False).version
        except ValueError:
            return neutron(400, "InvalidCIDR", f"Invalid CIDR {prefix} given as IP prefix.")
        if prefix and family != f"IPv{version}":
            text = f"Conflicting value ethertype {family} for CIDR {prefix}"
            return neutron(400, "SecurityGroupRuleParameterConflict", text)
        group = self.of.get(given["security_group_id"])
        if group is None:
            return _no_group(given["security_group_id"])
        for one in group["security_group_rules"]:
            if _key(one) == _key(given):
                text = f"Security group rule already exists. Rule id is {one['id']}."
                return neutron(409, "SecurityGroupRuleExists", text)
        return None

    def _remove(self, request: web.Request) -> web.Response:
        for group in self.of.values():
            for rule in group["security_group_rules"]:
                if rule["id"] == request.match_info["id"]:
                    group["security_group_rules"].remove(rule)
                    return web.Response(status=204)
        text = f"Security group rule {request.match_info['id']} does not exist"
        return neutron(404, "SecurityGroupRuleNotFound", text)

    def _drop(self, request: web.Request) -> web.Response:
        id_ = request.match_info["id"]
        if id_ not in self.of:
            return _no_group(id_)
        if any(id_ in port["security_groups"] for port in self._wire.ports):
            return neutron(409, "SecurityGroupInUse", f"Security Group {id_} in use.")
        del self.of[id_]
        return web.Response(status=204)


def _no_group(id_: str) -> web.Response:
    return neutron(404, "SecurityGroupNotFound", f"Security group {id_} does not exist")


def _key(rule: Json) -> tuple[object, ...]:
    everyone = "::/0" if rule["ethertype"] == "IPv6" else "0.0.0.0/0"
    source = ipaddress.ip_network(rule["remote_ip_prefix"] or everyone, strict=False)
    return (*(rule[name] for name in _RULE), source)
