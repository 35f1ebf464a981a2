"""The verbs of scripts. Each answers a step: what to do, or to wait for, in a script's world.

A step waits only for what every manager does. What only one of them does shows in the picture.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from proreus.kube.objects import TAINT_UNINITIALIZED
from proreus.testing.simulated import Fault, FaultMode
from proreus.testing.waiting import until

from ..apiserver.route_site import post  # noqa: TID252 - pytest imports tests by path
from ..apiserver.site import TOKENS  # noqa: TID252 - pytest imports tests by path
from .world import PATIENCE, Step, World

# Machines


def machine(here: str = "a", **fields: Any) -> Step:
    """Start a machine."""

    async def step(world: World) -> None:
        world.unborn(here, **fields)
        await world.born(here)

    return step


def unborn(here: str = "a", **fields: Any) -> Step:
    """Think of a machine that the cloud does not have."""

    async def step(world: World) -> None:
        world.unborn(here, **fields)

    return step


def born(here: str = "a") -> Step:
    """Start it."""

    async def step(world: World) -> None:
        await world.born(here)

    return step


def change(here: str = "a", **fields: Any) -> Step:
    """Change fields of a machine."""

    async def step(world: World) -> None:
        await world.cloud.change(world.machines[here].id, **fields)

    return step


def end(here: str = "a") -> Step:
    """Terminate a machine."""

    async def step(world: World) -> None:
        await world.cloud.delete(world.machines[here].id)

    return step


def asked(count: int = 2) -> Step:
    """Wait until the manager has asked about machines so many times more, whatever it said."""

    async def step(world: World) -> None:
        async def number() -> int:
            counts = await world.cloud.counts()
            return counts["instances.get"] + counts["instances.batch_get"]

        before = await number()

        async def enough() -> bool:
            return await number() >= before + count

        await until("the cloud is asked about machines", enough, PATIENCE)

    return step


# Nodes


def register(
    here: str = "a",
    *,
    of: str = "",
    ready: str | None = "True",
    provider_id: str | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    tainted: bool = True,
    cidrs: int = 0,
    dual: bool = False,
    cidr: str = "",
    network: str = "",
    **metadata: Any,
) -> Step:
    """Register the Node of a machine.

    Args:
        here: The node.
        of: The machine, if it is called otherwise.
        ready: Its Ready condition; None for none.
        provider_id: What its kubelet says; "own" for the machine's.
        taints: More taints.
        tainted: Whether it waits for its initialisation.
        cidrs: How many pod CIDRs of the script come before the one that it has; 0 for none.
        dual: Whether it has one of each family.
        cidr: A pod CIDR that is not the script's.
        network: The reason of its condition NetworkUnavailable=False, if it has one.
        metadata: More labels, annotations and so on.
    """

    async def step(world: World) -> None:
        machine = of or here
        body = world.node_body(machine, ready=ready or "True")
        if ready is None:
            body["status"]["conditions"].pop()
        if network:
            reason = {"reason": network, "message": "by a network plugin"}
            one = {"type": "NetworkUnavailable", "status": "False", **reason}
            body["status"]["conditions"].append(one)
        for key, value in metadata.items():
            present = body["metadata"].get(key)
            body["metadata"][key] = {**present, **value} if isinstance(present, dict) else value
        spec = body["spec"]
        spec["taints"] = [*(spec["taints"] if tainted else ()), *taints]
        if provider_id:
            spec["providerID"] = world.provider_id(machine) if provider_id == "own" else provider_id
        if cidr:
            world.cast.cidrs[cidr] = "<CIDR outside>"
        if cidr or cidrs:
            both = (4, 6) if dual else (4,)
            spec["podCIDRs"] = [cidr] if cidr else [world.cidr(cidrs, one) for one in both]
            spec["podCIDR"] = spec["podCIDRs"][0]
        await world.register(here, body)

    return step


def initialised(*names: str) -> Step:
    """Wait until nodes have their provider id, lack the taint, and are told so."""

    async def step(world: World) -> None:
        for here in names or ("a",):
            await world.when(
                "node",
                here,
                lambda node: (
                    node["spec"].get("providerID")
                    and TAINT_UNINITIALIZED not in _taints(node)
                    and len(node["status"]["addresses"]) > 1
                ),
            )
            await world.told(here, "Synced")

    return step


def noticed(here: str = "a") -> Step:
    """Wait until the manager has tried to initialise a node, if it says so when it cannot."""

    async def step(world: World) -> None:
        if world.speaks:
            await world.when(
                "node",
                here,
                lambda node: any(
                    one["type"] == "CloudInitialized" for one in node["status"]["conditions"]
                ),
            )
        else:
            await asked()(world)

    return step


def _taints(node: Mapping[str, Any]) -> list[str]:
    return [one["key"] for one in node["spec"].get("taints", ())]


def joined(*names: str, **fields: Any) -> tuple[Step, ...]:
    """Start machines, register their nodes, and wait for their initialisation."""
    starts = [step for name in names for step in (machine(name, **fields), register(name))]
    return (*starts, initialised(*names))


def routed_node(here: str = "a", number: int = 1, **more: Any) -> tuple[Step, ...]:
    """A machine whose node has its provider id and a pod CIDR from the start."""
    return (machine(here), register(here, provider_id="own", cidrs=number, **more))


def edit_node(here: str = "a", *, subresource: str = "", **parts: Any) -> Step:
    """Change a Node: `metadata=...`, `spec=...`, `status=...`."""

    async def step(world: World) -> None:
        await world.patch("node", here, parts, subresource)

    return step


def says(type_: str, status: str, reason: str = "KubeletSaysSo", here: str = "a") -> Step:
    """Set a condition of a Node."""
    one = {"type": type_, "status": status, "reason": reason, "message": "so it is"}
    return edit_node(here, subresource="status", status={"conditions": [one]})


def taint(key: str, here: str = "a", value: str = "") -> Step:
    """Add a taint to a Node."""

    async def step(world: World) -> None:
        node = await world.raw("node", here)
        have = (node or {}).get("spec", {}).get("taints", [])
        new = {"key": key, "effect": "NoSchedule", **({"value": value} if value else {})}
        await world.patch("node", here, {"spec": {"taints": [*have, new]}})

    return step


def has_taint(key: str, here: str = "a", *, not_: bool = False) -> Step:
    """Wait until a Node has a taint, or has it no more."""

    async def step(world: World) -> None:
        await world.when("node", here, lambda node: (key in _taints(node)) is not not_)

    return step


def has_address(address: str, here: str = "a") -> Step:
    """Wait until a Node has an address."""

    async def step(world: World) -> None:
        await world.when(
            "node",
            here,
            lambda node: address in [one["address"] for one in node["status"]["addresses"]],
        )

    return step


def has_addresses(here: str = "a") -> Step:
    """Wait until a Node has the addresses of its machine beside its host name."""

    async def step(world: World) -> None:
        await world.when("node", here, lambda node: len(node["status"]["addresses"]) > 1)

    return step


def delete_node(here: str = "a") -> Step:
    """Delete a Node."""

    async def step(world: World) -> None:
        await world.delete("node", here)

    return step


def gone(here: str = "a", kind: str = "node") -> Step:
    """Wait until an object is gone."""

    async def step(world: World) -> None:
        await world.gone(kind, here)

    return step


def told(reason: str, here: str = "web") -> Step:
    """Wait for an event."""

    async def step(world: World) -> None:
        await world.told(here, reason)

    return step


# Routes


def has_route(number: int = 1, family: int = 4, *, not_: bool = False) -> Step:
    """Wait until there is a route to a pod CIDR of the script, or none."""

    async def step(world: World) -> None:
        cidr = world.cidr(number, family)

        async def is_so() -> bool:
            return (cidr in {one["destination"] for one in await routes(world)}) is not not_

        await until(f"the route to {cidr}", is_so, PATIENCE)

    return step


async def routes(world: World) -> Sequence[dict[str, Any]]:
    """All routes of the cloud."""
    return await world.cloud.parts("route")


def is_networked(status: str, here: str = "a") -> Step:
    """Wait for a status of NetworkUnavailable."""

    async def step(world: World) -> None:
        await world.when(
            "node",
            here,
            lambda node: any(
                one["type"] == "NetworkUnavailable" and one["status"] == status
                for one in node["status"]["conditions"]
            ),
        )

    return step


def foreign_route(here: str, number: int = 1, *, ours: bool = False, node: str = "") -> Step:
    """Make a route by hand; `ours`: as if the manager had made it for `node`."""

    async def step(world: World) -> None:
        tags = {**world.routes, "node": world.full(node or here)} if ours else {"by": "hand"}
        body = {
            "name": f"by-hand-{world.cidr(number)}",
            "destination": world.cidr(number),
            "instance_id": world.machines[here].id,
            "tags": tags,
        }
        await post(f"{world.site.cloud.endpoint}/v1/routes", TOKENS["second"], body)

    return step


def remove_route(number: int = 1) -> Step:
    """Remove a route behind everybody's back."""

    async def step(world: World) -> None:
        cidr = world.cidr(number)
        for one in await routes(world):
            if one["destination"] == cidr:
                await world.cloud.remove(one["id"])

    return step


