"""Show what a node announces, why not the rest, and its sessions: `proreus bgp-speaker --show`.

Nothing is changed, neither in FRR nor in the cluster.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from proreus.app import printed, readonly
from proreus.app.speaker.options import SpeakerOptions
from proreus.app.speaker.settings import SettingsFile, passwords
from proreus.app.speaker.speaker import peers_of
from proreus.controllers.service.intake import slices_by_service
from proreus.kube.client import Client
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.errors import KubeError, NotFound
from proreus.kube.objects import Node
from proreus.kube.requests import ENDPOINT_SLICES, NODES, SERVICES
from proreus.providers.local.addresses import Address, Pool
from proreus.providers.local.bgp import frr
from proreus.providers.local.bgp.engine import Engine
from proreus.providers.local.bgp.plan import Decision, decide
from proreus.providers.local.bgp.sessions import Session
from proreus.providers.local.bgp.vty import FRRError

USER_AGENT: Final = "proreus-bgp-speaker-show"


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a node's speaker: its decision, its sessions, and what is wrong."""

    decision: Decision
    peers: Mapping[str, str]
    sessions: Mapping[str, Session]
    differences: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def is_well(self) -> bool:
        """Whether every session is up and FRR is as it should be."""
        hear = all(
            (session := self.sessions.get(host)) is not None and session.is_up
            for host in self.peers.values()
        )
        return hear and not self.differences and not self.problems


async def show(options: SpeakerOptions, settings: SettingsFile, cluster: ClientConfig) -> int:
    """Print the state; return 0 if all is well, else 1."""
    async with readonly.client(cluster, USER_AGENT) as client:
        try:
            shown = await _read(options, settings, client)
        except KubeError as exc:
            print(printed.line(f"the request to {cluster.server} failed: {exc}"))
            return 1
    print("\n".join(map(printed.line, lines(shown))))
    return 0 if shown.is_well else 1


async def _read(options: SpeakerOptions, settings: SettingsFile, client: Client) -> Shown:
    bgp, pools = settings.current.bgp, settings.current.address_pools
    node, decision = await _decided(options.node_name, pools, client)
    known, problems = passwords(bgp)
    desired = frr.desired(bgp, pools, node, decision.announced, known)
    engine = Engine(options.frr_sockets)
    sessions: Mapping[str, Session] = {}
    differences: tuple[str, ...] = ()
    try:
        found = await engine.differences(desired)
        sessions = await engine.sessions()
        differences = tuple(edit.text for edit in found.changed)
        problems += found.problems
    except FRRError as exc:
        problems += (str(exc),)
    return Shown(
        decision=decision,
        peers={name: peer.host for name, peer in peers_of(bgp, node).items()},
        sessions=sessions,
        differences=differences,
        problems=problems,
    )


async def _decided(
    name: str, pools: Sequence[Pool], client: Client
) -> tuple[Node | None, Decision]:
    """Return the node and what it is to announce."""
    node: Node | None
    try:
        node = await client.get(NODES, name)
    except NotFound:
        node = None
    slices = slices_by_service((await client.list(ENDPOINT_SLICES)).items)
    return node, decide((await client.list(SERVICES)).items, slices, node, pools)


def lines(shown: Shown) -> Iterator[str]:
    """Return the state as text."""
    announced, withheld = shown.decision.announced, shown.decision.withheld
    rows = [("ADDRESS", "ANNOUNCED", "WHY NOT")]
    rows += [(str(one), "yes", "") for one in sorted(announced, key=_order)]
    rows += [(str(one), "no", withheld[one]) for one in sorted(withheld, key=_order)]
    yield from _table(rows)
    yield ""
    sessions = [("PEER", "ADDRESS", "STATE", "PREFIXES", "BFD", "ENDED LAST BY")]
    for name, host in shown.peers.items():
        one = shown.sessions.get(host)
        if one is None:
            sessions.append((name, host, "unknown", "", "", ""))
        else:
            told = str(one.prefixes)
            sessions.append((name, host, one.state, told, one.bfd or "-", one.reason))
    yield from _table(sessions)
    for problem in shown.problems:
        yield f"problem: {problem}"
    for text in shown.differences:
        yield f"FRR lacks: {text}"


def _order(address: Address) -> tuple[int, int]:
    return address.version, int(address)


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
