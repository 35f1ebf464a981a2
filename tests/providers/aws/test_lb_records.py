"""What load balancers of AWS were made from is recorded on them, and what would be done is told."""

from collections.abc import AsyncIterator
from typing import Any

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


def with_status(wish: LoadBalancer, answer: Ensured) -> LoadBalancer:
    ref = msgspec.structs.replace(wish.ref, last_ingress=answer.ingress)
    return msgspec.structs.replace(wish, ref=ref)


async def is_shown(site: LBSite, wish: LoadBalancer) -> bool:
    """Whether the listing tells that all is as wished."""
    expected = site.balancers.fingerprint(wish)
    owned = await site.balancers.list_owned(CLUSTER)
    return expected in {one.fingerprint for one in owned if one.recorded}


async def previewed(site: LBSite, wish: LoadBalancer) -> Any:
    preview = site.balancers.preview  # type: ignore[attr-defined]
    return (await preview([wish]))[wish.ref.uid]


async def test_a_new_one_costs_one_call_more_a_change_two_and_a_look_none(site: LBSite) -> None:
    ids = site.machines(2)
    wish = site.wish(ids[:1])
    wish = with_status(wish, await site.made(wish))
    assert [one.partition(".")[2] for one in site.writes()].count("AddTags") == 1
    assert await is_shown(site, wish)
    site.aws.calls()
    await site.made(wish)
    assert site.writes() == []
    more = site.wish(ids)
    more = with_status(more, await site.made(more))
    names = [one.partition(".")[2] for one in site.writes()]
    assert names[0] == names[-1] == "AddTags"
    assert names.count("AddTags") == 2
    assert await is_shown(site, more)
    assert not await is_shown(site, wish)


async def test_a_host_that_is_refused_is_tried_again_with_each_look(site: LBSite) -> None:
    first, gone = site.machines(2)
    site.ec2.terminate_instances(InstanceIds=[gone])
    wish = site.wish([first, gone])
    answer = await site.made(wish)
    assert answer.rejected
    assert not await is_shown(site, with_status(wish, answer))


async def test_a_wrong_annotation_has_no_fingerprint_and_the_preview_says_why(site: LBSite) -> None:
    wish = site.wish(site.machines(1))
    wrong = msgspec.structs.replace(
        wish.service.metadata,
        annotations={
            **wish.service.metadata.annotations,
            "service.beta.kubernetes.io/aws-load-balancer-healthcheck-interval": "soon",
        },
    )
    service = msgspec.structs.replace(wish.service, metadata=wrong)
    asked = msgspec.structs.replace(wish, service=service)
    assert site.balancers.fingerprint(asked) == ""
    assert isinstance(await previewed(site, asked), InvalidRequest)
    assert isinstance(await site.ensure(asked), InvalidRequest)


async def test_a_preview_tells_listeners_targets_and_rules_and_writes_nothing(
    site: LBSite,
) -> None:
    ids = site.machines(2)
    wish = site.wish(ids[:1])
    site.aws.calls()
    new = await previewed(site, wish)
    assert {one.action for one in new} <= {"create", "change"}
    assert {one.part.split()[0] for one in new} >= {"load", "listener", "target", "rule"}
    assert site.writes() == []
    await site.made(wish)
    assert await previewed(site, wish) == []
    site.aws.calls()
    changed = await previewed(site, site.wish(ids[1:], HTTP, MORE))
    assert site.writes() == []
    shown = {(one.action, one.part) for one in changed}
    assert {
        ("create", "listener 81"),
        ("create", f"target {ids[1]}"),
        ("delete", f"target {ids[0]}"),
    } <= shown
