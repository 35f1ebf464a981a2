"""Tell to whom objects of CloudStack belong, by descriptions, tags and names. Pure.

A rule that we make has the UIDs of Service and cluster in its description from the start; one that
the official manager has made has the Service's UID in its name, and gets our tags. Addresses have
tags; items of access lists say the UIDs as their reason.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from proreus.cloudprovider.identity import MARK_FINGERPRINT, MARK_SERVICE, marks
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.mark_forms import Description, owner_of
from proreus.cloudprovider.ownership import Owner, Verdict, are_marks_of, verdict

LONGEST: Final = 255
CLAIM: Final = "proreus/claim/"
"""The prefix of the tag on a network that claims an address; the Service's UID follows."""

_TEXT: Final = Description(LONGEST)
_SERVICE: Final = re.compile(r"Kubernetes Service (\S+) of cluster ")


def description(ref: LoadBalancerRef) -> str:
    """Return the description of a rule, or the reason of an access list's item."""
    return _TEXT.write(f"Kubernetes Service {ref.key} of cluster {ref.cluster.name}", ref)


def service_marks(ref: LoadBalancerRef) -> Mapping[str, str]:
    """Return the tags that mark an object as a Service's; a value that is too long is cut."""
    of = marks(ref.cluster, ref.key, ref.uid)
    return {key: value[:LONGEST] for key, value in of.items() if value}


def tags_of(described: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of an object by their keys."""
    return {str(one["key"]): str(one.get("value", "")) for one in described.get("tags") or ()}


def owners_of(described: Mapping[str, Any]) -> list[Owner]:
    """Return the owners that our marks on an object name."""
    text = str(described.get("description") or described.get("reason") or "")
    named = (_TEXT.read(text)[1], owner_of(tags_of(described)))
    return [one for one in named if one is not None]


def verdict_of(rule: Mapping[str, Any], ref: LoadBalancerRef) -> Verdict:
    """Return how a rule is related to a Service."""
    return verdict(ref, owners=owners_of(rule), texts=(str(rule.get("name", "")),))


def is_marked(described: Mapping[str, Any], ref: LoadBalancerRef) -> bool:
    """Tell whether marks prove that an object is the Service's."""
    return verdict(ref, owners=owners_of(described)) is Verdict.MARKED


def has_tags_of(described: Mapping[str, Any], ref: LoadBalancerRef) -> bool:
    """Tell whether the tags of an address prove that it was acquired for the Service."""
    return are_marks_of(tags_of(described), ref)


def record_of(rules: Iterable[Mapping[str, Any]]) -> str:
    """Return the record that one of a Service's rules has, or ""."""
    found = [tags_of(one).get(MARK_FINGERPRINT, "") for one in rules]
    known = [one for one in found if one]
    return known[0] if len(known) == 1 else ""


def service_of(rules: Iterable[Mapping[str, Any]]) -> str:
    """Return the Service as namespace/name that the marks on rules name, or ""."""
    for one in rules:
        if key := tags_of(one).get(MARK_SERVICE, ""):
            return key
        if found := _SERVICE.match(str(one.get("description") or "")):
            return found[1]
    return ""


def claim_key(ref: LoadBalancerRef) -> str:
    """Return the key of the tag that claims an address for a Service."""
    return f"{CLAIM}{ref.uid}"


def claim_value(ref: LoadBalancerRef, ip: str) -> str:
    """Return the value of the tag that claims an address for this cluster."""
    return f"{ref.cluster.uid}/{ip}"


def claimed(value: str, ref: LoadBalancerRef) -> str:
    """Return the address that a claim's value names; "" if the claim is another cluster's."""
    cluster, _, ip = value.partition("/")
    return ip if cluster == ref.cluster.uid else ""


def claims_of(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the values of all claims on a network, by the UIDs of Services."""
    return {key.removeprefix(CLAIM): value for key, value in tags.items() if key.startswith(CLAIM)}


def claimants(claims: Iterable[tuple[str, str]], ref: LoadBalancerRef, ip: str) -> list[Owner]:
    """Return the other Services that claim an address, each once.

    Such an address is theirs, although it has no mark yet: CloudStack takes none with the request
    that acquires it.

    Args:
        claims: The claims on networks, each as the UID of a Service and the value of its tag.
        ref: The Service that is not to be returned.
        ip: The address.
    """
    own = ref.uid, claim_value(ref, ip)
    found = (
        Owner(value.removesuffix(f"/{ip}"), service_uid=uid)
        for uid, value in claims
        if value.endswith(f"/{ip}") and (uid, value) != own
    )
    return list(dict.fromkeys(found))
