"""What Rancher's own manager does, call by call, by Rancher's own client for Go.

The manager of 2017 is vendored in a form that no Go of today builds. Its load balancers are a fixed
sequence of calls, with nothing decided between them: stack, load balancer, an external service for
each node, activation, links, and in v2-beta the rules.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from proreus.kube.objects import ServicePort
from proreus.providers.rancher.names import external_name

from ... import managers  # noqa: TID252 - pytest imports tests by path
from ..emulator.schemas import Json  # noqa: TID252
from ..emulator.server import Emulator  # noqa: TID252

MODULE: Final = Path(__file__).parent / "goclient"
STACK: Final = "kubernetes-loadbalancers"
_PAUSE: Final = 0.02


async def build(directory: Path) -> Path:
    """Build the client."""
    return await managers.build(MODULE, directory, CGO_ENABLED="0")


class Client:
    """The client for Go, as a process."""

    def __init__(self, process: asyncio.subprocess.Process, *, is_new: bool) -> None:
        self._process, self.is_new = process, is_new

    async def call(self, verb: str, kind: str, **more: Any) -> Json:
        """Let the client do something; its answer.

        Raises:
            RuntimeError: It has an error.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"Verb": verb, "Kind": kind, **more}).encode() + b"\n")
        answer = json.loads(await self._process.stdout.readline())
        if error := answer.get("error"):
            raise RuntimeError(error)
        found: Json = answer["value"]
        return found

    async def listed(self, kind: str, **filters: str) -> list[Json]:
        found = await self.call("list", kind, Filters={"removed_null": "1", **filters})
        return list(found["data"])

    async def offered(self, kind: str, one: Json, action: str) -> Json:
        """The object once it offers an action."""
        while action not in one["actions"]:
            await asyncio.sleep(_PAUSE)
            one = await self.call("get", kind, Of={"id": one["id"]})
        return one

    async def act(self, kind: str, one: Json, action: str, body: Json | None = None) -> Json:
        one = await self.offered(kind, one, action)
        of = {"id": one["id"], "actions": one["actions"]}
        return await self.call("act", kind, Name=action, Of=of, **({"Body": body} if body else {}))


@asynccontextmanager
async def client(program: Path, emulator: Emulator) -> AsyncIterator[Client]:
    """The client, with the newest version of the API that the server has."""
    version = emulator.versions[-1]
    environment = {
        "CATTLE_URL": f"{emulator.url}/{version}",
        "CATTLE_ACCESS_KEY": emulator.key,
        "CATTLE_SECRET_KEY": emulator.secret,
    }
    process = await asyncio.create_subprocess_exec(
        str(program),
        env={**os.environ, **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    try:
        yield Client(process, is_new=version == "v2-beta")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def ensure(of: Client, name: str, nodes: Sequence[str], ports: Sequence[ServicePort]) -> str:
    """What the official manager does for a Service; the address that it shows."""
    published = [f"{one.port}:{one.port if of.is_new else one.node_port}/tcp" for one in ports]
    named = await of.listed("loadBalancerService", name=name)
    if named and sorted(named[0]["launchConfig"]["ports"]) != sorted(published):
        await delete(of, name)
        while await of.listed("loadBalancerService", name=name):
            await asyncio.sleep(_PAUSE)
        named = []
    (setting,) = await of.listed("setting", name="lb.instance.image")
    stack_field = "stackId" if of.is_new else "environmentId"
    if named:
        balancer = named[0]
    else:
        image = {"imageUuid": f"docker:{setting['value']}"} if of.is_new else {}
        fields: Json = {"name": name, stack_field: await _stack(of)}
        fields |= {"launchConfig": {**image, "ports": published}}
        fields |= {"lbConfig": {}} if of.is_new else {}
        balancer = await of.call("create", "loadBalancerService", Body=fields)
    ids = [await _external(of, node, balancer[stack_field], stack_field) for node in nodes]
    links = {"serviceLinks": [{"serviceId": id_} for id_ in ids]}
    balancer = await of.act("loadBalancerService", balancer, "setservicelinks", links)
    if of.is_new:
        rules = [
            {"sourcePort": one.port, "targetPort": one.node_port, "serviceId": id_, "protocol": "tcp"}
            for id_ in ids
            for one in ports
        ]  # fmt: skip
        balancer = await of.offered("loadBalancerService", balancer, "update")
        kept = {"id": balancer["id"], "links": balancer["links"]}
        body = {"lbConfig": {"portRules": rules}}
        balancer = await of.call("update", "loadBalancerService", Of=kept, Body=body)
    if balancer["state"] not in {"active", "activating", "updating-active"}:
        balancer = await of.act("loadBalancerService", balancer, "activate")
    while not (balancer["state"] == "active" and balancer["publicEndpoints"]):
        await asyncio.sleep(_PAUSE)
        balancer = await of.call("get", "loadBalancerService", Of={"id": balancer["id"]})
    return str(balancer["publicEndpoints"][0]["ipAddress"])


async def delete(of: Client, name: str) -> None:
    """What the official manager does when a Service goes."""
    for balancer in await of.listed("loadBalancerService", name=name):
        kept = {"id": balancer["id"], "links": balancer["links"]}
        led_to = await of.call("follow", "service", Name="consumedservices", Of=kept)
        for one in led_to["data"]:
            target = {"id": one["id"], "links": one["links"]}
            users = await of.call("follow", "service", Name="consumedbyservices", Of=target)
            if len(users["data"]) < 2:
                await of.call("remove", "externalService", Of=target)
        await of.call("remove", "loadBalancerService", Of=kept)


async def _stack(of: Client) -> str:
    kind = "stack" if of.is_new else "environment"
    # The filter external_id is official, and none that Rancher knows.
    found = await of.listed(kind, name=STACK, external_id=f"{STACK}://")
    made = {"name": STACK, "externalId": f"{STACK}://"}
    return str((found[0] if found else await of.call("create", kind, Body=made))["id"])


async def _external(of: Client, node: str, stack: str, field: str) -> str:
    name = external_name(node)
    found = await of.listed("externalService", name=name, **{field: stack})
    if found:
        one = found[0]
    else:
        hosts = [one for one in await of.listed("host") if one["hostname"] == node]
        kept = {"id": hosts[0]["id"], "links": hosts[0]["links"]}
        addresses = await of.call("follow", "host", Name="ipAddresses", Of=kept)
        fields = {"name": name, "externalIpAddresses": [addresses["data"][0]["address"]]}
        one = await of.call("create", "externalService", Body={**fields, field: stack})
    if one["state"] not in {"active", "activating", "updating-active"}:
        one = await of.act("externalService", one, "activate")
    return str(one["id"])
