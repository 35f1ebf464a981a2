"""What a provider does against its interface: counted, named in the log, told on the object."""

import asyncio
from enum import StrEnum
from typing import Final

from proreus.cloudprovider import EventSink
from proreus.kube.objects import KubeObject, key
from proreus.runtime import klog, metrics
from proreus.runtime.correlation import REPEAT, Recent

log = klog.logger(__name__)

EVENT: Final = "ProviderFault"
"""The reason of the events about objects that a fault concerns."""

_SENTENCE: Final = "The provider is at fault"


class Kind(StrEnum):
    """Every kind of fault; a `CloudError` that a provider raises or answers is none."""

    RAISED = "raised"
    """It raised something that is no CloudError, be it SystemExit."""
    WRONG_ANSWER = "wrong_answer"
    """Its answer is of another type than the interface says, or holds an impossible value."""
    LEFT_OUT = "left_out"
    """Its answer says nothing about something that was asked."""
    UNASKED = "unasked"
    """Its answer speaks of something that nobody had asked about."""
    DUPLICATE = "duplicate"
    """It takes two nodes for the same machine."""
    HUNG = "hung"
    """It had no answer in the time that the verb has."""
    CANCELLED = "cancelled"
    """It cancelled its own call."""
    UNCANCELLABLE = "uncancellable"
    """It went on after its call was cancelled."""
    THREADS = "threads"
    """It leaves threads behind."""


class Faults:
    """Takes note of the faults of one provider.

    Each is counted. The log names the first of a verb, kind and object, and then one every ten
    minutes: hooks are called for every object all the time.
    """

    def __init__(self, provider: str, events: EventSink) -> None:
        """Note the faults of `provider`; `events` takes those about objects."""
        self._provider = provider
        self._events = events
        self._logged: Recent[tuple[str, Kind, str], float] = Recent()

    def tell(
        self,
        verb: str,
        kind: Kind,
        problem: str,
        *,
        about: KubeObject | None = None,
        cause: BaseException | None = None,
    ) -> None:
        """Count one fault; `about` gets an event, `cause` its traceback into the log."""
        metrics.PROVIDER_FAULTS.labels(self._provider, verb, kind.value).inc()
        if about is not None:
            self._events.event(about, "Warning", EVENT, problem)
        name = key(about) if about is not None else ""
        if not self._is_new((verb, kind, name)):
            return
        named = {"provider": self._provider, "verb": verb, "kind": kind.value}
        if about is not None:
            named[type(about).__name__.lower()] = name
        with klog.bound(**named):
            if cause is not None:
                klog.exception(log, _SENTENCE, err=cause, problem=problem)
            else:
                klog.error(log, _SENTENCE, problem=problem)

    def _is_new(self, what: tuple[str, Kind, str]) -> bool:
        now = asyncio.get_running_loop().time()
        logged = self._logged.get(what)
        if logged is not None and now - logged < REPEAT:
            return False
        self._logged.put(what, now)
        return True
