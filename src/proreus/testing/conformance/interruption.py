"""Break a provider's calls one after the other, as cloud, network and process can fail."""

from proreus.cloudprovider import CallRecord, CallTimeout, CloudError, Outcome, Throttled


class Interruption:
    """Hooks of a `Context` that break call number `at`, counted once `armed` is set.

    Attributes:
        armed: Whether calls are counted; set it when the verb that shall be broken begins.
        reached: Whether the call to break was reached.
    """

    def __init__(
        self,
        at: int,
        *,
        after_effect: bool = False,
        for_good: bool = True,
        only_writes: bool = False,
        error: CloudError | None = None,
    ) -> None:
        """Keep which call to break, and how.

        Args:
            at: The number of the call to break, the first being 1.
            after_effect: Whether the call takes effect and its answer is lost; otherwise it is
                never sent.
            for_good: Whether all later calls fail as well, as if the process had been killed.
            only_writes: Whether only calls that write are counted: a process killed at a read
                leaves the cloud as one killed at the next write.
            error: The error that the provider sees, by default one that fits.
        """
        self.armed = False
        self.reached = False
        self._at = at
        self._after_effect = after_effect
        self._for_good = for_good
        self._only_writes = only_writes
        self._error = error
        self._count = 0

    def __str__(self) -> str:
        when = "the answer to call" if self._after_effect else "call"
        return f"{when} {self._at} of the verb was lost"

    def before(self, service: str, operation: str, *, read: bool) -> None:
        """Lose the call before it is sent."""
        counts = not (read and self._only_writes)
        if self.armed and counts and not self._after_effect:
            self._count += 1
        self._lose(f"{service}.{operation}", now=counts and not self._after_effect)

    def after(self, record: CallRecord) -> None:
        """Lose the answer after the call has had its effect."""
        if record.outcome is Outcome.CANCELLED:
            return
        counts = not (record.read and self._only_writes)
        if self.armed and counts and self._after_effect:
            self._count += 1
        self._lose(f"{record.service}.{record.operation}", now=counts and self._after_effect)

    def _lose(self, call: str, *, now: bool) -> None:
        gone = self.reached and self._for_good
        if self.armed and not self.reached and now and self._count == self._at:
            self.reached = gone = True
            raise self._error or self._lost(call)
        if self.armed and gone:
            raise self._error or self._lost(call)

    def _lost(self, call: str) -> CloudError:
        if self._after_effect:
            return CallTimeout(f"{call}: no answer (a test broke it)")
        return CloudError(f"{call}: not sent (a test broke it)")


def throttling() -> Interruption:
    """Make an interruption that refuses every call because the quota is used up."""
    return Interruption(1, error=Throttled("the quota is used up", after=120.0))
