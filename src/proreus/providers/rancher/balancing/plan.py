"""Plan the steps that make a load balancer of Rancher as desired, or remove it.

Each round holds steps that need not wait for one another; the next round is planned from what
Rancher answered. Rancher answers before its work is done: a state between two others is waited for.

* External services come first, with the marks in the request that makes them. They are shared by
  the load balancers of a cluster, and go when no load balancer leads to them any more.
* What v2-beta can change, it changes in place and in one request: ports, rules and marks. v1
  changes published ports by an upgrade, which keeps the service and replaces its containers.
* What an administrator has left in the middle of an upgrade is finished, or rolled back.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import PartChange
from proreus.cloudprovider.names import digest_of
from proreus.cloudprovider.ownership import Owner
from proreus.cloudprovider.requests import Request
from proreus.cloudprovider.steps import PlannedCall
from proreus.providers.rancher.balancing import owners
from proreus.providers.rancher.balancing.parts import (
    BALANCERS,
    EXTERNALS,
    REMOVING,
    Balancer,
    Desired,
    External,
    Observed,
    Rule,
    Target,
)
from proreus.providers.rancher.names import external_name
from proreus.providers.rancher.operations import action, creation, removal, update
from proreus.providers.rancher.versions import Version

NEW: Final = "new"
"""The id of a part to which Rancher has not given one yet."""
_SETTLES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("requested", "registering", "deactivating", "updating-inactive"), "inactive"),
    **dict.fromkeys(("activating", "updating-active", "restarting", "rolling-back"), "active"),
    "finishing-upgrade": "active",
    "upgrading": "upgraded",
    "canceling-upgrade": "canceled-upgrade",
    "canceling-rollback": "canceled-rollback",
}
"""The states between two others, and those that follow."""
_LEFT: Final[Mapping[str, str]] = {
    "upgraded": "finishupgrade",
    "canceled-rollback": "finishupgrade",
    "canceled-upgrade": "rollback",
}
"""The actions that lead out of states in which an upgrade was left."""
_IMAGE: Final = "imageUuid"


class Wait(msgspec.Struct, frozen=True):
    """The step that calls nothing: Rancher still works on something."""

    reason: str


class Change(msgspec.Struct, frozen=True):
    """A request that changes one service.

    Attributes:
        request: The request that is sent.
        kind: The list of the API that the service is in.
        links: The ids that the load balancer then leads to, where the answer does not say so.
    """

    request: Request
    kind: str
    links: frozenset[str] | None = None


Step = PlannedCall[Wait | Change, Observed]
After = Callable[[Observed], Observed]


def preparation(desired: Desired, observed: Observed, version: Version) -> tuple[Step, ...]:
    """Return the next steps for the external services of a Service's nodes, which others share."""
    return tuple(
        step
        for host in _hosts(desired, observed)
        for step in _external_steps(host, desired, observed.stack, version)
    )


def plan(desired: Desired, observed: Observed, version: Version) -> tuple[Step, ...]:
    """Return the next steps; none if all is as desired."""
    if prepared := preparation(desired, observed, version):
        return prepared
    hosts = _hosts(desired, observed)
    ids = frozenset(host.found.id for host in hosts if host.found is not None)
    rules = frozenset((port, to, id_) for port, to in desired.frontends for id_ in ids)
    steps = tuple(_balancer_steps(desired, observed, version, rules, ids))
    return steps or _waits(observed, ids) or tidying(observed)


def tidying(observed: Observed) -> tuple[Step, ...]:
    """Return the steps that remove external services that no Service needs."""
    return tuple(_unused(observed))


def deletion(observed: Observed) -> tuple[Step, ...]:
    """Return the next steps to remove a load balancer; none if it is gone."""
    found = observed.balancer
    if found is not None:
        if found.state in REMOVING:
            return (_wait("Rancher removes the load balancer", _without_balancer),)
        line = PartChange("delete", "load balancer service", found.id)
        return (_change(removal(BALANCERS, found.id), BALANCERS, _without_balancer, line),)
    return tuple(_unused(observed, waits=True))


def absorbed(observed: Observed, call: Change, made: Balancer | External) -> Observed:
    """Return the state after a change, from Rancher's answer."""
    if isinstance(made, Balancer):
        known = observed.balancer.links if observed.balancer is not None else frozenset()
        links = call.links if call.links is not None else made.links or known
        return replace(observed, balancer=replace(made, links=links))
    return _with(made)(observed)


class _Host(msgspec.Struct, frozen=True):
    """A node, with the name of its external service, and the service if it is there."""

    target: Target
    name: str
    found: External | None


