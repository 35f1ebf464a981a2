"""Serve what a speaker announces, and to whom, in `/metrics`."""

from collections.abc import Mapping
from typing import Final

from prometheus_client import Gauge

from proreus.providers.local.bgp.config import Peer
from proreus.providers.local.bgp.plan import Decision
from proreus.providers.local.bgp.sessions import Session
from proreus.runtime.metrics import REGISTRY

SESSION_UP: Final = Gauge(
    "proreus_bgp_session_up",
    "Whether the session with the peer is established.",
    ["peer"],
    registry=REGISTRY,
)
PREFIXES: Final = Gauge(
    "proreus_bgp_announced_prefixes",
    "Prefixes that the peer was told.",
    ["peer"],
    registry=REGISTRY,
)
BFD_UP: Final = Gauge(
    "proreus_bgp_bfd_up",
    "Whether BFD says that the peer lives; only of peers with BFD.",
    ["peer"],
    registry=REGISTRY,
)
ADDRESSES: Final = Gauge(
    "proreus_bgp_addresses",
    "Addresses of Services, by whether this node announces them.",
    ["announced"],
    registry=REGISTRY,
)
PROBLEMS: Final = Gauge(
    "proreus_bgp_problems",
    "What is wrong with FRR, passwords and the cloud-config, as the log says.",
    registry=REGISTRY,
)


def show(
    decision: Decision, peers: Mapping[str, Peer], sessions: Mapping[str, Session], problems: int
) -> None:
    """Show a decision and the observed sessions, in the place of earlier ones."""
    for gauge in (SESSION_UP, PREFIXES, BFD_UP):
        gauge.clear()
    for name, peer in peers.items():
        session = sessions.get(peer.host)
        SESSION_UP.labels(name).set(session is not None and session.is_up)
        PREFIXES.labels(name).set(session.prefixes if session is not None else 0)
        if peer.bfd_profile:
            BFD_UP.labels(name).set(session is not None and session.bfd == "Up")
    ADDRESSES.labels("true").set(len(decision.announced))
    ADDRESSES.labels("false").set(len(decision.withheld))
    PROBLEMS.set(problems)
