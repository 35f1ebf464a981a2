"""Decide the rules of the cluster's security group, with the official names. Pure.

One rule stands for all Services with the same protocol, sources and ports; its destinations are
their addresses. A rule keeps its priority as long as it has a destination, and rules of other names
are never touched.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any, Final

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.firewalls import free_numbers
from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.kube.objects import ANNOTATION_SOURCE_RANGES
from proreus.providers.azure.balancing.annotations import Options
from proreus.providers.azure.balancing.desired import transports
from proreus.providers.azure.machines import Resource, properties

RULE: Final = "k8s-azure-lb_"
"""The prefix of the names of our rules."""
LOWEST: Final = 500
HIGHEST: Final = 4095
MOST_RULES: Final = 1000
MOST_ADDRESSES: Final = 4000
_INTERNET: Final = "Internet"
_EVERYWHERE: Final = frozenset({"0.0.0.0/0", "::/0"})


class Allow(msgspec.Struct, frozen=True):
    """What one rule lets in: a protocol from sources to ports; without sources it lets in nothing.

    Attributes:
        family: IPv4 or IPv6.
        protocol: Azure's word for the protocol.
        sources: The sources: CIDRs, or one service tag.
        ports: The numbers of the ports.
    """

    family: str
    protocol: str = "*"
    sources: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The name of the security rule, the same as the official Azure manager gives it."""
        if not self.sources:
            return f"{RULE}deny-all_{self.family}"
        ports = sorted(map(str, self.ports))
        text = "_".join((self.protocol, ",".join(sorted(self.sources)), ",".join(ports)))
        digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
        return f"{RULE}allow_{self.family}_{digest}"


class Grant(msgspec.Struct, frozen=True):
    """A rule that should have certain addresses as destinations."""

    rule: Allow
    targets: frozenset[str]


class Strip(msgspec.Struct, frozen=True):
    """Addresses to remove from all rules but those that are granted.

    Attributes:
        targets: The addresses to remove.
        kept: The ports that other Services have on these addresses, by protocol.
        prefix: The beginning of the names of the Service's older rules.
        keeps_denied: Whether rules that deny all other sources on these addresses stay, since other
            Services may ask for them.
        others: Addresses among these that are at no load balancer of the cluster, where rules may
            be another cluster's: only what `opened` says is removed.
        opened: The ports that the Service has or had on its addresses, by protocol.
        denied: Whether the Service denies or denied all other sources.
    """

    targets: frozenset[str]
    kept: Mapping[str, frozenset[int]] = {}
    prefix: str = ""
    keeps_denied: bool = False
    others: frozenset[str] = frozenset()
    opened: Mapping[str, frozenset[int]] = {}
    denied: bool = False


def grants(lb: LoadBalancer, options: Options, targets: Iterable[str]) -> list[Grant]:
    """Return the rules that should let clients reach the addresses of a Service."""
    if not options.guards:
        return []
    families: dict[str, set[str]] = {}
    for target in targets:
        families.setdefault(f"IPv{ip_address(target).version}", set()).add(target)
    stated = _stated(lb, options)
    tags = list(options.allowed_tags)
    if not tags and all(one in _EVERYWHERE for one in stated):
        tags = [_INTERNET] if stated or not options.internal else []
    found = []
    for family, addresses in sorted(families.items()):
        ranges = tuple(one for one in stated if _family(one) == family)
        sources = [*((tag,) for tag in tags), *((ranges,) if ranges else ())]
        for protocol, ports in transports(lb, floats=options.floats).items():
            found += [
                Grant(Allow(family, protocol, source, tuple(ports)), frozenset(addresses))
                for source in sources
            ]
        if options.denies and stated:
            found.append(Grant(Allow(family), frozenset(addresses)))
    return found


def _stated(lb: LoadBalancer, options: Options) -> tuple[str, ...]:
    """Return the sources that the Service names; nothing if it names none."""
    annotations = lb.service.metadata.annotations
    is_stated = lb.service.spec.load_balancer_source_ranges or annotations.get(
        ANNOTATION_SOURCE_RANGES
    )
    ranges = [one for family in lb.source_ranges.values() for one in family] if is_stated else []
    return tuple(dict.fromkeys((*ranges, *options.allowed_ranges)))


def _family(network: str) -> str:
    return f"IPv{ip_network(network).version}"


def changed(
    group: Resource, strips: Sequence[Strip], granted: Sequence[Grant]
) -> dict[str, Any] | None:
    """Return the desired security group; None if the observed one is as desired.

    Raises:
        CloudError: There is no room for the rules.
    """
    observed = [dict(one) for one in properties(group).get("securityRules") or ()]
    targets = {str(one["name"]): _targets(one) for one in observed if _is_ours(one)}
    made: dict[str, Allow] = {}
    for strip in strips:
        _strip(observed, strip, targets, made)
    for grant in granted:
        made[grant.rule.name] = grant.rule
        targets[grant.rule.name] = targets.get(grant.rule.name, frozenset()) | grant.targets
    old = tuple(strip.prefix for strip in strips if strip.prefix)
    rules = [
        one
        if str(one["name"]) not in targets or targets[str(one["name"])] == _targets(one)
        else _aimed(one, targets[str(one["name"])])
        for one in observed
        if targets.get(str(one["name"]), True) and not str(one["name"]).startswith(old or ("\0",))
    ]
    present = {str(one["name"]) for one in rules}
    for name, rule in made.items():
        if name not in present and targets[name]:
            rules.append(_aimed(_new(rule, rules), targets[name]))
    if rules == observed:
        return None
    _check_room(rules)
    return {**group, "properties": {**properties(group), "securityRules": rules}}


