"""What there is in one environment of an emulated Rancher, and how it changes with time."""

import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from .schemas import SERVICES, Json

TRANSITIONAL: Final = re.compile(r".*ing(-.*)?|requested|rolling-back")
_IMAGE: Final = "rancher/lb-service-haproxy:v0.7.5"


class Refusal(Exception):
    """An error that Rancher says."""

    def __init__(self, status: int, code: str, field: str | None = None, text: str = "") -> None:
        super().__init__(code)
        self.status, self.code, self.field, self.text = status, code, field, text


class World:
    """One environment."""

    def __init__(self) -> None:
        self.now: Callable[[], float] = lambda: 0.0
        self.works = 0.0
        """Seconds that each transition takes; 0: until the next request."""
        self.links_follow = True
        """Whether links follow the rules of a load balancer by themselves."""
        self.no_host: str = ""
        """Why no load balancer can be started, if none can."""
        self.objects: dict[str, Json] = {}
        self._due: list[tuple[float, str, str, Callable[[Json], None] | None]] = []
        self._count = 0
        self.settings = {"lb.instance.image": _IMAGE, "api.host": ""}

    # Hosts

    def add_hosts(
        self, names: Iterable[str], *, ips: int = 1, state: str = "active", **fields: Any
    ) -> list[str]:
        """Register hosts; their uuids."""
        made = []
        for name in names:
            host = self.new(
                "host", "h", hostname=name, name=None, state=state, agentState=None, info=None,
                labels={}, **fields,
            )  # fmt: skip
            number = len(self.of("host"))
            addresses = [
                f"10.{42 + extra}.{number // 250}.{number % 250 + 1}" for extra in range(ips)
            ]
            for address in addresses:
                self.new("ipAddress", "ip", address=address, state="active", hostId=host["id"])
            host["agentIpAddress"] = addresses[0] if addresses else None
            made.append(str(host["uuid"]))
        return made

    def host(self, uuid_: str) -> Json:
        return next(one for one in self.of("host") if one["uuid"] == uuid_)

    def remove_host(self, uuid_: str) -> None:
        """Purge a host, as its administrator does: its load balancers move to others."""
        host = self.host(uuid_)
        host |= {"state": "purged", "removed": "2026-01-01T00:00:00Z"}
        for one in self.of("loadBalancerService"):
            if one.get("hostId") == host["id"]:
                one["hostId"] = None
                self._started(one)

    def addresses(self, host: Json) -> list[Json]:
        return [one for one in self.of("ipAddress") if one["hostId"] == host["id"]]

    # Objects

    def new(self, type_: str, letters: str, **fields: Any) -> Json:
        self._count += 1
        id_ = f"1{letters}{self._count}"
        made = {
            "id": id_, "kind": type_, "uuid": str(uuid.uuid4()), "removed": None,
            "created": "2026-01-01T00:00:00Z", "accountId": "1a5", "description": None,
            "message": "", **fields,
        }  # fmt: skip
        self.objects[id_] = made
        return made

    def of(self, *types: str) -> list[Json]:
        """What is not removed."""
        return [one for one in self.objects.values() if one["kind"] in types and not one["removed"]]

    def services(self) -> list[Json]:
        return self.of(*SERVICES)

    def links_of(self, id_: str) -> list[Json]:
        return [one for one in self.of("serviceConsumeMap") if one["serviceId"] == id_]

    # Time

    def advance(self) -> None:
        """Do what is due by now, in its order."""
        while self._due and self._due[0][0] <= self.now():
            _, id_, state, effect = self._due.pop(0)
            one = self.objects.get(id_)
            if one is None or one["removed"]:
                continue
            if state == "active" and one["kind"] == "loadBalancerService" and self.no_host:
                one["message"] = self.no_host
                continue
            one["state"], one["message"] = state, ""
            if effect is not None:
                effect(one)

    def go(self, one: Json, *states: str, effect: Callable[[Json], None] | None = None) -> None:
        """Let an object go through states, the first one at once; the effect comes last."""
        self._due = [due for due in self._due if due[1] != one["id"]]
        one["state"], one["message"] = states[0], ""
        for number, state in enumerate(states[1:], 1):
            last = effect if number == len(states) - 1 else None
            self._due.append((self.now() + number * self.works, one["id"], state, last))
        self._due.sort(key=lambda due: due[0])

    # Services

    def make(self, type_: str, version: str, fields: Json) -> Json:
        if type_ in {"stack", "environment"}:
            stack = self.new("stack", "st", **fields)
            self.go(stack, "activating", "active")
            return stack
        stack_id = fields.pop("environmentId", None) or fields.pop("stackId", None)
        self._check_stack(stack_id)
        self._check_name(str(fields["name"]), stack_id, "")
        one = self.new(type_, "s", stackId=stack_id, **fields)
        if type_ == "loadBalancerService":
            one.setdefault("scale", 1)
            launch = one["launchConfig"] = dict(one.get("launchConfig") or {})
            if version == "v2-beta":
                launch["healthCheck"] = {"port": 42}
            self._follow(one)
        if fields.get("startOnCreate"):
            self.go(one, "registering", "activating", "active", effect=self._started)
        else:
            self.go(one, "registering", "inactive")
        return one

    def update(self, one: Json, fields: Json) -> None:
        self._check_name(str(fields.get("name") or one["name"]), one.get("stackId"), one["id"])
        one |= fields
        state = str(one["state"])
        if one["kind"] == "stack":
            return
        if state == "inactive":
            self.go(one, "updating-inactive", "inactive", effect=self._follow)
        elif state in {"active", "updating-active"}:
            self.go(one, "updating-active", "active", effect=self._started)

    def act(self, one: Json, name: str, fields: Json) -> None:
        match name:
            case "activate":
                self.go(one, "activating", "active", effect=self._started)
            case "deactivate":
                self.go(one, "deactivating", "inactive", effect=self._stopped)
            case "remove":
                self.remove(one)
            case "setservicelinks":
                self.link(
                    one, [str(link["serviceId"]) for link in fields.get("serviceLinks") or ()]
                )
            case "upgrade":
                new = (fields.get("inServiceStrategy") or {}).get("launchConfig")
                if not new:
                    raise Refusal(422, "InvalidOption", text="LaunchConfig is required")
                one["previous"], one["launchConfig"] = one["launchConfig"], new
                self.go(one, "upgrading", "upgraded", effect=self._started)
            case "finishupgrade":
                self.go(one, "finishing-upgrade", "active", effect=self._started)
            case "rollback":
                one["launchConfig"] = one.get("previous", one["launchConfig"])
                self.go(one, "rolling-back", "active", effect=self._started)
            case "cancelupgrade":
                self.go(one, "canceling-upgrade", "canceled-upgrade")

    def remove(self, one: Json) -> None:
        self.go(one, "removing", "removed", effect=self.purge)

    def link(self, one: Json, ids: Sequence[str]) -> None:
        """Let a service lead to these, and to no others."""
        for link in self.links_of(one["id"]):
            if link["consumedServiceId"] not in ids:
                link["removed"] = "2026-01-01T00:00:00Z"
        there = {link["consumedServiceId"] for link in self.links_of(one["id"])}
        for id_ in ids:
            target = self.objects[id_]
            if target["state"] in {"removing", "removed"}:
                raise Refusal(422, "InvalidReference", text=f"Service {target['name']} is removed")
            if id_ not in there:
                self.new(
                    "serviceConsumeMap", "cm", state="active", serviceId=one["id"],
                    consumedServiceId=id_, ports=None,
                )  # fmt: skip

    def endpoints(self, one: Json) -> list[Json]:
        """Where a load balancer is reached: its containers are on the host that it was given."""
        host = self.objects.get(str(one.get("hostId") or ""))
        if one["kind"] != "loadBalancerService" or host is None or host["removed"]:
            return []
        ports = [
            int(str(port).partition(":")[0]) for port in one["launchConfig"].get("ports") or ()
        ]
        address = self.addresses(host)[0]["address"]
        return [
            {"hostId": host["id"], "instanceId": "1i1", "ipAddress": address, "port": port,
             "serviceId": one["id"], "type": "publicEndpoint"}
            for port in ports
        ]  # fmt: skip

    def _started(self, one: Json) -> None:
        self._follow(one)
        if one["kind"] == "loadBalancerService" and not one.get("hostId"):
            taken = [
                (other["hostId"], endpoint["port"])
                for other in self.of("loadBalancerService")
                if other.get("hostId")
                for endpoint in self.endpoints(other)
            ]
            hosts = sorted(
                self.of("host"), key=lambda host: sum(id_ == host["id"] for id_, _ in taken)
            )
            one["hostId"] = hosts[0]["id"] if hosts else None

    def _stopped(self, one: Json) -> None:
        one["hostId"] = None

    def purge(self, one: Json) -> None:
        """Take a service away, and what leads to it and from it."""
        one["removed"] = "2026-01-01T00:00:00Z"
        for link in self.of("serviceConsumeMap"):
            if one["id"] in {link["serviceId"], link["consumedServiceId"]}:
                link["removed"] = one["removed"]

    def _follow(self, one: Json) -> None:
        rules = (one.get("lbConfig") or {}).get("portRules")
        if rules is not None and self.links_follow:
            there = [str(rule["serviceId"]) for rule in rules]
            self.link(one, [id_ for id_ in there if not self.objects[id_]["removed"]])

    def _check_stack(self, id_: str | None) -> None:
        stack = self.objects.get(id_ or "")
        if stack is None or stack["state"] in {"error", "removed", "removing"}:
            raise Refusal(422, "InvalidState", "stackId", "stack is not in a valid state")

    def _check_name(self, name: str, stack_id: str | None, id_: str) -> None:
        if not re.fullmatch(r"[a-zA-Z0-9](-?[a-zA-Z0-9])*", name):
            raise Refusal(422, "InvalidCharacters", "name", f"name {name} is invalid")
        for other in self.services():
            is_other = other["id"] != id_ and other["stackId"] == stack_id
            if is_other and str(other["name"]).lower() == name.lower():
                raise Refusal(422, "NotUnique", "name")
