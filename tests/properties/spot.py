"""A cluster whose machines come and go, on virtual time: what the lifecycle controller does to it.

The controller, the inventory and their calls are the real ones. What is made up lies at the seams:
the API server's Nodes, the cloud's answers, and time. The world knows which machines live, so it
judges each deletion at once, and in the end whether what is dead has gone.
"""

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.hints import Hints
from proreus.cloudprovider.instances import Instance, InstanceAnswer, NotFound, Ownership
from proreus.containment.inventory import Inventory
from proreus.controllers.cloud_node_lifecycle.controller import CloudNodeLifecycleController
from proreus.controllers.cloud_node_lifecycle.scopes import ANNOTATION_UNKNOWN
from proreus.controllers.environment import Environment
from proreus.controllers.last_ready import following
from proreus.controllers.settings import Settings
from proreus.kube.connections import Gate
from proreus.kube.objects import Condition, Node
from proreus.kube.patch import Op, Patch
from proreus.testing import objects

BEGIN: Final = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
GRACE: Final = (40.0, 52.0)
"""Seconds after which the API server takes a silent kubelet's Node for not Ready."""
PATIENCE: Final = 900.0
"""Seconds of right answers after which a dead machine's Node must be gone, with the default period."""
PASSES: Final = 10
"""Passes that it may take: of those that are held a tenth goes in each."""
STRANGE: Final = 720.0
"""So many more while the cloud does not know a Ready node: it has to be set aside first."""
REFRESH: Final = 300.0
SETTLED: Final = 120.0
"""Seconds after which a Ready node that the cloud never knew has been marked."""
LAPSED: Final = 1020.0
"""Seconds after which a Ready node that the cloud knows no more is taken for unknown."""
ENOUGH: Final = 3
LOST: Final = 540.0
"""Seconds of absence after which a Ready node may be taken for one that the cloud has lost."""


class Machine:
    """A machine and its Node; a `stranger` runs, but not in the cloud that is asked.

    It never did, or it has `lapsed`: somebody took it off the cloud's list.
    """

    def __init__(self, number: int, scope: str, at: float, *, stranger: bool = False) -> None:
        self.name = f"n{number:05}"
        self.id = f"spot://{scope}/{self.name}"
        self.uid = f"u{number}"
        self.scope = scope
        self.stranger = stranger
        self.joined = at
        self.dead: float | None = None
        self.lapsed: float | None = None
        self.ready = True
        self.pinned = False
        self.pinned_at = 0.0
        self.shown: float | None = None
        self.unknown: float | None = None
        self.turned = 0.0
        self.annotations: dict[str, str] = {}
        self.node = self._node()

    def write(self, operations: Sequence[Op]) -> None:
        """Apply the only patch that there can be: the annotation of a node unknown to the cloud."""
        for one in operations:
            if one.path.startswith("/metadata/annotations") and one.op in {"add", "remove"}:
                self.annotations = {} if one.op == "remove" else {ANNOTATION_UNKNOWN: "true"}
        self.node = self._node()

    def turn(self, *, ready: bool, at: float = 0.0) -> None:
        self.ready, self.turned = ready, at
        self.node = self._node()

    def _node(self) -> Node:
        return objects.node(
            self.name,
            self.id,
            uid=self.uid,
            creation_timestamp=BEGIN,
            annotations=self.annotations,
            conditions=(Condition("Ready", "True" if self.ready else "Unknown"),),
        )

    @property
    def lives(self) -> bool:
        return self.dead is None

    def is_lost(self, now: float) -> bool:
        """Whether the cloud did not know it while it was Ready, and has not shown since.

        Then nothing tells its end from that, unless others return.
        """
        known_for_lost = bool(self.annotations) and self.shown is None
        until = now if self.ready else self.turned
        return known_for_lost or (self.unknown is not None and until - self.unknown >= LOST)

    @property
    def vouches(self) -> bool:
        """Whether it lives, its Node is Ready, and the cloud is to know it."""
        return self.lives and self.ready and not self.stranger


class Fault(msgspec.Struct):
    """Wrong answers of one scope.

    `hides` is asked about each machine; `fails` is how often a call ends with an error.
    """

    hides: Callable[[Machine], bool]
    fails: float = 0.0
    flickers: float = 0.0


