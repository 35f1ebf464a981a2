"""Know which addresses are taken: by Services, by nodes, by this machine.

It is made once for a batch of Services, and changes with each that gets addresses: to look at all
of them anew for each one would take a minute for some thousands.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from proreus.kube.objects import Service
from proreus.providers.local.addresses import Address, Pool, addresses, parse

Port = tuple[str, int]
"""A port: its protocol and number."""
Age = tuple[Any, ...]
"""What Services are ordered by, older ones first."""


def ages_of(services: Iterable[Service], known: Container[str]) -> dict[str, Age]:
    """Return the ages of Services by their UIDs, as far as nothing else tells what they had.

    Args:
        services: The Services.
        known: The UIDs of those of which it is known, which counts however old they are.
    """
    made = ((one.metadata.uid, one.metadata.creation_timestamp) for one in services)
    return {uid: (when, uid) for uid, when in made if when is not None and uid not in known}


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """An address that a Service has; a Service with two addresses has two of these.

    `service` is namespace/name, for messages. One's own is left out of account by its uid.
    `is_foreign` is whether the Service is another cluster's, which shares nothing with ours;
    `is_refused` whether ports and key are those of its spec, and it was not given what that says;
    `is_narrow` whether only the nodes that run its pods announce it, to all who share it;
    `is_left` whether only its status shows it, and not the kernel.
    """

    address: str
    uid: str
    service: str
    ports: frozenset[Port]
    sharing_key: str = ""
    is_foreign: bool = False
    is_refused: bool = False
    is_narrow: bool = False
    is_left: bool = False


class _Search:
    """The addresses of a pool that are still to be looked at; `head` is the first of them."""

    def __init__(self, every: Iterator[Address]) -> None:
        self._every = every
        self.head = next(every, None)

    def advance(self) -> None:
        self.head = next(self._every, None)


class Occupied:
    """The addresses that are taken, with who has them.

    Attributes:
        in_use: The addresses that are never given out, with who has them: nodes, this machine.
        machines: Those of them that nodes and other machines have.
    """

    def __init__(
        self,
        taken: Iterable[Taken] = (),
        in_use: Mapping[str, str] = MappingProxyType({}),
        machines: Iterable[str] = (),
        ages: Mapping[str, Age] = MappingProxyType({}),
        told: Collection[tuple[str, Address | None]] = (),
    ) -> None:
        """Keep what Services have, what nobody may get, and the ages of Services by their UIDs.

        What they have by kernel and status alike is `told`, by their UIDs.
        """
        self._ages = ages
        self._told = told
        self.in_use = {parse(address): who for address, who in in_use.items()}
        self.machines = frozenset(map(parse, machines))
        self._of: dict[str, tuple[Taken, ...]] = {}
        self._at: dict[Address | None, list[Taken]] = {}
        self._left: dict[Address | None, list[Taken]] = {}
        self._searches: dict[tuple[str, str], _Search] = {}
        for one in taken:
            self._add(one)

    def give(self, uid: str, taken: Iterable[Taken]) -> None:
        """Let a Service have these addresses, in the place of those that it had."""
        for one in self._of.pop(uid, ()):
            self._at[parse(one.address)].remove(one)
            self._searches.clear()
        for one in taken:
            self._add(one)

    def move(self, uid: str, taken: Iterable[Taken]) -> None:
        """Do as `give`, but let nobody else begin to have what the Service leaves by that.

        Nodes go by its status, which shows that until it is written.
        """
        before = self.of(uid)
        self.give(uid, taken)
        present = {parse(one.address) for one in self.of(uid)}
        for one in before:
            if (address := parse(one.address)) not in present:
                self._left.setdefault(address, []).append(one)

    def of(self, uid: str) -> tuple[Taken, ...]:
        """Return the addresses of a Service."""
        return self._of.get(uid, ())

    def at(self, address: Address, uid: str) -> list[Taken]:
        """Return what the Service with this uid has of an address."""
        return [one for one in self.of(uid) if parse(one.address) == address]

    def by_others(self, address: Address, uid: str) -> list[Taken]:
        """Return who has an address besides the Service with this uid."""
        return [one for one in self._at.get(address, ()) if one.uid != uid]

    def rivals(
        self, address: Address, uid: str, ports: frozenset[Port], key: str, *, is_narrow: bool
    ) -> list[Taken]:
        """Return with whom the Service with this uid has to agree to have an address.

        Who has it, and asks for no other port, key or nodes than before, keeps it whatever those
        ask for that were refused. So does the older one of two that say so, as far as ages are
        known; and of two that were both refused, such as by a gateway that lets no traffic pass.
        """
        own = self.at(address, uid)
        keeps = any(
            ports <= one.ports and key == one.sharing_key and is_narrow <= one.is_narrow
            for one in own
        )
        is_refused = any(one.is_refused for one in own)
        left = () if own else self._left.get(address, ())
        return [
            one
            for one in (*self.by_others(address, uid), *(one for one in left if one.uid != uid))
            if not self.is_past(one, address, uid, ports)
            and (
                not keeps
                or (is_refused, self.is_younger(uid, one.uid))
                >= (one.is_refused, self.is_younger(one.uid, uid))
            )
        ]

    def is_past(self, one: Taken, address: Address, uid: str, ports: frozenset[Port]) -> bool:
        """Tell whether another one has left an address to the Service with this uid.

        That one's status is late, or was left out here for what it asks for: it takes nothing from
        who has the address by kernel and status alike, but no new port of those goes to that one.
        """
        if not one.is_left or (uid, address) not in self._told:
            return False
        new = ports.difference(*(own.ports for own in self.at(address, uid)))
        return new.isdisjoint(one.ports)

    def is_younger(self, uid: str, other: str) -> bool:
        """Tell whether a Service is known to be younger than another one."""
        ages = self._ages
        return uid in ages and other in ages and ages[uid] > ages[other]

    def first_free(self, pool: Pool, family: str) -> Address | None:
        """Return the first address of a pool that nobody has, or None.

        Addresses that were found taken are not looked at again until somebody gives one back.
        """
        key = (pool.name, family)
        if (search := self._searches.get(key)) is None:
            search = self._searches[key] = _Search(addresses(pool, family))
        while search.head is not None and self._is_taken(search.head):
            search.advance()
        return search.head

    def shared(self, key: str, uid: str) -> Iterator[Address]:
        """Return the addresses whose users, others than that uid, all have the sharing key."""
        for address in self._at:
            users = self.by_others(address, uid) if address is not None else []
            if address is not None and users and all(one.sharing_key == key for one in users):
                yield address

    def _is_taken(self, address: Address) -> bool:
        return bool(self._at.get(address)) or address in self.in_use or address in self._left

    def _add(self, one: Taken) -> None:
        self._of[one.uid] = (*self.of(one.uid), one)
        self._at.setdefault(parse(one.address), []).append(one)
