"""The objects that the emulated CloudStack knows, and what its API says of them."""

import heapq
import ipaddress
import itertools
import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .accounts import MAIN, check_access, fields_of, owner_of
from .refusals import Refusal, absent

Json = dict[str, Any]
Effect = Callable[[], Json | None]

ZONE = {"zoneid": "20000000-0000-4000-8000-000000000001", "zonename": "zone-1"}
"""The zone that everything is in unless it says another one."""
TAGS_GO_SINCE = (4, 17, 1)
"""The version since which an address loses its tags when it is released (apache/cloudstack, 6642)."""
CREATED = "2026-01-01T00:00:00+0000"
METHODS = {
    "LbCookie": ("cookie-name", "mode", "nocache", "indirect", "postonly", "domain"),
    "AppCookie": ("cookie-name", "length", "holdtime", "request-learn", "prefix", "mode"),
    "SourceBased": ("tablesize", "expire"),
}
"""The methods of stickiness of a virtual router, with their parameters."""
_STICKY = [
    {"methodname": method, "paramlist": [{"paramname": one} for one in parameters]}
    for method, parameters in METHODS.items()
]
LB = [
    {"name": "SupportedLbAlgorithms", "value": "roundrobin,leastconn,source"},
    {"name": "SupportedProtocols", "value": "tcp, udp, tcp-proxy"},
    {"name": "LbSchemes", "value": "Public"},
    {"name": "SupportedStickinessMethods", "value": json.dumps(_STICKY)},
]
"""What a network of a virtual router says of its load balancing."""
TAGGED = {
    "LoadBalancer": "rules",
    "PublicIpAddress": "ips",
    "Network": "networks",
    "StaticRoute": "routes",
    "FirewallRule": "firewall",
    "NetworkACL": "acl_items",
}
"""The types of objects that can be tagged, with where they are kept."""


