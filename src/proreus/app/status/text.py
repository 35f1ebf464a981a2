"""Render the state as a table for a terminal. Pure."""

import sys
from collections.abc import Iterable, Mapping, Sequence

from proreus.app import printed
from proreus.app.status.summary import (
    GatewayRow,
    Inside,
    Row,
    SpeakerRow,
    State,
    Summary,
    counts,
)

MINUTE, HOUR, DAY = 60, 3600, 86400
SILENT = 20
"""Seconds after which a gateway that renews its notice every five is gone."""
_HEAD: tuple[str, ...] = (
    "NAME", "STATE", "AGE", "CLOUD", "ZONE", "DETAIL", "REASON", "MESSAGE",
)  # fmt: skip
NOT_ASKED = "not known here: give --url of a manager that runs with --status-page"


def render(summary: Summary, *, width: int = 100, rows: int = 20, everything: bool = False) -> str:
    """Render figures, nodes and Services: all of them, or `rows` of each that are not ready."""
    lines = [f"{summary.cluster or 'cluster'}  {summary.at:%Y-%m-%d %H:%M:%S} UTC", ""]
    for lease in summary.leases:
        holder = lease.holder or "nobody"
        lines.append(f"LEASE      {lease.name}: {holder}, renewed {age(lease.renewed)} ago")
    lines += [f"GATEWAY    {one.name}: {_served(one)}" for one in summary.gateways]
    lines += _speakers(summary.speakers, sys.maxsize if everything else rows)
    lines += _section("NODES", summary.nodes, rows, everything=everything)
    lines += _section("SERVICES", summary.services, rows, everything=everything)
    lines.append(f"ROUTES     {_routes(summary.nodes)}")
    lines += _inside(summary.inside, rows)
    return "\n".join(printed.line(line)[:width].rstrip() for line in lines) + "\n"


def _served(gateway: GatewayRow) -> str:
    if gateway.renewed > SILENT:
        return f"silent, last heard of {age(gateway.renewed)} ago"
    return f"answers for {_addresses(gateway)}"


def _addresses(row: GatewayRow | SpeakerRow) -> str:
    others = f" and {row.more} more" if row.more else ""
    return f"{', '.join(row.addresses) or 'no address'}{others}"


def _speakers(speakers: Sequence[SpeakerRow], rows: int) -> list[str]:
    """Render what each node announces; for one that is not well, what it is to announce."""
    lines = [
        f"SPEAKER    {one.node}: "
        + (f"{one.problem}; is to announce " if one.problem else "announces ")
        + _addresses(one)
        for one in speakers[:rows]
    ]
    if len(speakers) > rows:
        lines.append(f"  and {len(speakers) - rows} more: --all shows them")
    return lines


def _section(title: str, listed: Sequence[Row], rows: int, *, everything: bool) -> list[str]:
    lines = [f"{title:10} {len(listed)}  {figures(counts(listed))}".rstrip()]
    shown = list(listed) if everything else [row for row in listed if row.state is not State.READY]
    if not shown:
        return lines
    limit = len(shown) if everything else rows
    table = [_HEAD, *map(_cells, shown[:limit])]
    if not any(row.cloud for row in listed):  # there is one cloud only
        table = [(*line[:3], *line[4:]) for line in table]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]) - 1)]
    for line in table:
        cells = [cell.ljust(size) for cell, size in zip(line, widths, strict=False) if size]
        lines.append("  " + "  ".join([*cells, line[-1]]))
    if len(shown) > limit:
        lines.append(f"  and {len(shown) - limit} more: --all shows them")
    return lines


def _cells(row: Row) -> tuple[str, ...]:
    known = (row.name, row.state, age(row.age), row.cloud, row.zone, row.detail, row.reason)
    return (*known, row.message)


def figures(counted: Mapping[State, int]) -> str:
    """Describe counts by state in words."""
    return ", ".join(f"{count} {state}" for state, count in counted.items())


def _routes(nodes: Iterable[Row]) -> str:
    states = [row.routes for row in nodes if row.routes]
    if not states:
        return "no node has a route condition"
    return f"{states.count('made')} nodes have theirs, {states.count('missing')} lack them"


def _inside(inside: Inside | None, rows: int) -> list[str]:
    if inside is None:
        return [f"{title:10} {NOT_ASKED}" for title in ("DELETIONS", "CLOUD", "LEAKS")]
    cloud, deletions = inside.cloud, inside.deletions
    calls = ", ".join(f"{count} {code}" for code, count in sorted(cloud.calls.items()))
    rates = ", ".join(f"{name} {rate:.1f}/s" for name, rate in sorted(cloud.rates.items()))
    waiting, held, unproven = deletions.waiting, deletions.held, deletions.unproven
    learned = rates or "none"
    stay = f"{held} held by the breaker, {unproven} without proof"
    lines = [
        f"DELETIONS  {waiting} wait for more answers, {stay}",
        f"CLOUD      calls: {calls or 'none'}; {cloud.waiting} wait; learned quota: {learned}",
        f"LEAKS      {len(inside.leaks)}",
    ]
    if deletions.unknown:
        lines.insert(1, f"  Ready, but unknown to the cloud: {', '.join(deletions.unknown)}")
    lines += [f"  {leak.kind} {leak.id} of {leak.service}" for leak in inside.leaks[:rows]]
    return lines


def age(seconds: float) -> str:
    """Format a time span as kubectl does: the two largest units at most."""
    whole = int(seconds)
    if whole < 2 * MINUTE:
        return f"{whole}s"
    if whole < 2 * HOUR:
        return f"{whole // MINUTE}m"
    if whole < 2 * DAY:
        return f"{whole // HOUR}h"
    return f"{whole // DAY}d"
