"""What the conformance suite needs of an emulated Compute Engine, by kinds of load balancers.

Each kind has a file of tests of its own, so that they run beside one another.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import pytest

from proreus.cloudprovider import CloudProvider, LoadBalancerRef
from proreus.cloudprovider.config import read
from proreus.cloudprovider.names import default_load_balancer_name
from proreus.providers.gce import GCECloud
from proreus.providers.gce.balancing.annotations import RBS, TYPE
from proreus.providers.gce.config import GCEConfig
from proreus.testing.conformance import Answer, CloudFixture

from .cloud.errors import ApiError
from .cloud.server import Gce
from .cloud.world import PROJECT, REGION, ZONES
from .conftest import environment

KINDS = (
    *("addresses", "backendServices", "firewalls", "forwardingRules", "healthChecks"),
    *("httpHealthChecks", "instanceGroups", "networkEndpointGroups", "targetPools"),
)
MEMBERS = ("members", "instances", "endpoints")
_QUOTA = ApiError(403, "rateLimitExceeded", "Quota exceeded for quota metric 'Queries'.")
OTHER_UID = "0f0e0d0c-0000-4000-8000-00000000000f"


class GCEFixture(CloudFixture):
    """A project; objects are what load balancers leave in it, and members of it."""

    gce: ClassVar[Gce]
    extra = sections = ""
    page_size = 5
    timeout = 60.0
    patience = 60.0
    marks_routes = False
    uses_node_ports = False
    throttled = Answer(403, json.dumps(_QUOTA.body).encode(), {"Retry-After": "120"})

    async def __aenter__(self) -> Self:
        self.gce.reset()
        self.gce.world.page = self.page_size
        self.endpoint = self.gce.endpoint
        return self

    def provider(self, endpoint: str) -> CloudProvider:
        text = (
            f"[global]\napi-endpoint = {endpoint}/compute/v1/\nmultizone = true\n{self.extra}"
            f"[Client]\ntimeout = {self.timeout}s\noperation-timeout = {self.timeout}s\n"
            f"{self.sections}"
        )
        return GCECloud(read(text, GCEConfig, source="gce.conf"))

    async def create_machines(self, names: Sequence[str]) -> None:
        for number, name in enumerate(names):
            self.gce.run(name, zone=ZONES[number % len(ZONES)], tags=("machine",))

    async def remove_machine(self, name: str) -> None:
        self.gce.terminate(name)

    async def stop_machine(self, name: str) -> None:
        with self.gce.changing(self.gce.machine(name)) as machine:
            machine["status"] = "TERMINATED"

    async def objects(self) -> Mapping[str, object]:
        found: dict[str, object] = {}
        with self.gce.world.lock:
            for kind in KINDS:
                for path, one in self.gce.world.of(kind):
                    members = one.get("members") or one.get("instances") or ()
                    ends = map(_name, one.get("endpoints", ()))
                    found[path] = {**one, **{key: [] for key in MEMBERS}, "size": 0}
                    found |= {f"{path} {member}": member for member in (*members, *ends)}
        return json.loads(json.dumps(found))  # type: ignore[no-any-return]

    async def remove_object(self, id_: str) -> None:
        path, _, member = id_.partition(" ")
        with self.gce.changing(path) as one:
            if member:
                for field in MEMBERS:
                    one[field] = [each for each in one.get(field) or () if _name(each) != member]
                return
            self.gce.world.drop(path)
            for user in self.gce.world.objects.values():
                _forget(user, self.gce.world.link(path))

    async def create_foreign(self, ref: LoadBalancerRef) -> None:
        """Parts of another Service, named alike."""
        name = default_load_balancer_name(OTHER_UID)
        at = f"projects/{PROJECT}"
        world = self.gce.world
        with world.lock:
            world.put(f"{at}/global/firewalls/k8s-fw-{name}", {"name": f"k8s-fw-{name}"})
            pool = f"{at}/regions/{REGION}/targetPools/{name}"
            world.put(pool, {"name": name, "instances": [], "healthChecks": []})
            world.put(
                f"{at}/regions/{REGION}/forwardingRules/{name}",
                {"name": name, "IPAddress": "34.10.255.1", "IPProtocol": "TCP", "labels": {},
                 "target": world.link(pool), "loadBalancingScheme": "EXTERNAL"},
            )  # fmt: skip


def _name(member: Any) -> str:
    """What a member is called: a link, or an endpoint's instance."""
    return str(member["instance"] if isinstance(member, dict) else member)


def _forget(resource: dict[str, Any], link: str) -> None:
    """Let nothing refer to what is gone."""
    for field in ("healthChecks", "instances"):
        if link in (resource.get(field) or ()):
            resource[field] = [one for one in resource[field] if one != link]
    if resource.get("backends"):
        resource["backends"] = [one for one in resource["backends"] if one["group"] != link]


class InternalFixture(GCEFixture):
    annotations: Mapping[str, str] = {TYPE: "Internal"}


class SubsetFixture(InternalFixture):
    """Internal load balancers with a subset of the nodes."""

    extra = "subnetwork-name = default\n"
    sections = "[LoadBalancer]\nsubsetting = true\n"


class BackendServiceFixture(GCEFixture):
    """External load balancers with backend services."""

    annotations: Mapping[str, str] = {RBS: "enabled"}
    extra = "subnetwork-name = outside\n"
    sections = "[LoadBalancer]\nbackend-services = true\ndual-stack = true\n"


@pytest.fixture(autouse=True, scope="module")
def metadata(gce_server: Gce) -> Iterator[None]:
    GCEFixture.gce = gce_server
    with pytest.MonkeyPatch.context() as patch:
        environment(patch, gce_server)
        yield