class World:
    """All objects by their kinds and ids, their tags, and the jobs."""

    def __init__(self) -> None:
        self.version = "4.22.0.0"
        self.works = 0.0
        """Seconds that CloudStack works on a job."""
        self.is_admin = False
        """Whether the caller is an administrator, who is shown all accounts."""
        self.shows_destroyed = False
        """The setting `allow.user.view.destroyed.vm`."""
        self.projects: dict[str, Json] = {}
        """Projects by id, each with the accounts in it."""
        self.zones: dict[str, Json] = {ZONE["zoneid"]: {**ZONE, "public": str(uuid.uuid4())}}
        """Zones by id, each with the network that all its public addresses are of."""
        self.machines: dict[str, Json] = {}
        self.networks: dict[str, Json] = {}
        self.vpcs: dict[str, Json] = {}
        self.acl_lists: dict[str, Json] = {}
        self.acl_items: dict[str, Json] = {}
        self.ips: dict[str, Json] = {}
        self.rules: dict[str, Json] = {}
        self.policies: dict[str, Json] = {}
        """Stickiness policies of rules."""
        self.members: defaultdict[str, list[str]] = defaultdict(list)
        self.firewall: dict[str, Json] = {}
        self.forwardings: dict[str, Json] = {}
        """Port forwarding rules, which somebody has made by hand."""
        self.tells_rules = True
        """Whether addresses show if there are rules on them, as newer releases do."""
        self.routes: dict[str, Json] = {}
        self.volumes: dict[str, Json] = {}
        self.tags: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        self.jobs: dict[str, Json] = {}
        self.removed: set[str] = set()
        """Ids of what was deleted: the database keeps them."""
        self._due: list[tuple[float, int, Json, Effect]] = []
        self._numbers = itertools.count(1)
        self.now: Callable[[], float] = lambda: 0.0

    # What tests put in

    def add_project(self, name: str, members: Iterable[str] = (MAIN,)) -> str:
        """A project with accounts in it; the id."""
        id_ = str(uuid.uuid4())
        self.projects[id_] = {"id": id_, "name": name, "members": set(members)}
        return id_

    def add_zone(self, name: str) -> Mapping[str, str]:
        """A zone; what objects in it say of it."""
        zone = {"zoneid": str(uuid.uuid4()), "zonename": name}
        self.zones[zone["zoneid"]] = {**zone, "public": str(uuid.uuid4())}
        return zone

    def add_network(
        self,
        *,
        vpc: bool = False,
        cidr: str = "10.1.0.0/16",
        acl: str = "mine",
        owner: str = MAIN,
        zone: Mapping[str, str] = ZONE,
    ) -> str:
        """An isolated network, or a tier of a VPC of its own; the id."""
        id_ = str(uuid.uuid4())
        of_owner = fields_of(self, owner)
        services = ["Lb", "Dhcp", "Dns", "NetworkACL" if vpc else "Firewall"]
        self.networks[id_] = {
            "id": id_, "name": f"network-{len(self.networks)}", "type": "Isolated", **zone,
            **of_owner, "cidr": cidr, "state": "Implemented",
            "service": [
                {"name": one, "capability": LB if one == "Lb" else [], "provider": []}
                for one in services
            ],
        }  # fmt: skip
        if vpc:
            of, list_ = str(uuid.uuid4()), str(uuid.uuid4())
            self.vpcs[of] = {"id": of, "name": "vpc", "cidr": "10.0.0.0/8", **zone, **of_owner}
            self.acl_lists[list_] = {"id": list_, "name": acl, "vpcid": of}
            self.networks[id_] |= {"vpcid": of, "aclid": list_, "aclname": acl}
        return id_

    def add_machines(self, names: Iterable[str], network: str, **fields: Any) -> list[str]:
        """Running machines with a NIC in a network, of its zone and its owner; their ids."""
        made = []
        zone = {key: self.networks[network][key] for key in ZONE}
        of_owner = fields_of(self, owner_of(self, "networks", self.networks[network]))
        cidr = ipaddress.ip_network(self.networks[network]["cidr"])
        for name in names:
            id_, number = str(uuid.uuid4()), next(self._numbers)
            nic = {
                "id": str(uuid.uuid4()), "networkid": network, "isdefault": True,
                "ipaddress": str(cidr[number + 9]), "networkname": self.networks[network]["name"],
            }  # fmt: skip
            self.machines[id_] = {
                "id": id_, "name": name, "displayname": name, "state": "Running", **zone,
                **of_owner, "serviceofferingname": "Small Instance", "nic": [nic], "created": CREATED, **fields,
            }  # fmt: skip
            made.append(id_)
        return made

    def add_addresses(self, first: str, count: int, zone: Mapping[str, str] = ZONE) -> None:
        """Free public addresses of a zone."""
        start = ipaddress.ip_address(first)
        for number in range(count):
            id_ = str(uuid.uuid4())
            place = {"networkid": self.zones[zone["zoneid"]]["public"], **zone}
            self.ips[id_] = {"id": id_, "ipaddress": str(start + number), "state": "Free", **place}

    def remove_machine(self, id_: str) -> None:
        """A machine is expunged: the database still knows its id."""
        del self.machines[id_]
        self.removed.add(id_)
        for members in self.members.values():
            if id_ in members:
                members.remove(id_)

    def release(self, id_: str) -> None:
        """A public address is free again, and all rules on it are gone."""
        for kind, rule in list(self.rules_at(id_)):
            self.remove(kind, rule)
            self.members.pop(rule, None)
        for field in self.ips[id_].keys() - {"id", "ipaddress", "networkid", *ZONE}:
            del self.ips[id_][field]
        if tuple(map(int, self.version.split("."))) >= TAGS_GO_SINCE:
            self.tags.pop(("PublicIpAddress", id_), None)
        self.ips[id_]["state"] = "Free"

    def rules_at(self, id_: str) -> Iterator[tuple[str, str]]:
        """All rules on a public address: of load balancers, of the firewall, of port forwarding."""
        fields = {"rules": "publicipid", "firewall": "ipaddressid", "forwardings": "ipaddressid"}
        for kind, field in fields.items():
            for rule, one in getattr(self, kind).items():
                if one[field] == id_:
                    yield kind, rule

    # What commands use

    def the(self, kind: str, id_: str, parameter: str = "id") -> Json:
        """The object of an id; one that is gone, never was or is another's is refused."""
        objects: dict[str, Json] = getattr(self, kind)
        if id_ not in objects:
            if id_ in self.removed:
                raise Refusal(431, f"Unable to find {kind} by id; it is removed")
            raise Refusal(431, absent(parameter, id_))
        check_access(self, kind, objects[id_])
        return objects[id_]

    def remove(self, kind: str, id_: str) -> None:
        getattr(self, kind).pop(id_, None)
        self.removed.add(id_)
        for policy in [one["id"] for one in self.policies.values() if one["lbruleid"] == id_]:
            del self.policies[policy]
            self.removed.add(policy)
        for key in [key for key in self.tags if key[1] == id_]:
            del self.tags[key]

    def shown(self, kind: str, one: Json) -> Json:
        """An object with its tags, and an address with whether there are rules on it."""
        type_ = next(name for name, kept in TAGGED.items() if kept == kind)
        tags = self.tags.get((type_, one["id"]), {})
        if kind == "ips" and self.tells_rules:
            one = {**one, "hasrules": any(self.rules_at(one["id"]))}
        if kind in {"rules", "routes"} or (kind == "ips" and one["state"] != "Free"):
            one = {**one, **fields_of(self, owner_of(self, kind, one))}
        return {**one, "tags": [{"key": key, "value": value} for key, value in tags.items()]}

    def new_id(self) -> str:
        return str(uuid.uuid4())

    def work(self, command: str, effect: Effect, **told: Any) -> Json:
        """Begin a job; what the command answers at once."""
        id_ = self.new_id()
        job: Json = {"jobid": id_, "cmd": command, "jobstatus": 0, "jobprocstatus": 0}
        job |= {"jobresultcode": 0, "created": CREATED}
        self.jobs[id_] = job
        heapq.heappush(self._due, (self.now() + self.works, next(self._numbers), job, effect))
        self.advance()
        return {**told, "jobid": id_}

    def advance(self) -> None:
        """Do the work of all jobs whose time has come."""
        while self._due and self._due[0][0] <= self.now():
            _, _, job, effect = heapq.heappop(self._due)
            try:
                result = effect() or {"success": True}
                job |= {"jobstatus": 1, "jobresulttype": "object", "jobresult": result}
            except Refusal as refusal:
                said = {"errorcode": refusal.code, "errortext": refusal.text}
                job |= {"jobstatus": 2, "jobresultcode": 530, "jobresulttype": "object"}
                job["jobresult"] = said


def map_of(parameters: Mapping[str, str], name: str, field: str = "key") -> dict[str, str]:
    """A parameter of the type map: `tags[0].key=a&tags[0].value=b`, or with a name for its key."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for key, value in parameters.items():
        if key.startswith(f"{name}["):
            number, _, part = key.removeprefix(f"{name}[").partition("].")
            found[number][part] = value
    return {one[field]: one.get("value", "") for one in found.values()}


def listed(text: str) -> list[str]:
    """A parameter of the type list."""
    return [one for one in (part.strip() for part in text.split(",")) if one]
