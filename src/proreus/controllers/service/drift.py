"""What the cloud has, compared with what it should have: after a restart, and every hour. Pure.

One list of all that carries our marks answers for every Service. Those that it shows as wished
cost nothing more; the others are ensured, which writes only what differs.
"""

from collections.abc import Iterable, Mapping

from proreus.cloudprovider.identity import OwnedObject
from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.controllers.service.conditions import readiness
from proreus.controllers.service.plan import Memory, fingerprint

Shown = Mapping[str, Mapping[str, frozenset[str]]]
"""The fingerprints that the cloud shows, with their addresses, by the UID of the Service."""


def shown(owned: Iterable[OwnedObject]) -> Shown:
    """The fingerprints among the objects; those without one say nothing."""
    found: dict[str, dict[str, frozenset[str]]] = {}
    for thing in owned:
        if thing.service_uid and thing.fingerprint:
            addresses = frozenset(thing.addresses)
            found.setdefault(thing.service_uid, {})[thing.fingerprint] = addresses
    return found


def is_as_desired(desired: LoadBalancer, expected: str, cloud: Shown) -> bool:
    """Tell whether cloud and Service show the desired fingerprint and address.

    Addresses are compared where the cloud lists them.
    """
    addresses = cloud.get(desired.ref.uid, {}).get(expected)
    if expected == "" or addresses is None:
        return False
    stated = {point.ip or point.hostname for point in desired.ref.last_ingress}
    return not addresses or addresses == stated


def adopted(desired: LoadBalancer, expected: str, cloud: Shown) -> Memory | None:
    """Return what may be remembered after a restart; None if the Service must be ensured.

    A Service without an address is ensured, since only that tells the address.
    """
    if not desired.ref.last_ingress or not is_as_desired(desired, expected, cloud):
        return None
    return Memory(desired.ref, fingerprint(desired), condition=readiness(desired.hosts, {}))


def spread(keys: Iterable[str], seconds: float) -> Mapping[str, float]:
    """Spread the keys evenly over `seconds`, in a stable order."""
    ordered = sorted(keys)
    return {key: seconds * index / len(ordered) for index, key in enumerate(ordered)}
