"""Rules about load balancers: how they are made, kept, changed and deleted."""

import asyncio
import ipaddress
from collections.abc import Hashable, Mapping, Sequence

import msgspec

from proreus.cloudprovider import LoadBalancer, NotSupported
from proreus.kube.objects import LoadBalancerIngress, Node
from proreus.testing.conformance.answers import Violated, mapping
from proreus.testing.conformance.fixture import NotOffered
from proreus.testing.conformance.machines import capabilities
from proreus.testing.conformance.offers import DECLARED, OBJECTS_LISTED
from proreus.testing.conformance.rule import rule
from proreus.testing.conformance.site import PORTS, Site, Started

MORE_PORTS = ((8080, 30080), (8081, 30081))
_IP_MODES = {None, "VIP", "Proxy"}


@rule(capabilities, wants=("load_balancers",))
async def ensured(site: Site) -> None:
    """`ensure` makes a load balancer and answers its address.

    Make what the `LoadBalancer` says and answer, under the Service's uid, with
    `Ensured((LoadBalancerIngress(ip=…),))` or a hostname. While the cloud still works on it,
    answer `Pending`.
    """
    started = await site.start()
    _ = started.load_balancers
    desired = site.desired(started, await site.hosts(started, 2))
    (answer,) = await site.ensure(started, desired)
    if not answer.ingress:
        raise Violated("Ensured.ingress is empty")
    for point in answer.ingress:
        _check_ingress(point)


def _check_ingress(point: LoadBalancerIngress) -> None:
    if bool(point.ip) == bool(point.hostname):
        raise Violated(f"an ingress must have either an ip or a hostname: {point}")
    if point.ip_mode not in _IP_MODES or (point.ip_mode and not point.ip):
        raise Violated(f"ip_mode must be VIP or Proxy, and is for an ip only: {point}")
    if point.ip:
        try:
            ipaddress.ip_address(point.ip)
        except ValueError as error:
            raise Violated(f"the ip of the ingress is not an IP address: {point.ip!r}") from error


@rule(ensured, wants=(OBJECTS_LISTED,))
async def ensure_again(site: Site) -> None:
    """A second `ensure` with nothing changed answers the same and writes nothing.

    Read what the cloud has, compare it with what is desired in a pure function, and write only the
    differences. Answer from what was read. The calls that only read say `read=True`.
    """
    started = await site.start()
    desired = site.desired(started, await site.hosts(started, 2))
    (first,) = await site.ensure(started, desired)
    before = await site.objects(started)
    later = await site.start()
    (second,) = await site.ensure(later, desired)
    _no_writes(later, "nothing has changed since ensure")
    if second != first:
        raise Violated(f"ensure answered {first} at first, and {second} the second time")
    if await site.objects(started) != before:
        raise Violated("no write was logged, but the cloud's objects have changed")


async def converged(site: Site, desired: LoadBalancer, since: str) -> None:
    """Check that an `ensure` by a new process finds nothing left to do."""
    later = await site.start()
    await site.ensure(later, desired)
    _no_writes(later, since)


def _no_writes(started: Started, since: str) -> None:
    writes = [f"{call.service}.{call.operation}" for call in started.new_calls() if not call.read]
    if writes:
        raise Violated(
            f"{since}, but the next ensure of the same load balancer wrote: {', '.join(writes)}"
        )


@rule(ensure_again)
async def ports_changed(site: Site) -> None:
    """Changed ports are changed in the cloud, in place, and nothing of the old ones stays.

    `ensure` gets all that is desired each time: add what is missing, take away what is too much.
    """
    started = await site.start()
    hosts = await site.hosts(started, 1)
    first = site.desired(started, hosts)
    more = site.desired(started, hosts, service=first.service, ports=MORE_PORTS)
    (before,) = await site.ensure(started, first)
    objects = await site.objects(started)
    (after,) = await site.ensure(started, more)
    if [(one.ip, one.hostname) for one in before.ingress] != [
        (one.ip, one.hostname) for one in after.ingress
    ]:
        raise Violated(
            f"after a port was added, the ingress changed from {before.ingress} to {after.ingress}"
        )
    await converged(site, more, "a port was added by ensure")
    await site.ensure(started, first)
    await converged(site, first, "a port was taken away by ensure")
    left = await site.objects(started)
    if len(left) != len(objects):
        raise Violated(
            f"the load balancer had {len(objects)} objects, and {len(left)} after a "
            "port was added and removed again"
        )


