"""Rules about the owner of cloud objects: marks, other clusters, foreign objects."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from proreus.cloudprovider import NotSupported, OwnedObject, Pending
from proreus.kube.objects import LoadBalancerStatus, ServiceStatus
from proreus.testing.conformance.answers import Violated, outcome
from proreus.testing.conformance.fixture import NotOffered
from proreus.testing.conformance.load_balancers import MORE_PORTS, deleted
from proreus.testing.conformance.offers import OBJECTS_LISTED
from proreus.testing.conformance.rule import rule
from proreus.testing.conformance.site import CLUSTER, OTHER_CLUSTER, Site, Started

_TRIES = 30
_PAUSE = 0.2


@rule(deleted, wants=("list_owned",))
async def marks_listed(site: Site) -> None:
    """`list_owned` lists what carries this cluster's marks, with the Service it was made for.

    Put `LoadBalancer.marks` on every object at its creation and list by them. A cloud that
    cannot raises `NotSupported`; leaks then go unseen.
    """
    started = await site.start()
    desired = site.desired(started, await site.hosts(started, 1))
    await site.ensure(started, desired)
    owned = await _owned(started)
    if not owned:
        raise Violated("after ensure, list_owned lists nothing")
    for one in owned:
        if (one.service, one.service_uid) not in {(desired.ref.key, desired.ref.uid), ("", "")}:
            raise Violated(
                f"list_owned lists {one} after ensure for {desired.ref.key} {desired.ref.uid}"
            )
    if desired.ref.uid not in {one.service_uid for one in owned}:
        raise Violated(f"list_owned lists nothing with the service_uid {desired.ref.uid}")
    others = await started.load_balancers.list_owned(OTHER_CLUSTER)
    if others:
        raise Violated(f"for a cluster that has made nothing, list_owned lists {list(others)}")
    await site.delete(started, desired.ref)
    left = [one for one in await _owned(started) if one.service_uid]
    if left:
        raise Violated(f"after delete, list_owned still lists {left}")


async def _owned(started: Started) -> Sequence[OwnedObject]:
    try:
        return await started.load_balancers.list_owned(CLUSTER)
    except NotSupported as reason:
        raise NotOffered(f"list_owned: {reason}", "list_owned") from None


@rule(deleted, wants=(OBJECTS_LISTED,))
async def other_cluster(site: Site) -> None:
    """A cluster neither changes nor deletes what another one made, even for the same Service.

    A cluster restored from a backup has the same Services, with their uids and addresses, under
    another cluster uid: compare the cluster uid in the marks, too.
    """
    started = await site.start()
    hosts = await site.hosts(started, 2)
    desired = site.desired(started, hosts)
    (answer,) = await site.ensure(started, desired)
    before = await site.objects(started)
    if not before:
        raise Violated("after ensure, the fixture's objects() shows nothing")
    service = msgspec.structs.replace(
        desired.service, status=ServiceStatus(LoadBalancerStatus(answer.ingress))
    )
    other = await site.start(cluster=OTHER_CLUSTER)
    same = site.desired(other, hosts[:1], service=service, ports=MORE_PORTS, cluster=OTHER_CLUSTER)
    # Whatever it answers: names may clash.
    for what, verb in (
        ("ensure", lambda: other.load_balancers.ensure([same])),
        ("delete", lambda: other.load_balancers.delete([same.ref])),
    ):
        await insisted(verb)
        now = await site.objects(started)
        if changed := [id_ for id_, content in before.items() if now.get(id_) != content]:
            raise Violated(
                f"{what} by another cluster changed or deleted {', '.join(changed)}, which this"
                " cluster has made"
            )


@rule(deleted, wants=("create_foreign", "objects"))
async def foreign_untouched(site: Site) -> None:
    """An object of somebody else is neither changed nor deleted, even if it has our name.

    A name that can be guessed proves nothing: check the marks before you change or delete, or
    the Service's uid in the name, whole, where the cloud has no marks. If the name is taken,
    answer a `CloudError`.
    """
    started = await site.start()
    desired = site.desired(started, await site.hosts(started, 1))
    none = await site.of_all()
    await site.cloud.create_foreign(desired.ref)
    foreign = await site.of_all()
    if foreign == none:
        raise Violated("the fixture's objects() does not show what its create_foreign() has made")
    for what, verb in (
        ("ensure", lambda: started.load_balancers.ensure([desired])),
        ("delete", lambda: started.load_balancers.delete([desired.ref])),
    ):
        await insisted(verb)
        now = await site.of_all()
        changed = [id_ for id_, content in foreign.items() if now.get(id_) != content]
        if changed:
            raise Violated(f"{what} changed or deleted {', '.join(changed)}, which is not ours")


async def insisted(verb: Callable[[], Awaitable[Mapping[str, object]]]) -> None:
    """Repeat a verb while its answer is `Pending`: what it does wrong may come late."""
    for _ in range(_TRIES):
        found = await outcome(verb())
        answers = found.values() if isinstance(found, Mapping) else ()
        waits = [one.after for one in answers if isinstance(one, Pending)]
        if not waits:
            return
        await asyncio.sleep(min(_PAUSE, *waits))


RULES = (marks_listed, other_cluster, foreign_untouched)
