"""Records of what load balancers were made from."""

from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import (
    CallTimeout,
    CloudError,
    ClusterIdentity,
    Host,
    HostPolicy,
    LoadBalancer,
    Reason,
    Record,
    Refused,
    Unauthenticated,
    desired_digest,
)
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.kube.objects import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    ObjectMeta,
    Service,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
)

SERVICE = Service(
    ObjectMeta(name="web", namespace="shop", uid="u1"),
    ServiceSpec(
        type="LoadBalancer", ip_families=("IPv4",), ports=(ServicePort(80, node_port=30080),)
    ),
)
INGRESS = (LoadBalancerIngress(hostname="lb.example.com"),)


def desired(service: Service = SERVICE, **fields: Any) -> LoadBalancer:
    found = desired_load_balancer(service, (), HostPolicy(), ClusterIdentity("c", "c-uid"))
    return msgspec.structs.replace(found, **{"hosts": (Host("n1", "sim://1"),), **fields})


def with_meta(**fields: Any) -> Service:
    meta = msgspec.structs.replace(SERVICE.metadata, **fields)
    return msgspec.structs.replace(SERVICE, metadata=meta)


def with_spec(**fields: Any) -> Service:
    return msgspec.structs.replace(SERVICE, spec=msgspec.structs.replace(SERVICE.spec, **fields))


SHOWN = msgspec.structs.replace(SERVICE, status=ServiceStatus(LoadBalancerStatus(INGRESS)))

DIFFERENT = {
    "hosts": desired(hosts=()),
    "another host's address": desired(hosts=(Host("n1", "sim://1", {"IPv4": ("10.0.0.1",)}),)),
    "a port": desired(with_spec(ports=(ServicePort(81, node_port=30080),))),
    "source ranges": desired(with_spec(load_balancer_source_ranges=("10.0.0.0/8",))),
    "the uid": desired(with_meta(uid="u2")),
    "an address in the status": desired(SHOWN),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_the_digest_changes_with_every_difference(name: str) -> None:
    assert desired_digest(DIFFERENT[name]) != desired_digest(desired())


def test_inputs_and_the_version_of_the_code_count() -> None:
    digests = {
        desired_digest(desired()),
        desired_digest(desired(), {"internal": True}),
        desired_digest(desired(), {"internal": False}),
        desired_digest(desired(), version="another"),
    }
    assert len(digests) == 4


def test_the_answer_is_what_the_status_will_show() -> None:
    assert desired_digest(desired(), ingress=INGRESS) == desired_digest(desired(SHOWN))


def test_what_changes_without_anybody_asking_does_not_count() -> None:
    told = with_meta(resource_version="7", labels={"a": "b"}, annotations={"other": "x"})
    assert desired_digest(desired(told)) == desired_digest(desired())


class Tag:
    """A tag, and what was written to it."""

    def __init__(self, *refusals: CloudError) -> None:
        self.written: list[str] = []
        self._refusals = list(refusals)

    async def write(self, value: str) -> None:
        if self._refusals:
            raise self._refusals.pop(0)
        self.written.append(value)


async def test_a_record_goes_before_the_first_change_and_comes_after_the_last() -> None:
    tag = Tag()
    record = Record("old", tag.write)
    await record.clear()
    await record.clear()
    assert (tag.written, record.is_cleared) == ([""], True)
    await record.keep("old")
    assert tag.written == ["", "old"]


async def test_without_a_change_only_another_record_is_written() -> None:
    tag = Tag()
    await Record("same", tag.write).keep("same")
    assert tag.written == []
    await Record("old", tag.write).keep("new")
    assert tag.written == ["new"]


async def test_of_what_is_new_nothing_is_taken_away() -> None:
    tag, later = Tag(), Tag()
    record = Record("", tag.write)
    await record.clear()
    await record.keep("new", later.write)
    assert (tag.written, later.written, record.is_cleared) == ([], ["new"], False)


async def test_a_record_that_cannot_be_taken_away_keeps_everything_from_being_changed() -> None:
    record = Record("old", Tag(Refused("no", status=403, reason=Reason.FORBIDDEN)).write)
    with pytest.raises(Refused):
        await record.clear()


@pytest.mark.parametrize(
    "refusal",
    [
        Refused("too many tags", status=400, reason=Reason.INVALID),
        Refused("no", status=403, reason=Reason.FORBIDDEN),
        Unauthenticated("no right"),
    ],
)
async def test_a_cloud_that_will_have_no_record_keeps_nobody_from_being_served(
    refusal: CloudError,
) -> None:
    tag = Tag(refusal)
    await Record("", tag.write).keep("new")
    assert tag.written == []


@pytest.mark.parametrize(
    "failure", [CallTimeout("no answer"), Refused("busy", status=409, reason=Reason.CONFLICT)]
)
async def test_a_record_that_may_have_been_written_is_tried_again(failure: CloudError) -> None:
    with pytest.raises(type(failure)):
        await Record("", Tag(failure).write).keep("new")
