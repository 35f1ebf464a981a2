"""Elect a leader on a Lease, with client-go's record, so that Go and Python replicas agree.

Safety rests on three things, and on no clock of another machine:

* A lease is taken from its holder only after its record has not changed for the lease's
  duration, as measured here since it was last seen to change.
* Every write carries the version that was read: of two that write at once, one gets a conflict.
* The holder counts from the *start* of its last good renewal, so it stops before others may
  start: `check` refuses from the renew deadline on, which is shorter than the lease. The clock
  goes on while the machine sleeps (CLOCK_BOOTTIME).

A standby polls the lease, and tries at once when the lease is seen to change (`try_now`).
"""

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from proreus.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, RefusedByGate
from proreus.runtime import klog, metrics
from proreus.runtime.uptime import uptime

log = klog.logger(__name__)

Lease = dict[str, Any]

RETRY_JITTER: Final = 0.2
"""Share of the retry period taken away at random; replicas shall not try in step."""
HEALTH_TOLERANCE: Final = 20.0
"""Seconds past the lease's end after which a holder that has not noticed counts as hung."""


class LeadershipLost(Exception):
    """The error that the lease is held by somebody else, or could not be renewed in time."""


class Leases(Protocol):
    """The part of a client that election needs. It must have no gate, and its own connection."""

    async def get_lease(self, namespace: str, name: str) -> Lease:
        """Read the lease."""

    async def create_lease(self, namespace: str, body: Mapping[str, Any]) -> Lease:
        """Create the lease."""

    async def replace_lease(self, namespace: str, name: str, body: Mapping[str, Any]) -> Lease:
        """Write the lease back with the version that was read."""


