"""Plan the next steps for the load balancers of a cluster: one round at a time. Pure.

A round holds steps that do not need one another. First come public addresses, then the security
group loses what goes, then the load balancers are written whole, then machines join their pools,
then the security group lets clients in, and last goes what nobody has any more.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.providers.azure.balancing import guard, marks
from proreus.providers.azure.balancing.additional import (
    by_hand_at,
    check_additional,
    given_up,
    strip_of,
)
from proreus.providers.azure.balancing.addresses import (
    Departure,
    departure,
    untagged,
    user_elsewhere,
)
from proreus.providers.azure.balancing.annotations import FAMILIES
from proreus.providers.azure.balancing.balancers import (
    Spot,
    Spots,
    balancer,
    differs,
    listed,
    spots,
)
from proreus.providers.azure.balancing.desired import base_of, each_port, ports_by_protocol
from proreus.providers.azure.balancing.homes import settled
from proreus.providers.azure.balancing.index import Index, frontend_address, index
from proreus.providers.azure.balancing.links import (
    by_frontend,
    check_addresses,
    check_alone,
    connections,
    is_of_cluster,
    link_of,
)
from proreus.providers.azure.balancing.memberships import model_pools
from proreus.providers.azure.balancing.parts import Document, Job, Scene, State
from proreus.providers.azure.balancing.placement import frontend_users, leaving, placed
from proreus.providers.azure.balancing.pools import filled, hosts
from proreus.providers.azure.balancing.sharing import check_shared
from proreus.providers.azure.balancing.steps import (
    Step,
    delete_address,
    delete_balancer,
    delete_link,
    join,
    join_set,
    put_address,
    put_balancer,
    put_group,
)
from proreus.providers.azure.config import PoolType
from proreus.providers.azure.ids import last, machine_id
from proreus.providers.azure.machines import Resource, part, properties


def plan(jobs: Sequence[Job], state: State, scene: Scene) -> list[Step]:
    """Return the next round of steps; nothing if all is as desired.

    Raises:
        CloudError: A Service cannot have what it asks for.
    """
    jobs = placed(jobs, state, scene)
    scene = settled(jobs, state, scene)
    where, known = spots(jobs, state, scene), index(state)
    check_additional(jobs, state, scene, known)
    given = {job.ref.uid: ingress(job, state, where) for job in jobs}
    check_shared(jobs, state, scene, known, given)
    for job in jobs:
        spot = where.get((job.ref.uid, "IPv4"))
        if job.options.link is not None and spot is not None:
            namespaces = _namespaces(job, spot, state, scene)
            by_hand = [one for ip in given[job.ref.uid] for one in by_hand_at(ip, known, scene)]
            check_alone(job, spot.id, state.links, namespaces, by_hand)
            check_addresses(job, spot.id, state.links, scene)
    if first := _addresses(where, state):
        return first
    staying, names = leaving(jobs, state, scene), scene.place.balancers
    desired = {name: balancer(staying, state, scene, where, name) for name in names}
    # Private endpoints end with their link: it goes once Azure has taken all that is new.
    kept = _with_links(jobs, state, scene)
    made_first = {
        name: balancer(staying, state, scene, where, name, kept=kept) for name in names if kept
    }
    # Each round is only planned if those before it are done.
    rounds: Iterable[Callable[[], Sequence[Step]]] = (
        lambda: _stripped(jobs, state, scene, desired, known),
        lambda: _balancers(state, {key: one for key, one in made_first.items() if one}),
        lambda: _unlinked(jobs, state, scene, desired),
        lambda: _detached(state, desired, scene),
        lambda: _balancers(state, desired),
        lambda: _joined(jobs, state, scene),
        lambda: _guarded(jobs, state, scene, where, known),
        lambda: _linked(jobs, state, scene, where),
        lambda: _departed(jobs, scene, where, known),
    )
    return next((list(steps) for plan_ in rounds if (steps := plan_())), [])


def _addresses(where: Spots, state: State) -> list[Step]:
    found: dict[str, Step] = {}
    for one in where.values():
        if one.public is not None and one.public.document is not None:
            id_ = one.public.id
            # Two Services may name one address: one write, and the other's comes next.
            step = put_address(id_, one.public.document, is_new=id_.lower() not in state.addresses)
            found.setdefault(id_.lower(), step)
    return list(found.values())


def _balancers(state: State, desired: dict[str, Document | None]) -> list[Step]:
    found: list[Step] = []
    for name, document in desired.items():
        observed = state.balancers.get(name)
        if not differs(observed, document):
            continue
        if document is None:
            found.append(delete_balancer(name))
        else:
            found.append(put_balancer(name, observed, document))
    return found


def ingress(job: Job, state: State, where: Spots) -> list[str]:
    """Return the addresses at which a Service is reached, as far as they exist yet."""
    found = []
    for family in job.lb.families if job.lb is not None else ():
        one = where[job.ref.uid, family]
        if one.public is not None:
            address = part(state.addresses.get(one.public.id.lower(), {}), "ipAddress")
        else:
            balancer_ = state.balancers.get(job.balancer)
            address = _private(balancer_, one.id)
        if address:
            found.append(str(address))
    return found


def _private(observed: Resource | None, frontend: str) -> str:
    name = frontend.rpartition("/")[2].lower()
    for one in listed(observed, "frontendIPConfigurations"):
        if str(one["name"]).lower() == name:
            return str(properties(one).get("privateIPAddress") or "")
    return ""


def _stripped(
    jobs: Sequence[Job],
    state: State,
    scene: Scene,
    desired: dict[str, Document | None],
    known: Index,
) -> list[Step]:
    """Return the step that closes the addresses of Services that are about to go."""
    if state.group is None:
        return []
    left = {
        (name, str(one["name"]), frontend_address(one, state))
        for name, document in desired.items()
        for one in listed(document, "frontendIPConfigurations")
    }
    strips = []
    for job in jobs:
        if job.lb is not None:
            continue  # Azure may refuse what it is to have instead: see `_guarded`
        own = known.frontends.get(job.ref.name, ())
        going = {address for one in own if one not in left if (address := one[2])}
        going |= known.used.get(job.ref.name, set()) - {""}
        former = job.left.union(job.options.additional)
        going |= given_up(job, former, state, scene, known)
        going |= _departing(job, scene, known)
        if going:
            strips.append(strip_of(job, going, scene, known))
    document = guard.changed(state.group, strips, ()) if strips else None
    return [put_group(scene.place, state.group, document)] if document is not None else []


def _guarded(
    jobs: Sequence[Job], state: State, scene: Scene, where: Spots, known: Index
) -> list[Step]:
    """Return the step that lets clients in by the security group, and lets in nobody else.

    What a Service had before, by its status and by marks, is closed now that it has another.
    """
    if state.group is None:
        return []
    strips, granted = [], []
    for job in jobs:
        if job.lb is None:
            continue
        found = ingress(job, state, where)
        targets, at_nodes = {*found, *job.options.additional}, not job.options.floats
        if at_nodes:
            targets = set(_node_addresses(job, job.lb, state, scene)) | set(job.options.additional)
        # While Azure has yet to give an address, it may be the one that the status shows.
        is_known = len(found) == len(job.lb.families)
        shown = job.before - targets if is_known else set[str]()
        had = given_up(job, shown, state, scene, known)
        had |= _departing(job, scene, known) - targets
        # Those of nodes are closed for all Services together: see `_strip_nodes`.
        at_node = scene.node_addresses.keys() if at_nodes else frozenset[str]()
        strips.append(strip_of(job, (targets | had) - at_node, scene, known))
        granted += guard.grants(job.lb, job.options, targets)
    strips.append(_strip_nodes(jobs, scene, known))
    document = guard.changed(state.group, strips, granted)
    if document is None:
        return []
    tags = {**marks.tags(document), **scene.place.config.shared_tags}
    tagged = {**document, "tags": tags} if tags else document
    return [put_group(scene.place, state.group, tagged)]


def _departing(job: Job, scene: Scene, known: Index) -> set[str]:
    """Return the public addresses that are the Service's to give up, as marks say.

    Not those of public IPs that somebody has given to something else.
    """
    return {
        str(part(one, "ipAddress") or "")
        for one in known.addresses_of(job.ref)
        if departure(one, job.ref, scene.namesakes, scene.claims) is not Departure.KEEP
        and not user_elsewhere(one, scene.place)
    }


def _strip_nodes(jobs: Sequence[Job], scene: Scene, known: Index) -> guard.Strip:
    """Return how nodes' own addresses are closed at ports that no Service has there any more.

    Node ports of Services that are not in the pass stay open: another manager may balance them.
    """
    bases = {job.ref.name for job in jobs}
    others = ((one.protocol, one.port) for one in known.node_ports if one.base not in bases)
    ports = ports_by_protocol((*each_port(scene.node_ports), *others))
    opened = {key for key, found in scene.claims.items() if any(one.is_opened for one in found)}
    own = scene.own_addresses - known.addresses - opened
    return guard.Strip(own, ports, keeps_denied=scene.denies_at_nodes)


def _node_addresses(job: Job, lb: LoadBalancer, state: State, scene: Scene) -> Iterator[str]:
    for family in lb.families:
        for host in hosts([job], scene, family):
            if host.node not in state.strangers:
                yield host.addresses[family][0]


def _unlinked(
    jobs: Sequence[Job], state: State, scene: Scene, desired: dict[str, Document | None]
) -> list[Step]:
    """Return the steps that delete private link services before their frontends."""
    kept, there = _frontends(desired, scene), _frontends(state.balancers, scene)
    return [
        delete_link(str(one["id"]), connections(one))
        for frontend, one in by_frontend(state.links).items()
        if frontend in there - kept
        and is_of_cluster(one, scene.place.cluster, jobs[0].ref.cluster.uid)
    ]


def _with_links(jobs: Sequence[Job], state: State, scene: Scene) -> frozenset[str]:
    """Return the frontends of Services that stay, of which a private link service is in front."""
    bases = {job.ref.name for job in jobs if job.lb is not None}
    there = _frontends(state.balancers, scene)
    return frozenset(
        one
        for one in by_frontend(state.links)
        if one in there and base_of(one.rpartition("/")[2]) in bases
    )


def _frontends(balancers: Mapping[str, Resource | None], scene: Scene) -> set[str]:
    """Return the ids of the frontends of load balancers, in small letters."""
    return {
        f"{scene.place.balancer_id(name)}/frontendIPConfigurations/{one['name']}".lower()
        for name, balancer_ in balancers.items()
        for one in listed(balancer_, "frontendIPConfigurations")
    }


def _linked(jobs: Sequence[Job], state: State, scene: Scene, where: Spots) -> list[Step]:
    """Return the steps that put private link services in front of frontends."""
    found: list[Step] = []
    for job in jobs:
        if job.lb is not None and job.options.link is not None:
            spot = where.get((job.ref.uid, "IPv4"))
            id_ = spot.id if spot is not None else ""
            step = link_of(job, id_, state.links, scene.place)
            found += [step] if step is not None else []
    return found


def _namespaces(job: Job, spot: Spot, state: State, scene: Scene) -> set[str]:
    """Return the namespaces of the Services that are at a frontend, or whose status says so.

    Nothing tells in Azure while the load balancer is made anew.
    """
    users = (user for one in state.balancers.values() for user in frontend_users(one))
    names = [last(spot.id), *(name for name, id_ in users if id_ == spot.id.lower())]
    known = state.addresses.get(spot.public.id.lower(), {}) if spot.public is not None else {}
    address = str(part(known, "ipAddress") or job.options.addresses.get("IPv4", ""))
    shown = {one.namespace for one in scene.claims.get(address, ()) if one.is_opened}
    return shown | {scene.services.get(base_of(name), "") for name in names} - {""}


def _departed(jobs: Sequence[Job], scene: Scene, where: Spots, known: Index) -> list[Step]:
    """Return the steps for public addresses that Services no longer have."""
    found: list[Step] = []
    for job in jobs:
        spots_ = (where.get((job.ref.uid, family)) for family in FAMILIES)
        kept = {one.public.id.lower() for one in spots_ if one is not None and one.public}
        for address in known.addresses_of(job.ref):
            id_ = str(address["id"])
            if id_.lower() in kept:
                continue
            match departure(address, job.ref, scene.namesakes, scene.claims):
                case Departure.DELETE:
                    found.append(delete_address(id_))
                case Departure.UNTAG:
                    found.append(put_address(id_, untagged(address, job.ref), is_new=False))
    return found


def _detached(state: State, desired: dict[str, Document | None], scene: Scene) -> list[Step]:
    """Return the steps that take machines out of the pools of a load balancer to be deleted."""
    pools = {
        scene.place.pool_id(name, family).lower()
        for name, document in desired.items()
        if document is None and state.balancers.get(name) is not None
        for family in ("IPv4", "IPv6")
    }
    drops: dict[str, list[str]] = {}
    for pool in sorted(pools):
        for machine in state.members.get(pool, ()):
            drops.setdefault(machine, []).append(pool)
    sets = {
        id_: [pool for pool in model_pools(one) if pool in pools] for id_, one in state.sets.items()
    }
    return [
        *(join_set(id_, drop=tuple(found)) for id_, found in sorted(sets.items()) if found),
        *(join(machine, drop=tuple(found)) for machine, found in sorted(drops.items())),
    ]


def _joined(jobs: Sequence[Job], state: State, scene: Scene) -> list[Step]:
    """Return the steps that put machines into the pools where they belong, and out of others."""
    if scene.place.config.pools is PoolType.NODE_IP:
        return []
    adds: dict[str, list[str]] = {}
    drops: dict[str, list[str]] = {}
    for pool, family, live in filled(jobs, scene):
        members = state.members.get(pool.lower(), frozenset())
        wanted = _machines(live, scene, family)
        strange = {one for one, name in scene.nodes.items() if name in state.strangers}
        proven = _machines(live, scene, family, state.strangers)
        for machine in sorted(proven - members - state.refused.keys()):
            adds.setdefault(machine, []).append(pool)
        # A machine that is no node of the cluster may be there for somebody else's reason.
        for machine in sorted((members & scene.nodes.keys()) - wanted - strange):
            drops.setdefault(machine, []).append(pool)
    machines = sorted({*adds, *drops})
    return [
        *_models(adds, state),
        *(join(one, tuple(adds.get(one, ())), tuple(drops.get(one, ()))) for one in machines),
    ]


def _machines(
    live: Sequence[Job], scene: Scene, family: str, without: Collection[str] = ()
) -> set[str]:
    every = hosts(live, scene, family)
    found = (machine_id(host.provider_id) for host in every if host.node not in without)
    return {one.resource for one in found if one is not None}


def _models(adds: dict[str, list[str]], state: State) -> list[Step]:
    """Return the steps that add pools to the models of scale sets whose machines are to join."""
    found: dict[str, list[str]] = {}
    for machine, pools in adds.items():
        id_ = machine.partition("/virtualmachines/")[0]
        model = state.sets.get(id_)
        if model is None or "/virtualmachinescalesets/" not in id_ or id_ in state.refused:
            continue
        for pool in pools:
            if pool.lower() not in model_pools(model) and pool not in found.setdefault(id_, []):
                found[id_].append(pool)
    return [join_set(id_, tuple(pools)) for id_, pools in sorted(found.items()) if pools]
