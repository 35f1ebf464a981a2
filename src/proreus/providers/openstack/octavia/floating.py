"""Tell to whom a floating IP belongs, by its description. Pure.

Neutron lets a floating IP be described when it is made, so the description is its mark: the
official manager's text, behind it the uids of Service and cluster, and whether it is to stay when
the Service goes. What the official manager has made gets that mark when it is seen; until then the
Service's status must show the address, and it must not be older than the Service: a former one of
the name may have kept it. It is deleted with the very Service that it was made for; if
that has left its load balancer to others, with the load balancer.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.mark_forms import Description
from proreus.cloudprovider.ownership import Owner, verdict
from proreus.providers.nova.machines import Described
from proreus.providers.openstack.octavia.ingresses import ingress_in

_OFFICIAL: Final = "Floating IP for Kubernetes external service"
_KEPT: Final = "keep"
_CLOCKS: Final = timedelta(minutes=5)
"""How far the clocks of OpenStack and of the API server may be apart."""
_FORM: Final = Description(255, words=frozenset({_KEPT}))
# What is too long has been cut, from the end.
_TEXT = re.compile(
    rf"{_OFFICIAL} (?P<namespace>[^ /]+)/(?P<service>[^ ]*)( from cluster (?P<cluster>.*))?.*"
)


def description(ref: LoadBalancerRef, *, kept: bool = False) -> str:
    """Return the description for a floating IP that is made for a Service.

    Args:
        ref: The Service.
        kept: Whether it is to stay when the Service is deleted.
    """
    return _FORM.write(_official(ref), ref, *([_KEPT] if kept else ()))


def descriptions(ref: LoadBalancerRef) -> tuple[str, ...]:
    """Return all descriptions that a Service's floating IPs can have, to filter Neutron's list.

    The official text proves something as long as the Service's status shows the address.
    """
    official = (_official(ref)[: _FORM.limit],) if ref.last_ingress else ()
    return (description(ref), description(ref, kept=True), *official)


def owner(floating: Described) -> Owner | None:
    """Return the owner for whom a manager made a floating IP; None if somebody else made it."""
    text, proven, _ = _FORM.read(str(floating.get("description") or ""))
    found = _TEXT.fullmatch(text)
    if found is None:
        return ingress_in(text)
    return msgspec.structs.replace(
        proven or Owner(),
        cluster=found["cluster"] or "",
        namespace=found["namespace"],
        service=found["service"],
    )


def is_kept(floating: Described) -> bool:
    """Tell whether a floating IP stays when its Service is deleted, as its description says."""
    return _KEPT in _FORM.read(str(floating.get("description") or ""))[2]


def is_proven(floating: Described) -> bool:
    """Tell whether a floating IP's mark has uids, and so proves for whom it was made."""
    found = owner(floating)
    return found is not None and bool(found.service_uid)


def is_made_for(floating: Described, ref: LoadBalancerRef) -> bool:
    """Tell whether a floating IP was made for the Service, by us or by the official manager.

    What the official manager writes can be guessed, and a Service can name any address; so the
    status must show the address, and it must not be older than the Service.
    """
    found = owner(floating)
    if found is None:
        return False
    has_uids = bool(found.service_uid)
    if not has_uids and is_older(floating, ref):
        return False
    return verdict(
        ref,
        owners=(found,) if has_uids else (),
        official=() if has_uids else (found,),
        addresses=(str(floating.get("floating_ip_address")),),
    ).is_ours


def goes_with(floating: Described, makers: Iterable[Owner], ref: LoadBalancerRef) -> bool:
    """Tell whether a floating IP is deleted together with the load balancer that it belongs to.

    Args:
        floating: The floating IP at the port of the load balancer.
        makers: The Services that the load balancer was made for: except for this Service, they have
            left it.
        ref: The Service.
    """
    found = owner(floating)
    if found is None or is_kept(floating):
        return False
    if is_made_for(floating, ref):
        return True
    if found.service_uid:
        proofs = {(maker.cluster_uid, maker.service_uid) for maker in makers}
        return (found.cluster_uid, found.service_uid) in proofs
    is_former = found.key == ref.key and is_older(floating, ref)
    is_left = found.key in {maker.key for maker in makers} and not is_former
    return is_left and _is_official(found, ref) and is_shown(floating, ref)


def is_older(floating: Described, ref: LoadBalancerRef) -> bool:
    """Tell whether a floating IP was there before the Service: made for another one of its name.

    False where nobody tells when either was made.
    """
    born = ref.service.metadata.creation_timestamp if ref.service is not None else None
    try:
        made = datetime.fromisoformat(str(floating.get("created_at") or ""))
    except ValueError:
        return False
    made = made if made.tzinfo is not None else made.replace(tzinfo=UTC)
    return born is not None and made < born - _CLOCKS


def is_shown(floating: Described, ref: LoadBalancerRef) -> bool:
    """Tell whether the Service's status shows a floating IP's address."""
    return floating.get("floating_ip_address") in {
        point.ip for point in ref.last_ingress if point.ip
    }


def _official(ref: LoadBalancerRef) -> str:
    return f"{_OFFICIAL} {ref.key} from cluster {ref.cluster.name}"


def _is_official(found: Owner, ref: LoadBalancerRef) -> bool:
    return not found.service_uid and found.cluster == ref.cluster.name
