"""A cloud without marks: a name that holds the UIDs is proof, one that can be guessed is none."""

import uuid
from collections.abc import Mapping
from typing import ClassVar

import msgspec
import pytest

from proreus.cloudprovider import (
    CloudProvider,
    ClusterIdentity,
    Context,
    Done,
    Ensured,
    LoadBalancer,
    LoadBalancerRef,
    OwnedObject,
    per_service,
)
from proreus.kube.objects import LoadBalancerIngress
from proreus.testing.conformance import CloudFixture, Status, Suite, ownership

ADDRESS = LoadBalancerIngress(ip="192.0.2.1")


def uids(ref: LoadBalancerRef) -> str:
    return f"{ref.cluster.uid}.{ref.uid}"


def guessable(ref: LoadBalancerRef) -> str:
    return ref.key


class Names(CloudProvider):
    """A cloud whose balancers have a name and ports, and nothing else to know them by."""

    name = "names"
    name_of = staticmethod(uids)

    def __init__(self, balancers: dict[str, object]) -> None:
        super().__init__(None)
        self._balancers = balancers

    async def start(self, context: Context) -> None:
        async def ensure(desired: LoadBalancer) -> Ensured:
            name = self.name_of(desired.ref)
            if self._balancers.get(name) != desired.frontends:
                change = {name: desired.frontends}
                await context.call("lb", "put", lambda: self._balancers.update(change), read=False)
            return Ensured((ADDRESS,))

        async def delete(gone: LoadBalancerRef) -> Done:
            name = self.name_of(gone)
            found = await context.call(
                "lb", "delete", lambda: self._balancers.pop(name, None), read=False
            )
            return Done(found=found is not None)

        async def list_owned(cluster: ClusterIdentity) -> tuple[OwnedObject, ...]:
            names = [name.partition(".") for name in self._balancers]
            return tuple(
                OwnedObject("balancer", uid, service_uid=uid)
                for of, _, uid in names
                if of == cluster.uid
            )

        self.load_balancers = per_service(ensure, delete, list_owned=list_owned)


class Guessable(Names):
    name_of = staticmethod(guessable)


class Fixture(CloudFixture):
    lacks = ("instances", "routes", "endpoint")
    provider_class: ClassVar[type[Names]] = Names

    def __init__(self) -> None:
        self._balancers: dict[str, object] = {}

    def provider(self, endpoint: str) -> CloudProvider:
        return self.provider_class(self._balancers)

    async def objects(self) -> Mapping[str, object]:
        return dict(self._balancers)

    async def create_foreign(self, ref: LoadBalancerRef) -> None:
        """As `CloudFixture` says: named alike, with another uid if the name has one."""
        another = msgspec.structs.replace(ref, uid=str(uuid.uuid4()))
        self._balancers[self.provider_class.name_of(another)] = "somebody else's"


@pytest.mark.parametrize(
    ("provider", "expected"), [(Names, Status.HOLDS), (Guessable, Status.FAILS)]
)
async def test_the_uids_in_a_name_are_proof(provider: type[Names], expected: Status) -> None:
    fixture = type("Fixture", (Fixture,), {"provider_class": provider})
    suite = Suite(fixture)
    for rule in (ownership.foreign_untouched, ownership.other_cluster):
        assert (await suite.finding(rule)).status is expected, rule.id
