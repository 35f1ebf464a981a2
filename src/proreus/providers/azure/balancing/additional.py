"""Decide which addresses a Service may name beside its own. Pure.

The security group lets clients reach them, and the Service's status shows them, so that each node
sends what comes for them to the Service. So the address of another Service, of a node or of a pod
is no tenant's to name, nor is one that leads to no load balancer on the Internet.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.names import default_load_balancer_name
from proreus.cloudprovider.ownership import Owner, Tenants, of_pods, refusal
from proreus.providers.azure.balancing.addresses import owners_of, user_elsewhere
from proreus.providers.azure.balancing.annotations import ANNOTATION_ADDITIONAL, FAMILIES
from proreus.providers.azure.balancing.balancers import listed
from proreus.providers.azure.balancing.claims import asked_ports, shown_beside
from proreus.providers.azure.balancing.desired import (
    RULE_PROTOCOLS,
    each_port,
    ports_by_protocol,
)
from proreus.providers.azure.balancing.guard import Strip
from proreus.providers.azure.balancing.homes import ADDRESSES
from proreus.providers.azure.balancing.index import Index, Opened
from proreus.providers.azure.balancing.parts import Claim, Job, Opening, Scene, State
from proreus.providers.azure.balancing.pools import POOLS
from proreus.providers.azure.machines import part, properties

_NOT_PUBLIC: Final = tuple(
    ip_network(one)
    for one in (
        # Azure's own services for machines: https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
        *("168.63.129.16/32", "169.254.0.0/16", "fe80::/10"),
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
        *("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3", "::/127", "ff00::/8"),
    )
)


def check_additional(jobs: Sequence[Job], state: State, scene: Scene, known: Index) -> None:
    """Refuse addresses of others, but for those that a Service has already.

    What its status shows as that of a load balancer is none that it has: it may be about to leave
    it to others. Nor is any by the Service's own spec, which its tenant writes. Of several Services
    of a pass the first one gets it.

    Raises:
        InvalidRequest: An address is another's; names the annotation and the remedy.
    """
    taken = _taken(scene, known) if any(job.options.additional for job in jobs) else set()
    for number, job in enumerate(jobs):
        shown = {point.ip for point in job.ref.last_ingress}
        for address in job.options.additional if job.lb is not None else ():
            _check_by_hand(job, address, state, scene, known)
            if address in named_before(job.ref) - taken:
                continue
            # What it has already need not be listed, but must be nobody else's.
            tenants = Tenants() if address in shown else scene.place.config.tenants
            users = _users(job.ref, address, scene, known)
            others = (one for one in users if one.service_uid != job.ref.uid)
            begun = _begun(job, address, jobs[:number], scene)
            owners = (*_marked(address, state), *others, *begun)
            why = _refusal(job, address, scene, tenants, owners) or _unfit(job, address, scene)
            if why:
                raise InvalidRequest(
                    f"annotation {ANNOTATION_ADDITIONAL}: {address}: {why}: leave it out"
                )


def _check_by_hand(job: Job, address: str, state: State, scene: Scene, known: Index) -> None:
    """Refuse ports of rules by hand that lead to others than the nodes, such as the API server.

    Raises:
        InvalidRequest: The Service asks for such a port; names it.
    """
    if port := port_led_away(job, address, state, scene, known):
        raise InvalidRequest(
            f"annotation {ANNOTATION_ADDITIONAL}: {address}: its port {port} is that of a"
            " rule that is no Service's, and leads to none of the nodes: leave it out"
        )


def port_led_away(job: Job, address: str, state: State, scene: Scene, known: Index) -> int:
    """Return a port that a Service may not have at an address beside its own; 0 for none."""
    if scene.place.config.tenants.lists(job.ref.namespace, (address,)):
        return 0
    rules = [one for one in by_hand_at(address, known, scene) if leads_away(one, state, scene)]
    return port_in(rules, job)


def port_in(rules: Sequence[Opened], job: Job) -> int:
    """Return a port that a Service asks for and that rules have; 0 for none."""
    ports = asked_ports(job)
    return next((one[1] for one in ports if any(rule.has(*one) for rule in rules)), 0)


def _taken(scene: Scene, known: Index) -> set[str]:
    """Return the addresses that Services of the cluster have by the load balancers."""
    return set[str]().union(*map(known.reached, scene.services))


def named_before(ref: LoadBalancerRef, families: Collection[str] = FAMILIES) -> set[str]:
    """Return the additional addresses that a status shows: after the first one of each family."""
    return shown_beside(ref.last_ingress, families)


def refusal_of(job: Job, address: str, state: State, scene: Scene, known: Index) -> str:
    """Return why a Service may not name an address, or may not close its ports; "" if it may."""
    owners = (*_marked(address, state), *_users(job.ref, address, scene, known))
    return _refusal(job, address, scene, scene.place.config.tenants, owners)


def _refusal(
    job: Job, address: str, scene: Scene, tenants: Tenants, owners: Iterable[Owner]
) -> str:
    node = scene.node_addresses.get(address)
    if scene.place.config.tenants.lists(job.ref.namespace, (address,)):
        return ""
    if node:
        return f"it is an address of the node {node}"
    return refusal(owners, job.ref, tenants, (address,))


def _unfit(job: Job, address: str, scene: Scene) -> str:
    """Return why an address cannot be that of a load balancer on the Internet; "" if it may be."""
    if scene.place.config.tenants.lists(job.ref.namespace, (address,)):
        return ""
    found = ip_address(address)
    if any(found in one for one in _NOT_PUBLIC):
        return "it is no public address"
    return of_pods(address, scene.pods)


def by_hand_at(address: str, known: Index, scene: Scene) -> list[Opened]:
    """Return the ports that rules by hand have at an address, such as the API server's."""
    return [one for one in known.by_hand.get(address, ()) if one.base not in scene.services]