@rule(ensure_again)
async def fields_honoured(site: Site) -> None:
    """A field that changed is changed in the cloud or refused, and never ignored.

    Compare every field of the `LoadBalancer` with what the cloud has. Refuse what the cloud
    cannot do with `InvalidRequest` or `NotSupported`, naming the field.
    """
    started = await site.start()
    hosts = await site.hosts(started, 1)
    first = site.desired(started, hosts)
    port, node_port = PORTS[0]
    changed = {
        "spec.loadBalancerSourceRanges": _respecified(
            site, started, first, hosts, load_balancer_source_ranges=("192.0.2.0/24",)
        ),
        "spec.sessionAffinity": _respecified(
            site, started, first, hosts, session_affinity="ClientIP"
        ),
    }
    if not site.cloud.own_data_path:
        changed["spec.externalTrafficPolicy and its health check"] = _respecified(
            site, started, first, hosts,
            external_traffic_policy="Local", health_check_node_port=30999,
        )  # fmt: skip
    if not site.cloud.own_data_path and site.cloud.uses_node_ports:
        changed["spec.ports[].nodePort"] = site.desired(
            started, hosts, service=first.service, ports=((port, node_port + 1), *PORTS[1:])
        )
    for field, desired in changed.items():
        await site.ensure(started, first)
        foreseen = await preview_of(started, desired)
        started.new_calls()
        if await site.is_refused(started, desired):
            continue
        # A record of what was made is written of what is ignored, too: it is in no preview.
        if foreseen == () or all(call.read for call in started.new_calls()):
            raise Violated(f"{field} was changed, and ensure neither wrote anything nor refused it")
        await converged(site, desired, f"{field} was changed")


async def preview_of(started: Started, desired: LoadBalancer) -> object:
    """Return what `preview` answers, as a tuple if it is a sequence.

    Raises:
        Violated: The provider gives no answer about a Service.
    """
    function = getattr(started.load_balancers, "preview", None)
    if function is None:
        return NotSupported("the provider has no preview")
    try:
        answer = mapping("preview", await function([desired])).get(desired.ref.uid)
    except NotSupported as reason:
        return reason
    return tuple(answer) if isinstance(answer, Sequence) else answer


def _respecified(
    site: Site, started: Started, first: LoadBalancer, hosts: Sequence[Node], **fields: object
) -> LoadBalancer:
    spec = msgspec.structs.replace(first.service.spec, **fields)
    changed = msgspec.structs.replace(first.service, spec=spec)
    return site.desired(started, hosts, service=changed)


@rule(ensure_again)
async def update_hosts(site: Site) -> None:
    """`update_hosts` brings the hosts to what is desired: more of them, and fewer.

    It may do all that `ensure` does; afterwards `ensure` must find nothing to do.
    """
    started = await site.start()
    hosts = await site.hosts(started, 3)
    first = site.desired(started, hosts[:2])
    await site.ensure(started, first)
    for now in (hosts, hosts[1:]):
        desired = site.desired(started, now, service=first.service, ports=PORTS)
        await site.update_hosts(started, desired)
        await converged(site, desired, f"update_hosts has set {len(now)} hosts")


@rule(ensured, wants=("instances", "create_machines", "remove_machine"))
async def host_gone(site: Site) -> None:
    """A host whose machine is gone does not keep the other hosts out.

    Leave such a host out, and say why in `Ensured.rejected`: the framework learns later than the
    cloud that a machine is gone.
    """
    started = await site.start()
    hosts = await site.nodes(started, 2)
    await site.cloud.remove_machine(hosts[0].metadata.name)
    await site.ensure(started, site.desired(started, hosts))


@rule(ensured)
async def group_stable(site: Site) -> None:
    """`group` depends on what never changes: the cluster and the Service's name and uid.

    `LoadBalancerRef.service` is None once the Service is gone, and `last_ingress` changes: a
    group made of them would let a delete run beside an ensure.
    """
    started = await site.start()
    ref = site.desired(started, await site.hosts(started, 1)).ref
    group = started.load_balancers.group(ref)
    later = msgspec.structs.replace(
        ref, service=None, last_ingress=(LoadBalancerIngress(ip="192.0.2.1"),)
    )
    if hash(group) != hash(started.load_balancers.group(later)):
        raise Violated(f"{group!r} became {started.load_balancers.group(later)!r}")


@rule(ensure_again)
async def group_members(site: Site) -> None:
    """All members of a group are answered in one call, each under its uid.

    `ensure`, `update_hosts` and `delete` get every ready member of a group at once.
    """
    started = await site.start()
    hosts = await site.hosts(started, 1)
    desired = [site.desired(started, hosts) for _ in range(3)]
    groups: dict[Hashable, list[LoadBalancer]] = {}
    for one in desired:
        groups.setdefault(started.load_balancers.group(one.ref), []).append(one)
    for members in groups.values():
        for verb in (started.load_balancers.ensure, started.load_balancers.update_hosts):
            extra = mapping("it", await verb(members)).keys() - {
                member.ref.uid for member in members
            }
            if extra:
                raise Violated(f"{verb.__name__} also answered for {sorted(extra)}")
        await site.ensure(started, *members)
        for member in members:
            await converged(site, member, f"{len(members)} members of a group were ensured at once")
        await site.delete(started, *(member.ref for member in members))


