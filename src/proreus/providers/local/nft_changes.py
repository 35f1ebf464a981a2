"""Compare the kernel's nftables table with the desired one; make one transaction. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from proreus.providers.local.expressions import Json
from proreus.providers.local.nft import ALIVE, PROTOCOLS, Chain, Program, Rule

_SHOWN_AS: Final = {"tcp": "tcp", "udp": "udp", "sctp": "sctp", 6: "tcp", 17: "udp", 132: "sctp"}


def names(listing: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the tables that `nft -j list tables` shows."""
    tables = (one["table"] for one in listing["nftables"] if "table" in one)
    return tuple(str(one["name"]) for one in tables)


def is_ours(listing: Mapping[str, Any], family: str) -> bool:
    """Tell whether `nft -j list table` shows a table of the manager's, or one with nothing in it.

    Each version of the manager has made a chain or a set of this name in each of its tables.
    """
    sign = {"inet": ("chain", "balance4"), "arp": ("set", ALIVE)}[family]
    found = {
        (kind, value.get("name"))
        for entry in listing["nftables"]
        for kind, value in entry.items()
        if kind not in {"metainfo", "table"}
    }
    return not found or sign in found


def comments(listing: Mapping[str, Any]) -> Mapping[str, list[str]]:
    """Return the comments of rules by their chain, as `memo.read` takes them."""
    found: dict[str, list[str]] = {}
    for entry in listing["nftables"]:
        if "rule" in entry:
            rule = entry["rule"]
            found.setdefault(rule["chain"], []).append(str(rule.get("comment", "")))
    return found


def parse_program(listing: Mapping[str, Any]) -> Program:
    """Parse `nft -j list table` as a program; rules have their comments only."""
    chains: dict[str, tuple[tuple[str, str, int] | None, list[Rule]]] = {}
    sets: dict[str, Mapping[str, Json]] = {}
    elements: dict[str, dict[tuple[str | int, ...], str]] = {}
    counters = set()
    for entry in listing["nftables"]:
        ((kind, value),) = entry.items()
        if kind == "chain":
            hook = (value["type"], value["hook"], value["prio"]) if "hook" in value else None
            chains[value["name"]] = (hook, [])
        elif kind == "rule":
            chains[value["chain"]][1].append(Rule(value.get("comment", "")))
        elif kind == "counter":
            counters.add(value["name"])
        elif kind in {"set", "map"}:
            sets[value["name"]] = {}
            if "flags" not in value:
                elements[value["name"]] = dict(_element(one) for one in value.get("elem", ()))
    return Program(
        {name: Chain(tuple(rules), hook) for name, (hook, rules) in chains.items()},
        sets,
        elements,
        frozenset(counters),
    )


def _element(entry: Json) -> tuple[tuple[str | int, ...], str]:
    if not isinstance(entry, list):
        return (entry,), ""
    key, verdict = entry
    address, protocol, port = key["concat"]
    return (address, _SHOWN_AS.get(protocol, str(protocol)), port), verdict["goto"]["target"]


def changes(
    desired: Program, observed: Program | None, table: str, family: str = "inet"
) -> list[Json]:
    """Return the commands that make the table as desired; none if it is.

    `there` is None if there is no table. Elements that packets added, and counters, stay.
    """
    owner: Json = {"family": family, "name": table}
    if observed is not None and _is_foreign(desired, observed):
        return [{"delete": {"table": owner}}, *changes(desired, None, table, family)]
    commands = [] if observed is not None else [{"add": {"table": owner}}]
    observed = observed or Program()
    within: Json = {"family": family, "table": table}
    commands += _made(desired, observed, within)
    commands += _elements(desired, observed, within, gone=True)
    stale = [name for name in observed.chains if name not in desired.chains]
    changed = [
        name
        for name, chain in desired.chains.items()
        if chain.comments != (observed.chains[name].comments if name in observed.chains else ())
    ]
    for name in (*stale, *(one for one in changed if one in observed.chains)):
        commands.append({"flush": {"chain": {**within, "name": name}}})
    for name in changed:
        commands += [_rule(name, rule, within) for rule in desired.chains[name].rules]
    commands += _elements(desired, observed, within, gone=False)
    commands += [{"delete": {"chain": {**within, "name": name}}} for name in stale]
    for name in sorted(observed.sets.keys() - desired.sets.keys()):
        commands.append({"delete": {"set": {**within, "name": name}}})
    for name in sorted(observed.counters - desired.counters):
        commands.append({"delete": {"counter": {**within, "name": name}}})
    return commands


def holding(table: str, seconds: float) -> list[Json]:
    """Return the commands that keep the set `alive` filled for some more seconds."""
    commands = []
    for family, protocols in PROTOCOLS.items():
        members = {"family": family, "table": table, "name": ALIVE}
        forever: Json = {"element": {**members, "elem": [*protocols]}}
        expiring = [
            {"elem": {"val": protocol, "timeout": max(1, round(seconds))}} for protocol in protocols
        ]
        # A member that is there already would keep its time.
        commands += [
            {"add": forever},
            {"delete": forever},
            {"add": {"element": {**members, "elem": expiring}}},
        ]
    return commands


def _rule(chain: str, rule: Rule, within: Json) -> Json:
    rule_json = {"chain": chain, "expr": [*rule.expressions], "comment": rule.comment}
    return {"add": {"rule": {**within, **rule_json}}}


def _is_foreign(desired: Program, observed: Program) -> bool:
    """Tell whether base chains hook in elsewhere, as another version made them."""
    hooks = {name: chain.hook for name, chain in desired.chains.items()}
    return any(
        chain.hook != hooks.get(name) for name, chain in observed.chains.items()
        if chain.hook or hooks.get(name)
    )  # fmt: skip


def _made(desired: Program, observed: Program, within: Json) -> Iterator[Json]:
    """Return the commands that make what rules and elements refer to."""
    for name in sorted(desired.counters - observed.counters):
        yield {"add": {"counter": {**within, "name": name}}}
    for name, attributes in desired.sets.items():
        if name not in observed.sets:
            kind = "map" if "map" in attributes else "set"
            yield {"add": {kind: {**within, "name": name, **attributes}}}
    for name, chain in desired.chains.items():
        if name not in observed.chains:
            hooked = (
                dict(zip(("type", "hook", "prio"), chain.hook, strict=True), policy="accept")
                if chain.hook
                else {}
            )
            yield {"add": {"chain": {**within, "name": name, **hooked}}}


def _elements(desired: Program, observed: Program, within: Json, *, gone: bool) -> Iterator[Json]:
    """Return the commands for elements: deletions if `gone`, else additions."""
    first, second = (observed, desired) if gone else (desired, observed)
    for name, listed in first.elements.items():
        if name not in desired.sets:
            continue
        other = second.elements.get(name, {})
        differing = [_given(key, to) for key, to in listed.items() if other.get(key) != to]
        if differing:
            verb = "delete" if gone else "add"
            yield {verb: {"element": {**within, "name": name, "elem": differing}}}


def _given(key: Sequence[str | int], to: str) -> Json:
    return [{"concat": list(key)}, {"goto": {"target": to}}] if to else key[0]