def leads_away(rule: Opened, state: State, scene: Scene) -> bool:
    """Tell whether a rule by hand leads to none of the nodes that are hosts."""
    hosts = {id_ for id_, node in scene.nodes.items() if node not in scene.excluded}
    addresses = {ip for ip, node in scene.node_addresses.items() if node not in scene.excluded}
    pools = (one for each in state.balancers.values() for one in listed(each, POOLS))
    named = {
        properties(each).get("ipAddress")
        for pool in pools
        if str(pool.get("id", "")).lower() == rule.pool
        for each in properties(pool).get(ADDRESSES) or ()
    }
    return hosts.isdisjoint(state.members.get(rule.pool, ())) and addresses.isdisjoint(named)


def strip_of(job: Job, targets: Iterable[str], scene: Scene, known: Index) -> Strip:
    """Return how a Service's addresses leave the rules of the security group.

    The ports that other Services have at these addresses stay open.
    """
    wanted, ref = frozenset(filter(None, targets)), job.ref
    others = known.others_ports(ref.name, wanted, at_nodes=not job.options.floats)
    theirs = tuple(_others(ref, wanted, scene))
    led = tuple(_led_there(ref, wanted, scene, known))
    had = merged((opening(job), scene.opened.get(ref.uid, Opening())))
    # What both ask for is this one's, such as a port for which the other one is refused.
    asked = {one for claim in led for one in each_port(claim.ports)} - {*each_port(had.ports)}
    kept = (
        one for ports in (others, *(claim.ports for claim in theirs)) for one in each_port(ports)
    )
    own = known.addresses.union(
        str(part(one, "ipAddress") or "") for one in known.addresses_of(ref)
    )
    return Strip(
        wanted,
        ports_by_protocol((*kept, *asked)),
        prefix=f"{ref.name}-",
        keeps_denied=any(claim.denies for claim in (*theirs, *led)),
        others=wanted - own - scene.own_addresses,
        opened=had.ports,
        denied=had.denies,
    )


def opening(job: Job) -> Opening:
    """Return what a Service has open, or had when it was seen last."""
    service = job.lb.service if job.lb is not None else job.ref.service
    ports = service.spec.ports if service is not None else ()
    found = (
        (RULE_PROTOCOLS.get(one.protocol, "*"), number)
        for one in ports
        for number in (one.port, one.node_port)
    )
    additional = frozenset(job.options.additional)
    return Opening(ports_by_protocol(found), job.options.denies, additional)