@rule(ensure_again, wants=("groups",))
async def groups_beside(site: Site) -> None:
    """Load balancers of different groups can be changed at the same time.

    Verbs of different groups run at the same time, on the same provider: keep what a verb works
    on in its local variables.
    """
    started = await site.start()
    hosts = await site.hosts(started, 1)
    desired = [site.desired(started, hosts) for _ in range(4)]
    groups = {started.load_balancers.group(one.ref): one for one in desired}
    if len(groups) == 1:
        raise NotOffered(DECLARED["groups"], "groups")
    await asyncio.gather(*(site.ensure(started, group) for group in groups.values()))
    for group in groups.values():
        await converged(site, group, "load balancers were ensured side by side")


@rule(ensured, wants=(OBJECTS_LISTED,))
async def deleted(site: Site) -> None:
    """`delete` takes away everything that `ensure` made, and nothing else.

    Answer `Done` only when the cloud has said that each part is gone.
    """
    started = await site.start()
    hosts = await site.hosts(started, 1)
    kept, gone = site.desired(started, hosts), site.desired(started, hosts, ports=MORE_PORTS)
    await site.ensure(started, kept)
    before = await site.objects(started)
    await site.ensure(started, gone)
    await site.delete(started, gone.ref)
    check_objects(before, await site.objects(started), "after delete")


def check_objects(before: Mapping[str, object], after: Mapping[str, object], when: str) -> None:
    """Check that the cloud has the same objects as before."""
    if left := after.keys() - before.keys():
        raise Violated(f"{when}, the cloud still has {', '.join(sorted(left))}")
    if lost := before.keys() - after.keys():
        raise Violated(f"{when}, objects of others are gone: {', '.join(sorted(lost))}")


@rule(deleted)
async def deleted_again(site: Site) -> None:
    """`delete` answers `Done` for what is gone, or never was.

    A part that the cloud does not know is no error in `delete`: it is what is desired.
    """
    started = await site.start()
    hosts = await site.hosts(started, 1)
    desired = site.desired(started, hosts)
    await site.ensure(started, desired)
    await site.delete(started, desired.ref)
    await site.delete(await site.start(), desired.ref)
    await site.delete(started, site.desired(started, hosts).ref)


@rule(deleted)
async def deleted_without_service(site: Site) -> None:
    """`delete` works without the Service, by a process that did not make the load balancer.

    Find the parts by the marks that `ensure` put on them, not by annotations or from memory:
    `LoadBalancerRef.service` is None once the Service is gone, and `last_ingress` may be empty.
    """
    started = await site.start()
    before = await site.objects(started)
    desired = site.desired(started, await site.hosts(started, 1))
    await site.ensure(started, desired)
    bare = msgspec.structs.replace(desired.ref, service=None, last_ingress=())
    await site.delete(await site.start(), bare)
    check_objects(before, await site.objects(started), "after delete")


@rule(ensure_again, wants=("remove_object",))
async def heals(site: Site) -> None:
    """The next `ensure` makes anew what somebody else has deleted.

    Trust what the cloud shows, not what an earlier `ensure` has done.
    """
    started = await site.start()
    desired = site.desired(started, await site.hosts(started, 1))
    before = await site.objects(started)
    await site.ensure(started, desired)
    whole = await site.objects(started)
    for count in range(len(whole) - len(before)):
        now = await site.objects(started)
        lost = sorted(now.keys() - before.keys())[count]
        await site.cloud.remove_object(lost)
        await site.ensure(started, desired)
        after = await site.objects(started)
        if len(after) != len(whole):
            raise Violated(
                f"{lost} was deleted by somebody else, and ensure did not make it again: there are"
                f" {len(after) - len(before)} objects, not {len(whole) - len(before)}"
            )


@rule(deleted, ensure_again, wants=("page_size",))
async def pages_of_load_balancers(site: Site) -> None:
    """Load balancers beyond the cloud's first page are found.

    Read lists page by page until the cloud says that there is no further page, or ask for the
    load balancer by its name.
    """
    started = await site.start()
    hosts = await site.hosts(started, 1)
    before = await site.objects(started)
    desired = [site.desired(started, hosts) for _ in range(site.page_size + 1)]
    for one in desired:
        await site.ensure(started, one)
    for one in desired:
        await converged(site, one, f"there are {len(desired)} load balancers")
    for one in desired:
        await site.delete(started, one.ref)
    check_objects(
        before, await site.objects(started), f"{len(desired)} load balancers were deleted"
    )


RULES = (
    ensured,
    ensure_again,
    ports_changed,
    fields_honoured,
    update_hosts,
    host_gone,
    group_stable,
    group_members,
    groups_beside,
    deleted,
    deleted_again,
    deleted_without_service,
    heals,
    pages_of_load_balancers,
)
