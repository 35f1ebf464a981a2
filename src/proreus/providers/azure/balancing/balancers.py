"""Compute the desired load balancers: parts of a pass's Services, and those of all others. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.ownership import Tenants
from proreus.providers.azure.balancing import marks
from proreus.providers.azure.balancing.addresses import (
    Chosen,
    check_place,
    choose,
    extended,
    may_share,
)
from proreus.providers.azure.balancing.claims import check_ports, check_shown, shown_refusal
from proreus.providers.azure.balancing.desired import (
    SHARED_PROBE,
    Ends,
    Parts,
    Properties,
    base_of,
    frontend_name,
    is_of,
    name_of_family,
    parts,
)
from proreus.providers.azure.balancing.documents import (
    changed_parts,
    copied,
    named_id,
    named_ids,
)
from proreus.providers.azure.balancing.parts import Document, Job, Scene, State
from proreus.providers.azure.balancing.placement import frontend_users
from proreus.providers.azure.balancing.pools import POOLS, check_emptied, pool_of, pools
from proreus.providers.azure.ids import last
from proreus.providers.azure.machines import Resource, part, properties

_FRONTENDS = "frontendIPConfigurations"
_RULES = "loadBalancingRules"
_USERS = ("outboundRules", "inboundNatRules", "inboundNatPools")


class Spot(msgspec.Struct, frozen=True):
    """The place where a Service is reached on one family: a frontend.

    Attributes:
        id: The id of the frontend.
        name: The name of the Service's own frontend; "" for a frontend that it shares.
        properties: The desired properties of the Service's own frontend.
        public: The public address of the frontend.
    """

    id: str
    name: str = ""
    properties: Mapping[str, Any] = {}
    public: Chosen | None = None


Spots = Mapping[tuple[str, str], Spot]
"""By a Service's UID and a family."""


def listed(balancer: Resource | None, field: str) -> Sequence[Resource]:
    """Return the parts of one type of a load balancer."""
    found: Sequence[Resource] = properties(balancer or {}).get(field) or ()
    return found


def spots(jobs: Sequence[Job], state: State, scene: Scene) -> Spots:
    """Return the frontends at which the Services of a pass are reached, by Service and family.

    Raises:
        CloudError: A Service names an object that it may not have, or that does not exist.
    """
    found: dict[tuple[str, str], Spot] = {}
    taken: dict[str, str] = {}
    there = {name: _by_address(one) for name, one in state.balancers.items()}
    frontends = {name: _frontends(one, state) for name, one in state.balancers.items()}
    for job in jobs:
        if job.lb is None:
            continue
        for family in job.lb.families:
            known = there.get(job.balancer, {})
            named = frontend_name(job.ref, job.options, family, dual=len(job.lb.families) > 1)
            own = frontends.get(job.balancer, {}).get(job.ref.name, {})
            families = {key: each.family for key, each in own.items() if each.family}
            name = name_of_family(named, family, families)
            if job.options.internal:
                observed = state.balancers.get(job.balancer)
                one = _inner_spot(job, name, family, scene, known, observed=observed)
                asked = job.options.addresses.get(family, "")
                check_ports(job, asked, scene)
            else:
                chosen = choose(job.lb, job.options, family, scene.place, state.addresses)
                address = part(state.addresses.get(chosen.id.lower(), {}), "ipAddress")
                check_ports(job, str(address or ""), scene)
                one = _public_spot(job, name, scene, chosen, there=known, taken=taken)
                taken.setdefault(chosen.id.lower(), one.id)
                asked = chosen.id.lower()
            _check_users(job, state, one, own.get(one.name), asked)
            found[job.ref.uid, family] = one
    return found


def _by_address(observed: Resource | None) -> dict[str, list[str]]:
    """Return the names of frontends by their private addresses, or the ids of their public ones."""
    found: dict[str, list[str]] = {}
    for one in listed(observed, _FRONTENDS):
        key = named_id(one, "publicIPAddress") or properties(one).get("privateIPAddress")
        found.setdefault(str(key), []).append(str(one["name"]))
    return found


class _Frontend(msgspec.Struct, frozen=True):
    """A frontend that is there: its private address or the id of its public one, and its family."""

    address: str
    family: str = ""


_Frontends = Mapping[str, Mapping[str, _Frontend]]
"""By the beginning of the names of a Service's parts, and by name."""


def _frontends(observed: Resource | None, state: State) -> _Frontends:
    """Return the frontends that there are; the family of one whose address is not known is ""."""
    found: dict[str, dict[str, _Frontend]] = {}
    for one in listed(observed, _FRONTENDS):
        if public := named_id(one, "publicIPAddress"):
            known = state.addresses.get(public)
            version = (part(known, "publicIPAddressVersion") or "IPv4") if known else ""
        else:
            public = str(properties(one).get("privateIPAddress") or "")
            version = properties(one).get("privateIPAddressVersion") or "IPv4"
        name = str(one["name"])
        found.setdefault(base_of(name), {})[name] = _Frontend(public, str(version))
    return found


