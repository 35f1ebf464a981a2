"""Make the names and descriptions of the parts of load balancers: the official ones. Pure.

All but what Services share is named after the Service's uid, which proves whose it is.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Final

from proreus.cloudprovider.ownership import Owner
from proreus.providers.gce.balancing.parts import IPV4, IPV6, Form, Kind, Rule

_SERVICE: Final = re.compile(r'"kubernetes\.io/service-name":\s*"([^"/]+)/([^"/]+)"')
_CLUSTER_KEY: Final = "proreus.io/cluster-uid"
_CLUSTER: Final = re.compile(rf'"{re.escape(_CLUSTER_KEY)}":\s*"([^"]+)"')
_AFFINITIES: Final = {True: "ClientIP", False: "None"}


def firewall(name: str) -> str:
    """Return the name of the firewall rule that lets clients in."""
    return f"k8s-fw-{name}"


def shared_check(cluster_id: str) -> str:
    """Return the name of the health check that asks nodes, shared by load balancers."""
    return f"k8s-{cluster_id}-node"


def udp_rule(name: str) -> str:
    """Return the name of the second forwarding rule of a target pool, which is for UDP."""
    return f"{name}-udp"


def of_family(name: str, family: str) -> str:
    """Return the name of the forwarding rule with an address of the Service's second family."""
    return f"{name}-{family.lower()}"


def external_check_firewall(name: str, cluster_id: str, *, shared: bool) -> str:
    """Return the name of the firewall rule for the health checks of target pools."""
    return f"{shared_check(cluster_id) if shared else f'k8s-{name}'}-http-hc"


def internal_check_firewall(name: str, cluster_id: str, *, shared: bool) -> str:
    """Return the name of the firewall rule for the health checks of backend services."""
    return f"{shared_check(cluster_id) if shared else name}-hc"


def shared_check_firewall(form: Form, cluster_id: str, family: str) -> str:
    """Return the name of the firewall rule for the health checks of nodes.

    Only the rules of IPv4 are officially called so, but for those of external backend services.
    """
    names = {
        Form.POOL: external_check_firewall("", cluster_id, shared=True),
        Form.INTERNAL: internal_check_firewall("", cluster_id, shared=True),
        Form.EXTERNAL: f"{shared_check(cluster_id)}-netlb-hc",
    }
    return names[form] if family == IPV4 else of_family(names[form], family)


def own_check_firewalls(name: str) -> tuple[str, str]:
    """Return the names of the firewall rules for a Service's own health check, of both kinds."""
    return (
        external_check_firewall(name, "", shared=False),
        internal_check_firewall(name, "", shared=False),
    )


def instance_group(cluster_id: str) -> str:
    """Return the name of the instance group of nodes, in each zone."""
    return f"k8s-ig--{cluster_id}"


def shared_service(cluster_id: str, protocol: str, *, affinity: bool) -> str:
    """Return the name of a backend service that internal Services share."""
    digest = hashlib.sha1(_AFFINITIES[affinity].encode(), usedforsecurity=False).hexdigest()[:16]
    return f"k8s-{cluster_id}-internal-{protocol.lower()}-nmv1-{digest}"


def described(service: str) -> str:
    """Return the description of a part that is made for a Service (namespace/name)."""
    return f'{{"kubernetes.io/service-name":"{service}"}}'


def described_with_address(service: str, address: str) -> str:
    """Return the description of a firewall rule for a Service."""
    return f'{{"kubernetes.io/service-name":"{service}", "kubernetes.io/service-ip":"{address}"}}'


def described_for_cluster(cluster_id: str) -> str:
    """Return the description of the firewall rule for the shared health check of nodes."""
    return f'{{"kubernetes.io/cluster-id":"{cluster_id}"}}'


def described_as_held(service: str, cluster_uid: str) -> str:
    """Return the description of an address that a Service keeps while its rules are made anew.

    It is in use by nothing then, so it says, too, in which cluster the Service is.
    """
    return f'{{"kubernetes.io/service-name":"{service}","{_CLUSTER_KEY}":"{cluster_uid}"}}'


def owner_in(description: str) -> Owner | None:
    """Return the Service that a description names; None if it names none."""
    found, cluster = _SERVICE.search(description), _CLUSTER.search(description)
    if found is None:
        return None
    uid = cluster[1] if cluster else ""
    return Owner(cluster_uid=uid, namespace=found[1], service=found[2])


def parts_of(name: str, rule: Rule | None, forms: Iterable[Form]) -> list[tuple[Kind, str]]:
    """Return what a load balancer of some forms may consist of, shared parts aside.

    Args:
        name: The name of the load balancer.
        rule: Its first forwarding rule, if there is one, which tells its first family.
        forms: The forms in which it may be built.
    """
    found = [(Kind.RULE, name), (Kind.ADDRESS, name), (Kind.FIREWALL, firewall(name))]
    forms = frozenset(forms)
    found += [(form.check, name) for form in Form if form in forms]
    if Form.POOL in forms:
        check = external_check_firewall(name, "", shared=False)
        found += [(Kind.POOL, name), (Kind.RULE, udp_rule(name)), (Kind.FIREWALL, check)]
    if Form.INTERNAL in forms:
        found.append((Kind.FIREWALL, name))  # so older official managers called it
    if forms - {Form.POOL}:
        check = internal_check_firewall(name, "", shared=False)
        found += [(Kind.SERVICE, name), (Kind.FIREWALL, check)]
        seconds = (
            [second_name(rule)]
            if rule is not None
            else [of_family(name, one) for one in (IPV4, IPV6)]
        )
        found += [key for one in seconds for key in second_parts(one)]
    return found


def second_name(first: Rule) -> str:
    """Return the name of the forwarding rule of the second family, by the first rule."""
    return of_family(first.name, IPV4 if first.family == IPV6 else IPV6)


def second_parts(name: str) -> list[tuple[Kind, str]]:
    """Return what there may be for the forwarding rule of a second family alone."""
    check = internal_check_firewall(name, "", shared=False)
    firewalls = ((Kind.FIREWALL, one) for one in (firewall(name), check))
    return [(Kind.RULE, name), (Kind.ADDRESS, name), *firewalls]