def _hosts(desired: Desired, observed: Observed) -> list[_Host]:
    """Choose the external services of nodes.

    The official name may be another node's, since it has no dots, or another cluster's: then the
    name ends with a digest. A service without marks is the official manager's only if the Service's
    load balancer leads to it: it is taken over if its address is this node's, or if no other node
    has its name, and no other load balancer leads to it, which may be another cluster's.
    """
    led_to: set[str] = set()
    if observed.balancer is not None:
        led_to |= observed.balancer.links
    there = {one.name.lower(): one for one in observed.externals}
    names = {target: external_name(target.node) for target in desired.targets}
    alike: dict[str, list[Target]] = {}
    for target, name in names.items():
        alike.setdefault(name.lower(), []).append(target)

    def chosen(target: Target, name: str) -> _Host:
        digest = digest_of((desired.cluster_uid, "/", target.node))
        second = f"{name[: 62 - len(digest)].rstrip('-')}-{digest}"
        mine = Owner(desired.cluster_uid, service_uid=target.node)
        found, other = there.get(name.lower()), there.get(second.lower())
        namesakes = alike[name.lower()]
        if other is not None and other.owner == mine:
            return _Host(target, second, other)
        if found is None:
            is_first = namesakes[0] == target
            return _Host(target, name, None) if is_first else _Host(target, second, other)
        is_alone = len(namesakes) == 1 and found.id not in observed.shared
        is_clear = found.addresses == (target.address,) or is_alone
        is_official = found.owner is None and found.id in led_to
        if found.owner == mine or (is_official and is_clear):
            return _Host(target, name, found)
        return _Host(target, second, other)

    return [chosen(target, name) for target, name in names.items()]


def _external_steps(host: _Host, desired: Desired, stack: str, version: Version) -> Iterator[Step]:
    """Make a node's external service, or correct it."""
    target, name, found = host.target, host.name, host.found
    part = f"external service {name}"
    cluster = ClusterIdentity(desired.cluster, desired.cluster_uid)
    owner = Owner(desired.cluster_uid, service_uid=target.node)
    fields = {
        "description": owners.node_description(cluster, target.node),
        "externalIpAddresses": [target.address],
    }
    if found is None:
        made = External(f"{NEW} {name}", name, (target.address,), "active", owner)
        whole = {**fields, "name": name, version.stack_id: stack, "startOnCreate": True}
        line = PartChange("create", part, target.address)
        yield _change(creation(EXTERNALS, whole), EXTERNALS, _with(made), line)
    elif found.state in REMOVING:
        yield _wait(f"Rancher removes an {part}", _without(found))
    elif (found.addresses, found.owner) != ((target.address,), owner):
        after = _with(replace(found, addresses=(target.address,), owner=owner))
        line = PartChange("change", part, target.address)
        yield _change(update(EXTERNALS, found.id, fields), EXTERNALS, after, line)
    elif found.state == "inactive":
        after = _with(replace(found, state="active"))
        line = PartChange("change", part, "activate")
        yield _change(action(EXTERNALS, found.id, "activate"), EXTERNALS, after, line)


def _balancer_steps(
    desired: Desired,
    observed: Observed,
    version: Version,
    rules: frozenset[Rule],
    links: frozenset[str],
) -> Iterator[Step]:
    found = observed.balancer
    if found is None:
        yield _creation(desired, observed, version, rules, links)
    elif found.state in REMOVING:
        yield _wait("Rancher removes an earlier load balancer", _without_balancer)
    elif found.state in _SETTLES:
        settled = replace(found, state=_SETTLES[found.state])
        yield _wait(f"the load balancer is {found.state}", _having(settled))
    elif found.state in _LEFT:
        name = _LEFT[found.state]
        yield _act(replace(found, state="active"), name, line=(name,))
    elif changed := _differing(desired, found, version, rules):
        fields, after = changed
        shown = ", ".join(sorted(fields))
        line = PartChange("change", f"load balancer service {desired.name}", shown)
        yield _change(update(BALANCERS, found.id, fields), BALANCERS, _having(after), line)
    elif found.ports != desired.ports:
        strategy = {"launchConfig": {**found.launch, "ports": sorted(desired.ports)}}
        yield _act(
            replace(found, ports=desired.ports, state="upgraded"),
            "upgrade",
            {"inServiceStrategy": strategy},
            line=("ports", *sorted(desired.ports)),
        )
    elif found.links != links:
        # Since Rancher 1.3 the links follow the rules by themselves.
        fields = {"serviceLinks": [{"serviceId": id_} for id_ in sorted(links)]}
        shown = f"to {len(links)} nodes"
        yield _act(replace(found, links=links), "setservicelinks", fields, line=("links", shown))
    elif found.state == "inactive":
        yield _act(replace(found, state="active"), "activate", line=("activate",))


