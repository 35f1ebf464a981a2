"""Keep FRR announcing what this node serves: observe, decide, apply, observe."""

import asyncio
from collections.abc import Mapping
from typing import Final

from proreus.app.speaker import figures
from proreus.app.speaker.settings import SettingsFile, passwords
from proreus.controllers.service.intake import SLICES_BY_SERVICE, service_keys
from proreus.kube.client import Client
from proreus.kube.objects import EndpointSlice, Node, Service
from proreus.kube.requests import ENDPOINT_SLICES, NODES, SERVICES
from proreus.providers.local.bgp import frr
from proreus.providers.local.bgp.config import BGP, OnShutdown, Peer, selects
from proreus.providers.local.bgp.engine import Engine
from proreus.providers.local.bgp.plan import Decision, decide
from proreus.providers.local.bgp.sessions import Session
from proreus.providers.local.bgp.vty import FRRError
from proreus.runtime import klog
from proreus.runtime.backoff import Backoff
from proreus.runtime.informer import Informer
from proreus.runtime.tasks import supervise, unless_stopped
from proreus.serving.health import Health

log = klog.logger(__name__)

RESTART: Final = Backoff(first=0.5, cap=30.0, jitter=0.5)
QUIET_SECONDS: Final = 0.05
"""Seconds to wait for more changes after the first."""
RETRY_SECONDS: Final = 1.0
"""Seconds until FRR is asked again that does not answer."""
WITHDRAWING_SECONDS: Final = 10.0
"""Seconds that the last withdrawal may take."""