def _check_users(
    job: Job, state: State, spot: Spot, present: _Frontend | None, address: str
) -> None:
    """Refuse another address for a frontend that others use: theirs would go.

    Args:
        job: The Service whose frontend it is.
        state: The observed state.
        spot: The place where the Service is to be reached.
        present: Its frontend as it is.
        address: The id of the public address, or the private address; "" to leave it as it is.

    Raises:
        InvalidRequest: Others use the frontend; names one of them, and the remedy.
    """
    if not address or present is None or present.address in {"", address}:
        return
    for user, frontend in frontend_users(state.balancers.get(job.balancer)):
        if frontend == spot.id.lower() and base_of(user) != job.ref.name:
            raise InvalidRequest(
                f"the Service can have no other address while {user} uses its present one, too:"
                f" give that one another address first, or leave {last(present.address)} to them"
                " and make the Service anew"
            )


def _inner_spot(
    job: Job,
    name: str,
    family: str,
    scene: Scene,
    there: Mapping[str, Sequence[str]],
    *,
    observed: Resource | None,
) -> Spot:
    base = f"{scene.place.balancer_id(job.balancer)}/{_FRONTENDS}"
    asked = job.options.addresses.get(family, "")
    shared = [one for one in there.get(asked, ()) if asked and not is_of(one, job.ref)]
    if shared:
        id_ = f"{base}/{shared[0]}"
        # The Service that it was made for may be gone, and those that share it have it now.
        users = [user for user, frontend in frontend_users(observed) if frontend == id_.lower()]
        if not any(is_of(user, job.ref) for user in users):
            tenants = scene.place.config.tenants
            reason = may_share(shared, job.ref, tenants, scene.services)
            if not tenants.lists(job.ref.namespace, shared):
                reason = reason or may_share(users, job.ref, Tenants(), scene.services)
                reason = reason or shown_refusal(job, asked, scene)
            if reason:
                raise InvalidRequest(f"the address that is asked for cannot be shared: {reason}")
        return Spot(id_)
    if asked and asked not in there:
        check_shown(job, asked, scene, "the address that is asked for")
    is_there = any(name in names for names in there.values())
    if not is_there:
        subnet = "azure-load-balancer-internal-subnet"
        check_place(subnet, job.options.subnet, job.ref, scene.place)
    return Spot(f"{base}/{name}", name, _inside(job, family, scene, is_there=is_there))


def _public_spot(
    job: Job,
    name: str,
    scene: Scene,
    chosen: Chosen,
    *,
    there: Mapping[str, Sequence[str]],
    taken: Mapping[str, str],
) -> Spot:
    base = f"{scene.place.balancer_id(job.balancer)}/{_FRONTENDS}"
    own, key = f"{base}/{name}", chosen.id.lower()
    others = [f"{base}/{one}" for one in there.get(key, ()) if not is_of(one, job.ref)]
    known = others[0] if others else taken.get(key, own)
    if known != own:
        return Spot(known, public=chosen)
    return Spot(own, name, {"publicIPAddress": {"id": chosen.id}}, chosen)


def _inside(job: Job, family: str, scene: Scene, *, is_there: bool) -> dict[str, Any]:
    """Return the properties of an internal frontend."""
    subnet = job.options.subnet or scene.place.config.subnet_name
    found: dict[str, Any] = {"subnet": {"id": scene.place.subnet_id(subnet)}}
    if asked := job.options.addresses.get(family, ""):
        found |= {"privateIPAddress": asked, "privateIPAllocationMethod": "Static"}
    elif not is_there:
        found["privateIPAllocationMethod"] = "Dynamic"
    if family == "IPv6":
        found["privateIPAddressVersion"] = family
    return found


