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


def is_as_wished(wanted: LoadBalancer, expected: str, cloud: Shown) -> bool:
    """Whether the cloud shows what the provider expects of the wish, and the Service its address.

    Addresses are compared where the cloud lists them.
    """
    addresses = cloud.get(wanted.ref.uid, {}).get(expected)
    if expected == "" or addresses is None:
        return False
    stated = {point.ip or point.hostname for point in wanted.ref.last_ingress}
    return not addresses or addresses == stated


def adopted(wanted: LoadBalancer, expected: str, cloud: Shown) -> Memory | None:
    """What may be taken as known after a restart; None if the Service is to be ensured.

    A Service without an address is ensured, since only that tells the address.
    """
    if not wanted.ref.last_ingress or not is_as_wished(wanted, expected, cloud):
        return None
    return Memory(wanted.ref, fingerprint(wanted), says=readiness(wanted.hosts, {}))


def spread(keys: Iterable[str], seconds: float) -> Mapping[str, float]:
    """When to look at each key: evenly over `seconds`, in a stable order."""
    ordered = sorted(keys)
    return {key: seconds * index / len(ordered) for index, key in enumerate(ordered)}
