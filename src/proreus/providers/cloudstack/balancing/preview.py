"""Foresee what a step does to a load balancer of CloudStack, and describe it. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from proreus.cloudprovider.load_balancers import PartChange
from proreus.providers.cloudstack.balancing.parts import Address, Observed, Opening, Policy, Rule
from proreus.providers.cloudstack.balancing.plan import (
    Acquire,
    Assign,
    ChangeRule,
    Claim,
    Close,
    DropRule,
    HandOver,
    MakeRule,
    MarkAddress,
    MarkRules,
    Open,
    Release,
    Step,
    Stick,
    Unassign,
    Unclaim,
    Unstick,
    sources,
)

NEW: Final = "new"
"""The id of a part to which CloudStack has not given one yet."""


def after(observed: Observed, step: Step, id_: str = NEW, ip: str = "") -> Observed:
    """Return the state after a step.

    Args:
        observed: The observed state before the step.
        step: The step that was taken.
        id_: The id of the object that the step has made.
        ip: The address that the step has acquired, where CloudStack has said which one.
    """
    match step:
        case Claim() | Unclaim() | Acquire() | MarkAddress() | Release() | HandOver():
            return _addressed(observed, step, id_, ip)
        case Open(key, cidrs, acl):
            new = Opening(key, cidrs, id_)
            where = "items" if acl else "openings"
            return replace(observed, **{where: (*getattr(observed, where), new)})
        case Close(gone):
            return replace(
                observed,
                items=tuple(one for one in observed.items if one.id != gone),
                openings=tuple(one for one in observed.openings if one.id != gone),
            )
    return replace(observed, rules=tuple(_rules(observed.rules, step, id_)))


def _addressed(
    observed: Observed,
    step: Claim | Unclaim | Acquire | MarkAddress | Release | HandOver,
    id_: str,
    ip: str,
) -> Observed:
    kept = observed.address
    match step:
        case Claim(_, claimed):
            return replace(observed, claim=claimed)
        case Unclaim():
            return replace(observed, claim="")
        case Acquire(wanted):
            # Releases that cannot be asked for an address acquire any one.
            got = ip or wanted
            return replace(observed, address=Address(got, id_), claim=got)
        case MarkAddress(marked):
            spare = tuple(_marked(one, marked) for one in observed.spare)
            return replace(observed, address=kept and _marked(kept, marked), spare=spare)
    left = tuple(one for one in observed.spare if one.id != step.id)
    is_kept = kept is not None and kept.id != step.id
    return replace(observed, spare=left, address=kept if is_kept else None)


def _marked(one: Address, id_: str) -> Address:
    return replace(one, is_ours=one.is_ours or one.id == id_)


def _rules(rules: tuple[Rule, ...], step: Step, id_: str) -> Iterator[Rule]:
    for one in rules:
        match step:
            case DropRule(one.id):
                continue
            case ChangeRule(one.id, fields, desired):
                yield replace(one, **_changed(fields, desired))
            case Assign(one.id, machines):
                yield replace(one, members=one.members | set(machines))
            case Unassign(one.id, machines):
                yield replace(one, members=one.members - set(machines))
            case MarkRules():
                yield replace(one, is_marked=True)
            case Stick(one.id, seconds):
                yield replace(one, policies=(*one.policies, Policy(id_, seconds)))
            case Unstick(gone):
                kept = tuple(policy for policy in one.policies if policy.id != gone)
                yield replace(one, policies=kept)
            case _:
                yield one
    if isinstance(step, MakeRule):
        number = sum(one.id.startswith(NEW) for one in rules)
        new = f"{NEW} {number}" if id_ == NEW else id_
        yield replace(step.desired, id=new, members=frozenset())


def _changed(fields: Mapping[str, str], desired: Rule) -> dict[str, Any]:
    names = {"cidrlist": "cidrs"}
    return {names.get(name, name): getattr(desired, names.get(name, name)) for name in fields}


def part_changes(step: Step, observed: Observed) -> Iterator[PartChange]:
    """Return the lines of `proreus plan` about a step; `observed` is the state before it."""
    match step:
        case Acquire(ip):
            yield PartChange("create", f"public address {ip or '(any)'}")
        case MarkAddress(id_):
            yield PartChange("change", f"public address {id_}", "our marks")
        case Release(id_):
            yield PartChange("delete", f"public address {id_}")
        case HandOver(id_):
            yield PartChange("change", f"public address {id_}", "left to others who use it")
        case Open(key, cidrs, acl):
            yield PartChange("create", _opening(key, in_acl=bool(acl)), sources(cidrs))
        case Close(id_, in_acl):
            ports = {one.id: one for one in (*observed.openings, *observed.items)}
            one = ports[id_]
            yield PartChange("delete", _opening(one.key, in_acl=in_acl), sources(one.cidrs))
        case _:
            yield from _rule_changes(step, {one.id: f"rule {one.name}" for one in observed.rules})


def _rule_changes(step: Step, names: Mapping[str, str]) -> Iterator[PartChange]:
    match step:
        case MakeRule(desired):
            yield PartChange("create", f"rule {desired.name}", _text(desired))
        case ChangeRule(id_, fields):
            detail = ", ".join(f"{name}={value}" for name, value in fields.items())
            yield PartChange("change", names[id_], detail)
        case DropRule(id_):
            yield PartChange("delete", names[id_])
        case MarkRules(ids):
            yield from (PartChange("change", names[id_], "our marks") for id_ in ids)
        case Assign(rule, machines):
            yield from (PartChange("create", f"machine {id_}", names[rule]) for id_ in machines)
        case Stick(rule, seconds):
            yield PartChange("create", "stickiness policy", f"{names[rule]}, {seconds} s")
        case Unstick(id_):
            yield PartChange("delete", f"stickiness policy {id_}")
        case Unassign(rule, machines):
            yield from (PartChange("delete", f"machine {id_}", names[rule]) for id_ in machines)


def _opening(key: tuple[str, int], *, in_acl: bool) -> str:
    return f"{'access list item' if in_acl else 'firewall rule'} {key[0]}/{key[1]}"


def _text(rule: Rule) -> str:
    return (
        f"{rule.protocol} {rule.port} to {rule.node_port}, {rule.algorithm},"
        f" from {sources(rule.cidrs)}"
    )