class Kind(msgspec.Struct, frozen=True):
    """A cluster: sizes, rates (an hour), what its cloud is like, what goes wrong."""

    size: int
    losses: float
    scopes: int = 1
    tombstones: bool = False
    batch_size: int = 100
    strangers: int = 0
    lapses: float = 0.0
    faults: float = 0.0
    outages: float = 0.0
    silences: float = 0.0
    restarts: float = 0.0
    hours: float = 1.0
    period: float = 5.0
    replaced: bool = True


class World:
    """Plays a cluster; `broken` says which promises were broken."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self.kind = kind
        self.chance = random.Random(seed)  # noqa: S311 - repeatable, and no secret
        self.settings = Settings(node_monitor_period=kind.period)
        self.machines: dict[str, Machine] = {}
        self.faults: dict[str, Fault] = {}
        self.right_since: dict[str, float] = {}
        self.broken: list[str] = []
        self.deleted = 0
        self.most_at_once = 0
        self.calls = 0
        self.patches = 0
        self.events: list[tuple[str, str, str]] = []
        self.at = 0.0
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._cache: tuple[Node, ...] | None = None
        self._nodes = _Nodes(self)
        self._lately: tuple[float, int] = (0.0, 0)
        self._controller: CloudNodeLifecycleController | None = None
        self._task: asyncio.Task[None] | None = None
        self._inventory: Inventory | None = None
        self._started = 0.0
        self._asking: set[asyncio.Task[None]] = set()
        self.instances = Instances(self)

    # What the controller is given

    @property
    def nodes(self) -> tuple[Node, ...]:
        if self._cache is None:
            self._cache = tuple(machine.node for machine in self.machines.values())
        return self._cache

    def environment(self) -> Environment:
        self._nodes = _Nodes(self)
        return Environment(
            client=cast("Any", _Client(self)),
            provider=cast("Any", _Provider(self.instances)),
            context=cast("Any", SimpleNamespace(hints=Hints())),
            cluster=cast("Any", None),
            nodes=cast("Any", self._nodes),
            services=cast("Any", None),
            all_services=cast("Any", None),
            endpoint_slices=None,
            inventory=self._inventory,
            events=cast("Any", _Events(self)),
            now=lambda: BEGIN + timedelta(days=1, seconds=self.now()),
            settings=self.settings,
            last_ready=following(cast("Any", self._nodes)),
        )

    def _changed(self, name: str) -> None:
        self._cache = None
        self._nodes.tell(name)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def delete(self, name: str, uid: str) -> None:
        machine = self.machines[name]
        if machine.uid != uid:
            return
        if machine.lives:
            self.broken.append(f"{self.now():.0f}: {name} was deleted, but its machine lives")
        if machine.ready:
            self.broken.append(f"{self.now():.0f}: {name} was deleted while it is Ready")
        del self.machines[name]
        self._changed(name)
        self.deleted += 1
        last, count = self._lately
        self._lately = (last, count + 1) if self.now() - last < 2.0 else (self.now(), 1)
        self.most_at_once = max(self.most_at_once, self._lately[1])
        for inventory in filter(None, [self._inventory]):
            inventory.forget(uid)

    def write(self, name: str, patch: Patch) -> None:
        if name in self.machines:
            self.machines[name].write(patch.body)
            self.patches += 1
            self._changed(name)

    # What happens

    async def play(self) -> None:
        """Play the cluster to its end, and then until right answers have had their time."""
        for scope in range(self.kind.scopes):
            self.right_since[f"s{scope}"] = 0.0
        for _ in range(self.kind.size):
            self._join()
        for index in range(self.kind.strangers):
            self._join(stranger=True, scope=f"s{index % self.kind.scopes}")
        end = self.kind.hours * 3600.0
        self._plan(end)
        await self._start()
        try:
            await self._until(end)
            self._due.clear()
            self._calm()
            await self._until(end + PATIENCE + STRANGE + 360.0)
        finally:
            await self._stop()

    async def _until(self, end: float) -> None:
        tick = 30.0
        while self._due and self._due[0][0] <= end:
            at, _, deed = heapq.heappop(self._due)
            await self._sleep_until(at, tick)
            deed()
        await self._sleep_until(end, tick)

    async def _sleep_until(self, at: float, tick: float) -> None:
        while self.now() < at:
            await asyncio.sleep(min(tick, at - self.now()))
            self._judge()
        self._judge()

    def after(self, seconds: float, deed: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now() + seconds, next(self._numbers), deed))

    def _plan(self, end: float) -> None:
        """Set what happens by chance: losses, faults, silences, restarts, refreshes."""
        kind, chance = self.kind, self.chance

        def often(rate: float, deed: Callable[[], None]) -> None:
            if rate <= 0:
                return
            at = chance.expovariate(rate / 3600.0)
            while at < end:
                heapq.heappush(self._due, (at, next(self._numbers), deed))
                at += chance.expovariate(rate / 3600.0)

        often(kind.losses * kind.size, self._lose_one)
        often(kind.outages, self._lose_many)
        often(kind.silences * kind.size, self._silence)
        for scope in self.right_since:
            often(kind.lapses, lambda scope=scope: self._lapse(scope))  # type: ignore[misc]
            often(kind.faults, lambda scope=scope: self._fault(scope))  # type: ignore[misc]
        often(kind.restarts, self._restart)
        at = 0.5
        while at < end + PATIENCE + STRANGE:
            heapq.heappush(self._due, (at, next(self._numbers), self._refresh))
            at += REFRESH

    def _calm(self) -> None:
        """All answers are right from now on, and nothing else happens but refreshes."""
        for scope in list(self.faults):
            self._heal(scope, self.faults[scope])
        for machine in self.machines.values():
            machine.pinned = False
            if not machine.lives:
                self._fall_silent(machine)
        for index in range(int((PATIENCE + STRANGE) / REFRESH)):
            self.after(index * REFRESH, self._refresh)

    def _join(self, *, stranger: bool = False, scope: str = "") -> None:
        scope = scope or f"s{self.chance.randrange(self.kind.scopes)}"
        at = self.now() if self._task else 0.0
        if scope in self.faults:  # no node is initialised before its machine was shown
            self.after(30.0, lambda: self._join(scope=scope))
            return
        machine = Machine(next(self._numbers), scope, at, stranger=stranger)
        self.machines[machine.name] = machine
        self._changed(machine.name)
        if self._task is not None:
            self._ask([machine.node])

    def _pick(self, *, strange: bool = False) -> Machine | None:
        living = [one for one in self.machines.values() if one.lives]
        found = [
            one
            for one in living
            if not (one.stranger or one.pinned) or (strange and self._is_settled(one))
        ]
        return self.chance.choice(found) if found else None

    def _is_settled(self, machine: Machine) -> bool:
        """Whether a stranger was Ready for so long that it must be known for one.

        So is one that wrong answers lack, but for a restart in the meantime.
        """
        if machine.pinned:
            is_known = machine.ready and not self.kind.restarts
            return is_known and self.now() > machine.pinned_at + LAPSED
        if machine.lapsed is None:
            return self.now() > SETTLED
        return self.now() > machine.lapsed + LAPSED

    def _lapse(self, scope: str) -> None:
        """The cloud knows one machine no more, though it runs; one in a scope at a time."""
        mine = [one for one in self.machines.values() if one.scope == scope]
        vouching = [one for one in mine if one.vouches]
        if vouching and scope not in self.faults and not any(one.stranger for one in mine):
            machine = self.chance.choice(vouching)
            machine.stranger, machine.lapsed = True, self.now()

    def returned(self, machine: Machine, unknown: float) -> None:
        """What hid a machine has ended, and so for all that went missing with it or later."""
        for one in self.machines.values():
            is_with_it = one.unknown is not None and one.unknown >= unknown - LOST
            if one.scope == machine.scope and is_with_it and not one.stranger:
                one.unknown = None

    def _lose_one(self) -> None:
        machine = self._pick()
        if machine is not None:
            self._lose(machine)

    def _lose_many(self) -> None:
        share = self.chance.choice([0.1, 0.3, 0.6, 0.9])
        for machine in list(self.machines.values()):
            is_free = machine.lives and not machine.pinned and not machine.stranger
            if is_free and self.chance.random() < share:
                self._lose(machine)

    def _lose(self, machine: Machine) -> None:
        machine.dead = self.now()
        self.after(self.chance.uniform(*GRACE), lambda: self._fall_silent(machine))
        if self.kind.replaced:
            self.after(self.chance.uniform(30.0, 300.0), lambda: self._join(scope=machine.scope))

    def _fall_silent(self, machine: Machine) -> None:
        if machine.ready and machine.name in self.machines:
            machine.turn(ready=False, at=self.now())
            self._changed(machine.name)

    def _silence(self) -> None:
        """A kubelet stops reporting, and comes back after a while; its machine lives on."""
        machine = self._pick(strange=True)
        if machine is None:
            return
        self._fall_silent(machine)

        def back() -> None:
            if machine.lives and machine.name in self.machines:
                machine.turn(ready=True, at=self.now())
                self._changed(machine.name)
                if machine.stranger:  # it has to be set aside anew
                    self.right_since[machine.scope] = self.now()

        self.after(self.chance.choice([90.0, 900.0, 3600.0, 9000.0]), back)

    def _fault(self, scope: str) -> None:
        """Answers are wrong for a while.

        A wrong answer is one that lacks Ready nodes whose machines live, too: else nobody could
        tell it from a right one. So one of those is hidden, and stays Ready.
        """
        mine = [one for one in self.machines.values() if one.scope == scope]
        lapsed = max((one.lapsed for one in mine if one.lapsed is not None), default=-LAPSED)
        if scope in self.faults or self.now() - lapsed < LAPSED:
            return
        chance = self.chance
        vouching = [one for one in mine if one.vouches]
        flickers, hidden, fails = 0.0, 1.0, 0.0
        what = chance.choice(["none", "some", "some", "flicker", "error"])
        if what == "some":
            hidden = chance.choice([0.1, 0.2, 0.34, 0.5, 0.8])
        elif what == "flicker":
            hidden, flickers = 0.0, chance.choice([0.1, 0.3, 0.5])
        elif what == "error":
            hidden, fails = 0.0, chance.choice([0.3, 0.9, 1.0])
        salt = chance.random()

        def hides(machine: Machine) -> bool:
            return machine.pinned or random.Random(f"{salt}{machine.uid}").random() < hidden  # noqa: S311

        if what in {"none", "some"} and vouching:
            pinned = chance.choice(vouching)
            pinned.pinned, pinned.pinned_at = True, self.now()
        fault = self.faults[scope] = Fault(hides, fails, flickers)
        seconds = chance.choice([20.0, 120.0, 700.0, 1500.0, 4000.0])
        self.after(seconds, lambda: self._heal(scope, fault))

    def _heal(self, scope: str, fault: Fault) -> None:
        if self.faults.get(scope) is not fault:
            return
        del self.faults[scope]
        self.right_since[scope] = self.now()
        for machine in self.machines.values():
            if machine.scope == scope:
                machine.pinned = False

    def _restart(self) -> None:
        asyncio.get_running_loop().create_task(self._again())

    async def _again(self) -> None:
        await self._stop()
        await self._start()

    async def _start(self) -> None:
        self._inventory = Inventory(cast("Any", self.instances), on_error=lambda *_: None)
        self._started = self.now()
        for machine in self.machines.values():
            machine.shown = machine.unknown = None
        for scope in self.right_since:
            self.right_since[scope] = max(self.right_since[scope], self.now())
        self._controller = CloudNodeLifecycleController(self.environment())
        self._task = asyncio.create_task(self._controller.run())
        self._refresh()

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            if not self._task.cancelled() and self._task.exception():
                raise cast("Exception", self._task.exception())

    def _refresh(self) -> None:
        """What the other controller of nodes does: it asks about all of them."""
        self._ask(self.nodes)

    def _ask(self, nodes: Sequence[Node]) -> None:
        inventory = self._inventory

        async def ask() -> None:
            if inventory is not None:
                await inventory.get(nodes, not_before=self.now())

        task = asyncio.get_running_loop().create_task(ask())
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    # Judgement

    def _judge(self) -> None:
        """Whether what is dead has gone in time."""
        now = self.now()
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()
        if now - self.at < 15.0:
            return
        self.at = now
        for scope in self.right_since:
            mine = [one for one in self.machines.values() if one.scope == scope]
            if scope in self.faults or sum(one.vouches for one in mine) < ENOUGH:
                self.right_since[scope] = now
                continue
            strange = any(one.stranger for one in mine)
            patience = PATIENCE + (STRANGE if strange else 0.0)
            patience += PASSES * (self.kind.period - Settings().node_monitor_period)
            lost = [one for one in mine if one.is_lost(now)]
            missed = [one.unknown or now for one in lost if one.shown is not None]
            missed += [one.lapsed + REFRESH + 30.0 for one in mine if one.lapsed is not None]
            for one in mine:
                # What this manager has never seen may be in another account; and what it has not
                # seen since the cloud has lost another machine, may have been lost with it.
                is_strange = one in lost or any((one.shown or 0.0) <= at for at in missed)
                is_strange |= one.shown is None and (strange or bool(lost))
                if one.dead is None or one.ready or is_strange:
                    continue
                since = max(one.dead, self.right_since[scope])
                if now - since > patience:
                    self.broken.append(f"{now:.0f}: {one.name}, dead since {one.dead:.0f}, stays")


class Instances:
    """The cloud."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.batch_size = world.kind.batch_size

    def owns(self, node: Node) -> Ownership:
        return Ownership.YES

    def scope(self, node: Node) -> str:
        return node.spec.provider_id.split("/")[2]

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        world = self._world
        world.calls += 1
        await asyncio.sleep(world.chance.choice([0.05, 0.2, 1.0]))
        hidden: dict[str, frozenset[str]] = {}
        answers: dict[str, InstanceAnswer] = {}
        for node in nodes:
            scope = self.scope(node)
            fault = world.faults.get(scope)
            if fault is not None and fault.fails:
                if world.chance.random() < fault.fails:
                    raise CloudError("the cloud has its own troubles")
                fault = None
            machine = world.machines.get(node.metadata.name)
            if machine is None:
                answers[node.metadata.name] = NotFound()
                continue
            if fault is not None and scope not in hidden:
                hidden[scope] = self._flickering(scope, fault)
            is_hidden = fault is not None and (fault.hides(machine) or machine.uid in hidden[scope])
            answers[node.metadata.name] = self._answer(machine, hidden=is_hidden)
        return answers

    def _flickering(self, scope: str, fault: Fault) -> frozenset[str]:
        """Whom a call lacks, other ones each time; one of them is Ready."""
        world = self._world
        if not fault.flickers:
            return frozenset()
        mine = [one for one in world.machines.values() if one.scope == scope]
        lost = {one.uid for one in mine if world.chance.random() < fault.flickers}
        vouching = [one.uid for one in mine if one.vouches]
        if vouching and lost.isdisjoint(vouching):
            lost.add(world.chance.choice(vouching))
        return frozenset(lost)

    def _answer(self, machine: Machine, *, hidden: bool) -> InstanceAnswer:
        is_shown = machine.lives and not hidden and not machine.stranger
        if is_shown:
            if machine.ready and machine.unknown is not None:
                self._world.returned(machine, machine.unknown)
            machine.shown, machine.unknown = self._world.now(), None
            return Instance(provider_id=machine.id)
        if machine.ready and machine.unknown is None:
            machine.unknown = self._world.now()
        if hidden or machine.stranger:
            return NotFound()
        return NotFound(tombstone=self._world.kind.tombstones)


