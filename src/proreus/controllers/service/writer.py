"""Write changes to Services, and record their events."""

import asyncio
from collections.abc import Callable

from proreus.controllers.environment import Environment
from proreus.controllers.service import answers, recording
from proreus.controllers.service.answers import Change
from proreus.controllers.service.intake import Classes
from proreus.kube.client import Written
from proreus.kube.errors import Conflict, NotFound
from proreus.kube.objects import Service
from proreus.kube.objects import key as key_of
from proreus.kube.patch import addresses_alone
from proreus.kube.requests import SERVICES
from proreus.runtime import klog
from proreus.runtime.controller import CONFLICT_DELAY, Outcome, contained
from proreus.runtime.events import EventSource, ref_of

log = klog.logger(__name__)

WRITE_TRIES = 4


class ServiceWriter:
    """The writer of changes to Services, each made from the newest object."""

    def __init__(self, env: Environment, events: EventSource) -> None:
        """Write to the cluster of `env`, and record events with `events`."""
        self._env = env
        self._events = events

    async def prepare(self, key: str, classes: Classes) -> Outcome:
        """Write what has to be on a Service before the cloud is called, and wait to see it."""

        def record(service: Service) -> Change:
            return recording.record(service, classes, self._env.now())

        def before(service: Service) -> Change:
            return answers.before(service, self._env.now()) or Change()

        outcome = Outcome()
        for make in (record, before) if classes.cloud else (before,):
            outcome = await self.write_present(key, make)
            if outcome.written is not None:
                await self._env.services.wait_seen(key, outcome.written)
            if outcome.error is not None:
                break
        return outcome

    async def write_present(self, key: str, make: Callable[[Service], Change]) -> Outcome:
        """Write a change to the Service, if it still exists."""
        return await self.write(
            key, lambda service: make(service) if service is not None else Change()
        )

    async def write(self, key: str, make: Callable[[Service | None], Change]) -> Outcome:
        """Make the change from the newest object and write it; retry after a conflict.

        The cloud has answered already, so a conflict here must not lead to another call.
        """
        for attempt in range(WRITE_TRIES):
            service = self._env.services.get(key)
            change = make(service)
            outcome = await self._patch(service, change)
            if not isinstance(outcome.error, Conflict) or service is None:
                break
            await asyncio.sleep(CONFLICT_DELAY * 2**attempt)
        if isinstance(outcome.error, Conflict):
            return await self._with_address(service, change, outcome)
        # Not the newest object: once the finalizer is gone there may be none any more.
        self.record(service, change)
        return outcome

    async def _with_address(
        self, service: Service | None, change: Change, outcome: Outcome
    ) -> Outcome:
        """Write the address by itself, in whatever version the Service is; the rest has to wait.

        Whoever edits a Service all the time would keep an address by that which is another's.
        """
        address = addresses_alone(change.status) if change.status else None
        if not address or outcome.written is not None:
            return outcome
        written = (await self._patch(service, Change(status=address))).written
        return Outcome(written=written, error=outcome.error)

    async def _patch(self, service: Service | None, change: Change) -> Outcome:
        written: Written | None = None
        if service is not None:
            meta = service.metadata
            for patch, subresource in ((change.status, "status"), (change.metadata, "")):
                if not patch:
                    continue
                sent = self._env.client.patch(
                    SERVICES, meta.name, patch, namespace=meta.namespace, subresource=subresource
                )
                answer = await contained(sent)
                if isinstance(answer, NotFound):
                    break
                if isinstance(answer, Exception):
                    return Outcome(written=written, error=answer)
                written = answer
        return Outcome(written=written, after=change.after, error=change.error)

    def record(self, service: Service | None, change: Change) -> None:
        """Record the events of a change."""
        if service is None:
            return
        for event in change.events:
            self._events.event(ref_of(service), event.type, event.reason, event.message)
            klog.v(log, 2, event.message, service=key_of(service), reason=event.reason)
