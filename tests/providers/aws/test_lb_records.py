"""What load balancers of AWS were made from is recorded on them, and what would be done is told."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from proreus.cloudprovider import Ensured, InvalidRequest, LoadBalancer
from proreus.kube.objects import ServicePort

from .lb_site import HTTP, LBSite, placed
from .site import CLUSTER
from .strict.process import StrictAWS

MORE = ServicePort(81, "more", node_port=30081)


@pytest.fixture(params=["", "nlb"], ids=["classic", "network"])
async def site(aws: StrictAWS, request: pytest.FixtureRequest) -> AsyncIterator[LBSite]:
    async with placed(aws, kind=request.param) as found:
        yield found


def with_status(desired: LoadBalancer, answer: Ensured) -> LoadBalancer:
    ref = msgspec.structs.replace(desired.ref, last_ingress=answer.ingress)
    return msgspec.structs.replace(desired, ref=ref)


async def is_shown(site: LBSite, desired: LoadBalancer) -> bool:
    """Whether the listing tells that all is as desired."""
    expected = site.balancers.fingerprint(desired)
    owned = await site.balancers.list_owned(CLUSTER)
    return expected in {one.fingerprint for one in owned if one.recorded}


async def test_a_record_costs_a_creation_one_call_a_change_two_and_a_listing_none(
    site: LBSite,
) -> None:
    ids = site.machines(2)
    desired = site.desired(ids[:1])
    desired = with_status(desired, await site.made(desired))
    assert [one.partition(".")[2] for one in site.writes()].count("AddTags") == 1
    assert await is_shown(site, desired)
    site.aws.calls()
    await site.made(desired)
    assert site.writes() == []
    more = site.desired(ids)
    more = with_status(more, await site.made(more))
    names = [one.partition(".")[2] for one in site.writes()]
    assert names[0] == names[-1] == "AddTags"
    assert names.count("AddTags") == 2
    assert await is_shown(site, more)
    assert not await is_shown(site, desired)


async def test_a_host_that_is_refused_is_tried_again_with_each_pass(site: LBSite) -> None:
    first, gone = site.machines(2)
    site.ec2.terminate_instances(InstanceIds=[gone])
    desired = site.desired([first, gone])
    answer = await site.made(desired)
    assert answer.rejected
    assert not await is_shown(site, with_status(desired, answer))


async def test_a_wrong_annotation_has_no_fingerprint_and_the_preview_shows_why(
    site: LBSite,
) -> None:
    desired = site.desired(site.machines(1))
    wrong = msgspec.structs.replace(
        desired.service.metadata,
        annotations={
            **desired.service.metadata.annotations,
            "service.beta.kubernetes.io/aws-load-balancer-healthcheck-interval": "soon",
        },
    )
    service = msgspec.structs.replace(desired.service, metadata=wrong)
    asked = msgspec.structs.replace(desired, service=service)
    assert site.balancers.fingerprint(asked) == ""
    assert isinstance(await site.previewed(asked), InvalidRequest)
    assert isinstance(await site.ensure(asked), InvalidRequest)


async def test_a_preview_shows_listeners_targets_and_rules_and_writes_nothing(
    site: LBSite,
) -> None:
    ids = site.machines(2)
    desired = site.desired(ids[:1])
    site.aws.calls()
    new = await site.previewed(desired)
    assert {one.action for one in new} <= {"create", "change"}
    assert {one.part.split()[0] for one in new} >= {"load", "listener", "target", "rule"}
    assert site.writes() == []
    await site.made(desired)
    assert await site.previewed(desired) == []
    site.aws.calls()
    changed = await site.previewed(site.desired(ids[1:], HTTP, MORE))
    assert site.writes() == []
    shown = {(one.action, one.part) for one in changed}
    assert {
        ("create", "listener 81"),
        ("create", f"target {ids[1]}"),
        ("delete", f"target {ids[0]}"),
    } <= shown
