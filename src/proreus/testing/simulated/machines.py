"""The simulated cloud's instances: how they are read, and what the admin API does to them."""

import ipaddress
import random
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proreus.testing.simulated.model import Address, ApiError, Instance, Settings
from proreus.testing.simulated.store import Table

_ID = re.compile(r"i-[0-9a-f]{12}")
_INTERNAL = ipaddress.IPv4Network("10.0.0.0/8")
_EXTERNAL = ipaddress.IPv4Network("198.18.0.0/15")


class Machines:
    """The instances of the simulated cloud; `settings` is called anew each time."""

    def __init__(
        self,
        table: Table[Instance],
        settings: Callable[[], Settings],
        now: Callable[[], float],
        chance: random.Random,
    ) -> None:
        """Load what the table holds; ids come from `chance`."""
        self._table = table
        self._settings = settings
        self._now = now
        self._chance = chance
        self._ended = {i.id for i in table.all() if i.state == "terminated"}
        self._made = len(table.all())

    def all(self, *, lag: float = 0.0) -> Sequence[Instance]:
        """Return every visible instance."""
        self._bury()
        return self._table.all(lag=lag)

    def find(self, id_: str) -> Instance | None:
        """Return the instance as it is now, or None."""
        self._bury()
        return self._table.get(id_)

    def get(self, id_: str) -> Instance:
        """Return an instance by id, as it was `read_lag` ago."""
        self._check([id_])
        self._bury()
        found = self._table.get(id_, lag=self._settings().read_lag)
        if found is None:
            raise ApiError(404, "NotFound", f"there is no instance {id_}")
        return found

    def batch_get(
        self, ids: Sequence[str], names: Sequence[str]
    ) -> tuple[list[Instance], list[str], list[str]]:
        """Return instances found, and ids and names not found, as of `list_lag` ago."""
        limit = self._settings().batch_limit
        if len(ids) + len(names) > limit:
            raise ApiError(400, "BadRequest", f"more than {limit} ids and names in one call")
        self._check(ids)
        self._bury()
        lag = self._settings().list_lag
        found: dict[str, Instance] = {}
        missing_ids = []
        for id_ in ids:
            one = self._table.get(id_, lag=lag)
            if one is None:
                missing_ids.append(id_)
            else:
                found[id_] = one
        missing_names = []
        for name in names:
            alike = self._table.keyed(("name", name), lag=lag)
            found.update((one.id, one) for one in alike)
            if not alike:
                missing_names.append(name)
        return list(found.values()), missing_ids, missing_names

    def create(self, instances: Iterable[Instance]) -> list[Instance]:
        """Start instances, filling in what was left empty."""
        made = [self._fill(instance) for instance in instances]
        self._check([one.id for one in made])
        self._table.put(made)
        return made

    def change(self, id_: str, changes: Mapping[str, Any]) -> Instance:
        """Change fields of an instance at once, without the delays of a real cloud."""
        old = self.find(id_)
        if old is None:
            raise ApiError(404, "NotFound", f"there is no instance {id_}")
        body = msgspec.to_builtins(old) | dict(changes)
        if body["id"] != id_:
            raise ApiError(400, "BadRequest", "id cannot be changed")
        if body["state"] == "terminated" != old.state:
            body["terminated"] = self._now()
            body["pod_cidrs"] = []
        new = msgspec.convert(body, Instance)
        self._table.put([new])
        if new.state == "terminated":
            self._ended.add(id_)
        return new

    def assign(self, id_: str, cidrs: Sequence[str]) -> Instance:
        """Give an instance blocks of pod addresses, those that it does not have."""
        instances = [_network(cidr) for cidr in cidrs]
        for other in self.all():
            for taken in map(_network, other.pod_cidrs if other.id != id_ else ()):
                if any(
                    instance.version == taken.version and instance.overlaps(taken)
                    for instance in instances
                ):
                    raise ApiError(409, "Conflict", f"{other.id} already has the pod CIDR {taken}")
        has = self._living(id_).pod_cidrs
        new = [str(instance) for instance in instances if str(instance) not in has]
        return self.change(id_, {"pod_cidrs": [*has, *new]})

    def release(self, id_: str, cidrs: Sequence[str]) -> Instance:
        """Take blocks of pod addresses back from an instance."""
        gone = {str(_network(cidr)) for cidr in cidrs}
        kept = [pod_cidr for pod_cidr in self._living(id_).pod_cidrs if pod_cidr not in gone]
        return self.change(id_, {"pod_cidrs": kept})

    def add_ssh_key(self, user: str, public_key: str) -> list[Instance]:
        """Give the instances that there are now a key, those that do not have it."""
        line = f"{user}:{public_key}"
        return [
            self.change(one.id, {"ssh_keys": [*one.ssh_keys, line]})
            for one in self.all()
            if one.state != "terminated" and line not in one.ssh_keys
        ]

    def _living(self, id_: str) -> Instance:
        self._check([id_])
        found = self.find(id_)
        if found is None or found.state == "terminated":
            raise ApiError(404, "NotFound", f"there is no instance {id_}")
        return found

    def terminate(self, id_: str) -> None:
        """Terminate an instance; its tombstone stays for the time in the settings."""
        self.change(id_, {"state": "terminated"})
        self._bury()

    def _bury(self) -> None:
        now, tombstone = self._now(), self._settings().tombstone
        for id_ in tuple(self._ended):
            one = self._table.get(id_)
            if one is None or one.state != "terminated":
                self._ended.discard(id_)
            elif one.terminated + tombstone <= now:
                self._table.delete(id_)
                self._ended.discard(id_)

    def _fill(self, one: Instance) -> Instance:
        number = self._made = self._made + 1
        addresses = (
            Address("InternalIP", str(_INTERNAL[number % _INTERNAL.num_addresses])),
            Address("ExternalIP", str(_EXTERNAL[number % _EXTERNAL.num_addresses])),
            Address("InternalDNS", f"{one.name}.internal"),
            Address("Hostname", one.name),
        )
        uid = uuid.UUID(int=self._chance.getrandbits(128), version=4)
        return msgspec.structs.replace(
            one,
            id=one.id or f"i-{self._chance.getrandbits(48):012x}",
            region=one.region or self._settings().region,
            system_uuid=one.system_uuid or str(uid),
            addresses=one.addresses or addresses,
            created=one.created or self._now(),
        )

    def _check(self, ids: Iterable[str]) -> None:
        bad = next((id_ for id_ in ids if not _ID.fullmatch(id_)), None)
        if bad is not None:
            raise ApiError(400, "BadRequest", f"malformed instance id {bad!r}")


def _network(cidr: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(cidr)
    except ValueError as error:
        raise ApiError(400, "BadRequest", f"malformed pod CIDR: {error}") from error
