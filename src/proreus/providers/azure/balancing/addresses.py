"""Decide which public addresses Services have, and what to do with those no longer used. Pure."""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancer, LoadBalancerRef
from proreus.cloudprovider.ownership import Owner, Tenants, is_of_another_cluster, refusal
from proreus.providers.azure.balancing import marks
from proreus.providers.azure.balancing.annotations import PREFIX, Options
from proreus.providers.azure.balancing.desired import Place, is_of, name_of_family, variants
from proreus.providers.azure.balancing.documents import agrees, with_properties
from proreus.providers.azure.ids import last
from proreus.providers.azure.machines import Resource, part

if TYPE_CHECKING:
    from proreus.providers.azure.balancing.parts import Claim

Known = Mapping[str, Resource]
"""Public addresses by their ids in small letters."""


class Chosen(msgspec.Struct, frozen=True):
    """The public address of a Service on one family.

    Attributes:
        id: The id of the public address.
        document: The desired body of the public address; None if it is not the manager's to change.
    """

    id: str
    document: dict[str, Any] | None = None


class Departure(Enum):
    """What to do with a public address that a Service no longer has."""

    KEEP = auto()
    UNTAG = auto()
    DELETE = auto()


def choose(lb: LoadBalancer, options: Options, family: str, place: Place, known: Known) -> Chosen:
    """Return the public address of a Service on one family.

    Raises:
        InvalidRequest: The Service names a public address that does not exist, or that it may not
            name.
        CloudError: The name of the public address is taken by one that is not the Service's.
    """
    named, asked = options.names.get(family, ""), options.addresses.get(family, "")
    group = place.address_group(options)
    if named:
        id_ = place.network_id(group, "publicIPAddresses", named)
        return _given(lb.ref, id_, known, place, f"the public IP {named}")
    if asked:
        for id_, one in known.items():
            if part(one, "ipAddress") == asked:
                return _given(lb.ref, id_, known, place, f"the public IP {asked}")
        raise InvalidRequest(
            f"there is no public IP with the address {asked} in the resource group {group}: make"
            " it, or leave out the address"
        )
    dual = len(lb.families) > 1
    name = place.address_name(lb.ref, options, family, dual=dual)
    there = {
        one: str(part(found, "publicIPAddressVersion") or "IPv4")
        for one in variants(name)
        if (found := known.get(place.network_id(group, "publicIPAddresses", one).lower()))
        and marks.verdict_on(found, lb.ref).is_ours
    }
    name = name_of_family(name, family, there)
    id_ = place.network_id(group, "publicIPAddresses", name)
    observed = known.get(id_.lower())
    if observed is None:
        check_place("azure-load-balancer-resource-group", options.group, lb.ref, place)
        stem = "azure-pip-prefix-id" if family == "IPv4" else "azure-pip-prefix-id-ipv6"
        check_place(stem, options.prefixes.get(family, ""), lb.ref, place)
        return Chosen(id_, _made(lb, options, family, place))
    if not marks.verdict_on(observed, lb.ref).is_ours:
        raise CloudError(
            f"the public IP {name} exists without the marks of this Service: delete it in Azure if"
            " nobody needs it, or name it in the annotation azure-pip-name"
        )
    return Chosen(id_, _changed(observed, lb, options, place))


def _given(ref: LoadBalancerRef, id_: str, known: Known, place: Place, what: str) -> Chosen:
    """Return an address that a Service names, with the Service in its tag of users.

    So it is for one that the Service has the marks of: it may have left it to others meanwhile, of
    whom the last one would delete it.
    """
    observed = known.get(id_.lower())
    if observed is None:
        raise InvalidRequest(f"{what} does not exist: make it, or leave out the annotation")
    owners = owners_of(observed)
    is_here = not any(is_of_another_cluster(one, ref.cluster) for one in owners)
    if is_here and ref.key in marks.users(observed):
        return Chosen(str(observed["id"]))
    reason = ""
    if not marks.verdict_on(observed, ref).is_ours:
        called = str(observed["id"]), last(id_)
        reason = refusal(owners, ref, place.config.tenants, called)
        if not reason and (user := user_elsewhere(observed, place)):
            reason = f"it is in use by {user}"
    if reason:
        raise InvalidRequest(f"{what} cannot be used: {reason}")
    if not owners:
        return Chosen(str(observed["id"]))
    names = marks.joined((*marks.users(observed), ref.key))
    changed = {**marks.tags(observed), marks.TAG_SERVICE: names}
    return Chosen(str(observed["id"]), {**observed, "tags": changed})