def balancer(
    jobs: Sequence[Job],
    state: State,
    scene: Scene,
    where: Spots,
    name: str,
    *,
    kept: Collection[str] = (),
) -> Document | None:
    """Return the desired load balancer of a name; None if there should be none.

    The frontends in `kept`, ids in small letters, stay although nothing uses them.

    Raises:
        CloudError: A Service asks for what Azure cannot do.
    """
    place, observed = scene.place, state.balancers.get(name)
    live = [job for job in jobs if job.lb is not None and job.balancer == name]
    if observed is None and not live:
        return None
    document = copied(observed) if observed is not None else _new(scene)
    frontends, own = (
        _desired_frontends(live, where),
        _desired_parts(live, jobs, state, scene, where),
    )
    before, content = properties(document), dict(properties(document))
    bases = {job.ref.name for job in jobs}
    rules = before.get(_RULES) or ()
    content[_RULES] = changed_parts(rules, own.rules, lambda one: _is_of_any(one, bases))
    content["probes"] = _probes(before.get("probes") or (), own.probes, content[_RULES], bases)
    orphans = _orphans(document, content[_RULES], jobs, scene)
    used = {*_used(content), *kept}
    base = f"{place.balancer_id(name)}/{_FRONTENDS}/".lower()
    content[_FRONTENDS] = changed_parts(
        before.get(_FRONTENDS) or (),
        frontends,
        lambda one: (
            (_is_of_any(one, bases) or str(one["name"]) in orphans)
            and f"{base}{one['name']}".lower() not in used
        ),
    )
    content[POOLS] = pools(before.get(POOLS) or (), jobs, state, scene, name)
    if not content[_FRONTENDS]:
        is_given = not before.get(_FRONTENDS) and marks.owner(document) is None
        # One that somebody has made without frontends was never ours to delete.
        if observed is not None and is_given:
            return document
        check_emptied(name, content[POOLS], scene)
        return None
    # A list that was not there is not there still, if nothing is in it.
    document["properties"] = {key: one for key, one in content.items() if one or key in before}
    if live:
        shared = place.config.shared_tags | marks.cluster_marks(jobs[0].ref.cluster)
        document["tags"] = {**marks.tags(document), **shared}
    return document


def _desired_frontends(live: Sequence[Job], where: Spots) -> dict[str, Mapping[str, Any]]:
    """Return the frontends that the Services on a load balancer have of their own."""
    found = [
        where[job.ref.uid, family]
        for job in live
        for family in (job.lb.families if job.lb is not None else ())
    ]
    return {one.name: one.properties for one in found if one.name}


def _desired_parts(
    live: Sequence[Job], jobs: Sequence[Job], state: State, scene: Scene, where: Spots
) -> Parts:
    """Return the rules and probes of the Services on a load balancer, of all in the pass."""
    place, rules, probes = scene.place, dict[str, Properties](), dict[str, Properties]()
    for job in live:
        assert job.lb is not None  # noqa: S101 - for the types: they are to stay
        for family in job.lb.families:
            pool = pool_of(job, jobs, state, scene, family)
            to = f"{place.balancer_id(job.balancer)}/{POOLS}/{pool}"
            ends = Ends(where[job.ref.uid, family].id, to)
            own = parts(job.lb, job.options, place, family, ends)
            rules |= own.rules
            probes |= own.probes
    return Parts(rules, probes)


def _new(scene: Scene) -> Document:
    document: Document = {
        "location": scene.place.config.location,
        "sku": {"name": "Standard"},
        "properties": {},
    }
    return document | extended(scene.place)


def _is_of_any(one: Resource, bases: Collection[str]) -> bool:
    return base_of(str(one.get("name", ""))) in bases


def _used(content: Mapping[str, Any]) -> Iterator[str]:
    """Return the ids of frontends that rules of any type use, in small letters."""
    for field in (_RULES, *_USERS):
        for one in content.get(field) or ():
            yield named_id(one, "frontendIPConfiguration")
            yield from named_ids(one, _FRONTENDS)


def _orphans(
    document: Document, rules: Sequence[Resource], jobs: Sequence[Job], scene: Scene
) -> set[str]:
    """Return frontends of deleted Services that only rules of Services in this pass used."""
    still = {named_id(one, "frontendIPConfiguration") for one in rules}
    found = set()
    bases = {job.ref.name for job in jobs}
    live = {job.ref.name for job in jobs if job.lb is not None}
    for one in properties(document).get(_RULES) or ():
        frontend = named_id(one, "frontendIPConfiguration")
        if not _is_of_any(one, bases) or frontend in still:
            continue
        for candidate in properties(document).get(_FRONTENDS) or ():
            name = str(candidate["name"])
            is_it = frontend.endswith(f"/{name.lower()}")
            base = base_of(name)
            is_made = len(base) == _BASE and base.startswith("a")
            if is_it and is_made and base not in scene.services and base not in live:
                found.add(name)
    return found


_BASE = 32


def _probes(
    observed: Sequence[Resource],
    desired: Mapping[str, Mapping[str, Any]],
    rules: Sequence[Resource],
    bases: Collection[str],
) -> list[Document]:
    used = {named_id(one, "probe").rpartition("/")[2] for one in rules}

    def drops(one: Resource) -> bool:
        name = str(one["name"])
        return _is_of_any(one, bases) or (name == SHARED_PROBE and name not in used)

    return changed_parts(observed, desired, drops)


def differs(observed: Resource | None, document: Document | None) -> bool:
    """Tell whether a load balancer has to be written or deleted."""
    return (observed is None) is not (document is None) or (
        observed is not None and document is not None and dict(observed) != document
    )