def _strip(
    observed: Sequence[Resource],
    strip: Strip,
    targets: dict[str, frozenset[str]],
    made: dict[str, Allow],
) -> None:
    """Remove addresses from the destinations of all rules, but for ports of other Services."""
    for one in filter(_is_ours, observed):
        name, kept = str(one["name"]), _split(one, strip)
        is_denied = properties(one).get("access") == "Deny"
        is_own = strip.denied if is_denied else _is_opened(one, strip)
        closed = strip.targets if is_own else strip.targets - strip.others
        hit = targets[name] & closed
        if not hit or (kept is not None and kept.ports == _ports(one)):
            continue
        if is_denied and strip.keeps_denied:
            continue
        targets[name] = targets[name] - closed
        if kept is not None:
            made[kept.name] = kept
            targets[kept.name] = targets.get(kept.name, frozenset()) | hit


def _is_opened(rule: Resource, strip: Strip) -> bool:
    """Tell whether a rule lets in to nothing but ports that the Service has or had."""
    known = strip.opened.get(str(properties(rule).get("protocol")), frozenset())
    return known.issuperset(_ports(rule))


def destinations(group: Resource | None) -> frozenset[str]:
    """Return all destinations of rules of the names that we and official managers give."""
    return frozenset[str]().union(*map(_targets, _of_services(group or {})))


def denied(group: Resource) -> frozenset[str]:
    """Return the addresses of which rules of such names deny what no rule lets in."""
    every = _of_services(group)
    denying = (one for one in every if properties(one).get("access") == "Deny")
    return frozenset[str]().union(*map(_targets, denying))


def _of_services(group: Resource) -> Iterator[Resource]:
    """Yield the rules of the names that we and official managers give."""
    return filter(_is_ours, properties(group).get("securityRules") or ())


def _is_ours(rule: Resource) -> bool:
    return str(rule.get("name", "")).startswith(RULE)


def _targets(rule: Resource) -> frozenset[str]:
    found = properties(rule)
    single = found.get("destinationAddressPrefix")
    several = found.get("destinationAddressPrefixes") or ()
    return frozenset({*several, *([single] if single else ())})


def _ports(rule: Resource) -> tuple[int, ...]:
    found = properties(rule)
    single = found.get("destinationPortRange")
    texts = [*(found.get("destinationPortRanges") or ()), *([single] if single else ())]
    return tuple(int(text) for text in texts if str(text).isdecimal())


def _split(rule: Resource, strip: Strip) -> Allow | None:
    """Return a rule for those ports of `rule` that other Services have on the addresses, if any."""
    found = properties(rule)
    protocol = str(found.get("protocol"))
    ports = tuple(one for one in _ports(rule) if one in strip.kept.get(protocol, ()))
    if not ports or found.get("access") != "Allow":
        return None
    single = found.get("sourceAddressPrefix")
    sources = (*([single] if single else ()), *(found.get("sourceAddressPrefixes") or ()))
    family = str(rule["name"]).split("_")[2] if str(rule["name"]).count("_") > 1 else "IPv4"
    return Allow(family, protocol, tuple(sources), ports)


def _aimed(rule: Resource, targets: Iterable[str]) -> dict[str, Any]:
    """Return a rule with these destinations."""
    ordered = sorted(targets)
    found = dict(properties(rule))
    found.pop("destinationAddressPrefix", None)
    found.pop("destinationAddressPrefixes", None)
    if len(ordered) == 1:
        found["destinationAddressPrefix"] = ordered[0]
    else:
        found["destinationAddressPrefixes"] = ordered
    return {**rule, "properties": found}


def _new(rule: Allow, rules: Sequence[Resource]) -> dict[str, Any]:
    taken = {properties(one).get("priority") for one in rules}
    numbers = list(free_numbers(LOWEST, HIGHEST, {int(one) for one in taken if one is not None}))
    if not numbers:
        raise CloudError(
            "the security group has no free priority from 500 to 4095: delete some of its rules"
        )
    found: dict[str, Any] = {
        "protocol": rule.protocol,
        "access": "Allow" if rule.sources else "Deny",
        "direction": "Inbound",
        # What denies comes after all that allows.
        "priority": numbers[0] if rule.sources else numbers[-1],
        "sourcePortRange": "*",
    }
    if not rule.sources:
        found |= {"sourceAddressPrefix": "*", "destinationPortRange": "*"}
        return {"name": rule.name, "properties": found}
    if len(rule.sources) == 1:
        found["sourceAddressPrefix"] = rule.sources[0]
    else:
        found["sourceAddressPrefixes"] = sorted(rule.sources)
    found["destinationPortRanges"] = sorted(map(str, rule.ports))
    return {"name": rule.name, "properties": found}


def _check_room(rules: Sequence[Resource]) -> None:
    addresses = sum(len(_targets(one)) for one in rules)
    if len(rules) > MOST_RULES or addresses > MOST_ADDRESSES:
        raise CloudError(
            f"the security group would have {len(rules)} rules with {addresses} destinations; Azure"
            f" takes {MOST_RULES} and {MOST_ADDRESSES}: give Services equal ports and source ranges"
        )
