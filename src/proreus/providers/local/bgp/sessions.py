"""Read what FRR says about its sessions. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

ESTABLISHED: Final = "Established"


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session with a peer, as FRR shows it.

    Attributes:
        peer: The peer's address.
        state: The state as in RFC 4271: Idle, Connect, Active, OpenSent, OpenConfirm or
            Established.
        prefixes: How many prefixes were announced to the peer.
        bfd: The state of BFD: Up, Down or another; "" without BFD.
        reason: Why the last session ended, or "".
    """

    peer: str
    state: str
    prefixes: int = 0
    bfd: str = ""
    reason: str = ""

    @property
    def is_up(self) -> bool:
        """Whether the peer hears us."""
        return self.state == ESTABLISHED


class _Family(msgspec.Struct, frozen=True, rename="camel"):
    sent_prefix_counter: int = 0


class _BFD(msgspec.Struct, frozen=True):
    status: str = ""


class _Neighbor(msgspec.Struct, frozen=True, rename="camel"):
    bgp_state: str = ""
    address_family_info: Mapping[str, _Family] = {}
    peer_bfd_info: _BFD = _BFD()
    last_reset_due_to: str = ""


def parse(text: str) -> Mapping[str, Session]:
    """Return the sessions by peer, from `show bgp neighbors json`.

    Raises:
        ValueError: The text is not such an answer.
    """
    rows = msgspec.json.decode(text or "{}", type=dict[str, msgspec.Raw])
    found = {}
    for peer, raw in rows.items():
        if not bytes(raw).startswith(b"{"):
            continue  # such as "bgpNoSuchNeighbor": true
        one = msgspec.json.decode(raw, type=_Neighbor)
        found[peer] = Session(
            peer=peer,
            state=one.bgp_state,
            prefixes=sum(each.sent_prefix_counter for each in one.address_family_info.values()),
            bfd=one.peer_bfd_info.status,
            reason=one.last_reset_due_to,
        )
    return found