def _creation(
    desired: Desired,
    observed: Observed,
    version: Version,
    rules: frozenset[Rule],
    links: frozenset[str],
) -> Step:
    image = {_IMAGE: observed.image} if observed.image else {}
    launch = {**image, "ports": sorted(desired.ports)}
    fields: dict[str, Any] = {
        "name": desired.name,
        "description": desired.description,
        version.stack_id: observed.stack,
        "launchConfig": launch,
    }
    made = Balancer(NEW, observed.stack, "inactive", desired.ports, launch=launch)
    if version.has_rules:
        fields |= {"lbConfig": {"portRules": _rules(rules)}, "startOnCreate": True}
        made = replace(made, state="active", rules=rules, links=links)
    shown = ", ".join(sorted(desired.ports))
    line = PartChange("create", f"load balancer service {desired.name}", shown)
    return _change(creation(BALANCERS, fields), BALANCERS, _having(made), line)


def _differing(
    desired: Desired, found: Balancer, version: Version, rules: frozenset[Rule]
) -> tuple[dict[str, Any], Balancer] | None:
    """Return the fields to update in place, and the load balancer after that; None without any."""
    fields: dict[str, Any] = {}
    after = replace(found, is_marked=True)
    if not found.is_marked:
        fields["description"] = desired.description
    if version.has_rules and found.ports != desired.ports:
        fields["launchConfig"] = {**found.launch, "ports": sorted(desired.ports)}
        after = replace(after, ports=desired.ports)
    if version.has_rules and found.rules != rules:
        fields["lbConfig"] = {**found.config, "portRules": _rules(rules)}
        after = replace(after, rules=rules)
    return (fields, after) if fields else None


def _rules(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    return [
        {"sourcePort": port, "targetPort": to, "serviceId": id_, "protocol": "tcp"}
        for port, to, id_ in sorted(rules)
    ]


def _act(
    after: Balancer, name: str, fields: dict[str, Any] | None = None, *, line: tuple[str, ...]
) -> Step:
    """Return the step that is an action of the load balancer."""
    links = after.links if name == "setservicelinks" else None
    call = Change(action(BALANCERS, after.id, name, fields), BALANCERS, links)
    shown = PartChange("change", "load balancer service", " ".join(line))
    return PlannedCall(call, _having(after), (shown,))


def _waits(observed: Observed, ids: Iterable[str]) -> tuple[Step, ...]:
    """Return the step to wait, until the parts of the load balancer work."""
    needed = set(ids)
    for one in observed.externals:
        if one.id in needed and one.state != "active":
            after = _with(replace(one, state="active"))
            return (_wait(f"the external service {one.name} is {one.state}", after),)
    found = observed.balancer
    if found is not None and (found.state != "active" or not found.endpoints):
        reached = replace(found, state="active", endpoints=("?",))
        return (_wait(f"the load balancer is {found.state} and has no address", _having(reached)),)
    return ()


def _unused(observed: Observed, *, waits: bool = False) -> Iterator[Step]:
    """Remove external services that no Service needs."""
    for one in observed.externals:
        if one.id in observed.unused and one.state not in REMOVING:
            line = PartChange("delete", f"external service {one.name}")
            yield _change(removal(EXTERNALS, one.id), EXTERNALS, _without(one), line)
        elif one.id in observed.unused and waits:
            yield _wait(f"Rancher removes the external service {one.name}", _without(one))


def _with(changed: External) -> After:
    """Return the effect that replaces an external service."""

    def after(now: Observed) -> Observed:
        rest = tuple(one for one in now.externals if one.id != changed.id)
        return replace(now, externals=(*rest, changed))

    return after


def _without(gone: External) -> After:
    def after(now: Observed) -> Observed:
        return replace(now, externals=tuple(one for one in now.externals if one.id != gone.id))

    return after


def _having(balancer: Balancer) -> After:
    return lambda now: replace(now, balancer=balancer)


def _without_balancer(now: Observed) -> Observed:
    return replace(now, balancer=None)


def _wait(reason: str, after: After) -> Step:
    return PlannedCall(Wait(reason), after)


def _change(request: Request, kind: str, after: After, line: PartChange) -> Step:
    return PlannedCall(Change(request, kind), after, (line,))
