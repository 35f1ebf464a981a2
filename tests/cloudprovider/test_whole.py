"""Load balancers that are one object of the cloud each."""

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec
import pytest

from proreus.cloudprovider import (
    MARK_CLUSTER_UID,
    MARK_SERVICE_UID,
    CloudError,
    ClusterIdentity,
    Done,
    Ensured,
    HostPolicy,
    InvalidRequest,
    LoadBalancer,
    LoadBalancers,
    OwnedObject,
    PartChange,
    Pending,
    Previews,
    per_object,
)
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.kube.objects import LoadBalancerIngress, ServicePort
from proreus.testing.objects import service

CLUSTER = ClusterIdentity("prod", "cluster-uid")


class Balancer(msgspec.Struct, frozen=True):
    name: str
    labels: Mapping[str, str]
    color: str
    ports: Mapping[int, int] = {}
    address: str = ""


class Cloud:
    """Keeps balancers, and the writes that it gets; `address` is what a new one gets."""

    def __init__(self) -> None:
        self.balancers: dict[str, Balancer] = {}
        self.writes: list[str] = []
        self.address = "192.0.2.1"

    async def find(self, name: str) -> Balancer | None:
        return self.balancers.get(name)

    async def create(self, desired: Balancer) -> Balancer:
        assert desired.name not in self.balancers
        return self._write("create", desired)

    async def replace(self, name: str, desired: Balancer) -> Balancer:
        assert name == desired.name
        return self._write("replace", desired)

    async def delete(self, name: str) -> None:
        self.writes.append("delete")
        del self.balancers[name]

    async def marked(self, cluster: ClusterIdentity) -> Sequence[Balancer]:
        found = self.balancers.values()
        return [one for one in found if one.labels.get(MARK_CLUSTER_UID) == cluster.uid]

    def _write(self, verb: str, desired: Balancer) -> Balancer:
        self.writes.append(verb)
        made = msgspec.structs.replace(desired, address=self.address)
        self.balancers[desired.name] = made
        return made


def plan(lb: LoadBalancer) -> tuple[Balancer, Mapping[str, str]]:
    color = lb.service.metadata.annotations.get("color", "red")
    if color == "ultraviolet":
        raise InvalidRequest("metadata.annotations: nobody sees this color")
    ports = {one.port: one.node_port for one in lb.frontends}
    rejected = {"n9": "has no address"} if color == "green" else {}
    return Balancer(lb.ref.name, lb.marks, color, ports), rejected


def balancers(cloud: Cloud) -> LoadBalancers:
    return per_object(
        cloud,
        plan,
        kind="balancer",
        name=lambda one: one.name,
        marks=lambda one: one.labels,
        ingress=lambda one: [LoadBalancerIngress(ip=one.address)] if one.address else [],
        chosen=["address"],
        list_marked=cloud.marked,
    )


def desired_lb(color: str = "red", uid: str = "uid-web") -> LoadBalancer:
    ports = tuple(ServicePort(port, f"p{port}", node_port=30000 + port) for port in (443, 80))
    web = service("web", uid=uid, annotations={"color": color}, ports=ports)
    return desired_load_balancer(web, [], HostPolicy(), CLUSTER)


async def ensure(cloud: Cloud, desired: LoadBalancer) -> object:
    return (await balancers(cloud).ensure([desired]))[desired.ref.uid]


async def preview(cloud: Cloud, desired: LoadBalancer) -> object:
    previews = cast("Previews", balancers(cloud))
    return (await previews.preview([desired]))[desired.ref.uid]


async def test_an_object_is_made_once_and_changed_only_where_it_differs() -> None:
    cloud = Cloud()
    part = f"balancer {desired_lb().ref.name}"
    answer = Ensured((LoadBalancerIngress(ip="192.0.2.1"),))
    assert await preview(cloud, desired_lb()) == (PartChange("create", part),)
    assert await ensure(cloud, desired_lb()) == answer
    assert await ensure(cloud, desired_lb()) == answer
    assert await preview(cloud, desired_lb()) == ()
    assert cloud.writes == ["create"]
    assert await preview(cloud, desired_lb("blue")) == (PartChange("change", part, "color"),)
    assert cloud.writes == ["create"]
    assert await ensure(cloud, desired_lb("blue")) == answer
    assert cloud.writes == ["create", "replace"]
    assert [one.color for one in cloud.balancers.values()] == ["blue"]


async def test_nodes_are_rejected_by_name_each_time_since_no_fingerprint_shows_them() -> None:
    cloud, green = Cloud(), desired_lb("green")
    for _ in range(2):
        answer = await ensure(cloud, green)
        assert isinstance(answer, Ensured)
        assert answer.rejected == {"n9": "has no address"}
        assert balancers(cloud).fingerprint(green) == ""
    assert cloud.writes == ["create"]


async def test_an_object_without_an_address_is_pending() -> None:
    cloud = Cloud()
    cloud.address = ""
    assert isinstance(await ensure(cloud, desired_lb()), Pending)
    assert [one.addresses for one in await balancers(cloud).list_owned(CLUSTER)] == [()]


async def test_what_the_plan_refuses_is_the_answer_and_has_no_fingerprint() -> None:
    cloud = Cloud()
    assert isinstance(await ensure(cloud, desired_lb("ultraviolet")), InvalidRequest)
    assert isinstance(await preview(cloud, desired_lb("ultraviolet")), InvalidRequest)
    assert balancers(cloud).fingerprint(desired_lb("ultraviolet")) == ""


@pytest.mark.parametrize(
    "mark", [{MARK_CLUSTER_UID: "another"}, {MARK_SERVICE_UID: "another"}, None]
)
async def test_what_is_not_ours_is_neither_changed_nor_deleted(mark: dict[str, str] | None) -> None:
    cloud = Cloud()
    await ensure(cloud, desired_lb())
    ((name, made),) = cloud.balancers.items()
    labels = {} if mark is None else {**made.labels, **mark}
    cloud.balancers[name] = msgspec.structs.replace(made, labels=labels)
    for answer in (
        await ensure(cloud, desired_lb("blue")),
        await preview(cloud, desired_lb("blue")),
    ):
        assert type(answer) is CloudError
        assert "without the marks of this Service" in str(answer)
    gone = await balancers(cloud).delete([desired_lb().ref])
    assert gone == {"uid-web": Done(found=False)}
    assert cloud.writes == ["create"]


async def test_what_is_ours_is_deleted_and_then_was_not_there() -> None:
    cloud = Cloud()
    await ensure(cloud, desired_lb())
    for found in (True, False):
        assert await balancers(cloud).delete([desired_lb().ref]) == {"uid-web": Done(found=found)}
    assert cloud.balancers == {}


async def test_a_list_has_the_fingerprint_of_what_is_desired_and_the_address() -> None:
    cloud = Cloud()
    await ensure(cloud, desired_lb())
    verbs = balancers(cloud)
    fingerprint = verbs.fingerprint(desired_lb())
    assert await verbs.list_owned(CLUSTER) == [
        OwnedObject("balancer", desired_lb().ref.name, "default/web", "uid-web", fingerprint,
                    ("192.0.2.1",))
    ]  # fmt: skip
    assert verbs.fingerprint(desired_lb("blue")) != fingerprint
    # A cloud need not keep the order of a map.
    ((name, made),) = cloud.balancers.items()
    ports = dict(reversed(list(made.ports.items())))
    cloud.balancers[name] = msgspec.structs.replace(made, ports=ports)
    assert [one.fingerprint for one in await verbs.list_owned(CLUSTER)] == [fingerprint]
    assert await verbs.list_owned(ClusterIdentity("other", "other-uid")) == []