# Services


def port(number: int = 80, protocol: str = "TCP", **more: Any) -> dict[str, Any]:
    """A port of a Service."""
    return {"name": f"{protocol.lower()}-{number}", "port": number, "protocol": protocol, **more}


def service(
    here: str = "web", *, metadata: Mapping[str, Any] | None = None, pool: int = 0, **spec: Any
) -> Step:
    """Create a Service of type LoadBalancer; `pool`: which address of the pool it asks for."""

    async def step(world: World) -> None:
        whole = {"type": "LoadBalancer", "ports": [port()], **spec}
        if pool:
            whole["loadBalancerIP"] = await pool_address(world, pool)
        await world.create_service(here, {"metadata": dict(metadata or {}), "spec": whole})

    return step


async def pool_address(world: World, number: int) -> str:
    """An address of the cloud's pool for load balancers, counted from its end."""
    pool = (await world.cloud.settings()).pool
    base, _, _ = pool.rpartition(".")
    address = f"{base}.{250 - number}"
    world.cast.words[address] = f"<address {number} of the pool>"
    return address


def takes_address(number: int, here: str = "taken") -> Step:
    """Let somebody else have an address of the pool."""

    async def step(world: World) -> None:
        body = {
            "name": world.full(here),
            "address": await pool_address(world, number),
            "tags": {"by": "hand"},
        }
        await post(f"{world.site.cloud.endpoint}/v1/addresses", TOKENS["second"], body)

    return step