def user_elsewhere(address: Resource, place: Place) -> str:
    """Return the id of what has a public IP beside the cluster's load balancers; "" for nothing."""
    own = {place.balancer_id(name).lower() for name in place.balancers}
    user = str((part(address, "ipConfiguration") or {}).get("id", ""))
    return "" if user.lower().partition("/frontendipconfigurations/")[0] in {"", *own} else user


def check_place(annotation: str, value: str, ref: LoadBalancerRef, place: Place) -> None:
    """Refuse to make anything in a place that a Service may not name.

    Such as a resource group, a subnet or a prefix: these have no marks of Services, so it is the
    section [Tenants] alone that can limit who names them. The cloud-config's own are everybody's.

    Args:
        annotation: The annotation that names the place, without its prefix.
        value: What it says; "" for nothing.
        ref: The Service.
        place: Where the cluster's load balancers are.

    Raises:
        InvalidRequest: The cloud-config does not let the Service name it; says where to list it.
    """
    config = place.config
    own = {"", config.resource_group.lower(), place.link_group.lower(), config.subnet_name.lower()}
    if value.lower() in own:
        return
    if reason := refusal((), ref, config.tenants, (value, last(value))):
        raise InvalidRequest(f"annotation {PREFIX}{annotation}: {value}: {reason}")


def owners_of(address: Resource) -> list[Owner]:
    """Return whom our marks on a public address name, or else the official ones."""
    own = marks.owner(address)
    return [own] if own is not None else marks.official_owners(address)


def _made(lb: LoadBalancer, options: Options, family: str, place: Place) -> dict[str, Any]:
    config = place.config
    properties: dict[str, Any] = {
        "publicIPAllocationMethod": "Static",
        "publicIPAddressVersion": family,
    }
    if options.ip_tags:
        properties["ipTags"] = _ip_tags(options)
    if prefix := options.prefixes.get(family, ""):
        properties["publicIPPrefix"] = {"id": prefix}
    if options.label:
        properties["dnsSettings"] = {"domainNameLabel": options.label}
    document = {
        "location": config.location,
        "sku": {"name": "Standard"},
        "tags": _tags(lb, options, place, {}),
        "properties": properties,
    }
    return document | extended(place)


def extended(place: Place) -> dict[str, Any]:
    """Return the edge zone for new resources, if the cloud-config names one."""
    config = place.config
    if not config.extended_location_name:
        return {}
    kind = config.extended_location_type or "EdgeZone"
    return {"extendedLocation": {"name": config.extended_location_name, "type": kind}}


def _changed(
    observed: Resource, lb: LoadBalancer, options: Options, place: Place
) -> dict[str, Any] | None:
    """Return the address as the Service wants it; None if it is so already."""
    desired: dict[str, Any] = {}
    if options.label is not None:
        other = marks.tags(observed).get(marks.TAG_DNS, lb.ref.key)
        if other != lb.ref.key:
            raise InvalidRequest(
                "annotation service.beta.kubernetes.io/azure-dns-label-name: the label of this"
                f" public IP is chosen by the Service {other}"
            )
        desired["dnsSettings"] = {"domainNameLabel": options.label}
    asked = _ip_tags(options)
    if asked and not agrees(part(observed, "ipTags") or [], asked):
        raise InvalidRequest(
            "annotation service.beta.kubernetes.io/azure-pip-ip-tags: Azure does not change them on"
            f" the public IP {observed['name']}: make the Service anew"
        )
    document = with_properties(observed, desired)
    tags = _tags(lb, options, place, marks.tags(observed))
    if tags == marks.tags(observed) and document == observed:
        return None
    return {**document, "tags": tags}


