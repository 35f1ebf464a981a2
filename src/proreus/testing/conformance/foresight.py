"""Rules about previews and fingerprints, which a provider tells without a change."""

from collections.abc import Sequence
from typing import NoReturn

import msgspec

from proreus.cloudprovider import (
    CloudError,
    Ensured,
    LoadBalancer,
    NotSupported,
    OwnedObject,
    PartChange,
)
from proreus.testing.conformance.answers import Violated
from proreus.testing.conformance.fixture import NotOffered
from proreus.testing.conformance.interruptions import Attempt, ensure_interrupted, interrupted
from proreus.testing.conformance.load_balancers import (
    MORE_PORTS,
    converged,
    ensure_again,
    preview_of,
)
from proreus.testing.conformance.offers import DECLARED
from proreus.testing.conformance.ownership import marks_listed
from proreus.testing.conformance.rule import rule
from proreus.testing.conformance.site import CLUSTER, Site, Started


@rule(ensure_again, wants=("preview",))
async def previewed(site: Site) -> None:
    """`preview` says what `ensure` would change: nothing once that is done; and only reads.

    Observe and plan as `ensure` does, and pretend the steps (`proreus.cloudprovider.foresee`).
    """
    started = await site.start()
    hosts = await site.hosts(started, 2)
    first = site.desired(started, hosts[:1])
    second = site.desired(started, hosts, service=first.service, ports=MORE_PORTS)
    for desired, when in (
        (first, "for a load balancer that is not there yet"),
        (second, "for another host and another port"),
    ):
        before = await site.objects(started)
        if not await _preview(started, desired):
            raise Violated(f"preview returns no changes {when}")
        if await site.objects(started) != before:
            raise Violated(f"the cloud's objects are different after a preview {when}")
        await site.ensure(started, desired)
        if text := await _preview(started, desired):
            raise Violated(f"after ensure {when}, preview still answers {text}")


async def _preview(started: Started, desired: LoadBalancer) -> tuple[PartChange, ...]:
    started.new_calls()
    answer = await preview_of(started, desired)
    if isinstance(answer, NotSupported):
        raise NotOffered(f"{DECLARED['preview']}: {answer}", "preview")
    if isinstance(answer, CloudError):
        raise Violated(f"preview answers {answer!r}, although ensure succeeds")
    if not isinstance(answer, tuple) or not all(isinstance(one, PartChange) for one in answer):
        raise Violated(f"preview answers {answer!r} where a sequence of PartChange is due")
    writes = [f"{call.service}.{call.operation}" for call in started.new_calls() if not call.read]
    if writes:
        raise Violated(f"preview wrote: {', '.join(writes)}")
    return answer


@rule(marks_listed, wants=("fingerprint",))
async def fingerprint_shown(site: Site) -> None:
    """`list_owned` shows the `fingerprint` of a load balancer that is as desired, and no other.

    Digest what the cloud lists and, alike, what it should list. Where a listing does not show
    enough, let `ensure` record a digest of that (`proreus.cloudprovider.Record`).
    """
    started = await site.start()
    hosts = await site.hosts(started, 2)
    first = site.desired(started, hosts[:1])
    changed = {
        "the hosts": site.desired(started, hosts, service=first.service),
        "the ports": site.desired(started, hosts[:1], service=first.service, ports=MORE_PORTS),
    }
    (answer,) = await site.ensure(started, first)
    first = _with_status(first, answer)
    if not started.load_balancers.fingerprint(first):
        _lacks_fingerprint()
    if not _shows(await _owned(started), first, await site.start()):
        raise Violated(
            "after ensure, list_owned does not show the fingerprint that `fingerprint` answers"
        )
    for what, other in changed.items():
        desired = _with_status(other, answer)
        if _shows(await _owned(started), desired, started):
            raise Violated(
                f"list_owned shows the fingerprint of another desired state ({what} changed)"
            )
        (answer,) = await site.ensure(started, desired)
        if not _shows(await _owned(started), _with_status(desired, answer), started):
            raise Violated(
                f"after ensure with {what} changed, list_owned does not show the fingerprint"
            )


@rule(fingerprint_shown, ensure_interrupted)
async def fingerprint_true(site: Site) -> None:
    """A load balancer whose `ensure` was cut off before its end shows no fingerprint.

    Take a record away before the first change (`Record.clear`), and write it after the last.
    """
    started = await site.start()
    hosts = await site.hosts(started, 2)
    first = site.desired(started, hosts[:1])
    (answer,) = await site.ensure(started, first)
    old = _with_status(first, answer)
    more = site.desired(started, hosts, service=old.service, ports=MORE_PORTS)
    attempt = Attempt(_with_status(more, answer))
    for after_effect in (False, True):
        cuts = interrupted(
            site, attempt.ensure, after_effect=after_effect, for_good=True, only_writes=True
        )
        async for cut, _ in cuts:
            for desired in (old, attempt.desired):
                if _shows(await _owned(started), desired, started):
                    await converged(
                        site, desired, f"{cut}, and list_owned shows its fingerprint all the same"
                    )
            await site.ensure(started, old)
        await site.ensure(started, old)


def _with_status(desired: LoadBalancer, answer: Ensured) -> LoadBalancer:
    """Return the desired load balancer once the framework has written the answer on the Service."""
    meta = desired.service.metadata
    annotations = {**meta.annotations, **answer.annotations}
    service = msgspec.structs.replace(
        desired.service, metadata=msgspec.structs.replace(meta, annotations=annotations)
    )
    ref = msgspec.structs.replace(desired.ref, last_ingress=answer.ingress, service=service)
    return msgspec.structs.replace(desired, ref=ref, service=service)


def _shows(owned: Sequence[OwnedObject], desired: LoadBalancer, by: Started) -> bool:
    """Tell whether a listing shows the fingerprint that the provider computes."""
    expected = by.load_balancers.fingerprint(desired)
    mine = [one.fingerprint for one in owned if one.service_uid == desired.ref.uid]
    return bool(expected) and expected in mine


async def _owned(started: Started) -> Sequence[OwnedObject]:
    return await started.load_balancers.list_owned(CLUSTER)


def _lacks_fingerprint() -> NoReturn:
    raise NotOffered(DECLARED["fingerprint"], "fingerprint")


RULES = (previewed, fingerprint_shown, fingerprint_true)