def frees_address(here: str = "taken") -> Step:
    """Let somebody else give it back."""

    async def step(world: World) -> None:
        for one in await world.cloud.parts("address"):
            if one["name"] == world.full(here):
                await world.cloud.remove(one["id"])

    return step


def addressed(here: str = "web") -> Step:
    """Wait until a Service has an address, and it is told that its load balancer is there."""

    async def step(world: World) -> None:
        await world.when(
            "service", here, lambda one: one["status"].get("loadBalancer", {}).get("ingress")
        )
        await world.told(here, "EnsuredLoadBalancer")

    return step


def edit(here: str = "web", *, subresource: str = "", **parts: Any) -> Step:
    """Change a Service: `spec=...`, `metadata=...`, `status=...`."""

    async def step(world: World) -> None:
        await world.patch("service", here, parts, subresource)

    return step


def delete(here: str = "web") -> Step:
    """Delete a Service."""

    async def step(world: World) -> None:
        await world.delete("service", here)

    return step


def has_listeners(*wanted: tuple[str, int], here: str = "web") -> Step:
    """Wait until the load balancer listens on just these."""

    async def step(world: World) -> None:
        async def is_so() -> bool:
            found = await world.parts(here, "listener")
            return {(one["protocol"], one["port"]) for one in found} == set(wanted)

        await until(f"{here} listens on {wanted}", is_so, PATIENCE)

    return step


def has_hosts(*wanted: str, here: str = "web") -> Step:
    """Wait until these nodes are hosts, of all that the script has."""

    async def step(world: World) -> None:
        ids = {world.machines[one].id for one in wanted}

        async def is_so() -> bool:
            found = await world.parts(here, "load_balancer")
            targets = {one["instance_id"] for lb in found for one in lb["targets"]}
            return bool(found) and targets & world.cast.machines.keys() == ids

        await until(f"{here} has the hosts {wanted}", is_so, PATIENCE)

    return step


def without_finalizer(here: str = "web") -> Step:
    """Take the finalizer away."""
    return edit(here, metadata={"finalizers": None})


def fails(
    operation: str, *, part: str = "", here: str = "web", count: int = 1, status: int = 500
) -> Step:
    """Let calls fail: all of the operation, or those about a part of a Service."""

    async def step(world: World) -> None:
        target = await world.part(here, part) if part else "*"
        await world.cloud.inject(
            Fault(FaultMode.ERROR, operation, target=target, count=count, status=status)
        )

    return step


def is_well() -> Step:
    """Let no call fail any more."""

    async def step(world: World) -> None:
        await world.cloud.clear_faults()

    return step
