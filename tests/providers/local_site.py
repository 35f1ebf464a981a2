"""What the tests of the provider `local` share: a context and Nodes."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from proreus.cloudprovider import ClusterIdentity, Context
from proreus.kube.objects import (
    Condition,
    KubeObject,
    Node,
    NodeAddress,
    Service,
)
from proreus.kube.objects import key as key_of
from proreus.testing import objects

CLUSTER = ClusterIdentity("one", "uid-of-one")


class NoEvents:
    """The provider records none."""

    def event(self, ref: Any, type_: str, reason: str, message: str, /) -> None:
        raise AssertionError(f"an event: {reason}")


class Objects:
    """A cache of these."""

    def __init__(self, *objects: KubeObject) -> None:
        self._objects = objects

    def get(self, key: str) -> KubeObject | None:
        return next((one for one in self._objects if key_of(one) == key), None)

    def all(self) -> Iterable[KubeObject]:
        return self._objects

    def by(self, index: str, value: str) -> Iterable[KubeObject]:
        raise AssertionError(f"no index {index}")


def context(*services: Service) -> Context:
    """What the framework gives the provider, in a cluster with these Services."""
    return Context(
        CLUSTER,
        now=lambda: datetime.now(UTC),
        events=NoEvents(),
        listers={"services": Objects(*services), "nodes": Objects()},
    )


def node(
    name: str,
    *addresses: str | NodeAddress,
    provider_id: str | None = None,
    cidrs: tuple[str, ...] = (),
    uuid: str = "",
    is_ready: bool = True,
    annotations: dict[str, str] | None = None,
    created: datetime | None = None,
) -> Node:
    """A Node; its addresses are internal ones, its provider id has its name."""
    return objects.node(
        name,
        f"local://{name}" if provider_id is None else provider_id,
        addresses=addresses,
        system_uuid=uuid,
        annotations=annotations or {},
        pod_cidrs=cidrs,
        conditions=(Condition("Ready", "True" if is_ready else "Unknown"),),
        creation_timestamp=created,
    )
