"""The plan of the provider `simulated` as a pure function: it converges from any state."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.identity import MARK_CLUSTER_UID, ClusterIdentity
from proreus.cloudprovider.load_balancers import HostPolicy, LoadBalancer
from proreus.kube.objects import (
    LoadBalancerIngress,
    ServicePort,
)
from proreus.providers.simulated.parts import (
    Address,
    Balancer,
    Firewall,
    Listener,
    Observed,
    Part,
)
from proreus.providers.simulated.plan import (
    delete_steps,
    desired_fingerprint,
    fingerprint,
    owned,
    plan,
)
from proreus.providers.simulated.steps import Step
from proreus.testing import objects

REGION = "sim-1"
CLUSTER = ClusterIdentity("test", "cluster-uid")
KINDS: dict[str, type[Part]] = {
    kind.collection: kind for kind in (Address, Balancer, Listener, Firewall)
}


class ModelCloud:
    """Does what steps say, in memory, with the cloud's rule that parts in use are not deleted."""

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}
        self._made = 0

    def take(self, step: Step) -> None:
        body = json.loads(step.call.body.content) if step.call.body is not None else {}
        body.pop("version", None)
        collection, id_ = step.call.url.partition("/")[::2]
        match step.call.name.partition(".")[2]:
            case "create":
                self._create(collection, body)
            case "update":
                self._change(id_, body)
            case "delete":
                assert not self._users(id_), f"{id_} is in use"
                del self.parts[id_]
            case "add_targets":
                id_ = id_.partition("/")[0]
                have = self._targets(id_)
                have |= {target["instance_id"]: target for target in body["targets"]}
                self._change(id_, {"targets": list(have.values())})
            case "remove_targets":
                id_ = id_.partition("/")[0]
                have = self._targets(id_)
                kept = [have[i] for i in have if i not in body["instance_ids"]]
                self._change(id_, {"targets": kept})

    def _create(self, collection: str, body: dict[str, Any]) -> None:
        self._made += 1
        body.pop("idempotency_token")
        if collection == "addresses":
            body["address"] = body["address"] or f"127.0.1.{self._made}"
        states = {"load_balancers": "active", "listeners": "active"}
        if collection in states:
            body["state"] = states[collection]
        id_ = f"{collection}-{self._made}"
        body |= {"kind": KINDS[collection].__struct_config__.tag, "id": id_, "version": 1}
        self.parts[id_] = msgspec.convert({**body, "created": self._made}, KINDS[collection])

    def _change(self, id_: str, fields: dict[str, Any]) -> None:
        part = self.parts[id_]
        self.parts[id_] = msgspec.convert({**msgspec.to_builtins(part), **fields}, type(part))

    def _users(self, id_: str) -> list[str]:
        return [
            part.id
            for part in self.parts.values()
            if id_ in {getattr(part, "address_id", ""), getattr(part, "load_balancer_id", "")}
        ]

    def _targets(self, id_: str) -> dict[str, Any]:
        found = msgspec.to_builtins(self.parts[id_])["targets"]
        return {target["instance_id"]: target for target in found}


def desired_lb(ports: dict[int, int], hosts: set[int], ranges: set[str], ip: str) -> LoadBalancer:
    service = objects.service(
        uid="5e000000-0000-4000-8000-000000000001",
        ports=tuple(ServicePort(port, node_port=to) for port, to in ports.items()),
        ip_families=("IPv4",),
        load_balancer_source_ranges=tuple(sorted(ranges)),
        load_balancer_ip=ip,
    )
    nodes = [
        objects.node(f"node-{n}", f"simulated://{REGION}/i-{n:012x}", addresses=[f"10.0.0.{n}"])
        for n in hosts
    ]
    return desired_load_balancer(service, nodes, HostPolicy(families=("IPv4",)), CLUSTER)


DESIRED = st.builds(
    desired_lb,
    ports=st.dictionaries(st.integers(1, 4), st.integers(30000, 30003), min_size=1),
    hosts=st.sets(st.integers(1, 5)),
    ranges=st.sets(st.sampled_from(["10.0.0.0/8", "192.0.2.0/24"])),
    ip=st.sampled_from(["", "127.0.1.77", "127.0.1.78"]),
)


def converge(cloud: ModelCloud, desired: LoadBalancer) -> None:
    for _ in range(12):
        steps = plan(desired, owned(desired.ref, cloud.parts.values()), REGION)
        if not steps:
            return
        for step in steps:
            cloud.take(step)
    raise AssertionError("the plan never became empty")


@given(DESIRED, DESIRED, st.data())
def test_any_state_converges_to_the_desired_one_and_then_needs_no_step(
    first: LoadBalancer, second: LoadBalancer, data: st.DataObject
) -> None:
    cloud = ModelCloud()
    converge(cloud, first)
    lost = data.draw(st.sets(st.sampled_from(sorted(cloud.parts))))
    for id_ in lost:
        del cloud.parts[id_]
    converge(cloud, second)
    observed = owned(second.ref, cloud.parts.values())
    assert fingerprint(observed) == desired_fingerprint(second, REGION)
    counts = [len(kind) for kind in (observed.addresses, observed.balancers, observed.firewalls)]
    assert counts == [1, 1, 1]
    ip = second.requested_address
    assert not ip or observed.addresses[0].address == ip


