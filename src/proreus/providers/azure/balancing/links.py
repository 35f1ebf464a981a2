"""Decide which private link services Services have. Pure.

One is in front of one frontend, is made for the Service that asks for it, and goes with that
frontend: consumers' private endpoints end with it. A Service that shares the frontend shares it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.providers.azure.balancing import marks
from proreus.providers.azure.balancing.addresses import Known, check_place, extended
from proreus.providers.azure.balancing.annotations import ANNOTATION_LINK, PREFIX, Link
from proreus.providers.azure.balancing.claims import check_shown
from proreus.providers.azure.balancing.desired import Place
from proreus.providers.azure.balancing.documents import named_ids, with_properties
from proreus.providers.azure.balancing.index import Opened
from proreus.providers.azure.balancing.parts import Document, Job, Scene
from proreus.providers.azure.balancing.steps import Step, put_link
from proreus.providers.azure.ids import last
from proreus.providers.azure.machines import Resource, part

FRONTENDS = "loadBalancerFrontendIpConfigurations"
_CONFIGURATIONS = "ipConfigurations"
_LONGEST = 80


def by_frontend(links: Known) -> Mapping[str, Resource]:
    """Return private link services by the ids of their frontends, in small letters."""
    return {id_: one for one in links.values() for id_ in named_ids(one, FRONTENDS)}


def connections(link: Resource) -> tuple[str, ...]:
    """Return the names of the connections that a private link service has."""
    return tuple(str(one["name"]) for one in part(link, "privateEndpointConnections") or ())


def link_of(job: Job, frontend: str, links: Known, place: Place) -> Step | None:
    """Return the step for the private link service of a frontend; None if it is as desired.

    Args:
        job: The Service that asks for a private link service.
        frontend: The id of its frontend.
        links: The observed private link services.
        place: Where the cluster's load balancers are.

    Raises:
        InvalidRequest: The Service can have no private link service, or not this one.
        CloudError: The name of the private link service is taken by one that is not the Service's.
    """
    link = job.options.link
    if link is None or job.lb is None:
        return None
    if "IPv4" not in job.lb.families:
        raise InvalidRequest(f"annotation {ANNOTATION_LINK}: private link services have IPv4 only")
    observed = by_frontend(links).get(frontend.lower())
    if observed is not None and not _is_ours(observed, job.ref):
        _check_shared(observed, job, place)
        return None
    name = link.name or (last(str(observed["id"])) if observed else f"pls-{last(frontend)}")
    id_ = place.network_id(link.group or place.link_group, "privateLinkServices", name)
    if observed is None and (other := links.get(id_.lower())) is not None:
        if not _is_ours(other, job.ref):
            raise CloudError(
                f"the private link service {name} exists without the marks of this Service: delete"
                f" it, or give another name in {PREFIX}azure-pls-name"
            )
        raise InvalidRequest(
            f"{PREFIX}azure-pls-name: the private link service {name} is of another frontend: give"
            " another name"
        )
    if observed is not None and str(observed["id"]).lower() != id_.lower():
        raise InvalidRequest(
            f"the private link service {observed['id']} cannot be called {id_}: leave out the"
            " annotations of its name and resource group, or delete the Service"
        )
    if observed is None:
        check_place("azure-pls-resource-group", link.group, job.ref, place)
    if place.subnet_id(link.subnet).lower() not in _subnets(observed or {}):
        check_place("azure-pls-ip-configuration-subnet", link.subnet, job.ref, place)
    document = _document(link, job, frontend, observed or {}, place)
    if document == observed:
        return None
    return put_link(id_, document, is_new=observed is None)


def check_alone(
    job: Job,
    frontend: str,
    links: Known,
    namespaces: Collection[str],
    by_hand: Sequence[Opened],
) -> None:
    """Refuse a new private link service in front of what others have at an address.

    Whoever comes by one comes from within the network, whatever sources those allow.

    Args:
        job: A Service that asks for one.
        frontend: The id of its frontend.
        links: The observed private link services.
        namespaces: The namespaces of the Services at the frontend, or whose status shows its
            address.
        by_hand: The ports that rules of no Service have at its address.

    Raises:
        InvalidRequest: There are other namespaces, or such a rule; names them.
    """
    if frontend.lower() in by_frontend(links):
        return
    if others := set(namespaces) - {job.ref.namespace}:
        raise InvalidRequest(
            f"annotation {ANNOTATION_LINK}: Services of {', '.join(sorted(others))} have the same"
            " address: give this one another address, or leave the annotation out"
        )
    if by_hand:
        raise InvalidRequest(
            f"annotation {ANNOTATION_LINK}: port {by_hand[0].port} of the same address is"
            " that of a rule that is no Service's: give the Service another address, or leave the"
            " annotation out"
        )


def check_addresses(job: Job, frontend: str, links: Known, scene: Scene) -> None:
    """Refuse addresses for a private link service that other namespaces' Services have.

    Raises:
        InvalidRequest: One has an address that the private link service has not yet.
    """
    observed = by_frontend(links).get(frontend.lower(), {})
    own = {
        one["properties"].get("privateIPAddress") for one in part(observed, _CONFIGURATIONS) or ()
    }
    for address in job.options.link.addresses if job.options.link is not None else ():
        if address not in own:
            what = f"annotation {PREFIX}azure-pls-ip-configuration-ip-address: {address}"
            check_shown(job, address, scene, what)


def _is_ours(observed: Resource, ref: LoadBalancerRef) -> bool:
    """Tell whether a private link service was made for a Service, by our mark or the official."""
    own, found = marks.owner(observed), marks.tags(observed)
    if own is not None:
        return own.service_uid == ref.uid and own.cluster_uid == ref.cluster.uid
    is_here = found.get(marks.TAG_CLUSTER, "").strip().lower() == ref.cluster.name.lower()
    return is_here and found.get(marks.TAG_LINK_OWNER, "").lower() == ref.key.lower()


def is_of_cluster(observed: Resource, cluster: str, uid: str) -> bool:
    """Tell whether a private link service was made for a Service of the cluster."""
    own = marks.owner(observed)
    if own is not None:
        return own.cluster_uid == uid
    return marks.tags(observed).get(marks.TAG_CLUSTER, "").strip().lower() == cluster.lower()


def _check_shared(observed: Resource, job: Job, place: Place) -> None:
    name = str(observed["name"])
    if not is_of_cluster(observed, place.cluster, job.ref.cluster.uid):
        raise CloudError(
            f"the private link service {name} is in front of the Service's frontend, and not this"
            f" cluster's: delete it, or leave out {ANNOTATION_LINK}"
        )
    if job.options.link != Link():
        raise InvalidRequest(
            f"the private link service {name} belongs to another Service at the same address: leave"
            f" out all annotations azure-pls-… but {ANNOTATION_LINK}"
        )


def _document(link: Link, job: Job, frontend: str, observed: Resource, place: Place) -> Document:
    subnet = link.subnet or job.options.subnet or place.config.subnet_name
    name = link.name or last(str(observed.get("id", ""))) or f"pls-{last(frontend)}"
    desired: dict[str, Any] = {
        FRONTENDS: [{"id": frontend}],
        "fqdns": list(link.fqdns),
        "visibility": {"subscriptions": list(link.visible)},
        "autoApproval": {"subscriptions": list(link.approved)},
    }
    addresses = _addresses(link, place.subnet_id(subnet), f"{subnet}-{name}")
    if link.proxies is not bool(part(observed, "enableProxyProtocol")):
        desired["enableProxyProtocol"] = link.proxies
    if not _has(observed, addresses):
        desired[_CONFIGURATIONS] = addresses
    for key in ("fqdns", "visibility", "autoApproval"):
        given = desired[key] if key == "fqdns" else desired[key]["subscriptions"]
        known = part(observed, key) if key == "fqdns" else part(observed, key, "subscriptions")
        if sorted(known or ()) == sorted(given):
            del desired[key]
    tags = {
        **marks.tags(observed),
        **place.config.shared_tags,
        **(marks.written(job.lb.marks) if job.lb is not None else {}),
        marks.TAG_CLUSTER: place.cluster,
        marks.TAG_LINK_OWNER: job.ref.key,
    }
    made = {"location": place.config.location, **extended(place), **observed}
    return {**with_properties(made, desired), "tags": tags}


def _addresses(link: Link, subnet: str, stem: str) -> list[dict[str, Any]]:
    """Return the addresses from which a private link's traffic comes, the primary one first."""
    fixed = [(f"-static-{one}", {"privateIPAddress": one}) for one in link.addresses]
    free: list[tuple[str, dict[str, str]]] = [
        (f"-dynamic-{number}", {}) for number in range(link.count - len(fixed))
    ]
    return [
        {
            "name": f"{stem[: _LONGEST - len(end)]}{end}",
            "properties": {
                **given,
                "privateIPAllocationMethod": "Static" if given else "Dynamic",
                "subnet": {"id": subnet},
                "primary": not number,
                "privateIPAddressVersion": "IPv4",
            },
        }
        for number, (end, given) in enumerate((*fixed, *free))
    ]


class _Address(msgspec.Struct, frozen=True, order=True):
    address: str
    subnet: str
    primary: bool


def _subnets(observed: Resource) -> set[str]:
    """Return the ids of the subnets of a private link service's addresses, in small letters."""
    every = part(observed, _CONFIGURATIONS) or ()
    return {str((one["properties"].get("subnet") or {}).get("id", "")).lower() for one in every}


def _has(observed: Resource, desired: Iterable[Mapping[str, Any]]) -> bool:
    """Tell whether a private link service has the desired addresses, whatever their names."""

    def seen(found: Sequence[Mapping[str, Any]] | Iterable[Mapping[str, Any]]) -> list[_Address]:
        listed = []
        for one in found:
            given = one["properties"]
            is_fixed = str(given.get("privateIPAllocationMethod")) == "Static"
            address = str(given.get("privateIPAddress", "")) if is_fixed else ""
            subnet = str((given.get("subnet") or {}).get("id", "")).lower()
            listed.append(_Address(address, subnet, bool(given.get("primary"))))
        return sorted(listed)

    return seen(part(observed, _CONFIGURATIONS) or ()) == seen(desired)
