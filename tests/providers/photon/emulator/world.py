"""What is in the emulated Photon Controller: tenants, projects, machines, tasks."""

import itertools
import random
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

Json = dict[str, Any]
Nic = tuple[str, str | None]
"""A MAC address, and the IP address that VMware Tools report, if they do."""

STATES: Final = {"CREATING", "STARTED", "SUSPENDED", "STOPPED", "ERROR", "DELETED"}
OUTSIDE, INSIDE = "00:50:56:aa:00:01", "fa:16:3e:00:00:01"


class Refusal(Exception):
    """An error of the API: its status, its code, its text."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code, self.text = status, code, text


class World:
    """Everything that there is. Ids are never used again."""

    def __init__(self) -> None:
        self.tenants: dict[str, Json] = {}
        self.projects: dict[str, Json] = {}
        self.vms: dict[str, Json] = {}
        self.nics: dict[str, list[Nic]] = {}
        self.tasks: dict[str, Json] = {}
        self.works = 0.0
        """Seconds that a task takes."""
        self.broken: dict[str, tuple[str, str]] = {}
        """Machines of which a task fails, by the code and the text of its error."""
        self.stuck: set[str] = set()
        """Machines of which a task never ends."""
        self.now: Callable[[], float] = time.monotonic
        self.most_at_once = 0
        """The most tasks that were at work at once."""
        self._random = random.Random(17)  # noqa: S311 - for an order, not for a secret
        self._last_octet = itertools.count(2)
        self.tenant = self.add_tenant("engineering")
        self.project = self.add_project("kubernetes", self.tenant)

    # What tests do

    def add_tenant(self, name: str) -> str:
        id_ = str(uuid.uuid4())
        self.tenants[id_] = {
            "id": id_, "kind": "tenant", "name": name, "selfLink": "", "tags": [],
            "resourceTickets": [], "projects": [], "securityGroups": [],
        }  # fmt: skip
        return id_

    def add_project(self, name: str, tenant: str) -> str:
        id_ = str(uuid.uuid4())
        ticket = {"tenantTicketId": "t", "tenantTicketName": "gold", "limits": [], "usage": []}
        self.projects[id_] = {
            "id": id_, "kind": "project", "name": name, "selfLink": "", "tags": [],
            "resourceTicket": ticket, "securityGroups": [], "_tenant": tenant,
        }  # fmt: skip
        return id_

    def add_vm(
        self,
        name: str,
        nics: Sequence[Nic] | None = None,
        state: str = "STARTED",
        project: str = "",
    ) -> str:
        """A machine; by default with an address inside."""
        assert state in STATES
        id_ = str(uuid.uuid4())
        number = next(self._last_octet)
        self.vms[id_] = {
            "id": id_, "kind": "vm", "name": name, "state": state, "selfLink": "", "tags": [],
            "flavor": "tiny", "cost": [], "attachedDisks": [], "attachedIsos": [],
            "sourceImageId": "image", "host": "10.0.0.1", "datastore": "ds", "metadata": {},
            "floatingIp": None, "_project": project or self.project,
        }  # fmt: skip
        self.nics[id_] = list(
            nics or [(INSIDE, f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}")]
        )
        return id_

    def remove_vm(self, id_: str) -> None:
        del self.vms[id_]

    def vm(self, id_: str) -> Json:
        if id_ not in self.vms:
            raise Refusal(404, "VmNotFound", f"VM {id_} not found")
        return self.vms[id_]

    # What the API does

    def found(self, project: str) -> Json:
        if project not in self.projects:
            raise Refusal(404, "NotFound", f"Project {project} not found")
        return self.projects[project]

    def in_project(self, project: str, name: str | None) -> list[Json]:
        self.found(project)
        vms = (one for one in self.vms.values() if one["_project"] == project)
        return [one for one in vms if name is None or one["name"] == name]

    def begin(self, vm: Json) -> Json:
        """Begin the task that asks a machine's host for its networks."""
        id_ = str(uuid.uuid4())
        self.tasks[id_] = {
            "id": id_, "selfLink": "", "operation": "GetVmNetworks", "state": "QUEUED",
            "entity": {"id": vm["id"], "kind": "vm"}, "queuedTime": 1, "startedTime": 1,
            "endTime": None, "resourceProperties": None, "steps": [self._step("QUEUED", [])],
            "_ends": self.now() + self.works,
        }  # fmt: skip
        opened = sum(self.now() < one["_ends"] for one in self.tasks.values())
        self.most_at_once = max(self.most_at_once, opened)
        return self.tasks[id_]

    def task(self, id_: str) -> Json:
        if id_ not in self.tasks:
            raise Refusal(404, "NotFound", f"Task {id_} not found")
        task = self.tasks[id_]
        vm = task["entity"]["id"]
        if task["state"] not in {"COMPLETED", "ERROR"}:
            if vm in self.stuck or self.now() < task["_ends"]:
                task["state"] = "STARTED"
            elif vm in self.broken or vm not in self.vms:
                self._fail(task, *self.broken.get(vm, ("InternalError", "VM is not on the host")))
            else:
                self._complete(task, vm)
        return task

    def _complete(self, task: Json, vm: str) -> None:
        is_on = self.vms[vm]["state"] == "STARTED"
        found = [
            {
                "network": "subnet-1", "macAddress": mac, "netmask": "255.0.0.0" if ip else None,
                "ipAddress": ip if is_on else None, "isConnected": "True" if is_on else "False",
            }
            for mac, ip in self.nics[vm]
        ]  # fmt: skip
        self._random.shuffle(found)  # it is a set
        task |= {"state": "COMPLETED", "endTime": 2, "steps": [self._step("COMPLETED", [])]}
        task["resourceProperties"] = {"networkConnections": found}

    def _fail(self, task: Json, code: str, text: str) -> None:
        error = {"code": code, "message": text, "data": {}}
        task |= {"state": "ERROR", "endTime": 2, "steps": [self._step("ERROR", [error])]}

    @staticmethod
    def _step(state: str, errors: list[Json]) -> Json:
        return {
            "sequence": 0, "state": state, "errors": errors, "warnings": [],
            "operation": "GetVmNetworks", "queuedTime": 1, "startedTime": 1, "endTime": None,
            "options": {},
        }  # fmt: skip


def shown(document: Json) -> Json:
    """A document without what only the emulator knows."""
    return {key: value for key, value in document.items() if not key.startswith("_")}