@given(DESIRED, st.data())
def test_deletion_from_any_step_of_the_way_leaves_nothing(
    desired: LoadBalancer, data: st.DataObject
) -> None:
    cloud = ModelCloud()
    for _ in range(data.draw(st.integers(0, 4))):
        for step in plan(desired, owned(desired.ref, cloud.parts.values()), REGION):
            cloud.take(step)
    while steps := delete_steps(owned(desired.ref, cloud.parts.values())):
        for step in steps:
            cloud.take(step)
    assert cloud.parts == {}


@given(DESIRED, DESIRED)
def test_equal_fingerprints_mean_that_nothing_is_to_be_done(
    first: LoadBalancer, second: LoadBalancer
) -> None:
    cloud = ModelCloud()
    converge(cloud, first)
    observed = owned(second.ref, cloud.parts.values())
    same = fingerprint(observed) == desired_fingerprint(second, REGION)
    ip = second.requested_address
    if same and (not ip or observed.addresses[0].address == ip):
        assert plan(second, observed, REGION) == ()
    else:
        assert plan(second, observed, REGION) != ()


@given(DESIRED)
def test_parts_of_other_services_and_clusters_are_never_touched(desired: LoadBalancer) -> None:
    cloud = ModelCloud()
    converge(cloud, desired)
    foreign = [
        msgspec.structs.replace(part, tags={**part.tags, mark: "other"})
        for part in cloud.parts.values()
        for mark in ("proreus/cluster-uid", "proreus/service-uid")
    ]
    assert owned(desired.ref, foreign) == Observed()


OFFICIAL = {"kubernetes.io/cluster/test": "owned", "kubernetes.io/service-name": "default/web"}


def by_official_manager(desired: LoadBalancer) -> tuple[ModelCloud, LoadBalancer]:
    """A cloud where the official manager made what is desired, and what is desired after that."""
    cloud = ModelCloud()
    converge(cloud, desired)
    for id_, part in cloud.parts.items():
        cloud.parts[id_] = msgspec.structs.replace(part, tags=OFFICIAL)
    (stated,) = (part.address for part in cloud.parts.values() if isinstance(part, Address))
    ref = msgspec.structs.replace(desired.ref, last_ingress=(LoadBalancerIngress(ip=stated),))
    return cloud, msgspec.structs.replace(desired, ref=ref)


@given(DESIRED)
def test_what_the_official_manager_made_is_adopted_by_tags_alone(first: LoadBalancer) -> None:
    cloud, desired = by_official_manager(first)
    before = dict(cloud.parts)

    assert owned(desired.ref, before.values()).parts == before
    converge(cloud, desired)

    assert cloud.parts == {
        id_: msgspec.structs.replace(part, tags={**OFFICIAL, **desired.marks})
        for id_, part in before.items()
    }
    # Also when the status is lost: from now on the marks are proof enough.
    assert owned(first.ref, cloud.parts.values()).parts == cloud.parts


@given(DESIRED)
def test_what_the_official_manager_made_goes_with_its_service(first: LoadBalancer) -> None:
    cloud, desired = by_official_manager(first)
    while steps := delete_steps(owned(desired.ref, cloud.parts.values())):
        for step in steps:
            cloud.take(step)
    assert cloud.parts == {}


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(
            {**OFFICIAL, "kubernetes.io/service-name": "default/other"}, id="another Service"
        ),
        pytest.param({**OFFICIAL, "kubernetes.io/cluster/test": "shared"}, id="not owned"),
        pytest.param(
            {
                "kubernetes.io/cluster/other": "owned",
                "kubernetes.io/service-name": "default/web",
            },
            id="another cluster",
        ),
        pytest.param(
            {**OFFICIAL, MARK_CLUSTER_UID: "other-uid"}, id="taken by a cluster of the same name"
        ),
        pytest.param({}, id="no tags"),
    ],
)
def test_without_all_proofs_nothing_of_the_official_manager_is_adopted(
    tags: dict[str, str],
) -> None:
    cloud, desired = by_official_manager(desired_lb({80: 30000}, {1}, set(), ""))
    parts = [msgspec.structs.replace(part, tags=tags) for part in cloud.parts.values()]

    assert owned(desired.ref, parts) == Observed()


@pytest.mark.parametrize("stated", [(), ("127.0.9.9",)])
def test_nothing_is_adopted_at_another_address_than_the_status_shows(
    stated: tuple[str, ...],
) -> None:
    cloud, desired = by_official_manager(desired_lb({80: 30000}, {1}, set(), ""))
    ingress = tuple(LoadBalancerIngress(ip=ip) for ip in stated)
    ref = msgspec.structs.replace(desired.ref, last_ingress=ingress)

    assert owned(ref, cloud.parts.values()) == Observed()


def test_of_two_balancers_with_the_same_tags_the_one_at_the_address_is_adopted() -> None:
    cloud, desired = by_official_manager(desired_lb({80: 30000}, {1}, set(), ""))
    other, _ = by_official_manager(desired_lb({80: 30000}, {1}, set(), "127.0.9.9"))
    moved = [
        msgspec.convert({**msgspec.to_builtins(part), "id": f"other-{part.id}"}, type(part))
        for part in other.parts.values()
    ]
    for part in moved:
        for field in ("address_id", "load_balancer_id"):
            if hasattr(part, field):
                part = msgspec.structs.replace(part, **{field: f"other-{getattr(part, field)}"})
        cloud.parts[part.id] = part

    found = owned(desired.ref, cloud.parts.values()).parts

    assert sorted(found) == sorted(id_ for id_ in cloud.parts if not id_.startswith("other-"))
