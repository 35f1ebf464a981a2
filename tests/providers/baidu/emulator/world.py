"""What there is in the emulated region, and when changes take effect."""

import heapq
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Json = dict[str, Any]

CREATED: Final = "2026-11-21T08:00:00Z"
ZONES: Final = ("cn-bj-a", "cn-bj-b", "cn-bj-c")
SPEC: Final = "bcc.g5.c2m8"
BLB_QUOTA, LISTENER_QUOTA, SERVER_QUOTA, EIP_QUOTA = 60, 50, 50, 100


class Refusal(Exception):
    """The signal that the API refuses."""

    def __init__(self, status: int, code: str, text: str = "refused") -> None:
        super().__init__(text)
        self.status, self.code, self.text = status, code, text


def absent(what: str) -> Refusal:
    return Refusal(404, "NoSuchObject", f"The specified object is not found: {what}")


def invalid(text: str) -> Refusal:
    return Refusal(400, "InappropriateJSON", text)


class World:
    """One region of an account."""

    def __init__(self) -> None:
        self.settle = 0.0
        """Seconds until something made, bound or resized is so."""
        self.is_busy = False
        """Whether a load balancer takes no other change until the cloud has settled."""
        self.vpcs: dict[str, Json] = {}
        self.subnets: dict[str, Json] = {}
        self.instances: dict[str, Json] = {}
        self.bare_metals: dict[str, Json] = {}
        self.bare_vpcs: dict[str, str] = {}
        """The VPCs of machines of BBC, which their descriptions do not name."""
        self.volumes: dict[str, Json] = {}
        self.rules: dict[str, Json] = {}
        self.balancers: dict[str, Json] = {}
        self.listeners: dict[str, dict[tuple[str, int], Json]] = {}
        self.servers: dict[str, dict[str, int]] = {}
        self.eips: dict[str, Json] = {}
        self.answered: dict[tuple[str, str], Json] = {}
        """Answers to creations by operation and token."""
        self._numbers = itertools.count(1)
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def new_id(self, prefix: str) -> str:
        return f"{prefix}-{next(self._numbers):08x}"

    def later(self, effect: Callable[[], None]) -> None:
        """Let something happen once the cloud has settled."""
        heapq.heappush(self._due, (time.monotonic() + self.settle, next(self._numbers), effect))
        self.advance()

    def occupy(self, balancer: Json) -> None:
        """Let a load balancer work on a change."""
        if self.is_busy:
            balancer["status"] = "updating"
            self.later(lambda: balancer.update(status="available"))

    def advance(self) -> None:
        """Let all happen whose time has come."""
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()

    # What operators do

    def add_vpc(self, cidr: str = "10.0.0.0/8") -> str:
        id_ = self.new_id("vpc")
        table = self.new_id("rt")
        self.vpcs[id_] = {"cidr": cidr, "routeTableId": table}
        return id_

    def add_subnet(self, vpc: str, kind: str = "BCC", name: str = "nodes") -> str:
        id_ = self.new_id("sbn")
        self.subnets[id_] = {
            "subnetId": id_, "name": name, "zoneName": ZONES[0], "cidr": "10.0.0.0/16",
            "vpcId": vpc, "subnetType": kind, "description": "", "createdTime": CREATED,
            "availableIp": 60000, "tags": [],
        }  # fmt: skip
        return id_

    def add_machines(self, names: Sequence[str], subnet: str, **fields: Any) -> list[str]:
        ids = []
        for name in names:
            id_, number = self.new_id("i"), next(self._numbers)
            self.instances[id_] = {
                "id": id_, "name": f"cce-{name}", "hostname": name, "instanceType": "N5",
                "spec": SPEC, "desc": "", "status": "Running", "paymentTiming": "Postpaid",
                "createTime": CREATED, "expireTime": "", "publicIp": "",
                "internalIp": f"10.0.{number // 250 % 250}.{number % 250 + 1}",
                "cpuCount": 2, "memoryCapacityInGB": 8, "zoneName": ZONES[number % 3],
                "subnetId": subnet, "vpcId": self.subnets[subnet]["vpcId"], "tags": [], **fields,
            }  # fmt: skip
            ids.append(id_)
        return ids

    def add_bare_metal(self, name: str, vpc: str = "", **fields: Any) -> str:
        """Start a machine of BBC."""
        id_, number = self.new_id("i"), next(self._numbers)
        self.bare_vpcs[id_] = vpc
        self.bare_metals[id_] = {
            "id": id_, "name": name, "hostname": name, "status": "Running", "flavorId": "BBC-S3-02",
            "internalIp": f"10.2.0.{number}", "zone": "cn-bj-b", "region": "bj", "tags": [],
            **fields,
        }  # fmt: skip
        return id_

    def address_of(self, id_: str) -> str:
        """The private address of a machine."""
        return str({**self.instances, **self.bare_metals}[id_]["internalIp"])

    def remove_machine(self, id_: str) -> None:
        """Release a machine; load balancers and routes lose it."""
        del self.instances[id_]
        for servers in self.servers.values():
            servers.pop(id_, None)
        self.rules = {key: one for key, one in self.rules.items() if one["nexthopId"] != id_}

    def add_volume(self, zone: str = ZONES[1]) -> str:
        id_ = self.new_id("v")
        self.volumes[id_] = {"id": id_, "name": "data", "zoneName": zone, "status": "Available"}
        return id_

    def add_balancer(self, subnet: str, name: str, desc: str = "", **fields: Any) -> str:
        id_ = self.new_id("lb")
        self.balancers[id_] = {
            "blbId": id_, "name": name, "desc": desc, "address": f"10.1.0.{len(self.balancers) + 1}",
            "status": "available", "vpcId": self.subnets[subnet]["vpcId"], "subnetId": subnet,
            "publicIp": "", "tags": [], "allowDelete": True, **fields,
        }  # fmt: skip
        self.listeners[id_] = {}
        self.servers[id_] = {}
        return id_

    def add_eip(self, name: str = "kept", holder: str = "", **fields: Any) -> str:
        number = next(self._numbers)
        ip = f"180.76.{number // 250}.{number % 250 + 1}"
        self.eips[ip] = {
            "name": name, "eip": ip, "eipId": self.new_id("ip"), "status": "available",
            "instanceType": "", "instanceId": "", "bandwidthInMbps": 100,
            "paymentTiming": "Postpaid", "billingMethod": "ByTraffic", "createTime": CREATED,
            "expireTime": "", "tags": [], **fields,
        }  # fmt: skip
        if holder:
            self.hold(ip, holder)
        return ip

    def hold(self, ip: str, holder: str) -> None:
        """Bind an address."""
        kind = "BLB" if holder in self.balancers else "BCC"
        self.eips[ip] |= {"status": "binded", "instanceType": kind, "instanceId": holder}
        self.show(ip, holder)

    def show(self, ip: str, holder: str) -> None:
        if holder in self.balancers:
            self.balancers[holder]["publicIp"] = ip

    def let_go(self, ip: str) -> None:
        """Unbind an address."""
        holder = self.eips[ip]["instanceId"]
        self.eips[ip] |= {"status": "available", "instanceType": "", "instanceId": ""}
        self.show("", holder)

    def drop_balancer(self, id_: str) -> None:
        """Delete a load balancer, whatever uses it."""
        for ip, one in self.eips.items():
            if one["instanceId"] == id_:
                self.let_go(ip)
        for kind in (self.balancers, self.listeners, self.servers):
            kind.pop(id_, None)

    def balancer(self, id_: str) -> Json:
        if id_ not in self.balancers:
            raise absent(id_)
        return self.balancers[id_]

    def eip(self, ip: str) -> Json:
        if ip not in self.eips:
            raise absent(ip)
        return self.eips[ip]


def listed(text: str, most: int = 100) -> list[str]:
    """A parameter that is a list."""
    found = [one for one in text.split(",") if one]
    if len(found) > most:
        raise Refusal(400, "InvalidParameter", f"at most {most} are supported")
    return found


def chosen(objects: Mapping[str, Json], **fields: str) -> list[Json]:
    """The objects whose fields have these values; an empty one is any."""
    return [
        one
        for one in objects.values()
        if all(not value or one.get(field) == value for field, value in fields.items())
    ]