def _ip_tags(options: Options) -> list[dict[str, str]]:
    pairs = sorted(options.ip_tags.items())
    return [{"ipTagType": kind, "tag": tag} for kind, tag in pairs]


def _tags(
    lb: LoadBalancer, options: Options, place: Place, observed: Mapping[str, str]
) -> dict[str, str]:
    users = observed.get(marks.TAG_SERVICE) or observed.get("service", "")
    found = marks.merged(observed, place.config.shared_tags, options.tags) | {
        marks.TAG_SERVICE: marks.joined((*filter(None, users.split(",")), lb.ref.key)),
        marks.TAG_CLUSTER: lb.ref.cluster.name,
        **marks.written(lb.marks),
    }
    if options.label:
        found[marks.TAG_DNS] = lb.ref.key
    elif found.get(marks.TAG_DNS) == lb.ref.key and options.label is not None:
        del found[marks.TAG_DNS]
    return found


def departure(
    address: Resource,
    ref: LoadBalancerRef,
    namesakes: Collection[str] = (),
    claims: Mapping[str, Iterable["Claim"]] = {},
) -> Departure:
    """Return what to do with an address that a Service no longer has.

    Args:
        address: The public address.
        ref: The Service.
        namesakes: The default names of Services that are gone while there is another one of the
            same namespace and name: that one is meant by the tag of users.
        claims: What Services have at addresses (`claims.claims`): that of a namesake stays its own.
    """
    own = marks.owner(address)
    if own is not None and own.cluster_uid != ref.cluster.uid:
        return Departure.KEEP
    if own is not None and own.key == ref.key and own.service_uid not in {"", ref.uid}:
        return Departure.KEEP  # another Service's of the same name, before it or after it
    if any(one.cluster not in {"", ref.cluster.name} for one in marks.official_owners(address)):
        return Departure.KEEP
    found = marks.verdict_on(address, ref)
    is_user = ref.key in marks.users(address) and ref.name not in namesakes
    if not (found.is_ours or (is_user and own is not None)):
        return Departure.KEEP
    others = [one for one in marks.users(address) if one != ref.key]
    if others:
        return Departure.UNTAG if is_user else Departure.KEEP
    shown = claims.get(str(part(address, "ipAddress")), ()) if ref.name in namesakes else ()
    is_shown = any(one.is_opened and one.base != ref.name for one in shown)
    return Departure.KEEP if is_shown else Departure.DELETE


def untagged(address: Resource, ref: LoadBalancerRef) -> dict[str, Any]:
    """Return a copy of a public IP address without a Service in its tag of users."""
    tags = marks.tags(address)
    left = marks.joined(one for one in marks.users(address) if one != ref.key)
    tags[marks.TAG_SERVICE] = left
    if tags.get(marks.TAG_DNS) == ref.key:
        del tags[marks.TAG_DNS]
    return {**address, "tags": tags}


def may_share(
    frontends: Iterable[str], ref: LoadBalancerRef, tenants: Tenants, services: Mapping[str, str]
) -> str:
    """Return why a Service may not use another's frontend; "" if it may.

    Args:
        frontends: The names of the frontends, or of the rules that use them.
        ref: The Service.
        tenants: The section [Tenants] of the cloud-config.
        services: The namespaces of the cluster's Services, by the beginnings of the names of their
            frontends.
    """
    for name in frontends:
        if is_of(name, ref):
            continue
        namespace = services.get(name.partition("-")[0], "")
        owners = [Owner(cluster_uid=ref.cluster.uid, namespace=namespace)] if namespace else []
        if reason := refusal(owners, ref, tenants, (name,)):
            return reason
    return ""
