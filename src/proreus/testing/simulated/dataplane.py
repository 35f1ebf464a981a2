"""Carry the simulated cloud's traffic: sockets of load balancers, targets, firewalls."""

import asyncio
import contextlib
import errno
import hashlib
import ipaddress
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator

from proreus.testing.simulated.forward import Gate, TCPGate, UDPGate
from proreus.testing.simulated.health import Health, Probe
from proreus.testing.simulated.model import AddressPart, Firewall, Listener, LoadBalancer, Settings
from proreus.testing.simulated.parts import Parts


class DataPlane:
    """The sockets of all load balancers; targets and firewalls are read at each connection."""

    def __init__(
        self, parts: Parts, settings: Callable[[], Settings], now: Callable[[], float]
    ) -> None:
        """Keep parts and settings; sockets open within `running`."""
        self._parts = parts
        self._now = now
        self._gates: dict[str, Gate] = {}
        self._gates_of: defaultdict[str, set[str]] = defaultdict(set)
        self._errors: dict[str, str] = {}
        self._turn: defaultdict[str, int] = defaultdict(int)
        # One for all: who gets an address that was freed opens after who had it has closed.
        self._lock = asyncio.Lock()
        self._later: set[asyncio.Task[None]] = set()
        self.health = Health(self._probes, lambda: settings().health_interval)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listen and check until the end of the block."""
        checks = asyncio.create_task(self.health.run())
        try:
            for part in self._parts.all():
                if isinstance(part, LoadBalancer):
                    await self.sync(part.id)
            yield
        finally:
            for task in (checks, *self._later):
                task.cancel()
            await asyncio.gather(checks, *self._later, return_exceptions=True)
            for gate in self._gates.values():
                await gate.close()

    def state(self, listener: Listener) -> tuple[str, str]:
        """Return a listener's state (pending, active or error) and the error's text."""
        if listener.id in self._gates:
            return "active", ""
        error = self._errors.get(listener.id, "")
        return ("error", error) if error else ("pending", "")

    def targets(self, balancer: LoadBalancer) -> list[dict[str, str]]:
        """Return the targets with their health: the worst over all listeners."""
        listeners = [p for p in self._parts.on(balancer.id) if isinstance(p, Listener)]
        answer = []
        for target in balancer.targets:
            of = {
                self.health.of(_probe(balancer, listener, target.address)) for listener in listeners
            }
            worst = next((h for h in ("unhealthy", "unknown", "healthy") if h in of), "unknown")
            answer.append(
                {"instance_id": target.instance_id, "address": target.address, "health": worst}
            )
        return answer

    async def sync(self, balancer_id: str) -> None:
        """Open and close the sockets of one load balancer as its parts now require."""
        async with self._lock:
            balancer = self._parts.find(balancer_id)
            address = ""
            desired: dict[str, Listener] = {}
            if isinstance(balancer, LoadBalancer):
                address = self._address(balancer)
                wait = balancer.active_at - self._now()
                if wait > 0:
                    self._sync_later(balancer_id, wait)
                else:
                    on = self._parts.on(balancer_id)
                    desired = {part.id: part for part in on if isinstance(part, Listener)}
            await self._close_all_but(balancer_id, desired if address else {})
            for listener in desired.values():
                if listener.id not in self._gates:
                    await self._open(listener, address)
        self.health.wake()

    def route(self, listener_id: str, client: str) -> list[tuple[str, int]]:
        """Return the targets for a client's traffic, the first choice first."""
        listener = self._parts.find(listener_id)
        if not isinstance(listener, Listener):
            return []
        balancer = self._parts.find(listener.load_balancer_id)
        if not isinstance(balancer, LoadBalancer) or not self._lets_in(balancer, client):
            return []
        healthy = [
            (target.address, listener.target_port)
            for target in balancer.targets
            if self.health.of(_probe(balancer, listener, target.address)) == "healthy"
        ]
        if not healthy:
            return []
        if balancer.affinity_seconds is None:
            first = self._turn[listener_id] = (self._turn[listener_id] + 1) % len(healthy)
            return healthy[first:] + healthy[:first]
        return sorted(healthy, key=lambda t: hashlib.sha256(f"{client} {t[0]}".encode()).digest())

    async def _open(self, listener: Listener, address: str) -> None:
        if not address:
            self._failed(listener, "the load balancer's address was deleted")
            return
        gate: Gate = (TCPGate if listener.protocol == "TCP" else UDPGate)(
            lambda client: self.route(listener.id, client),
            lambda: self._speaks_proxy(listener.id),
        )
        try:
            await gate.open(address, listener.port)
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, "error")
            place = f"{address}:{listener.port}/{listener.protocol}"
            self._failed(listener, f"cannot listen on {place}: {name}")
            return
        self._errors.pop(listener.id, None)
        self._gates[listener.id] = gate
        self._gates_of[listener.load_balancer_id].add(listener.id)

    def _failed(self, listener: Listener, error: str) -> None:
        kept = {id_: text for id_, text in self._errors.items() if self._parts.find(id_)}
        self._errors = {**kept, listener.id: error}

    async def _close_all_but(self, balancer_id: str, desired: dict[str, Listener]) -> None:
        for id_ in sorted(self._gates_of.get(balancer_id, set()) - desired.keys()):
            self._gates_of[balancer_id].discard(id_)
            await self._gates.pop(id_).close()

    def _sync_later(self, balancer_id: str, wait: float) -> None:
        async def later() -> None:
            await asyncio.sleep(wait)
            await self.sync(balancer_id)

        task = asyncio.create_task(later())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def _address(self, balancer: LoadBalancer) -> str:
        """Return the address of a load balancer, "" if somebody took it away."""
        part = self._parts.find(balancer.address_id)
        return part.address if isinstance(part, AddressPart) else ""

    def _speaks_proxy(self, listener_id: str) -> bool:
        listener = self._parts.find(listener_id)
        return isinstance(listener, Listener) and listener.proxy_protocol

    def _lets_in(self, balancer: LoadBalancer, client: str) -> bool:
        ranges = (
            cidr
            for part in self._parts.on(balancer.id)
            if isinstance(part, Firewall)
            for cidr in part.source_ranges
        )
        source = ipaddress.ip_address(client)
        return any(source in ipaddress.ip_network(cidr) for cidr in ranges)

    def _probes(self) -> Iterator[Probe]:
        for part in self._parts.all():
            if isinstance(part, Listener):
                balancer = self._parts.find(part.load_balancer_id)
                if isinstance(balancer, LoadBalancer):
                    probes = (_probe(balancer, part, t.address) for t in balancer.targets)
                    yield from (probe for probe in probes if probe is not None)


def _probe(balancer: LoadBalancer, listener: Listener, address: str) -> Probe | None:
    """Return the health check's request to a target; None for UDP without a check of its own."""
    check = balancer.health_check
    if check.port == 0 and listener.protocol == "UDP":
        return None
    return Probe(address, check.port or listener.target_port, check.path)
