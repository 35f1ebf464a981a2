"""Find the changes that make the kernel as the state says. Pure."""

from collections.abc import Mapping

import msgspec

from proreus.providers.local import network, nft, nft_changes
from proreus.providers.local.config import Gateway
from proreus.providers.local.expressions import Json
from proreus.providers.local.gateways.plan import Holding
from proreus.providers.local.kernel import Observed
from proreus.providers.local.plan import State


class Work(msgspec.Struct, frozen=True):
    """The changes of the kernel in their order; nothing by default.

    Attributes:
        makes_device: Whether the device that leads nowhere has to be made.
        settings: Settings of interfaces, below /proc/sys/net, to write with the additions.
        added: Lines to add by `ip -batch`, by its option for the family.
        commands: The commands of one transaction of nftables.
        removed: Lines to delete by `ip -batch` after that transaction.
        removes_device: Whether the device has to be removed, since nothing is routed to it any
            more.
        announced: Addresses that neighbours are to be told of, with the interfaces.
    """

    makes_device: bool = False
    settings: tuple[tuple[str, int], ...] = ()
    added: Mapping[str, tuple[str, ...]] = {}
    commands: tuple[Json, ...] = ()
    removed: Mapping[str, tuple[str, ...]] = {}
    removes_device: bool = False
    announced: tuple[tuple[str, str], ...] = ()


def work(state: State, shown: Observed, gateway: Gateway, holding: Holding | None = None) -> Work:
    """Return the changes that the kernel needs for the desired state; `Work()` if none.

    `holding` is what this machine may announce; None is everything.
    """
    desired = {}
    for family, ways in network.ways(state, shown.interfaces, gateway).items():
        before = shown.ways[family]
        wanted = ways.announced - before.others  # neighbours are answered already
        announced = network.announced(wanted, before.announced, holding)
        desired[family] = msgspec.structs.replace(ways, announced=announced)
    added, removed = {}, {}
    for family, option in network.FAMILIES.items():
        pair = (family, desired[family], shown.ways[family], gateway)
        if lines := tuple(network.added(*pair)):
            added[option] = lines
        if lines := tuple(network.removed(*pair)):
            removed[option] = lines
    fresh = {
        each
        for family, ways in desired.items()
        for each in ways.announced - shown.ways[family].announced
    }
    return Work(
        makes_device=bool(state.balancers) and not shown.device,
        settings=network.needs(state, shown.interfaces, gateway) if added else (),
        added=added,
        commands=tuple(_commands(state, shown, gateway, holding)),
        removed=removed,
        removes_device=shown.device and not state.balancers,
        announced=tuple(sorted(fresh)),
    )


def _commands(
    state: State, shown: Observed, gateway: Gateway, holding: Holding | None
) -> list[Json]:
    """Return the nftables commands that make our tables as desired."""
    names = nft.Settings(
        gateway.nft_table,
        gateway.device,
        gateway.mark_mask,
        direct=network.answers_pass_by(state, shown.interfaces, gateway),
        held=bool(gateway.hold),
        shared=gateway.vrrp.enabled,
    )
    desired = {
        "inet": nft.program(state, names) if state.balancers else None,
        "arp": nft.silence(state) if state.balancers and names.held else None,
    }
    commands = []
    for family, observed in (("inet", shown.program), ("arp", shown.silence)):
        program = desired[family]
        if program is not None:
            commands += nft_changes.changes(program, observed, names.table, family)
        elif observed is not None:
            commands.append({"delete": {"table": {"family": family, "name": names.table}}})
    if commands and state.balancers and names.held and (holding is None or holding.heard):
        commands += nft_changes.holding(names.table, gateway.hold.total_seconds())
    return commands
