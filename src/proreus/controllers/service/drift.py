"""Compare what the cloud has with the desired state: after a restart, and every hour. Pure.

One list of all objects with our marks answers for every Service. Those that are as desired cost
nothing more; the others are ensured, which writes only what differs.

Some clouds show only what the last `ensure` has recorded, which tells nothing of what somebody has
changed by hand since. Such a Service is ensured all the same when it is its turn, once in
`THOROUGH` periods: once a day, unless `--load-balancer-resync-period` is another than an hour. The
turns are those of the wall clock and depend on the Service's UID alone, so that restarts neither
skip any nor begin again, and in each period it is the turn of as many Services as in any other.
"""

import zlib
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from proreus.cloudprovider.identity import OwnedObject
from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.cloudprovider.ports import ports_of
from proreus.controllers.service.conditions import readiness
from proreus.controllers.service.plan import Memory, fingerprint

Fingerprints = Mapping[str, Mapping[str, frozenset[str]]]
"""The fingerprints that the cloud shows, with their addresses, by the UID of the Service."""


THOROUGH: Final = 24
"""How many periods it takes until each Service with a recorded fingerprint was ensured once."""

EVERY_TURN: Final = frozenset(range(THOROUGH))
"""The turns of all Services: with these no recorded fingerprint counts."""


def turn_of(uid: str) -> int:
    """Return the period, 0 to `THOROUGH` - 1, in which a Service is ensured in any case."""
    return zlib.crc32(uid.encode()) % THOROUGH


def turns(since: float | None, now: float, period: float) -> frozenset[int]:
    """Return the turns (`turn_of`) that have come since the last pass.

    Args:
        since: When the last pass was, in seconds of the wall clock; None if there was none: then
            the turn of the period before counts, too, since the last process may have ended too
            early for it. A time in the future, because the clock was set back, counts as none.
        now: The present.
        period: Seconds between two passes; none is exactly as long.
    """
    present = int(now // period)
    if since is None or since > now:
        return frozenset({(present - 1) % THOROUGH, present % THOROUGH})
    first = max(int(since // period) + 1, present - THOROUGH + 1)
    return frozenset(number % THOROUGH for number in range(first, present + 1))


def fingerprints(owned: Iterable[OwnedObject], due: Collection[int] = ()) -> Fingerprints:
    """Return the fingerprints that the objects show, by Service.

    Recorded fingerprints of Services whose turn is `due` are left out.
    """
    observed: dict[str, dict[str, frozenset[str]]] = {}
    for item in owned:
        if item.recorded and turn_of(item.service_uid) in due:
            continue
        if item.service_uid and item.fingerprint:
            addresses = frozenset(item.addresses)
            observed.setdefault(item.service_uid, {})[item.fingerprint] = addresses
    return observed


def is_as_desired(desired: LoadBalancer, expected: str, observed: Fingerprints) -> bool:
    """Tell whether cloud and Service show the desired fingerprint and address.

    Addresses are compared where the cloud lists them.
    """
    addresses = observed.get(desired.ref.uid, {}).get(expected)
    if expected == "" or addresses is None:
        return False
    stated = {point.ip or point.hostname for point in desired.ref.last_ingress}
    return not addresses or addresses == stated


def adopted(desired: LoadBalancer, expected: str, observed: Fingerprints) -> Memory | None:
    """Return what may be remembered after a restart; None if the Service must be ensured.

    A Service without an address is ensured, since only that tells the address.
    """
    if not desired.ref.last_ingress or not is_as_desired(desired, expected, observed):
        return None
    condition = readiness(desired.hosts, {})
    ports = ports_of(desired.service)
    return Memory(desired.ref, fingerprint(desired), condition=condition, made=True, ports=ports)


def spread(keys: Iterable[str], seconds: float) -> Mapping[str, float]:
    """Spread the keys evenly over `seconds`, in a stable order."""
    ordered = sorted(keys)
    return {key: seconds * index / len(ordered) for index, key in enumerate(ordered)}