class LeaderElector:
    """A candidate for one lease: `acquire`, then `hold` until it is lost."""

    def __init__(
        self,
        client: Leases,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        clock: Callable[[], float] = uptime,
        exclusive: bool = True,
        deference: Callable[[], float] = lambda: 0.0,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Compete as `identity`; times in seconds.

        Args:
            client: The client that reads and writes the lease.
            namespace: The namespace of the lease.
            name: The name of the lease.
            identity: The name of the holder; processes with the same name hold the lease together.
            lease_duration: For how long others respect the lease.
            renew_deadline: For how long the lease may go without a successful renewal.
            retry_period: The time between two renewals, or two looks at another's lease.
            clock: The clock in seconds, which never stands still.
            exclusive: Whether no other process has the identity. If one may, the lease is not
                released, and the metric of who holds it is not set.
            deference: For how long a free lease is left to other candidates.
            chance: Returns a number from 0 to 1, for jitter.

        Raises:
            ValueError: The times do not satisfy lease_duration > renew_deadline > retry_period.
        """
        if not lease_duration > renew_deadline > retry_period > 0:
            raise ValueError(
                f"lease_duration ({lease_duration:g}) must be longer than renew_deadline "
                f"({renew_deadline:g}), and that longer than retry_period ({retry_period:g})"
            )
        self.identity = identity
        self._client = client
        self._namespace = namespace
        self._name = name
        self._lease_duration = lease_duration
        self._renew_deadline = renew_deadline
        self._retry_period = retry_period
        self._clock = clock
        self._exclusive = exclusive
        self._deference = deference
        self._chance = chance
        self._request_timeout = max(1.0, renew_deadline / 2)
        self._observed: Lease | None = None
        self._observed_at = -math.inf
        self._renewed_at: float | None = None
        self._free_since: float | None = None
        self._changed = asyncio.Event()
        self._unsure = False
        self._set_status(0)

    @property
    def uid(self) -> str:
        """The UID of the lease as last seen; "" before."""
        return str((self._observed or {}).get("metadata", {}).get("uid", ""))

    @property
    def is_taken(self) -> bool:
        """Whether another holds the lease, as far as is known."""
        return self._until_free() > 0

    def try_now(self) -> None:
        """Wake the candidate to try at once: the lease was seen to change."""
        self._changed.set()

    def check(self) -> None:
        """Gate all writes: raise unless the lease is surely ours now.

        Raises:
            RefusedByGate: The lease is not held, or was last renewed `renew_deadline` ago or
                earlier.
        """
        if self._renewed_at is None:
            raise RefusedByGate(f"{self.identity} does not hold the lease {self._where}")
        age = self._clock() - self._renewed_at
        if age >= self._renew_deadline:
            raise RefusedByGate(
                f"the lease {self._where} was last renewed {age:.1f} s ago; another may hold it"
            )

    def health(self) -> str | None:
        """Return a problem if the lease ran out long ago and this process has not noticed."""
        if self._renewed_at is None:
            return None
        late = self._clock() - self._renewed_at - self._lease_duration
        if late <= HEALTH_TOLERANCE:
            return None
        return f"the lease {self._where} ran out {late:.0f} s ago and is still held here"

    async def acquire(self) -> None:
        """Try until this candidate holds the lease; log errors and try again."""
        try:
            while True:
                self._changed.clear()
                if await self._try(self._request_timeout):
                    break
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pause()):
                        await self._changed.wait()
        except asyncio.CancelledError:
            if self._unsure and self._exclusive:
                await self._release()
            raise
        self._set_status(1)
        klog.info(log, "Became leader", lease=self._where, identity=self.identity)

    async def hold(self) -> None:
        """Renew the lease for ever; when cancelled, release it first.

        Raises:
            LeadershipLost: The lease has another holder, or the renew deadline has passed.
        """
        try:
            while True:
                await asyncio.sleep(min(self._retry_period, self._time_left()))
                if not await self._try(min(self._request_timeout, self._time_left())):
                    self._check_holder()
        except asyncio.CancelledError:
            self._give_up()
            if self._exclusive:
                await self._release()
            raise
        except LeadershipLost:
            self._give_up()
            raise

    @property
    def _where(self) -> str:
        return f"{self._namespace}/{self._name}"

    def _pause(self) -> float:
        """Return the seconds until the next try: at most until the lease may be taken."""
        pause = self._retry_period * (1 - RETRY_JITTER * self._chance())
        left = self._until_free() or self._until_deferred()
        return min(pause, left) if left > 0 else pause

    def _time_left(self) -> float:
        """Return the seconds until the renew deadline."""
        if self._renewed_at is None:
            raise LeadershipLost(f"the lease {self._where} is not held: acquire it first")
        left = self._renewed_at + self._renew_deadline - self._clock()
        if left <= 0:
            raise LeadershipLost(
                f"the lease {self._where} could not be renewed within {self._renew_deadline:g} s"
            )
        return left

    def _check_holder(self) -> None:
        """Stop at once if a renewal failed and another holds the lease."""
        holder = _holder(self._observed)
        if holder != self.identity:
            raise LeadershipLost(
                f"the lease {self._where} is now held by {holder}"
                if holder
                else f"the lease {self._where} was emptied or deleted by somebody"
            )

    def _give_up(self) -> None:
        """Close the gate, before anything that lets another candidate in."""
        self._renewed_at = None
        self._set_status(0)

    def _set_status(self, value: int) -> None:
        if self._exclusive:
            metrics.LEADER.labels(self._name).set(value)

    async def _try(self, seconds: float) -> bool:
        """Try once to acquire or renew the lease within the time given."""
        try:
            async with asyncio.timeout(seconds):
                return await self._get_or_renew()
        except (KubeError, TimeoutError) as exc:
            klog.error(
                log, "Getting or renewing the lease failed", err=exc, lease=self._where,
                held=self._renewed_at is not None,
            )  # fmt: skip
            return False

    async def _get_or_renew(self) -> bool:
        if self._renewed_at is not None:
            return await self._renew()
        try:
            lease = await self._client.get_lease(self._namespace, self._name)
        except NotFound:
            # Deleted under its holder's feet: the holder may not know it yet.
            return await self._create() if self._may_take() else False
        self._observe(lease)
        return await self._write(lease) if self._may_take() else False

    async def _renew(self) -> bool:
        """Write the record anew; if the lease was written meanwhile, check whether it is ours."""
        if self._observed is not None and await self._write(self._observed):
            return True
        try:
            lease = await self._client.get_lease(self._namespace, self._name)
        except NotFound:
            self._observed = None
            return False
        self._observe(lease)
        if _holder(lease) != self.identity:
            return False
        metrics.LEADER_SLOW_PATH.labels(self._name).inc()
        return await self._write(lease)

    def _observe(self, lease: Lease) -> None:
        """Note the lease, and when its record was first seen in this form."""
        if self._observed is None or _spec(lease) != _spec(self._observed):
            self._observed_at = self._clock()
        self._observed = lease

    def _may_take(self) -> bool:
        """Tell whether the observed lease is free and has been left to others first."""
        if self._until_free() > 0:
            self._free_since = None
            return False
        if self._free_since is None:
            self._free_since = self._clock()
        return self._until_deferred() <= 0

    def _until_free(self) -> float:
        """Return the seconds until another's observed lease runs out, or 0."""
        if _holder(self._observed) in {"", self.identity}:
            return 0.0
        duration = _spec(self._observed).get("leaseDurationSeconds") or self._lease_duration
        return max(0.0, self._observed_at + float(duration) - self._clock())

    def _until_deferred(self) -> float:
        """Return for how many seconds a free lease is still left to others; 0 or less if not."""
        if self._free_since is None:
            return 0.0
        return self._free_since + self._deference() - self._clock()

    async def _create(self) -> bool:
        started = self._clock()
        body = {"metadata": {"namespace": self._namespace, "name": self._name}}
        self._unsure = True
        try:
            lease = await self._client.create_lease(self._namespace, self._record(body))
        except AlreadyExists:
            self._unsure = False
            return False
        self._written(lease, started)
        return True

    async def _write(self, lease: Lease) -> bool:
        """Write our record over the lease that was read, unless it has changed since."""
        started = self._clock()
        self._unsure = True
        try:
            lease = await self._client.replace_lease(
                self._namespace, self._name, self._record(lease)
            )
        except (Conflict, NotFound):
            self._unsure = False
            return False
        self._written(lease, started)
        return True

    def _written(self, lease: Lease, started: float) -> None:
        self._observe(lease)
        self._unsure = False
        self._renewed_at = started

    def _record(self, lease: Lease) -> Lease:
        """Return the lease as held by us from now on; fields that are not ours stay."""
        spec, now = _spec(lease), _timestamp()
        record: dict[str, Any] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self._lease_duration),
            "renewTime": now,
        }
        if _holder(lease) != self.identity:
            record["acquireTime"] = now
            record["leaseTransitions"] = _transitions(spec) + 1
        return {**lease, "spec": {**spec, **record}}

    async def _release(self) -> None:
        """Write a record without a holder, if the lease is ours, so that nobody has to wait."""
        try:
            async with asyncio.timeout(self._request_timeout):
                while not await self._is_released():
                    continue
        except (KubeError, TimeoutError) as exc:
            klog.warning(
                log, "Releasing the lease failed; it runs out by itself", err=exc, lease=self._where
            )
        else:
            klog.info(log, "Released the lease", lease=self._where, identity=self.identity)

    async def _is_released(self) -> bool:
        """Try once to release; False if a write came between, such as a late renewal."""
        lease = await self._client.get_lease(self._namespace, self._name)
        if _holder(lease) != self.identity:
            return True
        now = _timestamp()
        free = {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": now,
            "renewTime": now,
        }
        released = {**lease, "spec": {**_spec(lease), **free}}
        try:
            await self._client.replace_lease(self._namespace, self._name, released)
        except Conflict:
            return False
        return True


def _spec(lease: Lease | None) -> dict[str, Any]:
    return (lease or {}).get("spec") or {}


def _holder(lease: Lease | None) -> str:
    return _spec(lease).get("holderIdentity") or ""


def _transitions(spec: Mapping[str, Any]) -> int:
    """Return how often the holder has changed; -1 when there was none yet."""
    count = spec.get("leaseTransitions")
    return count if isinstance(count, int) else -1


def _timestamp() -> str:
    """Return now as a MicroTime, for people: nobody may trust another machine's clock."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