class _Client:
    def __init__(self, world: World) -> None:
        self._world = world

    async def delete(self, _: object, name: str, *, uid: str, gate: Gate, **__: object) -> None:
        gate()
        await asyncio.sleep(0.002)
        self._world.delete(name, uid)

    async def patch(self, _: object, name: str, patch: Patch, *, gate: Gate | None = None) -> None:
        if gate is not None:
            gate()
        await asyncio.sleep(0.002)
        self._world.write(name, patch)


class _Provider:
    name = "spot"

    def __init__(self, instances: Instances) -> None:
        self.instances = instances


class _Nodes:
    def __init__(self, world: World) -> None:
        self._world = world
        self._told: dict[str, Node] = {}
        self._handlers: list[Callable[[Node | None, Node | None], None]] = []

    def all(self) -> tuple[Node, ...]:
        return self._world.nodes

    def get(self, name: str) -> Node | None:
        machine = self._world.machines.get(name)
        return None if machine is None else machine.node

    def tell(self, name: str) -> None:
        old, new = self._told.pop(name, None), self.get(name)
        if new is not None:
            self._told[name] = new
        for handler in self._handlers:
            handler(old, new)

    async def wait_synced(self) -> None:
        pass

    async def wait_seen(self, *_: object) -> None:
        pass

    def subscribe(self, handler: Callable[[Node | None, Node | None], None]) -> None:
        self._handlers.append(handler)
        for node in self.all():
            self._told[node.metadata.name] = node
            handler(None, node)


class _Events:
    def __init__(self, world: World) -> None:
        self._world = world

    def source(self, _: str) -> "_Events":
        return self

    def event(self, about: Any, type_: str, reason: str, message: str) -> None:
        self._world.events.append((about.name, reason, message))
