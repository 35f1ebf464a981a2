"""Report what a provider does against its interface: by metric, log line and event."""

import asyncio
from enum import StrEnum
from typing import Final

from proreus.cloudprovider import CallTimeout, CloudError, EventSink
from proreus.kube.objects import KubeObject, key
from proreus.runtime import klog, metrics
from proreus.runtime.correlation import REPEAT, Recent

log = klog.logger(__name__)

EVENT: Final = "ProviderFault"
"""The reason of events about objects that a fault concerns."""

_SENTENCE: Final = "The provider breaks its interface"


class Fault(CloudError):
    """The error in the place of an answer that was a fault of the provider; reported already."""


class Unanswered(Fault, CallTimeout):
    """The error that a call had no answer, which is a fault; its outcome is unknown."""


class Kind(StrEnum):
    """The kinds of faults of a provider; to raise or answer a `CloudError` is no fault."""

    RAISED = "raised"
    """The provider raised something that is no CloudError, such as SystemExit."""
    WRONG_ANSWER = "wrong_answer"
    """The answer has another type than the interface says, or an impossible value."""
    LEFT_OUT = "left_out"
    """The answer leaves out an object of the call."""
    UNASKED = "unasked"
    """The answer names an object that was not in the call."""
    DUPLICATE = "duplicate"
    """The answer gives two nodes the same machine."""
    HUNG = "hung"
    """The call gave no answer within the verb's deadline."""
    CANCELLED = "cancelled"
    """The provider cancelled its own call."""
    UNCANCELLABLE = "uncancellable"
    """The provider went on after its call was cancelled."""
    THREADS = "threads"
    """The provider leaves threads behind."""


class Faults:
    """A reporter of the faults of one provider.

    Each fault is counted. The log names the first fault of a verb, kind and object, and then one
    every ten minutes: hooks are called for every object all the time.
    """

    def __init__(self, provider: str, events: EventSink) -> None:
        """Report faults of `provider`; `events` takes the events about objects."""
        self._provider = provider
        self._events = events
        self._logged: Recent[tuple[str, Kind, str], float] = Recent()

    def report(
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
