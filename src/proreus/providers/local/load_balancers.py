"""The capability `LoadBalancers` of the provider `local`, in this machine's kernel.

Nothing is remembered here: each verb reads the state in the kernel, and so does a new process.
The verbs and the keeper, which applies what health checks find, take turns.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from proreus.cloudprovider.background import Background
from proreus.cloudprovider.context import Context, scope
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.identity import ClusterIdentity, OwnedObject
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    Done,
    EnsureAnswer,
    Ensured,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    PartChange,
)
from proreus.kube.objects import Service
from proreus.providers.local import network, nft, nft_changes, plan, pools, preview, refusals
from proreus.providers.local.announcer import Announcer
from proreus.providers.local.asked import request_for
from proreus.providers.local.calls import Calls
from proreus.providers.local.config import LocalConfig
from proreus.providers.local.figures import FIGURES
from proreus.providers.local.gateways.room import Room
from proreus.providers.local.gateways.telling import Teller
from proreus.providers.local.given import disowning, failed
from proreus.providers.local.health import Checker
from proreus.providers.local.kernel import Kernel, Observed, Routed, bear
from proreus.providers.local.locks import Turn
from proreus.providers.local.mirror import mirrored
from proreus.providers.local.plan import Condition, State, Target
from proreus.providers.local.taken import Occupied
from proreus.providers.local.usage import NONE, Named, in_use, occupied, of_machines, taken_of
from proreus.providers.local.work import Work, work

log = logging.getLogger(__name__)

COUNTED_EVERY: Final = 10.0
"""Seconds between two readings of the counters."""
REPAIRED_EVERY: Final = 30.0
"""Seconds between two comparisons of the kernel with what it should have."""
_LOOKED_EVERY: Final = 1.0


class LocalLoadBalancers:
    """The capability `LoadBalancers` of the provider `local`. All Services are one group."""

    def __init__(
        self, context: Context, settings: LocalConfig, room: Room | None = None, named: Named = NONE
    ) -> None:
        """Keep the settings, where gateways meet, and the machines that the inventory names."""
        self._context = context
        self._calls = Calls(context)
        self._room = room
        self._named = named
        self._settings = settings
        self._draining = settings.draining.total_seconds()
        self._pools = settings.address_pools
        self._gateway = settings.gateway
        self._claim = refusals.claim(context.cluster.uid, self._gateway)
        self._hold = self._gateway.hold.total_seconds()
        self._kernel = Kernel(self._gateway)
        self._turn = Turn()
        self._verdicts: dict[Target, Condition] = {}
        self._news = asyncio.Event()
        self._checker = Checker(settings.health_checks, self._told)
        self._announcer = Announcer(context, settings, room, self._news.set)
        self._reach = plan.Reach(())
        self._state = State()
        self._scope: Hashable = None
        self._teller = Teller(context, room) if room is not None else None
        self._holds = not self._hold
        self._background: tuple[Background, ...] = ()

    async def start(self) -> None:
        """Read the state from the kernel, and begin to check and repair.

        Raises:
            CloudError: The state cannot be read, or the gateway is another cluster's.
        """
        self._scope = scope.get()
        if self._hold and not await self._calls.read("is_held", self._kernel.is_held):
            # Another gateway may have been in charge since: what is here is out of date.
            await self._change(lambda state, _: refusals.emptied(state, self._claim))
        state = (shown := await self._show()).state
        refusals.admit(state, self._claim)
        if problem := refusals.others(state, self._claim):
            log.error("Both clusters go on for now: %s", problem)
        for text in network.beyond(self._pools, shown.interfaces, self._gateway.interfaces):
            log.warning("Addresses are not announced: %s", text)
        self._announcer.follow(state, shown)
        try:
            await self._announcer.announce(self._announcer.announced)
            await self._open_room(state)
        except CloudError as error:  # a command that only reads, or the lease is lost
            log.info("The addresses in the kernel were not announced: %s", error)
        # From here on nothing waits: a start that is cancelled leaves nothing behind that runs.
        self._follow(state)
        self._announcer.start()
        self._background = (
            Background("local-gateway", self._keep),
            Background("local-counters", self._count),
        )

    async def close(self) -> None:
        """Stop checking and repairing; the kernel keeps what it has."""
        await self._checker.close()
        await self._announcer.close()
        for one in self._background:
            await one.close()
        # A program that still runs would change the kernel later on.
        await self._context.settled(self._scope)

    def group(self, lb: LoadBalancerRef) -> Hashable:
        """Return one group for all Services."""
        del lb
        return "gateway"

    def host_policy(self, service: Service) -> HostPolicy:
        """Choose all nodes, in both families."""
        del service
        return HostPolicy()

    def fingerprint(self, desired: LoadBalancer) -> str:
        """Return the fingerprint that `list_owned` shows if the kernel is as desired."""
        addresses = dict.fromkeys(desired.families, "")
        key = request_for(desired).sharing_key
        state, _ = plan.ensured(State(), desired, addresses, self._reach, sharing_key=key)
        return plan.sketch(state, desired.ref.uid)

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """Read the kernel and, where something differs, change it in one transaction."""
        await self._named.look()
        answers: dict[str, EnsureAnswer] = {}
        routed: dict[str, CloudError] = {}
        before: State | None = None

        def edit(state: State, shown: Observed) -> State:
            nonlocal before
            before, occupied = state, self._occupied(state, routed)
            for lb in desired:
                try:
                    state, answers[lb.ref.uid] = self._ensured(state, lb, occupied, routed)
                except CloudError as error:
                    answers[lb.ref.uid] = disowning(error, lb, occupied)
            if problems := self._obstacles(state, shown):
                raise CloudError("; ".join(problems))
            return state

        while True:
            try:
                await self._change(edit)
            except CloudError as error:
                if not isinstance(error, Routed) or error.address in routed:
                    others = self._occupied(before) if before is not None else Occupied()
                    return {one.ref.uid: failed(error, one, others) for one in desired}
                routed[error.address] = error
            else:
                return answers

    async def preview(
        self, desired: Sequence[LoadBalancer]
    ) -> Mapping[str, Sequence[PartChange] | CloudError]:
        """Read the kernel, and return what `ensure` would change."""
        await self._named.look()
        async with self._turn.own:
            state = (shown := await self._show()).state
        is_damaged = self._work(state, shown) != Work()
        occupied = self._occupied(state)
        answers: dict[str, Sequence[PartChange] | CloudError] = {}
        for uid, lb in {one.ref.uid: one for one in desired}.items():
            try:
                after, _ = self._ensured(state, lb, occupied, {})
            except CloudError as error:
                answers[uid] = error
                continue
            answers[uid] = preview.changes(state, after, uid, is_damaged=is_damaged)
            state = after
        if problems := self._obstacles(state, shown):
            return {one.ref.uid: CloudError("; ".join(problems)) for one in desired}
        return answers

    async def update_hosts(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        """Do as `ensure`, which writes only what differs."""
        return await self.ensure(desired)

    async def mirror(
        self, desired: Sequence[LoadBalancer], refused: Sequence[LoadBalancerRef]
    ) -> None:
        """Have these load balancers and no others of the cluster, with the addresses in statuses.

        What the kernel has for `refused` ones stays as it is.

        Raises:
            CloudError: The kernel refuses, its settings do not let traffic pass, or the gateway is
                another cluster's.
        """

        def edit(state: State, shown: Observed) -> State:
            refusals.admit(state, self._claim)
            if problems := self._obstacles(state, shown):
                raise CloudError("; ".join(problems))
            leave = self._now() + self._draining if self._draining else 0.0
            given = (state, desired, refused, self._pools, self._reach)
            machines, names = self._machines(state), self._context.listers.get("namespaces")
            own = self._claim.cluster
            return mirrored(*given, machines=machines, namespaces=names, leave=leave, cluster=own)

        await self._change(edit)

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Mapping[str, DeleteAnswer]:
        """Delete the Services' rules and addresses, if they are of the ref's cluster."""

        def edit(state: State, _: Observed) -> State:
            for ref in gone:
                found = state.balancers.get(ref.uid)
                if found is not None and found.cluster == ref.cluster.uid:
                    state = plan.deleted(state, ref.uid)
            return state

        await self._change(edit)
        return {one.uid: Done() for one in gone}

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """Return the load balancers of the cluster; one that lacks parts has no fingerprint."""
        state = (shown := await self._show()).state
        damaged = self._work(state, shown) != Work()
        return [
            OwnedObject(
                kind="load_balancer",
                id=uid,
                service=one.service,
                service_uid=uid,
                fingerprint="" if damaged else plan.sketch(state, uid),
                addresses=tuple(one.addresses.values()),
            )
            for uid, one in state.balancers.items()
            if one.cluster == cluster.uid
        ]

    def _ensured(
        self, state: State, lb: LoadBalancer, occupied: Occupied, routed: Mapping[str, CloudError]
    ) -> tuple[State, EnsureAnswer]:
        refusals.check(state, lb, self._claim)
        existing = state.balancers.get(lb.ref.uid)
        current = existing.addresses.values() if existing is not None else ()
        namespaces = self._context.listers.get("namespaces")
        request = request_for(lb, current, namespaces, occupied.machines)
        assigned = pools.assign(request, occupied, self._pools)
        if isinstance(assigned, pools.Refused):
            raise assigned.error
        refusals.check_routed(assigned.addresses, routed)  # before it counts as having these
        addresses = {"IPv4" if "." in one else "IPv6": one for one in assigned.addresses}
        state, rejected = plan.ensured(
            state,
            lb,
            addresses,
            self._reach,
            sharing_key=request.sharing_key,
            leave=self._now() + self._draining if self._draining else 0.0,
        )
        occupied.move(request.uid, taken_of(state, request.uid, lb.ref.cluster.uid))
        return state, Ensured(assigned.ingress, rejected)

    def _occupied(self, state: State, routed: Iterable[str] = ()) -> Occupied:
        """Return which addresses nobody else may get."""
        services, machines = self._context.listers["services"].all(), self._machines(state)
        used = in_use(machines, self._reach, routed)
        return occupied(state, self._claim.cluster, services, used, machines)

    def _machines(self, state: State) -> Mapping[str, str]:
        nodes = self._context.listers["nodes"].all()
        return of_machines(nodes, state.machines.values(), self._named.addresses)

    async def _change(self, edit: Callable[[State, Observed], State]) -> None:
        """Read the kernel, edit the state, and apply it."""
        async with self._turn:
            shown = await self._show()
            state = edit(shown.state, shown)
            if refusals.is_anothers(shown.state, self._claim):
                # Nothing here is ours, to repair or to keep alive.
                self._follow(State())
                self._announcer.follow(State(), shown)
                return
            state = plan.swept(plan.judged(state, self._verdicts), self._now())
            await self._apply(state, shown)
            self._follow(state)
            self._announcer.follow(state, shown)
            self._announcer.weigh(self._verdicts.values(), holds=self._holds)
            await self._open_room(state)

    async def _apply(self, state: State, shown: Observed) -> None:
        """Apply a state: first routes, then the rules that use them; deletions in reverse."""
        kernel, held = self._kernel, self._turn.held
        found = self._work(state, shown)
        if found.makes_device:
            await self._calls.write("make_device", kernel.make_device)
        if found.added:
            take = partial(kernel.take, found.added, found.settings)
            bear(await self._calls.write("add_routes", take), shown.state)
        if found.commands:
            await self._calls.write("change_table", lambda: kernel.change(found.commands, held))
        if found.removed:
            await self._calls.write("remove_routes", lambda: kernel.drop(found.removed))
        if found.removes_device:
            await self._calls.write("remove_device", kernel.remove_device)
        await self._announcer.announce(found.announced)

    def _obstacles(self, state: State, shown: Observed) -> tuple[str, ...]:
        problems = network.obstacles(state, shown.settings, shown.interfaces)
        return problems + (self._room.obstacles() if self._room is not None else ())

    def _work(self, state: State, shown: Observed) -> Work:
        return work(state, shown, self._gateway, self._announcer.holding(shown))

    async def _show(self) -> Observed:
        shown = await self._calls.read("show", self._kernel.show)
        self._claim = refusals.claim(self._context.cluster.uid, self._gateway, shown)
        marks = nft.Settings(mask=self._gateway.mark_mask).marks
        self._reach = network.reach(shown.interfaces, marks, shown.own)
        return shown

    def _now(self) -> float:
        return self._context.now().timestamp()

    def _told(self, target: Target, condition: Condition) -> None:
        self._verdicts[target] = condition
        self._news.set()

    async def _open_room(self, state: State) -> None:
        """Let other gateways give us shares of the addresses, now that the kernel has them all.

        Raises:
            CloudError: This process may not act, such as a command that only reads.
        """
        if self._room is not None and state.balancers and not self._room.is_open:
            await self._calls.write("meet_gateways", lambda: None)  # as it takes their addresses
            self._room.open()

    def _follow(self, state: State) -> None:
        self._state = state
        targets = plan.targets(state)
        self._checker.watch(targets)
        self._verdicts = {one: verdict for one, verdict in self._verdicts.items() if one in targets}

    async def _keep(self) -> None:
        """Apply results of health checks, end drained connections, and repair."""
        loop = asyncio.get_running_loop()
        repaired = held = loop.time()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(_LOOKED_EVERY, self._hold / 3 or _LOOKED_EVERY)):
                    await self._news.wait()
            news = self._news.is_set()
            self._news.clear()
            try:
                drained = plan.swept(self._state, self._now()) != self._state
                if news or drained or loop.time() - repaired >= REPAIRED_EVERY:
                    repaired = loop.time()
                    await self._change(lambda state, _: state)
                self._announcer.weigh(self._verdicts.values(), holds=self._holds)
                if self._teller is not None:
                    self._teller.tell(self._state)
                if not self._holds or (self._hold and loop.time() - held >= self._hold / 3):
                    held = loop.time()
                    self._holds = await self._is_holding()
            except CloudError as error:
                log.warning("Could not check or repair the load balancers in the kernel: %s", error)
                self._news.set()
                await asyncio.sleep(1.0)
            except Exception:
                self._news.set()  # what was to be done is left to do when this begins again
                raise

    async def _is_holding(self) -> bool:
        """Keep the set filled that shows this machine alive, if it may be."""
        if self._room is not None and not self._room.is_heard():
            return False  # another gateway may answer, and this one could not know
        async with self._turn.own:
            if self._state.balancers:
                commands = nft_changes.holding(self._gateway.nft_table, self._hold)
                await self._calls.write("hold_addresses", lambda: self._kernel.change(commands))
        return True

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(COUNTED_EVERY)
            counters = await self._calls.read("counters", self._kernel.counters)
            FIGURES.show(self._state, counters)
