"""Rules about verbs that are cut off: at each call, before and after its effect."""

from collections.abc import AsyncIterator, Awaitable, Callable

from proreus.cloudprovider import Done, Ensured, LoadBalancer
from proreus.testing.conformance.answers import Violated, outcome
from proreus.testing.conformance.interruption import Interruption
from proreus.testing.conformance.load_balancers import (
    MORE_PORTS,
    check_objects,
    converged,
    deleted,
    deleted_again,
    ensure_again,
)
from proreus.testing.conformance.rule import rule
from proreus.testing.conformance.site import Site, Started

_MOST_CALLS = 50

Verb = Callable[[Started], Awaitable[object]]


async def interrupted(
    site: Site, verb: Verb, *, after_effect: bool, for_good: bool, only_writes: bool = False
) -> AsyncIterator[tuple[Interruption, object]]:
    """Run the verb again and again: its first call interrupted, then its second, up to its last."""
    for at in range(1, _MOST_CALLS + 1):
        interruption = Interruption(
            at, after_effect=after_effect, for_good=for_good, only_writes=only_writes
        )
        started = await site.start(hooks=interruption)
        came_of_it = await outcome(verb(started))
        if not interruption.reached:
            return
        yield interruption, came_of_it
    raise Violated(f"the verb makes more than {_MOST_CALLS} calls for one load balancer")


class Attempt:
    """A try to `ensure` or `delete` one load balancer, which may change from try to try."""

    def __init__(self, desired: LoadBalancer) -> None:
        self.desired = desired

    async def ensure(self, started: Started) -> object:
        """Ensure the load balancer once."""
        answers = await started.load_balancers.ensure([self.desired])
        return answers.get(self.desired.ref.uid)

    async def delete(self, started: Started) -> object:
        """Delete the load balancer once."""
        answers = await started.load_balancers.delete([self.desired.ref])
        return answers.get(self.desired.ref.uid)


@rule(ensure_again, deleted)
async def ensure_interrupted(site: Site) -> None:
    """An `ensure` that was cut off at any call is finished by the next one, without doubles.

    Find what an earlier attempt has made before you create: by a name that you chose, by the
    marks, or with an idempotency token. A call without answer may have had its effect. If the
    cloud refuses because it is still working on it, answer `Pending`.
    """
    started = await site.start()
    hosts = await site.hosts(started, 2)
    before = await site.objects(started)
    attempt = Attempt(site.desired(started, hosts))
    await site.ensure(started, attempt.desired)
    whole = len(await site.objects(started)) - len(before)
    await site.delete(started, attempt.desired.ref)
    for after_effect in (False, True):
        attempt.desired = site.desired(started, hosts)
        cuts = interrupted(site, attempt.ensure, after_effect=after_effect, for_good=True)
        async for cut, _ in cuts:
            await site.ensure(started, attempt.desired)
            made = len(await site.objects(started)) - len(before)
            if made != whole:
                raise Violated(f"{cut}; the next ensure left {made} objects instead of {whole}")
            await site.delete(started, attempt.desired.ref)
            attempt.desired = site.desired(started, hosts)
        await site.delete(started, attempt.desired.ref)


@rule(ensure_again, deleted)
async def ensure_interrupted_then_delete(site: Site) -> None:
    """What an `ensure` that was cut off at any call has made, `delete` takes away.

    Put the marks on each part in the call that creates it, and let `delete` look for every kind
    of part by itself, not for parts of a load balancer that may be missing. If the cloud refuses
    because it is still working on it, answer `Pending`.
    """
    started = await site.start()
    hosts = await site.hosts(started, 2)
    before = await site.objects(started)
    for after_effect in (False, True):
        attempt = Attempt(site.desired(started, hosts))
        cuts = interrupted(site, attempt.ensure, after_effect=after_effect, for_good=True)
        async for cut, _ in cuts:
            await site.delete(started, attempt.desired.ref)
            check_objects(before, await site.objects(started), f"{cut}; after the delete")
            attempt.desired = site.desired(started, hosts)
        await site.delete(started, attempt.desired.ref)


@rule(deleted_again)
async def delete_interrupted(site: Site) -> None:
    """A `delete` that was cut off at any call is finished by the next one.

    Delete in an order in which what is left can still be found, and take a part that is gone
    for deleted. If the cloud refuses because it is still working on it, answer `Pending`.
    """
    started = await site.start()
    hosts = await site.hosts(started, 2)
    before = await site.objects(started)
    for after_effect in (False, True):
        attempt = Attempt(site.desired(started, hosts, ports=MORE_PORTS))
        await site.ensure(started, attempt.desired)
        cuts = interrupted(site, attempt.delete, after_effect=after_effect, for_good=True)
        async for cut, _ in cuts:
            await site.delete(started, attempt.desired.ref)
            check_objects(before, await site.objects(started), f"{cut}; after the next delete")
            attempt.desired = site.desired(started, hosts, ports=MORE_PORTS)
            await site.ensure(started, attempt.desired)
        await site.delete(started, attempt.desired.ref)  # the last one may still be pending


@rule(ensure_again, deleted_again)
async def failure_told(site: Site) -> None:
    """A verb whose call failed does not answer that all is well.

    Let a `CloudError` through, or answer it for its Service; the framework tries again. `Ensured`
    and `Done` are for what the cloud has confirmed. If the cloud refuses because it is still
    working on it, answer `Pending`.
    """
    started = await site.start()
    hosts = await site.hosts(started, 2)
    for after_effect in (False, True):
        attempt = Attempt(site.desired(started, hosts))
        cuts = interrupted(site, attempt.ensure, after_effect=after_effect, for_good=False)
        async for cut, answer in cuts:
            if isinstance(answer, Ensured):
                await converged(site, attempt.desired, f"{cut} and ensure answered Ensured")
            await site.delete(started, attempt.desired.ref)
            attempt.desired = site.desired(started, hosts)
        await site.delete(started, attempt.desired.ref)
    before = await site.objects(started)
    for after_effect in (False, True):
        attempt = Attempt(site.desired(started, hosts))
        await site.ensure(started, attempt.desired)
        cuts = interrupted(site, attempt.delete, after_effect=after_effect, for_good=False)
        async for cut, answer in cuts:
            if isinstance(answer, Done):
                left = await site.objects(started)
                check_objects(before, left, f"{cut} and delete answered Done")
            await site.delete(started, attempt.desired.ref)
            attempt.desired = site.desired(started, hosts)
            await site.ensure(started, attempt.desired)
        await site.delete(started, attempt.desired.ref)


RULES = (ensure_interrupted, ensure_interrupted_then_delete, delete_interrupted, failure_told)