def merged(openings: Sequence[Opening]) -> Opening:
    """Return all that several openings have."""
    ports = (one for found in openings for one in each_port(found.ports))
    return Opening(
        ports_by_protocol(ports),
        any(one.denies for one in openings),
        frozenset[str]().union(*(one.additional for one in openings)),
    )


def given_up(
    job: Job, addresses: Iterable[str], state: State, scene: Scene, known: Index
) -> set[str]:
    """Return those addresses that a Service had whose ports it may close: nobody else has them."""
    return {
        one
        for one in addresses
        if not refusal_of(job, one, state, scene, known)
        and not _is_elsewhere(job, one, state, scene)
    }


def _is_elsewhere(job: Job, address: str, state: State, scene: Scene) -> bool:
    """Tell whether an address is a public IP's that something else than the cluster has by now.

    Not if the Service is known to have named it as an additional one.
    """
    if address in scene.opened.get(job.ref.uid, Opening()).additional:
        return False
    return address in state.elsewhere or any(
        user_elsewhere(one, scene.place)
        for one in state.addresses.values()
        if part(one, "ipAddress") == address
    )


def _others(ref: LoadBalancerRef, addresses: Iterable[str], scene: Scene) -> Iterator[Claim]:
    """Return what other Services have at addresses by their status, or ask for, of the namespace.

    What a Service of another namespace has by its spec, such as an external IP, its tenant writes:
    no rule was made for that, and it would keep open what this one closes.
    """
    for address in addresses:
        for claim in scene.claims.get(address, ()):
            if claim.base != ref.name and (claim.is_opened or claim.namespace == ref.namespace):
                yield claim


def _led_there(
    ref: LoadBalancerRef, addresses: Iterable[str], scene: Scene, known: Index
) -> Iterator[Claim]:
    """Return what other Services ask for that have rules at addresses, whatever their status shows.

    It lacks an address while it is not written yet, or while the Service is refused.
    """
    bases = {one.base for address in addresses for one in known.asked.get(address, ())} - {ref.name}
    if bases:
        yield from (one for found in scene.claims.values() for one in found if one.base in bases)


def _marked(address: str, state: State) -> Iterator[Owner]:
    """Return the owners of an address that the marks on its public IP name."""
    for one in state.addresses.values():
        if part(one, "ipAddress") == address:
            yield from owners_of(one)


def _users(ref: LoadBalancerRef, address: str, scene: Scene, known: Index) -> Iterator[Owner]:
    """Return the owners of an address, as far as frontends and Services tell."""
    for base, frontends in known.frontends.items():
        namespace = scene.services.get(base, "")
        if namespace and any(found == address for _, _, found in frontends):
            yield _owner(ref, base, namespace)
    for claim in scene.claims.get(address, ()):
        if claim.is_shown:
            yield _owner(ref, claim.base, claim.namespace)


def _begun(job: Job, address: str, first: Iterable[Job], scene: Scene) -> Iterator[Owner]:
    """Return the owners of an additional address whose statuses may not show it yet.

    It was opened for them a moment ago, or they come first in the pass.
    """
    bases = opened_for(address, scene.opened)
    bases |= {one.ref.name for one in first if address in one.options.additional}
    for claim in scene.claims.get(address, ()):
        if claim.base in bases - {job.ref.name}:
            yield _owner(job.ref, claim.base, claim.namespace)


def opened_for(address: str, opened: Mapping[str, Opening]) -> set[str]:
    """Return the bases of the names of Services for which an additional address is open."""
    return {
        default_load_balancer_name(uid) for uid, one in opened.items() if address in one.additional
    }


def _owner(ref: LoadBalancerRef, base: str, namespace: str) -> Owner:
    uid = ref.uid if base == ref.name else ""
    return Owner(cluster_uid=ref.cluster.uid, namespace=namespace, service_uid=uid)