class Speaker:
    """The speaker of one node."""

    def __init__(
        self, client: Client, node: str, settings: SettingsFile, engine: Engine, health: Health
    ) -> None:
        """Prepare to watch Services, EndpointSlices and the one Node."""
        self._node_name = node
        self._settings = settings
        self._engine = engine
        self._changed = asyncio.Event()
        self._services = Informer(client, SERVICES)
        self._slices = Informer(client, ENDPOINT_SLICES, indexes={SLICES_BY_SERVICE: service_keys})
        self._nodes = Informer(client, NODES, field_selector=f"metadata.name={node}")
        self._decision = Decision()
        self._sessions: Mapping[str, Session] = {}
        self._problems: tuple[str, ...] = ()
        self._problem: str | None = "has not looked at FRR yet"
        health.add("frr", lambda: self._problem)
        health.add("bgp-sessions", self._without_sessions)
        self._crashed = health.flag("watches")

    async def run(self, stop: asyncio.Event, period: float) -> None:
        """Announce until the stop, then withdraw if the cloud-config says so."""
        informers = (self._services, self._slices, self._nodes)
        tasks = [
            asyncio.create_task(
                supervise(
                    f"{one.resource.plural} informer",
                    one.run,
                    backoff=RESTART,
                    on_crash=self._crashed,
                )
            )
            for one in informers
        ]
        tasks.append(asyncio.create_task(self._notice_ends()))
        try:
            if await unless_stopped(self._synced(), stop):
                self._services.subscribe(self._on_service)
                self._slices.subscribe(self._on_slice)
                self._nodes.subscribe(self._on_node)
                await unless_stopped(self._keep(period), stop)
                await self._end()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _synced(self) -> None:
        for one in (self._services, self._slices, self._nodes):
            await one.wait_synced()

    def _on_service(self, old: Service | None, new: Service | None) -> None:
        if any(one is not None and one.spec.type == "LoadBalancer" for one in (old, new)):
            self._changed.set()

    def _on_slice(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        """Look again if a Service of ours is concerned: of others there may be very many."""
        keys = {key for one in (old, new) if one is not None for key in service_keys(one)}
        for key in keys:
            service = self._services.get(key)
            if service is not None and service.spec.type == "LoadBalancer":
                self._changed.set()

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        del old, new
        self._changed.set()

    async def _notice_ends(self) -> None:
        """Look at FRR as soon as a new one may have taken the place of one that ended."""
        while True:
            try:
                await self._engine.ended()
            except FRRError:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._changed.set()
                await asyncio.sleep(QUIET_SECONDS)

    async def _keep(self, period: float) -> None:
        while True:
            self._changed.clear()
            await self._pass()
            try:
                async with asyncio.timeout(RETRY_SECONDS if self._problem else period):
                    await self._changed.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(QUIET_SECONDS)

    async def _pass(self) -> None:
        """Make FRR as it should be now, and look at its sessions."""
        bgp = self._settings.refresh().bgp
        self._decide()
        known, problems = passwords(bgp)
        problems += self._settings.problems
        try:
            problems += await self._apply(bgp, known)
            self._observe(bgp, await self._engine.sessions())
        except FRRError as error:
            self._problem = str(error)
            self._sessions = {}
            problems += (str(error),)
        else:
            self._problem = None
        for problem in problems:
            if problem not in self._problems:
                klog.error(
                    log, "Some addresses are not announced as they should be", problem=problem
                )
        self._problems = problems
        figures.show(self._decision, peers_of(bgp, self._node()), self._sessions, len(problems))

    def _decide(self) -> None:
        """Decide what to announce, and log how that differs from before."""
        services = [one for one in self._services.all() if one.spec.type == "LoadBalancer"]
        keys = [f"{one.metadata.namespace}/{one.metadata.name}" for one in services]
        slices = {key: self._slices.by(SLICES_BY_SERVICE, key) for key in keys}
        pools = self._settings.current.address_pools
        decision = decide(services, slices, self._node(), pools)
        for address in decision.announced - self._decision.announced:
            klog.info(log, "Announcing", address=str(address))
        for address in self._decision.announced - decision.announced:
            reason = decision.withheld.get(address, "no Service has it")
            klog.info(log, "Withdrawing", address=str(address), reason=reason)
        for address, reason in decision.withheld.items():
            before = self._decision.withheld.get(address)
            if reason != before and address not in self._decision.announced:
                klog.info(log, "Not announcing", address=str(address), reason=reason)
        self._decision = decision

    async def _apply(self, bgp: BGP, known: Mapping[str, str | None]) -> tuple[str, ...]:
        pools = self._settings.current.address_pools
        announced = self._decision.announced
        desired = frr.desired(bgp, pools, self._node(), announced, known)
        applied = await self._engine.apply(desired)
        for edit in applied.changed:
            klog.v(log, 2, "FRR was changed", command=edit.text)
        return applied.problems

    def _observe(self, bgp: BGP, sessions: Mapping[str, Session]) -> None:
        """Take over the sessions that FRR shows, and log how they differ from before."""
        for name, peer in peers_of(bgp, self._node()).items():
            old, new = self._sessions.get(peer.host), sessions.get(peer.host)
            if new is not None and new.is_up and not (old is not None and old.is_up):
                klog.info(log, "The session is up", peer=name, address=peer.host)
            elif old is not None and old.is_up and not (new is not None and new.is_up):
                why = new.reason if new is not None else "it was taken away"
                klog.warning(log, "The session is down", peer=name, address=peer.host, reason=why)
        self._sessions = sessions

    async def _end(self) -> None:
        """Withdraw everything, if so configured."""
        settings = self._settings.current
        if settings.bgp.on_shutdown is OnShutdown.KEEP:
            return
        known, _ = passwords(settings.bgp)
        nothing = frr.desired(settings.bgp, settings.address_pools, self._node(), (), known)
        try:
            async with asyncio.timeout(WITHDRAWING_SECONDS):
                await self._engine.apply(nothing)
        except (FRRError, TimeoutError) as error:
            klog.warning(log, "The announced addresses could not be withdrawn", err=error)

    def _node(self) -> Node | None:
        return self._nodes.get(self._node_name)

    def _without_sessions(self) -> str | None:
        """Return the problem that no peer hears this node, if there are peers."""
        peers = peers_of(self._settings.current.bgp, self._node())
        if not peers or any(one.is_up for one in self._sessions.values()):
            return None
        return f"no session is established with {', '.join(peers)}"


def peers_of(bgp: BGP, node: Node | None) -> Mapping[str, Peer]:
    """Return the peers to which a node should have a session; none without a Node."""
    labels = node.metadata.labels if node is not None else {}
    return {
        name: peer
        for name, peer in bgp.peers.items()
        if node is not None and selects(peer.node_selectors, labels)
    }
